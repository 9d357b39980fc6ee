//! Loading of files, and its results.

use std::time::Duration;

use countersign_core::policy::RuleLayer;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{
    super::{
        BindError, Config, ConfigFlags, ExposureKind, FileFinding, LogConfig, OnShutdown, RateLimits,
        ServiceAuthConfig, StoragePaths, TlsFiles, UndeclaredArguments, load_config, read_permissions,
    },
    ConfigFixture, VARIABLES,
};
use crate::logging::LogLineFormat;

const AGENTPASS: &str = r#"# agentpass configuration, ${NOWHERE} in a comment is nothing
gateway:
  host: "127.0.0.1"
  port: 8443
  health_port: 8081
agent:
  token: "${AGENT_TOKEN}"
messenger:
  type: "telegram"
  telegram:
    token: "${GUARDIAN_BOT_TOKEN}"
    chat_id: -100123
    allowed_users: [111, "112", ${NUMBER}]
services:
  homeassistant:
    url: "http://127.0.0.1:8123/"
    auth:
      type: bearer
      token: ${HA_TOKEN}
    health: { method: GET, path: "/api/", expect_status: "200" }
    tools: "tools.yaml"
    handler: http
    errors:
      - status: 404
        message: "Entity not found: {body}, not $HOME and ${not a name}"
storage:
  type: "sqlite"
  path: "./data/agentpass.db"
approval_timeout: 900
rate_limit:
  max_pending_approvals: 3
"#;

const TOOLS: &str = r#"tools:
  zeta:
    description: Last by name, first in the file
    signature: "{b}, {a}"
    args:
      b: { required: true, validate: '[a-z]+' }
      a: {}
      c:
    request: { method: POST, path: "/x/{b}", body_exclude: [b] }
    response: { wrap: result }
    idempotent: true
    undeclared_args: refuse
    timeout: 1.5
    max_response: 4096
  alpha:
"#;

fn loaded(scene: &ConfigFixture) -> Config {
    scene.load().unwrap_or_else(|errors| panic!("{errors}")).config
}

#[test]
fn a_file_of_agentpass_loads_as_it_is() {
    let scene = ConfigFixture::new(AGENTPASS);
    scene.write("tools.yaml", TOOLS);
    let loaded = scene.load().unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let config = loaded.config;
    assert_eq!((config.gateway.host.as_str(), config.gateway.port), ("127.0.0.1", 8443));
    assert_eq!(config.gateway.health, Some(("127.0.0.1".to_owned(), 8081)));
    let agents: Vec<_> = config.agents.iter().map(|agent| (agent.id.as_str(), agent.token.expose_secret())).collect();
    assert_eq!(agents, [("default", "agent-secret")]);
    let telegram = config.telegram.unwrap();
    assert_eq!(telegram.token.expose_secret(), "42:bot-secret");
    assert_eq!((telegram.chat_id, telegram.allowed_users), (-100_123, vec![111, 112, 12]));
    assert_eq!(telegram.api_url, "https://api.telegram.org");
    let service = &config.services[0];
    assert_eq!((service.name.as_str(), service.url.as_str()), ("homeassistant", "http://127.0.0.1:8123"));
    assert!(matches!(&service.auth, ServiceAuthConfig::Bearer { token } if token.expose_secret() == "ha-secret"));
    assert_eq!(service.errors, [(404, "Entity not found: {body}, not $HOME and ${not a name}".to_owned())]);
    let folder = scene.path().join("./data");
    assert_eq!(config.storage, StoragePaths { log: folder.join("agentpass.db"), folder, database: None });
    assert_eq!(
        config.limits,
        RateLimits {
            max_pending_approvals: 3,
            max_requests_per_minute: 60,
            max_failed_auth_per_minute: 60,
            max_connections: 20_000,
        }
    );
    let tools = &service.tools;
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["zeta", "alpha"]);
    let args: Vec<_> = tools[0].args.iter().map(|arg| (arg.name.as_str(), arg.required)).collect();
    assert_eq!(args, [("b", true), ("a", false), ("c", false)]);
    assert!(
        tools[0].args[0].validate.as_ref().is_some_and(|validate| validate.accepts("ab1") && !validate.accepts("1ab"))
    );
    assert_eq!((tools[0].request.method.as_str(), tools[0].request.path.as_str()), ("POST", "/x/{b}"));
    assert_eq!((tools[0].wrap.as_deref(), tools[0].idempotent), (Some("result"), true));
    assert_eq!(
        (tools[0].undeclared_args, tools[0].timeout),
        (UndeclaredArguments::Refuse, Duration::from_millis(1500))
    );
    assert_eq!((tools[0].max_response, tools[1].max_response), (4096, 1 << 20));
    assert_eq!((tools[1].request.method.as_str(), tools[1].request.path.as_str()), ("GET", "/"));
    assert_eq!((tools[1].undeclared_args, tools[1].timeout), (UndeclaredArguments::Ask, Duration::from_secs(300)));
}

