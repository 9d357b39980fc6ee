//! Short texts of records, for people.
//!
//! It decides nothing and fails at nothing: unreadable content is shown as it is. Its texts are one line, escaped.

use countersign_core::{
    call::{self, CallEnd},
    engine::Event,
    gate::{self, ApprovalScope, GateResolution, IdentityMap},
    id::PrincipalId,
    message::{StoredMessage, text_of},
    peer, policy, run, schedule,
    session::{self, CompactionTiming, DenialReach, ListingFlags, ModelRef, SessionEntryKind, SessionSetting},
    settings,
};
use countersign_runtime::store::StoredRecord;
use serde::Serialize;

use super::{
    channels, contract, jobs,
    record_context::{RecordContext, RecordSubject, plain_reason},
};
use crate::{LineMode, escape, time::format_iso};

/// Formats records in their order. It remembers the subjects of calls and gates, since only their first record has them.
#[derive(Debug, Default)]
pub struct RecordFormatter {
    trail: RecordContext,
    people: IdentityMap,
}

impl RecordFormatter {
    /// Creates a formatter that writes the names of `people` instead of their ids.
    pub fn with_names(people: IdentityMap) -> Self {
        Self { people, ..Self::default() }
    }

    /// Returns the event in one line.
    pub fn format_line(&mut self, stored: &StoredRecord, content: Option<&str>) -> String {
        self.describe_record(stored, content).1
    }

    /// Returns the subject of a record, and the event in one line.
    pub fn describe_record(&mut self, stored: &StoredRecord, content: Option<&str>) -> (RecordSubject, String) {
        let (about, text) = match Event::decode(&stored.kind, stored.version, &stored.facts) {
            Ok(event) => {
                let about = self.trail.follow_event(&event, content);
                let text = event_text(&event, content, &about, &self.people);
                (about, text)
            }
            Err(_) => (RecordSubject::default(), stored.facts.to_string()),
        };
        // Lines run together: an entry is one.
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        (about, escape(&words.join(" "), LineMode::One).into_owned())
    }
}

fn event_text(event: &Event, content: Option<&str>, about: &RecordSubject, people: &IdentityMap) -> String {
    match event {
        Event::Booted => "process started".to_owned(),
        Event::Session(event) => session_text(event, content),
        Event::Run(event) => run_text(event),
        Event::Call(event) => call_text(event, content, about, people),
        Event::Gate(event) => gate_text(event, content, about, people),
        Event::Peer(peer::Event::Came { peer, .. }) => format!("{peer} connected"),
        Event::Peer(peer::Event::Registered { peer }) => format!("{peer} registered its properties and tools"),
        Event::Peer(peer::Event::Gone { peer }) => format!("{peer} disconnected"),
        Event::Channel(event) => channels::channel_text(event),
        Event::Policy(event) => policy_text(event, content, people),
        Event::Settings(event) => settings_text(event, people),
        Event::Unattended(event) => contract::contract_text(event, people),
        Event::Schedule(event) => jobs::schedule_text(event, content),
    }
}

/// Returns the name of an approver, or the id if it belongs to no person.
pub(super) fn approver_name<'a>(people: &'a IdentityMap, by: &'a PrincipalId) -> &'a str {
    people.person_of(by).unwrap_or_else(|| by.as_str())
}

/// Returns a reason, with the name of the approver in place of the id.
fn named_reason(why: &str, about: &RecordSubject, people: &IdentityMap) -> String {
    let Some(by) = about.by.clone().map(PrincipalId::new) else { return why.to_owned() };
    why.replacen(&format!("by {by}"), &format!("by {}", approver_name(people, &by)), 1)
}

fn settings_text(event: &settings::Event, people: &IdentityMap) -> String {
    let by = approver_name(people, event.by());
    match event {
        settings::Event::Set { path, value: None, secrets, .. } if secrets.is_empty() => {
            format!("{by} removed the setting {path}")
        }
        settings::Event::Set { path, .. } => format!("{by} changed the setting {path}"),
        settings::Event::Added { path, item, .. } => format!("{by} added {item} to the setting {path}"),
    }
}

