//! `sessions`: conversations and agents, as the record has them.
//!
//! It reads a record from its beginning, whether or not a gateway is writing it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use countersign_core::{
    call,
    engine::{Engine, Event, FactMeta},
    id::{Lsn, SessionId},
    message::StoredMessage,
    session::Session,
    time::Millis,
};
use countersign_gateway::control::Request;
use countersign_runtime::Clock;
use countersign_store::{AnyLog, Log as _, Partition, StoredContent};
use countersign_view::{LineMode, escape, export, time::format_iso};
use serde_json::{Value, json};

use crate::{
    audit::{
        self, MissingRecord, OutputFormat, RecordFilter, RecordFormatter, TimestampStyle, block_on, entry_json,
        for_each_entry, format_entry, open_located,
    },
    control_client::ControlClient,
    inspect::no_rules,
    record_location::RecordLocation,
    style::{ColourMode, TextStyle},
};

/// Counts of one session.
#[derive(Clone, Copy, Default)]
struct SessionTally {
    last: Millis,
    calls: u64,
}

/// All sessions of a record.
struct RecordedSessions {
    engine: Engine,
    tallies: BTreeMap<SessionId, SessionTally>,
    /// Those in which nothing goes on before their hosts are there again.
    waiting_for_hosts: BTreeSet<SessionId>,
}

impl RecordedSessions {
    /// Reads `record`. Where a gateway runs in `gateway`, it is that which knows whose host is there.
    async fn read_of(record: &RecordLocation, gateway: Option<&Path>) -> anyhow::Result<Self> {
        let mut read = Self::read_log(&open_located(record)?).await?;
        if let Some(mut local) = gateway.and_then(ControlClient::connect) {
            let ids: Vec<SessionId> = serde_json::from_value(local.send_request(&Request::WaitingForHosts)?)?;
            read.waiting_for_hosts = ids.into_iter().collect();
        }
        Ok(read)
    }

    /// Returns those of a record without entries.
    fn without_entries() -> anyhow::Result<Self> {
        Ok(Self { engine: Engine::new(no_rules()?), tallies: BTreeMap::new(), waiting_for_hosts: BTreeSet::new() })
    }

    async fn read_log(log: &AnyLog) -> anyhow::Result<Self> {
        let (mut engine, mut tallies) = (Engine::new(no_rules()?), BTreeMap::<SessionId, SessionTally>::new());
        let mut after = Lsn(0);
        loop {
            let page = log.read_records(Partition::ZERO, after, audit::PAGE).await?;
            let is_last = page.len() < audit::PAGE;
            for stored in page {
                let event = Event::decode(&stored.kind, stored.version, &stored.facts)
                    .with_context(|| format!("entry {}", stored.lsn))?;
                if let Some(session) = &stored.session {
                    let tally = tallies.entry(session.clone()).or_default();
                    tally.last = stored.at;
                    tally.calls += u64::from(matches!(event, Event::Call(call::Event::Proposed { .. })));
                }
                after = stored.lsn;
                engine.replay_fact(&event, &FactMeta { lsn: stored.lsn, at: stored.at, session: stored.session });
            }
            if is_last {
                let waiting_for_hosts = engine.waiting_for_hosts().map(|session| session.id().clone()).collect();
                return Ok(Self { engine, tallies, waiting_for_hosts });
            }
        }
    }

    /// Returns the session whose id is, or ends with, `id`.
    fn find_session(&self, id: &str) -> anyhow::Result<&Session> {
        let sessions = || self.engine.state().sessions();
        if let Some(session) = sessions().find(|session| session.id().as_str() == id) {
            return Ok(session);
        }
        let mut found = sessions().filter(|session| !id.is_empty() && session.id().as_str().ends_with(id));
        match (found.next(), found.next()) {
            (Some(session), None) => Ok(session),
            (None, _) => bail!("there is no session {id}"),
            (Some(_), Some(_)) => bail!("more than one session ends with {id}: give more of its id"),
        }
    }

    fn tally_of(&self, session: &Session) -> SessionTally {
        self.tallies.get(session.id()).copied().unwrap_or_default()
    }

    /// Returns the number of pending gates of a session.
    fn waiting_gates(&self, session: &Session) -> usize {
        self.engine.state().pending_gates().filter(|gate| gate.session() == Some(session.id())).count()
    }

    fn session_row(&self, session: &Session) -> Value {
        let tally = self.tally_of(session);
        json!({
            "id": session.id().as_str(),
            "name": session.name(),
            "cwd": Some(session.cwd()).filter(|cwd| !cwd.is_empty()),
            "opened_at": format_iso(session.opened_at()),
            "last_at": format_iso(tally.last),
            "messages": count_messages(session),
            "calls": tally.calls,
            "waiting": self.waiting_gates(session),
            "waits_for_host": self.waiting_for_hosts.contains(session.id()),
        })
    }
}

fn count_messages(session: &Session) -> usize {
    session.path_entries().into_iter().filter(|entry| entry.kind.is_message()).count()
}

