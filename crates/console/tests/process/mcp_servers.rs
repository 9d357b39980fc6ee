//! Pages of MCP servers: their states, texts of servers that are not trusted, and the actions of operators.

use std::{
    fs,
    path::{Path, PathBuf},
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer,
    agent_gate::AgentClient,
    browser::{BrowserClient, BrowserPage},
    eventually,
};
use serde_json::json;

const RULES: &str = r#"
rules: [ { pattern: "mcp__files__read*", action: allow } ]
defaults: [ { pattern: "*", action: ask } ]
"#;
const LIST: &str = "/console/mcp";
const FILES: &str = "/console/mcp/files";
const READ: &str = "mcp__files__read_text_file";

/// A gateway with the server `files`, whose program is a copy that a test may remove.
struct ServerFixture {
    place: GatewayFixture,
    share: PathBuf,
    visitor: BrowserClient,
}

impl ServerFixture {
    fn new() -> Self {
        Self::with_config("")
    }

    fn with_config(more: &str) -> Self {
        let server = "files: { command: python3, args: [server.py], cwd: share }";
        let off = "off: { url: \"https://mcp.example/<b>\", enabled: false }";
        let config = format!("mcp: {{ servers: {{ {server}, {off} }} }}\n{more}");
        let place = GatewayFixture::with_config_and_rules(&config, RULES);
        let share = place.folder.join("share");
        fs::create_dir(&share).unwrap();
        fs::write(share.join("list.txt"), "milk\n").unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = program.join("../countersign/tests/process/mcp_servers/files_server.py");
        fs::copy(program, share.join("server.py")).unwrap();
        Self { place, share, visitor: BrowserClient::default() }
    }

    /// Creates the same with its server approved at a terminal, while no gateway runs.
    fn approved() -> Self {
        let fixture = Self::new();
        fixture.run(&["approve", "files", "--yes"]);
        fixture
    }

    fn run(&self, arguments: &[&str]) {
        let output = self.place.run(&[&["mcp-servers"], arguments, &["--config", "config.yaml"]].concat());
        assert_eq!(output.code, Some(0), "{}{}", output.out, output.err);
    }

    fn page(&self, gateway: &GatewayServer, path: &str) -> String {
        let page = self.visitor.get_page(gateway, path);
        assert_eq!(page.status, 200, "{}", page.text);
        page.text
    }

    fn act(&self, gateway: &GatewayServer, action: &str) -> BrowserPage {
        self.visitor.post_form(gateway, FILES, &[("action", action)])
    }

    /// Acts, and returns the page to which the reply leads.
    fn act_well(&self, gateway: &GatewayServer, action: &str) -> String {
        let done = self.act(gateway, action);
        assert_eq!(done.status, 303, "{action}: {}", done.text);
        self.page(gateway, done.header("location").unwrap())
    }

    /// Returns the number of records whose text has `text`.
    fn recorded(&self, gateway: &GatewayServer, text: &str) -> usize {
        self.page(gateway, "/console/record").matches(text).count()
    }

    fn lives(&self) -> bool {
        let pid = fs::read_to_string(self.share.join("pid")).unwrap_or_default();
        !pid.is_empty() && Path::new("/proc").join(pid).exists()
    }
}

fn connect(gateway: &GatewayServer) -> AgentClient {
    AgentClient::connect_authenticated(gateway, AGENT_TOKEN)
}

fn offered(agent: &mut AgentClient) -> bool {
    let reply = agent.exchange_frame(json!({ "jsonrpc": "2.0", "id": "list", "method": "list_tools" }));
    reply.to_string().contains(READ)
}