#[test]
fn the_first_form_has_its_tools_built_in() {
    let first = "services: { homeassistant: { url: 'http://h:8123', token: '${HA_TOKEN}' } }\n";
    let config = loaded(&ConfigFixture::new(first));
    let service = &config.services[0];
    assert!(matches!(&service.auth, ServiceAuthConfig::Bearer { token } if token.expose_secret() == "ha-secret"));
    assert_eq!((service.health.path.as_str(), service.tools.len()), ("/api/", 9));
    let errors =
        [(401, "Service authentication failed (HA token expired?)"), (404, "Entity not found: {args.entity_id}")];
    assert_eq!(service.errors, errors.map(|(status, text)| (status, text.to_owned())));
    assert_eq!(service.other_errors.as_deref(), Some("Home Assistant API error {status}: {body}"));
    let wrap = |name: &str| service.tools.iter().find(|tool| tool.name == name).unwrap().wrap.as_deref();
    assert_eq!(
        ["ha_get_state", "ha_get_states", "ha_call_service", "ha_fire_event"].map(wrap),
        [None, Some("states"), Some("result"), None]
    );
}

#[test]
fn every_section_may_be_absent() {
    for text in ["", "# nothing", "agent: ~\nmessenger: {}\nservices: {}\nrate_limit: null\ngateway: { tls: {} }"] {
        let config = loaded(&ConfigFixture::new(text));
        assert_eq!((config.gateway.host.as_str(), config.gateway.port), ("127.0.0.1", 8443), "{text}");
        assert_eq!((config.gateway.tls, config.gateway.health), (None, None));
        assert!(config.agents.is_empty() && config.telegram.is_none() && config.services.is_empty());
        assert_eq!(config.approval_timeout, Duration::from_secs(900));
        assert_eq!((config.clarify_timeout, config.on_shutdown), (Duration::from_secs(3600), OnShutdown::Keep));
        let waits = (config.retry_max_wait, config.retry_ask_after);
        assert_eq!(waits, (Duration::from_secs(1800), Duration::from_secs(180)));
    }
}

#[test]
fn every_section_is_read() {
    let scene = ConfigFixture::new(
        "gateway: { host: 0.0.0.0, port: '9', tls: { cert: c.pem, key: /k.pem }, public_url: 'https://g.example/', allowed_hosts: [a.example] }
agent: { token: t0 }
agents: [ { id: kitchen-pi, token: t1 } ]
on_shutdown: deny
clarify_timeout: 5
retry_max_wait: 600
retry_ask_after: 60
clients: { token: c }
web: { password: w }
model: { provider: local, id: small-1 }
providers: { local: { api: openai-completions, base_url: 'http://127.0.0.1:11434/v1/', api_key: k, headers: { X-A: h }, models: [ { id: small-1, context_window: 128000, max_tokens: 8192 } ] }, anthropic: { api_key: k2 } }
agents_dir: data/agents
people: [ { id: ana, telegram: [111], console: [ana] } ]
",
    );
    let config = loaded(&scene);
    assert_eq!(config.gateway.tls, Some(TlsFiles { cert: scene.path().join("c.pem"), key: "/k.pem".into() }));
    assert_eq!((config.gateway.port, config.gateway.public_url.as_deref()), (9, Some("https://g.example")));
    assert_eq!(config.agents.iter().map(|agent| agent.id.as_str()).collect::<Vec<_>>(), ["default", "kitchen-pi"]);
    assert_eq!((config.on_shutdown, config.clarify_timeout), (OnShutdown::Deny, Duration::from_secs(5)));
    let waits = (config.retry_max_wait, config.retry_ask_after);
    assert_eq!(waits, (Duration::from_secs(600), Duration::from_secs(60)));
    assert_eq!(config.clients.unwrap().expose_secret(), "c");
    assert_eq!(config.web.password.unwrap().expose_secret(), "w");
    let local = &config.providers["local"];
    assert_eq!(local.models[0].base_url, "http://127.0.0.1:11434/v1");
    assert_eq!((local.models[0].context_window, local.models[0].max_tokens), (128_000, 8192));
    assert_eq!(config.providers["anthropic"].api_key.as_ref().unwrap().expose_secret(), "k2");
    assert_eq!(config.agents_dir, scene.path().join("data/agents"));
    assert_eq!((config.people[0].id.as_str(), config.people[0].telegram.as_slice()), ("ana", &[111][..]));
}

