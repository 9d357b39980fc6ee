//! The stdio adapters: two threads own the pipes, one runtime does the rest.

use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
};

use bytes::Bytes;
use countersign_adapter_gjc as gjc;
use countersign_adapter_gjc::SessionPresence;
use countersign_adapter_omp as omp;
use countersign_agent_dir::{AgentProduct, settings::AttachMode};
use countersign_protocol::{
    gjc::registry::SessionTransport,
    lines::{DecodedLine, LineDecoder},
};
use countersign_tools::exec;
use tokio::sync::mpsc;

use crate::{
    attach::{self, GatewayPipe},
    bridge,
    exit::{fail_with, print_notice, report_outcome},
    signals::shutdown_signal,
};

/// Maximum number of lines that wait for the adapter; the pipe holds the rest.
const WAITING: usize = 256;
/// Maximum wait for the last frames.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(700);
/// Maximum number of frames that wait for the pipe: few, for their bytes are not counted. The adapter counts the frames that wait after
/// them.
const FRAMES: usize = 64;
/// Time without an accepted line, after the host has gone, that counts as the end of input.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// Time between two tries to pass on a line.
const TRIED: std::time::Duration = std::time::Duration::from_millis(5);

/// Runs the stdio adapter of `product`, such as `countersign omp`, with the arguments after its name.
pub(crate) fn run(product: AgentProduct, arguments: Vec<String>) -> ExitCode {
    let flags = match omp::flags::parse_for(product, arguments.clone()) {
        Ok(flags) => flags,
        Err(problem) => return fail_with(&problem),
    };
    if flags.help || flags.version {
        let text = if flags.help { help_text(product) } else { format!("countersign {}\n", env!("CARGO_PKG_VERSION")) };
        return report_outcome(
            std::io::stdout().write_all(text.as_bytes()).map_err(Into::into).map(|()| ExitCode::SUCCESS),
        );
    }
    match flags.mode.as_deref() {
        Some("rpc" | "rpc-ui") => {}
        Some("bridge") if product == AgentProduct::Gjc => return in_process(|program| bridge::run(flags, program)),
        Some(other) => {
            let accepted = match product {
                AgentProduct::Omp => "rpc or rpc-ui",
                AgentProduct::Gjc => "rpc, rpc-ui or bridge",
            };
            return fail_with(&format!("--mode {other:?}: expected {accepted}"));
        }
        None => {
            let name = product.name();
            let problem = "--mode rpc is required: there is no terminal interface";
            return fail_with(&format!("{problem} (see `countersign {name} --help`)"));
        }
    }
    if let Some(path) = flags.listen.clone() {
        if flags.attach {
            return fail_with(
                "--listen and --attach cannot be used together: clients reach a session of a gateway through the gateway",
            );
        }
        return in_process(|program| bridge::listen_on_socket(flags, path, program));
    }
    crate::logging::start();
    let path = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => return fail_with(&format!("the path of this program is unknown: {error}")),
    };
    if let Err(error) = exec::become_subreaper() {
        return fail_with(&format!("cannot become the parent of orphaned processes: {error}"));
    }
    match locate_session(&flags, &arguments) {
        Ok(SessionPlacement::Gateway(pipe)) => pipe.run(omp::error_notice, unanswered_frame),
        Ok(SessionPlacement::Own) => run_own_session(flags, arguments, omp::ProgramInfo { path }),
        Err(problem) => fail_with(&problem),
    }
}

/// Serves something in place of standard input and output.
fn in_process(serve: impl FnOnce(std::path::PathBuf) -> anyhow::Result<ExitCode>) -> ExitCode {
    crate::logging::start();
    let program = std::env::current_exe().map_err(anyhow::Error::from);
    match program.and_then(serve) {
        Ok(code) => code,
        Err(error) => fail_with(&crate::error_text::chain_text(&error)),
    }
}

/// Place in which a session lives.
enum SessionPlacement {
    /// In a log of its own.
    Own,
    /// In a gateway, which has taken it in.
    Gateway(GatewayPipe),
}

