//! What a command is given to read while it runs: a pipe, and what does not fit into it yet.
//!
//! It must not wait for the command. How much may wait here is up to the gateway's end, which is told what was taken.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::pipe2,
};

/// The input of a command.
pub(super) struct CommandInput {
    /// Held so that the shell can open the pipe by its path, and that nobody is told of a pipe without a reader.
    end: OwnedFd,
    pipe: File,
    pending: Vec<u8>,
}

impl CommandInput {
    pub(super) fn new() -> io::Result<Self> {
        let (end, pipe) = pipe2(OFlag::O_CLOEXEC)?;
        // Only our end: a command expects to wait for its input.
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { end, pipe: File::from(pipe), pending: Vec::new() })
    }

    /// What the command opens.
    pub(super) fn read_end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The pipe, if something waits to be written to it.
    pub(super) fn writable_pipe(&self) -> Option<BorrowedFd<'_>> {
        (!self.pending.is_empty()).then(|| self.pipe.as_fd())
    }

    /// Writes as much as the pipe takes, and says how much that was.
    pub(super) fn write_pending(&mut self) -> u64 {
        let mut given = 0;
        while !self.pending.is_empty() {
            match self.pipe.write(&self.pending) {
                Ok(count) => {
                    self.pending.drain(..count);
                    given += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        given
    }
}
