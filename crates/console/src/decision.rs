//! One decision, from request to outcome.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use countersign_core::{
    call::{self, CallDetails},
    engine::Event,
    gate,
    id::{CallId, GateId, Lsn},
    time::Millis,
};
use countersign_http::web::HttpCaller;
use countersign_runtime::store::{Log as _, Partition, ReadScope, StoredRecord};
use countersign_view::record::RecordFormatter;
use maud::html;

use super::{
    Console,
    card::{Place, Reader, piece},
    page::{Tab, Trouble, page},
    record::{Entry, Links, rows, tabs},
    words::{self, one, path, plain},
};

/// How many records behind the request are looked through.
const MOST: u64 = 60_000;
/// How many entries are shown.
const ROWS: usize = 200;

/// What was found of one decision.
#[derive(Default)]
struct Found {
    entries: Vec<Entry>,
    wanted: Option<CallDetails>,
    outcome: Option<Arc<str>>,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let missing = || Trouble::missing(format!("call or gate {id} in the record"));
    let gate = id.starts_with("gate_").then(|| GateId::parse(&id)).flatten();
    let call = match gate {
        Some(gate) => console.call_of(gate).await?,
        None => Some(CallId::parse(&id).ok_or_else(missing)?),
    };
    let found = console.trace(call, gate).await?;
    if found.entries.is_empty() {
        return Err(missing());
    }
    let gate = gate.or_else(|| found.entries.iter().find_map(|entry| entry.about.gate));
    let card = match gate {
        Some(gate) => console.gate(gate).await?,
        None => None,
    };
    let reader = Reader { now: look.now, csrf: look.caller.csrf_token(), key: "", place: Place::Page, notice: None };
    let body = html! {
        h1 { "From request to outcome" }
        (tabs(""))
        @if let Some((asked, answered)) = &card { div.list.alone { (asked.card(&reader, answered)) } }
        @if let (Some(content), None) = (&found.wanted, &card) {
            section.panel {
                h2 { (plain(&content.tool)) }
                @for (name, value) in &content.arguments {
                    @let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    (piece(&plain(name), &words::many(&text), text.len() > 60))
                }
            }
        }
        @if let Some(text) = &found.outcome { section.panel { h2 { "Outcome" } pre { "\n" (words::many(text)) } } }
        @if call.is_some() && found.wanted.is_some() {
            p { a.button href={ "/console/try?of=" (id) } { "Make a rule of it" } }
        }
        h2 { "In the record" }
        (rows(&found.entries, Links::None))
        @if let Some(session) = found.entries.iter().find_map(|entry| entry.stored.session.as_ref()) {
            p { a href=(path("/console/sessions/", session.as_str())) { "Its session, " (one(session.as_str())) } }
        }
    };
    Ok(page(&look, Tab::Record, "From request to outcome", &body))
}

impl Console {
    /// The call that a gate decides. A question of a person's own has none.
    async fn call_of(&self, gate: GateId) -> Result<Option<CallId>, Trouble> {
        let key = gate.to_string();
        let read = self.context.handle.log().read_scope(Partition::ZERO, ReadScope::Key(&key), Lsn(0), 1).await;
        let opened = read.map_err(Trouble::unread)?.into_iter().next();
        let event = opened.and_then(|stored| Event::decode(&stored.kind, stored.version, &stored.facts).ok());
        match event {
            Some(Event::Gate(gate::Event::Opened { gate: found, call, .. })) if found == gate => Ok(call),
            _ => Ok(None),
        }
    }

    /// Everything that the record says of a call and its gate.
    async fn trace(&self, call: Option<CallId>, gate: Option<GateId>) -> Result<Found, Trouble> {
        let mut found = Found::default();
        let id = call.map(|id| id.to_string()).or_else(|| gate.map(|id| id.to_string()));
        let Some(begun) = id.as_deref().and_then(made_at) else { return Ok(found) };
        let first = self.first_at(begun).await?;
        let mut after = first;
        let mut narrator = RecordFormatter::default();
        let is_ours =
            |entry: &Entry| call.is_some() && entry.about.call == call || gate.is_some() && entry.about.gate == gate;
        while after.0 < first.0 + MOST {
            let page = self.page(after).await?;
            let Some((stored, _)) = page.last() else { break };
            after = stored.lsn;
            for (stored, text) in page {
                let (about, told) = narrator.describe_record(&stored, text.as_deref());
                let entry = Entry { stored, about, text: told };
                if !is_ours(&entry) {
                    continue;
                }
                let is_end = found.note(&entry.stored, text);
                found.entries.push(entry);
                if is_end || found.entries.len() >= ROWS {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// The position before the first record that is not older than `at`.
    async fn first_at(&self, at: Millis) -> Result<Lsn, Trouble> {
        let log = self.context.handle.log();
        let head = log.head(Partition::ZERO).await.map_err(Trouble::unread)?.lsn.0;
        let (mut low, mut high) = (0, head);
        while low < high {
            let middle = low + (high - low) / 2;
            let next = log.read_records(Partition::ZERO, Lsn(middle), 1).await.map_err(Trouble::unread)?;
            if next.first().is_some_and(|stored| stored.at < at) { low = middle + 1 } else { high = middle }
        }
        Ok(Lsn(low))
    }
}

impl Found {
    /// Keeps what a record says of the call; true if nothing of it comes behind.
    fn note(&mut self, stored: &StoredRecord, text: Option<Arc<str>>) -> bool {
        match Event::decode(&stored.kind, stored.version, &stored.facts) {
            Ok(Event::Call(call::Event::Proposed { .. })) => {
                self.wanted = text.and_then(|text| serde_json::from_str(&text).ok());
                false
            }
            Ok(Event::Call(call::Event::Ended { .. })) => {
                self.outcome = text;
                self.wanted.as_ref().is_none_or(|content| content.request.is_none())
            }
            Ok(Event::Call(call::Event::Received { .. })) => true,
            _ => false,
        }
    }
}

/// When an id was made, which stands at its beginning.
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
