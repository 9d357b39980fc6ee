//! One program in place of a shell: started with the exec child's own output as its pipes, followed to its end.
//!
//! It must not know what the program reads and writes: those pipes lead straight to the gateway.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::wait::{WaitStatus, waitpid},
};

use super::{
    frame::{ChildReport, CommandExit, ProgramCommand},
    shell_process::with_signals_unblocked,
};

/// Runs `program` until it ends, which it reports, or until the gateway is gone.
pub(super) fn serve_program(mut control: &UnixStream, program: &ProgramCommand) -> io::Result<()> {
    let started = match start_program(program) {
        Ok(pid) => pid,
        Err(error) => {
            let report = ChildReport::Failed(format!("{}: {error}", program.program));
            return control.write_all(&report.encode());
        }
    };
    let (mut reaped, reports) = UnixStream::pair()?;
    // Held: without it the reaper would end at a moment without children.
    let (_spawned, spawns) = mpsc::channel();
    thread::spawn(move || reap_children(&reports, &spawns));
    loop {
        if is_readable(control.as_fd(), reaped.as_fd())? {
            match control.read(&mut [0; 4096]) {
                Ok(0) => return Ok(()),
                // No further order is known here.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(()),
            }
            continue;
        }
        let mut record = [0; 8];
        reaped.read_exact(&mut record)?;
        let [a, b, c, d, e, f, g, h] = record;
        let (pid, code) = (i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]));
        if pid == started {
            let report = ChildReport::Ended(CommandExit { code, ..CommandExit::default() });
            return control.write_all(&report.encode());
        }
    }
}

/// Waits until one of both can be read. True if it is `control`.
fn is_readable(control: BorrowedFd<'_>, reaped: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::new(control, PollFlags::POLLIN), PollFd::new(reaped, PollFlags::POLLIN)];
    loop {
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => return Ok(polled[0].any().unwrap_or(false)),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn start_program(program: &ProgramCommand) -> io::Result<i32> {
    let (output, errors) = (io::stdout(), io::stderr());
    let stream = || Ok::<_, io::Error>(Stdio::from(output.as_fd().try_clone_to_owned()?));
    let mut command = Command::new(&program.program);
    command
        .args(&program.args)
        .stdin(stream()?)
        .stdout(stream()?)
        .stderr(Stdio::from(errors.as_fd().try_clone_to_owned()?))
        .process_group(0);
    let child = with_signals_unblocked(|| command.spawn())?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Waits for children for ever, adopted ones too, and reports the end of each.
pub(super) fn reap_children(mut reports: &UnixStream, spawns: &mpsc::Receiver<()>) {
    loop {
        let (pid, code) = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, code),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
            Ok(_) | Err(Errno::EINTR) => continue,
            // No child: the next one is announced.
            Err(_) => match spawns.recv() {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let mut record = [0; 8];
        record[..4].copy_from_slice(&pid.as_raw().to_le_bytes());
        record[4..].copy_from_slice(&code.to_le_bytes());
        if reports.write_all(&record).is_err() {
            return;
        }
    }
}
