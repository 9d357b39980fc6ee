//! The proxy before an agent of ACP: time that a message takes through it, and time of a permission that a rule allows.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use nix::{sys::stat::Mode, unistd::mkfifo};

use super::{
    FigureSuite,
    agent_gate::time_turns,
    figure::{BenchFigure, FigureGroup, FigureUnit, median},
    lazy_measurement,
};
use crate::fixture::{
    gateway::{self, GatewayProcess},
    scratch::ScratchFolder,
};

/// Rounds of messages. The first one warms up.
const ROUNDS: usize = 3;

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules: [ { pattern: "bash(echo *)", action: allow } ]
"#;
/// Message that passes in both ways: an extension, as large as a piece of an answer.
const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"_bench/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a few words "}}}}"#;
const PERMISSION: &str = r#"{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c","kind":"execute","title":"Run","rawInput":{"command":"echo hi"}},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}}"#;

/// Medians in milliseconds.
struct ProxyFigures {
    /// Message to an agent that sends it back, for one of the two ways.
    message: f64,
    /// The same without a proxy.
    plain: f64,
    /// From the request of an agent to its answer.
    permission: f64,
}

/// Measures every figure that the suite selects.
pub(super) fn measure_all(binary: &Path, suite: &mut FigureSuite<'_>) {
    suite.group = FigureGroup::Hooks;
    let figures = lazy_measurement(|| measure_proxy(binary));
    // The yardstick is the same message to an agent without a proxy before it.
    suite.measure(
        BenchFigure::new("acp proxy: a message that passes", FigureUnit::Millis).with_target(0.2),
        &mut || {
            let figures = figures.get_result()?;
            Ok((figures.message, Some(figures.plain)))
        },
    );
    suite.measure(BenchFigure::new("acp proxy: a permission that a rule allows", FigureUnit::Millis), &mut || {
        let figures = figures.get_result()?;
        Ok((figures.permission, None))
    });
}

fn measure_proxy(binary: &Path) -> anyhow::Result<ProxyFigures> {
    let scratch = ScratchFolder::new("proxies")?;
    let folder = scratch.path().to_owned();
    let service = gateway::service_config(gateway::start_service()?);
    let config = format!("{service}rate_limit: {{ max_requests_per_minute: 1000000000 }}\n");
    gateway::write_config(&scratch, &config, RULES)?;
    let _gateway = GatewayProcess::run(binary, scratch)?;
    let proxy = |agent: &str| {
        let mut command = Command::new(binary);
        command.args(["acp", "--config", "config.yaml", "--agent", agent]).current_dir(&folder);
        LinePipe::start(command)
    };
    let (mut proxied, mut plain) = (proxy("cat")?, LinePipe::start(Command::new("cat"))?);
    let mut agent = DrivenAgent::create(&folder)?;
    let script = folder.join("agent.sh");
    fs::write(&script, "cat to-proxy &\nexec cat > to-bench\n")?;
    let _proxy = proxy(&format!("sh {}", script.to_str().context("the path is not UTF-8")?))?;
    let (mut of_message, mut of_plain, mut of_permission) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let first = time_turns(|| proxied.turn(UPDATE))?;
        let second = time_turns(|| plain.turn(UPDATE))?;
        let third = time_turns(|| agent.ask(PERMISSION))?;
        if round > 0 {
            of_message.extend(first);
            of_plain.extend(second);
            of_permission.extend(third);
        }
    }
    let nothing = "nothing was measured";
    Ok(ProxyFigures {
        message: median(of_message).context(nothing)? / 2.0,
        plain: median(of_plain).context(nothing)? / 2.0,
        permission: median(of_permission).context(nothing)?,
    })
}

/// Process that sends lines back.
struct LinePipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl LinePipe {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, input, output, line: String::new() })
    }

    fn turn(&mut self, line: &str) -> anyhow::Result<()> {
        write_line(&mut self.input, line)?;
        self.line.clear();
        self.output.read_line(&mut self.line)?;
        ensure!(self.line.trim_end() == line, "got {:?}", self.line);
        Ok(())
    }
}

impl Drop for LinePipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Agent whose lines this process writes and reads.
struct DrivenAgent {
    output: File,
    input: BufReader<File>,
    line: String,
}

impl DrivenAgent {
    fn create(folder: &Path) -> anyhow::Result<Self> {
        let open = |name: &str| -> anyhow::Result<File> {
            let path = folder.join(name);
            mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
            // For both, so that no open waits for the other side.
            Ok(File::options().read(true).write(true).open(path)?)
        };
        Ok(Self { output: open("to-proxy")?, input: BufReader::new(open("to-bench")?), line: String::new() })
    }

    fn ask(&mut self, request: &str) -> anyhow::Result<()> {
        write_line(&mut self.output, request)?;
        self.line.clear();
        self.input.read_line(&mut self.line)?;
        ensure!(self.line.contains("\"yes\""), "the agent got {:?}", self.line);
        Ok(())
    }
}

fn write_line(output: &mut impl Write, line: &str) -> anyhow::Result<()> {
    Ok(output.write_all(format!("{line}\n").as_bytes())?)
}