fn call_text(event: &call::Event, content: Option<&str>, about: &RecordSubject, people: &IdentityMap) -> String {
    let what = about.subject.clone().unwrap_or_else(|| short_id(event.call()).into());
    let named = |why: &str| named_reason(why, about, people);
    match event {
        call::Event::Requested { wire, .. } => format!("requested under the agent's id {wire}"),
        call::Event::Proposed { .. } if about.subject.is_none() => {
            format!("requested: {what} (its content was removed)")
        }
        call::Event::Proposed { .. } => format!("requested: {what}"),
        call::Event::Received { .. } => format!("result received by the requester: {what}"),
        call::Event::Allowed { why, .. } => format!("allowed {}: {what}", named(plain_reason(why))),
        call::Event::Gated { why, .. } => format!("approval required {why}: {what}"),
        call::Event::Waits { .. } => format!("waiting for its node or host to connect: {what}"),
        call::Event::Started { .. } => format!("started: {what}"),
        call::Event::Aborting { .. } => format!("stop requested: {what}"),
        call::Event::InDoubt { .. } => format!("in doubt: {what}"),
        call::Event::Again { .. } => format!("may start again: {what}"),
        call::Event::AskedAgain { .. } => format!("asking its node or host for the outcome: {what}"),
        call::Event::LeftBehind { execution, .. } => format!("{execution} continues in the background: {what}"),
        call::Event::Ended { end: CallEnd::Denied | CallEnd::Refused, .. } if about.why.is_some() => {
            format!("denied {}, not run: {what}", named(about.why.as_deref().unwrap_or_default()))
        }
        call::Event::Ended { end, .. } => {
            let let_through = about.why.as_ref().filter(|_| was_run(*end));
            let let_through = let_through.map_or_else(String::new, |why| format!(" (allowed {})", named(why)));
            let reason = content.filter(|_| *end == CallEnd::Unknown).and_then(unknown_reason);
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            format!("{}: {what}{let_through}{reason}", end_text(*end))
        }
        call::Event::ResultDropped { .. } => format!("late result ignored: {what}"),
    }
}

/// Returns the reason in the content of a call with an unknown outcome, without the advice for the agent.
fn unknown_reason(content: &str) -> Option<&str> {
    let text = content.strip_prefix("Outcome unknown: ")?;
    text.split(". It may or may not have taken effect").next()
}

/// Returns true if a call that ended so had been started, or may have been.
const fn was_run(end: CallEnd) -> bool {
    match end {
        CallEnd::Done { .. } | CallEnd::Failed | CallEnd::Unknown => true,
        CallEnd::Denied
        | CallEnd::Refused
        | CallEnd::Expired
        | CallEnd::Limited
        | CallEnd::Skipped
        | CallEnd::Cancelled => false,
    }
}

fn gate_text(event: &gate::Event, content: Option<&str>, about: &RecordSubject, people: &IdentityMap) -> String {
    let what = about.subject.clone().unwrap_or_else(|| short_id(event.gate()).into());
    match event {
        gate::Event::Opened { .. } => format!("waiting for an approver: {what}"),
        gate::Event::Voted { by, person, .. } => {
            let known = people.person_of(by);
            let person = person.as_ref().filter(|_| known.is_none());
            let person = person.map_or_else(String::new, |person| format!(" ({person})"));
            let by = known.unwrap_or_else(|| by.as_str());
            format!("{by}{person} allowed it, one of several approvals: {what}")
        }
        gate::Event::Escalated { step, .. } => format!("approvers of step {} asked: {what}", step + 1),
        gate::Event::Reminded { .. } => format!("approvers reminded: {what}"),
        gate::Event::Extended { .. } => format!("deadline extended: {what}"),
        gate::Event::Shown { surface, .. } => format!("shown on {surface}: {what}"),
        gate::Event::Updated { surface, .. } => format!("outcome shown on {surface}: {what}"),
        gate::Event::Resolved { resolution, by, .. } => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {}", approver_name(people, by)));
            let answer =
                content.map(|text| gate::parse_words(text).map_or_else(|| text.to_owned(), |parts| parts.join(", ")));
            let suffix = answer.map_or_else(String::new, |text| format!(" ({text})"));
            format!("{}{by}{suffix}: {what}", resolution_text(resolution))
        }
    }
}

