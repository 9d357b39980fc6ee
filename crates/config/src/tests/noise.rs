//! No file makes the reader panic.

use proptest::prelude::*;

use super::{super::ConfigFlags, ConfigFixture};

/// Pieces of files, so that most of the combinations get past the parser.
const PIECES: &[&str] = &[
    "gateway:",
    "  host: ",
    "  port: ",
    "agent: ",
    "token",
    "agents:",
    "- ",
    "{ ",
    " }",
    "[",
    "]",
    ": ",
    "\n",
    "  ",
    "services:\n  x:\n    url: http://h\n    tools: tools.yaml\n",
    "    auth: { type: ",
    "bearer",
    "messenger:",
    "  telegram:",
    "allowed_users: ",
    "${AGENT_TOKEN}",
    "${",
    "}",
    "${NOWHERE}",
    "${LIST}",
    "!tag ",
    "&a ",
    "*a",
    "<<: ",
    "|\n",
    "'",
    "\"",
    "#",
    "1e999",
    "-1",
    "99999999999999999999",
    ".nan",
    "~",
    "true",
    "storage: { path: ",
    "data/",
    "/",
    "..",
    "\u{e000}",
    "\u{feff}",
    "\0",
    "mcp:\n  servers:\n    x:\n      command: npx\n",
    "      args: [",
    "      env: { A: ",
    "      url: ",
    "providers: { p: { models: [ { id: x, max_tokens: ",
    "people:",
    "timeout: ",
    "approval_timeout: ",
    "errors: [ { status: ",
    "tools:\n  t:\n    args: { a: { validate: '",
    "(",
    "[[",
    "\\",
    "request: { path: ",
    "---\n",
    "? ",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(
        config in prop_oneof![".*", prop::collection::vec(prop::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())],
        tools in prop::collection::vec(prop::sample::select(PIECES), 0..20),
    ) {
        let scene = ConfigFixture::new(&config);
        scene.write("tools.yaml", &tools.concat());
        match scene.load_with(&ConfigFlags::default(), super::VARIABLES) {
            Ok(loaded) => {
                drop(loaded.config.redacted_json());
                drop(loaded.config.exposed_files());
            }
            Err(errors) => prop_assert!(!errors.0.is_empty()),
        }
        // The same text as a file of tools.
        scene.write("tools.yaml", &config);
        scene.write("config.yaml", "services: { x: { url: 'http://h', auth: { type: none }, tools: tools.yaml } }");
        drop(scene.load());
    }
}
