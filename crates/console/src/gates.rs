//! The inbox, and the page of one gate.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, State},
    response::Response,
};
use countersign_core::{
    engine::{self, Engine},
    gate::ApprovalScope,
    id::GateId,
};
use countersign_http::web::HttpCaller;
use countersign_runtime::InboxLane;
use countersign_view::GateRequest;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Console, Look,
    card::{Answered, Asked, Place, Reader},
    effect,
    page::{Tab, Trouble, page},
    words::{counted, path},
};

/// How many decided cards a link can name.
const MOST_DONE: usize = 50;
/// How long a grant may be chosen to last, in seconds; 0 until it is revoked.
const LASTS: [(u64, &str); 6] = [
    (3600, "one hour"),
    (8 * 3600, "eight hours"),
    (86_400, "one day"),
    (7 * 86_400, "one week"),
    (30 * 86_400, "thirty days"),
    (0, "until I revoke it"),
];

/// What the inbox is asked for.
#[derive(Deserialize)]
pub(super) struct Wanted {
    /// Gates that were just decided, with commas between.
    #[serde(default)]
    done: String,
}

pub(super) async fn inbox(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let source = console.context.handle.source(InboxLane::Request);
    let (pending, _) = source.read_state(Asked::pending).await.ok_or_else(Trouble::closing)?;
    let key = fresh_key();
    let reader = Reader { now: look.now, csrf: look.caller.csrf_token(), key: &key, place: Place::List, notice: None };
    let mut over = Vec::new();
    for id in wanted.done.split(',').filter_map(GateId::parse).take(MOST_DONE) {
        if let Some((asked, answered)) = console.gate(id).await?.filter(|(asked, _)| !asked.is_pending()) {
            over.push(asked.card(&reader, &answered));
        }
    }
    let body = html! {
        h1 { "Inbox" }
        p.lead #lead { (lead(pending.len())) }
        @if !over.is_empty() {
            section aria-label="Just decided" {
                div.list #over { @for card in &over { (card) } }
                p.noscript { a href="/console/" { "Dismiss all of these" } }
            }
        }
        section aria-label="What waits" {
            div.list #cards { @for asked in &pending { (asked.card(&reader, &Answered::default())) } }
            (nothing(pending.is_empty()))
        }
        (several(&look))
    };
    Ok(page(&look, Tab::Inbox, "Inbox", &body))
}

fn lead(waiting: usize) -> String {
    match waiting {
        0 => "Nothing waits for a decision.".to_owned(),
        count => format!("{} waiting, the most urgent first.", counted(count as u64, "decision")),
    }
}

fn nothing(is_empty: bool) -> Markup {
    html! {
        div.empty #nothing hidden[!is_empty] {
            p { "When an agent needs a decision it appears here, at once." }
            p { a href="/console/sessions" { "Start a chat" } " or " a href="/console/agents" { "see who is connected" } "." }
        }
    }
}

/// Deciding about several at once. Cards that are not shown whole cannot be chosen.
fn several(look: &Look) -> Markup {
    html! {
        form.several #several method="post" action="/console/answers" {
            input type="hidden" name="csrf" value=(look.caller.csrf_token());
            span.chosen #chosen { "The chosen ones:" }
            button type="button" #all hidden { "Choose all" }
            button type="submit" name="answer" value="once" { "Allow once" }
            button.danger type="submit" name="answer" value="deny" { "Deny" }
        }
    }
}

pub(super) async fn one(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let gate = GateId::parse(&id).ok_or_else(|| Trouble::missing(format!("gate {id}")))?;
    console.gate_page(&look, gate, None).await
}

