//! Opening an owner: replay, admit, recover, and only then work.

use std::sync::{Arc, atomic::AtomicBool};

use countersign_core::{
    engine::{
        ActiveRules, Command, CommandError, Engine, Event, EventDecodeError, FactMeta, RecordedFact, ResidencyScope,
    },
    id::Lsn,
    time::Millis,
};
use countersign_store::{AnyLog, Epoch, Log as _, LogReadError, LogWriteError, PageReader, Partition, RecordFacts};
use futures_util::{StreamExt as _, stream};

use super::{OwnerHandle, OwnerOptions, parking, snapshots, step::LogOwner};
use crate::{
    deliver::{ContentCache, ReleaseRing},
    metrics::RuntimeMetrics,
};

/// Records replayed at a time. While a page is replayed, the next ones are read and decoded.
const PAGE: usize = 1024;
/// Contents that are read and parsed at a time, and how many parts of them are at work.
const CONTENTS: usize = 256;
const PARTS: usize = 2;

/// Why a log could not be worked with.
#[derive(Debug, thiserror::Error)]
pub enum OwnerOpenError {
    /// The log could not be read.
    #[error("the log cannot be read")]
    Read(#[from] LogReadError),
    /// The log ends elsewhere than it was written to: it is another one.
    #[error("the record ends at entry {found}, and was written up to entry {written}")]
    Other {
        /// End of the log.
        found: Lsn,
        /// Position up to which the log is known to be written.
        written: Lsn,
    },
    /// The log could not be taken over from its last owner.
    #[error("the log cannot be taken over")]
    TakeOver(#[from] LogWriteError),
    /// Another owner has taken it over since.
    #[error("{epoch} may not write any more: the log was taken over in {current}")]
    Fenced {
        /// The epoch of this owner.
        epoch: Epoch,
        /// The epoch of the other one.
        current: Epoch,
    },
    /// The log holds facts unknown to this version. It was left as it is.
    #[error("entry {lsn} cannot be used")]
    Decode {
        /// Position of the record.
        lsn: Lsn,
        /// Why.
        #[source]
        source: EventDecodeError,
    },
    /// The records of one session cannot be read.
    #[error("the log cannot be read: {0}")]
    Scope(Arc<str>),
    /// Content that a pending decision needs is gone or broken.
    #[error("the content of entry {lsn} is needed and cannot be used: {problem}")]
    Content {
        /// Position of the record.
        lsn: Lsn,
        /// Why.
        problem: String,
    },
    /// Recovery was refused.
    #[error("recovery failed")]
    Recovery(#[from] CommandError),
    /// The decisions of recovery could not be recorded.
    #[error("what recovery decided could not be recorded: {0}")]
    NotRecorded(String),
}

/// Position of a log when its owner begins.
pub(super) struct LogPosition {
    /// The epoch that its owner writes under.
    pub(super) epoch: Epoch,
    /// Head of the log.
    pub(super) durable: Lsn,
    /// The snapshot that was read.
    pub(super) snapshot: Lsn,
}

/// When the work that is owed starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartMode {
    /// With the owner.
    AtOnce,
    /// With [`OwnerHandle::start_work`].
    WhenCalled,
}

/// Brings the log's state into an engine: from its snapshot if there is one, and from the records after it.
pub(super) async fn replay_log(log: &AnyLog, rules: ActiveRules) -> Result<Engine, OwnerOpenError> {
    Ok(replay_behind(log, rules).await?.0)
}

/// Does the same, and returns the position of the snapshot that it began with; 0 if there was none.
async fn replay_behind(log: &AnyLog, rules: ActiveRules) -> Result<(Engine, Lsn), OwnerOpenError> {
    let mut engine = match snapshots::load_engine(log, &rules).await {
        Some(engine) => engine,
        None => Engine::new(rules),
    };
    let snapshot = engine.state().head_lsn();
    let mut pages = PageReader::new(log.clone(), Partition::ZERO, snapshot, PAGE, decode_record);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            let head = engine.state().head_lsn();
            engine.mark_durable(head);
            return Ok((engine, snapshot));
        }
        for decoded in page {
            let (event, meta) = decoded?;
            // A snapshot leaves out sessions at rest; one that resumed after it is needed whole.
            if let Some(scope) =
                meta.session.clone().map(ResidencyScope::Session).filter(|scope| engine.needs_fetch(scope))
            {
                let mut records = parking::read_scope_records(log, &scope).await.map_err(OwnerOpenError::Scope)?;
                records.retain(|(_, known)| known.lsn < meta.lsn);
                engine.fetch_scope(&scope, records, meta.at);
            }
            engine.replay_fact(&event, &meta);
        }
    }
}