#[test]
fn a_variable_alone_is_what_it_says_and_text_where_text_is_needed() {
    for (text, variable, want) in [
        ("agent: { token: ${V} }", "12345", "12345"),
        ("agent: { token: '${V}' }", "true", "true"),
        ("agent: { token: \"${V}\" }", "a: b # c", "a: b # c"),
        ("agent: { token: a${V}c }", "${V}", "a${V}c"),
        ("agent: { token: $V }", "x", "$V"),
        ("agent: { token: '${V}${V}' }", "x", "xx"),
    ] {
        let config = ConfigFixture::new(text).load_with(&ConfigFlags::default(), &[("V", variable)]).unwrap().config;
        assert_eq!(config.agents[0].token.expose_secret(), want, "{text}");
    }
    for (token, form) in [
        ("$NAME", Some("$NAME")),
        ("'$NAME '", Some("$NAME")),
        ("Bearer $MY_NAME", Some("$NAME")),
        ("'%MY_NAME%'", Some("%NAME%")),
        ("pa$$NAME", None),
        ("'100%'", None),
        ("$5 a day", None),
    ] {
        let warned = ConfigFixture::new(&format!("agent: {{ token: {token} }}")).load().unwrap().warnings;
        let told = ["$NAME", "%NAME%"].into_iter().find(|form| {
            let want =
                format!("`{form}` is taken as the credential itself: write ${{NAME}} for an environment variable");
            warned.iter().any(|warning| warning.contains(&want))
        });
        assert_eq!(told, form, "{token}: {warned:?}");
        assert!(!warned.iter().any(|warning| warning.contains("MY_NAME")), "{token}: {warned:?}");
    }
    for (variable, want) in [("[111, 112]", vec![111, 112]), ("[-5]", vec![-5])] {
        let text = "messenger: { type: telegram, telegram: { token: t, chat_id: '${ID}', allowed_users: ${V} } }";
        let config = ConfigFixture::new(text)
            .load_with(&ConfigFlags::default(), &[("V", variable), ("ID", "-7")])
            .unwrap()
            .config;
        let telegram = config.telegram.unwrap();
        assert_eq!((telegram.chat_id, telegram.allowed_users), (-7, want));
    }
    let config =
        ConfigFixture::new("approval_timeout: ${V}").load_with(&ConfigFlags::default(), &[("V", "60")]).unwrap().config;
    assert_eq!(config.approval_timeout, Duration::from_secs(60));
}

#[test]
fn flags_go_before_the_file() {
    let scene =
        ConfigFixture::new("gateway: { host: 0.0.0.0, port: 1 }\nstorage: { path: a/b.db }\nlog: { format: text }");
    let rules = scene.path().join("p.yaml");
    std::fs::write(&rules, "").unwrap();
    let flags = ConfigFlags {
        permissions: Some(rules.clone()),
        data: Some("/d".into()),
        host: Some("::1".to_owned()),
        port: Some(2),
        webui: Some("/w".into()),
        log_format: Some(LogLineFormat::Json),
        insecure: true,
    };
    let config = scene.load_with(&flags, &[]).unwrap().config;
    assert_eq!((config.gateway.host.as_str(), config.gateway.port, config.gateway.insecure), ("::1", 2, true));
    assert_eq!(config.permissions, rules);
    assert_eq!(config.log, LogConfig { level: None, form: LogLineFormat::Json });
    assert_eq!(config.storage, StoragePaths { folder: "/d".into(), log: "/d/b.db".into(), database: None });
    assert_eq!(config.webui, Some("/w".into()));
}

