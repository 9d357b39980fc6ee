//! Conversation of a session, with the outcome of each call.

use std::{collections::BTreeMap, sync::Arc};

use countersign_conversations::sessions::{find_session, is_agents, is_spoken_for};
use countersign_core::{
    call::{self, CallEnd},
    engine::{Engine, Event, ResidencyScope},
    gate::{self, GateResolution, IdentityMap},
    id::{CallId, GateId, Lsn, PrincipalId, RunId, SessionId},
    message::{MessageBlock, StoredMessage, text_of},
    session::{Session, SessionEntry},
    time::Millis,
};
use countersign_runtime::{
    InboxLane,
    store::{self, Log as _, Partition},
};
use countersign_view::record::end_text;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    ConsoleState,
    console_card::{change, render_piece},
    labels::{self, Severity, escape_line, escape_lines, plain_text, time_element, url_path},
    page::PageError,
};

/// Most entries on a page.
const ENTRIES: usize = 120;
/// Most records that are read at once.
const PAGE: usize = 512;
/// Most records that are read for the outcomes of calls.
const MOST: usize = 40_000;
/// Longest part of an output that is shown at once, in characters.
const OUTPUT: usize = 30_000;

/// Facts about a session on its page.
#[derive(Clone, Debug)]
pub(super) struct SessionFacts {
    pub(super) name: Option<String>,
    pub(super) door: Option<String>,
    pub(super) cwd: String,
    pub(super) model: Option<(String, String)>,
    pub(super) run: Option<RunId>,
    /// Queued messages.
    waiting: Vec<Lsn>,
    pub(super) is_agents: bool,
    pub(super) is_spoken_for: bool,
}

/// Entries on the path to the last, and the calls among them.
pub(super) struct SessionTranscript {
    pub(super) about: SessionFacts,
    entries: Vec<(SessionEntry, Option<StoredMessage>)>,
    calls: BTreeMap<Arc<str>, TranscriptCall>,
    /// True if there are earlier entries.
    pub(super) has_more: bool,
    /// Queued messages, in order.
    pub(super) waiting: Vec<String>,
}

/// Outcome of a call.
#[derive(Clone, Debug, Default)]
struct TranscriptCall {
    id: Option<CallId>,
    gate: Option<GateId>,
    why: String,
    allowed: Option<Option<PrincipalId>>,
    resolution: Option<(GateResolution, Option<PrincipalId>)>,
    end: Option<CallEnd>,
    is_running: bool,
}

impl ConsoleState {
    /// Loads the newest entries of a session, or those before `before`.
    pub(super) async fn load_transcript(
        &self,
        id: &SessionId,
        before: Option<Lsn>,
    ) -> Result<SessionTranscript, PageError> {
        let session_id = id.clone();
        let read = move |engine: &Engine| {
            let session = find_session(engine, &session_id)?;
            Some((session_facts(session), entries_before(session, before)))
        };
        let source = self.context.handle.source(InboxLane::Request);
        let read =
            source.read_of(ResidencyScope::Session(id.clone()), read).await.ok_or_else(PageError::gateway_closing)?.0;
        let (about, (entries, has_more)) = read.ok_or_else(|| PageError::not_found(format!("session {id}")))?;
        let lsns: Vec<Lsn> = entries.iter().map(|entry| entry.content).collect();
        let texts = self.context.handle.contents().get(&lsns).await.map_err(PageError::unreadable_record)?;
        let message = |text: Option<Arc<str>>| text.and_then(|text| serde_json::from_str::<StoredMessage>(&text).ok());
        let waiting = self.message_texts(&about.waiting).await?;
        let calls = match entries.first() {
            Some(first) => self.calls_behind(id, Lsn(first.lsn.0.saturating_sub(1))).await?,
            None => BTreeMap::new(),
        };
        let entries = entries.into_iter().zip(texts.into_iter().map(message)).collect();
        Ok(SessionTranscript { about, entries, calls, has_more, waiting })
    }

