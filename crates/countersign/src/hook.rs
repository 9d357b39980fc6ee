//! `countersign hook`: the hook process of an agent such as Claude Code. It asks the running gateway about one call.
//!
//! Most programs let a call run if their hook fails. Each way to fail ends with code 2 here, at which all of them block the call. It must
//! not know what a hook's input or answer says, except whether the call has run already: the adapter of hooks does.

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_gateway::control::{CompleteInput, ControlReply, FILE, HookReply, HookRequest, InputReader, Request};
use nix::sys::stat::{fstat, stat};

use crate::{data_dir::DataDir, no_gateway::no_gateway_text};

/// Length of a part of the input that is read at a time, in bytes.
const PART: usize = 64 << 10;
/// Exit code at which every program blocks the call.
const BLOCKED: u8 = 2;
/// Exit code after a call that was not compared.
const UNCHECKED: u8 = 1;
/// Text for it.
const UNCHECKED_TEXT: &str = "the call ran, and was not compared with the decision about it";
/// Longest answer of a gateway, in bytes.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Time beyond the wait for a person in which the gateway answers.
const MARGIN: Duration = Duration::from_secs(15);
/// Variable that Claude Code sets to 0 for hooks if nobody sits at it.
const ATTENDED: &str = "CLAUDE_CODE_SESSION_ATTENDED";

/// Variable that makes a hook act as if no gateway ran. It can only block calls: the proof of a guard uses it.
pub(crate) const PROOF_VARIABLE: &str = "COUNTERSIGN_HOOK_PROOF";
/// Its value.
pub(crate) const NO_GATEWAY: &str = "no-gateway";

/// True as soon as the input shows that the call has run.
static IS_AFTER_CALL: AtomicBool = AtomicBool::new(false);

/// Writes a line for the user. Nothing can be done if that fails.
fn print_notice(line: &str) {
    let _ = writeln!(std::io::stderr(), "countersign: {line}");
}

/// Ends a hook that cannot answer.
fn end_failed(problem: &str) -> ! {
    if IS_AFTER_CALL.load(Ordering::Relaxed) {
        print_notice(&format!("{UNCHECKED_TEXT}: {problem}"));
        std::process::exit(i32::from(UNCHECKED));
    }
    print_notice(&format!("the call is blocked: {problem}"));
    std::process::exit(i32::from(BLOCKED));
}

/// Options of a hook.
pub(crate) struct HookOptions {
    /// Name of the program.
    pub(crate) program: String,
    /// Longest wait for a person, in seconds.
    pub(crate) wait: u64,
}

/// Answers one hook. Whatever fails blocks the call.
pub(crate) fn run(options: HookOptions, place: impl FnOnce() -> anyhow::Result<DataDir>) -> ExitCode {
    // The default end of a panic is no code at which programs block.
    std::panic::set_hook(Box::new(|panic| {
        end_failed(&format!("the hook failed: {panic}"));
    }));
    let limit = Duration::from_secs(options.wait).saturating_add(MARGIN);
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        end_failed("no answer in time: try the same call again");
    });
    match place().and_then(|place| ask_gateway(&options, &place)).and_then(|reply| write_reply(&reply)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let problem = crate::error_text::chain_text(&error);
            if IS_AFTER_CALL.load(Ordering::Relaxed) {
                print_notice(&format!("{UNCHECKED_TEXT}: {problem}"));
                return ExitCode::from(UNCHECKED);
            }
            let blocked = HookReply::blocked(&options.program, format!("the call is blocked: {problem}"));
            // If even that cannot be written, the code blocks the call.
            ExitCode::from(write_reply(&blocked).unwrap_or(BLOCKED))
        }
    }
}

