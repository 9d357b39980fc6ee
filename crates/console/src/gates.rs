//! Inbox, and the page of one gate.

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
    ConsoleState, PageContext,
    console_card::{AnswerText, CardContext, CardPlace, ConsoleGate},
    effect,
    labels::{count_text, url_path},
    page::{ConsoleTab, PageError, render_page},
};

/// Most decided cards in a link.
const MOST_DONE: usize = 50;
/// Lifetimes of a grant, in seconds; 0 until it is revoked.
const LASTS: [(u64, &str); 6] = [
    (3600, "one hour"),
    (8 * 3600, "eight hours"),
    (86_400, "one day"),
    (7 * 86_400, "one week"),
    (30 * 86_400, "thirty days"),
    (0, "until revoked"),
];

/// Query of the inbox.
#[derive(Deserialize)]
pub(super) struct InboxQuery {
    /// Gates that were just decided, separated by commas.
    #[serde(default)]
    done: String,
}

pub(super) async fn show_inbox(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Query(query): Query<InboxQuery>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let source = console.context.handle.source(InboxLane::Request);
    let (pending, _) = source.read_state(ConsoleGate::all_pending).await.ok_or_else(PageError::gateway_closing)?;
    let key = fresh_key();
    let reader =
        CardContext { now: ctx.now, csrf: ctx.caller.csrf_token(), key: &key, place: CardPlace::List, notice: None };
    let mut over = Vec::new();
    for id in query.done.split(',').filter_map(GateId::parse).take(MOST_DONE) {
        if let Some((console_gate, answered)) =
            console.load_gate(id).await?.filter(|(console_gate, _)| !console_gate.is_pending())
        {
            over.push(console_gate.render_card(&reader, &answered));
        }
    }
    let body = html! {
        h1 { "Inbox" }
        p.lead #lead { (lead_text(pending.len())) }
        @if !over.is_empty() {
            section aria-label="Just decided" {
                div.list #over { @for card in &over { (card) } }
                p.noscript { a href="/console/" { "Dismiss all" } }
            }
        }
        section aria-label="Pending approvals" {
            div.list #cards { @for console_gate in &pending { (console_gate.render_card(&reader, &AnswerText::default())) } }
            (empty_notice(pending.is_empty()))
        }
        (several_form(&ctx))
    };
    Ok(render_page(&ctx, ConsoleTab::Inbox, "Inbox", &body))
}

fn lead_text(waiting: usize) -> String {
    match waiting {
        0 => "No pending approvals.".to_owned(),
        count => format!("{}, the most urgent first.", count_text(count as u64, "pending approval")),
    }
}

fn empty_notice(is_empty: bool) -> Markup {
    html! {
        div.empty #nothing hidden[!is_empty] {
            p { "Requests that need a decision appear here at once." }
            p { a href="/console/sessions" { "Start a session" } " or " a href="/console/agents" { "see which agents are connected" } "." }
        }
    }
}

/// Renders the form that decides several at once. Cards that are not shown whole cannot be selected.
fn several_form(ctx: &PageContext) -> Markup {
    html! {
        form.several #several method="post" action="/console/answers" {
            input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
            span.chosen #chosen { "Selected:" }
            button type="button" #all hidden { "Select all" }
            button type="submit" name="answer" value="once" { "Allow once" }
            button.danger type="submit" name="answer" value="deny" { "Deny" }
        }
    }
}

pub(super) async fn show_gate(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let gate = GateId::parse(&id).ok_or_else(|| PageError::not_found(format!("approval {id}")))?;
    console.gate_page(&ctx, gate, None).await
}

