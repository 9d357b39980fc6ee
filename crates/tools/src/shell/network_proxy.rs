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

use super::{
    SessionShell, ShellError,
    child_link::{ChildLink, ChildUse, launch_child},
};
use crate::{
    environment::CommandEnvironment,
    exec::{frame::ChildReport, namespace::PORT},
    live_questions::CallQuestions,
    proxy::HostProxy,
    sandbox::{HostPattern, NetworkAccess},
};

/// Time limit of an exec child to make its network.
const OPENING: Duration = Duration::from_secs(60);

/// Proxy of a shell.
#[derive(Debug)]
pub(super) enum ProxyState {
    /// None: access as in the sandbox, or the whole network.
    None,
    /// To these hosts, as soon as the exec child has reported that it is in a network of its own.
    Awaited(Vec<HostPattern>),
    /// Through this.
    Open(HostProxy),
    /// Required, but this machine lacks the means.
    Lacking(String),
}

/// Sets the proxy variables of a command.
pub(super) fn point_at_proxy(command: &mut Command) {
    let address = format!("http://127.0.0.1:{PORT}");
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, &address);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        command.env(name, "");
    }
}

impl SessionShell {
    /// Describes the missing features of this machine for commands that reach named hosts alone; none if the sandbox names no
    /// host. A shell is started to check, and ended.
    pub async fn lacks_named_hosts(&self, cwd: &Path, environment: &CommandEnvironment) -> Option<String> {
        if !matches!(self.sandbox.network(), NetworkAccess::Hosts(_)) {
            return None;
        }
        let link = match self.sandbox.base_bounds(cwd, environment) {
            Ok(bounds) => launch_child(&self.launcher, cwd, environment, ChildUse::Shell, bounds),
            Err(error) => return Some(error.to_string()),
        };
        let mut link = match link {
            Ok(link) => link,
            Err(error) => return Some(error.to_string()),
        };
        match (link.open_proxy().await, &link.proxy) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(()), ProxyState::Lacking(lacks)) => Some(lacks.clone()),
            (Ok(()), ProxyState::None | ProxyState::Awaited(_) | ProxyState::Open(_)) => None,
        }
    }
}

impl ChildLink {
    /// Waits for the way out, if there is to be one.
    ///
    /// # Errors
    /// [`ShellError::Start`].
    pub(super) async fn open_proxy(&mut self) -> Result<(), ShellError> {
        let late = |_| ShellError::Start("the exec child did not report its network in time".to_owned());
        tokio::time::timeout(OPENING, self.await_proxy()).await.map_err(late)?
    }

    async fn await_proxy(&mut self) -> Result<(), ShellError> {
        let ProxyState::Awaited(hosts) = &mut self.proxy else { return Ok(()) };
        let hosts = std::mem::take(hosts);
        let start = |error: io::Error| ShellError::Start(error.to_string());
        let mut handed = None;
        let report = loop {
            if let Some((report, length)) =
                ChildReport::decode(&self.received).map_err(|error| start(io::Error::other(error)))?
            {
                self.received.advance(length);
                break report;
            }
            let stream = &self.stream;
            let (bytes, with) = stream.async_io(Interest::READABLE, || receive_message(stream)).await.map_err(start)?;
            if bytes.is_empty() {
                return Err(start(io::ErrorKind::UnexpectedEof.into()));
            }
            self.received.extend_from_slice(&bytes);
            handed = handed.or(with);
        };
        self.proxy = match (report, handed) {
            (ChildReport::Network(None), Some(listener)) => {
                ProxyState::Open(HostProxy::start(TcpListener::from(listener), hosts).map_err(start)?)
            }
            (ChildReport::Network(Some(lacks)), _) => {
                tracing::warn!(lacks, "commands have no network: this machine cannot restrict it to listed hosts");
                ProxyState::Lacking(lacks)
            }
            (ChildReport::Failed(reason), _) => return Err(ShellError::Start(reason)),
            (
                ChildReport::Network(None)
                | ChildReport::Output(_)
                | ChildReport::Taken(_)
                | ChildReport::Ended(_)
                | ChildReport::Changed(_),
                _,
            ) => {
                return Err(start(io::Error::other("the exec child did not report its network")));
            }
        };
        Ok(())
    }

    /// Hosts are reached on behalf of `call` from now on.
    pub(super) fn begin_call(&self, call: &str, asks: CallQuestions) {
        if let ProxyState::Open(proxy) = &self.proxy {
            proxy.begin_call(call, asks);
        }
    }

    /// Closes the open connections of the call, and returns the notes about its network.
    pub(super) fn end_call(&self) -> Vec<String> {
        match &self.proxy {
            ProxyState::None | ProxyState::Awaited(_) => Vec::new(),
            ProxyState::Lacking(lacks) => vec![format!(
                "[This ran without a network: the settings list hosts, but {lacks}. Tell the person; `countersign doctor` suggests a fix]"
            )],
            ProxyState::Open(proxy) => {
                let refused = proxy.end_call();
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
fn receive_message(stream: &tokio::net::UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
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
