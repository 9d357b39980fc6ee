//! The way out of a shell whose commands reach named hosts alone, from the exec child's first words to its end.
//!
//! It must not know commands.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    net::TcpListener,
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use bytes::Buf as _;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::{io::Interest, process::Command};

use super::{Link, ShellError, Shells, launch};
use crate::{
    asking::Asks,
    environment::Environment,
    exec::{frame::Report, namespace::PORT},
    proxy::Proxy,
    sandbox::{Host, Network},
};

/// What an exec child has to make its network.
const OPENING: Duration = Duration::from_secs(60);

/// Which way out a shell has.
#[derive(Debug)]
pub(super) enum Way {
    /// None of ours: as the sandbox says, or the whole network.
    None,
    /// To these, as soon as the exec child has said that it is in a network of its own.
    Awaited(Vec<Host>),
    /// Through this.
    Open(Proxy),
    /// It was to be, but this machine lacks what that takes.
    Lacking(String),
}

/// Tells what a command starts how hosts are reached.
pub(super) fn point_at_proxy(command: &mut Command) {
    let address = format!("http://127.0.0.1:{PORT}");
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, &address);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        command.env(name, "");
    }
}

impl Shells {
    /// What this machine lacks for commands that reach named hosts alone; nothing where the sandbox names none. A shell is
    /// made ready for it, and ended.
    pub async fn lacks_named_hosts(&self, cwd: &Path, environment: &Environment) -> Option<String> {
        if !matches!(self.sandbox.network(), Network::Hosts(_)) {
            return None;
        }
        let link = match self.sandbox.bounds(cwd, environment) {
            Ok(bounds) => launch(&self.launcher, cwd, environment, bounds),
            Err(error) => return Some(error.to_string()),
        };
        let mut link = match link {
            Ok(link) => link,
            Err(error) => return Some(error.to_string()),
        };
        match (link.open_way().await, &link.way) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(()), Way::Lacking(lacks)) => Some(lacks.clone()),
            (Ok(()), Way::None | Way::Awaited(_) | Way::Open(_)) => None,
        }
    }
}

impl Link {
    /// Waits for the way out, if there is to be one.
    ///
    /// # Errors
    /// [`ShellError::Start`].
    pub(super) async fn open_way(&mut self) -> Result<(), ShellError> {
        let late = |_| ShellError::Start("the exec child said nothing of its network in time".to_owned());
        tokio::time::timeout(OPENING, self.await_way()).await.map_err(late)?
    }

    async fn await_way(&mut self) -> Result<(), ShellError> {
        let Way::Awaited(hosts) = &mut self.way else { return Ok(()) };
        let hosts = std::mem::take(hosts);
        let start = |error: io::Error| ShellError::Start(error.to_string());
        let mut handed = None;
        let report = loop {
            if let Some((report, length)) =
                Report::decode(&self.received).map_err(|error| start(io::Error::other(error)))?
            {
                self.received.advance(length);
                break report;
            }
            let stream = &self.stream;
            let (bytes, with) = stream.async_io(Interest::READABLE, || receive(stream)).await.map_err(start)?;
            if bytes.is_empty() {
                return Err(start(io::ErrorKind::UnexpectedEof.into()));
            }
            self.received.extend_from_slice(&bytes);
            handed = handed.or(with);
        };
        self.way = match (report, handed) {
            (Report::Network(None), Some(listener)) => {
                Way::Open(Proxy::start(TcpListener::from(listener), hosts).map_err(start)?)
            }
            (Report::Network(Some(lacks)), _) => {
                tracing::warn!(lacks, "commands have no network: hosts cannot be named on this machine");
                Way::Lacking(lacks)
            }
            (Report::Failed(reason), _) => return Err(ShellError::Start(reason)),
            (
                Report::Network(None) | Report::Output(_) | Report::Taken(_) | Report::Ended(_) | Report::Changed(_),
                _,
            ) => {
                return Err(start(io::Error::other("the exec child said nothing of its network")));
            }
        };
        Ok(())
    }

    /// Hosts are reached on behalf of `call` from now on.
    pub(super) fn begin_call(&self, call: &str, asks: Asks) {
        if let Way::Open(proxy) = &self.way {
            proxy.begin(call, asks);
        }
    }

    /// Cuts what the call has open, and gives what has to be told of its network.
    pub(super) fn end_call(&self) -> Vec<String> {
        match &self.way {
            Way::None | Way::Awaited(_) => Vec::new(),
            Way::Lacking(lacks) => vec![format!(
                "[This ran without a network: the settings name hosts, but {lacks}. Tell the person; `countersign doctor` says what to do]"
            )],
            Way::Open(proxy) => {
                let refused = proxy.end();
                if refused.is_empty() {
                    return Vec::new();
                }
                let ask = if refused.values().any(|may_ask| *may_ask) { crate::proxy::ASK } else { "" };
                let refused: Vec<String> = refused.into_keys().collect();
                vec![format!("[The sandbox refused hosts: {}. {ask}", refused.join("; ")).trim_end().to_owned() + "]"]
            }
        }
    }
}

/// Reads what is there, and a descriptor that came with it.
fn receive(stream: &tokio::net::UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    bytes.truncate(got.bytes);
    Ok((bytes, descriptor))
}
