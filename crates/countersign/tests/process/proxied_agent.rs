//! A proxy between a client and an agent, both of which are the test: the agent's program passes its lines to it and back.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStdin, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
};

use countersign_testkit::process::{GatewayFixture, WAIT_TIMEOUT, eventually};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::Value;

/// Program of the agent. It ends when its input ends, and writes its process id. With `--version` it is a Codex.
const PROGRAM: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "codex-cli 0.171.0"; exit; }
cd "$(dirname "$0")" || exit 1
echo "$*" > arguments
echo $$ > pid
cat to-proxy &
exec cat > to-test
"#;

/// Lines that one side writes.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn read(source: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for line in BufReader::new(source).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// Returns the next line.
    pub(crate) fn next_line(&self) -> String {
        self.0.recv_timeout(WAIT_TIMEOUT).expect("a line")
    }

    /// Returns the next message.
    pub(crate) fn next(&self) -> Value {
        let line = self.next_line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }

    /// Returns what comes until the end.
    fn rest(self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.0.recv_timeout(WAIT_TIMEOUT) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("no end after {lines:?}"),
            }
        }
    }
}

/// Running proxy.
pub(crate) struct ProxiedAgent {
    process: Child,
    client_input: Option<ChildStdin>,
    /// What the client reads.
    pub(crate) client: Option<Lines>,
    agent_output: File,
    /// What the agent reads.
    pub(crate) agent: Lines,
    notices: Option<Lines>,
    /// Arguments of the agent.
    pub(crate) arguments: String,
    /// Process id of the agent.
    pub(crate) agent_pid: String,
}

/// End of a proxy.
pub(crate) struct ProxyExit {
    pub(crate) status: ExitStatus,
    /// What the client had not read.
    pub(crate) lines: Vec<String>,
    pub(crate) notices: String,
}

impl ProxiedAgent {
    /// Writes the program of an agent into `folder`, and returns its path.
    pub(crate) fn write_program(folder: &Path) -> String {
        fs::create_dir_all(folder).unwrap();
        for name in ["to-proxy", "to-test"] {
            let _ = fs::remove_file(folder.join(name));
            mkfifo(&folder.join(name), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        }
        let _ = fs::remove_file(folder.join("pid"));
        let program = folder.join("agent");
        fs::write(&program, PROGRAM).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        program.to_str().unwrap().to_owned()
    }

    /// Starts `countersign` with these arguments, which start the program in `folder`.
    pub(crate) fn start(place: &GatewayFixture, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = place.binary_command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let client_input = process.stdin.take();
        let client = process.stdout.take().map(Lines::read);
        let notices = process.stderr.take().map(Lines::read);
        // Opened for both, so that no open waits for the other side.
        let open = |name: &str| File::options().read(true).write(true).open(folder.join(name)).unwrap();
        let (agent_output, agent) = (open("to-proxy"), Lines::read(open("to-test")));
        let agent_pid = eventually("the process of the agent", || {
            fs::read_to_string(folder.join("pid")).ok().filter(|pid| pid.ends_with('\n'))
        });
        let arguments = fs::read_to_string(folder.join("arguments")).unwrap().trim().to_owned();
        let agent_pid = agent_pid.trim().to_owned();
        Self { process, client_input, client, agent_output, agent, notices, arguments, agent_pid }
    }

    /// Sends a line of the client.
    pub(crate) fn client_sends(&mut self, line: &impl ToString) {
        writeln!(self.client_input.as_mut().unwrap(), "{}", line.to_string()).unwrap();
    }

    /// Sends a line of the agent.
    pub(crate) fn agent_sends(&mut self, line: &impl ToString) {
        writeln!(self.agent_output, "{}", line.to_string()).unwrap();
    }

    /// Returns the client's next message.
    pub(crate) fn client_reads(&self) -> Value {
        self.client.as_ref().unwrap().next()
    }

    /// Waits for a notice that contains `text`.
    pub(crate) fn wait_notice(&self, text: &str) -> String {
        let notices = self.notices.as_ref().unwrap();
        loop {
            let line = notices.next_line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Closes the client's side, and waits for the end.
    pub(crate) fn leave(mut self) -> ProxyExit {
        drop(self.client_input.take());
        self.wait_end()
    }

    /// Waits for the end.
    pub(crate) fn wait_end(mut self) -> ProxyExit {
        let lines = self.client.take().unwrap().rest();
        let notices = self.notices.take().unwrap().rest().join("\n");
        ProxyExit { status: self.process.wait().unwrap(), lines, notices }
    }

    /// Kills the agent.
    pub(crate) fn kill_agent(&self) {
        let pid = self.agent_pid.parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    /// Kills the proxy.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
