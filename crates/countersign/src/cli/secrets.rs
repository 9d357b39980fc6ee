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
    /// Set a secret from standard input; a running gateway can use it at once
    ///
    /// For example `countersign secret set DEPLOY_KEY < key.txt`. On a terminal you are asked for the value, which is
    /// not shown. A newline at its end is ignored. An existing secret of this name is replaced.
    Set {
        /// Name of the secret: a letter or _, then letters, digits, _, - and dots
        name: String,
        /// Read the value from FILE instead of standard input
        #[arg(long = "from", value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// List secret names
    List,
    /// Remove a secret; a running gateway stops using it
    Remove {
        /// Name of the secret
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