fn decode_record(record: RecordFacts<'_>) -> Result<(Event, FactMeta), OwnerOpenError> {
    let event = Event::decode(record.kind, record.version, record.facts)
        .map_err(|source| OwnerOpenError::Decode { lsn: record.lsn, source })?;
    Ok((event, FactMeta { lsn: record.lsn, at: record.at, session: record.session }))
}

/// Reads the state of a log without owning it: nothing is recovered, decided or written.
///
/// # Errors
/// [`OwnerOpenError`].
pub async fn inspect_log(log: &AnyLog, rules: ActiveRules) -> Result<Engine, OwnerOpenError> {
    let mut engine = replay_log(log, rules).await?;
    admit_contents(&mut engine, &ContentCache::new(log.clone())).await?;
    Ok(engine)
}

/// Fetches the contents that recovery needs in addition to the state.
pub(super) async fn admit_contents(engine: &mut Engine, contents: &ContentCache) -> Result<(), OwnerOpenError> {
    let wanted = engine.wanted_contents();
    let parts: Vec<Vec<Lsn>> = wanted.lsns().chunks(CONTENTS).map(<[Lsn]>::to_vec).collect();
    let parsing = parts.into_iter().map(|part: Vec<Lsn>| {
        let (contents, wanted) = (contents.clone(), wanted.clone());
        tokio::spawn(async move {
            let texts = contents.get_once(&part).await?;
            // A gate without a reason has no content at its end.
            let texts = part.into_iter().zip(texts).filter_map(|(lsn, text)| Some((lsn, text?)));
            wanted
                .parse_contents(texts)
                .map_err(|(lsn, source)| OwnerOpenError::Content { lsn, problem: source.to_string() })
        })
    });
    let mut parsing = stream::iter(parsing).buffered(PARTS);
    while let Some(parsed) = parsing.next().await {
        match parsed {
            Ok(parsed) => engine.admit_parsed(parsed?),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(LogReadError::Closed.into()),
            },
        }
    }
    Ok(())
}

impl OwnerHandle {
    /// Opens a log: takes it over, replays it, settles the work that the last process left, and starts owed work. The owner before
    /// is fenced: it ends with its next append, and releases nothing of that.
    ///
    /// # Errors
    /// [`OwnerOpenError`], with no record added.
    pub async fn open(log: AnyLog, options: OwnerOptions) -> Result<Self, OwnerOpenError> {
        Self::open_to(log, options, StartMode::AtOnce).await
    }

    /// Opens a log as [`OwnerHandle::open`] does, and starts no owed work before [`OwnerHandle::start_work`] is called. A
    /// subscriber from before that call misses nothing of the work.
    ///
    /// # Errors
    /// [`OwnerOpenError`], with no record added.
    pub async fn open_held(log: AnyLog, options: OwnerOptions) -> Result<Self, OwnerOpenError> {
        Self::open_to(log, options, StartMode::WhenCalled).await
    }

    async fn open_to(log: AnyLog, options: OwnerOptions, start: StartMode) -> Result<Self, OwnerOpenError> {
        let contents = ContentCache::new(log.clone());
        // Before anything is read: no other owner can add to it from then on.
        let epoch = log.take_over(Partition::ZERO).await?;
        let (mut engine, snapshot) = replay_behind(&log, options.rules.clone()).await?;
        admit_contents(&mut engine, &contents).await?;
        let clock = options.clock.clone().not_before(engine.state().last_fact_at());
        let durable = engine.state().head_lsn();
        let options = OwnerOptions { clock, ..options };

        let mut recorded: Vec<RecordedFact> = Vec::new();
        for command in [Command::UseRules(Box::new(options.rules.clone())), Command::Recover(options.resume)] {
            let mut context = options.engine_context();
            recorded.extend(engine.handle_command(command, &mut context)?.0);
        }
        let handle = Self {
            inbox: Arc::default(),
            ring: Arc::new(ReleaseRing::new(log.clone(), contents.clone())),
            contents,
            log,
            is_held: Arc::new(AtomicBool::new(start == StartMode::WhenCalled)),
            task: Arc::default(),
            meters: Arc::new(RuntimeMetrics::new()),
        };
        let mut owner = LogOwner::new(engine, LogPosition { epoch, durable, snapshot }, options, &handle);
        owner.record_recovery(recorded).await?;
        *handle.task.lock().await = Some(tokio::spawn(owner.run()));
        Ok(handle)
    }
}