impl ConsoleState {
    /// Loads one gate, from the log if it is not in memory, with its answer.
    pub(super) async fn load_gate(&self, id: GateId) -> Result<Option<(ConsoleGate, AnswerText)>, PageError> {
        let source = self.context.handle.source(InboxLane::Request);
        let at = move |engine: &Engine| {
            let gate = engine.state().gate(id)?;
            Some((gate.content_lsn(), gate.answer_content(), GateRequest::at_hand(engine, id)))
        };
        let found =
            source.read_of(engine::ResidencyScope::Gate(id), at).await.ok_or_else(PageError::gateway_closing)?.0;
        let Some((content_at, answer_at, request)) = found else { return Ok(None) };
        let lsns: Vec<_> = [Some(content_at), answer_at].into_iter().flatten().collect();
        let texts = self.context.handle.contents().get(&lsns).await.map_err(PageError::unreadable_record)?;
        let read = || texts.first().cloned().flatten().and_then(|text| GateRequest::from_record(&text));
        let Some(request) = request.or_else(read) else { return Ok(None) };
        let read_gate =
            move |engine: &Engine| engine.state().gate(id).map(|gate| ConsoleGate::new(engine, gate, request));
        let console_gate =
            source.read_of(engine::ResidencyScope::Gate(id), read_gate).await.ok_or_else(PageError::gateway_closing)?.0;
        let text = if console_gate.as_ref().and_then(ConsoleGate::answer_at) == answer_at {
            texts.get(1).cloned().flatten()
        } else {
            None
        };
        Ok(console_gate.map(|console_gate| (console_gate, AnswerText { text })))
    }

    /// Renders the page of one gate, with a notice above it.
    pub(super) async fn gate_page(
        &self,
        ctx: &PageContext,
        id: GateId,
        notice: Option<(axum::http::StatusCode, &str)>,
    ) -> Result<Response, PageError> {
        let found = self.load_gate(id).await?;
        let (console_gate, answered) = found.ok_or_else(|| PageError::not_found(format!("approval {id}")))?;
        let key = fresh_key();
        let reader = CardContext {
            now: ctx.now,
            csrf: ctx.caller.csrf_token(),
            key: &key,
            place: CardPlace::Page,
            notice: notice.map(|(_, text)| text),
        };
        let longer = if console_gate.is_pending() && console_gate.scopes.contains(&ApprovalScope::Always) {
            self.grant_form(ctx, &console_gate, &key).await?
        } else {
            html! {}
        };
        let body = html! {
            p.back { a href="/console/" { "← Inbox" } }
            h1 { @if console_gate.is_pending() { "Pending approval" } @else { "Decision" } }
            div.list #cards.alone { (console_gate.render_card(&reader, &answered)) }
            (longer)
            @if !console_gate.is_pending() {
                p { a href=(url_path("/console/record/", &id.to_string())) { "From request to outcome in the record" } }
            }
        };
        let status = notice.map_or(axum::http::StatusCode::OK, |(status, _)| status);
        Ok(super::page::render_page_with(status, ctx, ConsoleTab::Inbox, &console_gate.title(), None, &body))
    }

    /// Renders the offered grants, each with its effect on earlier requests.
    async fn grant_form(&self, ctx: &PageContext, console_gate: &ConsoleGate, key: &str) -> Result<Markup, PageError> {
        let id = console_gate.id;
        let effects = effect::grant_offers(self, id).await?;
        Ok(html! {
            section.panel #longer aria-labelledby="longer-title" {
                h2 #longer-title { "Allow for longer" }
                p { "Choose what to allow without asking. Each choice shows its effect on the calls in the record." }
                form.answer.longer method="post" action=(url_path("/console/gates/", &id.to_string())) {
                    input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                    input type="hidden" name="key" value=(key);
                    input type="hidden" name="digest" value=(console_gate.digest());
                    input type="hidden" name="from" value="page";
                    fieldset {
                        legend { "Calls" }
                        @for (at, proposal) in effects.iter().enumerate() { (proposal.render_choice(at == 0)) }
                    }
                    div.row {
                        div { label for="reach" { "Scope" } select #reach name="reach" {
                            option value="always" { "In every session of the same agent" }
                            option value="session" { "In this session only" }
                        } }
                        div { label for="lasts" { "Duration" } select #lasts name="lasts" {
                            @for (seconds, name) in LASTS { option value=(seconds) selected[seconds == 86_400] { (name) } }
                        } }
                        button.primary type="submit" name="answer" value="grant" { "Allow and save" }
                    }
                }
                @if !console_gate.is_hosted() {
                    p.note { a href={ "/console/try?of=" (id) } { "Create a rule instead" } ": you see its effect before you save it to the rules file." }
                }
            }
        })
    }
}

/// Returns a key for the answers of one window.
pub(super) fn fresh_key() -> String {
    let mut bytes = [0; 12];
    // Without a key an answer counts all the same; only its repetition is not detected.
    if getrandom::fill(&mut bytes).is_err() { String::new() } else { hex::encode(bytes) }
}
