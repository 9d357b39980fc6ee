//! The command line.

mod acp;
mod agents;
mod audit;
mod backup;
mod client_args;
mod cluster;
mod demo;
mod gates_command;
mod manual_pages;
mod mcp_servers;
mod node;
mod policy;
mod proxies;
mod secrets;
mod serve;
mod sessions;
mod storage;
mod target;
mod tokens;

use std::{ffi::OsString, io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use countersign_adapter_omp::flags;
use countersign_agent_dir::AgentProduct;

use crate::{agent, config, doctor, exit::report_outcome, gates, guard};

use client_args::ClientArgs;
use gates_command::{GatesCommand, GrantsCommand};
use target::{GlobalArgs, TargetArgs};

const AFTER_HELP: &str = "\
Exit codes:
  0    success; also of `demo` if you denied its command
  1    failure, or `audit verify`, `config check`, `policy check`,
       `policy test` or `doctor` found a problem
  2    the command line could not be parsed
  3,4  of `request`, `tools` and `pending`: see
       `countersign request --help`
  130  interrupted

Environment:
  COUNTERSIGN_LOG  log filter for stderr, for example `debug` or
                   `countersign_runtime=debug`
  NO_COLOR         disables colours on a terminal

Start with `countersign demo`.";

/// Agent gateway: agents propose, policy decides, and you countersign before anything happens.
#[derive(Parser)]
#[command(name = "countersign", version = env!("COUNTERSIGN_VERSION"), about, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    before: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch an agent work and ask for your approval: no key, no configuration, no network
    ///
    /// A scripted model repairs a small project in a scratch folder, with real tools and real rules. No rule covers its
    /// last command: you allow or deny it in the terminal. Without a terminal, and without --yes or --no, the command
    /// is denied. The exit code is 0 whether you allow or deny it.
    Demo(demo::DemoArgs),
    /// Run a coding agent for a host that speaks JSON lines over stdio (`countersign omp --mode rpc …`)
    #[command(disable_help_flag = true, after_help = flags_of(AgentProduct::Omp))]
    Omp {
        /// The flags of `omp`; see docs/protocol/omp.md
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Run a coding agent for a host of gjc (`countersign gjc --mode rpc …`)
    #[command(disable_help_flag = true, after_help = flags_of(AgentProduct::Gjc))]
    Gjc {
        /// The flags of `gjc`; see docs/protocol/gjc.md
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Read, verify, export or redact the record of decisions
    Audit {
        #[command(subcommand)]
        what: audit::AuditCommand,
        #[command(flatten)]
        of: audit::LogArgs,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Run a gateway, which executes calls of agents as your rules and approvers decide
    ///
    /// Prints `countersign ready on ADDRESS` when it accepts connections. SIGHUP reloads the rules. SIGTERM shuts down
    /// within seconds; pending approvals are kept and restored on the next start.
    Serve(serve::ServeArgs),
    /// Lend this machine's files and commands to the agents of a remote gateway, as a node
    ///
    /// Connects to the gateway and offers its agents tools that work in one folder of this machine. A journal of their
    /// calls ensures that no call runs twice and no result is lost if the connection breaks or this process dies.
    #[command(after_help = node::AFTER_HELP)]
    Node(node::NodeArgs),
    /// Offer the tools of a running gateway to an MCP host over stdio
    ///
    /// A pipe: the gateway has the tools, rules and approvals. Register it in your host, for example with
    /// `claude mcp add countersign -- countersign mcp --config /path/to/config.yaml`.
    Mcp {
        /// Start a gateway for this host alone, which ends with it
        ///
        /// For hosts on a machine where no gateway runs. The gateway uses the data directory of --data or of the
        /// configuration, and refuses to start if another gateway uses it. Without a configuration it listens on a free
        /// port of this machine. Its address is printed on stderr; answer approvals there or with `countersign gates`.
        #[arg(long)]
        standalone: bool,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Be a coding agent for an editor that speaks the Agent Client Protocol on standard input and output
    ///
    /// Sessions work in the gateway of --config or --data, or in the user's own gateway if it runs. Otherwise a gateway for
    /// editors alone starts, with the models, keys and rules of the agent directory, and ends with the last editor.
    /// docs/start/editors.md has the lines for each editor.
    ///
    /// With --agent it is a proxy before another agent of that protocol, and the gateway decides what that agent asks for.
    Acp(acp::AcpArgs),
    /// Be a proxy before `codex app-server`, for a client on standard input and output
    ///
    /// The gateway decides what Codex asks for: commands, texts to their input, changes of files and permissions. Threads
    /// are kept in settings with which Codex asks.
    Codex(proxies::CodexArgs),
    /// Ask a running gateway about a call of Claude Code, Codex, Gemini CLI, Copilot CLI or opencode, as their hook
    ///
    /// Reads the input of the hook on standard input, waits until rules or a person have decided, and prints the answer
    /// in the form of the program. Exit code 2, which blocks the call, if the gateway cannot be asked.
    Hook {
        /// The program that runs the hook
        #[arg(value_parser = ["claude", "codex", "gemini", "copilot", "opencode"])]
        program: String,
        /// Longest wait for a person, in seconds; it must be shorter than the time limit that the program has for hooks
        #[arg(long, value_name = "SECONDS", default_value_t = 540, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        wait: u64,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Install the hook of Countersign in the settings of Claude Code, Codex, Gemini CLI, Copilot CLI or opencode
    ///
    /// Prints the exact change before it makes it, the grade of the guard, and what gets past it. A file that the program
    /// itself would not read, a link, and a file that cannot be written are left alone.
    Guard {
        #[command(subcommand)]
        what: Option<guard::GuardCommand>,
        #[command(flatten)]
        service: crate::user_service::ServiceArgs,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Take the hook of Countersign out of the settings of a program again
    ///
    /// If no user has edited the file since, it is byte by byte what it was before. Otherwise only what `guard` added goes.
    Unguard {
        /// The program
        #[arg(required_unless_present = "service")]
        program: Option<guard::GuardedName>,
        /// Remove the unit of `guard --service`
        #[arg(long, conflicts_with = "program")]
        service: bool,
    },
    /// Answer the permissions of an opencode server from the rules and approvers of a running gateway
    ///
    /// Starts `opencode serve` in this folder, or follows one that runs. Each permission becomes a call of the gateway; the
    /// answer is "once" or "reject". Without an answer no call runs.
    Opencode {
        #[command(flatten)]
        options: crate::opencode::OpencodeArgs,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Request a call from a gateway, as an agent: `countersign request TOOL key=value …`
    ///
    /// Prints the result as JSON. Exit codes: 1 if the call was denied or failed, 2 if no answer came in time, 3 if the
    /// gateway cannot be reached or rejects the token, 4 if an argument is not key=value.
    Request {
        /// Name of the tool
        tool: String,
        /// Arguments of the tool; all values are strings
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
        #[command(flatten)]
        asker: ClientArgs,
    },
    /// List the tools that a gateway offers to an agent
    Tools {
        #[command(flatten)]
        asker: ClientArgs,
    },
    /// Print results that the agent has not received yet
    Pending {
        #[command(flatten)]
        asker: ClientArgs,
    },
    /// List, answer and watch pending approvals
    Gates {
        #[command(subcommand)]
        what: GatesCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// List and revoke standing approvals and denials
    Grants {
        #[command(subcommand)]
        what: GrantsCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// List, add and remove agents and their tokens in the configuration file
    Agents {
        #[command(subcommand)]
        what: agents::AgentsCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// List, add and remove tokens of programs that use the gateway over HTTP
    Tokens {
        #[command(subcommand)]
        what: tokens::TokensCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// List, test and approve the MCP servers of the configuration
    McpServers {
        #[command(subcommand)]
        what: mcp_servers::McpServersCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Set, list and remove secrets that agents use by name and never see
    Secret(secrets::SecretArgs),
    /// List, show and export sessions from the record, also while a gateway runs
    Sessions {
        #[command(subcommand)]
        what: sessions::SessionsCommand,
        #[command(flatten)]
        of: audit::LogArgs,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Check a configuration and its rules, or show the effective configuration
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Check configuration, dependencies and permissions, and suggest fixes
    ///
    /// Checks the configuration, its rules and files, services, Telegram, the clock, the disk, the record, and whether
    /// a gateway runs. Changes nothing. The exit code is 0 if there is nothing to fix, else 1.
    Doctor {
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Copy the record, its objects, workspaces and rules into a folder, also while a gateway runs
    ///
    /// Verifies the copied record from its first entry to its last, and prints the head. If interrupted, no partial
    /// backup is left under that name.
    Backup(backup::BackupArgs),
    /// Restore a data directory from a backup, and verify it
    ///
    /// Refused while a gateway uses that directory. If interrupted, the directory stays as it was.
    Restore(backup::RestoreArgs),
    /// Show and change which node of a cluster serves the realm
    Cluster(cluster::ClusterArgs),
    /// Move the record between a file and a PostgreSQL database
    Storage {
        #[command(subcommand)]
        what: storage::StorageCommand,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Show the log level of a running gateway, or change it until the gateway stops
    ///
    /// Without LEVEL, prints the current level. `log.level` in the configuration sets the level at the start.
    LogLevel {
        /// off, error, warn, info, debug, trace, or a list such as warn,countersign_runtime=debug
        #[arg(value_name = "LEVEL")]
        level: Option<String>,
        #[command(flatten)]
        at: TargetArgs,
    },
    /// Check and test rules before you apply them, and explain the verdict on a call
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Print a completion script for a shell
    ///
    /// For example `source <(countersign completions bash)`, or
    /// `countersign completions fish > ~/.config/fish/completions/countersign.fish`.
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of all commands into a folder
    ///
    /// `man -l DIR/countersign.1` shows a page. `man countersign` works too if DIR is `~/.local/share/man/man1`.
    Man {
        /// Folder for the pages; it is created if missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print errors and warnings with file, line and key; the exit code is 1 if there is an error
    Check,
    /// Print the effective configuration with defaults; credentials are hidden
    Show,
}

/// Returns the flags of a stdio door for `countersign help omp`.
fn flags_of(product: AgentProduct) -> String {
    format!("Flags of `{}`:\n{}\n{}", product.name(), flags::help_table(), crate::stdio::extra_flags_help(product))
}

pub(crate) fn main() -> ExitCode {
    report_outcome(run(Cli::parse_from(plain_help(std::env::args_os().collect()))))
}

/// Removes the flag for help after the command for help: `countersign help gates --help` is `countersign help gates`.
fn plain_help(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|command| command == "help") {
        arguments.retain(|argument| argument != "--help" && argument != "-h");
    }
    arguments
}

/// Runs the command line under the name `agentpass`: without a command it serves.
pub(crate) fn agentpass_main(arguments: Vec<String>) -> ExitCode {
    let commands = Cli::command();
    let is_known = |first: &String| {
        ["help", "--help", "-h", "--version", "-V"].contains(&first.as_str())
            || commands.find_subcommand(first).is_some()
    };
    let serves = !arguments.first().is_some_and(is_known);
    let named = ["agentpass".to_owned()].into_iter().chain(serves.then(|| "serve".to_owned()));
    report_outcome(run(Cli::parse_from(plain_help(named.chain(arguments).map(OsString::from).collect()))))
}

fn run(Cli { before, command }: Cli) -> anyhow::Result<ExitCode> {
    if !before.is_empty() && !command.has_target() {
        let message = "--config and --data cannot be used with this command";
        Cli::command().error(clap::error::ErrorKind::ArgumentConflict, message).exit();
    }
    match command {
        Command::Omp { flags } => Ok(crate::stdio::run(AgentProduct::Omp, flags)),
        Command::Gjc { flags } => Ok(crate::stdio::run(AgentProduct::Gjc, flags)),
        Command::Demo(demo) => demo.run(),
        Command::Audit { what, of, at } => audit::run(what, of, &at.merge_globals(before)),
        Command::Agents { what, at } => agents::run(what, &at.merge_globals(before)),
        Command::Tokens { what, at } => tokens::run(what, &at.merge_globals(before)),
        Command::McpServers { what, at } => mcp_servers::run(what, &at.merge_globals(before)),
        Command::Secret(secrets) => secrets.run(before),
        Command::Sessions { what, of, at } => sessions::run(&what, of, &at.merge_globals(before)),
        Command::Config { what, at } => {
            let at = at.merge_globals(before);
            match what {
                ConfigCommand::Check => config::check_config(at.config_path().as_deref(), at.data, at.json),
                ConfigCommand::Show => config::show_config(at.config_path().as_deref(), at.data, at.json),
            }
        }
        Command::Doctor { at } => {
            let at = at.merge_globals(before);
            doctor::run(at.config_path().as_deref(), at.data.as_deref(), at.output_format())
        }
        Command::Serve(serve) => serve.run(before),
        Command::Node(node) => {
            if before.config.is_some() {
                anyhow::bail!("--config cannot be used with `countersign node`");
            }
            countersign_node_client::run(node.into_options(before.data), crate::logging::start_for_node)
        }
        Command::Request { tool, arguments, asker } => {
            Ok(agent::run(asker.into(), agent::ClientCommand::Request { tool, arguments }))
        }
        Command::Tools { asker } => Ok(agent::run(asker.into(), agent::ClientCommand::Tools)),
        Command::Pending { asker } => Ok(agent::run(asker.into(), agent::ClientCommand::Pending)),
        Command::Gates { what, at } => {
            if what.lasts_without_scope() {
                let message = "--for needs --scope session or always";
                Cli::command().error(clap::error::ErrorKind::MissingRequiredArgument, message).exit();
            }
            let at = at.merge_globals(before);
            gates::run_gates_action(&at.data_dir()?, what.into(), at.output_format())
        }
        Command::Grants { what, at } => {
            let at = at.merge_globals(before);
            gates::run_grants_action(&at.data_dir()?, what.into(), at.output_format())
        }
        Command::Backup(backup) => backup.run(before),
        Command::Restore(restore) => restore.run(before),
        Command::Cluster(args) => cluster::run(args, before),
        Command::Storage { what, at } => storage::run(what, &at.merge_globals(before)),
        Command::LogLevel { level, at } => {
            let at = at.merge_globals(before);
            crate::log_level::run(&at.data_dir()?, level, at.output_format())
        }
        Command::Mcp { standalone, at } => {
            let at = at.merge_globals(before);
            let place = at.data_dir()?;
            match standalone {
                true => crate::mcp::run_standalone(&place.folder, at.config_path(), at.data),
                false => crate::mcp::run(place),
            }
        }
        Command::Acp(acp) => acp.run(before),
        Command::Codex(codex) => codex.run(before),
        Command::Hook { program, wait, at } => {
            let options = crate::hook::HookOptions { program, wait };
            Ok(crate::hook::run(options, || at.merge_globals(before).named_data_dir()))
        }
        Command::Guard { what, service, at } => {
            let at = at.merge_globals(before);
            guard::run(what.as_ref(), service, &at.data_dir()?, at.config.as_deref(), at.output_format())
        }
        Command::Unguard { program, .. } => guard::unguard(program),
        Command::Opencode { options, at } => {
            let at = at.merge_globals(before);
            crate::opencode::run(options, at.data_dir()?)
        }
        Command::Policy(what) => policy::run(what, before),
        Command::Completions { shell } => {
            std::io::stdout().write_all(&manual_pages::completion_script(shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => manual_pages::write_manual(&folder),
    }
}

impl Command {
    /// Reports whether it is about a gateway of this machine.
    const fn has_target(&self) -> bool {
        match self {
            Self::Audit { .. }
            | Self::Serve(_)
            | Self::Node(_)
            | Self::Gates { .. }
            | Self::Grants { .. }
            | Self::Agents { .. }
            | Self::Tokens { .. }
            | Self::McpServers { .. }
            | Self::Secret(_)
            | Self::Sessions { .. }
            | Self::Config { .. }
            | Self::Policy(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Cluster(_)
            | Self::Storage { .. }
            | Self::LogLevel { .. }
            | Self::Mcp { .. }
            | Self::Acp(_)
            | Self::Codex(_)
            | Self::Hook { .. }
            | Self::Guard { .. }
            | Self::Opencode { .. }
            | Self::Doctor { .. } => true,
            Self::Demo(_)
            | Self::Omp { .. }
            | Self::Gjc { .. }
            | Self::Request { .. }
            | Self::Unguard { .. }
            | Self::Tools { .. }
            | Self::Pending { .. }
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }
}

/// Reads a span such as `90s`, `30m`, `8h` or `7d`.
fn span(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(split);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("expected a number and a unit (s, m, h or d), for example 8h".to_owned()),
    };
    let seconds = count.parse::<u64>().ok().and_then(|count| count.checked_mul(unit)).filter(|seconds| *seconds > 0);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "expected a number and a unit (s, m, h or d), for example 8h".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, flags, plain_help};

    #[test]
    fn the_help_of_an_adapter_names_its_flags() {
        let mut command = Cli::command();
        // Lines break where the terminal ends.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let help = words(&command.find_subcommand_mut("omp").unwrap().render_help().to_string());
        for listed in flags::FLAG_HELP {
            let is_there = help.contains(&format!("--{} ", listed.name)) && help.contains(&words(listed.help));
            assert!(is_there, "{}", listed.name);
        }
    }

    #[test]
    fn the_flag_for_help_after_the_command_for_help_changes_nothing() {
        let plain = |line: &str| -> String {
            let plain = plain_help(line.split(' ').map(Into::into).collect());
            plain.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (line, want) in [
            ("countersign help --help", "countersign help"),
            ("countersign help gates -h", "countersign help gates"),
            ("countersign gates --help", "countersign gates --help"),
            ("countersign --help", "countersign --help"),
        ] {
            assert_eq!(plain(line), want, "{line}");
        }
    }

    /// Lists every command with its arguments and flags: their values, and the accepted ones.
    fn surface(path: &str, command: &clap::Command, lines: &mut Vec<String>) {
        for argument in command.get_arguments() {
            let mut line = path.to_owned();
            match (argument.get_long(), argument.get_short()) {
                (Some(long), Some(short)) => line.push_str(&format!(" -{short} --{long}")),
                (Some(long), None) => line.push_str(&format!(" --{long}")),
                (None, Some(short)) => line.push_str(&format!(" -{short}")),
                (None, None) => line.push_str(&format!(" [{}]", argument.get_id())),
            }
            let values = argument.get_possible_values();
            if argument.get_action().takes_values() {
                let names: Vec<_> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
                line.push_str(if names.is_empty() { " VALUE" } else { " " });
                line.push_str(&names.join("|"));
            }
            for (is_so, word) in [(argument.is_required_set(), "needed"), (argument.is_hide_set(), "hidden")] {
                if is_so {
                    line.push_str(&format!(" ({word})"));
                }
            }
            lines.push(line);
        }
        for subcommand in command.get_subcommands() {
            let path = format!("{path} {}", subcommand.get_name());
            lines.push(if subcommand.is_hide_set() { format!("{path} (hidden)") } else { path.clone() });
            surface(&path, subcommand, lines);
        }
    }

    /// People have commands and flags in scripts and units.
    #[test]
    fn commands_and_flags_keep_their_names() {
        let mut lines = Vec::new();
        surface("countersign", &Cli::command(), &mut lines);
        let listed = flags::FLAG_HELP.iter().map(|listed| format!("countersign omp|gjc --{}", listed.name));
        lines.extend(listed);
        let text = lines.join("\n") + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/surface.txt");
            std::fs::write(file, &text).unwrap();
            return;
        }
        assert_eq!(include_str!("cli/surface.txt"), text, "UPDATE_GOLDEN=1 writes it");
    }

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }
}
