//! `agents`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::at::Where;
use crate::agents::{self, What};

#[derive(Subcommand)]
pub(super) enum Agents {
    /// Who they are, and where the token of each comes from
    List,
    /// Add one and print its token, once
    ///
    /// The token is written into the file, which nobody but its owner can read from then on; with --env a variable is.
    Add {
        /// Its name: letters, digits, dots, - and _
        id: String,
        #[command(flatten)]
        token: Token,
    },
    /// Give one another token and print it, once
    ///
    /// A token that comes from a variable still does: set the variable to what is printed.
    Rotate {
        /// Its name
        id: String,
        #[command(flatten)]
        token: Token,
    },
    /// Remove one
    Remove {
        /// Its name
        id: String,
    },
}

/// Where a token is kept.
#[derive(Args)]
pub(super) struct Token {
    /// Write ${NAME} into the file, and print what that variable is to be set to
    #[arg(long, value_name = "NAME", value_parser = agents::parse_variable)]
    env: Option<String>,
}

pub(super) fn run(what: Agents, at: &Where) -> anyhow::Result<ExitCode> {
    let what = match what {
        Agents::List => What::List,
        Agents::Add { id, token } => What::Add { id, variable: token.env },
        Agents::Rotate { id, token } => What::Rotate { id, variable: token.env },
        Agents::Remove { id } => What::Remove { id },
    };
    agents::run(at.config().as_deref(), at.data.as_deref(), &what, at.form())
}
