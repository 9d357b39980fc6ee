//! Speaks to a gateway that runs on this machine, over the socket in its data directory.

use std::{
    fs::{File, TryLockError},
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_gateway::control::{ControlReply, FILE, Request};
use serde_json::Value;

/// Maximum time for the answer of a gateway: more than any record takes that is still written.
const PATIENCE: Duration = Duration::from_secs(30);

/// A line to a running gateway.
pub(crate) struct ControlClient(BufReader<UnixStream>);

impl ControlClient {
    /// Connects to the gateway whose data directory is `folder`; `None` if none runs. One that says nothing for a while is given up.
    pub(crate) fn connect(folder: &Path) -> Option<Self> {
        let local = UnixStream::connect(folder.join(FILE)).ok().map(|stream| Self(BufReader::new(stream)))?;
        local.with_timeout(PATIENCE).ok()
    }

    /// Connects to the gateway whose data directory is `folder`; `None` if none runs there.
    ///
    /// # Errors
    /// A gateway runs and cannot be reached.
    pub(crate) fn connect_if_running(folder: &Path) -> anyhow::Result<Option<Self>> {
        let socket = folder.join(FILE);
        match UnixStream::connect(&socket) {
            Ok(stream) => Self(BufReader::new(stream)).with_timeout(PATIENCE).map(Some),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused if !is_locked(folder) => Ok(None),
                _ => Err(error).with_context(|| format!("cannot connect to {}", socket.display())),
            },
        }
    }

    /// Gives up on a gateway that says nothing for so long.
    pub(crate) fn with_timeout(self, timeout: Duration) -> anyhow::Result<Self> {
        self.0.get_ref().set_read_timeout(Some(timeout))?;
        self.0.get_ref().set_write_timeout(Some(timeout))?;
        Ok(self)
    }

    /// Waits without end for what the gateway says next: it says something only when something happens.
    pub(crate) fn without_read_timeout(self) -> anyhow::Result<Self> {
        self.0.get_ref().set_read_timeout(None)?;
        Ok(self)
    }

    /// Reports whether a gateway's socket exists, but not for this user.
    pub(crate) fn is_closed_to_us(folder: &Path) -> bool {
        let refused = UnixStream::connect(folder.join(FILE)).err();
        refused.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    }

    /// Asks for something and waits for the answer.
    pub(crate) fn send_request(&mut self, request: &Request) -> anyhow::Result<Value> {
        self.send(request)?;
        self.next_value()?.context("the gateway closed the connection")
    }

    /// Asks for something that has more than one answer.
    pub(crate) fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.0.get_mut().write_all(line.as_bytes()).map_err(explain_timeout)?;
        Ok(())
    }

    /// Returns the next answer; `None` when the gateway has gone.
    pub(crate) fn next_value(&mut self) -> anyhow::Result<Option<Value>> {
        let mut line = String::new();
        if self.0.read_line(&mut line).map_err(explain_timeout)? == 0 {
            return Ok(None);
        }
        match serde_json::from_str(&line)? {
            ControlReply::Ok(value) => Ok(Some(value)),
            ControlReply::Error(problem) => bail!("{problem}"),
        }
    }
}

/// Reports whether a gateway holds the lock of its data directory.
fn is_locked(folder: &Path) -> bool {
    let lock = File::open(folder.join(FILE).with_extension("sock.lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Replaces the system's text for a timeout, which speaks of resources.
fn explain_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, "the gateway did not answer in time")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, time::Duration};

    use countersign_gateway::control::{FILE, Request};

    use super::ControlClient;

    #[test]
    fn a_gateway_that_says_nothing_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(folder.path().join(FILE)).unwrap();
        let mut local = ControlClient::connect(folder.path()).unwrap().with_timeout(Duration::from_millis(10)).unwrap();
        let problem = local.send_request(&Request::Gates).unwrap_err().to_string();
        assert_eq!(problem, "the gateway did not answer in time");
    }
}