    /// Reads the texts of users' messages at `lsns`.
    pub(super) async fn message_texts(&self, lsns: &[Lsn]) -> Result<Vec<String>, PageError> {
        let texts = self.context.handle.contents().get(lsns).await.map_err(PageError::unreadable_record)?;
        let user_text = |text: Option<Arc<str>>| match serde_json::from_str::<StoredMessage>(&text?).ok()? {
            StoredMessage::User(message) => Some(text_of(&message.content)),
            _ => None,
        };
        Ok(texts.into_iter().filter_map(user_text).collect())
    }

    /// Reads the outcomes of the calls that a session requested after `after`, by the model's id of each.
    async fn calls_behind(&self, id: &SessionId, after: Lsn) -> Result<BTreeMap<Arc<str>, TranscriptCall>, PageError> {
        let handle = &self.context.handle;
        let (mut after, mut calls, mut read) = (after, Vec::<(CallId, Lsn, TranscriptCall)>::new(), 0);
        let mut at: BTreeMap<CallId, usize> = BTreeMap::new();
        let mut gates: BTreeMap<GateId, usize> = BTreeMap::new();
        while read < MOST {
            let page = handle.log().read_scope(Partition::ZERO, store::ReadScope::Session(id), after, PAGE).await;
            let page = page.map_err(PageError::unreadable_record)?;
            let (count, last) = (page.len(), page.last().map(|stored| stored.lsn));
            for stored in page.iter().filter(|stored| matches!(&*stored.kind, "call" | "gate")) {
                match Event::decode(&stored.kind, stored.version, &stored.facts) {
                    Ok(Event::Call(call::Event::Proposed { call, .. })) => {
                        at.insert(call, calls.len());
                        calls.push((call, stored.lsn, TranscriptCall { id: Some(call), ..TranscriptCall::default() }));
                    }
                    Ok(Event::Call(event)) => {
                        if let Some(at) = at.get(&event.call()) {
                            calls[*at].2.apply_event(&event);
                        }
                    }
                    Ok(Event::Gate(gate::Event::Opened { gate, call: Some(call), .. })) => {
                        if let Some(at) = at.get(&call) {
                            gates.insert(gate, *at);
                            calls[*at].2.gate = Some(gate);
                        }
                    }
                    Ok(Event::Gate(gate::Event::Resolved { gate, resolution, by, .. })) => {
                        if let Some(at) = gates.get(&gate) {
                            calls[*at].2.resolution = Some((resolution, by));
                        }
                    }
                    _ => {}
                }
            }
            read += count;
            match last {
                Some(last) if count == PAGE => after = last,
                _ => break,
            }
        }
        let lsns: Vec<Lsn> = calls.iter().map(|(_, lsn, _)| *lsn).collect();
        let texts = handle.contents().get(&lsns).await.map_err(PageError::unreadable_record)?;
        let named = calls.into_iter().zip(texts).filter_map(|((.., made), text)| {
            let content: call::CallDetails = serde_json::from_str(&text?).ok()?;
            Some((content.tool_call_id, made))
        });
        Ok(named.collect())
    }
}

fn session_facts(session: &Session) -> SessionFacts {
    SessionFacts {
        name: session.name().map(str::to_owned),
        door: session.door().map(str::to_owned),
        cwd: session.cwd().to_owned(),
        model: session.settings().model.as_ref().map(|model| (model.provider.clone(), model.id.clone())),
        run: session.run(),
        waiting: session.queued_contents().collect(),
        is_agents: is_agents(session.id()),
        is_spoken_for: is_spoken_for(session),
    }
}

