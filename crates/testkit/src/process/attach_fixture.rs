//! A gateway beside a host that attaches its sessions to it.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::process::{
    Gateway, GatewayFixture, HostFixture, Mark, RpcHost,
    provider::{Reply, bash, say},
};

/// A gateway on the same machine as a host, with a folder of its own below the host's home.
pub struct AttachFixture {
    /// The folders of the host.
    pub host: HostFixture,
    /// The folder of the gateway.
    pub gateway: GatewayFixture,
}

impl AttachFixture {
    /// Creates one in which every call of `bash` asks.
    pub fn new() -> Self {
        Self::with("")
    }

    /// Creates the same with more lines in the gateway's configuration.
    pub fn with(config: &str) -> Self {
        Self::beside(HostFixture::asking(), config)
    }

    /// Creates a gateway beside `host`, with more lines in its configuration.
    pub fn beside(host: HostFixture, config: &str) -> Self {
        let gateway = GatewayFixture::bare(&host.home.join("gate"), config);
        Self { host, gateway }
    }

    /// Starts the gateway.
    pub fn start_gateway(&self) -> Gateway {
        self.gateway.start()
    }

    /// Returns the flag that attaches a host to the gateway.
    pub fn attach_flag(&self) -> String {
        format!("--attach={}", self.gateway.data().display())
    }

    /// Starts an omp host whose session lives in the gateway.
    pub fn start_host(&self, flags: &[&str]) -> RpcHost {
        self.host.start(&[&[self.attach_flag().as_str()], flags].concat())
    }

    /// Returns what an omp host writes to stderr that cannot start with these flags.
    pub fn refuse_host(&self, flags: &[&str]) -> String {
        let flags = [&["--model", "fake/fake-1"], flags].concat();
        let end = RpcHost::spawn(RpcHost::command_of(&self.host, &flags)).wait_end();
        assert_eq!((end.code, end.frames.len()), (Some(1), 0), "{end:?}");
        end.stderr
    }

    /// Returns the files of the agent directory that name the gateway in which a session lives.
    pub fn homes(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.host.agent.join("countersign")).into_iter().flatten().flatten();
        let homes =
            files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|found| found == "home"));
        homes.collect()
    }

    /// Has the model want a command and then be done. Returns the dialog about it.
    pub fn ask_about(&self, host: &mut RpcHost, command: &str) -> (Mark, Value) {
        self.host.provider.script([Reply::new(vec![bash("k", command)]), say("done")]);
        let from = host.prompt("go");
        (from, host.dialog(from))
    }
}

impl Default for AttachFixture {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the id of the session of `host`.
pub fn session_id(host: &mut RpcHost) -> String {
    host.state()["sessionId"].as_str().unwrap().to_owned()
}
