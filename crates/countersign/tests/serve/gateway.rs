//! A gateway that runs: its process, its address, and what it said.

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

use crate::place::Place;

/// How long something that must come is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

type Notices = Arc<(Mutex<String>, Condvar)>;

pub(crate) struct Gateway {
    child: Child,
    /// Such as `127.0.0.1:4711`.
    pub(crate) address: String,
    notices: Notices,
    reader: Option<JoinHandle<()>>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) took: Duration,
}

impl Gateway {
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place, &[])
    }

    pub(crate) fn start_with(place: &Place, flags: &[&str]) -> Self {
        let mut command = place.command();
        command.args(["serve", "--config", "config.yaml"]).args(flags);
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let notices = Notices::default();
        let heard = Arc::clone(&notices);
        let reader = thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|count| count > 0) {
                heard.0.lock().unwrap().push_str(&std::mem::take(&mut line));
                heard.1.notify_all();
            }
        });
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("countersign ready on http://").map(str::to_owned);
        let Some(address) = address else {
            let _ = out.read_to_string(&mut said);
            reader.join().unwrap();
            panic!("it did not start: {said} {}", notices.0.lock().unwrap());
        };
        Self { child, address, notices, reader: Some(reader) }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    #[allow(dead_code, reason = "not every crate of tests that has gateways looks at their processes")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The status and the JSON of a plain request.
    pub(crate) fn get(&self, path: &str) -> (u16, serde_json::Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Waits until it has said this on stderr.
    pub(crate) fn says(&self, text: &str) {
        let said = self.notices.0.lock().unwrap();
        let (said, over) = self.notices.1.wait_timeout_while(said, PATIENCE, |said| !said.contains(text)).unwrap();
        assert!(!over.timed_out(), "it did not say {text:?}, but: {said}");
    }

    /// All that it has said on stderr so far.
    pub(crate) fn said(&self) -> String {
        self.notices.0.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn stop(&mut self) -> End {
        let begun = Instant::now();
        self.signal(Signal::SIGTERM);
        let code = self.child.wait().unwrap().code();
        let took = begun.elapsed();
        self.reader.take().unwrap().join().unwrap();
        End { code, took }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `look` gives, once it gives something.
pub(crate) fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::park_timeout(Duration::from_millis(5));
    }
}
