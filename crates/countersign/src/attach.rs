//! A stdio adapter whose session lives in a gateway: this process is a pipe between its host and the gateway.
//!
//! It must not know what the lines say, but for the one that tells of the gateway's end, and for which requests were not
//! answered by then (`pending.rs`).

mod pending;

use std::{
    fmt,
    io::{BufRead as _, BufReader, ErrorKind, Read, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use countersign_adapter_omp::{AttachReply, attach::AttachParams};
use countersign_gateway::control::{FILE, Request};

pub(crate) use pending::UnansweredRequest as Unanswered;
use pending::UnansweredRequests;

use crate::{data_dir::absolute_text, exit::fail_with};

/// Time for the gateway's last frames once the host has gone.
const FAREWELL: Duration = Duration::from_secs(5);
/// Number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Why a session was not taken in.
#[derive(Debug)]
pub(crate) enum AttachError {
    /// No gateway listens there.
    NoGateway(PathBuf),
    /// The gateway refused.
    Refused(String),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGateway(folder) => {
                write!(f, "no gateway runs with the data directory {}", absolute_text(folder))
            }
            Self::Refused(problem) => f.write_str(problem),
        }
    }
}

/// A session that a gateway has taken in.
pub(crate) struct GatewayPipe {
    gateway: PathBuf,
    stream: UnixStream,
    reading: BufReader<UnixStream>,
}

/// Passes a session to the gateway whose data directory is `folder`. Notices for users go to `notice`.
pub(crate) fn open_pipe(
    folder: &Path,
    handover: AttachParams,
    notice: impl Fn(&str),
) -> Result<GatewayPipe, AttachError> {
    let refused = |problem: &dyn std::fmt::Display| AttachError::Refused(format!("{}: {problem}", folder.display()));
    let mut stream = UnixStream::connect(folder.join(FILE)).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AttachError::NoGateway(folder.to_owned()),
        _ => refused(&error),
    })?;
    let request = Request::Attach(Box::new(handover));
    let mut line = serde_json::to_vec(&request).map_err(|error| refused(&error))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(|error| refused(&error))?;
    let mut reading = BufReader::with_capacity(CHUNK, stream.try_clone().map_err(|error| refused(&error))?);
    loop {
        let mut line = String::new();
        match reading.read_line(&mut line) {
            Ok(0) => return Err(refused(&"the gateway closed the connection")),
            Ok(_) => {}
            Err(error) => return Err(refused(&error)),
        }
        match serde_json::from_str(&line) {
            Ok(AttachReply::Notice(text)) => notice(&text),
            Ok(AttachReply::Ok {}) => return Ok(GatewayPipe { gateway: folder.to_owned(), stream, reading }),
            Ok(AttachReply::Error(problem)) => return Err(AttachError::Refused(problem)),
            Err(error) => return Err(refused(&format!("invalid answer: {error}"))),
        }
    }
}

impl GatewayPipe {
    /// Passes everything on in both directions until one side has gone. If that is the gateway, the host gets an error for
    /// each request that was not answered, from `refused`, and a line with the reason, from `notice_frame`.
    pub(crate) fn run(
        self,
        notice_frame: impl Fn(String) -> Option<Bytes>,
        refused: impl Fn(&Unanswered, &str) -> Option<Bytes>,
    ) -> ExitCode {
        let Self { gateway, stream, reading } = self;
        let pending = Arc::new(UnansweredRequests::default());
        // True if the host has gone, or a client that speaks for it.
        let host_gone = Arc::new(AtomicBool::new(false));
        for end in [forward_from_host, wait_for_signal] {
            let (stream, host_gone, pending) = (stream.try_clone(), Arc::clone(&host_gone), Arc::clone(&pending));
            std::thread::spawn(move || {
                let Ok(mut stream) = stream else { return };
                if end(&mut stream, &pending) {
                    host_gone.store(true, Ordering::SeqCst);
                    let _ = stream.shutdown(Shutdown::Write);
                    std::thread::sleep(FAREWELL);
                    std::process::exit(0);
                }
            });
        }
        if forward_to_host(reading, &pending).is_err() || host_gone.load(Ordering::SeqCst) {
            return ExitCode::SUCCESS;
        }
        let problem = format!(
            "the gateway with the data directory {} has gone. The session is whole there: it goes on when the gateway runs again and the session is opened again",
            gateway.display()
        );
        let unanswered = pending.take_unanswered();
        let frames = unanswered.iter().filter_map(|request| refused(request, &problem));
        let mut output = std::io::stdout().lock();
        for frame in frames.chain(notice_frame(problem.clone())) {
            let _ = output.write_all(&frame).and_then(|()| output.flush());
        }
        drop(output);
        fail_with(&problem)
    }
}

/// The host does not take frames any more.
struct HostGone;

/// Hands on what the gateway says, whole lines only: a host must not read the half of one as the last.
fn forward_to_host(mut reading: BufReader<UnixStream>, pending: &UnansweredRequests) -> Result<(), HostGone> {
    let mut output = std::io::stdout().lock();
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let chunk = match reading.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ok(()),
        };
        let count = chunk.len();
        match chunk.iter().rposition(|byte| *byte == b'\n') {
            None => rest.extend_from_slice(chunk),
            Some(end) => {
                let (whole, begun) = chunk.split_at(end + 1);
                pending.note_answers(&rest, whole);
                let written = output.write_all(&rest).and_then(|()| output.write_all(whole));
                written.and_then(|()| output.flush()).map_err(|_| HostGone)?;
                rest.clear();
                rest.extend_from_slice(begun);
            }
        }
        reading.consume(count);
    }
}

/// Hands on what the host says, until it says nothing more. False if the gateway has gone before it.
fn forward_from_host(stream: &mut UnixStream, pending: &UnansweredRequests) -> bool {
    let mut input = std::io::stdin().lock();
    let mut buffer = vec![0; CHUNK];
    let mut scan = pending.line_scanner();
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return true,
            Ok(count) => {
                // Noted first: the answer may come before the next line of this.
                scan.read_bytes(&buffer[..count]);
                if stream.write_all(&buffer[..count]).is_err() {
                    return false;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}

/// Waits until a signal requests the end of the process.
fn wait_for_signal(_: &mut UnixStream, _: &UnansweredRequests) -> bool {
    use tokio::signal::unix::{SignalKind, signal};

    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return false };
    runtime.block_on(async {
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return false;
        };
        tokio::select! {
            _ = terminate.recv() => true,
            _ = interrupt.recv() => true,
        }
    })
}