impl OwnerOptions {
    pub(super) fn engine_context(&self) -> countersign_core::engine::DecisionContext {
        let now: Millis = self.clock.now();
        countersign_core::engine::DecisionContext {
            now,
            fresh: countersign_core::id::IdGenerator::new((self.entropy)()),
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        call::{self, AgentRequest, RequestExecutor},
        engine::{ActiveRules, Command, DecisionContext, Engine},
        gate::IdentityMap,
        id::{IdGenerator, Lsn, PrincipalId, SessionId},
        policy::{CompiledRules, DefaultPolicy, PathContext},
        session,
        time::Millis,
        tool::{RepeatMode, ToolEffect},
    };
    use countersign_store::{AnyLog, Batch, Log as _, MemoryLog, Partition};
    use serde_json::Map;

    use super::{CONTENTS, PAGE, admit_contents, replay_log};
    use crate::{deliver::ContentCache, owner::encode_record};

    fn rules() -> ActiveRules {
        ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        }
    }

    fn request(session: &SessionId, number: usize) -> Command {
        Command::Call(call::Command::Request(Box::new(AgentRequest {
            session: session.clone(),
            principal: PrincipalId::new("agent:pi"),
            door: "agent-gate".into(),
            wire: number.to_string().into(),
            key: None,
            tool: "open_door".into(),
            arguments: Map::new(),
            signatures: vec![format!("open_door({number})")],
            named: Vec::new(),
            undeclared: Vec::new(),
            service: Some("house".into()),
            executor: RequestExecutor::Service,
            paths: Vec::new(),
            cwd: String::new(),
            leads_to: None,
            for_principals: Vec::new(),
            effect: ToolEffect::Changes,
            repeat: RepeatMode::Once,
        })))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_page_and_every_part_of_the_contents_is_taken() {
        let session = SessionId::new("agent:pi");
        let settings = Box::new(session::Settings { max_pending: 10_000, ..session::Settings::default() });
        let open = session::Command::Open { cwd: String::new(), name: None, parent: None, door: None, settings };
        let name = |number: usize| session::Command::Name { name: number.to_string() };
        let names = (0..2 * PAGE).map(|number| Command::Session(session.clone(), name(number)));
        // Each has two contents: of its call, and of its gate.
        let requests = (0..=CONTENTS).map(|number| request(&session, number));
        let mut engine = Engine::new(rules());
        let mut records = Vec::new();
        let commands = [Command::Session(session.clone(), open)].into_iter().chain(names).chain(requests);
        for (number, command) in commands.enumerate() {
            let fresh = IdGenerator::new((number as u128).to_be_bytes());
            let (facts, _) = engine.handle_command(command, &mut DecisionContext { now: Millis(1), fresh }).unwrap();
            records.extend(facts.iter().map(encode_record));
        }
        assert_eq!(engine.wants_admitted().len(), 2 * (CONTENTS + 1));

        let log = AnyLog::from(MemoryLog::new());
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        let mut head = Lsn(0);
        for part in records.chunks(PAGE) {
            head = log.append(Partition::ZERO, epoch, head, Batch(part.to_vec())).await.unwrap();
        }
        let mut replayed = replay_log(&log, rules()).await.unwrap();
        let contents = ContentCache::new(log);
        admit_contents(&mut replayed, &contents).await.unwrap();
        assert_eq!(contents.cached_bytes(), 0, "what is parsed is not kept as text too");
        assert_eq!(replayed.state(), engine.state());
        assert_eq!(replayed.admitted(), engine.admitted());
    }
}