/// Returns the newest entries on the path to the leaf, oldest first, and whether there are more before them.
fn entries_before(session: &Session, before: Option<Lsn>) -> (Vec<SessionEntry>, bool) {
    let mut found = Vec::new();
    let mut at = session.leaf().and_then(|leaf| session.entry(leaf));
    while let Some(entry) = at {
        if before.is_none_or(|before| entry.lsn < before) {
            if found.len() == ENTRIES {
                return (found.into_iter().rev().collect(), true);
            }
            found.push(entry.clone());
        }
        at = entry.parent.as_ref().and_then(|parent| session.entry(parent));
    }
    (found.into_iter().rev().collect(), false)
}

impl TranscriptCall {
    fn apply_event(&mut self, event: &call::Event) {
        match event {
            call::Event::Allowed { why, by, .. } => {
                self.allowed = Some(by.clone());
                if self.gate.is_none() {
                    self.why.clone_from(why);
                }
            }
            call::Event::Gated { why, .. } => self.why.clone_from(why),
            call::Event::Started { .. } => self.is_running = true,
            call::Event::Again { .. } => self.is_running = false,
            call::Event::Ended { end, .. } => (self.end, self.is_running) = (Some(*end), false),
            call::Event::Proposed { .. }
            | call::Event::Requested { .. }
            | call::Event::Received { .. }
            | call::Event::Waits { .. }
            | call::Event::Aborting { .. }
            | call::Event::InDoubt { .. }
            | call::Event::AskedAgain { .. }
            | call::Event::LeftBehind { .. }
            | call::Event::ResultDropped { .. } => {}
        }
    }

    /// Renders its verdict and its outcome.
    fn render_verdict(&self, people: &IdentityMap) -> Markup {
        let why = self.why.strip_prefix("allowed ").unwrap_or(&self.why);
        html! {
            p.verdict {
                @match (&self.resolution, self.gate, &self.allowed) {
                    (Some((resolution, by)), ..) => {
                        span.badge.(Severity::for_resolution(resolution).css_class()) { (labels::resolution_text(resolution)) }
                        @if let Some(by) = by { " by " (labels::principal_name(people, by)) }
                    }
                    (None, Some(gate), _) => {
                        span.badge.ask { "pending" } " " a href=(url_path("/console/gates/", &gate.to_string())) { "Decide" }
                    }
                    (None, None, Some(_)) => { span.badge.good { "allowed" } " " span.why { (escape_line(why)) } }
                    (None, None, None) => {}
                }
                @if let Some(end) = self.end {
                    " " span.badge.(Severity::for_end(end).css_class()) { (end_text(end)) }
                } @else if self.is_running { " " span.badge.still { "running" } }
                @if let Some(id) = self.id { " " a.more href=(url_path("/console/record/", &id.to_string())) { "in the record" } }
            }
        }
    }
}

impl SessionTranscript {
    /// Returns the position of the first entry that is shown.
    pub(super) fn first_lsn(&self) -> Option<Lsn> {
        self.entries.first().map(|(entry, _)| entry.lsn)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Renders the entries.
    pub(super) fn render_entries(&self, people: &IdentityMap) -> Markup {
        html! {
            @for (entry, message) in &self.entries {
                @match message {
                    Some(message) => (self.render_message(entry, message, people)),
                    None => {}
                }
            }
        }
    }

    fn render_message(&self, entry: &SessionEntry, message: &StoredMessage, people: &IdentityMap) -> Markup {
        let id = format!("e-{}", entry.lsn);
        match message {
            StoredMessage::User(user_message) => {
                message_article(&id, "You", "user", entry.at, &render_blocks(&user_message.content))
            }
            StoredMessage::Developer(developer_message) => {
                message_article(&id, "Gateway", "system", entry.at, &render_blocks(&developer_message.content))
            }
            StoredMessage::Assistant(reply) => {
                let body = html! {
                    @for block in &reply.content { (self.render_block(block, people)) }
                    @if let Some(error) = &reply.error_message { p.problem { (escape_line(error)) } }
                };
                message_article(&id, "Agent", "agent", entry.at, &body)
            }
            StoredMessage::ToolResult(result) => html! {
                article.said.result #(id) aria-label={ "Output of " (plain_text(&result.tool_name)) } {
                    details open[text_of(&result.content).len() < 1500] {
                        summary { "Output of " (plain_text(&result.tool_name)) @if result.is_error { " " span.badge.bad { "failed" } } }
                        (render_output(&text_of(&result.content)))
                    }
                }
            },
            StoredMessage::BashExecution(ran) => {
                let body = html! { pre.code { "$ " (escape_lines(&ran.command)) } (render_output(&ran.output)) };
                message_article(&id, "User command", "user", entry.at, &body)
            }
            StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => {
                let body = html! { details { summary { "Summary of the earlier conversation" } pre.prose { "\n" (escape_lines(&summary.summary)) } } };
                message_article(&id, "Summary", "system", entry.at, &body)
            }
            StoredMessage::FileMention(mention) => {
                let names: Vec<&str> = mention.files.iter().filter_map(|file| file.get("path")?.as_str()).collect();
                message_article(&id, "Files", "system", entry.at, &html! { p { (plain_text(&names.join(", "))) } })
            }
            StoredMessage::Custom(custom) if custom.display => message_article(
                &id,
                &plain_text(&custom.custom_type),
                "system",
                entry.at,
                &render_blocks(&custom.content),
            ),
            StoredMessage::Custom(_) => html! {},
        }
    }

