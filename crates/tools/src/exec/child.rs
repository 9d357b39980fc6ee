//! The loop of the exec child: orders in, output and ends out, one shell at a time.
//!
//! It must not know more of a command than its text.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::{Pid, gettid, pipe2, setsid},
};

use super::{
    descendants,
    frame::{ChildOrder, ChildReport, CommandExit, ProgramCommand, ShellCommand},
    input::CommandInput,
    namespace, oom_score,
    pinned::{self, PinnedRunError, SearchPath},
    program::{self, reap_children},
    script::{self, ScriptPaths},
    shell_process::ShellProcess,
};

/// Time between the request to end a command and its kill.
const GRACE: Duration = Duration::from_millis(500);
/// Interval of the checks whether all ended within that time.
const LOOK: Duration = Duration::from_millis(10);
/// Most bytes that a command may have written before its end without being read: more than a pipe holds.
const DRAIN: usize = 2 << 20;

/// Serves the gateway until it is gone.
pub(super) fn serve_gateway() -> io::Result<()> {
    // Fails only for a process that leads a group already, which is as good.
    let _ = setsid();
    prctl::set_child_subreaper(true)?;
    // The shell opens our pipes through /proc, which a program that its user may not read would refuse.
    prctl::set_dumpable(true)?;
    oom_score::raise_oom_score();
    let mut deaf = SigSet::empty();
    deaf.extend([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP]);
    // Only the gateway's end ends us. Processes that we start receive signals (`shell_process.rs`).
    deaf.thread_block()?;

    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control.peer_addr()?;
    // Before there is a second thread, which would not be held and shares our memory.
    let served = match receive_bounds(&control)? {
        None => return Ok(()),
        Some((Some(program), _)) => program::serve_program(&control, &program),
        Some((None, orders)) => ExecChild::new(control, orders).and_then(|mut child| child.run()),
    };
    descendants::kill_all();
    served
}

/// Takes the first order and applies its bounds; returns the program to run, if it names one, and the bytes read after it. `None`
/// if the gateway is gone. If the bounds cannot be applied, it reports that and ends: nothing runs.
fn receive_bounds(mut control: &UnixStream) -> io::Result<Option<(Option<ProgramCommand>, Vec<u8>)>> {
    let mut orders = Vec::new();
    let mut chunk = [0; 16 << 10];
    let (order, length) = loop {
        if let Some(first) = ChildOrder::decode(&orders).map_err(io::Error::other)? {
            break first;
        }
        match control.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(count) => orders.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    };
    let (bounds, program) = match order {
        ChildOrder::Begin(bounds) => (bounds, None),
        ChildOrder::Program(bounds, program) => (bounds, Some(program)),
        ChildOrder::Run(_) | ChildOrder::Input(_) | ChildOrder::Stop => {
            return Err(io::Error::other("the first order does not set the bounds of the sandbox"));
        }
    };
    if let Some(Err(error)) = bounds.map(|bounds| namespace::apply_bounds(bounds, control)) {
        let report = ChildReport::Failed(format!("cannot set up the sandbox: {error}"));
        control.write_all(&report.encode())?;
        return Err(io::Error::other(error));
    }
    orders.drain(..length);
    Ok(Some((program, orders)))
}

struct ExecChild {
    control: UnixStream,
    orders: Vec<u8>,
    reaped: UnixStream,
    spawned: mpsc::Sender<()>,
    status: File,
    status_end: OwnedFd,
    status_text: Vec<u8>,
    shell: Option<ShellProcess>,
    cwd: Option<PathBuf>,
    path: SearchPath,
    running: Option<ActiveCommand>,
    leftover: Vec<File>,
    kill_at: Option<Instant>,
}

struct ActiveCommand {
    nonce: String,
    /// True if the shell has read it. If not, nothing of it was run.
    has_begun: bool,
    output: File,
    /// Held so that the shell can open the pipe by its path.
    _end: OwnedFd,
    input: Option<CommandInput>,
    /// Held so that the shell can enter the folder by it.
    _folder: Option<OwnedFd>,
}

