//! `sessions`.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use super::{at::Where, audit::Of};
use crate::sessions;

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
    let (log, form) = (of.log(at)?, at.form());
    match what {
        Sessions::List => sessions::list(&log, form),
        Sessions::Show { id } => sessions::show(&log, id, form),
        Sessions::Export { id, format: Format::Jsonl } => sessions::export(&log, id),
        Sessions::Export { id, format: Format::Html } => sessions::export_html(&log, id),
    }
}
