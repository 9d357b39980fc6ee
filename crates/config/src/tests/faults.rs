//! Every fault with its file, line and key.

use super::ConfigFixture;

const NO_VARIABLE: &str =
    "config.yaml:2: agent.token: invalid variable: expected ${NAME} with letters, digits and _ in its name";

#[test]
fn what_is_wrong_is_named_with_file_line_and_key() {
    for (text, want) in [
        ("gatway: {}", "config.yaml:1: gatway: unknown key; did you mean `gateway`? Expected one of gateway, agent,"),
        (
            "gateway:\n  hots: x",
            "config.yaml:2: gateway.hots: unknown key; did you mean `host`? Expected one of host, port,",
        ),
        ("gateway:\n  port: abc", "config.yaml:2: gateway.port: expected a whole number from 0 to 65535, found 'abc'"),
        (
            "gateway: { port: 70000 }",
            "config.yaml:1: gateway.port: expected a whole number from 0 to 65535, found 70000",
        ),
        ("gateway: { port: true }", "config.yaml:1: gateway.port: expected a whole number from 0 to 65535, found true"),
        (
            "gateway: { port: ${AGENT_TOKEN} }",
            "config.yaml:1: gateway.port: expected a whole number from 0 to 65535, found (from the environment)",
        ),
        ("gateway: 5", "config.yaml:1: gateway: expected a mapping, found a number"),
        (
            "gateway: { host: 5 }",
            "config.yaml:1: gateway.host: expected text (quote it if it looks like something else), found a number",
        ),
        ("gateway: { tls: { cert: a } }", "config.yaml:1: gateway.tls.key: Missing required config"),
        ("gateway: { tls: { key: a } }", "config.yaml:1: gateway.tls.cert: Missing required config"),
        ("gateway: { port: 81, health_port: 81 }", "config.yaml:1: gateway.health_port: must differ from gateway.port"),
        (
            "gateway: { public_url: gate.example }",
            "config.yaml:1: gateway.public_url: expected an address that starts with http:// or https://",
        ),
        ("agent: {}", "config.yaml:1: agent.token: Missing required config"),
        ("agent: { token: '' }", "config.yaml:1: agent.token: Missing required config"),
        ("agent: { token: ${EMPTY} }", "config.yaml:1: agent.token: the environment variable EMPTY is empty"),
        (
            "agent: { token: 5 }",
            "config.yaml:1: agent.token: expected text (quote it if it looks like something else), found a number",
        ),
        ("agent:\n  token: ${NOWHERE}", "config.yaml:2: agent.token: Environment variable NOWHERE is not set"),
        ("agent:\n  token: x${NOWHERE}y", "config.yaml:2: agent.token: Environment variable NOWHERE is not set"),
        ("agent:\n  token: \"${NOPE }\"", NO_VARIABLE),
        ("agent:\n  token: \"${NOPE\"", NO_VARIABLE),
        ("agent:\n  token: \"${AGENT_TOKEN}-${NOPE }\"", NO_VARIABLE),
        ("agent:\n  token: \"${NOPE${AGENT_TOKEN}\"", NO_VARIABLE),
        ("agent:\n  token: \"\\x24{AGENT_TOKEN}\"", NO_VARIABLE),
        (
            "agents: [ { id: a, token: t1 }, { id: a, token: t2 } ]",
            "config.yaml:1: agents[1].id: another agent has this id",
        ),
        (
            "agent: { token: t1 }\nagents:\n- { id: a, token: t1 }",
            "config.yaml:3: agents[0].token: another agent has this token",
        ),
        ("agents: [ { token: t1 } ]", "config.yaml:1: agents[0].id: Missing required config"),
        ("agents: { a: t1 }", "config.yaml:1: agents: expected a list, found a mapping"),
        (
            "messenger: { telegram: { token: t, chat_id: 1, allowed_users: [1] } }",
            "config.yaml:1: messenger.type: Missing required config",
        ),
        (
            "messenger: { type: x }",
            "config.yaml:1: messenger.type: Unsupported messenger type: 'x' (only 'telegram' is supported)",
        ),
        ("messenger: { type: telegram }", "config.yaml:1: messenger.telegram: Missing required config"),
        (
            "messenger: { type: telegram, telegram: { chat_id: 1, allowed_users: [1] } }",
            "config.yaml:1: messenger.telegram.token: Missing required config",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, allowed_users: [1] } }",
            "config.yaml:1: messenger.telegram.chat_id: Missing required config",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: me, allowed_users: [1] } }",
            "config.yaml:1: messenger.telegram.chat_id: expected a whole number, found 'me'",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [1], message_thread_id: x } }",
            "config.yaml:1: messenger.telegram.message_thread_id: expected a whole number from 1 to 2147483647, found 'x'",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [1], message_thread_id: 0 } }",
            "config.yaml:1: messenger.telegram.message_thread_id: expected a whole number from 1 to 2147483647, found 0",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [1], message_thread_id: ~ } }",
            "config.yaml:1: messenger.telegram.message_thread_id: expected a whole number from 1, the id of a forum topic, found nothing",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [] } }",
            "config.yaml:1: messenger.telegram.allowed_users: messenger.telegram.allowed_users must be a non-empty list",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: 5 } }",
            "config.yaml:1: messenger.telegram.allowed_users: messenger.telegram.allowed_users must be a non-empty list",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1 } }",
            "config.yaml:1: messenger.telegram.allowed_users: messenger.telegram.allowed_users must be a non-empty list",
        ),
        (
            "messenger: { type: telegram, telegram: { token: t, chat_id: 1, allowed_users: [me] } }",
            "config.yaml:1: messenger.telegram.allowed_users[0]: expected a whole number, found 'me'",
        ),
        ("services: []", "config.yaml:1: services: expected a mapping, found a list"),
        ("services:\n  x: http://h", "config.yaml:2: services.x: Service 'x' must be a mapping"),
        ("services: { x: { auth: { type: none } } }", "config.yaml:1: services.x.url: Missing required config"),
        (
            "services: { x: { url: 'ftp://h', auth: { type: none } } }",
            "config.yaml:1: services.x.url: expected an address that starts with http:// or https://",
        ),
        ("services: { x: { url: 'http://h' } }", "config.yaml:1: services.x.auth: Missing required config"),
        (
            "services: { x: { url: 'http://h', auth: {} } }",
            "config.yaml:1: services.x.auth.type: Missing required config",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: bearer } } }",
            "config.yaml:1: services.x.auth.token: Missing required config",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: bearer, token: \"a\\nb\" } } }",
            "config.yaml:1: services.x.auth.token: a token must not contain line breaks or other control characters",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: header, token: t } } }",
            "config.yaml:1: services.x.auth.header_name: Missing required config",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: header, header_name: 'a b', token: t } } }",
            "config.yaml:1: services.x.auth.header_name: expected a header name",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: query, token: t } } }",
            "config.yaml:1: services.x.auth.query_param: Missing required config",
        ),
        (
            "services: { x: { url: 'http://h', token: t, auth: { type: none } } }",
            "config.yaml:1: services.x.token: only homeassistant has its token here; use auth.token",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, handler: python, handler_class: 'a:B' } }",
            "config.yaml:1: services.x.handler: Python handlers are not supported",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, tools: nowhere.yaml } }",
            "config.yaml:1: services.x.tools: Tools file not found: nowhere.yaml",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, health: { expect_status: ok } } }",
            "config.yaml:1: services.x.health.expect_status: expected a whole number from 100 to 599, found 'ok'",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, health: { methd: GET } } }",
            "config.yaml:1: services.x.health.methd: unknown key",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, errors: [ { message: m } ] } }",
            "config.yaml:1: services.x.errors[0]: Missing required key 'status' in services.x.errors[0]",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, errors: [ { status: 404 } ] } }",
            "config.yaml:1: services.x.errors[0]: Missing required key 'message' in services.x.errors[0]",
        ),
        (
            "services: { x: { url: 'http://h', auth: { type: none }, errors: [ { status: x, message: m } ] } }",
            "config.yaml:1: services.x.errors[0].status: expected a whole number from 100 to 599, found 'x'",
        ),
        (
            "storage: { type: mysql, path: a }",
            "config.yaml:1: storage.type: Unsupported storage type: 'mysql' (must be 'sqlite' or 'postgres')",
        ),
        ("storage: { type: postgres }", "config.yaml:1: storage.url: Missing required config"),
        (
            "storage: { type: postgres, url: 'mysql://db/x' }",
            "config.yaml:1: storage.url: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE or host=HOST dbname=DATABASE user=USER",
        ),
        (
            "storage: { type: postgres, url: '${NO_SUCH_DATABASE}' }",
            "config.yaml:1: storage.url: Environment variable NO_SUCH_DATABASE is not set",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x', path: a.db }",
            "config.yaml:1: storage.path: belongs to storage.type 'sqlite': the record is in the database, and --data names the data directory",
        ),
        (
            "storage: { url: 'postgres://db/x' }",
            "config.yaml:1: storage.url: belongs to a database: set storage.type to 'postgres'",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x', connections: 0 }",
            "config.yaml:1: storage.connections: expected a whole number from 1 to 100, found 0",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x', statement_timeout: soon }",
            "config.yaml:1: storage.statement_timeout: expected a span such as 30s, found 'soon'",
        ),
        (
            "cluster: { name: a, advertise: 'https://a:1', secret: 0123456789abcdef }",
            "config.yaml:1: cluster: needs the record in a database: set storage.type to 'postgres' and storage.url",
        ),
        (
            "storage: { type: postgres }\ncluster: { name: a, advertise: 'https://a:1', secret: 0123456789abcdef }",
            "config.yaml:1: storage.url: Missing required config",
        ),
        (
            "storage: { type: mysql }\ncluster: { name: a, advertise: 'https://a:1', secret: 0123456789abcdef }",
            "config.yaml:1: storage.type: Unsupported storage type: 'mysql'",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x' }\ngateway: { health_host: a }\ncluster: { name: a, advertise: 'https://a:1', secret: 0123456789abcdef }",
            "config.yaml:2: gateway.health_host: a node of a cluster has one port",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x' }\ncluster: { name: 'a b', advertise: 'https://a:1', secret: 0123456789abcdef }",
            "config.yaml:2: cluster.name: expected letters, digits, '-', '_' and '.', found 'a b'",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x' }\ncluster: { name: a, advertise: '10.0.0.5:1', secret: 0123456789abcdef }",
            "config.yaml:2: cluster.advertise: expected the URL of this node for the others, such as https://10.0.0.5:8443",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x' }\ncluster: { name: a, advertise: 'https://a:1', secret: short }",
            "config.yaml:2: cluster.secret: expected at least 16 characters",
        ),
        (
            "storage: { type: postgres, url: 'postgres://db/x' }\ncluster: { name: a, advertise: 'https://a:1', secret: 0123456789abcdef, lease: 2m }",
            "config.yaml:2: cluster.lease: expected a span from 1s to 60s, found '2m'",
        ),
        ("storage: { path: data/ }", "config.yaml:1: storage.path: expected the path of a file, found a folder"),
        ("storage: { path: . }", "config.yaml:1: storage.path: expected the path of a file, found a folder"),
        (
            "approval_timeout: '900'",
            "config.yaml:1: approval_timeout: expected a whole number from 1 to 1000000000, found '900'",
        ),
        (
            "approval_timeout: 0",
            "config.yaml:1: approval_timeout: expected a whole number from 1 to 1000000000, found 0",
        ),
        (
            "approval_timeout: -1",
            "config.yaml:1: approval_timeout: expected a whole number from 1 to 1000000000, found -1",
        ),
        (
            "approval_timeout: 1.5",
            "config.yaml:1: approval_timeout: expected a whole number from 1 to 1000000000, found 1.5",
        ),
        (
            "approval_timeout: true",
            "config.yaml:1: approval_timeout: expected a whole number from 1 to 1000000000, found true",
        ),
        (
            "clarify_timeout: soon",
            "config.yaml:1: clarify_timeout: expected a whole number from 1 to 1000000000, found 'soon'",
        ),
        ("retry_max_wait: 0", "config.yaml:1: retry_max_wait: expected a whole number from 1 to 1000000000, found 0"),
        (
            "retry_max_wait: 30m",
            "config.yaml:1: retry_max_wait: expected a whole number from 1 to 1000000000, found '30m'",
        ),
        (
            "retry_ask_after: [180]",
            "config.yaml:1: retry_ask_after: expected a whole number from 1 to 1000000000, found a list",
        ),
        ("on_shutdown: wait", "config.yaml:1: on_shutdown: expected keep or deny"),
        (
            "log: { level: loud }",
            "config.yaml:1: log.level: expected a level (off, error, warn, info, debug or trace), or part=level pairs separated by commas",
        ),
        (
            "retention: { calls: 0d }",
            "config.yaml:1: retention.calls: expected a number above 0 followed by s, m, h or d, such as 90d",
        ),
        (
            "retention: { every: soon }",
            "config.yaml:1: retention.every: expected a number above 0 followed by s, m, h or d, such as 90d",
        ),
        ("log: { format: xml }", "config.yaml:1: log.format: expected text or json"),
        ("log: { levels: info }", "config.yaml:1: log.levels: unknown key"),
        (
            "rate_limit: { max_pending_approvals: -1 }",
            "config.yaml:1: rate_limit.max_pending_approvals: expected a whole number from 0 to 4294967295, found -1",
        ),
        (
            "rate_limit: { max_requests: 1 }",
            "config.yaml:1: rate_limit.max_requests: unknown key; expected one of max_pending_approvals,",
        ),
        ("clients: {}", "config.yaml:1: clients.token: Missing required config"),
        ("web: { password: ~, users: ~ }", "config.yaml:1: web.password: Missing required config"),
        ("web: { password: ~ }", "config.yaml:1: web.password: Missing required config"),
        (
            "web: { pasword: x }",
            "config.yaml:1: web.pasword: unknown key; did you mean `password`? Expected one of password, users",
        ),
        (
            "model: { provider: nope, id: x }",
            "config.yaml:1: model.provider: unknown provider \"nope\": expected one of demo",
        ),
        (
            "model: { provider: anthropic, id: x }",
            "config.yaml:1: model.provider: unknown provider \"anthropic\": expected one of demo. The models of anthropic are built in and need its key: set providers.anthropic.api_key",
        ),
        (
            "model: { provider: p, id: n }\nproviders: { p: { api: openai-responses, base_url: 'http://h', models: [ { id: m } ] } }",
            "config.yaml:1: model.id: \"p\" has no model \"n\"; it has m. Add others under providers.p.models",
        ),
        ("model: { id: x }", "config.yaml:1: model.provider: Missing required config"),
        ("providers: { p: { api: smoke } }", "config.yaml:1: providers.p.api: unknown api \"smoke\""),
        (
            "providers: { p: { api: openai-responses, models: [ { id: m } ] } }",
            "config.yaml:1: providers.p.base_url: Missing required config",
        ),
        (
            "providers: { p: { base_url: 'http://h', models: [ { id: m } ] } }",
            "config.yaml:1: providers.p.api: Missing required config",
        ),
        (
            "providers: { p: { api: openai-responses, base_url: 'http://h', models: [ { id: m, max_tokens: 0 } ] } }",
            "config.yaml:1: providers.p.models[0].max_tokens: expected a whole number from 1 to 1000000000, found 0",
        ),
        (
            "providers: { p: { api: openai-responses, base_url: 'http://h', models: [ { id: m }, { id: m } ] } }",
            "config.yaml:1: providers.p.models[1].id: another model of this provider already has this id",
        ),
        (
            "people: [ { id: a, telegram: [1] }, { id: b, telegram: [1] } ]",
            "config.yaml:1: people[1].telegram[0]: this identity already belongs to a person",
        ),
        ("people: [ { id: a }, { id: a } ]", "config.yaml:1: people[1].id: another person has this id"),
        ("a: 1\na: 2", "config.yaml:2: duplicate key a"),
        ("agent:\n  token: a\n  token: b", "config.yaml:3: duplicate key token"),
        ("agent: { token: !secret x }", "config.yaml:1: "),
        ("agent: [", "config.yaml:"),
        ("- a", "config.yaml:1: expected a mapping, found a list"),
    ] {
        let problems = ConfigFixture::new(text).problems();
        assert!(problems.len() == 1 && problems[0].starts_with(want), "{text}\n{problems:#?}");
    }
}