    fn render_block(&self, block: &MessageBlock, people: &IdentityMap) -> Markup {
        match block {
            MessageBlock::Text(text) if text.text.trim().is_empty() => html! {},
            MessageBlock::Text(text) => html! { pre.prose { "\n" (escape_lines(&text.text)) } },
            MessageBlock::Thinking(thinking) => {
                html! { details.thinking { summary { "Thinking" } pre.prose { "\n" (escape_lines(&thinking.thinking)) } } }
            }
            MessageBlock::RedactedThinking { .. } => html! { p.note { "Thinking, encrypted by the provider" } },
            MessageBlock::Image(image) => html! { p.note { "An image (" (plain_text(&image.mime_type)) ")" } },
            MessageBlock::ToolCall(call) => {
                let made = self.calls.get(call.id.as_str());
                let change = change(&call.name, &call.arguments);
                let is_told = |name: &str| change.as_ref().is_none_or(|change| !change.replaces.contains(&name));
                html! {
                    div.call {
                        p.head { strong.tool { (plain_text(&call.name)) } @if let Some(intent) = &call.intent { " " span.said { "“" (escape_line(intent)) "”" } } }
                        @for (name, value) in call.arguments.iter().filter(|(name, _)| name.as_str() != "_i" && is_told(name)) {
                            @let text = value_text(value);
                            (render_piece(&plain_text(name), &escape_lines(&text), text.len() > 60 || text.contains('\n')))
                        }
                        @if let Some(change) = &change { (change.shown) }
                        @if let Some(made) = made { (made.render_verdict(people)) }
                    }
                }
            }
        }
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => serde_json::to_string_pretty(value).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn message_article(id: &str, who: &str, class: &str, at: Millis, body: &Markup) -> Markup {
    html! {
        article.said.(class) #(id) {
            header { strong { (who) } " " (time_element(at)) }
            (body)
        }
    }
}

fn render_blocks(content: &[MessageBlock]) -> Markup {
    let images = content.iter().filter(|block| matches!(block, MessageBlock::Image(_))).count();
    html! {
        pre.prose { "\n" (escape_lines(&text_of(content))) }
        @if images > 0 { p.note { (labels::count_text(images as u64, "image")) } }
    }
}

fn render_output(text: &str) -> Markup {
    let length = text.chars().count();
    html! {
        @if length <= OUTPUT { pre.output { "\n" (escape_lines(text)) } }
        @else {
            pre.output { "\n" (escape_lines(&text.chars().take(OUTPUT).collect::<String>())) }
            p.note { "Truncated: the record has all " (length) " characters." }
        }
    }
}