/// Returns the text for the end of a call.
pub const fn end_text(end: CallEnd) -> &'static str {
    match end {
        CallEnd::Done { error: false } => "done",
        CallEnd::Done { error: true } => "done, with an error",
        CallEnd::Failed => "could not be run",
        CallEnd::Denied => "denied, not run",
        CallEnd::Refused => "denied by an approver, not run",
        CallEnd::Expired => "expired without an answer, not run",
        CallEnd::Limited => "too many pending calls, not run",
        CallEnd::Skipped => "skipped, not run",
        CallEnd::Cancelled => "cancelled, not run",
        CallEnd::Unknown => "outcome unknown",
    }
}

/// Returns the text for the resolution of a gate.
pub const fn resolution_text(resolution: &GateResolution) -> &'static str {
    match resolution {
        GateResolution::Allowed { scope: ApprovalScope::Once } => "allowed once",
        GateResolution::Allowed { scope: ApprovalScope::Session } => "allowed for the session",
        GateResolution::Allowed { scope: ApprovalScope::Always } => "allowed always",
        GateResolution::Denied => "denied",
        GateResolution::Answered => "answered",
        GateResolution::Declined => "declined",
        GateResolution::Granted => "covered by a grant",
        GateResolution::Expired => "expired",
        GateResolution::Withdrawn => "withdrawn",
    }
}

fn session_text(event: &session::Event, content: Option<&str>) -> String {
    match event {
        session::Event::Opened { cwd, .. } if cwd.is_empty() => "opened".to_owned(),
        session::Event::Opened { cwd, .. } => format!("opened, works in {cwd}"),
        session::Event::Hosted { .. } => "uses the rules of its host".to_owned(),
        session::Event::LeftFor { home } => format!("continues in {home}"),
        session::Event::CameFrom { home } => format!("continued from {home}"),
        session::Event::Set(setting) => setting_text(setting),
        session::Event::Named { name } => format!("named {name}"),
        session::Event::Entry { kind, .. } => entry_text(kind, content),
        session::Event::Gathering => "the session file differs: importing its entries".to_owned(),
        session::Event::Kept { entries } => format!("{} entries are unchanged in the session file", entries.len()),
        session::Event::Gathered { kind, .. } => format!("from the session file, {}", entry_text(kind, content)),
        session::Event::Replaced { .. } => "conversation replaced by the session file".to_owned(),
        session::Event::Moved { .. } => "moved to another entry".to_owned(),
        session::Event::Queued { queue, .. } => format!("queued ({}): {}", plain_word(queue), message_text(content)),
        session::Event::Dequeued { queue } => format!("left the queue ({})", plain_word(queue)),
        session::Event::Cleared => "queues emptied".to_owned(),
        session::Event::Renewed => "conversation restarted".to_owned(),
        session::Event::Remembered { .. } => "extraction of memories from the earlier conversation ended".to_owned(),
        session::Event::Trimmed { first_kept } => {
            format!("messages before entry {first_kept} removed from the conversation")
        }
        session::Event::Dropped { entry } => format!("entry {entry} is no longer shown to the model"),
        session::Event::Pruned { entries } => format!("{} old results cut from the context", entries.len()),
        session::Event::CompactionStarted { reason, .. } => format!("compaction began ({})", plain_word(reason)),
        session::Event::CompactionAborting => "compaction: stop requested".to_owned(),
        session::Event::CompactionEnded { ok: true, .. } => "compaction done".to_owned(),
        session::Event::CompactionEnded { ok: false, .. } => "compaction failed".to_owned(),
        session::Event::SequenceRecorded { number, .. } => format!("events to the host numbered up to {number}"),
        session::Event::CompactionDropped { epoch } => format!("late outcome of compaction {epoch} ignored"),
        session::Event::FileWritten { path, length, .. } => format!("file written, {length} bytes: {path}"),
        session::Event::Folder { path } => format!("the shell is in {path}"),
        session::Event::Relocated { cwd } => format!("works in {cwd} now"),
        session::Event::Tasks { open } => format!("{open} open tasks"),
        session::Event::Reminded { attempt } => format!("reminded of open tasks, attempt {attempt}"),
        session::Event::Keyed { name, .. } => format!("idempotency key {name} recorded"),
    }
}

