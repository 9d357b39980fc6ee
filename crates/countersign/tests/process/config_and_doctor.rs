//! `config` and `doctor`: what is wrong before a gateway starts, and what to do about it.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _};

use countersign_testkit::process::{
    AGENT_TOKEN, Gateway, GatewayFixture, KITCHEN_TOKEN, SERVICE_TOKEN, agent_gate::AgentClient, run_command,
    service::Behavior,
};
use countersign_tools::sandbox::KernelSupport;
use serde_json::{Value, json};

/// What `doctor` has to say of one thing.
fn check<'a>(told: &'a Value, name: &str) -> &'a Value {
    let checks = told["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == json!(name)).unwrap_or_else(|| panic!("{name} is not in {told}"))
}

fn doctor(place: &GatewayFixture) -> (Option<i32>, Value) {
    let said = place.run(&["doctor", "--config", "config.yaml", "--json"]);
    (said.code, said.json())
}

#[test]
fn a_configuration_that_can_be_used_is_said_to_be_so_and_one_that_cannot_says_why() {
    let place = GatewayFixture::new();
    let run = |arguments: &[&str]| place.run(&[arguments, &["--config", "config.yaml"]].concat());
    let fine = run(&["config", "check", "--json"]);
    assert_eq!((fine.code, fine.json()), (Some(0), json!({ "ok": true, "problems": [], "warnings": [] })));
    assert_eq!(run(&["config", "check"]).out, "config.yaml: can be used\n");
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
        place.write(file, text);
        let said = run(&["config", "check", "--json"]);
        let problems = said.json()["problems"].to_string();
        assert_eq!((said.code, problems.contains(want)), (Some(1), true), "{want}: {said:?}");
        assert_eq!(run(&["config", "check"]).code, Some(1));
        place.write(file, &before);
    }
}