/// Source of work.
#[derive(Clone, Copy)]
enum PollSource {
    Orders,
    Reaped,
    Status,
    /// The shell takes more of its text.
    Text,
    /// The command takes more of its input.
    Input,
    Output,
    Leftover(usize),
}

impl ExecChild {
    fn new(control: UnixStream, orders: Vec<u8>) -> io::Result<Self> {
        let (reaped, reports) = UnixStream::pair()?;
        let (spawned, spawns) = mpsc::channel();
        thread::spawn(move || reap_children(&reports, &spawns));
        let (status, status_end) = open_pipe()?;
        Ok(Self {
            control,
            orders,
            reaped,
            spawned,
            status,
            status_end,
            status_text: Vec::new(),
            shell: None,
            cwd: None,
            path: SearchPath::new(),
            running: None,
            leftover: Vec::new(),
            kill_at: None,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.handle_orders()?;
        loop {
            for ready in self.wait_ready()? {
                match ready {
                    PollSource::Orders => {
                        if !self.take_orders()? {
                            return Ok(());
                        }
                    }
                    PollSource::Reaped => self.take_reaped()?,
                    PollSource::Status => self.take_status()?,
                    PollSource::Text => self.feed_shell(),
                    PollSource::Input => self.give_input()?,
                    PollSource::Output => self.take_output()?,
                    PollSource::Leftover(at) => self.drop_leftover(at),
                }
            }
            if let Some(kill_at) = self.kill_at
                && (Instant::now() >= kill_at || !descendants::any_living())
            {
                self.end_stop()?;
            }
        }
    }

    /// Waits for something to do. Leftovers come last and in falling order, so that one can be taken out.
    fn wait_ready(&self) -> io::Result<Vec<PollSource>> {
        let mut sources: Vec<(PollSource, BorrowedFd<'_>, PollFlags)> = vec![
            (PollSource::Orders, self.control.as_fd(), PollFlags::POLLIN),
            (PollSource::Output, self.status.as_fd(), PollFlags::empty()),
            (PollSource::Status, self.status.as_fd(), PollFlags::POLLIN),
            (PollSource::Reaped, self.reaped.as_fd(), PollFlags::POLLIN),
        ];
        if let Some(running) = &self.running {
            sources[1] = (PollSource::Output, running.output.as_fd(), PollFlags::POLLIN);
        }
        if let Some(shell) = &self.shell
            && !shell.pending.is_empty()
        {
            sources.push((PollSource::Text, shell.input.as_fd(), PollFlags::POLLOUT));
        }
        if let Some(waiting) = self.running.as_ref().and_then(|running| running.input.as_ref()?.writable_pipe()) {
            sources.push((PollSource::Input, waiting, PollFlags::POLLOUT));
        }
        for (at, file) in self.leftover.iter().enumerate().rev() {
            sources.push((PollSource::Leftover(at), file.as_fd(), PollFlags::POLLIN));
        }
        let mut polled: Vec<PollFd<'_>> = sources.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        let patience = match self.kill_at {
            None => PollTimeout::NONE,
            Some(_) => PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO),
        };
        match poll(&mut polled, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().map(|fd| fd.any().unwrap_or(false));
        Ok(sources.iter().zip(ready).filter(|(_, ready)| *ready).map(|((what, ..), _)| *what).collect())
    }

    /// Takes orders from the gateway. False if it is gone.
    fn take_orders(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 64 << 10];
        match self.control.read(&mut chunk) {
            Ok(0) => return Ok(false),
            Ok(count) => self.orders.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A reset means that the gateway died before it read all.
            Err(_) => return Ok(false),
        }
        self.handle_orders()?;
        Ok(true)
    }

