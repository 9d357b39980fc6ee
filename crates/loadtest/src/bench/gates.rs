//! Gates of workflows: how long until a host sees one, and until its answer has the run continue.

use std::{fs::File, io::Write as _, path::Path, time::Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    bench::{figure::median, to_millis},
    fixture::{host::HostProcess, provider::ProviderStub, scratch::ScratchFolder},
};

const ROUNDS: usize = 60;
/// Minimum that a log writes for one commit, in bytes.
const PAGE: usize = 4096;
const FLAGS: [&str; 3] = ["gjc", "--mode", "rpc"];
const AGENT_DIR: &str = "GJC_CODING_AGENT_DIR";

/// Medians over the rounds, in milliseconds.
pub(crate) struct GateFigures {
    /// From the moment in which the model's answer is written to the frame of the gate that it wants, the record included.
    pub(crate) raised: f64,
    /// From the answer to the end of the call that waited, the record included.
    pub(crate) answered: f64,
    /// One write to the disk.
    pub(crate) raw: f64,
}

fn negotiate_unattended(host: &mut HostProcess) -> anyhow::Result<()> {
    let budget = json!({
        "max_tokens": 1_000_000_000, "max_tool_calls": 1_000_000, "max_wall_time_ms": 3_600_000, "max_cost_usd": 1_000,
    });
    let declaration = json!({
        "actor": "bench", "budget": budget, "scopes": ["message:read"], "action_allowlist": ["command.message_read"],
    });
    host.send_and_wait("negotiate_unattended", &[("declaration", declaration)])
}

pub(crate) fn measure(binary: &Path) -> anyhow::Result<GateFigures> {
    let provider = ProviderStub::start_with_call("workflow_plan", "{\"plan\":\"Move it.\"}")?;
    let scratch = ScratchFolder::with_agent(&provider.base_url())?;
    let mut host = HostProcess::spawn_as(binary, &scratch, &FLAGS, AGENT_DIR)?;
    negotiate_unattended(&mut host)?;
    let mut file = File::create(scratch.path().join("raw"))?;
    let (mut raised, mut answered, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        host.send_command("prompt", &[("message", json!("Move it."))])?;
        let gate: Value = host.read_until("\"workflow_gate\"")?;
        let seen = Instant::now();
        let written = provider.last_written().context("the model received no request")?;
        raised.push(to_millis(seen.duration_since(written)));
        let begun = Instant::now();
        let answer = json!({ "decision": "approve" });
        host.send_command("workflow_gate_response", &[("gate_id", gate["gate_id"].clone()), ("answer", answer)])?;
        host.read_until("\"tool_execution_end\"")?;
        answered.push(to_millis(begun.elapsed()));
        host.read_until("\"agent_end\"")?;
        let begun = Instant::now();
        file.write_all(&[7; PAGE])?;
        file.sync_data()?;
        raw.push(to_millis(begun.elapsed()));
    }
    host.end_process()?;
    let nothing = "nothing was measured";
    Ok(GateFigures {
        raised: median(raised).context(nothing)?,
        answered: median(answered).context(nothing)?,
        raw: median(raw).context(nothing)?,
    })
}
