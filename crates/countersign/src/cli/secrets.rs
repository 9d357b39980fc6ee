//! `secret`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use super::at::Where;
use crate::secrets::{self, What};

#[derive(Args)]
pub(super) struct Secrets {
    #[command(subcommand)]
    what: Asked,
    #[command(flatten)]
    at: Where,
}

#[derive(Subcommand)]
enum Asked {
    /// Keep a secret, read from standard input; a gateway that runs knows it at once
    ///
    /// Such as `countersign secret set DEPLOY_KEY < key.txt`. On a terminal it is asked for and not shown. A line end behind
    /// it does not count. It replaces what was there under the name.
    Set {
        /// Its name: a letter or _, then letters, digits, _, - and dots
        name: String,
        /// Read it from FILE in place of standard input
        #[arg(long = "from", value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// Which there are, without their values
    List,
    /// Remove one: a gateway that runs gives it to nothing any more
    Remove {
        /// Its name
        name: String,
    },
}

impl Secrets {
    pub(super) fn run(self, before: super::Before) -> anyhow::Result<ExitCode> {
        let what = match self.what {
            Asked::Set { name, from } => What::Set { name, from },
            Asked::List => What::List,
            Asked::Remove { name } => What::Remove { name },
        };
        let at = self.at.after(before);
        secrets::run(&at.place()?.folder, &what, at.form())
    }
}