#[test]
fn a_host_that_no_request_can_be_for_is_refused() {
    let why = "expected a host name or address, without a scheme, port, path or wildcard";
    for host in [
        "10.0.0.5:9000",
        "gate.example:443",
        "https://gate.example.org",
        "gate.example.org/",
        " gate.example.org ",
        "*.example.org",
        "[::1]:80",
    ] {
        let problems = ConfigFixture::new(&format!("gateway: {{ allowed_hosts: [ok.example, '{host}'] }}")).problems();
        assert!(
            problems.iter().any(|line| line.ends_with(&format!("gateway.allowed_hosts[1]: {why}"))),
            "{host}: {problems:?}"
        );
    }
    for host in ["gate.example.org", "localhost", "bücher.example", "10.0.0.5", "::1", "[::1]", "my_host"] {
        let problems = ConfigFixture::new(&format!("gateway: {{ allowed_hosts: ['{host}'] }}")).problems();
        assert!(!problems.iter().any(|line| line.contains("allowed_hosts")), "{host}: {problems:?}");
    }
}

#[test]
fn a_key_with_nothing_behind_it_is_refused_by_its_name() {
    for (text, want) in [
        ("approval_timeout:", "approval_timeout: expected a whole number above zero, found nothing"),
        ("on_shutdown: ~", "on_shutdown: expected text, found nothing"),
        ("agents_dir:", "agents_dir: expected text, found nothing"),
        ("gateway: { port: }", "gateway.port: expected a whole number from 0 to 65535, found nothing"),
        ("gateway: { allowed_hosts: }", "gateway.allowed_hosts: expected a list, found nothing"),
        ("agents:", "agents: expected a list, found nothing"),
        (
            "rate_limit: { max_pending_approvals: }",
            "rate_limit.max_pending_approvals: expected a whole number, found nothing",
        ),
        ("retention: { calls: }", "retention.calls: expected text, found nothing"),
        ("people: [ { id: a, telegram: } ]", "people[0].telegram: expected a list, found nothing"),
        ("sandbox: { temporary: }", "sandbox.temporary: expected a value, found nothing"),
        (
            "sandbox: { network: { hosts: [a.org], unlisted: } }",
            "sandbox.network.unlisted: expected a value, found nothing",
        ),
    ] {
        assert_eq!(ConfigFixture::new(text).problems(), [format!("config.yaml:1: {want}")], "{text}");
    }
    // A section of which every line is commented out is absent.
    assert_eq!(ConfigFixture::new("rate_limit:\ngateway:\nsecrets:").problems(), Vec::<String>::new());
}

