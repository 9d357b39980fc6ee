//! `config` and `doctor`: what is wrong before a gateway starts, and what to do about it.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, SERVICE_TOKEN, agent_gate::AgentClient, run_command,
    service::ServiceBehavior,
};
use countersign_tools::sandbox::KernelSupport;
use serde_json::{Value, json};

/// Returns the check of one thing by `doctor`.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == json!(name)).unwrap_or_else(|| panic!("{name} is not in {report}"))
}

fn doctor(place: &GatewayFixture) -> (Option<i32>, Value) {
    let output = place.run(&["doctor", "--config", "config.yaml", "--json"]);
    (output.code, output.json())
}

#[test]
fn a_valid_configuration_is_confirmed_and_an_invalid_one_is_explained() {
    let place = GatewayFixture::new();
    let run = |arguments: &[&str]| place.run(&[arguments, &["--config", "config.yaml"]].concat());
    let fine = run(&["config", "check", "--json"]);
    assert_eq!((fine.code, fine.json()), (Some(0), json!({ "ok": true, "problems": [], "warnings": [] })));
    assert_eq!(run(&["config", "check"]).out, "config.yaml: valid\n");
    for (file, text, want) in [
        ("permissions.yaml", "rules:\n  - { pattern: \"x*\", action: perhaps }\n", "permissions.yaml:2"),
        (
            "permissions.yaml",
            "rules: []\ntests:\n  - { request: 'turn thing=a', expect: allow }\n",
            "permissions.yaml:3",
        ),
        ("config.yaml", "gatway: 1\n", "config.yaml:1: gatway: unknown key"),
        ("config.yaml", "gateway: { host: 0.0.0.0 }\n", "needs a credential"),
        ("config.yaml", "gateway: { tls: { cert: none.pem, key: none.pem } }\n", "none.pem"),
        (
            "config.yaml",
            "agent: { token: \"${NOT_SET}\" }\n",
            "config.yaml:1: agent.token: Environment variable NOT_SET is not set",
        ),
    ] {
        let before = fs::read_to_string(place.folder.join(file)).unwrap();
        place.write_file(file, text);
        let output = run(&["config", "check", "--json"]);
        let problems = output.json()["problems"].to_string();
        assert_eq!((output.code, problems.contains(want)), (Some(1), true), "{want}: {output:?}");
        assert_eq!(run(&["config", "check"]).code, Some(1));
        place.write_file(file, &before);
    }
}

