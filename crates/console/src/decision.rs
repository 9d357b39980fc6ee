//! Page of one decision, from request to outcome.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use countersign_core::{
    call::{self, CallDetails},
    engine::Event,
    gate::{self, IdentityMap},
    id::{CallId, GateId, Lsn},
    time::Millis,
};
use countersign_http::web::HttpCaller;
use countersign_runtime::store::{Log as _, Partition, ReadScope, StoredRecord};
use countersign_view::record::RecordFormatter;
use maud::html;

use super::{
    ConsoleState,
    console_card::{CardContext, CardPlace, render_piece},
    labels::{self, escape_line, plain_text, url_path},
    page::{ConsoleTab, PageError, render_page},
    record::{EntryLinks, ListedEntry, entries_table, record_tabs},
};

/// Most records after the request that are read.
const MOST: u64 = 60_000;
/// Most entries that are shown.
const ROWS: usize = 200;

/// Records of one decision.
#[derive(Default)]
struct CallTrace {
    entries: Vec<ListedEntry>,
    content: Option<CallDetails>,
    outcome: Option<Arc<str>>,
}

pub(super) async fn show_decision(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let missing = || PageError::not_found(format!("call or approval {id} in the record"));
    let gate = id.starts_with("gate_").then(|| GateId::parse(&id)).flatten();
    let call = match gate {
        Some(gate) => console.call_of(gate).await?,
        None => Some(CallId::parse(&id).ok_or_else(missing)?),
    };
    let found = console.trace_call(call, gate, &ctx.people).await?;
    if found.entries.is_empty() {
        return Err(missing());
    }
    let gate = gate.or_else(|| found.entries.iter().find_map(|entry| entry.about.gate));
    let card = match gate {
        Some(gate) => console.load_gate(gate).await?,
        None => None,
    };
    let reader =
        CardContext { now: ctx.now, csrf: ctx.caller.csrf_token(), key: "", place: CardPlace::Page, notice: None };
    let body = html! {
        h1 { "From request to outcome" }
        (record_tabs(""))
        @if let Some((console_gate, answered)) = &card { div.list.alone { (console_gate.render_card(&reader, answered)) } }
        @if let (Some(content), None) = (&found.content, &card) {
            section.panel {
                h2 { (plain_text(&content.tool)) }
                @for (name, value) in &content.arguments {
                    @let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    (render_piece(&plain_text(name), &labels::escape_lines(&text), text.len() > 60))
                }
            }
        }
        @if let Some(text) = &found.outcome { section.panel { h2 { "Outcome" } pre { "\n" (labels::escape_lines(text)) } } }
        @if call.is_some() && found.content.is_some() {
            p { a.button href={ "/console/try?of=" (id) } { "Create a rule" } }
        }
        h2 { "In the record" }
        (entries_table(&found.entries, EntryLinks::None))
        @if let Some(session) = found.entries.iter().find_map(|entry| entry.stored.session.as_ref()) {
            p { a href=(url_path("/console/sessions/", session.as_str())) { "Session " (escape_line(session.as_str())) } }
        }
    };
    Ok(render_page(&ctx, ConsoleTab::Record, "From request to outcome", &body))
}

impl ConsoleState {
    /// Returns the call that a gate decides. A user's own question has none.
    async fn call_of(&self, gate: GateId) -> Result<Option<CallId>, PageError> {
        let key = gate.to_string();
        let read = self.context.handle.log().read_scope(Partition::ZERO, ReadScope::Key(&key), Lsn(0), 1).await;
        let opened = read.map_err(PageError::unreadable_record)?.into_iter().next();
        let event = opened.and_then(|stored| Event::decode(&stored.kind, stored.version, &stored.facts).ok());
        match event {
            Some(Event::Gate(gate::Event::Opened { gate: found, call, .. })) if found == gate => Ok(call),
            _ => Ok(None),
        }
    }

    /// Reads every record of a call and its gate.
    async fn trace_call(
        &self,
        call: Option<CallId>,
        gate: Option<GateId>,
        people: &IdentityMap,
    ) -> Result<CallTrace, PageError> {
        let mut found = CallTrace::default();
        let id = call.map(|id| id.to_string()).or_else(|| gate.map(|id| id.to_string()));
        let Some(begun) = id.as_deref().and_then(made_at) else { return Ok(found) };
        let first = self.first_at(begun).await?;
        let mut after = first;
        let mut formatter = RecordFormatter::with_names(people.clone());
        let is_ours = |entry: &ListedEntry| {
            call.is_some() && entry.about.call == call || gate.is_some() && entry.about.gate == gate
        };
        while after.0 < first.0 + MOST {
            let page = self.read_page(after).await?;
            let Some((stored, _)) = page.last() else { break };
            after = stored.lsn;
            for (stored, text) in page {
                let (about, summary) = formatter.describe_record(&stored, text.as_deref());
                let entry = ListedEntry { stored, about, text: summary };
                if !is_ours(&entry) {
                    continue;
                }
                let is_end = found.note_record(&entry.stored, text);
                found.entries.push(entry);
                if is_end || found.entries.len() >= ROWS {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// Returns the position before the first record that is not older than `at`.
    async fn first_at(&self, at: Millis) -> Result<Lsn, PageError> {
        let log = self.context.handle.log();
        let head = log.head(Partition::ZERO).await.map_err(PageError::unreadable_record)?.lsn.0;
        let (mut low, mut high) = (0, head);
        while low < high {
            let middle = low + (high - low) / 2;
            let next = log.read_records(Partition::ZERO, Lsn(middle), 1).await.map_err(PageError::unreadable_record)?;
            if next.first().is_some_and(|stored| stored.at < at) { low = middle + 1 } else { high = middle }
        }
        Ok(Lsn(low))
    }
}

impl CallTrace {
    /// Keeps a record of the call; returns true if nothing of it follows.
    fn note_record(&mut self, stored: &StoredRecord, text: Option<Arc<str>>) -> bool {
        match Event::decode(&stored.kind, stored.version, &stored.facts) {
            Ok(Event::Call(call::Event::Proposed { .. })) => {
                self.content = text.and_then(|text| serde_json::from_str(&text).ok());
                false
            }
            Ok(Event::Call(call::Event::Ended { .. })) => {
                self.outcome = text;
                self.content.as_ref().is_none_or(|content| content.request.is_none())
            }
            Ok(Event::Call(call::Event::Received { .. })) => true,
            _ => false,
        }
    }
}

/// Returns the time at which an id was made, from its beginning.
fn made_at(id: &str) -> Option<Millis> {
    let digits = id.split_once('_').map_or(id, |(_, rest)| rest);
    u64::from_str_radix(digits.get(..12)?, 16).ok().map(Millis)
}

#[cfg(test)]
mod tests {
    use super::made_at;

    #[test]
    fn an_id_says_when_it_was_made() {
        assert_eq!(made_at("call_0193f1b0000070008000000000000001").map(|at| at.0), Some(0x0193_f1b0_0000));
        assert_eq!(made_at("call_x"), None);
    }
}
