//! `backup` and `restore`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::target::TargetArgs;
use crate::backup;

#[derive(Args)]
pub(super) struct BackupArgs {
    /// Folder to create; it must be empty or not exist
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Include files with secrets: the configuration, the key of logins, secrets of agents and of the gsv adapter
    #[arg(long)]
    secrets: bool,
    /// The rules [default: permissions.yaml next to the configuration]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    #[command(flatten)]
    pub(super) at: TargetArgs,
}

#[derive(Args)]
pub(super) struct RestoreArgs {
    /// Folder of the backup
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Rename an existing data directory, to a name with the time; otherwise one that is not empty is refused
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
        // Without the flag, a gateway may have no rules; a file that was named must be in the backup.
        if let Some(file) = &permissions {
            let shown = file.display();
            anyhow::ensure!(
                !matches!(file.try_exists(), Ok(false)),
                "{shown} does not exist: pass the file of the rules with --permissions"
            );
            anyhow::ensure!(
                file.is_file(),
                "{shown} is not a readable file: pass the file of the rules with --permissions"
            );
        }
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