    /// Does what has been read whole.
    fn handle_orders(&mut self) -> io::Result<()> {
        while let Some((order, length)) = ChildOrder::decode(&self.orders).map_err(io::Error::other)? {
            self.orders.drain(..length);
            match order {
                ChildOrder::Begin(_) | ChildOrder::Program(..) => {
                    return Err(io::Error::other("the bounds of the sandbox were set already"));
                }
                ChildOrder::Run(run) => self.begin_command(&run)?,
                ChildOrder::Input(bytes) => {
                    if let Some(input) = self.running.as_mut().and_then(|running| running.input.as_mut()) {
                        input.add_bytes(&bytes);
                        self.give_input()?;
                    }
                }
                ChildOrder::Stop if self.running.is_some() && self.kill_at.is_none() => {
                    descendants::signal_all(Signal::SIGTERM);
                    // A stopped process would sit out its grace.
                    descendants::signal_all(Signal::SIGCONT);
                    self.kill_at = Some(Instant::now() + GRACE);
                }
                // It ended before the order came.
                ChildOrder::Stop => {}
            }
        }
        Ok(())
    }

    fn begin_command(&mut self, run: &ShellCommand) -> io::Result<()> {
        match self.prepare_run(run) {
            Ok(running) => {
                self.running = Some(running);
                self.feed_shell();
                Ok(())
            }
            Err(PinnedRunError::Failed(error)) => self.send_report(&ChildReport::Failed(error.to_string())),
            Err(PinnedRunError::Changed(what)) => self.send_report(&ChildReport::Changed(what)),
        }
    }

    fn prepare_run(&mut self, run: &ShellCommand) -> Result<ActiveCommand, PinnedRunError> {
        let status = path_of(self.status_end.as_fd());
        let shell = match &mut self.shell {
            Some(shell) => shell,
            absent => {
                let mut shell = ShellProcess::start(self.cwd.as_deref())?;
                // The reaper is gone only if this process is ending.
                let _ = self.spawned.send(());
                shell.pending.extend_from_slice(script::shell_prologue(&status).as_bytes());
                absent.insert(shell)
            }
        };
        let folder = match &run.pins {
            None => None,
            Some(pins) => pinned::check_pins(pins, run, shell.pid, self.path.known_path())?,
        };
        let (output, end) = open_pipe()?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let nonce = hex::encode(random);
        let input = if run.input { Some(CommandInput::new()?) } else { None };
        let read = input.as_ref().map_or_else(|| script::NOTHING.to_owned(), |input| path_of(input.read_end()));
        let entered = folder.as_ref().map(|folder| path_of(folder.as_fd()));
        let ends = ScriptPaths {
            output: &path_of(end.as_fd()),
            input: &read,
            status: &status,
            nonce: &nonce,
            folder: entered.as_deref(),
        };
        shell.pending.extend_from_slice(script::command_script(run, &ends).as_bytes());
        // The search path that it prints counts from its end on.
        self.path.forget_path();
        Ok(ActiveCommand { nonce, has_begun: false, output, _end: end, input, _folder: folder })
    }

    fn give_input(&mut self) -> io::Result<()> {
        let input = self.running.as_mut().and_then(|running| running.input.as_mut());
        match input.map_or(0, CommandInput::write_pending) {
            0 => Ok(()),
            count => self.send_report(&ChildReport::Taken(count)),
        }
    }

