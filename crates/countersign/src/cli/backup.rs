//! `backup` and `restore`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::at::Where;
use crate::backup;

#[derive(Args)]
pub(super) struct Backup {
    /// The folder that is made; it must not be there yet
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Take along what holds secrets too: the configuration, the key of logins, secrets of agents and of the gsv door
    #[arg(long)]
    secrets: bool,
    /// The rules, if they do not lie in permissions.yaml beside the configuration
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    #[command(flatten)]
    pub(super) at: Where,
}

#[derive(Args)]
pub(super) struct Restore {
    /// The folder of the backup
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Put the data directory that is there aside, under a name with the time; without it one that holds something is refused
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    pub(super) at: Where,
}

impl Backup {
    pub(super) fn run(self, before: super::Before) -> anyhow::Result<ExitCode> {
        let Self { to, secrets, permissions, at } = self;
        let at = at.after(before);
        let config = at.config();
        let beside = config.as_ref().map(|config| config.with_file_name("permissions.yaml"));
        let settings = backup::Settings::of(config, permissions.or(beside));
        backup::backup(&at.place()?, &backup::Options { to, settings, secrets }, at.form())
    }
}

impl Restore {
    pub(super) fn run(self, before: super::Before) -> anyhow::Result<ExitCode> {
        let Self { from, replace, at } = self;
        let at = at.after(before);
        backup::restore(&at.place()?, &backup::Restore { from, replace, config: at.config() }, at.form())
    }
}
