//! Values that are empty, or become empty with a variable: none takes a default or leaves a list unnoticed.

use super::ConfigFixture;

/// Returns a configuration with these users.
fn with_users(users: &str) -> String {
    format!("messenger: {{ type: telegram, telegram: {{ token: t, chat_id: 1, allowed_users: {users} }} }}")
}

#[test]
fn no_item_of_a_list_vanishes() {
    for (users, want) in [
        ("[\"${EMPTY}\"]", "[0]: the environment variable EMPTY is empty"),
        ("[\"${BLANK}\"]", "[0]: the environment variable BLANK is empty"),
        ("\"${EMPTY}\"", ": the environment variable EMPTY is empty"),
        ("[111, \"${EMPTY}\"]", "[1]: the environment variable EMPTY is empty"),
        ("[\"${TILDE}\"]", "[0]: expected a whole number, found (from the environment)"),
        ("\"${TILDE}\"", ": messenger.telegram.allowed_users must be a non-empty list"),
        ("\"${HOLES}\"", "[1]: expected a whole number, found nothing"),
        ("[~]", "[0]: expected a whole number, found nothing"),
        ("[111, ]", ""),
    ] {
        let want = match want {
            "" => Vec::new(),
            want => vec![format!("config.yaml:1: messenger.telegram.allowed_users{want}")],
        };
        assert_eq!(ConfigFixture::new(&with_users(users)).problems(), want, "{users}");
    }
    for (text, want) in [
        ("people: [ ~ ]", "people[0]: Missing required config"),
        ("people: [ { id: a, telegram: [~] } ]", "people[0].telegram[0]: expected a whole number, found nothing"),
        ("people: [ { id: a, local: ['${EMPTY}'] } ]", "people[0].local[0]: the environment variable EMPTY is empty"),
        ("people: [ { id: a, console: [''] } ]", "people[0].console[0]: Missing required config"),
        ("agents: [ ~ ]", "agents[0]: Missing required config"),
        ("agents: [ '${EMPTY}' ]", "agents[0]: the environment variable EMPTY is empty"),
        (
            "providers: { p: { api: openai-completions, base_url: 'http://h', models: [ ~ ] } }",
            "providers.p.models[0]: Missing required config",
        ),
        ("sandbox: { write: [''] }", "sandbox.write[0]: expected a value, found an empty text"),
        ("sandbox: { read: ['${EMPTY}'] }", "sandbox.read[0]: the environment variable EMPTY is empty"),
        (
            "sandbox: { network: { hosts: ['${EMPTY}'] } }",
            "sandbox.network.hosts[0]: the environment variable EMPTY is empty",
        ),
        (
            "gateway: { allowed_hosts: ['${EMPTY}'] }",
            "gateway.allowed_hosts[0]: the environment variable EMPTY is empty",
        ),
    ] {
        assert_eq!(ConfigFixture::new(text).problems(), [format!("config.yaml:1: {want}")], "{text}");
    }
}

#[test]
fn a_value_of_an_empty_variable_is_refused_with_its_name() {
    for key in [
        "gateway.host",
        "gateway.port",
        "gateway.health_host",
        "gateway.public_url",
        "agent.token",
        "services.s.url",
        "services.homeassistant.token",
        "storage.path",
        "storage.type",
        "approval_timeout",
        "on_shutdown",
        "log.level",
        "retention.calls",
        "rate_limit.max_connections",
        "clients.token",
        "web.password",
        "agents_dir",
        "sandbox.mode",
        "sandbox.network",
        "providers.p.api_key",
        "providers.p.base_url",
        "providers.p.headers.X-A",
        "secrets.a",
    ] {
        for variable in ["EMPTY", "BLANK", "EMPTY}${BLANK"] {
            let mut text = format!("\"${{{variable}}}\"");
            for part in key.rsplit('.') {
                let siblings = match (key, part) {
                    ("services.s.url", "url") => "auth: { type: none }, ",
                    ("services.homeassistant.token", "token") => "url: 'http://h', ",
                    _ => "",
                };
                text = format!("{{ {siblings}{part}: {text} }}");
            }
            let name = variable.split('}').next().unwrap();
            let want = format!("config.yaml:1: {key}: the environment variable {name} is empty");
            assert_eq!(ConfigFixture::new(&text).problems(), [want], "{text}");
        }
    }
}

#[test]
fn a_credential_with_an_empty_part_is_refused() {
    let empty = "the environment variable EMPTY is empty";
    for (text, want) in [
        ("agent: { token: ' ' }", "agent.token: the credential is empty"),
        ("web: { password: ' ' }", "web.password: the credential is empty"),
        ("web: { password: '', users: { a: b } }", "web.password: the credential is empty"),
        ("providers: { p: { api_key: '' } }", "providers.p.api_key: the credential is empty"),
        ("providers: { p: { headers: { X-A: '' } } }", "providers.p.headers.X-A: the credential is empty"),
        ("agent: { token: 'a-${EMPTY}' }", &format!("agent.token: {empty}")),
        (
            "services: { s: { url: 'http://h', auth: { type: bearer, token: 'Bearer ${EMPTY}' } } }",
            &format!("services.s.auth.token: {empty}"),
        ),
        (
            "services: { s: { url: 'http://h', auth: { type: basic, username: u, password: '${EMPTY}' } } }",
            &format!("services.s.auth.password: {empty}"),
        ),
        (
            "mcp: { servers: { s: { url: 'http://h', headers: { Authorization: 'Bearer ${EMPTY}' } } } }",
            &format!("mcp.servers.s.headers.Authorization: {empty}"),
        ),
        ("mcp: { servers: { s: { command: a, env: { A: 'x${EMPTY}' } } } }", &format!("mcp.servers.s.env.A: {empty}")),
        (
            "services: { homeassistant: { url: 'http://h', token: } }",
            "services.homeassistant.token: Missing required config",
        ),
    ] {
        assert_eq!(ConfigFixture::new(text).problems(), [format!("config.yaml:1: {want}")], "{text}");
    }
}

#[test]
fn what_may_be_empty_is_taken() {
    for text in [
        "services: { s: { url: 'http://h', auth: { type: basic, username: u } } }",
        "services: { s: { url: 'http://h', auth: { type: basic, username: u, password: '' } } }",
        "mcp: { servers: { s: { command: a, args: [''], env: { A: '', B: ' ' } } } }",
        "services: { s: { url: 'http://h${EMPTY}', auth: { type: none } } }",
        "agent: { token: '${TILDE}' }",
    ] {
        assert_eq!(ConfigFixture::new(text).problems(), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn an_empty_path_or_address_is_no_default() {
    for (text, key) in [
        ("gateway: { host: '' }", "gateway.host"),
        ("gateway: { health_host: ' ' }", "gateway.health_host"),
        ("agents_dir: ''", "agents_dir"),
        ("storage: { path: '' }", "storage.path"),
        ("services: { s: { url: 'http://h', auth: { type: none }, tools: '' } }", "services.s.tools"),
    ] {
        let want = format!("config.yaml:1: {key}: expected a value, found an empty text");
        assert_eq!(ConfigFixture::new(text).problems(), [want], "{text}");
    }
}