#[test]
fn what_is_shown_of_a_configuration_has_no_secret_and_loads_again() {
    let place = GatewayFixture::new();
    for arguments in [&["config", "show"][..], &["config", "show", "--json"]] {
        let said = place.run(&[arguments, &["--config", "config.yaml"]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        for secret in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN] {
            assert!(!said.out.contains(secret), "{said:?}");
        }
        assert!(said.out.contains("desk") && said.out.contains("***") && said.out.ends_with('\n'), "{said:?}");
    }
    let shown = place.run(&["config", "show", "--json", "--config", "config.yaml", "--data", "elsewhere"]).json();
    assert_eq!(shown["storage"]["path"], json!("elsewhere/countersign.db"));
    assert_eq!(shown["approval_timeout"], json!(900));
    place.write("config.yaml", "storage: { path: rec.db }\n");
    let shown = place.run(&["config", "show", "--json", "--config", "config.yaml"]).json();
    assert_eq!(shown["storage"]["path"], json!("./rec.db"), "a folder has a name");
}

#[test]
fn a_gateway_that_is_well_leaves_nothing_to_do() {
    let place = GatewayFixture::new();
    let (code, told) = doctor(&place);
    assert_eq!((code, &told["findings"]), (Some(0), &json!(0)), "{told:#}");
    assert_eq!(check(&told, "gateway")["state"], json!("note"));
    assert!(!place.data().exists(), "it only looks");
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    place.gate();
    let (code, told) = doctor(&place);
    assert_eq!(code, Some(0), "{told:#}");
    assert!(check(&told, "gateway")["what"].as_str().unwrap().contains("1 waiting for people"), "{told:#}");
    let head = place.run(&["audit", "verify", "--json", "--config", "config.yaml"]).json()["head"].clone();
    assert!(check(&told, "record")["what"].as_str().unwrap().ends_with(head.as_str().unwrap()), "{told:#}");
    let open = check(&told, "console");
    assert_eq!(
        (&open["state"], &open["what"]),
        (&json!("note"), &json!("open to everybody on this machine; web.password closes it"))
    );
    let said = place.run(&["--config", "config.yaml", "doctor"]);
    assert!(said.out.ends_with("\nNothing to do.\n") && !said.out.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_record_whose_middle_does_not_fit_and_traces_that_cannot_be_told_are_findings() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    place.gate();
    drop((agent, gateway));
    let record = rusqlite::Connection::open(place.log()).unwrap();
    record.execute_batch("UPDATE contents SET bytes = x'00' WHERE lsn = (SELECT min(lsn) FROM contents)").unwrap();
    drop(record);
    let mut command = place.command();
    command.args(["doctor", "--config", "config.yaml", "--json"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318");
    let told = run_command(command).json();
    for (name, what) in [("record", "countersign.db: "), ("traces", "OTEL_EXPORTER_OTLP_ENDPOINT: it is no address")] {
        let found = check(&told, name);
        assert_eq!(found["state"], json!("fix"), "{told:#}");
        assert!(found["what"].as_str().unwrap().contains(what), "{found}");
    }
}

#[test]
fn the_sandbox_of_commands_is_told_and_what_the_kernel_lacks() {
    let place = GatewayFixture::new();
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    for (section, is_on) in
        [("", true), ("sandbox: { mode: off }\n", false), ("sandbox: { on_missing: refuse }\n", true)]
    {
        fs::write(place.folder.join("config.yaml"), format!("{config}{section}")).unwrap();
        let (_, told) = doctor(&place);
        let found = check(&told, "sandbox");
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
fn a_folder_in_which_commands_make_nothing_since_the_gateway_lies_in_it_is_told() {
    let place = GatewayFixture::new();
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    let beside = tempfile::tempdir().unwrap();
    for (write, is_told) in [(&place.folder, true), (&beside.path().to_owned(), false)] {
        let section = format!("sandbox: {{ temporary: [], write: [\"{}\"] }}\n", write.display());
        fs::write(place.folder.join("config.yaml"), format!("{config}{section}")).unwrap();
        let (code, told) = doctor(&place);
        let what = format!("commands make nothing new in {}, since ", write.canonicalize().unwrap().display());
        let checks = told["checks"].as_array().unwrap();
        let found = checks.iter().filter(|check| check["what"].as_str().unwrap().starts_with(&what)).count();
        assert_eq!((code, found), (Some(0), usize::from(is_told)), "{told:#}");
    }
}

#[test]
fn whoever_has_a_record_of_a_newer_program_is_told_to_use_that() {
    let place = GatewayFixture::new();
    let _ = Gateway::start(&place).stop();
    fs::copy(format!("{}/tests/logs/2026-11-22.db", env!("CARGO_MANIFEST_DIR")), place.log()).unwrap();
    rusqlite::Connection::open(place.log()).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let (code, told) = doctor(&place);
    let record = check(&told, "record");
    assert_eq!((code, &record["state"]), (Some(1), &json!("fix")), "{told:#}");
    assert!(record["what"].as_str().unwrap().contains("schema version 99"), "{record}");
    assert!(record["advice"].as_str().unwrap().starts_with("a newer countersign wrote it"), "{record}");
}

#[test]
fn every_finding_says_what_to_do() {
    let place = GatewayFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().port();
    place.service.does("/", Behavior::Answer(500, "text/plain", String::new()));
    let telegram = format!(
        "messenger: {{ type: telegram, telegram: {{ token: '42:tok-telegram', chat_id: 7, allowed_users: [7], api_url: '{}' }} }}",
        place.service.url
    );
    place.service.does(
        "/bot42:tok-telegram/getMe",
        Behavior::Answer(
            200,
            "application/json",
            json!({ "ok": true, "result": { "id": 42, "username": "gate_bot" } }).to_string(),
        ),
    );
    let unknown = json!({ "ok": false, "error_code": 400, "description": "Bad Request: chat not found" }).to_string();
    place.service.does("/bot42:tok-telegram/getChat", Behavior::Answer(400, "application/json", unknown));
    place.write("config.yaml", &place.config(&telegram).replace("port: 0", &format!("port: {taken}")));
    fs::set_permissions(place.folder.join("config.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
    place.write("permissions.yaml", "rules: [\n");
    fs::create_dir(place.data()).unwrap();
    fs::write(place.log(), "no record ".repeat(1000)).unwrap();
    let (code, told) = doctor(&place);
    assert_eq!(code, Some(1), "{told:#}");
    for (name, what) in [
        ("rules", "permissions.yaml:"),
        ("files", "holds credentials that others can read"),
        ("service desk", "answered 500 instead of 200"),
        ("messenger", "@gate_bot cannot see its chat"),
        ("address", "127.0.0.1"),
        ("record", "is damaged, or no record at all"),
    ] {
        let check = check(&told, name);
        assert_eq!(check["state"], json!("fix"), "{name}: {told:#}");
        assert!(check["what"].as_str().unwrap().contains(what), "{name}: {check}");
        assert!(check["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{check}");
    }
    assert_eq!(
        told["findings"],
        json!(told["checks"].as_array().unwrap().iter().filter(|check| check["state"] == "fix").count())
    );
    assert!(!told.to_string().contains("tok-telegram"), "{told}");
    let known = json!({ "ok": true, "result": { "id": 7, "title": "The house" } }).to_string();
    place.service.does("/bot42:tok-telegram/getChat", Behavior::Answer(200, "application/json", known));
    assert_eq!(check(&doctor(&place).1, "messenger")["what"], json!("@gate_bot shows cards in \"The house\""));
    place.write("config.yaml", "agent: { token: \"${NOT_SET}\" }\n");
    let (code, told) = doctor(&place);
    assert_eq!(
        (code, &check(&told, "configuration")["advice"]),
        (Some(1), &json!("set NOT_SET here as it is set where `serve` runs"))
    );
}

/// What `serve` takes is a warning to every command, and no fault.
#[test]
fn commands_agree_about_what_is_a_fault() {
    let place = GatewayFixture::with("", "rules: [ { pattern: 'turn*', action: allow, principal: nobody-here } ]");
    let (code, told) = doctor(&place);
    let found = check(&told, "rules");
    assert_eq!((code, &found["state"], &told["findings"]), (Some(0), &json!("note"), &json!(0)), "{told:#}");
    let warning = found["what"].as_str().unwrap();
    assert!(warning.contains("nobody-here") && found["advice"].is_string(), "{found}");
    let checked = place.run(&["policy", "check", "--json"]);
    assert_eq!((checked.code, &checked.json()["warnings"]), (Some(0), &json!([warning])), "{checked:?}");
    let checked = place.run(&["config", "check", "--json"]);
    assert_eq!((checked.code, &checked.json()["warnings"]), (Some(0), &json!([warning])), "{checked:?}");
    place.write("permissions.yaml", "rules: [ { pattern: 'turn*', action: perhaps } ]");
    assert_eq!(doctor(&place).0, Some(1));
    assert_eq!(place.run(&["policy", "check"]).code, Some(1));
    assert_eq!(place.run(&["config", "check"]).code, Some(1));
}

#[test]
fn a_service_that_refuses_its_credentials_reads_otherwise_than_one_that_is_down() {
    let place = GatewayFixture::new();
    let found = |place: &GatewayFixture| check(&doctor(place).1, "service desk").clone();
    let text = |found: &Value, part: &str| found[part].as_str().unwrap().to_owned();
    for status in [401, 403] {
        place.service.does("/", Behavior::Answer(status, "text/plain", String::new()));
        let found = found(&place);
        assert_eq!(text(&found, "what"), format!("it answers, and refuses the credentials ({status})"));
        assert!(text(&found, "advice").contains("services.desk.auth"), "{found}");
    }
    let config = fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    place.write("config.yaml", &config.replace(&place.service.url, "http://127.0.0.1:1"));
    let found = found(&place);
    assert!(text(&found, "what").starts_with("Service unreachable: desk"), "{found}");
    assert!(text(&found, "advice").starts_with("start it"), "{found}");
}

#[test]
fn what_is_wrong_is_told_once_and_with_what_helps() {
    let place = GatewayFixture::new();
    place.write("config.yaml", "gateway: {port: 1\nagent");
    let (code, told) = doctor(&place);
    assert_eq!((code, &told["findings"]), (Some(1), &json!(1)), "{told:#}");
    assert_eq!(check(&told, "data")["state"], json!("note"));
    for (config, helps) in [
        ("gateway: { host: 0.0.0.0, port: 0 }\n", "set one of them, or listen on 127.0.0.1"),
        ("gateway: { host: 0.0.0.0, port: 0 }\nagent: { token: \"${SOME}\" }\n", "give gateway.tls a certificate"),
    ] {
        place.write("config.yaml", config);
        let mut command = place.command();
        command.args(["doctor", "--config", "config.yaml", "--json"]).env("SOME", "tok-some");
        let told = run_command(command).json();
        let all = told["checks"].as_array().unwrap();
        let advice = all.iter().filter_map(|check| check["advice"].as_str());
        assert!(advice.clone().any(|advice| advice.contains(helps)), "{told:#}");
    }
    place.write("config.yaml", "gateway: { port: 0 }\n");
    fs::write(place.folder.join("file"), "x").unwrap();
    let told = place.run(&["doctor", "--config", "config.yaml", "--data", "file", "--json"]).json();
    assert_eq!(told["findings"], json!(1), "a door that nobody needs is no trouble: {told:#}");
    assert!(check(&told, "data")["what"].as_str().unwrap().contains("is no folder"));
}