fn ask_gateway(options: &HookOptions, place: &DataDir) -> anyhow::Result<HookReply> {
    let input = read_input(&options.program)?;
    if std::env::var_os(PROOF_VARIABLE).is_some_and(|proof| proof == NO_GATEWAY) {
        bail!("{PROOF_VARIABLE} is set, so no gateway is asked");
    }
    let mut stream = UnixStream::connect(place.folder.join(FILE)).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow::anyhow!(no_gateway_text(place)),
        _ => anyhow::Error::from(error).context("cannot connect to the gateway"),
    })?;
    let is_headless = std::env::var_os(ATTENDED).is_some_and(|attended| attended == "0");
    let (program, wait) = (options.program.clone(), Some(options.wait));
    let request = Request::Hook(Box::new(HookRequest { program, input: input.clone(), wait, is_headless }));
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line).context("cannot write to the gateway")?;
    let mut answer = String::new();
    BufReader::new(&stream).take(LONGEST_ANSWER).read_line(&mut answer).context("cannot read from the gateway")?;
    decode_answer(&options.program, &input, &answer)
}

/// Reads the input of the hook of `program`.
fn read_input(program: &str) -> anyhow::Result<String> {
    let (mut reader, mut part) = (InputReader::new(program), vec![0; PART]);
    let mut stdin = std::io::stdin().lock();
    loop {
        match stdin.read(&mut part) {
            Ok(0) => break,
            Ok(length) => reader.push(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read the input of the hook"),
        }
    }
    let CompleteInput { is_after_call, text } = reader.finish();
    IS_AFTER_CALL.store(is_after_call, Ordering::Relaxed);
    Ok(text?)
}

/// Reads the line that a gateway answered.
fn decode_answer(program: &str, input: &str, line: &str) -> anyhow::Result<HookReply> {
    // A line without its end is a part of an answer.
    if !line.ends_with('\n') {
        bail!("the gateway ended while the call waited: repeat the call when it runs again");
    }
    match serde_json::from_str(line).context("invalid answer of the gateway")? {
        ControlReply::Ok(reply) => {
            let decoded = HookReply::decode(program, input, reply);
            decoded.map_err(|problem| anyhow::anyhow!("invalid answer of the gateway: {problem}"))
        }
        ControlReply::Error(problem) => bail!("{problem}"),
    }
}

/// Writes an answer, at once and at the end.
fn write_reply(reply: &HookReply) -> anyhow::Result<u8> {
    if let Some(message) = &reply.message {
        print_notice(message);
    }
    if let Some(document) = &reply.document {
        let mut line = serde_json::to_vec(document)?;
        line.push(b'\n');
        // A closed output is a null device here, and the program would get no answer.
        let null = stat("/dev/null").context("cannot look at the output")?.st_rdev;
        if fstat(std::io::stdout()).context("cannot look at the output")?.st_rdev == null {
            bail!("standard output is closed, so the answer reaches no program");
        }
        let mut output = std::io::stdout().lock();
        output.write_all(&line).and_then(|()| output.flush()).context("cannot write the answer")?;
    }
    Ok(reply.exit)
}

#[cfg(test)]
mod tests {
    use super::decode_answer;

    #[test]
    fn an_answer_that_is_not_whole_blocks_the_call() {
        let input =
            r#"{"session_id":"s","cwd":"/w","hook_event_name":"PreToolUse","tool_name":"mcp__a__b","tool_input":{}}"#;
        let decode = |line: &str| decode_answer("codex", input, line).map_err(|error| format!("{error:#}"));
        assert_eq!(decode("{\"ok\":{\"exit\":0}}\n").map(|reply| reply.exit), Ok(0));
        for (line, want) in [
            ("", "ended while the call waited"),
            ("{\"ok\":{\"exit\":0}}", "ended while the call waited"),
            ("{\"ok\":{}}\n", "invalid answer"),
            ("{\"ok\":{\"verdict\":\"deny\"}}\n", "invalid answer"),
            ("{\"ok\":null}\n", "invalid answer"),
            ("{\"ok\":{\"exit\":1}}\n", "invalid answer"),
            ("{\"ok\":{\"document\":{\"foo\":1}}}\n", "invalid answer"),
            ("HTTP/1.1 400 Bad Request\n", "invalid answer"),
            ("{\"error\":\"not here\"}\n", "not here"),
        ] {
            let problem = decode(line).unwrap_err();
            assert!(problem.contains(want), "{line}: {problem}");
        }
    }
}
