//! Time and memory from a long session file to the answer of `get_state`: of a file that the program has never seen, so all of it goes
//! into a log.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    path::Path,
    time::Instant,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    bench::{memory_bytes, to_mebibytes},
    fixture::{host::HostProcess, provider::ProviderStub, scratch::ScratchFolder},
};

/// Size of the long file in bytes, and that of the one it is compared with.
const LONG: u64 = 250_000_000;
const SHORT: u64 = LONG / 10;

/// Bytes of the results of tools, which they have by turns.
const RESULTS: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 48 << 10, 100 << 10];
/// Number of turns between two with a picture, and its size in base64.
const PICTURES: usize = 10;
const PICTURE: usize = 80_000;

/// What was measured of both files.
pub(crate) struct LongSessionFigures {
    pub(crate) long: OpenedSession,
    pub(crate) short: OpenedSession,
}

/// What was measured of one file.
pub(crate) struct OpenedSession {
    /// From the spawn to the answer of `get_state`.
    pub(crate) seconds: f64,
    /// The lines of the file, each read as JSON and dropped.
    pub(crate) raw_seconds: f64,
    /// Peak of resident memory.
    pub(crate) mebibytes: f64,
}

pub(crate) fn measure(binary: &Path) -> anyhow::Result<LongSessionFigures> {
    Ok(LongSessionFigures { long: measure_file(binary, LONG)?, short: measure_file(binary, SHORT)? })
}

fn measure_file(binary: &Path, size: u64) -> anyhow::Result<OpenedSession> {
    let provider = ProviderStub::start(Vec::new())?;
    let scratch = ScratchFolder::with_agent(&provider.base_url())?;
    let file = scratch.path().join("long.jsonl");
    write_session(&file, &scratch.work_dir(), size)?;
    let raw_seconds = time_raw_read(&file)?;
    let path = file.to_str().context("the temporary folder has no name in UTF-8")?;
    let arguments = ["omp", "--mode", "rpc", "--no-title", "--resume", path];
    let begun = Instant::now();
    let mut host = HostProcess::spawn_as(binary, &scratch, &arguments, "PI_CODING_AGENT_DIR")?;
    host.send_and_wait("get_state", &[])?;
    let seconds = begun.elapsed().as_secs_f64();
    let peak = memory_bytes(host.id(), "VmHWM:");
    host.end_process()?;
    Ok(OpenedSession { seconds, raw_seconds, mebibytes: to_mebibytes(peak?) })
}

fn time_raw_read(file: &Path) -> anyhow::Result<f64> {
    let mut reader = BufReader::with_capacity(1 << 18, File::open(file)?);
    let mut line = Vec::new();
    let begun = Instant::now();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let _: Box<serde_json::value::RawValue> = serde_json::from_slice(&line)?;
        line.clear();
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Writes a session of questions, calls, their results and answers, until the file has `size` bytes.
fn write_session(path: &Path, cwd: &Path, size: u64) -> anyhow::Result<()> {
    let mut file = SessionWriter { file: BufWriter::new(File::create(path)?), size: 0, entries: 0 };
    file.write_line(&json!({
        "type": "session", "version": 3, "id": "long", "timestamp": "2026-11-01T00:00:00.000Z", "cwd": cwd,
    }))?;
    let text = "fn main() {\n\tprintln!(\"a line of code\");\n}\n".repeat(3_000);
    for turn in 0.. {
        let mut question = vec![json!({ "type": "text", "text": "What is wrong here?" })];
        if turn % PICTURES == 0 {
            question.push(json!({ "type": "image", "data": "A".repeat(PICTURE), "mimeType": "image/png" }));
        }
        file.write_message(json!({ "role": "user", "content": question }))?;
        for (at, length) in RESULTS.into_iter().enumerate() {
            let id = format!("call_{turn}_{at}");
            let call =
                json!({ "type": "toolCall", "id": id, "name": "bash", "arguments": { "command": "cat main.rs" } });
            file.write_message(answer(&call, "toolUse"))?;
            file.write_message(json!({
                "role": "toolResult", "toolCallId": id, "toolName": "bash", "isError": false,
                "content": [{ "type": "text", "text": text[..length] }],
            }))?;
        }
        file.write_message(answer(&json!({ "type": "text", "text": "The line is right." }), "stop"))?;
        if file.size >= size {
            break;
        }
    }
    Ok(file.file.flush()?)
}

fn answer(block: &Value, stop: &str) -> Value {
    json!({
        "role": "assistant", "content": [block], "api": "openai-completions", "provider": "local", "model": "small-1",
        "usage": {
            "input": 9, "output": 9, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 18,
            "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 },
        },
        "stopReason": stop,
    })
}

struct SessionWriter {
    file: BufWriter<File>,
    size: u64,
    entries: u64,
}

impl SessionWriter {
    fn write_message(&mut self, mut message: Value) -> anyhow::Result<()> {
        message["timestamp"] = json!(1_793_491_200_000_u64 + self.entries);
        let parent = self.entries.checked_sub(1).map(|before| format!("{before:08x}"));
        let entry = json!({
            "type": "message", "id": format!("{:08x}", self.entries), "parentId": parent,
            "timestamp": "2026-11-01T00:00:00.000Z", "message": message,
        });
        self.entries += 1;
        self.write_line(&entry)
    }

    fn write_line(&mut self, line: &Value) -> anyhow::Result<()> {
        let line = format!("{line}\n");
        self.size += line.len() as u64;
        Ok(self.file.write_all(line.as_bytes())?)
    }
}
