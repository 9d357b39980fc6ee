//! Cases of a client of the Agent Client Protocol whose agent is `countersign acp`.
//!
//! The model is the scripted one of the gateway, with the project of `countersign demo`. A case fails if other files changed than had to.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::agents::{
    acp_client::{AcpClient, ClientAnswer, ClientSetup},
    acp_outcome::{AcpOutcome, PromptOutcome},
    demo_project::{DemoProject, PROMPT},
    process::ProcessGroup,
    relay,
    scratch_gateway::{ASK_ALL, ScratchGateway},
};

/// Longest time for a prompt.
const LIMIT: Duration = Duration::from_secs(90);

/// Case of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcpCase {
    /// The client allows each call.
    Allowed,
    /// The client denies each call.
    Denied,
}

/// Place of one case.
pub(crate) struct AcpContext<'a> {
    pub(crate) client: AcpClient,
    pub(crate) programs: &'a Path,
    /// Folder with the scripts of this suite.
    pub(crate) scripts: &'a Path,
    pub(crate) binary: &'a Path,
    /// Folder of this case.
    pub(crate) folder: PathBuf,
    /// Address of the service that each gateway has.
    pub(crate) service_url: &'a str,
}

impl AcpCase {
    pub(crate) const ALL: [Self; 2] = [Self::Allowed, Self::Denied];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "acp-allowed",
            Self::Denied => "acp-denied",
        }
    }

    /// Returns the files that have to change, in order.
    const fn expectation(self) -> &'static [&'static str] {
        match self {
            Self::Allowed => &["project/greet.sh", "published/greet.sh"],
            Self::Denied => &[],
        }
    }

    const fn answer(self) -> ClientAnswer {
        match self {
            Self::Allowed => ClientAnswer::Allow,
            Self::Denied => ClientAnswer::Deny,
        }
    }

    /// Runs the case, and returns what happened.
    ///
    /// # Errors
    /// A step failed, or other files changed than the expectation has.
    pub(crate) fn run(self, context: &AcpContext<'_>) -> anyhow::Result<AcpOutcome> {
        let home = context.folder.join("home");
        fs::create_dir_all(&home)?;
        let project = DemoProject::create(context.binary, &home, &context.folder.join("demo"))?;
        let folder = context.folder.join("gateway");
        let mut gateway = ScratchGateway::prepare(context.binary, &folder, context.service_url, ASK_ALL)?;
        gateway.add_demo_model()?;
        gateway.restart()?;
        let frames = context.folder.join("frames.log");
        let mut command = context.client.command(&ClientSetup {
            programs: context.programs,
            scripts: context.scripts,
            home: &home,
            project: &project.path(),
            agent: &relay::command(&frames, gateway.acp_command())?,
            answer: self.answer(),
            prompt: PROMPT,
        });
        let log = |stream| File::create(context.folder.join(format!("client.{stream}")));
        let mut client = ProcessGroup::spawn(command.stdout(log("out")?).stderr(log("err")?))?;
        let exit = client.wait(LIMIT).context("the client did not end")?.code();
        let outcome = AcpOutcome {
            changed: project.changed_files()?,
            prompt: PromptOutcome::parse(&fs::read_to_string(&frames)?)?,
            exit,
            open: gateway.pending_gates()?.len(),
        };
        let changed = self.expectation();
        ensure!(outcome.changed == changed, "{changed:?} had to change; {outcome}");
        Ok(outcome)
    }
}