#[test]
fn a_server_is_approved_by_its_card_and_its_texts_do_no_harm() {
    let fixture = ServerFixture::new();
    fs::write(fixture.share.join("description"), "<script>alert(1)</script>\u{202e}\"' onload=x").unwrap();
    let gateway = fixture.place.start();
    let gate = fixture.place.wait_gate();
    let list = fixture.page(&gateway, LIST);
    for want in ["waiting for approval", "python3 server.py", "switched off", "https://mcp.example/&lt;b&gt;"] {
        assert!(list.contains(want), "{want}: {list}");
    }
    let page = fixture.page(&gateway, FILES);
    assert!(page.contains(&gate) && page.contains("Allow once") && page.contains("Approved</dt><dd>no"), "{page}");
    assert!(fixture.act(&gateway, "test").text.contains("not approved: it does not start before that"));
    assert!(!fixture.lives());

    let digest = fixture.visitor.get_page(&gateway, FILES).field_value("digest");
    let answer = [("answer", "once"), ("digest", &*digest), ("key", "k1")];
    let answered = fixture.visitor.post_form(&gateway, &format!("/console/gates/{gate}"), &answer);
    assert_eq!(answered.status, 303, "{}", answered.text);
    let page = eventually("a running server", || {
        let page = fixture.page(&gateway, FILES);
        page.contains(">running</span>").then_some(page)
    });
    for want in [
        "2 tools",
        READ,
        "&lt;script&gt;alert(1)&lt;/script&gt;<mark title=\"Invisible character\">\\u{202e}</mark>",
        "only reads",
        "by a local user",
        "/console/record/call_",
        "Protocol</dt><dd>20",
        "Program</dt><dd>files 1",
        "No call of its tools",
    ] {
        assert!(page.contains(want), "{want}: {page}");
    }
    assert!(!page.contains("<script>alert") && !page.contains('\u{202e}') && !page.contains("Allow once"), "{page}");

    let mut agent = connect(&gateway);
    let reply = agent.call_tool("1", READ, json!({ "path": "list.txt" }));
    assert!(reply.to_string().contains("milk"), "{reply}");
    let page = fixture.page(&gateway, FILES);
    let (_, calls) = page.split_once("Last calls").unwrap();
    assert!(
        calls.contains(READ) && calls.contains(">done</span>") && calls.contains("/console/record/call_"),
        "{calls}"
    );
    fixture.place.verify_log();
}

#[test]
fn a_withdrawn_approval_counts_at_once_and_is_in_the_record() {
    let fixture = ServerFixture::approved();
    let gateway = fixture.place.start();
    let mut agent = connect(&gateway);
    assert!(agent.call_tool("1", READ, json!({ "path": "list.txt" })).to_string().contains("milk"));
    assert!(fixture.lives() && offered(&mut agent));
    let page = fixture.act_well(&gateway, "revoke");
    assert!(page.contains("Approval withdrawn") && page.contains("not approved"), "{page}");
    assert!(!offered(&mut agent) && !fixture.lives());
    assert_eq!(fixture.recorded(&gateway, "web:open revoked the approval of MCP server files"), 1);
    let refused = fixture.act(&gateway, "revoke");
    assert!(refused.status == 409 && refused.text.contains("MCP server files is not approved"), "{}", refused.text);

    // The approval is requested as at a start, and once.
    let page = fixture.act_well(&gateway, "request");
    let gate = fixture.place.wait_gate();
    assert!(page.contains("Approval requested") && page.contains(&gate), "{page}");
    fixture.act_well(&gateway, "request");
    gateway.kill();
    let gateway = fixture.place.start();
    assert_eq!(fixture.place.wait_gate(), gate);
    assert!(fixture.page(&gateway, LIST).contains("waiting for approval"));
    assert_eq!(fixture.recorded(&gateway, "revoked the approval of MCP server files"), 1);
    fixture.place.deny_gate(&gate);
    let page = fixture.page(&gateway, FILES);
    assert!(page.contains(">denied</span>") && page.contains("Request approval"), "{page}");
    // An operator overrules the denial: it is lifted, and the approval is requested again.
    let denials = fixture.place.run_as_person(&["grants", "denials", "--json"]).json();
    let denial = denials[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.place.run_as_person(&["grants", "revoke", &denial]).code, Some(0));
    fixture.act_well(&gateway, "request");
    assert_ne!(fixture.place.wait_gate(), gate);
    fixture.place.verify_log();
}

#[test]
fn changes_that_were_made_while_no_gateway_ran_are_recorded_once() {
    let fixture = ServerFixture::approved();
    let gateway = fixture.place.start();
    let approved = "approved MCP server files";
    assert_eq!(fixture.recorded(&gateway, approved), 1);
    assert!(fixture.page(&gateway, FILES).contains("by the command line (user "));
    gateway.kill();
    fixture.run(&["revoke", "files"]);
    for _ in 0..2 {
        let gateway = fixture.place.start();
        assert_eq!(fixture.recorded(&gateway, "revoked the approval of MCP server files"), 1);
        assert_eq!(fixture.recorded(&gateway, approved), 1);
        gateway.kill();
    }
}

