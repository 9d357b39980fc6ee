//! Gateway next to a host that attaches its sessions to it.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::process::{
    FramePosition, GatewayFixture, GatewayServer, HostFixture, RpcHost,
    provider::{ProviderReply, bash_part, text_reply},
};

/// Gateway on the same machine as a host, with a folder of its own below the host's home.
pub struct AttachFixture {
    /// Folders of the host.
    pub host: HostFixture,
    /// Folder of the gateway.
    pub gateway: GatewayFixture,
}

impl AttachFixture {
    /// Creates one in which every call of `bash` asks.
    pub fn new() -> Self {
        Self::with_config("")
    }

    /// Creates the same with more lines in the gateway's configuration.
    pub fn with_config(config: &str) -> Self {
        Self::for_host(HostFixture::with_ask_rule(), config)
    }

    /// Creates a gateway next to `host`, with more lines in its configuration.
    pub fn for_host(host: HostFixture, config: &str) -> Self {
        let gateway = GatewayFixture::new_bare(&host.home.join("gate"), config);
        Self { host, gateway }
    }

    /// Starts the gateway.
    pub fn start_gateway(&self) -> GatewayServer {
        self.gateway.start()
    }

    /// Returns the flag that attaches a host to the gateway.
    pub fn attach_flag(&self) -> String {
        format!("--attach={}", self.gateway.data_dir().display())
    }

    /// Starts an omp host whose session lives in the gateway.
    pub fn start_host(&self, flags: &[&str]) -> RpcHost {
        self.host.start(&[&[self.attach_flag().as_str()], flags].concat())
    }

    /// Returns the stderr of an omp host that cannot start with these flags.
    pub fn refuse_host(&self, flags: &[&str]) -> String {
        let flags = [&["--model", "fake/fake-1"], flags].concat();
        let end = RpcHost::spawn(RpcHost::omp_command(&self.host, &flags)).wait_end();
        assert_eq!((end.code, end.frames.len()), (Some(1), 0), "{end:?}");
        end.stderr
    }

    /// Returns the files of the agent directory that name the gateway in which a session lives.
    pub fn home_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.host.agent.join("countersign")).into_iter().flatten().flatten();
        let homes =
            files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|found| found == "home"));
        homes.collect()
    }

    /// Has the model call a command and then end. Returns the dialog about it.
    pub fn ask_about(&self, host: &mut RpcHost, command: &str) -> (FramePosition, Value) {
        self.host.provider.script_replies([ProviderReply::new(vec![bash_part("k", command)]), text_reply("done")]);
        let from = host.send_prompt("go");
        (from, host.wait_dialog(from))
    }
}

impl Default for AttachFixture {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the id of the session of `host`.
pub fn session_id(host: &mut RpcHost) -> String {
    host.session_state()["sessionId"].as_str().unwrap().to_owned()
}