fn setting_text(setting: &SessionSetting) -> String {
    match setting {
        SessionSetting::Model(model) => format!("model set: {}", model_name(model)),
        SessionSetting::Thinking(level) => format!("thinking set: {}", level.as_deref().unwrap_or("none")),
        SessionSetting::Modes(_) => "queue modes set".to_owned(),
        SessionSetting::AutoCompaction(auto) => format!("automatic compaction set: {auto}"),
        SessionSetting::AutoRetry(enabled) => format!("automatic retry set: {enabled}"),
        SessionSetting::Nobody(None) => "approvers can be asked".to_owned(),
        SessionSetting::Nobody(Some(why)) => format!("no approver can be asked: {why}"),
        SessionSetting::Profile(_) => "profile set".to_owned(),
        SessionSetting::Preamble(tokens) => format!("about {tokens} tokens in addition to the conversation"),
        SessionSetting::Denials(DenialReach::Session) => "denials apply to this session".to_owned(),
        SessionSetting::Denials(DenialReach::Principal) => "denials apply to all sessions of the requester".to_owned(),
        SessionSetting::Listing(listing) => {
            let ListingFlags { pinned, archived, deleted } = *listing;
            let marks = [(pinned, "pinned"), (archived, "archived"), (deleted, "deleted")];
            let marks: Vec<&str> = marks.into_iter().filter_map(|(is_set, word)| is_set.then_some(word)).collect();
            if marks.is_empty() { "listed".to_owned() } else { format!("listed as {}", marks.join(", ")) }
        }
        SessionSetting::Approval(mode) => format!("approval mode set: {}", mode.name()),
        SessionSetting::Sums(CompactionTiming::BeforeRuns) => "compaction before the next message".to_owned(),
        SessionSetting::Sums(CompactionTiming::AfterRuns) => "compaction after a run".to_owned(),
        SessionSetting::All(all) => {
            format!("settings, model {}", all.model.as_ref().map_or_else(|| "none".to_owned(), model_name))
        }
    }
}

fn model_name(model: &ModelRef) -> String {
    format!("{}/{}", model.provider, model.id)
}

fn entry_text(kind: &SessionEntryKind, content: Option<&str>) -> String {
    let who = match kind {
        SessionEntryKind::User => "user",
        SessionEntryKind::Developer => "system",
        SessionEntryKind::Assistant { .. } => "model",
        SessionEntryKind::ToolResult { .. } => "result",
        SessionEntryKind::Bash { .. } => "user command",
        SessionEntryKind::Compaction { .. } => "summary",
        SessionEntryKind::BranchSummary => "summary of a branch",
        SessionEntryKind::Custom => "extension",
        SessionEntryKind::ModelChange => return "entry: the model changed".to_owned(),
        SessionEntryKind::ThinkingChange => return "entry: the thinking level changed".to_owned(),
        SessionEntryKind::ContextReset => return "entry: the context was emptied".to_owned(),
        SessionEntryKind::Other => return "entry of another kind".to_owned(),
    };
    format!("{who}: {}", message_text(content))
}

/// Returns the text of a message, or its description if it has none.
fn message_text(content: Option<&str>) -> String {
    let Some(content) = content else { return "(redacted)".to_owned() };
    match serde_json::from_str::<StoredMessage>(content) {
        Ok(StoredMessage::User(input) | StoredMessage::Developer(input)) => text_of(&input.content),
        Ok(StoredMessage::Assistant(answer)) => text_of(&answer.content),
        Ok(StoredMessage::ToolResult(result)) => text_of(&result.content),
        Ok(StoredMessage::BashExecution(execution)) => execution.command,
        Ok(StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary)) => summary.summary,
        Ok(StoredMessage::FileMention(mention)) => format!("{} files", mention.files.len()),
        Ok(StoredMessage::Custom(custom)) => text_of(&custom.content),
        Err(_) => content.to_owned(),
    }
}

