//! Machines beside the gateway: nodes whose tools are called, and hosts of coding agents whose sessions live in it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use serde_json::{Value, json};

use crate::{
    bench::node::{Node, next, request},
    fixture::{host::Host, scratch::Scratch, socket::Socket},
    load::tally::{Row, Tally},
};

/// How long anything is waited for that starts.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two calls of a node, and between two prompts of a host.
const CALLS: Duration = Duration::from_millis(200);
const PROMPTS: Duration = Duration::from_secs(2);

/// Calls a tool of a node of its own until the load is over.
pub(crate) fn node(binary: &Path, address: &str, number: usize, tally: &Tally) {
    if let Err(error) = call_node(binary, address, &format!("node{number}"), tally) {
        tally.wrong(format!("a node was lost: {error:#}"));
    }
}

fn call_node(binary: &Path, address: &str, name: &str, tally: &Tally) -> anyhow::Result<()> {
    let mut client = Socket::connect_to(address, "/ws")?;
    let mut id = 0;
    let mut ask = |method: &str, params: &Value| {
        id += 1;
        let wanted = id.to_string();
        client.send(request(id, method, params))?;
        next(&mut client, |frame| frame["type"] == "res" && frame["id"].as_str() == Some(&wanted))
    };
    let me = json!({ "minProtocol": 1, "client": { "id": format!("load-{name}"), "mode": "client" } });
    if ask("connect", &me)?["ok"] != true {
        bail!("its client was not let in");
    }
    let _node = Node::start(binary, address, name)?;
    let call = json!({ "tool": format!("{name}__Read"), "args": { "path": "file" } });
    let begun = Instant::now();
    while ask("tool.invoke", &call)?["ok"] != true {
        if begun.elapsed() > PATIENCE {
            bail!("the gateway has no tools of it");
        }
        std::thread::sleep(CALLS);
    }
    while !tally.is_over() {
        let begun = Instant::now();
        let answer = ask("tool.invoke", &call)?;
        if answer["payload"]["result"]["lines"] == 3 {
            tally.did(Row::Node, begun.elapsed());
        } else {
            tally.wrong(format!("a call of a node got {}", answer["error"]["message"]));
        }
        std::thread::sleep(CALLS);
    }
    Ok(())
}

/// What hosts are started with.
#[derive(Clone)]
pub(crate) struct Hosting {
    pub(crate) binary: PathBuf,
    /// The data directory of the gateway in which their sessions live.
    pub(crate) data: PathBuf,
    /// Where their model is.
    pub(crate) base_url: String,
}

/// Prompts in a session of its own until the load is over.
pub(crate) fn host(hosting: &Hosting, tally: &Arc<Tally>) {
    if let Err(error) = prompt(hosting, tally) {
        tally.wrong(format!("a host was lost: {error:#}"));
    }
}

fn prompt(hosting: &Hosting, tally: &Tally) -> anyhow::Result<()> {
    let scratch = Scratch::with_agent(&hosting.base_url)?;
    let attach = format!("--attach={}", hosting.data.display());
    let flags = ["omp", "--mode", "rpc", "--no-title", "--model", "local/small-1", &attach];
    let mut host = Host::spawn_as(&hosting.binary, &scratch, &flags, "PI_CODING_AGENT_DIR")?;
    host.ask("get_state", &[])?;
    while !tally.is_over() {
        let begun = Instant::now();
        host.send("prompt", &[("message", json!("What is here?"))])?;
        host.read_event("agent_end")?;
        tally.did(Row::Host, begun.elapsed());
        std::thread::sleep(PROMPTS);
    }
    host.end()
}
