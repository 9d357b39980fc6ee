//! The pipe between an MCP host and the gateway. It outlives the gateway: a connection that is lost is opened again, and the requests
//! without a reply are repeated on it. The gateway takes the same call, repeated, as the same call.

use std::{
    io::{self, BufRead, ErrorKind, Read as _, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::open_requests::HostRequests;

/// Longest line that is repeated, in bytes. The gateway refuses longer ones.
const LONGEST: u64 = 8 << 20;
/// Time without a gateway after which requests are refused.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before the first attempt to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Connection to the gateway.
pub(super) struct GatewayConnection<R, W> {
    pub(super) reading: R,
    pub(super) writing: W,
}

/// Reason why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectProblem {
    /// No gateway runs.
    Absent(String),
    /// The gateway refuses this host.
    Refused(String),
}

impl ConnectProblem {
    /// Returns its text for the user.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Absent(problem) | Self::Refused(problem) => problem,
        }
    }
}

/// Way to the gateway.
pub(super) trait GatewayConnector {
    type Reading: BufRead;
    type Writing: Write + Send;

    /// Connects to the gateway.
    fn connect(&mut self) -> Result<GatewayConnection<Self::Reading, Self::Writing>, ConnectProblem>;

    /// Waits before the next attempt.
    fn pause(&mut self, pause: Duration);
}

/// Host side of the pipe.
struct HostSide<W> {
    /// Connection to which the host's lines go. Taken before `requests`.
    gateway: Mutex<Option<W>>,
    requests: Mutex<RequestState>,
}

#[derive(Default)]
struct RequestState {
    requests: HostRequests,
    /// The host has closed its side.
    is_gone: bool,
    /// The reason why requests are refused at once.
    refusal: Option<String>,
}

/// Copies between the host and the gateway until the host goes, or the gateway refuses it.
///
/// # Errors
/// The refusal of the gateway.
pub(super) fn run<C: GatewayConnector>(
    mut connector: C,
    first: GatewayConnection<C::Reading, C::Writing>,
    host: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    after_host: impl FnOnce(Option<C::Writing>) + Send + 'static,
) -> Result<(), String>
where
    C::Writing: 'static,
{
    let side =
        Arc::new(HostSide { gateway: Mutex::new(Some(first.writing)), requests: Mutex::new(RequestState::default()) });
    let output = Arc::new(Mutex::new(output));
    let (reading_side, reading_output) = (Arc::clone(&side), Arc::clone(&output));
    std::thread::spawn(move || {
        reading_side.read_host(host, &reading_output);
        let gateway = reading_side.gateway.lock().take();
        after_host(gateway);
    });
    let mut reading = first.reading;
    loop {
        side.copy_replies(&mut reading, &output);
        drop(side.gateway.lock().take());
        match side.connect_again(&mut connector, &output)? {
            Some(again) => reading = again,
            None => return Ok(()),
        }
    }
}

