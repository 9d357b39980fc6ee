//! The command line.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Arg, ArgAction, Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use countersign_server::omp::flags;

use countersign_core::gate::Scope;

use countersign_server::config::Flags;

use crate::{agent, audit, demo, gates, policy, serve};

const AFTER_HELP: &str = "\
Exit codes:
  0    done; of `demo` whichever way it was answered
  1    it failed, `audit verify` found a flaw, or `policy` check or test did
  2    the command line is wrong
  130  interrupted

Environment:
  COUNTERSIGN_LOG  what is logged on stderr, such as `debug` or `countersign_runtime=debug`
  NO_COLOR         no colours; there are none anyway where the output is no terminal

Begin with `countersign demo`.";

/// Agents propose, policy decides, people countersign, and only then does anything happen.
#[derive(Parser)]
#[command(name = "countersign", version, about, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch an agent work and ask for your approval: no key, no configuration, no network
    ///
    /// A scripted model repairs a small project in a scratch folder, with real tools and under real rules. It ends with a command that
    /// nothing covers: you decide in the terminal. Without a terminal, and without --yes or --no, it is denied. Ends with 0 whichever way
    /// it was answered.
    Demo {
        /// Allow the command, for a script
        #[arg(long, conflicts_with = "no")]
        yes: bool,
        /// Deny the command, for a script
        #[arg(long)]
        no: bool,
        /// Work in DIR, which must be absent or empty, and keep it
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Keep the scratch folder, and the record in it
        #[arg(long)]
        keep: bool,
    },
    /// Run a coding agent for a host that speaks JSON lines over stdio (`countersign omp --mode rpc …`)
    #[command(disable_help_flag = true, after_help = omp_flags())]
    Omp {
        /// The flags of `omp`; see docs/protocol/omp.md
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Read a record of decisions, whether or not somebody is writing it
    #[command(subcommand)]
    Audit(Audit),
    /// Run a gateway: agents ask, policy decides, people countersign, and only then does anything happen
    ///
    /// Prints `countersign ready on ADDRESS` when it takes connections. SIGHUP reads the rules again; SIGTERM ends it within
    /// seconds, and what waits goes on waiting for the next start.
    Serve {
        /// The configuration; without one every door is on loopback, and closed where it needs a credential
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The rules [default: permissions.yaml beside the configuration]
        #[arg(long, value_name = "FILE")]
        permissions: Option<PathBuf>,
        /// The data directory, where the record lies
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// The address to listen on
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        /// The port to listen on; 0 lets the system choose
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,
        /// Listen without TLS on an address that others can reach
        #[arg(long)]
        insecure: bool,
    },
    /// Ask a gateway for an action, as an agent: `countersign request TOOL key=value …`
    ///
    /// Prints the result as JSON. Ends with 1 if it was denied or failed, 2 if nobody answered in time, 3 if the gateway cannot be
    /// reached or does not know the token, 4 if an argument is not key=value.
    Request {
        /// The tool
        tool: String,
        /// Its arguments; values are texts
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
        #[command(flatten)]
        asker: Asker,
    },
    /// List the tools that a gateway has for an agent
    Tools {
        #[command(flatten)]
        asker: Asker,
    },
    /// Print, as an agent, results that were not received yet
    Pending {
        #[command(flatten)]
        asker: Asker,
    },
    /// List what waits for people, decide it, watch it
    Gates {
        #[command(subcommand)]
        what: Gates,
        #[command(flatten)]
        at: Where,
    },
    /// List what people allowed for more than once, and take it back
    Grants {
        #[command(subcommand)]
        what: Grants,
        #[command(flatten)]
        at: Where,
    },
    /// Look at the rules of a gateway before they are in force: what is wrong with them, and what becomes of a request
    #[command(subcommand)]
    Policy(Policy),
    /// Print a script with which a shell completes commands and flags
    ///
    /// Such as `source <(countersign completions bash)`, or `countersign completions fish > ~/.config/fish/completions/countersign.fish`.
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Where the gateway is, and who asks.
#[derive(Args)]
struct Asker {
    /// The gateway, such as ws://127.0.0.1:8443
    #[arg(long, env = "AGENTPASS_URL", value_name = "URL")]
    url: Option<String>,
    /// The agent's token
    #[arg(long, env = "AGENT_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How many seconds an answer is waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 900.0)]
    timeout: f64,
}

/// Where a gateway keeps what it knows.
#[derive(Args)]
struct Where {
    /// The data directory of the gateway
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print JSON, for a program
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Gates {
    /// What waits, oldest first
    List,
    /// All of one: who asks, why, and exactly what would run
    Show {
        /// Its id, or the end of it
        id: String,
    },
    /// Let it happen
    Allow {
        /// Its id, or the end of it
        id: String,
        /// How far that reaches
        #[arg(long, value_enum, default_value = "once")]
        scope: ScopeName,
    },
    /// Do not let it happen
    Deny {
        /// Its id, or the end of it
        id: String,
        /// What the agent is told
        #[arg(long)]
        reason: Option<String>,
    },
    /// Print what waits whenever that changes
    Watch,
}

#[derive(Subcommand)]
enum Grants {
    /// What is granted
    List,
    /// Take one back
    Revoke {
        /// Its id
        id: String,
    },
}

#[derive(Subcommand)]
enum Policy {
    /// Say what is wrong with a file of rules, and what its author may not expect; ends with 1 if `serve` would not take it
    Check {
        /// The rules [default: permissions.yaml, beside the configuration if one is named]
        file: Option<PathBuf>,
        #[command(flatten)]
        about: About,
    },
    /// Say what becomes of a request, which rule decides that, and which rules nearly did
    ///
    /// Nothing happens by it. What people granted or denied for a while is not looked at.
    Explain {
        /// The tool
        tool: String,
        /// Its arguments; values are texts
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
        /// More arguments, of any kind, as a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// The agent that asks
        #[arg(long, value_name = "ID", default_value = countersign_server::config::DEFAULT_AGENT)]
        agent: String,
        /// The rules [default: permissions.yaml, beside the configuration if one is named]
        #[arg(long, value_name = "FILE")]
        permissions: Option<PathBuf>,
        #[command(flatten)]
        about: About,
    },
    /// Try the cases of a file of rules and of the one beside it whose name ends in `.test.yaml`; ends with 1 if one fails
    Test {
        /// The rules [default: permissions.yaml, beside the configuration if one is named]
        file: Option<PathBuf>,
        #[command(flatten)]
        about: About,
    },
}

/// What rules are about.
#[derive(Args)]
struct About {
    /// The configuration, whose agents and tools the rules are about [default: config.yaml beside the rules, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON, for a program
    #[arg(long)]
    json: bool,
}

/// How far an approval reaches.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ScopeName {
    /// This once
    Once,
    /// The same action for the rest of the session
    Session,
    /// The same action from now on
    Always,
}

#[derive(Subcommand)]
enum Audit {
    /// Show the newest entries: position, time (UTC), kind, and what happened in a few words
    Tail {
        /// The record, such as DIR/record.db of a demo
        #[arg(long, value_name = "FILE")]
        log: PathBuf,
        /// How many entries
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
        lines: u64,
        /// One JSON object a line: lsn, at, session, kind, text
        #[arg(long)]
        json: bool,
    },
    /// Check that nothing in it was changed or removed; ends with 1 at the first flaw
    ///
    /// The chain alone cannot show that its end was cut off: give a head that was printed before.
    Verify {
        /// The record
        #[arg(long, value_name = "FILE")]
        log: PathBuf,
        /// A head that this printed before, which the record must still hold
        #[arg(long, value_name = "LSN:CHAIN", value_parser = audit::parse_head)]
        head: Option<countersign_store::Head>,
        /// One JSON object: records, redacted, head, flaw
        #[arg(long)]
        json: bool,
    },
    /// Print all of it as JSON lines: every fact as it was recorded, with its content
    Export {
        /// The record
        #[arg(long, value_name = "FILE")]
        log: PathBuf,
    },
}

/// The flags of the door for `countersign help omp`.
fn omp_flags() -> String {
    format!("Flags of `omp`:\n{}\n{}", flags::table(), crate::stdio::FLAGS_ARE)
}

pub(crate) fn main() -> ExitCode {
    ended(run(Cli::parse().command))
}

/// The command line under the name `agentpass`: without a command it serves.
pub(crate) fn agentpass(arguments: Vec<String>) -> ExitCode {
    let known = ["serve", "request", "tools", "pending", "help", "--help", "-h", "--version", "-V"];
    let serves = !arguments.first().is_some_and(|first| known.contains(&first.as_str()));
    let named = ["agentpass".to_owned()].into_iter().chain(serves.then(|| "serve".to_owned()));
    ended(run(Cli::parse_from(named.chain(arguments)).command))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Omp { flags } => Ok(crate::stdio::omp(flags)),
        Command::Demo { yes, no, dir, keep } => {
            crate::stdio::log();
            let answer = match (yes, no) {
                (true, _) => demo::Answered::Yes,
                (false, true) => demo::Answered::No,
                (false, false) => demo::Answered::InTheTerminal,
            };
            demo::run(demo::Options { answer, folder: demo::Folder::of(dir, keep) }).map_err(|error| {
                // Elsewhere the reader has seen enough; here the run was cut short.
                let cut = is_broken_pipe(&error);
                if cut { anyhow::anyhow!("the output was closed before the demo had ended") } else { error }
            })
        }
        Command::Audit(Audit::Tail { log, lines, json }) => audit::tail(&log, lines, form(json)),
        Command::Audit(Audit::Verify { log, head, json }) => audit::verify(&log, head, form(json)),
        Command::Audit(Audit::Export { log }) => audit::export(&log),
        Command::Serve { config, permissions, data, host, port, insecure } => {
            crate::stdio::log();
            let flags = Flags { permissions, data, host, port, webui: None, insecure };
            serve::run(serve::Options { config, flags })
        }
        Command::Request { tool, arguments, asker } => {
            Ok(agent::run(asker.into(), agent::Wanted::Request { tool, arguments }))
        }
        Command::Tools { asker } => Ok(agent::run(asker.into(), agent::Wanted::Tools)),
        Command::Pending { asker } => Ok(agent::run(asker.into(), agent::Wanted::Pending)),
        Command::Gates { what, at } => gates::gates(&place(&at), what.into(), form(at.json)),
        Command::Grants { what, at } => {
            let what = match what {
                Grants::List => gates::Grants::List,
                Grants::Revoke { id } => gates::Grants::Revoke { id },
            };
            gates::grants(&place(&at), what, form(at.json))
        }
        Command::Policy(what) => {
            let (file, about) = match &what {
                Policy::Check { file, about } | Policy::Test { file, about } => (file, about),
                Policy::Explain { permissions, about, .. } => (permissions, about),
            };
            let files = policy::Files::of(file.clone(), about.config.clone());
            let form = form(about.json);
            match what {
                Policy::Check { .. } => policy::check(&files, form),
                Policy::Test { .. } => policy::test(&files, form),
                Policy::Explain { tool, arguments, args, agent, .. } => {
                    policy::explain(&files, &policy::Asked { tool, arguments, args, agent }, form)
                }
            }
        }
        Command::Completions { shell } => {
            std::io::stdout().write_all(&completions(shell))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl From<Asker> for agent::Asker {
    fn from(asker: Asker) -> Self {
        let timeout = Duration::try_from_secs_f64(asker.timeout).unwrap_or(Duration::from_secs(900));
        Self { url: asker.url, token: asker.token, timeout }
    }
}

impl From<Gates> for gates::Gates {
    fn from(what: Gates) -> Self {
        match what {
            Gates::List => Self::List,
            Gates::Show { id } => Self::Show { id },
            Gates::Allow { id, scope } => {
                let scope = match scope {
                    ScopeName::Once => Scope::Once,
                    ScopeName::Session => Scope::Session,
                    ScopeName::Always => Scope::Always,
                };
                Self::Allow { id, scope }
            }
            Gates::Deny { id, reason } => Self::Deny { id, reason },
            Gates::Watch => Self::Watch,
        }
    }
}

/// Where the gateway is that is meant: what the flags say, or the usual place.
fn place(at: &Where) -> gates::Place {
    let folder = at.data.clone().unwrap_or_else(usual_data);
    gates::Place { log: folder.join("countersign.db"), folder }
}

/// The data directory where nobody names one.
fn usual_data() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").unwrap_or_default().join(".local/share");
    set("XDG_DATA_HOME").filter(|path| path.is_absolute()).unwrap_or_else(home).join("countersign")
}

/// The script for `shell`, with the flags of the doors, which this command line hands on unread.
fn completions(shell: Shell) -> Vec<u8> {
    let mut command = Cli::command().mut_subcommand("omp", |omp| {
        omp.args(flags::LISTED.map(|listed| {
            let flag = Arg::new(listed.name).long(listed.name).help(listed.help);
            match listed.value {
                Some(value) => flag.value_name(value),
                None => flag.action(ArgAction::SetTrue),
            }
        }))
    });
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "countersign", &mut script);
    script
}

const fn form(json: bool) -> audit::Form {
    if json { audit::Form::Json } else { audit::Form::Text }
}

/// Turns how a command ended into an exit code, and tells of an error once.
#[allow(clippy::print_stderr, reason = "this is how a person is told")]
pub(crate) fn ended(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("countersign: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};

    use super::{Cli, Shell, completions, flags};

    /// The names of all subcommands and long flags.
    fn names(command: &clap::Command) -> Vec<String> {
        let flags = command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned);
        let below = command
            .get_subcommands()
            .flat_map(|below| std::iter::once(below.get_name().to_owned()).chain(names(below)).collect::<Vec<_>>());
        flags.chain(below).collect()
    }

    #[test]
    fn each_shell_completes_every_subcommand_and_flag() {
        let mut wanted = names(&Cli::command());
        assert!(wanted.iter().any(|name| name == "verify") && wanted.iter().any(|name| name == "keep"));
        wanted.extend(flags::LISTED.iter().map(|listed| listed.name.to_owned()));
        for shell in Shell::value_variants() {
            let script = String::from_utf8(completions(*shell)).unwrap();
            for name in &wanted {
                assert!(script.contains(name.as_str()), "{shell}: {name}");
            }
            assert!(!script.contains("__exec"), "{shell}");
        }
    }

    #[test]
    fn the_help_of_a_door_names_its_flags() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("omp").unwrap().render_help().to_string();
        for listed in flags::LISTED {
            assert!(help.contains(&format!("--{} ", listed.name)) && help.contains(listed.help), "{}", listed.name);
        }
    }

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }
}
