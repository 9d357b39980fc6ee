//! Service on a loopback port that counts its requests. The test sets its behavior for each path.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::process::{Latch, WAIT_TIMEOUT};

/// Behavior of the service for a request.
#[derive(Clone)]
pub enum ServiceBehavior {
    /// Status, content type and body.
    Answer(u16, &'static str, String),
    /// The whole request is read, and the connection closed.
    BreakOff,
    /// Nothing until the client goes.
    Hang,
    /// Nothing until the latch is open.
    Late(Latch),
    /// Claims a longer body than it sends.
    Lie,
}

/// Request to the service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRequest {
    /// Method of HTTP.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// Header `authorization`, empty if there was none.
    pub authorization: String,
    /// JSON of the body, null if there was none.
    pub body: Value,
}

#[derive(Default)]
struct ServiceState {
    requests: Vec<ServiceRequest>,
    behaviors: HashMap<String, ServiceBehavior>,
}

type SharedState = Arc<(Mutex<ServiceState>, Condvar)>;

/// Service. Its threads end with the process.
pub struct FakeService {
    /// URL without a path.
    pub url: String,
    state: SharedState,
}

impl FakeService {
    /// Starts it on a port of its own.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = SharedState::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || handle_connection(&stream, &shared));
            }
        });
        Self { url, state }
    }

    /// Sets its behavior for a path from now on.
    pub fn set_behavior(&self, path: &str, behavior: ServiceBehavior) {
        self.state.0.lock().unwrap().behaviors.insert(path.to_owned(), behavior);
    }

    /// Returns all requests so far.
    pub fn received_requests(&self) -> Vec<ServiceRequest> {
        self.state.0.lock().unwrap().requests.clone()
    }

    /// Returns the number of requests for a path.
    pub fn request_count(&self, path: &str) -> usize {
        count_requests(&self.state.0.lock().unwrap(), path)
    }

    /// Waits until a path was requested so often.
    pub fn wait_requests(&self, path: &str, times: usize) {
        let state = self.state.0.lock().unwrap();
        let (state, over) =
            self.state.1.wait_timeout_while(state, WAIT_TIMEOUT, |state| count_requests(state, path) < times).unwrap();
        assert!(!over.timed_out(), "{path} was asked for {} times", count_requests(&state, path));
    }
}

fn count_requests(state: &ServiceState, path: &str) -> usize {
    state.requests.iter().filter(|request| request.path == path).count()
}

fn handle_connection(stream: &TcpStream, shared: &SharedState) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        let behavior = {
            let mut state = shared.0.lock().unwrap();
            let behavior = state.behaviors.get(&request.path).cloned();
            state.requests.push(request.clone());
            shared.1.notify_all();
            behavior
        };
        let done = || json!({ "did": request.path }).to_string();
        let (status, form, body, more) = match behavior {
            None => (200, "application/json", done(), 0),
            Some(ServiceBehavior::Answer(status, form, body)) => (status, form, body, 0),
            Some(ServiceBehavior::Lie) => (200, "application/json", done(), 100),
            Some(ServiceBehavior::Late(latch)) => {
                latch.wait_open();
                (200, "application/json", done(), 0)
            }
            Some(ServiceBehavior::Hang) => {
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
            Some(ServiceBehavior::BreakOff) => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        };
        let length = body.len() + more;
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {form}\r\ncontent-length: {length}\r\n\r\n");
        let mut writer = stream;
        if writer.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).is_err() || more > 0 {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<ServiceRequest> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => value.clone_into(&mut authorization),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(ServiceRequest { method, path, authorization, body: serde_json::from_slice(&body).unwrap_or_default() })
}