#[test]
fn what_is_shown_of_a_configuration_has_no_secret_and_loads_again() {
    let place = GatewayFixture::new();
    for arguments in [&["config", "show"][..], &["config", "show", "--json"]] {
        let output = place.run(&[arguments, &["--config", "config.yaml"]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        for secret in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN] {
            assert!(!output.out.contains(secret), "{output:?}");
        }
        assert!(output.out.contains("desk") && output.out.contains("***") && output.out.ends_with('\n'), "{output:?}");
    }
    let shown = place.run(&["config", "show", "--json", "--config", "config.yaml", "--data", "elsewhere"]).json();
    assert_eq!(shown["storage"]["path"], json!("elsewhere/countersign.db"));
    assert_eq!(shown["approval_timeout"], json!(900));
    place.write_file("config.yaml", "storage: { path: rec.db }\n");
    let shown = place.run(&["config", "show", "--json", "--config", "config.yaml"]).json();
    assert_eq!(shown["storage"]["path"], json!("./rec.db"), "a folder has a name");
}

#[test]
fn a_gateway_that_is_well_leaves_nothing_to_do() {
    let place = GatewayFixture::new();
    let (code, report) = doctor(&place);
    assert_eq!((code, &report["findings"]), (Some(0), &json!(0)), "{report:#}");
    assert_eq!(check(&report, "gateway")["state"], json!("note"));
    assert!(!place.data_dir().exists(), "it only looks");
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    place.wait_gate();
    let (code, report) = doctor(&place);
    assert_eq!(code, Some(0), "{report:#}");
    assert!(check(&report, "gateway")["what"].as_str().unwrap().ends_with("; 1 pending approval"), "{report:#}");
    let head = place.run(&["audit", "verify", "--json", "--config", "config.yaml"]).json()["head"].clone();
    assert!(check(&report, "record")["what"].as_str().unwrap().ends_with(head.as_str().unwrap()), "{report:#}");
    let open = check(&report, "console");
    assert_eq!(
        (&open["state"], &open["what"]),
        (&json!("note"), &json!("open to every user of this machine; set web.password to require a login"))
    );
    let output = place.run(&["--config", "config.yaml", "doctor"]);
    // The folder of this test may be one for temporary files, in which commands cannot create files then.
    let end = if output.out.contains("→ keep the configuration and data outside ") {
        "\nNothing to fix. Consider the advice of the notes.\n"
    } else {
        "\nNothing to do.\n"
    };
    assert!(output.out.ends_with(end) && !output.out.contains('\u{1b}'), "{output:?}");
}

#[test]
fn a_broken_record_and_unreachable_traces_are_findings() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    place.wait_gate();
    drop((agent, gateway));
    let record = rusqlite::Connection::open(place.log_path()).unwrap();
    record.execute_batch("UPDATE contents SET bytes = x'00' WHERE lsn = (SELECT min(lsn) FROM contents)").unwrap();
    drop(record);
    let mut command = place.binary_command();
    command.args(["doctor", "--config", "config.yaml", "--json"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318");
    let report = run_command(command).json();
    for (name, what) in [("record", "countersign.db: "), ("traces", "OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL")] {
        let found = check(&report, name);
        assert_eq!(found["state"], json!("fix"), "{report:#}");
        assert!(found["what"].as_str().unwrap().contains(what), "{found}");
    }
}

#[test]
fn doctor_reports_the_sandbox_and_the_missing_kernel_features() {
    let place = GatewayFixture::new();
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    for (section, is_on) in
        [("", true), ("sandbox: { mode: off }\n", false), ("sandbox: { on_missing: refuse }\n", true)]
    {
        fs::write(place.folder.join("config.yaml"), format!("{config}{section}")).unwrap();
        let (_, report) = doctor(&place);
        let found = check(&report, "sandbox");
        let want = match (is_on, KernelSupport::running_kernel().missing_support()) {
            (false, _) => "note",
            (true, None) => "ok",
            (true, Some(_)) if section.contains("refuse") => "fix",
            (true, Some(_)) => "note",
        };
        assert_eq!(found["state"], json!(want), "{found}");
        assert_eq!(found["what"].as_str().unwrap().starts_with("workspace: "), is_on, "{found}");
    }
}

#[test]
fn a_folder_that_contains_the_gateway_is_reported_if_commands_are_to_write_there() {
    let place = GatewayFixture::new();
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    let beside = tempfile::tempdir().unwrap();
    for (write, is_reported) in [(&place.folder, true), (&beside.path().to_owned(), false)] {
        let section = format!("sandbox: {{ temporary: [], write: [\"{}\"] }}\n", write.display());
        fs::write(place.folder.join("config.yaml"), format!("{config}{section}")).unwrap();
        let (code, report) = doctor(&place);
        let what = format!("commands cannot create files in {}, because ", write.canonicalize().unwrap().display());
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().filter(|check| check["what"].as_str().unwrap().starts_with(&what)).count();
        assert_eq!((code, found), (Some(0), usize::from(is_reported)), "{report:#}");
    }
}

#[test]
fn a_record_of_a_newer_version_asks_for_that_version() {
    let place = GatewayFixture::new();
    let _ = GatewayServer::start(&place).stop();
    fs::copy(format!("{}/tests/logs/2026-11-22.db", env!("CARGO_MANIFEST_DIR")), place.log_path()).unwrap();
    rusqlite::Connection::open(place.log_path()).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let (code, report) = doctor(&place);
    let record = check(&report, "record");
    assert_eq!((code, &record["state"]), (Some(1), &json!("fix")), "{report:#}");
    assert!(record["what"].as_str().unwrap().contains("schema version 99"), "{record}");
    assert!(record["advice"].as_str().unwrap().starts_with("a newer version of countersign wrote it"), "{record}");
}

#[test]
fn every_finding_says_what_to_do() {
    let place = GatewayFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().port();
    place.service.set_behavior("/", ServiceBehavior::Answer(500, "text/plain", String::new()));
    let telegram = format!(
        "messenger: {{ type: telegram, telegram: {{ token: '42:tok-telegram', chat_id: 7, allowed_users: [7], api_url: '{}' }} }}",
        place.service.url
    );
    place.service.set_behavior(
        "/bot42:tok-telegram/getMe",
        ServiceBehavior::Answer(
            200,
            "application/json",
            json!({ "ok": true, "result": { "id": 42, "username": "gate_bot" } }).to_string(),
        ),
    );
    let unknown = json!({ "ok": false, "error_code": 400, "description": "Bad Request: chat not found" }).to_string();
    place
        .service
        .set_behavior("/bot42:tok-telegram/getChat", ServiceBehavior::Answer(400, "application/json", unknown));
    place.write_file("config.yaml", &place.config_text(&telegram).replace("port: 0", &format!("port: {taken}")));
    fs::set_permissions(place.folder.join("config.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
    place.write_file("permissions.yaml", "rules: [\n");
    fs::create_dir(place.data_dir()).unwrap();
    fs::write(place.log_path(), "no record ".repeat(1000)).unwrap();
    let (code, report) = doctor(&place);
    assert_eq!(code, Some(1), "{report:#}");
    for (name, what) in [
        ("rules", "permissions.yaml:"),
        ("service desk", "returned status 500, expected 200"),
        ("messenger", "@gate_bot cannot see its chat"),
        ("address", "127.0.0.1"),
        ("record", "is damaged or not a record"),
    ] {
        let check = check(&report, name);
        assert_eq!(check["state"], json!("fix"), "{name}: {report:#}");
        assert!(check["what"].as_str().unwrap().contains(what), "{name}: {check}");
        assert!(check["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{check}");
    }
    let files = check(&report, "files");
    assert!(files["state"] == "note" && files["advice"].as_str().unwrap().contains("chmod 600"), "{files}");
    assert_eq!(
        report["findings"],
        json!(report["checks"].as_array().unwrap().iter().filter(|check| check["state"] == "fix").count())
    );
    assert!(!report.to_string().contains("tok-telegram"), "{report}");
    let known = json!({ "ok": true, "result": { "id": 7, "title": "The house" } }).to_string();
    place.service.set_behavior("/bot42:tok-telegram/getChat", ServiceBehavior::Answer(200, "application/json", known));
    assert_eq!(check(&doctor(&place).1, "messenger")["what"], json!("@gate_bot shows cards in \"The house\""));
    place.write_file("config.yaml", "agent: { token: \"${NOT_SET}\" }\n");
    let (code, report) = doctor(&place);
    assert_eq!(
        (code, &check(&report, "configuration")["advice"]),
        (Some(1), &json!("set NOT_SET here as in the environment of `serve`"))
    );
}

/// Tests that settings that `serve` accepts are a warning to every command, and no fault.
#[test]
fn commands_agree_about_what_is_a_fault() {
    let place = GatewayFixture::with_config_and_rules(
        "",
        "rules: [ { pattern: 'turn*', action: allow, principal: nobody-here } ]",
    );
    let (code, report) = doctor(&place);
    let found = check(&report, "rules");
    assert_eq!((code, &found["state"], &report["findings"]), (Some(0), &json!("note"), &json!(0)), "{report:#}");
    let warning = found["what"].as_str().unwrap();
    assert!(warning.contains("nobody-here") && found["advice"].is_string(), "{found}");
    let checked = place.run(&["policy", "check", "--json"]);
    assert_eq!((checked.code, &checked.json()["warnings"]), (Some(0), &json!([warning])), "{checked:?}");
    let checked = place.run(&["config", "check", "--json"]);
    assert_eq!((checked.code, &checked.json()["warnings"]), (Some(0), &json!([warning])), "{checked:?}");
    place.write_file("permissions.yaml", "rules: [ { pattern: 'turn(lamp', action: deny } ]");
    let (code, report) = doctor(&place);
    let found = check(&report, "rules");
    assert_eq!((code, &found["state"]), (Some(1), &json!("fix")), "{report:#}");
    let what = found["what"].as_str().unwrap();
    assert!(what.starts_with("deny rule has no effect: ") && what.contains("permissions.yaml:1: "), "{found}");
    let advice = "add \")\" at the end of the pattern, then run `countersign policy check`";
    assert_eq!(found["advice"], json!(advice));
    let checked = place.run(&["config", "check", "--json"]);
    assert_eq!((checked.code, checked.json()["problems"].as_array().unwrap().len()), (Some(1), 1), "{checked:?}");
    assert_eq!(place.run(&["policy", "check"]).code, Some(1));
    place.write_file("permissions.yaml", "rules: [ { pattern: 'turn*', action: perhaps } ]");
    assert_eq!(doctor(&place).0, Some(1));
    assert_eq!(place.run(&["policy", "check"]).code, Some(1));
    assert_eq!(place.run(&["config", "check"]).code, Some(1));
}

/// Changes a fixture so that a gateway starts with a warning.
type Change = fn(&GatewayFixture);

/// Returns the text of the configuration with `from` replaced.
fn replace_config(place: &GatewayFixture, from: &str, to: &str) {
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    assert!(config.contains(from), "{from}: {config}");
    place.write_file("config.yaml", &config.replace(from, to));
}

/// Changes the mode of a file.
fn set_mode(place: &GatewayFixture, name: &str, mode: u32) {
    fs::set_permissions(place.folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn commands_agree_about_every_warning() {
    let cases: [(&str, bool, Change); 7] = [
        ("config.yaml", true, |place| set_mode(place, "config.yaml", 0o644)),
        ("config.yml is not read: the configuration is", true, |place| drop(place.write_file("config.yml", ""))),
        ("unknown authentication type 'digest'", true, |place| replace_config(place, "type: bearer", "type: digest")),
        ("`$NAME` is taken as the credential itself", true, |place| {
            replace_config(place, SERVICE_TOKEN, "$SERVICE_TOKEN");
        }),
        ("nobody-here", true, |place| {
            let rules = "rules: [ { pattern: 'turn*', action: allow, principal: nobody-here } ]";
            drop(place.write_file("permissions.yaml", rules));
        }),
        ("permissions.yaml can be changed by others", false, |place| set_mode(place, "permissions.yaml", 0o666)),
        ("tokens.json holds token digests that others can read", false, |place| {
            let made = place.run(&["tokens", "add", "ci", "--scope", "read", "--config", "config.yaml"]);
            assert_eq!(made.code, Some(0), "{made:?}");
            fs::set_permissions(place.data_dir().join("tokens.json"), fs::Permissions::from_mode(0o644)).unwrap();
        }),
    ];
    for (want, is_of_start, change) in cases {
        let place = GatewayFixture::new();
        change(&place);
        let checked = place.run(&["config", "check", "--json", "--config", "config.yaml"]);
        let is_warned = checked.json()["warnings"].as_array().unwrap().iter().any(|one| one.to_string().contains(want));
        assert!(checked.code == Some(0) && is_warned, "{want}: {checked:?}");
        let (code, report) = doctor(&place);
        let mut checks = report["checks"].as_array().unwrap().iter();
        let is_noted = checks.any(|check| {
            check["state"] == "note" && check["advice"].is_string() && check["what"].to_string().contains(want)
        });
        assert!(code == Some(0) && report["findings"] == 0 && is_noted, "{want}: {report:#}");
        if is_of_start {
            let gateway = GatewayServer::start(&place);
            gateway.wait_for_log(want);
        }
    }
}

#[test]
fn a_service_that_refuses_its_credentials_reads_otherwise_than_one_that_is_down() {
    let place = GatewayFixture::new();
    let found = |place: &GatewayFixture| check(&doctor(place).1, "service desk").clone();
    let text = |found: &Value, part: &str| found[part].as_str().unwrap().to_owned();
    for status in [401, 403] {
        place.service.set_behavior("/", ServiceBehavior::Answer(status, "text/plain", String::new()));
        let found = found(&place);
        assert_eq!(text(&found, "what"), format!("rejected the credentials with status {status}"));
        assert!(text(&found, "advice").contains("services.desk.auth"), "{found}");
    }
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    place.write_file("config.yaml", &config.replace(&place.service.url, "http://127.0.0.1:1"));
    let found = found(&place);
    assert!(text(&found, "what").starts_with("Service unreachable: desk"), "{found}");
    assert!(text(&found, "advice").starts_with("start the service"), "{found}");
}

#[test]
fn a_provider_that_is_down_and_a_folder_that_cannot_be_created_are_named_with_their_cause() {
    let place = GatewayFixture::new();
    let provider = "providers:\n  local: { api: openai-completions, base_url: 'http://127.0.0.1:1/v1', api_key: k, \
                    models: [ { id: small-1, context_window: 128000, max_tokens: 8192 } ] }\n";
    place.write_file("config.yaml", &place.config_text(provider));
    let closed = place.folder.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let report = place.run(&["doctor", "--config", "config.yaml", "--data", "closed/data", "--json"]).json();
    let found = check(&report, "provider local");
    assert_eq!((&found["state"], &found["what"]), (&json!("fix"), &json!("cannot be reached: Connection refused")));
    // Root may write everywhere.
    if fs::write(closed.join("probe"), "").is_err() {
        let what = check(&report, "data")["what"].as_str().unwrap();
        assert!(what.contains("closed/data cannot be created: ") && what.ends_with("closed is not writable"), "{what}");
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn an_error_is_reported_once_with_a_fix() {
    let place = GatewayFixture::new();
    place.write_file("config.yaml", "gateway: {port: 1\nagent");
    let (code, report) = doctor(&place);
    assert_eq!((code, &report["findings"]), (Some(1), &json!(1)), "{report:#}");
    assert_eq!(check(&report, "data")["state"], json!("note"));
    for (config, helps) in [
        ("gateway: { host: 0.0.0.0, port: 0 }\n", "set one of them, or listen on 127.0.0.1"),
        ("gateway: { host: 0.0.0.0, port: 0 }\nagent: { token: \"${SOME}\" }\n", "give gateway.tls a certificate"),
    ] {
        place.write_file("config.yaml", config);
        let mut command = place.binary_command();
        command.args(["doctor", "--config", "config.yaml", "--json"]).env("SOME", "tok-some");
        let report = run_command(command).json();
        let all = report["checks"].as_array().unwrap();
        let advice = all.iter().filter_map(|check| check["advice"].as_str());
        assert!(advice.clone().any(|advice| advice.contains(helps)), "{report:#}");
    }
    place.write_file("config.yaml", "gateway: { port: 0 }\n");
    fs::write(place.folder.join("file"), "x").unwrap();
    let report = place.run(&["doctor", "--config", "config.yaml", "--data", "file", "--json"]).json();
    assert_eq!(report["findings"], json!(1), "a door that nobody needs is no trouble: {report:#}");
    assert!(check(&report, "data")["what"].as_str().unwrap().contains("is not a folder"));
}

#[test]
fn a_folder_without_a_configuration_has_the_defaults_checked() {
    let place = GatewayFixture::new();
    fs::remove_file(place.folder.join("config.yaml")).unwrap();
    let output = place.run(&["config", "check"]);
    assert!(output.code == Some(0) && output.out.ends_with("defaults: valid\n"), "{output:?}");
    assert!(output.err.contains("no config.yaml in this folder: the defaults are checked"), "{output:?}");
}