impl<W: Write + Send + 'static> HostSide<W> {
    /// Passes the host's lines on until its end.
    fn read_host(&self, mut host: impl BufRead, output: &Mutex<impl Write>) {
        let mut line = Vec::new();
        // A line that is too long passes in pieces, and is not repeated.
        let mut is_piece = false;
        loop {
            line.clear();
            match (&mut host).take(LONGEST).read_until(b'\n', &mut line) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(length) if length > 0 => {}
                _ => break,
            }
            let is_whole = line.ends_with(b"\n");
            let mut gateway = self.gateway.lock();
            if is_whole && !is_piece {
                let mut state = self.requests.lock();
                let is_request = state.requests.note_sent(&line);
                if is_request && let Some(problem) = state.refusal.clone() {
                    let refused = state.requests.refuse_all(&problem);
                    drop((state, gateway));
                    reply_all(output, &refused);
                    continue;
                }
            }
            is_piece = !is_whole;
            if let Some(writing) = gateway.as_mut()
                && writing.write_all(&line).and_then(|()| writing.flush()).is_err()
            {
                // The reading side notices, too, and connects again.
                *gateway = None;
            }
        }
        self.requests.lock().is_gone = true;
    }

    /// Passes the gateway's lines on until the connection ends.
    fn copy_replies(&self, reading: &mut impl BufRead, output: &Mutex<impl Write>) {
        while let Some(line) = read_line(reading) {
            self.requests.lock().requests.note_received(&line);
            if write_line(output, &line).is_err() {
                self.requests.lock().is_gone = true;
                return;
            }
        }
    }

    /// Connects again. `None` if the host has gone.
    fn connect_again<C: GatewayConnector<Writing = W>>(
        self: &Arc<Self>,
        connector: &mut C,
        output: &Mutex<impl Write>,
    ) -> Result<Option<C::Reading>, String> {
        let (lost_at, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut waited = Duration::ZERO;
        loop {
            if self.requests.lock().is_gone {
                return Ok(None);
            }
            match connector.connect().map(|connection| self.resume(connection, output)) {
                Ok(Some(reading)) => return Ok(Some(reading)),
                // It ended at once.
                Ok(None) => {}
                Err(ConnectProblem::Refused(problem)) => {
                    self.refuse_open(&problem, output);
                    return Err(problem);
                }
                Err(ConnectProblem::Absent(problem)) => {
                    if waited.max(lost_at.elapsed()) >= PATIENCE {
                        let text =
                            format!("{problem}. Pending calls stay pending there: repeat them when it runs again");
                        self.refuse_open(&text, output);
                    }
                }
            }
            connector.pause(pause);
            waited += pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Refuses the open requests, and further ones until there is a connection.
    fn refuse_open(&self, problem: &str, output: &Mutex<impl Write>) {
        let refused = {
            let mut state = self.requests.lock();
            state.refusal = Some(problem.to_owned());
            state.requests.refuse_all(problem)
        };
        reply_all(output, &refused);
    }

    /// Repeats on a new connection what the gateway must know. `None` if that ended meanwhile.
    fn resume<R: BufRead>(
        self: &Arc<Self>,
        connection: GatewayConnection<R, W>,
        output: &Mutex<impl Write>,
    ) -> Option<R> {
        let GatewayConnection { mut reading, mut writing } = connection;
        let initialize = self.requests.lock().requests.answered_initialize().map(<[u8]>::to_vec);
        if let Some(initialize) = &initialize {
            writing.write_all(initialize).and_then(|()| writing.flush()).ok()?;
            // The host has had this reply.
            while !self.requests.lock().requests.is_initialize_reply(&read_line(&mut reading)?) {}
            if let Some(initialized) = self.requests.lock().requests.initialized() {
                writing.write_all(initialized).ok()?;
            }
            // It may have other tools now.
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            write_line(output, changed.to_string().as_bytes()).ok()?;
        }
        let side = Arc::clone(self);
        // The gateway may stop reading until its replies are read, so this thread reads them meanwhile.
        std::thread::spawn(move || side.repeat_open(writing));
        Some(reading)
    }

    /// Repeats the open requests. Lines that come meanwhile wait.
    fn repeat_open(&self, mut writing: W) {
        let mut gateway = self.gateway.lock();
        let lines: Vec<Vec<u8>> = {
            let mut state = self.requests.lock();
            state.refusal = None;
            state.requests.open_lines().map(<[u8]>::to_vec).collect()
        };
        let written = lines.iter().try_for_each(|line| writing.write_all(line)).and_then(|()| writing.flush());
        // If that failed, the reading side connects again.
        *gateway = written.is_ok().then_some(writing);
    }
}

/// Reads one whole line; none at the end of the connection.
fn read_line(reading: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        match reading.read_until(b'\n', &mut line) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The beginning of a line whose end is lost is no message.
            Ok(_) if line.ends_with(b"\n") => return Some(line),
            _ => return None,
        }
    }
}

/// Writes replies to the host. One that has gone is noticed at its input.
fn reply_all(output: &Mutex<impl Write>, replies: &[Value]) {
    for reply in replies {
        let _ = write_line(output, reply.to_string().as_bytes());
    }
}

/// Writes a line to the host.
fn write_line(output: &Mutex<impl Write>, line: &[u8]) -> io::Result<()> {
    let mut output = output.lock();
    output.write_all(line)?;
    if !line.ends_with(b"\n") {
        output.write_all(b"\n")?;
    }
    output.flush()
}

#[cfg(test)]
mod tests;