/// Runs `sessions list`.
pub(crate) fn print_sessions(
    record: &RecordLocation,
    gateway: Option<&Path>,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let read = match block_on(RecordedSessions::read_of(record, gateway)) {
        Err(error) if MissingRecord::is_unwritten(&error) => RecordedSessions::without_entries()?,
        read => read?,
    };
    let mut sessions: Vec<&Session> = read.engine.state().sessions().collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(read.tally_of(session).last));
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let rows: Vec<Value> = sessions.iter().map(|session| read.session_row(session)).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    if sessions.is_empty() {
        writeln!(out, "No sessions.")?;
    }
    let width = sessions.iter().map(|session| session.id().as_str().chars().count()).max().unwrap_or_default();
    for session in sessions {
        let id = format!("{:<width$}", escape(session.id().as_str(), LineMode::One));
        let name = session.name().map_or_else(String::new, |name| format!("  {}", escape(name, LineMode::One)));
        let tally = read.tally_of(session);
        let mut counts = vec![format_iso(tally.last)];
        for (count, one, many) in [
            (count_messages(session) as u64, "message", "messages"),
            (tally.calls, "call", "calls"),
            (read.waiting_gates(session) as u64, "pending approval", "pending approvals"),
        ] {
            if count > 0 {
                counts.push(format!("{count} {}", if count == 1 { one } else { many }));
            }
        }
        if read.waiting_for_hosts.contains(session.id()) {
            counts.push("waiting for its host".to_owned());
        }
        writeln!(
            out,
            "{}  {}{name}",
            paint.apply_style(TextStyle::Strong, id),
            paint.apply_style(TextStyle::Faint, counts.join(", "))
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `sessions show`.
pub(crate) fn print_session(
    record: &RecordLocation,
    gateway: Option<&Path>,
    id: &str,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let paint = ColourMode::for_stdout();
    let (mut row, entries) = block_on(async {
        let log = open_located(record)?;
        let read = RecordedSessions::read_of(record, gateway).await?;
        let session = read.find_session(id)?;
        let mut narrator = RecordFormatter::default();
        let mut entries = Vec::new();
        for_each_entry(&log, Lsn(0), async |stored, content| {
            if stored.session.as_ref() == Some(session.id()) {
                let (about, text) = narrator.describe_record(&stored, content.as_deref());
                entries.push((stored, about, text));
            }
            Ok(())
        })
        .await?;
        Ok((read.session_row(session), entries))
    })?;
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        row["entries"] = entries.iter().map(|(stored, about, text)| entry_json(stored, about, text)).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&row)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |key: &str| escape(row[key].as_str().unwrap_or("-"), LineMode::One);
    writeln!(
        out,
        "{}",
        paint.apply_style(TextStyle::Strong, row["name"].as_str().map_or_else(|| text("id"), |_| text("name")))
    )?;
    writeln!(out, "  id        {}", text("id"))?;
    writeln!(out, "  folder    {}", text("cwd"))?;
    writeln!(out, "  opened    {}", text("opened_at"))?;
    writeln!(out, "  last      {}", text("last_at"))?;
    writeln!(out, "  messages  {}", row["messages"])?;
    let plural = if row["waiting"] == 1 { "" } else { "s" };
    writeln!(out, "  calls     {}, {} pending approval{plural}\n", row["calls"], row["waiting"])?;
    if row["waits_for_host"] == true {
        writeln!(out, "  The session is paused until its host opens it again.\n")?;
    }
    let when = TimestampStyle::Date;
    for (stored, about, text) in &entries {
        writeln!(out, "{}", format_entry(stored, text, when, about.outcome, paint))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `sessions export`, as JSON lines.
pub(crate) fn export_session(record: &RecordLocation, id: &str) -> anyhow::Result<ExitCode> {
    let session = block_on(async {
        Ok(RecordedSessions::read_log(&open_located(record)?).await?.find_session(id)?.id().clone())
    })?;
    audit::export_jsonl(record, &RecordFilter { session: Some(session), ..RecordFilter::default() })
}

/// Runs `sessions export --format html`.
pub(crate) fn export_html(record: &RecordLocation, id: &str) -> anyhow::Result<ExitCode> {
    let page = block_on(async {
        let log = open_located(record)?;
        let read = RecordedSessions::read_log(&log).await?;
        let session = read.find_session(id)?;
        let entries = session.path_entries();
        let lsns: Vec<Lsn> = entries.iter().map(|entry| entry.content).collect();
        let texts = log.read_contents(Partition::ZERO, &lsns).await?;
        let messages: Vec<(StoredMessage, Millis)> = entries
            .iter()
            .zip(texts)
            .filter_map(|(entry, content)| match content {
                Some(StoredContent::Text(text)) => Some((serde_json::from_str(&text).ok()?, entry.at)),
                Some(StoredContent::Redacted) | None => None,
            })
            .collect();
        anyhow::ensure!(!messages.is_empty(), "{} has no conversation: export it as jsonl", session.id());
        let model = session.settings().model.as_ref();
        let header = export::ExportHeader {
            name: session.name().map(str::to_owned),
            session: session.id().to_string(),
            cwd: session.cwd().to_owned(),
            model: model.map(|model| format!("{}/{}", model.provider, model.id)),
            started: Some(session.opened_at()),
            exported: Clock::system().now(),
        };
        Ok(export::export_html(&header, &messages))
    })?;
    std::io::stdout().lock().write_all(page.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
