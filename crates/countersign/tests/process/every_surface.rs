//! One approval on every surface at once: the host's dialog, the phone's stream, the console, a messenger, the command line.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use countersign_testkit::process::{AttachFixture, WAIT_TIMEOUT, http::HttpClient, session_id};
use serde_json::{Value, json};

/// Called methods, with their parameters.
type MethodCalls = (Mutex<Vec<(String, Value)>>, Condvar);

/// A Bot API on a loopback port that keeps the requests.
#[derive(Clone)]
struct MessengerStub {
    address: String,
    calls: Arc<MethodCalls>,
}

impl MessengerStub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let messenger = Self { address: listener.local_addr().unwrap().to_string(), calls: Arc::default() };
        let server = messenger.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                // A client that goes is no failure here.
                thread::spawn(move || drop(server.serve(stream)));
            }
        });
        messenger
    }

    fn config(&self) -> String {
        format!(
            "messenger:\n  type: telegram\n  telegram: {{ token: \"1:test\", chat_id: -5, allowed_users: [7], api_url: \"http://{}\" }}\n",
            self.address
        )
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body)?;
            let path = head.split_whitespace().nth(1).unwrap_or_default();
            let method = path.rsplit('/').next().unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let result = match method.as_str() {
                "getMe" => json!({ "id": 1, "is_bot": true, "first_name": "Bot", "username": "bot" }),
                // No button is tapped. The request is held as the real API does.
                "getUpdates" => {
                    let calls = self.calls.0.lock().unwrap();
                    drop(self.calls.1.wait_timeout_while(calls, WAIT_TIMEOUT, |_| true).unwrap());
                    json!([])
                }
                "sendMessage" | "editMessageText" => {
                    json!({ "message_id": 11, "chat": { "id": -5 }, "date": 1, "text": "" })
                }
                _ => json!(true),
            };
            self.calls.0.lock().unwrap().push((method, body));
            self.calls.1.notify_all();
            let reply = json!({ "ok": true, "result": result }).to_string();
            let length = reply.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{reply}"
            )?;
        }
    }

    /// Returns the text of the first message of a kind that holds `words`, once it is there.
    fn message(&self, method: &str, words: &str) -> String {
        let text = |(kind, body): &(String, Value)| {
            let text = body["text"].as_str()?;
            (kind == method && text.contains(words)).then(|| text.to_owned())
        };
        let calls = self.calls.0.lock().unwrap();
        let missing = |calls: &mut Vec<(String, Value)>| calls.iter().find_map(text).is_none();
        let (calls, late) = self.calls.1.wait_timeout_while(calls, WAIT_TIMEOUT, missing).unwrap();
        assert!(!late.timed_out(), "no {method} with {words:?} in {calls:#?}");
        calls.iter().find_map(text).unwrap()
    }
}

#[test]
fn one_approval_is_on_every_surface_and_answered_once() {
    let messenger = MessengerStub::start();
    let attached = AttachFixture::with_config(&messenger.config());
    let gateway = attached.start_gateway();
    let mut host = attached.start_host(&[]);
    let id = session_id(&mut host);
    let phone = HttpClient::new(&gateway.address);
    let stream = phone.open_stream(&format!("/api/approval/stream?session_id={id}"));
    stream.wait_named("initial");
    let (from, dialog) = attached.ask_about(&mut host, "touch ran");

    let gates = attached.gateway.pending_gates();
    let gate = gates[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(gates.len(), 1, "{gates:?}");
    let card = stream.wait_named("approval").data;
    assert_eq!((&card["pending"]["approval_id"], &card["pending_count"]), (&json!(gate), &json!(1)), "{card}");
    assert!(card["pending"]["command"].as_str().unwrap().contains("touch ran"), "{card}");
    let page = phone.get("/console/").body;
    assert!(page.contains(&gate) && page.contains("touch ran"), "{page}");
    messenger.message("sendMessage", "touch ran");

    let answer = json!({ "session_id": id, "approval_id": gate, "choice": "once" });
    let answered = phone.post("/api/approval/respond", &answer).json();
    assert_eq!((&answered["ok"], answered.get("stale_cleared")), (&json!(true), None), "{answered}");
    let frames = host.wait_settled(from);
    let taken_away = frames.iter().find(|frame| frame["method"] == "cancel").expect("the dialog is taken away");
    assert_eq!(taken_away["targetId"], dialog["id"]);
    assert!(attached.host.read_file("ran").is_some());
    stream.wait_event("the end of the card", |event| event.name == "approval" && event.data["pending_count"] == 0);
    messenger.message("editMessageText", "Approved by web:open");
    assert_eq!(attached.gateway.pending_gates(), Vec::<Value>::new());
    assert!(!phone.get("/console/").body.contains(&gate), "nothing waits any more");
    let late = json!({ "session_id": id, "approval_id": gate, "choice": "deny" });
    assert_eq!(phone.post("/api/approval/respond", &late).json()["stale_cleared"], true);
    host.close_cleanly();
}
