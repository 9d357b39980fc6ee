//! `sessions`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};

use super::{audit::LogArgs, target::TargetArgs};
use crate::{running_sessions, sessions};

/// The forms of an export.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum SessionExportFormat {
    /// One JSON object a line, as `audit export` has them
    Jsonl,
    /// The conversation as one page that loads and runs nothing
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
    /// Which there are, the one that was last at work first
    List,
    /// Which of gjc's run on this machine now, and how each is reached, as programs find them
    ///
    /// Reads the agent directory, and no record. Records of processes that are gone are removed.
    Running {
        #[command(flatten)]
        meant: NoRecord,
    },
    /// What happened in one
    Show {
        /// Its id, or the end of it
        id: String,
    },
    /// Print one
    Export {
        /// Its id, or the end of it
        id: String,
        /// The form
        #[arg(long, value_enum, default_value = "jsonl")]
        format: SessionExportFormat,
    },
}

pub(super) fn run(what: &SessionsCommand, of: LogArgs, at: &TargetArgs) -> anyhow::Result<ExitCode> {
    let form = at.output_format();
    match what {
        SessionsCommand::Running { meant } => {
            if !meant.is_empty() || !of.is_empty() || at.config.is_some() || at.data.is_some() {
                bail!("--config, --data and --log mean nothing to `sessions running`: it reads the agent directory");
            }
            running_sessions::print_running(form)
        }
        SessionsCommand::List => {
            let gateway = of.gateway_folder(at)?;
            sessions::print_sessions(&of.log_path(at)?, gateway.as_deref(), form)
        }
        SessionsCommand::Show { id } => {
            let gateway = of.gateway_folder(at)?;
            sessions::print_session(&of.log_path(at)?, gateway.as_deref(), id, form)
        }
        SessionsCommand::Export { id, format: SessionExportFormat::Jsonl } => {
            sessions::export_session(&of.log_path(at)?, id)
        }
        SessionsCommand::Export { id, format: SessionExportFormat::Html } => {
            sessions::export_html(&of.log_path(at)?, id)
        }
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
                assert!(refused.contains("mean nothing to `sessions running`"), "{refused}");
            }
        }
    }
}
