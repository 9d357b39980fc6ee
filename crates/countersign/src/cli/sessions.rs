//! `sessions`.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use super::{at::Where, audit::Of};
use crate::{running, sessions};

/// The forms of an export.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// One JSON object a line, as `audit export` has them
    Jsonl,
    /// The conversation as one page that loads and runs nothing
    Html,
}

#[derive(Subcommand)]
pub(super) enum Sessions {
    /// Which there are, the one that was last at work first
    List,
    /// Which of gjc's run on this machine now, and how each is reached, as programs find them
    ///
    /// Reads the agent directory, and no record. Records of processes that are gone are removed.
    Running,
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
        format: Format,
    },
}

pub(super) fn run(what: &Sessions, of: Of, at: &Where) -> anyhow::Result<ExitCode> {
    let form = at.form();
    match what {
        Sessions::Running => running::list(form),
        Sessions::List => {
            let gateway = of.gateway(at)?;
            sessions::list(&of.log(at)?, gateway.as_deref(), form)
        }
        Sessions::Show { id } => {
            let gateway = of.gateway(at)?;
            sessions::show(&of.log(at)?, gateway.as_deref(), id, form)
        }
        Sessions::Export { id, format: Format::Jsonl } => sessions::export(&of.log(at)?, id),
        Sessions::Export { id, format: Format::Html } => sessions::export_html(&of.log(at)?, id),
    }
}
