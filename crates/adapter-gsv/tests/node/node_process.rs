//! Process of a node, and its folders.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use countersign_testkit::process::{WAIT_TIMEOUT, binary_path};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use crate::fake_gateway::{FakeConnection, FakeGateway};

/// Token that nodes show.
pub(crate) const TOKEN: &str = "tok-node-4c1d";

/// Machine.
pub(crate) struct NodeFixture {
    _root: TempDir,
    pub(crate) folder: PathBuf,
}

impl NodeFixture {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().canonicalize().unwrap();
        fs::create_dir(folder.join("work")).unwrap();
        let place = Self { _root: root, folder };
        place.write("token", &format!("{TOKEN}\n"));
        place
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// Returns a path in the workspace.
    pub(crate) fn workspace_path(&self, name: &str) -> String {
        self.folder.join("work").join(name).display().to_string()
    }

    /// Returns the command line, with a clean home.
    pub(crate) fn command(&self, url: &str, more: &[&str]) -> Command {
        let mut command = Command::new(binary_path());
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &self.folder)
            .env("SHELL", "/bin/sh")
            .env("COLOUR", "blue")
            .args(["node", "--url", url, "--id", "desk", "--workspace", "work", "--data", "data"])
            .args(more);
        command
    }

    pub(crate) fn start(&self, gateway: &FakeGateway) -> SpawnedNode {
        SpawnedNode::spawn(self.command(&gateway.url(), &["--token-file", "token"]))
    }

    /// Starts a node, and returns it with its connection.
    pub(crate) fn start_connected(&self, gateway: &FakeGateway) -> (SpawnedNode, FakeConnection) {
        let node = self.start(gateway);
        let line = gateway.accept();
        (node, line)
    }
}

type NoticeBuffer = Arc<(Mutex<String>, Condvar)>;

/// Exit of a node.
#[derive(Debug)]
pub(crate) struct NodeExit {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

/// Process.
pub(crate) struct SpawnedNode {
    child: Child,
    notices: NoticeBuffer,
    reader: Option<thread::JoinHandle<()>>,
}

impl SpawnedNode {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let notices = NoticeBuffer::default();
        let writer = Arc::clone(&notices);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let reader = thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|count| count > 0) {
                writer.0.lock().unwrap().push_str(&std::mem::take(&mut line));
                writer.1.notify_all();
            }
        });
        Self { child, notices, reader: Some(reader) }
    }

    /// Returns the first line on stdout.
    pub(crate) fn ready(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits until this text is on stderr.
    pub(crate) fn wait_for_notice(&self, text: &str) {
        let notices = self.notices.0.lock().unwrap();
        let (notices, over) =
            self.notices.1.wait_timeout_while(notices, WAIT_TIMEOUT, |notices| !notices.contains(text)).unwrap();
        assert!(!over.timed_out(), "it did not say {text:?}, but: {notices}");
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn terminate(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn end(&mut self) -> NodeExit {
        let code = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        NodeExit { code, stderr: self.notices.0.lock().unwrap().clone() }
    }
}

impl Drop for SpawnedNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
