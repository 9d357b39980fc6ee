//! `backup` and `restore`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::target::TargetArgs;
use crate::backup;

#[derive(Args)]
pub(super) struct BackupArgs {
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
    pub(super) at: TargetArgs,
}

#[derive(Args)]
pub(super) struct RestoreArgs {
    /// The folder of the backup
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Put the data directory that is there aside, under a name with the time; without it one that holds something is refused
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    pub(super) at: TargetArgs,
}

impl BackupArgs {
    pub(super) fn run(self, before: super::GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self { to, secrets, permissions, at } = self;
        let at = at.merge_globals(before);
        let config = at.config_path();
        let beside = config.as_ref().map(|config| config.with_file_name("permissions.yaml"));
        let settings = backup::SettingsFiles::new(config, permissions.or(beside));
        backup::create_backup(&at.data_dir()?, &backup::BackupOptions { to, settings, secrets }, at.output_format())
    }
}

impl RestoreArgs {
    pub(super) fn run(self, before: super::GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self { from, replace, at } = self;
        let at = at.merge_globals(before);
        backup::restore_backup(
            &at.data_dir()?,
            &backup::Restore { from, replace, config: at.config_path() },
            at.output_format(),
        )
    }
}
