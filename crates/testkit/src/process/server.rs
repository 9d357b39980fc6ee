//! A server on a loopback port whose replies a function of the test makes, and that keeps its requests.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use serde_json::Value;

use crate::process::WAIT_TIMEOUT;

/// Request to the server.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// Path with its query.
    pub path: String,
    head: String,
    /// Text of the body.
    pub text: String,
    /// JSON of the body, null if it is none.
    pub body: Value,
}

impl ServerRequest {
    /// Returns the value of a header, empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim()).unwrap_or_default()
    }
}

type RespondFn = dyn Fn(&ServerRequest) -> (u16, String) + Send + Sync;

/// Server. Its threads end with the process.
#[derive(Clone)]
pub struct FakeServer {
    /// URL without a path.
    pub url: String,
    answer: Arc<RespondFn>,
    requests: Arc<(Mutex<Vec<ServerRequest>>, Condvar)>,
}

impl FakeServer {
    /// Starts it. `answer` makes the status and the JSON of each reply.
    pub fn start(answer: impl Fn(&ServerRequest) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let outside = Self { url, answer: Arc::new(answer), requests: Arc::default() };
        let server = outside.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                // A client that goes is no failure here.
                thread::spawn(move || drop(server.handle_connection(stream)));
            }
        });
        outside
    }

    fn handle_connection(&self, stream: TcpStream) -> std::io::Result<()> {
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
            let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
            let text = String::from_utf8_lossy(&body).into_owned();
            let body = serde_json::from_str(&text).unwrap_or(Value::Null);
            let request = ServerRequest { path, head, text, body };
            self.requests.0.lock().unwrap().push(request.clone());
            self.requests.1.notify_all();
            let (status, reply) = (self.answer)(&request);
            let length = reply.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{reply}"
            )?;
        }
    }

    /// Returns the request with this number, from 0, among those that fit, as soon as it is there.
    pub fn wait_request(&self, number: usize, fits: impl Fn(&ServerRequest) -> bool) -> ServerRequest {
        let requests = self.requests.0.lock().unwrap();
        let missing =
            |requests: &mut Vec<ServerRequest>| requests.iter().filter(|request| fits(request)).nth(number).is_none();
        let (requests, late) = self.requests.1.wait_timeout_while(requests, WAIT_TIMEOUT, missing).unwrap();
        assert!(!late.timed_out(), "request {number} did not come: {requests:#?}");
        requests.iter().filter(|request| fits(request)).nth(number).unwrap().clone()
    }

    /// Returns the number of requests that fit.
    pub fn request_count(&self, fits: impl Fn(&ServerRequest) -> bool) -> usize {
        self.requests.0.lock().unwrap().iter().filter(|request| fits(request)).count()
    }
}
