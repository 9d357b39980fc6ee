//! A host that lends a tool and answers at once: what a call costs beyond the pipe that it goes through.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    bench::{figure::median, to_millis},
    fixture::{host::HostProcess, provider::ProviderStub, scratch::ScratchFolder},
};

const ROUNDS: usize = 60;

/// Medians over the rounds.
pub(crate) struct HostToolFigures {
    /// From a call, as the host reads it and answers at once, to its end, less the raw pipe's.
    pub(crate) millis: f64,
    /// A line through `cat` and back.
    pub(crate) raw_millis: f64,
}

pub(crate) fn measure(binary: &Path) -> anyhow::Result<HostToolFigures> {
    let provider = ProviderStub::start_with_call("look_up", "{\"id\":1,\"_i\":\"looking\"}")?;
    let scratch = ScratchFolder::with_agent(&provider.base_url())?;
    let mut host =
        HostProcess::spawn_as(binary, &scratch, &["gjc", "--mode", "rpc", "--no-session"], "GJC_CODING_AGENT_DIR")?;
    let tool = json!({"name": "look_up", "description": "Looks up", "parameters": {"type": "object"}});
    host.send_and_wait("set_host_tools", &[("tools", json!([tool]))])?;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        host.send_command("prompt", &[("message", json!("Look it up."))])?;
        let call: Value = host.read_until("\"host_tool_call\"")?;
        let begun = Instant::now();
        let result = json!({ "content": [{ "type": "text", "text": "row" }] });
        host.write_frame(&json!({ "type": "host_tool_result", "id": call["id"], "result": result }))?;
        host.read_until("\"tool_execution_end\"")?;
        took.push(to_millis(begun.elapsed()));
        host.read_until("\"agent_end\"")?;
    }
    host.end_process()?;
    let raw = median(time_raw_pipe()?).context("nothing was measured")?;
    let took = median(took).context("nothing was measured")?;
    Ok(HostToolFigures { millis: (took - raw).max(0.0), raw_millis: raw })
}

fn time_raw_pipe() -> anyhow::Result<Vec<f64>> {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run cat")?;
    let mut input = cat.stdin.take().context("no standard input")?;
    let mut output = BufReader::new(cat.stdout.take().context("no standard output")?);
    let mut line = String::new();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        input.write_all(b"{\"type\":\"host_tool_call\",\"id\":\"0123456789abcdef\",\"toolName\":\"look_up\"}\n")?;
        line.clear();
        output.read_line(&mut line)?;
        took.push(to_millis(begun.elapsed()));
    }
    drop(input);
    cat.wait()?;
    Ok(took)
}
