//! Realms of one port: no credential, page or command of one is of any use at another.

use std::{fs, path::PathBuf};

use countersign_http::web::access::{RouteAccess, TABLE};
use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer,
    agent_gate::AgentClient,
    eventually,
    gsv::{self, GsvPeer},
    http::HttpClient,
    run_command,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{ResponseHead, request_head};

/// Scopes of a program that may do all that a program may.
const ALL: &str = "read,answer,chat,admin,metrics,call";

/// Rules that ask about everything.
const ASK: &str = "defaults:\n  - { pattern: '*', action: ask }\n";

/// Process with the realms `home` and `office`, each with a host name, a login, a client token and an agent of its own.
struct TwoRealms {
    _folder: TempDir,
    file: PathBuf,
    home: GatewayFixture,
    office: GatewayFixture,
    gateway: GatewayServer,
}

/// Ways to a realm: by its host name, and by its path.
const WAYS: [(&str, &str); 2] = [("office.example", ""), ("", "/realms/office")];

impl TwoRealms {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let realm = |name: &str| {
            let secrets = format!("clients: {{ token: client-of-{name} }}\nweb: {{ password: password-of-{name} }}\n");
            let fixture =
                GatewayOptions::for_models().with_rules(ASK).with_config(&secrets).with_parent(folder.path()).create();
            let text = fs::read_to_string(fixture.folder.join("config.yaml")).unwrap();
            let text = text.replace("gateway: { host: 127.0.0.1, port: 0 }\n", "");
            fixture.write_file("config.yaml", &text.replace(AGENT_TOKEN, &format!("agent-of-{name}")));
            fixture
        };
        let (home, office) = (realm("home"), realm("office"));
        let file = folder.path().join("config.yaml");
        let line = |name: &str, fixture: &GatewayFixture| {
            let config = fixture.folder.join("config.yaml");
            format!("  {name}: {{ config: {}, hosts: [{name}.example] }}\n", config.display())
        };
        let realms = line("home", &home) + &line("office", &office);
        fs::write(&file, format!("gateway: {{ port: 0, allowed_hosts: [gateway.example] }}\nrealms:\n{realms}"))
            .unwrap();
        let mut command = home.binary_command();
        command.args(["serve", "--config"]).arg(&file);
        let gateway = GatewayServer::spawn(command);
        Self { _folder: folder, file, home, office, gateway }
    }

    /// Sends a request to the realm `office`.
    fn request(&self, way: (&str, &str), method: &str, path: &str, headers: &[(&str, &str)]) -> ResponseHead {
        let (host, below) = way;
        let host = (!host.is_empty()).then_some(("host", host));
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain(host).collect();
        request_head(&self.gateway.address, method, &format!("{below}{path}"), &headers)
    }

    fn login_cookie(&self, realm: &str) -> String {
        let http = HttpClient::new(&self.gateway.address);
        let password = json!({ "password": format!("password-of-{realm}") });
        let reply = http.post(&format!("/realms/{realm}/api/auth/login"), &password);
        assert_eq!(reply.status, 200, "{reply:?}");
        let cookie = reply.header("set-cookie").unwrap().to_owned();
        // A browser sends it to this realm only.
        assert!(cookie.contains(&format!("Path=/realms/{realm}/")), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }
}

fn program_token(realm: &GatewayFixture) -> String {
    let made = realm.run_as_person(&["tokens", "add", "all", "--scope", ALL, "--json"]).json();
    made["token"].as_str().unwrap().to_owned()
}

fn concrete(path: &str) -> String {
    let filled = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
    filled.collect::<Vec<_>>().join("/")
}

fn is_refused(answered: &ResponseHead) -> bool {
    // Without a front end some paths are not there at all.
    let is_sent_to_login = answered.status == 302 && answered.head.contains("location: /realms/office/login");
    answered.is_refused() || answered.status == 404 || is_sent_to_login
}

