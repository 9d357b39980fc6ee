//! The most detailed log of the program: it has everything, but no credential.

use std::net::TcpStream;

use countersign_testkit::process::{
    AGENT_TOKEN, FakeProvider, GatewayFixture, GatewayServer, KITCHEN_TOKEN, SERVICE_TOKEN, WAIT_TIMEOUT,
    agent_gate::{AgentClient, executed_result},
    hermes::RULES as TALK,
    http::HttpClient,
    provider::text_reply,
};
use serde_json::json;
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};

const PASSWORD: &str = "pass-word-31c8";
const USERS: &str = "pass-ana-77d2";
const CLIENTS: &str = "tok-clients-4e90";
const KEY: &str = "key-provider-0b1f";
const HEADER: &str = "header-provider-9c2e";
const BOT: &str = "31415:bot-token-62aa";

#[test]
fn no_credential_stands_in_the_log_at_its_most_detailed() {
    let provider = FakeProvider::start();
    let more = format!(
        "log: {{ level: trace }}
web: {{ password: {PASSWORD}, users: {{ ana: {USERS} }} }}
clients: {{ token: {CLIENTS} }}
messenger: {{ type: telegram, telegram: {{ token: '{BOT}', chat_id: 1, allowed_users: [1], api_url: 'http://127.0.0.1:1' }} }}
model: {{ provider: local, id: small }}
providers:
  local:
    api: openai-completions
    base_url: {}/v1
    api_key: {KEY}
    headers: {{ x-more: {HEADER} }}
    models: [ {{ id: small, context_window: 100000, max_tokens: 4096 }} ]
",
        provider.url
    );
    let place = GatewayFixture::with_config_and_rules(&more, TALK);
    let token = place.run_as_person(&["tokens", "add", "robot", "--scope", "read,chat", "--json"]).json();
    let token = token["token"].as_str().unwrap().to_owned();
    let mut gateway = GatewayServer::start(&place);

    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    assert!(AgentClient::connect(&gateway).authenticate("tok-wrong-1111").get("error").is_some());
    assert!(
        place.service.received_requests().iter().any(|request| request.authorization.contains(SERVICE_TOKEN)),
        "it was used"
    );

    let http = HttpClient::new(&gateway.address);
    let login = http.post("/api/auth/login", &json!({ "password": PASSWORD }));
    assert_eq!(login.status, 200, "{login:?}");
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(http.post("/api/auth/login", &json!({ "password": "pass-wrong-2222" })).status, 401);
    let known = http.clone().with_header("cookie", &cookie);
    provider.script_replies([text_reply("hello")]);
    let session = known.create_session();
    let stream = known.start_chat(&session, "how are you");
    known.stream_chat(&stream).wait_end();
    assert_eq!(
        http.clone().with_header("authorization", &format!("Bearer {token}")).get("/api/v1/sessions").status,
        200
    );

    let line = TcpStream::connect(&gateway.address).unwrap();
    line.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let request = format!("{}/ws", gateway.websocket_url()).into_client_request().unwrap();
    let (mut socket, _) = tungstenite::client(request, line).unwrap();
    let connect = json!({ "type": "req", "id": "c1", "method": "connect", "params": {
        "minProtocol": 1, "maxProtocol": 1, "auth": { "token": CLIENTS },
        "client": { "id": "test", "version": "1", "platform": "linux", "mode": "client" } } });
    socket.send(Message::text(connect.to_string())).unwrap();
    let Message::Text(answer) = socket.read().unwrap() else { panic!("no answer") };
    assert!(answer.contains("\"ok\":true"), "{answer}");

    assert_eq!(place.run_as_person(&["gates", "list", "--json"]).code, Some(0));
    gateway.wait_for_log("answered");
    gateway.stop();
    let log = gateway.log_text();
    assert!(log.contains("DEBUG"), "it was at its most detailed");
    let cookie = cookie.split_once('=').unwrap().1.to_owned();
    let secrets =
        [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN, PASSWORD, USERS, CLIENTS, KEY, HEADER, BOT, &token, &cookie];
    for secret in secrets.into_iter().chain(["tok-wrong-1111", "pass-wrong-2222"]) {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} was logged");
    }
}
