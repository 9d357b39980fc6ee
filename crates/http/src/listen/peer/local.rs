//! Process that connected to a local socket, held from then on.
//!
//! The kernel gives a pid, and a pid comes again: that of an ended process goes to another sooner or later. The handle of the
//! process that is kept with it stays that process's. It must not know the requests.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use countersign_runtime::tools::exec;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{getsockopt, sockopt::PeerPidfd},
    unistd::geteuid,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::UnixStream;

use super::{run_lookup, users::may_be_a_commands};

/// The process at the other end of a connection to a local socket.
pub struct LocalPeer {
    user: u32,
    pid: Option<i32>,
    process: ProcessHandle,
}

/// Handle of a process.
enum ProcessHandle {
    Held(OwnedFd),
    /// The process had gone, or cannot be held now.
    None,
    /// The kernel has no handles.
    Unknown,
}

impl LocalPeer {
    /// Makes it for a stream; to be called right after the accept.
    ///
    /// # Errors
    /// The system does not say which process it is.
    pub fn from_stream(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        let (user, pid) = (peer.uid(), peer.pid());
        let process = match getsockopt(stream, PeerPidfd) {
            Ok(process) => ProcessHandle::Held(process),
            // A kernel before 6.5 has no handle of the connected process; the number is not old yet.
            Err(Errno::ENOPROTOOPT) => {
                match pid.and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                    Some(Ok(process)) => ProcessHandle::Held(process),
                    Some(Err(rustix::io::Errno::NOSYS)) => ProcessHandle::Unknown,
                    Some(Err(_)) | None => ProcessHandle::None,
                }
            }
            Err(_) => ProcessHandle::None,
        };
        Ok(Self { user, pid, process })
    }

    /// Reports whether it is none of the commands that agents run. The system's facts about its pid count only while it is still there, and
    /// a process that has gone decides nothing: a person's program waits for the answer.
    pub async fn may_decide(self) -> bool {
        let seen = run_lookup(move || match self.pid {
            // It is in no namespace of ours, and so none of ours.
            Some(0) => true,
            // Commands have our user, unless we are root: one of another, whom `/proc` hides, is none.
            Some(pid) if self.is_anothers() && exec::is_hidden(pid) => self.is_there(),
            Some(pid) => exec::acts_for_agent(pid) == Some(false) && self.is_there(),
            None => false,
        });
        seen.await.unwrap_or(false)
    }

    /// Returns its process, if the system names it.
    pub const fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Reports whether it is a gateway, adapter or node of our user that acts for no agent itself.
    pub async fn comes_from_a_door(self) -> bool {
        // No other user takes the time of a look.
        self.user == geteuid().as_raw()
            && run_lookup(move || self.pid.is_some_and(exec::is_gateway_process) && self.is_there())
                .await
                .unwrap_or(false)
    }

    /// Reports whether its user is not ours, and none that a command of ours may become.
    fn is_anothers(&self) -> bool {
        let us = geteuid().as_raw();
        us != 0 && self.user != us && !may_be_a_commands(self.user)
    }

    /// Reports whether it has not ended: until then its pid is its own.
    fn is_there(&self) -> bool {
        let process = match &self.process {
            ProcessHandle::Held(process) => process,
            ProcessHandle::None => return false,
            ProcessHandle::Unknown => return true,
        };
        poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tokio::net::{UnixListener, UnixStream};

    use super::LocalPeer;

    #[tokio::test]
    async fn a_process_id_counts_only_while_its_process_is_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = LocalPeer::from_stream(&one).unwrap();
        assert!(own.is_there() && own.may_decide().await);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()";
        let Ok(mut child) = Command::new("python3").args(["-c", script]).arg(&path).stdin(Stdio::piped()).spawn()
        else {
            return;
        };
        let (stream, _) = listener.accept().await.unwrap();
        let theirs = LocalPeer::from_stream(&stream).unwrap();
        assert_eq!(theirs.pid, Some(child.id().cast_signed()));
        assert!(theirs.is_there());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!theirs.is_there());
        // A process that has its pid by now is another.
        let recycled = LocalPeer { pid: Some(std::process::id().cast_signed()), ..theirs };
        assert!(!recycled.is_there());
    }
}
