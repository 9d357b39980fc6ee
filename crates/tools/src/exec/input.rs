//! Input of a command while it runs: a pipe, and the bytes that do not fit into it yet.
//!
//! It must not wait for the command. The gateway's end bounds how much may wait here; it learns how much was taken.

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
    /// End held so that the shell can open the pipe by its path, and that no writer gets an error for a pipe without a reader.
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

    /// Returns the end that the command opens.
    pub(super) fn read_end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the pipe, if something waits to be written to it.
    pub(super) fn writable_pipe(&self) -> Option<BorrowedFd<'_>> {
        (!self.pending.is_empty()).then(|| self.pipe.as_fd())
    }

    /// Writes as much as the pipe takes, and returns the number of bytes.
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