fn run_text(event: &run::Event) -> String {
    match event {
        run::Event::Started { trigger, .. } => format!("began ({})", plain_word(trigger)),
        run::Event::Marked { marks, .. } => match &marks.reference {
            Some(reference) => format!("reference {reference}"),
            None => "noted".to_owned(),
        },
        run::Event::TurnOpened { turn, .. } => format!("turn {turn}"),
        run::Event::ModelRequested { model, .. } => format!("requests {}", model_name(model)),
        run::Event::Answered { calls: 0, stop, .. } => format!("answered ({})", plain_word(stop)),
        run::Event::Answered { calls: 1, .. } => "answered, requests 1 call".to_owned(),
        run::Event::Answered { calls, .. } => format!("answered, requests {calls} calls"),
        run::Event::TurnClosed { .. } => "turn closed".to_owned(),
        run::Event::BackedOff { attempt, max, delay, until, .. } => {
            let at = schedule::Zone::UTC.date_and_time(*until);
            format!("attempt {attempt} of {max} in {} s, at {at}", delay.as_secs())
        }
        run::Event::Resumed { .. } => "resumed".to_owned(),
        run::Event::Interrupted { .. } => "interrupted: the process ended during a model request".to_owned(),
        run::Event::Denied { in_a_row, .. } => format!("{in_a_row} denied in a row"),
        run::Event::DenialsForgiven { .. } => "denials forgiven".to_owned(),
        run::Event::Aborting { .. } => "stop requested".to_owned(),
        run::Event::ResultDropped { .. } => "late answer ignored".to_owned(),
        run::Event::Ended { end, .. } => format!("ended ({})", plain_word(end)),
    }
}

fn policy_text(event: &policy::Event, content: Option<&str>, people: &IdentityMap) -> String {
    let name = |by| approver_name(people, by);
    match event {
        policy::Event::Edited { by, .. } => match content {
            Some(change) => format!("{} edits the rules file: {change}", name(by)),
            None => format!("{} reloads the rules file", name(by)),
        },
        policy::Event::Compiled { digest } => format!("rules in force: {digest}"),
        policy::Event::Granted(grant) => format!("granted by {}: {}", name(&grant.by), grant.label),
        policy::Event::Revoked { id, by } => format!("{id} revoked by {}", name(by)),
        policy::Event::Constrained(constraint) => {
            let where_to = if constraint.session.is_some() { " in this session" } else { "" };
            format!("denial by {} in force: the same call stays denied{where_to}", name(&constraint.by))
        }
        policy::Event::Lifted { by, .. } => format!("denial lifted by {}", name(by)),
        policy::Event::ServerApproval { server, change, by, at } => {
            let action = match change {
                policy::ServerChange::Approved => "approved",
                policy::ServerChange::Revoked => "revoked the approval of",
            };
            format!("{} {action} MCP server {server} at {}", name(by), format_iso(*at))
        }
        policy::Event::Tidied { .. } => "expired grants and denials removed".to_owned(),
    }
}

/// Returns the word under which the record keeps a plain value.
fn plain_word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        Ok(value) => value.to_string(),
        Err(_) => String::new(),
    }
}

/// Returns the end of an id, which is its random part.
fn short_id(id: impl ToString) -> String {
    let id = id.to_string();
    let start = id.len().saturating_sub(8);
    id.get(start..).unwrap_or(&id).to_owned()
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        call::{CallEnd, Event},
        gate::IdentityMap,
        id::{CallId, PrincipalId},
    };

    use super::{RecordSubject, call_text, named_reason};

    #[test]
    fn an_unknown_outcome_has_its_reason() {
        let about = RecordSubject { subject: Some("mcp__a__count".into()), ..RecordSubject::default() };
        let call = CallId::parse("call_00000000000000000000000000000001").unwrap();
        let reason = "Outcome unknown: MCP server a got the call of count, but it closed its output";
        let content = format!("{reason}. It may or may not have taken effect. It was not repeated.");
        for (end, content, want) in [
            (
                CallEnd::Unknown,
                Some(content.as_str()),
                "outcome unknown: mcp__a__count: MCP server a got the call of count, but it closed its output",
            ),
            (CallEnd::Unknown, None, "outcome unknown: mcp__a__count"),
            (CallEnd::Done { error: true }, Some(content.as_str()), "done, with an error: mcp__a__count"),
        ] {
            let event = Event::Ended { call, end, entry: None };
            assert_eq!(call_text(&event, content, &about, &IdentityMap::default()), want);
        }
    }

    #[test]
    fn a_reason_names_the_person_of_an_id() {
        let people = IdentityMap::new([("Ana".to_owned(), vec![PrincipalId::new("console:ana")])]);
        for (id, want) in [("console:ana", "by Ana"), ("web:open", "by web:open")] {
            let about = RecordSubject { by: Some(id.into()), ..RecordSubject::default() };
            assert_eq!(named_reason(&format!("by {id}"), &about, &people), want);
        }
    }
}
