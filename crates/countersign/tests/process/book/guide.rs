//! A page as a guide: its files are written, its commands run one after the other in one shell.

use std::{
    io::Write as _,
    net::TcpListener,
    process::{Command, Stdio},
};

use super::{FencedBlock, blocks, docs};
use countersign_testkit::process::{GatewayFixture, binary_path};

/// Wait of a script for output that a reader sees.
const READY: &str = "until grep -q 'countersign ready' ready; do kill -0 $GATEWAY; done\n";
const CONNECTED: &str = "until grep -q ' connected to ' joined; do kill -0 $NODE; done\n";

pub(super) struct GuideFixture {
    pub(super) place: GatewayFixture,
    port: u16,
    page: String,
    script: String,
}

/// Result of following it.
pub(super) struct GuideOutput {
    pub(super) out: String,
    pub(super) err: String,
}

impl GuideFixture {
    pub(super) fn of(page: &str) -> Self {
        Self::within(page, GatewayFixture::new())
    }

    /// Creates the same in a place that is emptied.
    pub(super) fn within(page: &str, place: GatewayFixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let page = std::fs::read_to_string(docs().join(page)).unwrap();
        let script = "set -e\nend() { kill $GATEWAY $NODE; }; GATEWAY= NODE=\n".to_owned();
        // A reader begins with nothing.
        for file in std::fs::read_dir(&place.folder).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        Self { place, port, page, script }
    }

    /// Follows the page from its top; `text` changes what cannot be had here in a block.
    pub(super) fn follow(mut self, text: &dyn Fn(&Self, &str) -> String, input: &str) -> (Self, GuideOutput) {
        for FencedBlock { head, body, .. } in
            blocks(&self.page.clone()).into_iter().filter(|block| block.why_not.is_none())
        {
            let body = text(&self, &body).replace("127.0.0.1:8443", &format!("127.0.0.1:{}", self.port));
            match head.split_once(' ') {
                Some(("yaml", "config.yaml")) => {
                    let port = format!("gateway: {{ port: {} }}\n", self.port);
                    drop(self.place.write_file("config.yaml", &(port + &body)));
                }
                Some((_, "check" | "rules")) => {}
                Some(("yaml" | "python", name)) => drop(self.place.write_file(name, &body)),
                _ => {
                    assert_eq!(head.split(' ').next(), Some("sh"), "a block that nothing is done with: {body}");
                    self.script += &match body.trim_end() {
                        serve if serve.starts_with("countersign serve ") && serve.ends_with(" &") => {
                            format!("{}> ready & GATEWAY=$!; trap end EXIT\n{READY}", serve.trim_end_matches('&'))
                        }
                        node if node.starts_with("countersign node ") && node.ends_with(" &") => {
                            format!("{}> joined 2>&1 & NODE=$!\n{CONNECTED}", node.trim_end_matches('&'))
                        }
                        plain => format!("{plain}\n"),
                    };
                }
            }
        }
        let followed = self.run(input);
        (self, followed)
    }

    fn run(&self, input: &str) -> GuideOutput {
        let binaries = binary_path().parent().unwrap();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-c", &self.script]).current_dir(&self.place.folder).env("PATH", path);
        command.env("HOME", &self.place.folder).env_remove("XDG_DATA_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let followed = GuideOutput {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert!(output.status.success(), "{}\n{}\n{}", self.script, followed.out, followed.err);
        followed
    }
}
