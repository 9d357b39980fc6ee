//! Running gateway: its process, its address, and its log.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::process::{GatewayFixture, WAIT_TIMEOUT, http::HttpClient};

type StderrLog = Arc<(Mutex<String>, Condvar)>;

/// Running gateway. Its process ends with this value.
pub struct GatewayServer {
    child: Child,
    /// Address of its port, such as `127.0.0.1:4711`.
    pub address: String,
    stderr_log: StderrLog,
    reader: Option<JoinHandle<()>>,
}

/// End of the process of a gateway.
#[derive(Debug)]
pub struct GatewayExit {
    /// Exit code. Absent if a signal ended it.
    pub code: Option<i32>,
    /// Time between the request to end and the end.
    pub took: Duration,
}

impl GatewayServer {
    /// Starts a gateway in the folder of `fixture` and waits until it is ready.
    pub fn start(fixture: &GatewayFixture) -> Self {
        Self::start_with(fixture, &[])
    }

    /// Starts it with more flags of `serve`.
    pub fn start_with(fixture: &GatewayFixture, flags: &[&str]) -> Self {
        let mut command = fixture.binary_command();
        command.args(["serve", "--config", "config.yaml"]).args(flags);
        Self::spawn(command)
    }

    /// Starts the gateway of a command line and waits until it is ready.
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let stderr_log = StderrLog::default();
        let shared = Arc::clone(&stderr_log);
        let reader = thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|count| count > 0) {
                shared.0.lock().unwrap().push_str(&std::mem::take(&mut line));
                shared.1.notify_all();
            }
        });
        let mut stdout_text = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut stdout_text).unwrap();
        let address = stdout_text.trim().strip_prefix("countersign ready on http://").map(str::to_owned);
        let Some(address) = address else {
            let _ = out.read_to_string(&mut stdout_text);
            reader.join().unwrap();
            panic!("the gateway did not start: {stdout_text} {}", stderr_log.0.lock().unwrap());
        };
        Self { child, address, stderr_log, reader: Some(reader) }
    }

    /// Returns the URL for WebSockets.
    pub fn websocket_url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Returns a client of its port without credentials.
    pub fn http_client(&self) -> HttpClient {
        HttpClient::new(&self.address)
    }

    /// Returns the id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a plain request. Returns the status and the JSON of the reply.
    pub fn get_json(&self, path: &str) -> (u16, serde_json::Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Waits until it has written `text` to stderr.
    pub fn wait_for_log(&self, text: &str) {
        let log = self.stderr_log.0.lock().unwrap();
        let (log, over) = self.stderr_log.1.wait_timeout_while(log, WAIT_TIMEOUT, |log| !log.contains(text)).unwrap();
        assert!(!over.timed_out(), "the log does not contain {text:?}: {log}");
    }

    /// Returns the text on stderr so far.
    pub fn log_text(&self) -> String {
        self.stderr_log.0.lock().unwrap().clone()
    }

    /// Sends a signal to its process.
    pub fn send_signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it and waits until it has ended.
    pub fn stop(&mut self) -> GatewayExit {
        let begun = Instant::now();
        self.send_signal(Signal::SIGTERM);
        let code = self.child.wait().unwrap().code();
        let took = begun.elapsed();
        self.reader.take().unwrap().join().unwrap();
        GatewayExit { code, took }
    }
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
