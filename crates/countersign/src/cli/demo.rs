//! `demo` and its flags.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use crate::{demo, exit::is_broken_pipe};

#[derive(Args)]
pub(super) struct DemoArgs {
    /// Allow the command without asking, for scripts
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Deny the command without asking, for scripts
    #[arg(long)]
    no: bool,
    /// Work in DIR, which must be empty or not exist, and keep it
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the scratch folder, and the record in it
    #[arg(long)]
    keep: bool,
}

impl DemoArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        crate::logging::start();
        let answer = match (self.yes, self.no) {
            (true, _) => demo::DemoAnswer::Yes,
            (false, true) => demo::DemoAnswer::No,
            (false, false) => demo::DemoAnswer::InTheTerminal,
        };
        let folder = demo::DemoFolder::from_flags(self.dir, self.keep);
        demo::run(demo::DemoOptions { answer, folder }).map_err(|error| {
            // Elsewhere the reader has seen enough; here the run was cut short.
            let cut = is_broken_pipe(&error);
            if cut { anyhow::anyhow!("the output was closed before the demo ended") } else { error }
        })
    }
}
