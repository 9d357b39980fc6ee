//! A model that says everything at once: how long the run takes and how much of it reaches stdout.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::Path,
    time::Instant,
};

use anyhow::Context as _;
use serde_json::json;

use crate::{
    bench::{figure::median, to_millis},
    fixture::{host::HostProcess, provider::ProviderStub, scratch::ScratchFolder},
};

const DELTAS: usize = 5_000;
const ROUNDS: usize = 5;

/// Medians over the rounds.
pub(crate) struct BurstFigures {
    pub(crate) millis: f64,
    /// The same stream read from the same provider over a bare connection.
    pub(crate) raw_millis: f64,
    pub(crate) bytes_per_byte: f64,
}

pub(crate) fn measure(binary: &Path) -> anyhow::Result<BurstFigures> {
    let deltas: Vec<String> = (0..DELTAS).map(|number| format!("word {number:04} ")).collect();
    let text: usize = deltas.iter().map(String::len).sum();
    let provider = ProviderStub::start(deltas)?;
    let scratch = ScratchFolder::with_agent(&provider.base_url())?;
    let mut host = HostProcess::spawn(binary, &scratch)?;
    host.send_and_wait("get_state", &[])?;
    let (mut took, mut ratios, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let before = host.bytes_read();
        host.send_command("prompt", &[("message", json!("Say it all."))])?;
        host.read_event("agent_end")?;
        took.push(to_millis(begun.elapsed()));
        ratios.push(byte_ratio(host.bytes_read() - before, text));
        // The settled event and the next state must not fall into the next round.
        host.send_and_wait("get_state", &[])?;
        raw.push(raw_read(&provider)?);
    }
    host.end_process()?;
    let nothing = "nothing was measured";
    Ok(BurstFigures {
        millis: median(took).context(nothing)?,
        raw_millis: median(raw).context(nothing)?,
        bytes_per_byte: median(ratios).context(nothing)?,
    })
}

fn raw_read(provider: &ProviderStub) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(provider.address())?;
    stream.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local\r\ncontent-length: 2\r\n\r\n{}")?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(to_millis(begun.elapsed()))
}

#[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
fn byte_ratio(bytes: usize, text: usize) -> f64 {
    bytes as f64 / text as f64
}
