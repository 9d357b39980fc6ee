//! Machines around the gateway: nodes whose tools are called, and hosts of coding agents whose sessions live in it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use serde_json::{Value, json};

use crate::{
    bench::node::{NodeProcess, next_frame, request_frame},
    fixture::{host::HostProcess, scratch::ScratchFolder, socket::TextSocket},
    load::tally::{ActivityKind, LoadTally},
};

/// Maximum wait for a start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two calls of a node, and between two prompts of a host.
const CALLS: Duration = Duration::from_millis(200);
const PROMPTS: Duration = Duration::from_secs(2);

/// Calls a tool of a node of its own until the load is over.
pub(crate) fn run_node(binary: &Path, address: &str, number: usize, tally: &LoadTally) {
    if let Err(error) = call_node(binary, address, &format!("node{number}"), tally) {
        tally.record_failure(format!("a node failed: {error:#}"));
    }
}

fn call_node(binary: &Path, address: &str, name: &str, tally: &LoadTally) -> anyhow::Result<()> {
    let mut client = TextSocket::connect_to(address, "/ws")?;
    let mut id = 0;
    let mut ask = |method: &str, params: &Value| {
        id += 1;
        let request_id = id.to_string();
        client.send_text(request_frame(id, method, params))?;
        next_frame(&mut client, |frame| frame["type"] == "res" && frame["id"].as_str() == Some(&request_id))
    };
    let me = json!({ "minProtocol": 1, "client": { "id": format!("load-{name}"), "mode": "client" } });
    if ask("connect", &me)?["ok"] != true {
        bail!("the client of the node was not authenticated");
    }
    let _node = NodeProcess::start(binary, address, name)?;
    let call = json!({ "tool": format!("{name}__Read"), "args": { "path": "file" } });
    let begun = Instant::now();
    while ask("tool.invoke", &call)?["ok"] != true {
        if begun.elapsed() > PATIENCE {
            bail!("the tools of the node are not available at the gateway");
        }
        std::thread::sleep(CALLS);
    }
    while !tally.is_over() {
        let begun = Instant::now();
        let answer = ask("tool.invoke", &call)?;
        if answer["payload"]["result"]["lines"] == 3 {
            tally.record_success(ActivityKind::Node, begun.elapsed());
        } else {
            tally.record_failure(format!("a call of a node returned {}", answer["error"]["message"]));
        }
        std::thread::sleep(CALLS);
    }
    Ok(())
}

/// Settings with which hosts are started.
#[derive(Clone)]
pub(crate) struct AttachedHostSettings {
    pub(crate) binary: PathBuf,
    /// The data directory of the gateway in which their sessions live.
    pub(crate) data: PathBuf,
    /// Address of their model.
    pub(crate) base_url: String,
}

/// Prompts in a session of its own until the load is over.
pub(crate) fn run_host(hosting: &AttachedHostSettings, tally: &Arc<LoadTally>) {
    if let Err(error) = run_prompts(hosting, tally) {
        tally.record_failure(format!("a host failed: {error:#}"));
    }
}

fn run_prompts(hosting: &AttachedHostSettings, tally: &LoadTally) -> anyhow::Result<()> {
    let scratch = ScratchFolder::with_agent(&hosting.base_url)?;
    let attach = format!("--attach={}", hosting.data.display());
    let flags = ["omp", "--mode", "rpc", "--no-title", "--model", "local/small-1", &attach];
    let mut host = HostProcess::spawn_as(&hosting.binary, &scratch, &flags, "PI_CODING_AGENT_DIR")?;
    host.send_and_wait("get_state", &[])?;
    while !tally.is_over() {
        let begun = Instant::now();
        host.send_command("prompt", &[("message", json!("What is here?"))])?;
        host.read_event("agent_end")?;
        tally.record_success(ActivityKind::Host, begun.elapsed());
        std::thread::sleep(PROMPTS);
    }
    host.end_process()
}
