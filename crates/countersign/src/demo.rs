//! `countersign demo`: a scripted model does a small task with real tools, under real rules, and a person decides about the last step.
//!
//! It must not touch anything outside of its own folder, nor need a key, a configuration or a network.

mod driver;
mod environment;
mod person;
mod printer;
mod scratch;

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use countersign_core::{
    engine::{Command, ResumeMode},
    id::{Lsn, SessionId},
    session::{self, Settings},
};
use countersign_models::demo as script;
use countersign_runtime::{Clock, InboxLane, OwnerHandle, OwnerOptions, model_ref, system_entropy};
use countersign_store::{self as store, Log as _, Partition, SqliteLog};
use tokio::signal::unix::{SignalKind, signal};

use self::{
    driver::DemoOutcome,
    environment::{DemoEnvironment, OutputPace},
    person::DemoPerson,
    printer::DemoPrinter,
    scratch::{KeepFolder, ScratchDir},
};
use crate::audit::{self, RecordFormatter};

/// Time of a delta on a terminal: about as long as a reader takes to read it.
const READABLE: Duration = Duration::from_millis(45);
/// Exit code of an interrupted process.
const INTERRUPTED: u8 = 130;

/// Options of the demo.
#[derive(Clone, Debug)]
pub(crate) struct DemoOptions {
    /// Source of the answers.
    pub(crate) answer: DemoAnswer,
    /// Folder in which it works.
    pub(crate) folder: DemoFolder,
}

/// Source of the approver's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoAnswer {
    /// `--yes`.
    Yes,
    /// `--no`.
    No,
    /// The person, if there is a terminal.
    InTheTerminal,
}

/// Folder of the demo.
#[derive(Clone, Debug)]
pub(crate) enum DemoFolder {
    /// In a folder of its own, removed at the end.
    Passing,
    /// In a folder of its own, kept.
    Kept,
    /// In a folder that the person named, kept.
    Named(PathBuf),
}

impl DemoFolder {
    /// Returns the folder that the flags select.
    pub(crate) fn from_flags(dir: Option<PathBuf>, keep: bool) -> Self {
        match dir {
            Some(dir) => Self::Named(dir),
            None if keep => Self::Kept,
            None => Self::Passing,
        }
    }
}

/// Runs the demo to its end.
///
/// # Errors
/// The cause that kept it from running. The scratch folder is gone then too.
pub(crate) fn run(options: DemoOptions) -> anyhow::Result<ExitCode> {
    let launcher = std::env::current_exe().context("the path of this program is unknown")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(crate::STACK)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(Box::pin(run_demo(options, &launcher)));
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome
}

async fn run_demo(options: DemoOptions, launcher: &Path) -> anyhow::Result<ExitCode> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // A terminal that closes must not leave the scratch folder.
    let mut hangup = signal(SignalKind::hangup())?;
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let scratch = match &options.folder {
        DemoFolder::Passing => ScratchDir::new(&std::env::temp_dir(), "demo", KeepFolder::No)?,
        DemoFolder::Kept => ScratchDir::new(&std::env::temp_dir(), "demo", KeepFolder::Yes)?,
        DemoFolder::Named(folder) => ScratchDir::in_folder(folder)?,
    };
    let place = DemoPaths::create_folders(scratch.path())?;
    let is_watched = std::io::stdout().is_terminal();
    let person = match options.answer {
        DemoAnswer::Yes => DemoPerson::Yes,
        DemoAnswer::No => DemoPerson::No,
        DemoAnswer::InTheTerminal if is_watched && std::io::stdin().is_terminal() => DemoPerson::in_the_terminal(),
        DemoAnswer::InTheTerminal => DemoPerson::Nobody,
    };
    let pace = if is_watched { OutputPace::Readable(READABLE) } else { OutputPace::AtOnce };
    let environment = Arc::new(DemoEnvironment::new(launcher, &place.project, pace)?);

    let mut printer = DemoPrinter::for_stdout();
    printer.print_intro(&place.project, &environment::RULES, &person)?;
    let handle = OwnerHandle::open(
        SqliteLog::open(&place.record, store::LogOptions::default())?.into(),
        OwnerOptions {
            rules: environment::demo_rules(&place.record)?,
            resume: ResumeMode::Wait,
            clock: Clock::system(),
            entropy: system_entropy(),
            environment: Arc::clone(&environment) as Arc<dyn countersign_runtime::RunEnvironment>,
            merge: Duration::ZERO,
            idle: None,
        },
    )
    .await?;
    let played = run_session(&handle, &place, person, &mut printer, stop).await;
    // After any outcome, all of its work ends.
    handle.close().await;
    handle.close_log().await;
    environment.close().await;
    let finish = played?;
    if finish == DemoOutcome::Interrupted {
        printer.print_interrupted()?;
        return Ok(ExitCode::from(INTERRUPTED));
    }
    show_record(&place.record, &mut printer).await?;
    printer.print_decisions(place.is_published())?;
    printer.print_closing(scratch.is_kept().then_some(place.record.as_path()))?;
    Ok(if finish == DemoOutcome::Completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_session(
    handle: &OwnerHandle,
    place: &DemoPaths,
    person: DemoPerson,
    printer: &mut DemoPrinter,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<DemoOutcome> {
    let entry = script::model_entry();
    let mut settings = Settings { model: Some(model_ref(&entry)), ..Settings::default() };
    settings.thresholds.auto = false;
    let session = SessionId::new("demo");
    let open = session::Command::Open {
        cwd: place.project.display().to_string(),
        name: Some("demo".to_owned()),
        parent: None,
        door: None,
        settings: Box::new(settings),
    };
    handle.source(InboxLane::Request).send_command(Command::Session(session.clone(), open)).await?;
    driver::run_prompt(handle, &session, &place.project, person, printer, stop).await
}

/// Reads the record as any user could afterwards, and checks it.
async fn show_record(path: &Path, printer: &mut DemoPrinter) -> anyhow::Result<()> {
    let log = audit::open_record(path)?;
    let mut narrator = RecordFormatter::default();
    printer.record_begins()?;
    audit::for_each_entry(&log, Lsn(0), async |stored, content| {
        let text = narrator.format_line(&stored, content.as_deref());
        Ok(printer.print_entry(&stored, &text)?)
    })
    .await?;
    let report = log.verify_chain(Partition::ZERO, None).await?;
    log.close().await;
    printer.print_verification(&report)?;
    Ok(())
}

/// The folders and files of the demo.
struct DemoPaths {
    /// Folder of the agent's project.
    project: PathBuf,
    /// Folder that the agent wants to replace.
    published: PathBuf,
    /// The record.
    record: PathBuf,
}

impl DemoPaths {
    /// Creates the broken project, and next to it its last published version.
    fn create_folders(root: &Path) -> anyhow::Result<Self> {
        let place =
            Self { project: root.join("project"), published: root.join("published"), record: root.join("record.db") };
        for folder in [&place.project, &place.published] {
            std::fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            for (name, text) in script::PROJECT {
                let path = folder.join(name);
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(place)
    }

    fn is_published(&self) -> bool {
        std::fs::read_to_string(self.published.join("greet.sh")).is_ok_and(|text| text.contains(script::FIX))
    }
}
