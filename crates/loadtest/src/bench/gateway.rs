//! `countersign serve` as a process, with one agent, one service on loopback and, if wanted, a Bot API there too.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::Context as _;
use nix::sys::signal::Signal;

use crate::bench::{
    scratch::Scratch,
    socket::TOKEN,
    telephone::{CHAT, PERSON},
    web,
};

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules: [ { pattern: "look(*", action: allow } ]
"#;

const TOOLS: &str = r#"
tools:
  look:
    signature: "{thing}"
    args: { thing: { required: true, validate: "^[a-z0-9_.]+$" } }
    request: { method: GET, path: "/look/{thing}" }
  turn:
    signature: "{thing}"
    args: { thing: { required: true } }
    request: { method: POST, path: "/turn/{thing}" }
"#;

/// How many requests of the agent may wait.
pub(crate) const MANY_PENDING: usize = 10_000;

/// The running process. Dropped, it is killed.
pub(crate) struct Gateway {
    child: Child,
    /// Such as `127.0.0.1:4711`.
    pub(crate) address: String,
    /// The folder, until another process takes it over.
    scratch: Option<Scratch>,
}

impl Gateway {
    /// Starts one and waits until it says that it is ready.
    pub(crate) fn start(binary: &Path, service: SocketAddr, telephone: Option<SocketAddr>) -> anyhow::Result<Self> {
        Self::start_in(binary, Scratch::new("gateway")?, &config(service, telephone), RULES)
    }

    /// Starts one with this configuration and these rules, in a folder of its own.
    pub(crate) fn start_in(binary: &Path, scratch: Scratch, config: &str, rules: &str) -> anyhow::Result<Self> {
        write(scratch.path(), "config.yaml", config)?;
        write(scratch.path(), "permissions.yaml", rules)?;
        write(scratch.path(), "tools.yaml", TOOLS)?;
        Self::run(binary, scratch)
    }

    /// Ends it as a clean stop does, and starts one on the same data.
    pub(crate) fn again(self, binary: &Path) -> anyhow::Result<Self> {
        self.signal(Signal::SIGTERM)?;
        Self::run(binary, self.ended()?.1)
    }

    /// Kills it, and starts one on the same data.
    pub(crate) fn again_after_kill(self, binary: &Path) -> anyhow::Result<Self> {
        self.signal(Signal::SIGKILL)?;
        Self::run(binary, self.ended()?.1)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id().cast_signed()), signal)?)
    }

    /// Waits until it has ended, however it did, and gives its folder back.
    pub(crate) fn ended(mut self) -> anyhow::Result<(ExitStatus, Scratch)> {
        let status = self.child.wait()?;
        Ok((status, self.scratch.take().context("it has no folder")?))
    }

    /// Starts one on what is in a folder.
    pub(crate) fn run(binary: &Path, scratch: Scratch) -> anyhow::Result<Self> {
        let mut child = Command::new(binary)
            .args(["serve", "--config", "config.yaml"])
            .current_dir(scratch.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} could not be started", binary.display()))?;
        let stdout = child.stdout.take();
        let mut gateway = Self { child, address: String::new(), scratch: Some(scratch) };
        let mut line = String::new();
        BufReader::new(stdout.context("no standard output")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("countersign ready on http://");
        gateway.address = address.with_context(|| format!("it did not start: {line:?}"))?.to_owned();
        Ok(gateway)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service that answers at once and always the same.
pub(crate) fn service() -> anyhow::Result<SocketAddr> {
    web::serve(|_| r#"{"state":"on","attributes":{"brightness":120}}"#.to_owned())
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?)
}

fn config(service: SocketAddr, telephone: Option<SocketAddr>) -> String {
    let messenger = telephone.map_or_else(String::new, |address| {
        format!(
            "messenger:\n  type: telegram\n  telegram: {{ token: \"1:bench\", chat_id: {CHAT}, \
             allowed_users: [{PERSON}], api_url: \"http://{address}\" }}\n"
        )
    });
    format!(
        "{}agent: {{ token: {TOKEN} }}\nrate_limit: {{ max_requests_per_minute: 1000000000, max_pending_approvals: {MANY_PENDING} }}\n{messenger}",
        desk(service)
    )
}

/// Where it listens, and the one service with its tools.
pub(crate) fn desk(service: SocketAddr) -> String {
    format!(
        "gateway: {{ host: 127.0.0.1, port: 0 }}
services:
  desk: {{ url: \"http://{service}\", auth: {{ type: bearer, token: secret-of-the-bench }}, tools: tools.yaml }}
"
    )
}
