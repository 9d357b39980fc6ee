//! A call of a tool of our own node: its time through the gateway, compared with the node's own time.
//!
//! The node's own time is that of the same call from a gateway that records nothing and answers at once.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{
    bench::{figure::median, to_millis},
    fixture::{
        gateway::{self, GatewayProcess},
        scratch::ScratchFolder,
        socket::TextSocket,
    },
};

/// Number of measured calls, after as many that are not.
const CALLS: usize = 300;

/// Medians in milliseconds.
pub(crate) struct NodeCallFigures {
    /// Additional time of a call through the gateway.
    pub(crate) over: f64,
    /// Time of a call at the node.
    pub(crate) own: f64,
}

/// Measures a call that reads a small file.
pub(crate) fn measure(binary: &Path) -> anyhow::Result<NodeCallFigures> {
    let own = time_alone(binary)?;
    let through = time_through_gateway(binary)?;
    Ok(NodeCallFigures { over: through - own, own })
}

/// A node's process. Dropped, it is killed.
pub(crate) struct NodeProcess {
    child: Child,
    _scratch: ScratchFolder,
}

impl NodeProcess {
    /// Starts one under this name, with a file of three lines in its workspace.
    pub(crate) fn start(binary: &Path, address: &str, name: &str) -> anyhow::Result<Self> {
        let scratch = ScratchFolder::new("node")?;
        std::fs::create_dir(scratch.path().join("work"))?;
        std::fs::write(scratch.path().join("work/file"), "one\ntwo\nthree\n")?;
        let child = Command::new(binary)
            .args(["node", "--url", &format!("ws://{address}/ws"), "--id", name, "--workspace", "work"])
            .args(["--data", "data"])
            .current_dir(scratch.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        Ok(Self { child, _scratch: scratch })
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a request of a client of the gsv adapter.
pub(crate) fn request_frame(id: usize, method: &str, params: &Value) -> String {
    json!({ "type": "req", "id": id.to_string(), "method": method, "params": params }).to_string()
}

/// Returns the next frame for which `fits` is true.
pub(crate) fn next_frame(socket: &mut TextSocket, fits: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    loop {
        let frame: Value = serde_json::from_str(&socket.read_text()?)?;
        if fits(&frame) {
            return Ok(frame);
        }
    }
}

/// Returns the median of so many calls, as `call` makes them.
fn median_call(mut call: impl FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut took = Vec::with_capacity(CALLS);
    for number in 0..CALLS * 2 {
        let begun = Instant::now();
        call(number)?;
        if number >= CALLS {
            took.push(to_millis(begun.elapsed()));
        }
    }
    median(took).context("nothing was measured")
}

fn time_alone(binary: &Path) -> anyhow::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let _node = NodeProcess::start(binary, &listener.local_addr()?.to_string(), "desk")?;
    let mut socket = TextSocket::accept(&listener)?;
    let ok =
        |id: &Value, payload: Value| json!({ "type": "res", "id": id, "ok": true, "payload": payload }).to_string();
    let hello = next_frame(&mut socket, |frame| frame["method"] == "connect")?;
    socket.send_text(ok(&hello["id"], json!({ "type": "hello-ok", "protocol": 1 })))?;
    median_call(|number| {
        let call = json!({ "callId": format!("c{number}"), "tool": "Read", "args": { "path": "file" } });
        socket.send_text(json!({ "type": "evt", "event": "tool.invoke", "payload": call }).to_string())?;
        let result = next_frame(&mut socket, |frame| frame["method"] == "tool.result")?;
        if result["params"]["result"]["lines"] != 3 {
            bail!("expected a result, got {result}");
        }
        socket.send_text(ok(&result["id"], json!({ "ok": true })))
    })
}

fn time_through_gateway(binary: &Path) -> anyhow::Result<f64> {
    let gateway = GatewayProcess::start(binary, gateway::start_service()?, None)?;
    let mut client = TextSocket::connect_to(&gateway.address, "/ws")?;
    let connect = json!({ "minProtocol": 1, "client": { "id": "bench", "mode": "client" } });
    let mut ask = |id: usize, method: &str, params: &Value| {
        client.send_text(request_frame(id, method, params))?;
        next_frame(&mut client, |frame| frame["type"] == "res" && frame["id"].as_str() == Some(&*id.to_string()))
    };
    ask(0, "connect", &connect)?;
    let _node = NodeProcess::start(binary, &gateway.address, "desk")?;
    let mut id = 0;
    let params = json!({ "tool": "desk__Read", "args": { "path": "file" } });
    let patience = Instant::now();
    while ask(id, "tool.invoke", &params)?["ok"] != true {
        id += 1;
        if patience.elapsed().as_secs() > 20 {
            bail!("the tools of the node are not available at the gateway");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    median_call(|number| {
        let answer = ask(id + 1 + number, "tool.invoke", &params)?;
        if answer["payload"]["result"]["lines"] != 3 {
            bail!("expected a result, got {answer}");
        }
        Ok(())
    })
}
