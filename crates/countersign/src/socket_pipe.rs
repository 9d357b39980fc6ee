//! A pipe between standard input and output and the control socket of a gateway, for hosts that speak their own protocol over it.
//!
//! It must not know what the lines say.

use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use countersign_gateway::control::{ControlReply, FILE, Request};

use crate::exit::fail_with;

/// Time for the last answers once the host has gone.
pub(crate) const FAREWELL: Duration = Duration::from_secs(10);
/// Number of bytes that are read at once.
pub(crate) const CHUNK: usize = 64 * 1024;

/// Connects to the gateway whose data directory is `folder`. `None` if none runs with it.
pub(crate) fn connect(folder: &Path) -> anyhow::Result<Option<UnixStream>> {
    match UnixStream::connect(folder.join(FILE)) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => {
            let text = format!("cannot connect to the gateway in {}", folder.display());
            Err(anyhow::Error::from(error).context(text))
        }
    }
}

/// Hands the connection to `request`, and passes everything on until one side has gone. `left` tells what stays if that was the gateway.
pub(crate) fn run(stream: &UnixStream, request: &Request, folder: &Path, left: &str) -> anyhow::Result<ExitCode> {
    let reading = open_connection(stream, request).map_err(|fault| match fault {
        OpenFault::Lost(error) => {
            anyhow::Error::from(error).context(format!("the gateway in {} closed the connection", folder.display()))
        }
        OpenFault::Refused(problem) => anyhow::Error::msg(problem),
    })?;
    let mut writing = stream.try_clone()?;
    let host_gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&host_gone);
    std::thread::spawn(move || {
        let copied = copy(&mut io::stdin().lock(), &mut writing);
        if copied.is_err() {
            // The gateway has gone, which the other side reports.
            return;
        }
        is_gone.store(true, Ordering::SeqCst);
        let _ = writing.shutdown(Shutdown::Write);
        // The gateway closes after its last answer.
        std::thread::sleep(FAREWELL);
        std::process::exit(0);
    });
    copy(&mut { reading }, &mut io::stdout().lock()).context("the connection to the gateway failed")?;
    if host_gone.load(Ordering::SeqCst) {
        return Ok(ExitCode::SUCCESS);
    }
    let folder = folder.display();
    Ok(fail_with(&format!("the gateway with the data directory {folder} has gone: {left}")))
}

/// Reason why a connection was not opened.
pub(crate) enum OpenFault {
    /// The connection failed.
    Lost(io::Error),
    /// The gateway refuses it.
    Refused(String),
}

impl From<io::Error> for OpenFault {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Asks for a connection and returns its reading side.
pub(crate) fn open_connection(mut stream: &UnixStream, request: &Request) -> Result<BufReader<UnixStream>, OpenFault> {
    let mut line = serde_json::to_vec(request).map_err(io::Error::from)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reading = BufReader::with_capacity(CHUNK, stream.try_clone()?);
    let mut answer = String::new();
    if reading.read_line(&mut answer)? == 0 {
        return Err(OpenFault::Lost(ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_str(&answer) {
        Ok(ControlReply::Ok(_)) => Ok(reading),
        Ok(ControlReply::Error(problem)) => Err(OpenFault::Refused(problem)),
        Err(error) => Err(OpenFault::Refused(format!("invalid answer of the gateway: {error}"))),
    }
}

/// Copies everything as it comes.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        };
        to.write_all(&chunk[..length])?;
        to.flush()?;
    }
}