#[test]
fn credentials_of_one_realm_open_nothing_of_another() {
    let stage = TwoRealms::start();
    let (own, foreign) = (program_token(&stage.office), program_token(&stage.home));
    let (own_cookie, foreign_cookie) = (stage.login_cookie("office"), stage.login_cookie("home"));
    let bearer = |token: &str| format!("Bearer {token}");
    eventually("both tokens", || {
        let known = [("office", &own), ("home", &foreign)].map(|(realm, token)| {
            let path = format!("/realms/{realm}/api/v1/gates");
            request_head(&stage.gateway.address, "GET", &path, &[("authorization", &bearer(token))]).status
        });
        (known == [200, 200]).then_some(())
    });
    let agents = ["agent-of-home", "client-of-home", "password-of-home"].map(bearer);
    let mut let_in = 0;
    for way in WAYS {
        for (method, path, who, _) in TABLE {
            if *who == RouteAccess::Anybody {
                continue;
            }
            let path = concrete(path);
            let mut strangers = vec![("authorization", bearer(&foreign)), ("cookie", foreign_cookie.clone())];
            strangers.extend(agents.iter().map(|token| ("authorization", token.clone())));
            for (name, value) in &strangers {
                let answered = stage.request(way, method, &path, &[(name, value)]);
                assert!(is_refused(&answered), "{method} {path} {way:?} with {value}: {answered:?}");
            }
            let answered = stage.request(way, method, &path, &[("authorization", &bearer(&own))]);
            let_in += usize::from(!is_refused(&answered));
            let answered = stage.request(way, method, &path, &[("cookie", &own_cookie)]);
            let_in += usize::from(!is_refused(&answered));
        }
    }
    // Else everything would be refused to everybody.
    assert!(let_in > 50, "{let_in}");
    for (host, below) in WAYS {
        let headers: Vec<(&'static str, &str)> = (!host.is_empty()).then_some(("host", host)).into_iter().collect();
        let authenticate = |token: &str| {
            let mut agent = AgentClient::connect_below(&stage.gateway.address, below, &headers).unwrap();
            agent.authenticate(token)
        };
        assert_eq!(authenticate("agent-of-office")["result"]["status"], "authenticated");
        assert!(authenticate("agent-of-home")["error"].is_object());
    }
    for (token, want) in [("client-of-office", true), ("client-of-home", false)] {
        let mut peer = GsvPeer::open_connection_with(&stage.gateway, &[("host", "office.example")]).unwrap();
        let mut params = gsv::connect_params("client", "one");
        params["auth"] = json!({ "token": token });
        let answer = peer.call_method("connect", params);
        assert_eq!(answer["ok"] == true, want, "{token}: {answer}");
    }
}

#[test]
fn a_request_without_a_realm_gets_nothing_and_a_token_names_its_realm() {
    let stage = TwoRealms::start();
    let token = format!("Bearer {}", program_token(&stage.home));
    let address = &stage.gateway.address;
    let get = |path: &str, headers: &[(&str, &str)]| request_head(address, "GET", path, headers);
    for (path, want) in [
        ("/", 421),
        ("/console/", 421),
        ("/api/v1/gates", 421),
        ("/realms/", 421),
        ("/realms/nobody/", 421),
        ("/realms/homes/", 421),
        ("/livez", 200),
        ("/readyz", 200),
        ("/healthz", 200),
        ("/realms/home/livez", 200),
    ] {
        let answered = get(path, &[]);
        assert_eq!(answered.status, want, "{path}: {answered:?}");
    }
    eventually("the token", || (get("/api/v1/gates", &[("authorization", &token)]).status == 200).then_some(()));
    assert_eq!(get("/api/v1/gates", &[("authorization", "Bearer cst_unknown")]).status, 421);
    // A host name decides before a path and before a token.
    let at_office = [("host", "office.example"), ("authorization", token.as_str())];
    assert_eq!(get("/api/v1/gates", &at_office).status, 401);
    assert_eq!(get("/realms/home/api/v1/gates", &at_office).status, 404);
    // A name that was not given is refused by the realm itself, as pages of another site may come with it.
    assert_eq!(get("/realms/home/api/v1/gates", &[("host", "evil.example"), ("authorization", &token)]).status, 403);
    let metrics = HttpClient::new(address).with_header("authorization", &token).get("/metrics");
    assert!(metrics.body.contains("countersign_gates_waiting{kind=\"approval\",realm=\"home\"} 0"), "{metrics:?}");
    assert!(!metrics.body.contains("office") && !metrics.body.contains("\nprocess_"), "{metrics:?}");
}

/// A browser comes by the name of the process, and follows the form of a page.
#[test]
fn a_person_logs_in_below_the_path_of_a_realm_under_the_name_of_the_process() {
    let stage = TwoRealms::start();
    let address = &stage.gateway.address;
    for (name, want) in [("gateway.example", 303), ("evil.example", 403)] {
        let origin = format!("http://{name}");
        let body = "password=password-of-home&next=%2Fconsole%2F";
        let http = HttpClient::new(address).with_header("host", name).with_header("origin", &origin);
        let form = http.with_header("content-type", "application/x-www-form-urlencoded");
        let answered = form.send_request("POST", "/realms/home/login", body);
        assert_eq!(answered.status, want, "{answered:?}");
        if want == 303 {
            assert_eq!(answered.header("location"), Some("/realms/home/console/"));
        }
    }
    let page = HttpClient::new(address).get("/realms/home/login?next=/console/gates/1");
    assert!(page.body.contains("action=\"/realms/home/login\""), "{page:?}");
    assert!(page.body.contains("name=\"next\" value=\"/console/gates/1\""), "what is no link stays: {page:?}");
}

#[test]
fn what_happens_in_one_realm_is_unknown_in_another() {
    let stage = TwoRealms::start();
    let mut agent = AgentClient::connect_below(&stage.gateway.address, "/realms/home", &[]).unwrap();
    agent.authenticate("agent-of-home");
    agent.request_tool("r1", "turn", json!({ "thing": "door", "way": "open" }));
    let gate = stage.home.wait_gate();
    assert_eq!(stage.office.run_as_person(&["gates", "list", "--json"]).json(), json!([]));
    let refused = stage.office.run_as_person(&["gates", "allow", &gate]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let cookie = stage.login_cookie("office");
    let http = HttpClient::new(&stage.gateway.address).with_header("cookie", &cookie);
    let gates = http.get("/realms/office/api/v1/gates");
    assert!(gates.status == 200 && !gates.body.contains("door"), "{gates:?}");
    for path in [format!("/console/gates/{gate}"), format!("/api/v1/gates/{gate}"), "/console/record".to_owned()] {
        let page = http.get(&format!("/realms/office{path}"));
        assert!(!page.body.contains("door"), "{path}: {page:?}");
    }
    assert_eq!(stage.home.run_as_person(&["gates", "allow", &gate]).code, Some(0));
    stage.home.service.wait_requests("/turn/door", 1);
    assert_eq!(stage.office.service.received_requests().len(), 0);
}

/// A command of a run reaches neither the files of another realm nor those of the process.
#[test]
fn commands_of_one_realm_do_not_read_the_files_of_another() {
    let stage = TwoRealms::start();
    let token = format!("Bearer {}", program_token(&stage.home));
    let http = HttpClient::new(&stage.gateway.address).with_header("authorization", &token);
    eventually("the token", || (http.get("/api/v1/gates").status == 200).then_some(()));
    for file in [
        stage.file.clone(),
        stage.office.folder.join("config.yaml"),
        stage.office.folder.join("permissions.yaml"),
        stage.office.folder.join("data/countersign.db"),
        stage.office.folder.join("data/web.key"),
        stage.office.folder.join("data/agents/main/notes.txt"),
        stage.office.folder.join("notes.txt"),
    ] {
        let request = json!({ "tool": "write", "arguments": { "path": file, "content": "x" } });
        let explained = http.post("/api/v1/policy/explain", &request);
        assert_eq!(explained.status, 200, "{explained:?}");
        let explained = explained.json();
        assert_eq!(explained["verdict"], "deny", "{}: {explained}", file.display());
    }
}

#[test]
fn a_command_for_one_gateway_names_the_realms() {
    let stage = TwoRealms::start();
    let (office, listed) = (stage.office.folder.join("config.yaml"), fs::read_to_string(&stage.file).unwrap());
    for words in [
        &["gates", "list"][..],
        &["grants", "list"],
        &["agents", "list"],
        &["agents", "add", "x"],
        &["tokens", "list"],
        &["mcp-servers", "list"],
        &["policy", "check"],
        &["policy", "explain", "turn", "{}"],
        &["sessions", "list"],
        &["audit", "verify"],
        &["secret", "list"],
        &["log-level"],
        &["backup", "backup"],
    ] {
        let mut command = stage.home.binary_command();
        command.args(words).arg("--config").arg(&stage.file);
        let output = run_command(command);
        assert!(output.code != Some(0) && output.err.contains(&office.display().to_string()), "{words:?}: {output:?}");
    }
    assert_eq!(fs::read_to_string(&stage.file).unwrap(), listed);
    let refused = stage.home.run_as_person(&["log-level", "debug"]);
    assert!(refused.code != Some(0) && refused.err.contains("the log is that of all realms"), "{refused:?}");
    let mut command = stage.home.binary_command();
    command.args(["config", "show", "--json", "--config"]).arg(&stage.file);
    let shown: Value = run_command(command).json();
    assert_eq!(shown["realms"]["office"]["hosts"], json!(["office.example"]), "{shown}");
}