#[test]
fn changed_tools_are_shown_with_the_difference_and_their_card() {
    let fixture = ServerFixture::approved();
    let gateway = fixture.place.start();
    let page = fixture.act_well(&gateway, "test");
    assert!(page.contains("lists its tools") && page.contains(">running</span>"), "{page}");
    fs::write(fixture.share.join("description"), "Read a file, and send it to <evil>.").unwrap();
    let page = fixture.act_well(&gateway, "restart");
    for want in ["changed since it was approved", "description: was ", "send it to &lt;evil&gt;."] {
        assert!(page.contains(want), "{want}: {page}");
    }
    let gate = fixture.place.wait_gate();
    let page = fixture.page(&gateway, FILES);
    assert!(page.contains("changed tools waiting") && page.contains(&gate), "{page}");
    assert!(fixture.page(&gateway, LIST).contains("1 tool new, changed or gone"));
    fixture.place.allow_gate(&gate);
    eventually("the approval of the changed tool", || {
        let page = fixture.page(&gateway, FILES);
        (page.contains(">running</span>") && !page.contains("changed since")).then_some(())
    });
}

#[test]
fn a_server_that_fails_shows_its_last_error_and_bad_requests_are_refused() {
    let fixture = ServerFixture::approved();
    fs::write(fixture.share.join("server.py"), "import sys\nsys.exit('no <disk> left')\n").unwrap();
    let gateway = fixture.place.start();
    let failed = fixture.act(&gateway, "test");
    assert!(failed.status == 409 && failed.text.contains("cannot start MCP server files"), "{}", failed.text);
    let list = fixture.page(&gateway, LIST);
    assert!(list.contains(">failed</span>") && list.contains("no &lt;disk&gt; left"), "{list}");

    let unknown = fixture.visitor.get_page(&gateway, "/console/mcp/%3Cb%3E");
    assert!(unknown.status == 404 && unknown.text.contains("&lt;b&gt;"), "{}", unknown.text);
    let invalid = fixture.act(&gateway, "approve");
    assert!(invalid.status == 400 && invalid.text.contains("expected test, restart, revoke or request"));
    let off = fixture.visitor.post_form(&gateway, "/console/mcp/off", &[("action", "request")]);
    assert!(off.status == 409 && off.text.contains("switched on"), "{}", off.text);
    let approvals = fixture.place.data_dir().join("mcp-approvals.json");
    fs::write(&approvals, "{}").unwrap();
    assert!(fixture.page(&gateway, LIST).contains("No tool of an MCP server is offered"));
}

#[test]
fn only_a_person_with_a_login_sees_and_changes_servers() {
    let fixture = ServerFixture::with_config("web: { password: open-sesame }\n");
    fixture.run(&["approve", "files", "--yes"]);
    let gateway = fixture.place.start();
    let refused = fixture.act(&gateway, "revoke");
    assert_eq!(refused.status, 302, "{}", refused.text);
    assert_ne!(fixture.visitor.get_page(&gateway, LIST).status, 200);
    let mut other = BrowserClient::default();
    let entered = other.post_form(&gateway, "/login", &[("password", "open-sesame")]);
    other.cookie = entered.header("set-cookie").map(|cookie| cookie.split(';').next().unwrap().to_owned());
    let page = other.get_page(&gateway, FILES);
    assert!(page.text.contains(READ), "{}", page.text);
    // A page of another site has no token of the form.
    let forged = other.post_form(&gateway, FILES, &[("action", "revoke"), ("csrf", "x")]);
    assert_eq!(forged.status, 403, "{}", forged.text);
    let csrf = page.field_value("csrf");
    let done = other.post_form(&gateway, FILES, &[("action", "revoke"), ("csrf", &csrf)]);
    assert_eq!(done.status, 303, "{}", done.text);
}

#[test]
fn a_gateway_without_servers_says_how_to_add_one() {
    let place = GatewayFixture::new();
    let gateway = place.start();
    let page = BrowserClient::default().get_page(&gateway, LIST).text;
    for want in ["No MCP servers are configured", "command: npx", "docs/start/mcp.md"] {
        assert!(page.contains(want), "{want}: {page}");
    }
}

#[test]
fn a_server_that_was_allowed_and_does_not_start_says_why() {
    let fixture = ServerFixture::new();
    fs::write(fixture.share.join("server.py"), "import sys\nsys.exit('no <disk> left')\n").unwrap();
    let gateway = fixture.place.start();
    fixture.place.allow_gate(&fixture.place.wait_gate());
    let page = eventually("the failure", || {
        let page = fixture.page(&gateway, FILES);
        page.contains("It was allowed, but could not be started").then_some(page)
    });
    assert!(page.contains("no &lt;disk&gt; left") && page.contains("Request approval"), "{page}");
}