#[test]
fn all_errors_are_reported_at_once() {
    let scene = ConfigFixture::new(
        "agent: { token: '${A}' }\nmessenger: { type: telegram, telegram: { token: '${B}', chat_id: x } }\nweb: 5\n",
    );
    assert_eq!(
        scene.problems(),
        [
            "config.yaml:1: agent.token: Environment variable A is not set",
            "config.yaml:2: messenger.telegram.token: Environment variable B is not set",
            "config.yaml:2: messenger.telegram.allowed_users: messenger.telegram.allowed_users must be a non-empty list",
            "config.yaml:2: messenger.telegram.chat_id: expected a whole number, found 'x'",
            "config.yaml:3: web: expected a mapping, found a number",
        ]
    );
}

#[test]
fn what_is_wrong_in_a_tools_file_is_named_there() {
    for (tools, want) in [
        ("tools:\n  t: { sig: x }", "tools.yaml:2: tools.t.sig: unknown key; expected one of description,"),
        ("tools: []", "tools.yaml:1: tools: expected a mapping, found a list"),
        ("tool: {}", "tools.yaml:1: tool: unknown key; did you mean `tools`? Expected one of tools"),
        (
            "tools:\n  t:\n    args:\n      a: { validate: '[' }",
            "tools.yaml:4: tools.t.args.a.validate: Invalid regex pattern for tool 't' arg 'a': unclosed character class",
        ),
        (
            "tools:\n  t: { args: { a: { required: maybe } } }",
            "tools.yaml:2: tools.t.args.a.required: expected true or false, found text",
        ),
        (
            "tools:\n  t:\n    args: { a: { free_text: all } }",
            "tools.yaml:3: tools.t.args.a.free_text: expected true or false, found text",
        ),
        (
            "tools:\n  t:\n    args: { a: { free_text: } }",
            "tools.yaml:3: tools.t.args.a.free_text: expected true or false, found nothing",
        ),
        (
            "tools:\n  t:\n    args: { a: {}, b: {} }\n    request: { query: [c] }",
            "tools.yaml:4: tools.t.request.query[0]: 'c' is not an argument under args: a, b",
        ),
        (
            "tools:\n  t:\n    args: { a: {} }\n    request: { query: a }",
            "tools.yaml:4: tools.t.request.query: expected a list, found text",
        ),
        (
            "tools:\n  t: { request: { query: } }",
            "tools.yaml:2: tools.t.request.query: expected a list of arguments, found nothing",
        ),
        (
            "tools:\n  t: { request: { path: api } }",
            "tools.yaml:2: tools.t.request.path: expected a path that starts with /",
        ),
        (
            "tools:\n  t: { request: { method: 'G T' } }",
            "tools.yaml:2: tools.t.request.method: expected the name of an HTTP method",
        ),
        (
            "tools:\n  t: { undeclared_args: drop }",
            "tools.yaml:2: tools.t.undeclared_args: expected ask, allow or refuse",
        ),
        (
            "tools:\n  t: { timeout: 0 }",
            "tools.yaml:2: tools.t.timeout: expected a number above zero and at most 1000000000, found 0",
        ),
        (
            "tools:\n  t: { timeout: 1.0e300 }",
            "tools.yaml:2: tools.t.timeout: expected a number above zero and at most 1000000000, found 1e+300",
        ),
        (
            "tools:\n  t: { max_response: -1 }",
            "tools.yaml:2: tools.t.max_response: expected a whole number from 1 to 1000000000, found -1",
        ),
        (
            "tools:\n  t: { args: { a: { validate: '' } } }",
            "tools.yaml:2: tools.t.args.a.validate: expected a regular expression that is not empty",
        ),
        (
            "tools:\n  t: { args: { a: { required: } } }",
            "tools.yaml:2: tools.t.args.a.required: expected true or false, found nothing",
        ),
        ("tools:\n  t: { undeclared_args: }", "tools.yaml:2: tools.t.undeclared_args: expected text, found nothing"),
        ("tools:\n  t: { idempotent: 'yes' }", "tools.yaml:2: tools.t.idempotent: expected true or false, found text"),
        ("tools:\n  t: {}\n  t: {}", "tools.yaml:3: duplicate key t"),
    ] {
        let scene = ConfigFixture::new("services: { x: { url: 'http://h', auth: { type: none }, tools: tools.yaml } }");
        scene.write("tools.yaml", tools);
        let problems = scene.problems();
        assert!(problems.len() == 1 && problems[0].starts_with(want), "{tools}\n{problems:#?}");
    }
}

