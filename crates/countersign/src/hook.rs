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
use countersign_gateway::control::{ControlReply, FILE, HookReply, HookRequest, Request};
use nix::sys::stat::{fstat, stat};
use serde_json::Value;

use crate::{data_dir::DataDir, no_gateway::no_gateway_text};

/// Largest input, in bytes.
const LARGEST_INPUT: u64 = 16 << 20;
/// Exit code at which every program blocks the call.
const BLOCKED: u8 = 2;
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

/// Reports whether an input is of a hook after a call. To take a call that has not run for one that has would not block it.
fn is_after_call(program: &str, input: &str) -> bool {
    let Ok(Value::Object(input)) = serde_json::from_str(input) else { return false };
    match input.get("hook_event_name").and_then(Value::as_str) {
        Some(event) => ["PostToolUse", "PostToolUseFailure", "AfterTool", "tool.execute.after"].contains(&event),
        None => program == "copilot" && input.contains_key("toolResult"),
    }
}

/// Writes a line for the user. Nothing can be done if that fails.
fn print_notice(line: &str) {
    let _ = writeln!(std::io::stderr(), "countersign: {line}");
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
        print_notice(&format!("the hook failed, so the call is blocked: {panic}"));
        std::process::exit(i32::from(BLOCKED));
    }));
    let limit = Duration::from_secs(options.wait).saturating_add(MARGIN);
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        print_notice("no answer in time, so the call is blocked: try the same call again");
        std::process::exit(i32::from(BLOCKED));
    });
    match place().and_then(|place| ask_gateway(&options, &place)).and_then(|reply| write_reply(&reply)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let problem = crate::error_text::chain_text(&error);
            if IS_AFTER_CALL.load(Ordering::Relaxed) {
                print_notice(&format!("the call ran, and was not compared with the decision about it: {problem}"));
                return ExitCode::FAILURE;
            }
            let blocked = HookReply::blocked(&options.program, format!("the call is blocked: {problem}"));
            // If even that cannot be written, the code blocks the call.
            ExitCode::from(write_reply(&blocked).unwrap_or(BLOCKED))
        }
    }
}

fn ask_gateway(options: &HookOptions, place: &DataDir) -> anyhow::Result<HookReply> {
    let mut input = String::new();
    let read = std::io::stdin().lock().take(LARGEST_INPUT + 1).read_to_string(&mut input);
    read.context("cannot read the input of the hook")?;
    if input.len() as u64 > LARGEST_INPUT {
        bail!("the input of the hook is larger than {LARGEST_INPUT} bytes");
    }
    IS_AFTER_CALL.store(is_after_call(&options.program, &input), Ordering::Relaxed);
    if std::env::var_os(PROOF_VARIABLE).is_some_and(|proof| proof == NO_GATEWAY) {
        bail!("{PROOF_VARIABLE} is set, so no gateway is asked");
    }
    let mut stream = UnixStream::connect(place.folder.join(FILE)).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow::anyhow!(no_gateway_text(place)),
        _ => anyhow::Error::from(error).context("cannot connect to the gateway"),
    })?;
    let is_headless = std::env::var_os(ATTENDED).is_some_and(|attended| attended == "0");
    let (program, wait) = (options.program.clone(), Some(options.wait));
    let request = Request::Hook(Box::new(HookRequest { program, input, wait, is_headless }));
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line).context("cannot write to the gateway")?;
    let mut answer = String::new();
    let length = BufReader::new(&stream).read_line(&mut answer).context("cannot read from the gateway")?;
    if length == 0 {
        bail!("the gateway ended while the call waited: repeat the call when it runs again");
    }
    match serde_json::from_str(&answer).context("invalid answer of the gateway")? {
        ControlReply::Ok(reply) => serde_json::from_value(reply).context("invalid answer of the gateway"),
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