/// Finds the place of the session, as flags and settings say.
fn locate_session(flags: &omp::flags::AdapterFlags, arguments: &[String]) -> Result<SessionPlacement, String> {
    let process =
        omp::LaunchEnvironment::from_current().map_err(|error| format!("the working folder is unknown: {error}"))?;
    let plan = omp::attach_plan(flags, &process).map_err(|error| error.to_string())?;
    let is_must = match plan.when {
        AttachMode::Never => return Ok(SessionPlacement::Own),
        AttachMode::Auto => false,
        AttachMode::Always => true,
    };
    let data = crate::data_dir::DataDir::find(None, plan.data.as_deref()).map_err(|error| error.to_string())?;
    match attach_to_gateway(flags, arguments, &data.folder, is_must) {
        Ok(pipe) => Ok(SessionPlacement::Gateway(pipe)),
        Err(problem @ attach::AttachError::NoGateway(_)) if is_must => {
            Err(format!("--attach: {problem}: start `countersign serve`, or use --attach=DIR"))
        }
        Err(problem) if is_must => Err(format!("--attach: {problem}")),
        Err(attach::AttachError::NoGateway(_)) => Ok(SessionPlacement::Own),
        Err(problem) => {
            print_notice(&format!("{problem}; the session runs in this process instead"));
            Ok(SessionPlacement::Own)
        }
    }
}

/// Hands the session to the gateway with this data directory.
fn attach_to_gateway(
    flags: &omp::flags::AdapterFlags,
    arguments: &[String],
    folder: &std::path::Path,
    moves: bool,
) -> Result<GatewayPipe, attach::AttachError> {
    let refused = |problem: &dyn std::fmt::Display| attach::AttachError::Refused(problem.to_string());
    let process = omp::LaunchEnvironment::from_current().map_err(|error| refused(&error))?;
    let handover = omp::attach_params(flags, arguments.to_vec(), process, moves).map_err(|error| refused(&error))?;
    attach::open_pipe(folder, handover, print_notice)
}

/// Runs the adapter here. A session that turns out to live in a gateway is opened there.
fn run_own_session(flags: omp::flags::AdapterFlags, arguments: Vec<String>, program: omp::ProgramInfo) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(crate::STACK)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail_with(&format!("the runtime could not be started: {error}")),
    };
    runtime.spawn(exec::reap());
    let product = flags.product;
    let (output, frames) = mpsc::channel(FRAMES);
    let door = match runtime.block_on(omp::open_adapter(
        flags.clone(),
        program,
        gjc::configured_dialect,
        output,
        print_notice,
    )) {
        Ok(door) => door,
        Err(error) => {
            // Its own log may say so, and nothing else; it is not opened twice.
            let entered = error.gateway_home().map(|home| attach_to_gateway(&flags, &arguments, home, true));
            return match entered {
                Some(Ok(pipe)) => pipe.run(omp::error_notice, unanswered_frame),
                Some(Err(attach::AttachError::Refused(problem))) => fail_with(&problem),
                Some(Err(attach::AttachError::NoGateway(_))) | None => fail_with(&error.to_string()),
            };
        }
    };
    let listed = (product == AgentProduct::Gjc).then(|| {
        let _within = runtime.enter();
        SessionPresence::for_listing(door.session_listing(), SessionTransport::Stdio, None)
    });
    let (lines, input) = mpsc::channel(WAITING);
    let (gone, has_gone) = tokio::sync::oneshot::channel();
    // One dialect gives up a line that is no text, the other reads it as well as it can.
    let decoder = match product {
        AgentProduct::Omp => LineDecoder::default(),
        AgentProduct::Gjc => LineDecoder::default().with_lossy_utf8(),
    };
    std::thread::spawn(move || {
        if read_lines(decoder, &lines).is_err() {
            let _ = gone.send(());
        }
    });
    let (written, is_written) = std::sync::mpsc::channel::<()>();
    let (deaf, is_deaf) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if write_frames(frames).is_err() {
            let _ = deaf.send(());
        }
        drop(written);
    });
    // Not on this thread: what the owner has for the adapter, and the adapter for the owner, then needs no other thread to be woken.
    let running = runtime.spawn(door.run(input, wait_for_stop(has_gone, is_deaf)));
    let outcome = runtime.block_on(running);
    drop(listed);
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    exec::kill_remaining();
    // A host that does not read must not keep the process.
    let _ = is_written.recv_timeout(FAREWELL);
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail_with(&error.to_string()),
        Err(error) => fail_with(&format!("the adapter failed: {error}")),
    }
}

