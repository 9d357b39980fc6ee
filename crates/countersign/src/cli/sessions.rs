//! `sessions`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};

use super::{audit::LogArgs, target::TargetArgs};
use crate::{audit::MissingRecord, running_sessions, sessions};

/// The forms of an export.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum SessionExportFormat {
    /// One JSON object per line, as in `audit export`
    Jsonl,
    /// The conversation as one HTML page without scripts or external resources
    Html,
}

/// Flags that say which record is meant, where none is read: they are not offered, and refused.
#[derive(Args)]
pub(super) struct NoRecord {
    #[arg(long, hide = true)]
    log: Option<PathBuf>,
    #[arg(long, hide = true)]
    config: Option<PathBuf>,
    #[arg(long, hide = true)]
    data: Option<PathBuf>,
}

impl NoRecord {
    const fn is_empty(&self) -> bool {
        self.log.is_none() && self.config.is_none() && self.data.is_none()
    }
}

#[derive(Subcommand)]
pub(super) enum SessionsCommand {
    /// List sessions, the most recently active first
    List,
    /// List the gjc sessions that run on this machine, and how to connect to each
    ///
    /// Reads the agent directory instead of a record. Entries of processes that have ended are removed.
    Running {
        #[command(flatten)]
        meant: NoRecord,
    },
    /// Show the history of a session
    Show {
        /// Id of the session, or the end of it
        id: String,
    },
    /// Export a session to standard output
    Export {
        /// Id of the session, or the end of it
        id: String,
        /// Format of the export
        #[arg(long, value_enum, default_value = "jsonl")]
        format: SessionExportFormat,
    },
}

pub(super) fn run(what: &SessionsCommand, of: LogArgs, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let is_named = !of.is_empty();
    run_on_record(what, of, at).map_err(|error| if is_named { MissingRecord::of_named(error) } else { error })
}

fn run_on_record(what: &SessionsCommand, of: LogArgs, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let form = at.output_format();
    match what {
        SessionsCommand::Running { meant } => {
            if !meant.is_empty() || !of.is_empty() || at.config.is_some() || at.data.is_some() {
                bail!(
                    "--config, --data and --log cannot be used with `sessions running`: it reads the agent directory"
                );
            }
            running_sessions::print_running(form)
        }
        SessionsCommand::List => {
            let gateway = of.gateway_folder(at)?;
            sessions::print_sessions(&of.record(at)?, gateway.as_deref(), form)
        }
        SessionsCommand::Show { id } => {
            let gateway = of.gateway_folder(at)?;
            sessions::print_session(&of.record(at)?, gateway.as_deref(), id, form)
        }
        SessionsCommand::Export { id, format: SessionExportFormat::Jsonl } => {
            sessions::export_session(&of.record(at)?, id)
        }
        SessionsCommand::Export { id, format: SessionExportFormat::Html } => sessions::export_html(&of.record(at)?, id),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use crate::cli::Cli;

    #[test]
    fn what_names_a_record_is_offered_only_where_one_is_read() {
        let mut command = Cli::command();
        command.build();
        let sessions = command.find_subcommand_mut("sessions").unwrap();
        for (name, is_offered) in [("running", false), ("list", true), ("show", true)] {
            let help = sessions.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            for flag in ["--config", "--data", "--log"] {
                assert_eq!(help.contains(flag), is_offered, "{name} {flag}: {help}");
            }
        }
    }

    #[test]
    fn where_no_record_is_read_none_can_be_named() {
        for before in [true, false] {
            for flag in ["--config", "--data", "--log"] {
                let mut line = vec!["countersign", "sessions", "running"];
                let at = if before { 2 } else { 3 };
                line.splice(at..at, [flag, "x"]);
                let refused = crate::cli::run(Cli::try_parse_from(line).unwrap()).unwrap_err().to_string();
                assert!(refused.contains("cannot be used with `sessions running`"), "{refused}");
            }
        }
    }
}
