//! `secret`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use super::target::TargetArgs;
use crate::secrets::{self, SecretsAction};

#[derive(Args)]
pub(super) struct SecretArgs {
    #[command(subcommand)]
    what: SecretCommand,
    #[command(flatten)]
    at: TargetArgs,
}

#[derive(Subcommand)]
enum SecretCommand {
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

impl SecretArgs {
    pub(super) fn run(self, before: super::GlobalArgs) -> anyhow::Result<ExitCode> {
        let what = match self.what {
            SecretCommand::Set { name, from } => SecretsAction::Set { name, from },
            SecretCommand::List => SecretsAction::List,
            SecretCommand::Remove { name } => SecretsAction::Remove { name },
        };
        let at = self.at.merge_globals(before);
        secrets::run(&at.data_dir()?.folder, &what, at.output_format())
    }
}
