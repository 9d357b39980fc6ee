//! `mcp.servers`: reading, faults, and the shown form.

use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{super::ConfigFlags, ConfigFixture};
use crate::{McpServerConfig, McpServerOrigin, McpTransportConfig};

/// Returns a file with one server.
fn with_server(server: &str) -> ConfigFixture {
    ConfigFixture::new(&format!("mcp: {{ servers: {{ x: {server} }} }}"))
}

fn servers(scene: &ConfigFixture) -> Vec<McpServerConfig> {
    scene.load().unwrap_or_else(|errors| panic!("{errors}")).config.mcp_servers
}

#[test]
fn a_program_is_read_with_every_key() {
    let scene = ConfigFixture::new(
        "mcp:
  servers:
    files:
      command: npx
      args: [\"-y\", '@scope/server', '', '${NUMBER}', '${AGENT_TOKEN}/x']
      env: { TOKEN: '${HA_TOKEN}', BLANK: '', LINES: \"a\\nb\" }
      cwd: share/x
      timeout: 60s
      enabled: false
    Second_2: { command: /opt/My Tools/run, cwd: /srv, args: [], env: {}, timeout: '${SPAN}' }
",
    );
    let variables = [("NUMBER", "12"), ("AGENT_TOKEN", "agent-secret"), ("HA_TOKEN", "ha-secret"), ("SPAN", "1d")];
    let loaded = scene.load_with(&ConfigFlags::default(), &variables).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let [files, second] = &loaded.config.mcp_servers[..] else { panic!("{:?}", loaded.config.mcp_servers) };
    assert_eq!((files.name.as_str(), files.timeout, files.enabled), ("files", Duration::from_secs(60), false));
    assert_eq!(files.origin, McpServerOrigin::Gateway);
    let McpTransportConfig::Stdio { command, args, env, cwd } = &files.transport else { panic!("{files:?}") };
    assert_eq!(command, "npx");
    assert_eq!(args, &["-y", "@scope/server", "", "12", "agent-secret/x"]);
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(env, [("BLANK", ""), ("LINES", "a\nb"), ("TOKEN", "ha-secret")]);
    assert_eq!(cwd.as_deref(), Some(scene.path().join("share/x").as_path()));
    assert_eq!((second.name.as_str(), second.timeout), ("Second_2", McpServerConfig::LONGEST_TIMEOUT));
    let McpTransportConfig::Stdio { args, env, cwd, .. } = &second.transport else { panic!("{second:?}") };
    assert!(args.is_empty() && env.is_empty());
    assert_eq!(cwd.as_deref(), Some(std::path::Path::new("/srv")));
}

#[test]
fn an_address_is_read_with_every_key() {
    let scene = ConfigFixture::new(
        "mcp:
  servers:
    wiki:
      url: https://wiki.example/mcp/
      headers: { X-B: b, X-A: '${HA_TOKEN}' }
      auth: { type: client_credentials, token_url: 'https://id.example/token', client_id: gw, client_secret: '${AGENT_TOKEN}', scope: read write }
    bare: { url: 'http://127.0.0.1:1/mcp', headers: { Authorization: 'Bearer ${HA_TOKEN}' } }
",
    );
    let read = servers(&scene);
    let McpTransportConfig::Http { url, headers, auth } = &read[0].transport else { panic!("{read:?}") };
    assert_eq!(url, "https://wiki.example/mcp/");
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(headers, [("X-B", "b"), ("X-A", "ha-secret")]);
    let auth = auth.as_ref().unwrap();
    assert_eq!((auth.token_url.as_str(), auth.client_id.as_str()), ("https://id.example/token", "gw"));
    assert_eq!((auth.client_secret.expose_secret(), auth.scope.as_deref()), ("agent-secret", Some("read write")));
    assert_eq!((read[0].timeout, read[0].enabled), (McpServerConfig::DEFAULT_TIMEOUT, true));
    let McpTransportConfig::Http { headers, auth, .. } = &read[1].transport else { panic!("{read:?}") };
    assert_eq!((headers[0].1.expose_secret(), auth.is_none()), ("Bearer ha-secret", true));
}

#[test]
fn without_servers_there_are_none() {
    for text in ["", "mcp:", "mcp: {}", "mcp: { servers: }", "mcp: { servers: {} }"] {
        assert!(servers(&ConfigFixture::new(text)).is_empty(), "{text}");
    }
}

#[test]
fn what_is_wrong_with_a_server_is_named() {
    const TIMEOUT: &str =
        "timeout: expected a number above 0 followed by s, m, h or d, such as 60s, and at most 1d, found ";
    for (server, want) in [
        ("{}", ": expected command for a program, or url for an address"),
        ("", ": expected command for a program, or url for an address"),
        ("npx", ": expected a mapping, found text"),
        ("[]", ": expected a mapping, found a list"),
        ("{ args: [] }", ": expected command for a program, or url for an address"),
        (
            "{ command: a, url: 'http://h' }",
            ": command and url exclude each other: expected command for a program, or url",
        ),
        (
            "{ comand: a }",
            ".comand: unknown key; did you mean `command`? Expected one of command, args, env, cwd, url,",
        ),
        ("{ command: }", ".command: Missing required config (must be a program, such as npx)"),
        ("{ command: '' }", ".command: Missing required config (must be a program, such as npx)"),
        ("{ command: '${EMPTY}' }", ".command: the environment variable EMPTY is empty"),
        ("{ command: '${NOWHERE}' }", ".command: Environment variable NOWHERE is not set"),
        ("{ command: [a] }", ".command: expected text (quote it if it looks like something else), found a list"),
        ("{ command: 5 }", ".command: expected text (quote it if it looks like something else), found a number"),
        ("{ command: \"a\\0\" }", ".command: expected text without line breaks and other control characters"),
        ("{ command: \"a\\nb\" }", ".command: expected text without line breaks and other control characters"),
        ("{ command: a, args: b }", ".args: expected a list, found text"),
        ("{ command: a, args: }", ".args: expected a list, found nothing"),
        (
            "{ command: a, args: [8080] }",
            ".args[0]: expected text (quote it if it looks like something else), found a number",
        ),
        ("{ command: a, args: [b, ~] }", ".args[1]: Missing required config"),
        ("{ command: a, args: ['${EMPTY}'] }", ".args[0]: the environment variable EMPTY is empty"),
        (
            "{ command: a, args: [\"b\\ec\"] }",
            ".args[0]: expected text without line breaks and other control characters",
        ),
        ("{ command: a, cwd: }", ".cwd: expected a value, found nothing"),
        ("{ command: a, cwd: '' }", ".cwd: Missing required config (must be a folder)"),
        ("{ command: a, cwd: \"b\\0\" }", ".cwd: expected text without line breaks and other control characters"),
        ("{ command: a, cwd: {} }", ".cwd: expected text (quote it if it looks like something else), found a mapping"),
        ("{ command: a, env: [B] }", ".env: expected a mapping, found a list"),
        (
            "{ command: a, env: { B: 1 } }",
            ".env.B: expected text (quote it if it looks like something else), found a number",
        ),
        ("{ command: a, env: { B: } }", ".env.B: Missing required config"),
        ("{ command: a, env: { B: '${EMPTY}' } }", ".env.B: the environment variable EMPTY is empty"),
        ("{ command: a, env: { B: '${NOWHERE}' } }", ".env.B: Environment variable NOWHERE is not set"),
        ("{ command: a, env: { B: '${B }' } }", ".env.B: invalid variable: expected ${NAME}"),
        ("{ command: a, env: { B: \"b\\0\" } }", ".env.B: the value of a variable must not contain a NUL character"),
        ("{ command: a, env: { 1B: x } }", ".env.1B: invalid variable name: expected letters, digits and _"),
        ("{ command: a, env: { 'B=C': x } }", ".env.B=C: invalid variable name: expected letters, digits and _"),
        ("{ command: a, env: { LD_PRELOAD: x } }", ".env.LD_PRELOAD: refused variable: it decides which code"),
        ("{ command: a, env: { NODE_OPTIONS: x } }", ".env.NODE_OPTIONS: refused variable: it decides which code"),
        (
            "{ command: a, headers: { X: y } }",
            ".headers: only a server with url has this key, and this server has command",
        ),
        ("{ command: a, auth: }", ".auth: only a server with url has this key, and this server has command"),
        ("{ url: 'http://h', args: [] }", ".args: only a server with command has this key, and this server has url"),
        ("{ url: 'http://h', env: {} }", ".env: only a server with command has this key, and this server has url"),
        ("{ url: 'http://h', cwd: /x }", ".cwd: only a server with command has this key, and this server has url"),
        ("{ url: }", ".url: Missing required config"),
        ("{ url: '' }", ".url: Missing required config"),
        ("{ url: 'ftp://h' }", ".url: expected an address that starts with http:// or https://"),
        ("{ url: h }", ".url: expected an address that starts with http:// or https://"),
        ("{ url: 'https://' }", ".url: expected an address that starts with http:// or https://"),
        ("{ url: 'https://u:secret@h' }", ".url: expected an address without a user and a password"),
        ("{ url: 'https://h/#secret' }", ".url: expected an address without a fragment (#)"),
        ("{ url: 'http://h', headers: [X] }", ".headers: expected a mapping, found a list"),
        ("{ url: 'http://h', headers: { X: } }", ".headers.X: Missing required config"),
        ("{ url: 'http://h', headers: { X: '' } }", ".headers.X: Missing required config"),
        ("{ url: 'http://h', headers: { X: 1 } }", ".headers.X: expected text"),
        (
            "{ url: 'http://h', headers: { 'X Y': z } }",
            ".headers.X Y: invalid header name: expected letters, digits and -",
        ),
        ("{ url: 'http://h', headers: { Host: z } }", ".headers.Host: refused header"),
        ("{ url: 'http://h', headers: { content-length: '1' } }", ".headers.content-length: refused header"),
        ("{ url: 'http://h', headers: { Mcp-Session-Id: z } }", ".headers.Mcp-Session-Id: refused header"),
        (
            "{ url: 'http://h', headers: { X: \"a\\nb\" } }",
            ".headers.X: the value of a header must be printable ASCII text",
        ),
        (
            "{ url: 'http://h', headers: { X-A: a, x-a: b } }",
            ".headers.x-a: another header of this server has this name",
        ),
        (
            "{ url: 'http://h', headers: { authorization: a }, auth: { type: client_credentials, token_url: 'http://h', client_id: a, client_secret: b } }",
            ".headers.authorization: auth sets this header: expected either the header or auth",
        ),
        ("{ url: 'http://h', auth: bearer }", ".auth: expected a mapping, found text"),
        (
            "{ url: 'http://h', auth: { token_url: 'http://h', client_id: a, client_secret: b } }",
            ".auth.type: Missing required config",
        ),
        (
            "{ url: 'http://h', auth: { type: bearer, token_url: 'http://h', client_id: a, client_secret: b } }",
            ".auth.type: expected client_credentials, found 'bearer'",
        ),
        (
            "{ url: 'http://h', auth: { type: client_credentials, client_id: a, client_secret: b } }",
            ".auth.token_url: Missing required config",
        ),
        (
            "{ url: 'http://h', auth: { type: client_credentials, token_url: h, client_id: a, client_secret: b } }",
            ".auth.token_url: expected an address that starts with http:// or https://",
        ),
        (
            "{ url: 'http://h', auth: { type: client_credentials, token_url: 'http://h', client_secret: b } }",
            ".auth.client_id: Missing required config",
        ),
        (
            "{ url: 'http://h', auth: { type: client_credentials, token_url: 'http://h', client_id: a } }",
            ".auth.client_secret: Missing required config",
        ),
        (
            "{ url: 'http://h', auth: { type: client_credentials, token_url: 'http://h', client_id: a, client_secret: b, scope: [c] } }",
            ".auth.scope: expected text",
        ),
        (
            "{ url: 'http://h', auth: { type: client_credentials, token_url: 'http://h', client_id: a, client_secret: b, scopes: c } }",
            ".auth.scopes: unknown key; did you mean `scope`? Expected one of type, token_url,",
        ),
        ("{ command: a, enabled: 'yes' }", ".enabled: expected true or false, found text"),
        ("{ command: a, enabled: }", ".enabled: expected true or false, found nothing"),
        ("{ command: a, timeout: 60 }", &format!(".{TIMEOUT}60")),
        ("{ command: a, timeout: 0s }", &format!(".{TIMEOUT}'0s'")),
        ("{ command: a, timeout: 5 moons }", &format!(".{TIMEOUT}'5 moons'")),
        ("{ command: a, timeout: 2d }", &format!(".{TIMEOUT}'2d'")),
        ("{ command: a, timeout: '${AGENT_TOKEN}' }", &format!(".{TIMEOUT}(from the environment)")),
        ("{ command: a, timeout: [60s] }", ".timeout: expected text"),
        ("{ command: a, timeout: }", ".timeout: expected a number above 0 followed by s, m, h or d"),
    ] {
        let problems = with_server(server).problems();
        // A misspelt key is also a key that is missing.
        let count = if server.contains("comand") { 2 } else { 1 };
        let want = format!("config.yaml:1: mcp.servers.x{want}");
        assert!(problems.len() == count && problems[0].starts_with(&want), "{server}\n{problems:#?}");
        assert!(!problems.concat().contains("secret@") && !problems.concat().contains("#secret"), "{problems:?}");
    }
}

#[test]
fn what_is_wrong_above_a_server_is_named() {
    for (text, want) in [
        ("mcp: 5", "mcp: expected a mapping, found a number"),
        ("mcp: { server: {} }", "mcp.server: unknown key; did you mean `servers`? Expected one of servers"),
        ("mcp: { servers: [] }", "mcp.servers: expected a mapping, found a list"),
        (
            "mcp: { servers: { a__b: { command: c } } }",
            "mcp.servers.a__b: invalid server name: expected 1 to 32 letters",
        ),
        ("mcp: { servers: { a_: { command: c } } }", "mcp.servers.a_: invalid server name: expected 1 to 32 letters"),
        ("mcp: { servers: { a.b: { command: c } } }", "mcp.servers.a.b: invalid server name: expected 1 to 32 letters"),
        ("mcp: { servers: { '': { command: c } } }", "mcp.servers.: invalid server name: expected 1 to 32 letters"),
        (
            "mcp: { servers: { abcdefghijklmnopqrstuvwxyz0123456: { command: c } } }",
            "mcp.servers.abcdefghijklmnopqrstuvwxyz0123456: invalid server name: expected 1 to 32 letters",
        ),
        (
            "mcp: { servers: { files: { command: c }, Files: { command: c } } }",
            "mcp.servers.Files: differs from the server 'files' only in letter case",
        ),
        ("mcp: { servers: { a: { command: c }, a: { command: c } } }", "duplicate key a"),
    ] {
        let problems = ConfigFixture::new(text).problems();
        assert!(
            problems.len() == 1 && problems[0].starts_with(&format!("config.yaml:1: {want}")),
            "{text}\n{problems:#?}"
        );
    }
}

#[test]
fn a_server_is_shown_without_its_secrets() {
    let scene = ConfigFixture::new(
        "mcp:
  servers:
    files: { command: npx, args: [-y, '${AGENT_TOKEN}', --token, secret-1, --key=secret-2, /srv], env: { B: secret-3, A: secret-4 }, cwd: /srv }
    wiki:
      url: 'https://h/mcp?api_key=secret-5'
      headers: { X-A: secret-6 }
      auth: { type: client_credentials, token_url: 'https://h/?key=secret-7', client_id: gw, client_secret: secret-8, scope: read }
      timeout: 2m
",
    );
    let loaded = scene.load().unwrap();
    let shown = loaded.config.redacted_json();
    assert!(!shown.to_string().contains("secret-"), "{shown:#}");
    assert!(!shown.to_string().contains("agent-secret"), "{shown:#}");
    assert_eq!(
        shown["mcp"]["servers"],
        json!({
            "files": {
                "command": "npx", "args": ["-y", "***", "--token", "***", "--key=***", "/srv"], "env": {"A": "***", "B": "***"},
                "cwd": "/srv", "timeout": "300s", "enabled": true,
            },
            "wiki": {
                "url": "https://h/mcp?api_key=***", "headers": {"X-A": "***"},
                "auth": {"type": "client_credentials", "token_url": "https://h/?key=***", "client_id": "gw", "client_secret": "***", "scope": "read"},
                "timeout": "120s", "enabled": true,
            },
        })
    );
    for secret in ["secret-3", "secret-6", "secret-8"] {
        assert!(!format!("{:?}", loaded.config).contains(secret), "credentials do not print");
    }
    scene.mode("config.yaml", 0o644);
    let warnings = scene.load().unwrap().warnings.join("\n");
    for key in ["files.env.B", "wiki.headers.X-A", "wiki.auth.client_secret"] {
        assert!(warnings.contains(&format!("mcp.servers.{key}")), "{key}: {warnings}");
    }
}

#[test]
fn a_thousand_servers_are_read() {
    let lines: String =
        (0..1000).map(|at| format!("    server-{at}: {{ command: npx, env: {{ A: '${{HA_TOKEN}}' }} }}\n")).collect();
    let read = servers(&ConfigFixture::new(&format!("mcp:\n  servers:\n{lines}")));
    assert_eq!((read.len(), read[0].name.as_str(), read[999].name.as_str()), (1000, "server-0", "server-999"));
}

#[test]
fn an_address_of_the_gateway_itself_is_refused() {
    let gateway = "gateway: { port: 9000, public_url: 'https://gate.example/cs', allowed_hosts: [gate.local] }\n";
    let refused = |url: &str| {
        let scene = ConfigFixture::new(&format!("{gateway}mcp: {{ servers: {{ x: {{ url: '{url}' }} }} }}"));
        match scene.load() {
            Ok(_) => false,
            Err(errors) => {
                assert!(errors.to_string().contains("mcp.servers.x.url: this is the gateway itself"), "{errors}");
                true
            }
        }
    };
    for (url, want) in [
        ("http://127.0.0.1:9000/mcp", true),
        ("http://127.1:9000/other", true),
        ("http://localhost.:9000/mcp", true),
        ("http://[::1]:9000/mcp", true),
        ("http://[::ffff:127.0.0.1]:9000/mcp", true),
        ("http://0.0.0.0:9000/mcp", true),
        ("http://GATE.local:9000/mcp", true),
        ("https://gate.example/cs/mcp/", true),
        ("https://gate.example/other/mcp", false),
        ("http://127.0.0.1:9001/mcp", false),
        ("https://other.example:9000/mcp", false),
    ] {
        assert_eq!(refused(url), want, "{url}");
    }
}

#[test]
fn a_reference_to_a_secret_is_no_credential_that_others_can_read() {
    let with = |env: &str, header: &str, secret: &str| {
        let auth = format!(
            "{{ type: client_credentials, token_url: 'https://h/t', client_id: a, client_secret: '{secret}' }}"
        );
        format!(
            "mcp: {{ servers: {{ a: {{ command: x, env: {{ K: '{env}' }} }}, b: {{ url: 'https://h', headers: {{ A: '{header}' }} }}, c: {{ url: 'https://h', auth: {auth} }} }} }}\n"
        )
    };
    let secret = "{{secret:NAME}}";
    for (env, header, client_secret, keys) in [
        (secret, secret, secret, None),
        ("{{secret:A}}{{secret:B}}", "Bearer {{secret:A}}", secret, None),
        ("p{{secret:A}}", secret, secret, Some("mcp.servers.a.env.K")),
        ("{{secret:A", "Bearer p", secret, Some("mcp.servers.a.env.K, mcp.servers.b.headers.A")),
        (secret, secret, "p", Some("mcp.servers.c.auth.client_secret")),
    ] {
        let scene = ConfigFixture::new(&with(env, header, client_secret));
        scene.mode("config.yaml", 0o644);
        let warnings = scene.relative_lines(&scene.load().unwrap().warnings.join("\n"));
        let want: Vec<String> =
            keys.iter().map(|keys| format!("config.yaml:1: {keys}: others can read this file;")).collect();
        assert_eq!(warnings.len(), want.len(), "{warnings:?}");
        assert!(warnings.iter().zip(&want).all(|(warning, want)| warning.starts_with(want)), "{warnings:?}");
    }
}