    /// Gives the shell as much of its text as it takes.
    fn feed_shell(&mut self) {
        let Some(shell) = &mut self.shell else { return };
        while !shell.pending.is_empty() {
            match shell.input.write(&shell.pending) {
                Ok(count) => drop(shell.pending.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The shell is gone, which the reaper reports.
                Err(_) => shell.pending.clear(),
            }
        }
    }

    fn take_output(&mut self) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let mut chunk = [0; 64 << 10];
        match running.output.read(&mut chunk) {
            Ok(count) if count > 0 => self.send_report(&ChildReport::Output(chunk[..count].to_vec())),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads the status of the shell: `<nonce> begun` and `<nonce> <code>` of a command, its folder at its own end.
    fn take_status(&mut self) -> io::Result<()> {
        drain_pipe(&mut self.status, DRAIN, |bytes| {
            self.status_text.extend_from_slice(bytes);
            Ok(())
        })?;
        while let Some(end) = self.status_text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.status_text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            if line.starts_with('/') {
                self.cwd = Some(PathBuf::from(line));
                continue;
            }
            let Some(running) = &mut self.running else { continue };
            let Some(message) = line.strip_prefix(&running.nonce).and_then(|rest| rest.strip_prefix(' ')) else {
                continue;
            };
            running.has_begun |= message == script::BEGUN;
            if let Some(path) = message.strip_prefix(script::PATH) {
                self.path.set_path(path);
                continue;
            }
            let code = message.parse().ok();
            // While it is being stopped the end waits for all that was started.
            if let (Some(code), None) = (code, self.kill_at) {
                self.cwd = self.shell.as_ref().and_then(|shell| cwd_of(shell.pid)).or_else(|| self.cwd.take());
                self.finish_command(code)?;
            }
        }
        Ok(())
    }

    fn take_reaped(&mut self) -> io::Result<()> {
        let mut record = [0; 8];
        self.reaped.read_exact(&mut record)?;
        let [a, b, c, d, e, f, g, h] = record;
        let (pid, code) = (i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]));
        if self.shell.as_ref().is_none_or(|shell| shell.pid.as_raw() != pid) {
            return Ok(());
        }
        // Its last words: the end of the command, or its folder.
        self.take_status()?;
        self.shell = None;
        match &self.running {
            Some(running) if self.kill_at.is_none() && running.has_begun => self.finish_command(code),
            Some(_) if self.kill_at.is_none() => {
                self.running = None;
                self.send_report(&ChildReport::Failed(
                    "the shell ended before it read the command; the next command gets a new shell".to_owned(),
                ))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn end_stop(&mut self) -> io::Result<()> {
        if let Some(shell) = &self.shell {
            self.cwd = cwd_of(shell.pid).or_else(|| self.cwd.take());
        }
        descendants::kill_all();
        self.take_status()?;
        self.shell = None;
        self.kill_at = None;
        self.finish_command(128 + Signal::SIGKILL as i32)
    }

    /// Reports the rest of the output and the end. Output of background processes from now on is read and dropped, so that they
    /// do not block.
    fn finish_command(&mut self, code: i32) -> io::Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        drain_pipe(&mut running.output, DRAIN, |bytes| {
            self.control.write_all(&ChildReport::Output(bytes.to_vec()).encode())
        })?;
        self.leftover.push(running.output);
        let cwd = self.cwd.as_ref().and_then(|cwd| cwd.to_str()).map(str::to_owned);
        if self.shell.is_none() {
            self.path = SearchPath::new();
        }
        let path = self.path.known_path().map(str::to_owned);
        self.send_report(&ChildReport::Ended(CommandExit { code, cwd, path, alive: self.shell.is_some() }))
    }

    fn drop_leftover(&mut self, at: usize) {
        let Some(file) = self.leftover.get_mut(at) else { return };
        let mut chunk = [0; 64 << 10];
        if matches!(file.read(&mut chunk), Ok(0)) {
            self.leftover.remove(at);
        }
    }

    fn send_report(&mut self, report: &ChildReport) -> io::Result<()> {
        self.control.write_all(&report.encode())
    }
}

/// Opens a pipe that does not block the reader and is not inherited.
fn open_pipe() -> io::Result<(File, OwnedFd)> {
    let (output, input) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    Ok((File::from(output), input))
}

/// Returns the path by which a child of ours can open `fd`, as often as it likes. It names this thread, whose sandbox the child
/// is in: another thread of a test's harness is not.
fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/{}/fd/{}", gettid(), fd.as_raw_fd())
}

fn cwd_of(pid: Pid) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Reads what is there, at most about `most` bytes.
fn drain_pipe(file: &mut File, most: usize, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut chunk = [0; 64 << 10];
    let mut total = 0;
    while total < most {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                take(&chunk[..count])?;
                total += count;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