impl Console {
    /// One gate, fetched from the log if it rests there, with what was answered.
    pub(super) async fn gate(&self, id: GateId) -> Result<Option<(Asked, Answered)>, Trouble> {
        let source = self.context.handle.source(InboxLane::Request);
        let at = move |engine: &Engine| {
            let gate = engine.state().gate(id)?;
            Some((gate.content_lsn(), gate.answer_content(), GateRequest::at_hand(engine, id)))
        };
        let found = source.read_of(engine::ResidencyScope::Gate(id), at).await.ok_or_else(Trouble::closing)?.0;
        let Some((content_at, answer_at, request)) = found else { return Ok(None) };
        let lsns: Vec<_> = [Some(content_at), answer_at].into_iter().flatten().collect();
        let texts = self.context.handle.contents().get(&lsns).await.map_err(Trouble::unread)?;
        let read = || texts.first().cloned().flatten().and_then(|text| GateRequest::from_record(&text));
        let Some(request) = request.or_else(read) else { return Ok(None) };
        let asked = move |engine: &Engine| engine.state().gate(id).map(|gate| Asked::new(engine, gate, request));
        let asked = source.read_of(engine::ResidencyScope::Gate(id), asked).await.ok_or_else(Trouble::closing)?.0;
        let text =
            if asked.as_ref().and_then(Asked::answer_at) == answer_at { texts.get(1).cloned().flatten() } else { None };
        Ok(asked.map(|asked| (asked, Answered { text })))
    }

    /// The page of one gate, with something to say above it.
    pub(super) async fn gate_page(
        &self,
        look: &Look,
        id: GateId,
        notice: Option<(axum::http::StatusCode, &str)>,
    ) -> Result<Response, Trouble> {
        let found = self.gate(id).await?;
        let (asked, answered) = found.ok_or_else(|| Trouble::missing(format!("gate {id}")))?;
        let key = fresh_key();
        let reader = Reader {
            now: look.now,
            csrf: look.caller.csrf_token(),
            key: &key,
            place: Place::Page,
            notice: notice.map(|(_, text)| text),
        };
        let longer = if asked.is_pending() && asked.scopes.contains(&ApprovalScope::Always) {
            self.longer(look, &asked, &key).await?
        } else {
            html! {}
        };
        let body = html! {
            p.back { a href="/console/" { "← Inbox" } }
            h1 { @if asked.is_pending() { "A decision is needed" } @else { "A decision" } }
            div.list #cards.alone { (asked.card(&reader, &answered)) }
            (longer)
            @if !asked.is_pending() {
                p { a href=(path("/console/record/", &id.to_string())) { "From request to outcome, in the record" } }
            }
        };
        let status = notice.map_or(axum::http::StatusCode::OK, |(status, _)| status);
        Ok(super::page::page_with(status, look, Tab::Inbox, &asked.title(), None, &body))
    }

    /// What may be allowed for longer, each with what it would have done to what was asked before.
    async fn longer(&self, look: &Look, asked: &Asked, key: &str) -> Result<Markup, Trouble> {
        let id = asked.id;
        let effects = effect::of_proposals(self, id).await?;
        Ok(html! {
            section.panel #longer aria-labelledby="longer-title" {
                h2 #longer-title { "Allow for longer" }
                p { "Choose how much more is allowed without asking. What each would have done to the calls in the record stands beside it." }
                form.answer.longer method="post" action=(path("/console/gates/", &id.to_string())) {
                    input type="hidden" name="csrf" value=(look.caller.csrf_token());
                    input type="hidden" name="key" value=(key);
                    input type="hidden" name="digest" value=(asked.digest());
                    input type="hidden" name="from" value="page";
                    fieldset {
                        legend { "What" }
                        @for (at, proposal) in effects.iter().enumerate() { (proposal.choice(at == 0)) }
                    }
                    div.row {
                        div { label for="reach" { "Where" } select #reach name="reach" {
                            option value="always" { "In every session of the same agent" }
                            option value="session" { "In this session only" }
                        } }
                        div { label for="lasts" { "For" } select #lasts name="lasts" {
                            @for (seconds, name) in LASTS { option value=(seconds) selected[seconds == 86_400] { (name) } }
                        } }
                        button.primary type="submit" name="answer" value="grant" { "Allow, and save" }
                    }
                }
                @if !asked.is_hosted() {
                    p.note { a href={ "/console/try?of=" (id) } { "Edit a rule for it" } ": its effect is shown before it is saved, and it stands in the file of rules." }
                }
            }
        })
    }
}

/// Names one window's answers.
pub(super) fn fresh_key() -> String {
    let mut bytes = [0; 12];
    // Without a key an answer counts all the same; only its repetition is not known as one.
    if getrandom::fill(&mut bytes).is_err() { String::new() } else { hex::encode(bytes) }
}
