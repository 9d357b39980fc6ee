//! A connection to an exec child: started with its bounds, read report by report, killed with everything when dropped.
//!
//! It must not know the commands of a shell.

use std::{
    io::{self, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::Stdio,
};

use bytes::{Buf as _, BytesMut};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::{
    io::AsyncReadExt as _,
    net::UnixStream,
    process::{Child, Command},
};

use super::network_proxy::{self, ProxyState};
use crate::{
    environment::CommandEnvironment,
    exec::{
        ExecLauncher, descendants,
        frame::{ChildOrder, ChildReport, ProgramCommand},
    },
    sandbox::{NetworkAccess, SandboxBounds},
};

/// A connection to an exec child. Closing it is the order to kill everything.
#[derive(Debug)]
pub(super) struct ChildLink {
    pub(super) stream: UnixStream,
    pub(super) received: BytesMut,
    pub(super) child: Child,
    pub(super) proxy: ProxyState,
}

/// Purpose of an exec child.
pub(super) enum ChildUse {
    /// Runs the commands of a shell. Frames carry their output.
    Shell,
    /// Runs one program, whose input and output are this end of a socket, and whose errors go to a pipe.
    Program(ProgramCommand, OwnedFd),
}

impl ChildLink {
    /// Returns true if the exec child still exists, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        let mut byte = [0];
        self.stream.try_read(&mut byte).is_err()
    }

    /// Kills the processes of an exec child that was killed itself, and so could not.
    pub(super) fn kill_orphans(&self) {
        let mut ends = [PollFd::new(self.stream.as_fd(), PollFlags::POLLHUP)];
        let is_gone = matches!(poll(&mut ends, PollTimeout::ZERO), Ok(1..));
        // Without a number it was waited for, after it had ended by itself.
        let leader = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(leader) = leader.filter(|_| is_gone) {
            descendants::kill_session(leader);
        }
    }

    /// Waits for the next report.
    ///
    /// *Cancellation*: nothing is lost.
    pub(super) async fn next(&mut self) -> io::Result<ChildReport> {
        loop {
            if let Some((report, length)) = ChildReport::decode(&self.received).map_err(io::Error::other)? {
                self.received.advance(length);
                return Ok(report);
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Drop for ChildLink {
    fn drop(&mut self) {
        self.kill_orphans();
    }
}

/// Starts an exec child in `cwd` and sends it its bounds.
pub(super) fn launch_child(
    launcher: &ExecLauncher,
    cwd: &Path,
    environment: &CommandEnvironment,
    child_use: ChildUse,
    bounds: Option<SandboxBounds>,
) -> io::Result<ChildLink> {
    crate::exec::note_started();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    // Less than a socket holds, unless thousands of paths are named: then it is not started.
    ours.set_nonblocking(true)?;
    let proxy = match bounds.as_ref().map(|bounds| &bounds.network) {
        Some(NetworkAccess::Hosts(hosts)) => ProxyState::Awaited(hosts.clone()),
        Some(NetworkAccess::Off | NetworkAccess::On) | None => ProxyState::None,
    };
    let mut command = Command::new(&launcher.program);
    let order = match child_use {
        ChildUse::Shell => {
            command.stdout(Stdio::null()).stderr(Stdio::inherit());
            ChildOrder::Begin(bounds)
        }
        ChildUse::Program(program, end) => {
            command.stdout(Stdio::from(end)).stderr(Stdio::piped());
            ChildOrder::Program(bounds, program)
        }
    };
    ours.write_all(&order.encode())?;
    command
        .args(&launcher.leading_args)
        .env_clear()
        .envs(environment.iter())
        .env("PWD", cwd)
        .current_dir(cwd)
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    if matches!(proxy, ProxyState::Awaited(_)) {
        network_proxy::point_at_proxy(&mut command);
    }
    let child = crate::exec::spawn_tracked(&mut command)?;
    Ok(ChildLink { stream: UnixStream::from_std(ours)?, received: BytesMut::new(), child, proxy })
}