#[test]
fn the_data_directory_is_found() {
    let data = |text: &str| {
        let scene = ConfigFixture::new(text);
        let StoragePaths { folder, log, .. } = loaded(&scene).storage;
        let below = |path: std::path::PathBuf| {
            path.strip_prefix(scene.path()).map_or_else(|_| path.clone(), std::path::Path::to_owned)
        };
        format!("{} {}", below(folder).display(), below(log).display())
    };
    assert_eq!(data(""), "data data/countersign.db");
    assert_eq!(data("storage: { type: sqlite }"), "data data/countersign.db");
    assert_eq!(data("storage: { path: x.db }"), " x.db");
    assert_eq!(data("storage: { path: a/x.db }"), "a a/x.db");
    assert_eq!(data("storage: { path: /var/x.db }"), "/var /var/x.db");
    for (variables, want) in [
        (&[("XDG_DATA_HOME", "/xdg"), ("HOME", "/home/a")][..], "/xdg/countersign/countersign.db"),
        (&[("HOME", "/home/a")], "/home/a/.local/share/countersign/countersign.db"),
        (&[("XDG_DATA_HOME", "relative"), ("HOME", "/home/a")], "/home/a/.local/share/countersign/countersign.db"),
        (&[], "countersign-data/countersign.db"),
    ] {
        let environment =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let config = load_config(None, &ConfigFlags::default(), &environment).unwrap().config;
        assert_eq!(config.storage.log, std::path::Path::new(want));
        assert_eq!(config.permissions, std::path::Path::new("permissions.yaml"));
    }
}

#[test]
fn the_records_of_another_program_are_left_alone() {
    for (name, beside) in [("agentpass.db", "countersign.db"), ("countersign.db", "countersign-log.db")] {
        let scene = ConfigFixture::new(&format!("storage: {{ path: {name} }}"));
        let mut page = b"SQLite format 3\0".to_vec();
        page.resize(3000, 0);
        page.extend(b"CREATE TABLE pending_requests (x)CREATE TABLE audit_log (x)");
        page.resize(8192, 0);
        std::fs::write(scene.path().join(name), &page).unwrap();
        let loaded = scene.load().unwrap();
        assert_eq!(loaded.config.storage.log, scene.path().join(beside));
        assert_eq!(
            scene.relative_lines(&loaded.warnings.join("\n")),
            [format!(
                "config.yaml:1: storage.path: {name} holds the records of agentpass or agent-gate and is not changed; the record is written to {beside}"
            )]
        );
        assert_eq!(std::fs::read(scene.path().join(name)).unwrap(), page);
        page.truncate(3000);
        std::fs::write(scene.path().join(name), &page).unwrap();
        assert_eq!(scene.load().unwrap().config.storage.log, scene.path().join(name));
    }
}

#[test]
fn credentials_that_others_can_read_draw_a_warning() {
    let scene = ConfigFixture::new("agent: { token: t }\nweb:\n  password: p\nclients: { token: '${HA_TOKEN}' }\n");
    assert_eq!(scene.load().unwrap().warnings, Vec::<String>::new());
    scene.mode("config.yaml", 0o644);
    let loaded = scene.load().unwrap();
    assert_eq!(
        scene.relative_lines(&loaded.warnings.join("\n")),
        [
            "config.yaml:1: agent.token, web.password: others can read this file; move the credentials to environment variables and write ${NAME}, or run: chmod 600 config.yaml"
        ]
    );
    scene.write("config.yaml", "clients: { token: '${HA_TOKEN}' }\n");
    scene.mode("config.yaml", 0o644);
    assert_eq!(scene.load().unwrap().warnings, Vec::<String>::new());
}

#[test]
fn an_authentication_that_nobody_knows_sends_nothing_and_warns() {
    let scene = ConfigFixture::new("services: { x: { url: 'http://h', auth: { type: magic } } }");
    let loaded = scene.load().unwrap();
    assert!(matches!(loaded.config.services[0].auth, ServiceAuthConfig::None));
    assert_eq!(
        scene.relative_lines(&loaded.warnings.join("\n")),
        [
            "config.yaml:1: services.x.auth.type: unknown authentication type 'magic'; requests are sent without a credential"
        ]
    );
}