fn unanswered_frame(request: &attach::Unanswered, problem: &str) -> Option<bytes::Bytes> {
    omp::failure_response(&request.id, &request.command, problem)
}

/// Returns the output of `countersign omp --help`, or of the other adapter.
fn help_text(product: AgentProduct) -> String {
    let name = product.name();
    format!(
        "countersign {} {name}: run a coding agent for a host that speaks JSON lines over stdio\n\n\
         Usage: countersign {name} --mode rpc [FLAGS]\n\nFlags:\n{}\n{}\n",
        env!("CARGO_PKG_VERSION"),
        omp::flags::help_table(),
        extra_flags_help(product)
    )
}

/// Returns the text after the flags.
pub(crate) const fn extra_flags_help(product: AgentProduct) -> &'static str {
    match product {
        AgentProduct::Omp => {
            "Other flags of the original program are ignored, with a notice on stderr. A flag that restricts rights\n\
             and is not enforced here is an error. See docs/protocol/omp.md, Fields that restrict."
        }
        AgentProduct::Gjc => {
            "  --stage STAGE  Workflow that the first message starts: deep-interview, ralplan or ultragoal\n  \
             --listen PATH  Path of a socket to listen on instead of standard input\n  \
             --mode bridge  Serve HTTPS instead, configured by GJC_BRIDGE_TOKEN, _TLS_CERT, _TLS_KEY, _HOST, _PORT,\n                 \
             _SCOPES and _ENDPOINTS\n  \
             --insecure     Run the bridge without TLS, on loopback only\n\n\
             Other flags of the original program are accepted. See docs/protocol/gjc.md."
        }
    }
}

/// Becomes ready when a signal requests the end of the process, when the host has gone and its last lines are not taken, or when it
/// has closed its end of standard output and can no longer be informed.
async fn wait_for_stop(has_gone: tokio::sync::oneshot::Receiver<()>, is_deaf: tokio::sync::oneshot::Receiver<()>) {
    tokio::select! {
        () = shutdown_signal() => {}
        Ok(()) = has_gone => {}
        Ok(()) = is_deaf => {}
    }
}

/// The adapter takes no more lines: it has closed, or the host has gone without reading its frames.
struct HostStuck;

/// Reads standard input to its end. A line without an end counts as one.
fn read_lines(mut decoder: LineDecoder, lines: &mpsc::Sender<DecodedLine>) -> Result<(), HostStuck> {
    let mut buffer = vec![0; 64 * 1024];
    let mut input = std::io::stdin().lock();
    loop {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        }
        while let Some(line) = decoder.next_line() {
            forward_line(lines, line)?;
        }
    }
    match decoder.finish() {
        Some(line) => forward_line(lines, line),
        None => Ok(()),
    }
}

/// Hands a line to the adapter, waiting for room as long as the host is there to make some.
fn forward_line(lines: &mpsc::Sender<DecodedLine>, line: DecodedLine) -> Result<(), HostStuck> {
    let mut line = line;
    let mut gone_since = None;
    loop {
        match lines.try_send(line) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(HostStuck),
            Err(mpsc::error::TrySendError::Full(full)) => line = full,
        }
        if gone_since.is_none() && has_hung_up() {
            gone_since = Some(std::time::Instant::now());
        }
        if gone_since.is_some_and(|since| since.elapsed() > PATIENCE) {
            return Err(HostStuck);
        }
        std::thread::sleep(TRIED);
    }
}

/// Reports whether standard input has no writer any more, though unread bytes may be left.
fn has_hung_up() -> bool {
    use std::os::fd::AsFd as _;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    let input = std::io::stdin();
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::empty())];
    let count = poll(&mut polled, PollTimeout::ZERO);
    count.is_ok_and(|count| count > 0) && polled[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP))
}

/// Writes frames to standard output, as many in one write as there are, until the adapter has no more.
///
/// # Errors
/// Error of the system for the first line that it did not take.
fn write_frames(mut frames: mpsc::Receiver<Bytes>) -> std::io::Result<()> {
    let mut output = std::io::BufWriter::with_capacity(256 * 1024, std::io::stdout().lock());
    while let Some(frame) = frames.blocking_recv() {
        let mut next = Some(frame);
        while let Some(frame) = next {
            output.write_all(&frame)?;
            next = frames.try_recv().ok();
        }
        output.flush()?;
    }
    Ok(())
}
