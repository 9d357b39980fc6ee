//! A host of `countersign omp --mode rpc`, as small as one can be: it writes commands and reads frames.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::bench::scratch::Scratch;

/// The running process and its pipes. Dropped without [`Host::end`], it is killed.
pub(crate) struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    bytes_read: usize,
    sent: u64,
}

impl Host {
    pub(crate) fn spawn(binary: &Path, scratch: &Scratch) -> anyhow::Result<Self> {
        Self::spawn_as(binary, scratch, &["omp", "--mode", "rpc", "--no-title"], "PI_CODING_AGENT_DIR")
    }

    /// The same through any stdio door; `agent_dir` is the variable that names its agent directory.
    pub(crate) fn spawn_as(
        binary: &Path,
        scratch: &Scratch,
        arguments: &[&str],
        agent_dir: &str,
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(binary)
            .args(arguments)
            .current_dir(scratch.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", scratch.path())
            .env(agent_dir, scratch.agent())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} could not be started", binary.display()))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::with_capacity(1 << 20, child.stdout.take().context("no standard output")?);
        Ok(Self { child, stdin, stdout, line: Vec::new(), bytes_read: 0, sent: 0 })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Bytes that came on stdout so far.
    pub(crate) fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// Writes one command in one write and returns its id.
    pub(crate) fn send(&mut self, command: &str, fields: &[(&str, Value)]) -> anyhow::Result<String> {
        self.sent += 1;
        let id = format!("req_{}", self.sent);
        let mut frame = json!({ "id": id, "type": command });
        for (name, value) in fields {
            frame[*name] = value.clone();
        }
        self.write(&frame)?;
        Ok(id)
    }

    /// Writes a frame in one write.
    pub(crate) fn write(&mut self, frame: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("the host has ended")?;
        Ok(stdin.write_all(format!("{frame}\n").as_bytes())?)
    }

    /// Reads up to the next frame whose beginning holds `text`.
    pub(crate) fn read_until(&mut self, text: &str) -> anyhow::Result<Value> {
        loop {
            self.read_line()?;
            let head = self.line.get(..512).unwrap_or(&self.line);
            if head.windows(text.len()).any(|window| window == text.as_bytes()) {
                return self.decoded();
            }
        }
    }

    /// Sends a command and reads up to its answer.
    pub(crate) fn ask(&mut self, command: &str, fields: &[(&str, Value)]) -> anyhow::Result<()> {
        let id = self.send(command, fields)?;
        while self.read_frame("response")?["id"] != id.as_str() {}
        Ok(())
    }

    /// Reads up to the next event of this type. A command that was refused on the way is an error.
    pub(crate) fn read_event(&mut self, kind: &str) -> anyhow::Result<()> {
        loop {
            match self.read_line()? {
                found if found == kind => return Ok(()),
                found if found == "response" => drop(self.decoded()?),
                _ => {}
            }
        }
    }

    fn read_frame(&mut self, kind: &str) -> anyhow::Result<Value> {
        while self.read_line()? != kind {}
        self.decoded()
    }

    /// Reads one line and returns its type, without decoding the rest: that work would be measured as the agent's.
    fn read_line(&mut self) -> anyhow::Result<String> {
        self.line.clear();
        let read = self.stdout.read_until(b'\n', &mut self.line)?;
        if read == 0 {
            bail!("the process closed its output");
        }
        self.bytes_read += read;
        kind_of(&self.line).map(str::to_owned).context("a line on stdout names no type")
    }

    fn decoded(&self) -> anyhow::Result<Value> {
        let frame: Value = serde_json::from_slice(&self.line).context("a line on stdout is no JSON")?;
        if frame["success"] == false {
            bail!("{} was refused: {}", frame["command"], frame["error"]);
        }
        Ok(frame)
    }

    /// Closes stdin, which ends the process with 0.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.stdin = None;
        std::io::copy(&mut self.stdout, &mut std::io::sink())?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the process ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After `end` both fail and have nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first value called `type` among the first bytes of a frame, where every frame has its own.
fn kind_of(line: &[u8]) -> Option<&str> {
    let head = line.get(..256).unwrap_or(line);
    let name = br#""type":"#;
    let at = head.windows(name.len()).position(|window| window == name)? + name.len();
    let value = head[at..].trim_ascii_start().strip_prefix(b"\"")?;
    let end = value.iter().position(|&byte| byte == b'"')?;
    std::str::from_utf8(&value[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_names_its_type_near_its_start() {
        for (line, want) in [
            (r#"{"type":"agent_end","messages":[{"type":"text"}]}"#, Some("agent_end")),
            (r#"{"id":"req_1","type": "response","success":true}"#, Some("response")),
            (r#"{"id":"req_1"}"#, None),
            (r#"{"type":7}"#, None),
        ] {
            assert_eq!(kind_of(line.as_bytes()), want, "{line}");
        }
    }
}
