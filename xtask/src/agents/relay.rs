//! Relay between a host and the server that it starts, which keeps their lines for the report.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
};

use anyhow::Context as _;
use serde_json::Value;

/// Argument of `cargo xtask agents` that makes it a relay.
pub(crate) const RELAY: &str = "relay";
/// Mark of a line of the host.
const FROM_HOST: &str = "> ";
/// Mark of a line of the server.
const FROM_SERVER: &str = "< ";

/// Returns the words that run `command` with its lines kept in `log`.
pub(crate) fn command(log: &Path, command: Vec<String>) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let log = log.to_string_lossy().into_owned();
    Ok([program, "agents".to_owned(), RELAY.to_owned(), log].into_iter().chain(command).collect())
}

/// Runs `command`, passes the lines of both sides through and appends them to `log`. Ends as the command does.
pub(crate) fn run(log: &Path, command: &[String]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("relay needs a command")?;
    let log = Arc::new(File::options().append(true).create(true).open(log)?);
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let to_server = child.stdin.take().context("no standard input")?;
    let from_server = child.stdout.take().context("no standard output")?;
    let of_host = Arc::clone(&log);
    // Not waited for: a host keeps its side open after the server has gone.
    thread::spawn(move || pass_lines(io::stdin(), to_server, &of_host, FROM_HOST));
    let passed = pass_lines(from_server, io::stdout(), &log, FROM_SERVER);
    let status = child.wait()?;
    passed?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn pass_lines(from: impl Read, mut to: impl Write, mut log: &File, mark: &str) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = mark.as_bytes().to_vec();
    while from.read_until(b'\n', &mut line)? > 0 {
        // One write a line: the other side appends too.
        log.write_all(&line)?;
        to.write_all(&line[mark.len()..])?;
        to.flush()?;
        line.truncate(mark.len());
    }
    Ok(())
}

/// Returns the messages of the host.
pub(crate) fn host_messages(lines: &str) -> impl Iterator<Item = Value> {
    messages(lines, FROM_HOST)
}

/// Returns the messages of the server.
pub(crate) fn server_messages(lines: &str) -> impl Iterator<Item = Value> {
    messages(lines, FROM_SERVER)
}

fn messages<'a>(lines: &'a str, mark: &'a str) -> impl Iterator<Item = Value> + 'a {
    lines.lines().filter_map(move |line| serde_json::from_str(line.strip_prefix(mark)?).ok())
}

/// Returns the first method of the host and the version of the protocol that both use, such as `initialize 2025-06-18`.
pub(crate) fn opening(lines: &str) -> Option<String> {
    let first = host_messages(lines).next()?;
    let of_session =
        server_messages(lines).find_map(|reply| reply["result"]["protocolVersion"].as_str().map(str::to_owned));
    let of_request = || {
        host_messages(lines).find_map(|message| {
            message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str().map(str::to_owned)
        })
    };
    Some(format!("{} {}", first["method"].as_str()?, of_session.or_else(of_request)?))
}

/// Returns how many progress notifications the server has sent.
pub(crate) fn count_progress(lines: &str) -> usize {
    let is_progress =
        |line: &&str| line.starts_with(FROM_SERVER) && line.contains(r#""method":"notifications/progress""#);
    lines.lines().filter(is_progress).count()
}

#[cfg(test)]
mod tests {
    use super::{count_progress, opening};

    #[test]
    fn the_version_is_that_of_the_session_or_of_the_requests() {
        let initialize = "> {\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}\n\
                          < {\"id\":0,\"result\":{\"protocolVersion\":\"2025-06-18\"}}\n";
        let discover = "> {\"id\":0,\"method\":\"server/discover\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}\n\
                        < {\"id\":0,\"result\":{\"supportedVersions\":[\"2026-07-28\"]}}\n";
        for (lines, want) in [
            (initialize, Some("initialize 2025-06-18")),
            (discover, Some("server/discover 2026-07-28")),
            ("> no JSON\n", None),
        ] {
            assert_eq!(opening(lines).as_deref(), want, "{lines}");
        }
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
        assert_eq!(count_progress(&format!("> {progress}\n< {progress}\n< {{}}\n")), 1);
    }
}
