//! The bridge in front of an adapter that the tests speak for.

mod answering;
mod following;
mod refusals;
mod sessions;
mod working;

use axum::{
    body::{Body, BodyDataStream},
    http::Request,
    response::Response,
};
use bytes::Bytes;
use countersign_protocol::{
    gjc::bridge::{EnabledEndpoints, read_scopes},
    lines::DecodedLine,
};
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;

const SESSION: &str = "0190a5b2-0000-7000-8000-000000000001";
const TOKEN: &str = "the token";

/// The bridge in front of an adapter that the test speaks for.
struct BridgeFixture {
    state: Arc<BridgeState>,
    lines: mpsc::Receiver<ClientInput>,
    frames: mpsc::Sender<Bytes>,
    session: watch::Sender<String>,
}

impl BridgeFixture {
    fn new(endpoints: &str, allowed: &str) -> Self {
        let setup = BridgeSetup {
            token: SecretString::from(TOKEN.to_owned()),
            address: ([127, 0, 0, 1], 4077).into(),
            tls: None,
            scopes: read_scopes(allowed).unwrap(),
            endpoints: EnabledEndpoints::from_names(endpoints).unwrap(),
        };
        let state = Arc::new(BridgeState {
            hosts: AllowedHosts::new(setup.address.ip(), []),
            setup,
            is_tls: false,
            address: "http://127.0.0.1:4077".to_owned(),
            conversations: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            session_slots: Arc::new(Semaphore::new(SESSIONS)),
            open_adapter: Box::new(|_, _| Box::pin(async { Err(StartError::new("no door is here")) })),
            end: CancellationToken::new(),
            adapters: TaskTracker::new(),
        });
        let (lines, frames, session) = join_session(&state, SESSION);
        Self { state, lines, frames, session }
    }

    fn open() -> Self {
        Self::new("all", "control,session,message:read,host_tools,host_uri,bash")
    }

    async fn send(&self, request: Request<Body>) -> Response {
        routes::answer_request(axum::extract::State(Arc::clone(&self.state)), request).await
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let response = self.send(request(method, path, headers, body)).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Sends a request with the token to a route of the session.
    async fn post(&self, route: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let headers: Vec<_> = [("authorization", "bearer the token")].iter().chain(headers).copied().collect();
        self.ask("POST", &format!("/v1/sessions/{SESSION}/{route}"), &headers, &body.to_string()).await
    }

    async fn claim(&self) -> String {
        let (status, reply) = self.post("control:claim", &[], &json!({})).await;
        assert_eq!((status, &reply["status"]), (200, &json!("claimed")));
        reply["ownerToken"].as_str().unwrap().to_owned()
    }

    /// Sends a frame of the adapter, and waits until the bridge has read it.
    async fn says(&self, frame: Value) {
        let before = self.state.all_conversations()[0].window.last_number();
        let is_published = frame["method"] != "cancel";
        self.frames.send(Bytes::from(format!("{frame}\n"))).await.unwrap();
        if is_published {
            self.state.all_conversations()[0].window.wait_for_frame(before).await;
        } else {
            // Another frame after it proves that it was read.
            self.frames.send(Bytes::from("{\"type\":\"extension_error\"}\n")).await.unwrap();
            self.state.all_conversations()[0].window.wait_for_frame(before).await;
        }
    }

    /// Returns the next line that the adapter received.
    async fn next_line(&mut self) -> Value {
        match self.lines.recv().await.unwrap() {
            ClientInput::Line(DecodedLine::Text(line)) => serde_json::from_str(&line).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn has_no_line(&mut self) -> bool {
        self.lines.try_recv().is_err()
    }

    /// Opens a stream of events.
    async fn follow(&self, query: &str, headers: &[(&str, &str)]) -> EventStreamReader {
        let path = format!("/v1/sessions/{SESSION}/events{query}");
        let headers: Vec<_> = [KNOWN].iter().chain(headers).copied().collect();
        let response = self.send(request("GET", &path, &headers, "")).await;
        assert_eq!(response.status(), 200);
        EventStreamReader(response.into_body().into_data_stream())
    }

    /// Returns the events that a client gets at once.
    async fn events(&self, query: &str) -> Vec<Value> {
        self.follow(query, &[]).await.hears()
    }
}

/// A stream of events that is open.
struct EventStreamReader(BodyDataStream);

impl EventStreamReader {
    /// Returns the frames that it has at once.
    fn hears(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(Some(frame)) = self.0.next().now_or_never() {
            let frame = String::from_utf8(frame.unwrap().to_vec()).unwrap();
            let data = frame.strip_prefix("data: ").and_then(|frame| frame.strip_suffix("\n\n")).unwrap();
            events.push(serde_json::from_str(data).unwrap());
        }
        events
    }
}

type AdapterEnds = (mpsc::Receiver<ClientInput>, mpsc::Sender<Bytes>, watch::Sender<String>);

/// Adds another session to the bridge.
fn join_session(state: &Arc<BridgeState>, session: &str) -> AdapterEnds {
    let (lines, input) = mpsc::channel(16);
    let (output, frames) = mpsc::channel(16);
    let (current, watched) = watch::channel(session.to_owned());
    let conversation = BridgeConversation::new(lines, watched);
    state.add_conversation(Arc::clone(&conversation));
    tokio::spawn(async move { conversation.read_frames(frames).await });
    (input, output, current)
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:4077");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

const KNOWN: (&str, &str) = ("authorization", "Bearer the token");

#[tokio::test]
async fn a_session_that_ended_is_let_go_of_and_one_that_is_taken_up_again_is_found() {
    let stage = BridgeFixture::open();
    let mut kept = join_session(&stage.state, "again");
    for _ in 0..100 {
        let ended = stage.state.find_conversation("again").unwrap();
        drop(kept);
        ended.window.wait_until_over().await;
        kept = join_session(&stage.state, "again");
        assert!(!stage.state.find_conversation("again").unwrap().window.is_over());
    }
    assert_eq!(stage.state.all_conversations().len(), 2);
    // One that comes while another is waited for is waited for as well.
    let BridgeFixture { state, frames, .. } = stage;
    let mut over = std::pin::pin!(state.all_ended());
    assert!(futures_util::poll!(&mut over).is_pending());
    let later = join_session(&state, "later");
    let (first, again) = (state.find_conversation(SESSION).unwrap(), state.find_conversation("again").unwrap());
    drop((frames, kept));
    first.window.wait_until_over().await;
    again.window.wait_until_over().await;
    assert!(futures_util::poll!(&mut over).is_pending());
    drop(later);
    over.await;
}
