//! `countersign demo`: a scripted model does a small task with real tools, under real rules, and a person decides about the last step.
//!
//! It must not touch anything outside of its own folder, nor need a key, a configuration or a network.

mod house;
mod person;
mod play;
mod scratch;
mod stage;

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
    house::{House, Pace},
    person::Person,
    play::Finish,
    scratch::{Keep, Scratch},
    stage::Stage,
};
use crate::audit::{self, RecordFormatter};

/// How long a delta takes where somebody watches: about as long as a person takes to read it.
const READABLE: Duration = Duration::from_millis(45);
/// What a process ends with that was interrupted.
const INTERRUPTED: u8 = 130;

/// What the demo is started with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Who answers.
    pub(crate) answer: Answered,
    /// Where it works.
    pub(crate) folder: Folder,
}

/// Who answers for the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// `--yes`.
    Yes,
    /// `--no`.
    No,
    /// The person, if there is a terminal.
    InTheTerminal,
}

/// Where the demo works.
#[derive(Clone, Debug)]
pub(crate) enum Folder {
    /// In a folder of its own, removed at the end.
    Passing,
    /// In a folder of its own, kept.
    Kept,
    /// In a folder that the person named, kept.
    Named(PathBuf),
}

impl Folder {
    /// What the flags say.
    pub(crate) fn of(dir: Option<PathBuf>, keep: bool) -> Self {
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
/// What kept it from running. The scratch folder is gone then too.
pub(crate) fn run(options: Options) -> anyhow::Result<ExitCode> {
    let launcher = std::env::current_exe().context("the path of this program is not known")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(crate::STACK)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(Box::pin(perform(options, &launcher)));
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome
}

async fn perform(options: Options, launcher: &Path) -> anyhow::Result<ExitCode> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // A terminal that closes must not leave the scratch folder behind.
    let mut hangup = signal(SignalKind::hangup())?;
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let scratch = match &options.folder {
        Folder::Passing => Scratch::new(&std::env::temp_dir(), "demo", Keep::No)?,
        Folder::Kept => Scratch::new(&std::env::temp_dir(), "demo", Keep::Yes)?,
        Folder::Named(folder) => Scratch::named(folder)?,
    };
    let place = Place::lay_out(scratch.path())?;
    let is_watched = std::io::stdout().is_terminal();
    let person = match options.answer {
        Answered::Yes => Person::Yes,
        Answered::No => Person::No,
        Answered::InTheTerminal if is_watched && std::io::stdin().is_terminal() => Person::in_the_terminal(),
        Answered::InTheTerminal => Person::Nobody,
    };
    let pace = if is_watched { Pace::Readable(READABLE) } else { Pace::AtOnce };
    let house = Arc::new(House::new(launcher, &place.project, pace)?);

    let mut stage = Stage::stdout();
    stage.open(&place.project, &house::RULES, &person)?;
    let handle = OwnerHandle::open(
        SqliteLog::open(&place.record, store::LogOptions::default())?.into(),
        OwnerOptions {
            rules: house::rules(&place.record)?,
            resume: ResumeMode::Wait,
            clock: Clock::system(),
            entropy: system_entropy(),
            environment: Arc::clone(&house) as Arc<dyn countersign_runtime::RunEnvironment>,
            merge: Duration::ZERO,
            idle: None,
        },
    )
    .await?;
    let played = play(&handle, &place, person, &mut stage, stop).await;
    // Whatever became of it, nothing of it goes on.
    handle.close().await;
    handle.close_log().await;
    house.close().await;
    let finish = played?;
    if finish == Finish::Interrupted {
        stage.interrupted()?;
        return Ok(ExitCode::from(INTERRUPTED));
    }
    show_record(&place.record, &mut stage).await?;
    stage.decisions(place.is_published())?;
    stage.close(scratch.is_kept().then_some(place.record.as_path()))?;
    Ok(if finish == Finish::Completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn play(
    handle: &OwnerHandle,
    place: &Place,
    person: Person,
    stage: &mut Stage,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Finish> {
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
    play::play(handle, &session, &place.project, person, stage, stop).await
}

/// Reads the record as anybody could afterwards, and checks it.
async fn show_record(path: &Path, stage: &mut Stage) -> anyhow::Result<()> {
    let log = audit::open(path)?;
    let mut narrator = RecordFormatter::default();
    stage.record_begins()?;
    audit::pages(&log, Lsn(0), async |stored, content| {
        let text = narrator.format_line(&stored, content.as_deref());
        Ok(stage.entry(&stored, &text)?)
    })
    .await?;
    let report = log.verify_chain(Partition::ZERO, None).await?;
    log.close().await;
    stage.verified(&report)?;
    Ok(())
}

/// The folders and files of the demo.
struct Place {
    /// Where the agent works.
    project: PathBuf,
    /// What it wants to replace.
    published: PathBuf,
    /// The record.
    record: PathBuf,
}

impl Place {
    /// Lays out the broken project, and beside it what was published of it before.
    fn lay_out(root: &Path) -> anyhow::Result<Self> {
        let place =
            Self { project: root.join("project"), published: root.join("published"), record: root.join("record.db") };
        for folder in [&place.project, &place.published] {
            std::fs::create_dir(folder).with_context(|| folder.display().to_string())?;
            for (name, text) in script::PROJECT {
                let path = folder.join(name);
                std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
        }
        Ok(place)
    }

    fn is_published(&self) -> bool {
        std::fs::read_to_string(self.published.join("greet.sh")).is_ok_and(|text| text.contains(script::FIX))
    }
}