#[test]
fn a_signature_that_names_free_text_draws_a_warning() {
    for (tool, is_told) in [
        ("{ signature: '{a}, {b}', args: { a: {}, b: { free_text: true } } }", true),
        ("{ signature: '{a}', args: { a: {}, b: { free_text: true } } }", false),
        ("{ signature: '{a}, {b}', args: { a: {}, b: { free_text: false } } }", false),
    ] {
        let scene = ConfigFixture::new("services: { x: { url: 'http://h', auth: { type: none }, tools: tools.yaml } }");
        scene.write("tools.yaml", &format!("tools:\n  t: {tool}\n"));
        let warnings = scene.load().unwrap().warnings;
        let want = "tools.t.signature: 'b' is free_text and left out of the signature";
        assert_eq!(warnings.iter().any(|warning| warning.contains(want)), is_told, "{tool}: {warnings:?}");
    }
}

#[test]
fn a_tool_of_two_services_is_refused() {
    let service = "url: 'http://h', auth: { type: none }, tools: tools.yaml";
    let scene = ConfigFixture::new(&format!("services:\n  a: {{ {service} }}\n  b: {{ {service} }}\n"));
    scene.write("tools.yaml", "tools: { t: {} }");
    assert_eq!(scene.problems(), ["config.yaml:3: services.b.tools: Duplicate tool name 't' in services 'a' and 'b'"]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let scene = ConfigFixture::new("");
    std::fs::remove_file(scene.path().join("config.yaml")).unwrap();
    assert_eq!(scene.problems(), ["config.yaml: cannot be read: file not found"]);
    std::fs::create_dir(scene.path().join("config.yaml")).unwrap();
    assert_eq!(scene.problems(), ["config.yaml: cannot be read: it is not a regular file"]);
}