#[test]
fn files_that_others_can_read_or_change_are_found() {
    let scene = ConfigFixture::new(
        "gateway: { tls: { cert: cert.pem, key: key.pem } }\nagent: { token: t }\nstorage: { path: log.db }\nservices: { x: { url: 'http://h', auth: { type: none }, tools: tools.yaml } }",
    );
    for name in ["permissions.yaml", "tools.yaml", "key.pem", "log.db"] {
        scene.write(name, "");
    }
    let found = |scene: &ConfigFixture| -> Vec<String> {
        let findings = loaded(scene).exposed_files();
        scene.relative_lines(&findings.iter().map(FileFinding::to_string).collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(found(&scene), ["cert.pem does not exist"]);
    scene.write("cert.pem", "");
    assert_eq!(found(&scene), Vec::<String>::new());
    for (name, mode, want) in [
        ("config.yaml", 0o644, "config.yaml holds credentials that others can read"),
        ("config.yaml", 0o620, "config.yaml can be changed by others, who could change what agents may do"),
        ("permissions.yaml", 0o602, "permissions.yaml can be changed by others, who could change what agents may do"),
        ("tools.yaml", 0o620, "tools.yaml can be changed by others, who could change what agents may do"),
        ("key.pem", 0o640, "key.pem is a private key that others can read"),
        ("log.db", 0o604, "log.db is a record that others can read"),
    ] {
        scene.mode(name, mode);
        assert_eq!(found(&scene), [want]);
        scene.mode(name, 0o600);
    }
    std::fs::create_dir_all(scene.path().join("secrets")).unwrap();
    std::fs::create_dir_all(scene.path().join("agents")).unwrap();
    for (name, mode, want) in [
        ("secrets/KEY", 0o644, "secrets/KEY is a secret that others can read, so it is not used"),
        ("agents", 0o755, "agents holds agent workspaces that others can read"),
    ] {
        if mode == 0o644 {
            scene.write(name, "");
        }
        scene.mode("", 0o711);
        scene.mode("agents", 0o700);
        scene.mode(name, mode);
        assert_eq!(found(&scene), [want]);
        scene.mode(name, 0o700 & mode);
        assert_eq!(found(&scene), Vec::<String>::new());
    }
    // Root's, and given to the group of a service.
    let give = |name: &str| std::os::unix::fs::chown(scene.path().join(name), Some(0), Some(4712));
    if give("config.yaml").and_then(|()| give("key.pem")).is_ok() {
        scene.mode("config.yaml", 0o640);
        scene.mode("key.pem", 0o640);
        assert_eq!(found(&scene), Vec::<String>::new());
        assert_eq!(scene.load().unwrap().warnings, Vec::<String>::new());
        scene.mode("config.yaml", 0o644);
        assert_eq!(found(&scene), ["config.yaml holds credentials that others can read"]);
    }
    let finding = FileFinding { path: "key.pem".into(), what: ExposureKind::PrivateKey };
    assert_eq!(finding.advice(), "chmod 600 key.pem");
}

#[test]
fn a_node_is_reached_with_the_scheme_of_its_port() {
    let node = |gateway: &str, advertise: &str| {
        format!(
            "gateway: {{ {gateway} }}\nstorage: {{ type: postgres, url: 'postgres://db/x' }}\n\
             cluster: {{ name: a, advertise: '{advertise}', secret: 0123456789abcdef }}"
        )
    };
    let tls = "tls: { cert: c, key: k }";
    for (gateway, advertise, insecure, want) in [
        (tls, "https://10.0.0.5:8443", false, Ok(())),
        ("port: 8443", "https://10.0.0.5:8443", false, Err(BindError::NodeWithoutTls)),
        ("port: 8443", "https://node-a.example", true, Ok(())),
        ("port: 8443", "http://127.0.0.1:8443", false, Ok(())),
        ("port: 8443", "http://10.0.0.5:8443", false, Err(BindError::PlaintextNodes)),
        ("port: 8443", "http://10.0.0.5:8443", true, Ok(())),
        (tls, "http://127.0.0.1:8443", true, Err(BindError::NodeWithTls)),
    ] {
        let flags = ConfigFlags { insecure, ..ConfigFlags::default() };
        let loaded = ConfigFixture::new(&node(gateway, advertise)).load_with(&flags, VARIABLES).unwrap();
        assert_eq!(loaded.config.check_binding(), want, "{gateway} {advertise} {insecure}");
    }
}

#[test]
fn an_address_that_others_reach_needs_a_credential_and_tls() {
    let agent = "agent: { token: t }\n";
    let tls = "tls: { cert: c, key: k }";
    for (text, insecure, want) in [
        ("", false, Ok(())),
        ("gateway: { host: localhost }", false, Ok(())),
        ("gateway: { host: 127.1.2.3 }", false, Ok(())),
        ("gateway: { host: '[::1]' }", false, Ok(())),
        ("gateway: { host: 0.0.0.0 }", true, Err(BindError::Open)),
        ("gateway: { host: '::' }", true, Err(BindError::Open)),
        ("gateway: { host: localhost.example }", true, Err(BindError::Open)),
        (&format!("{agent}gateway: {{ host: 0.0.0.0 }}"), false, Err(BindError::Plaintext)),
        (&format!("{agent}gateway: {{ host: 0.0.0.0 }}"), true, Ok(())),
        (&format!("{agent}gateway: {{ host: 0.0.0.0, {tls} }}"), false, Ok(())),
        (&format!("gateway: {{ host: 0.0.0.0, {tls} }}"), false, Err(BindError::Open)),
        (&format!("web: {{ password: p }}\ngateway: {{ host: 10.0.0.1, {tls} }}"), false, Ok(())),
    ] {
        let flags = ConfigFlags { insecure, ..ConfigFlags::default() };
        assert_eq!(
            ConfigFixture::new(text).load_with(&flags, VARIABLES).unwrap().config.check_binding(),
            want,
            "{text}"
        );
    }
}

#[test]
fn what_is_shown_holds_no_secret() {
    let scene = ConfigFixture::new(
        "gateway: { public_url: 'https://u:secret-1@g.example/x' }
agent: { token: secret-2 }
messenger: { type: telegram, telegram: { token: secret-3, chat_id: 1, allowed_users: [1], api_url: 'http://u:secret-4@h' } }
services:
  a: { url: 'http://u:secret-5@h/x', auth: { type: bearer, token: secret-6 } }
  b: { url: 'http://h?key=secret-7', auth: { type: header, header_name: X-Key, token: secret-8 } }
  c: { url: 'http://h', auth: { type: query, query_param: key, token: secret-9 } }
  d: { url: 'http://h', auth: { type: basic, username: ana, password: secret-10 } }
  e: { url: 'http://h', auth: { type: none }, health: { path: '/up?key=secret-16' } }
clients: { token: secret-11 }
web: { password: secret-12 }
providers: { p: { api_key: secret-13, headers: { X-A: secret-14 }, base_url: 'http://secret-15@h' } }
",
    );
    let config = loaded(&scene);
    let shown = config.redacted_json();
    assert!(!shown.to_string().contains("secret"), "{shown:#}");
    assert!(!format!("{config:?}").contains("secret-2"), "tokens do not print");
    assert_eq!(shown["services"]["b"]["auth"], json!({"type": "header", "header_name": "X-Key", "token": "***"}));
    assert_eq!(shown["services"]["a"]["url"], "http://***@h/x");
    assert_eq!(shown["services"]["e"]["health"]["path"], "/up?key=***");
    assert_eq!(shown["agents"], json!([{"id": "default", "token": "***"}]));
}

#[test]
fn the_example_loads() {
    let example = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let scene = ConfigFixture::new(&example("config.yaml"));
    scene.write("homeassistant.yaml", &example("homeassistant.yaml"));
    let loaded = scene.load().unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.config.services[0].tools.len(), 9);
    assert_eq!(loaded.config.agents.len(), 1);
}

#[test]
fn rules_in_a_file_with_another_extension_are_refused() {
    for other in ["permissions.yml", "permissions.json"] {
        let scene = ConfigFixture::new("");
        scene.write(other, "rules: []");
        let path = scene.path().join("permissions.yaml");
        for is_there in [false, true] {
            if is_there {
                scene.write("permissions.yaml", "rules: []");
            }
            let errors = read_permissions(&path, RuleLayer::Main).unwrap_err();
            let want = format!("{other}: is not read: rules are in permissions.yaml; rename or remove this file");
            assert_eq!(scene.relative_lines(&errors.to_string()), [want]);
        }
        assert!(read_permissions(&scene.path().join("other.yaml"), RuleLayer::Main).unwrap().is_none());
    }
}

#[test]
fn a_second_configuration_is_named() {
    let scene = ConfigFixture::new("");
    scene.write("config.yml", "");
    let warnings = scene.load().unwrap().warnings.join("\n");
    let want = "config.yml is not read: the configuration is config.yaml";
    assert!(scene.relative_lines(&warnings).contains(&want.to_owned()), "{warnings}");
}
