//! Page of one session: its conversation, live, and sending messages.

mod form;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
};
use countersign_conversations::chats::ChatError;
use countersign_core::{
    id::{Lsn, SessionId},
    session::WhenBusy,
};
use countersign_http::web::HttpCaller;
use maud::{Markup, html};
use serde::Deserialize;

use self::form::ConversationForm;
use super::{
    ConsoleState, PageContext,
    gates::fresh_key,
    history::CallVerdict,
    labels::{escape_line, escape_lines, plain_text, time_ago, url_path},
    page::{ConsoleTab, PageError, render_page_with},
    sessions::{chat_error, keyed_request, requested_model},
    transcript::{SessionFacts, SessionTranscript},
};

/// Most calls of an agent that are shown.
const CALLS: usize = 100;
/// Most withdrawn messages that are put into the field.
const MOST_BACK: usize = 20;

/// Part of the conversation that is requested.
#[derive(Deserialize)]
pub(super) struct TranscriptQuery {
    /// Position before which entries are shown.
    before: Option<u64>,
    /// Positions of withdrawn messages to edit again, separated by commas.
    #[serde(default)]
    back: String,
}

pub(super) async fn show_conversation(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
    Query(query): Query<TranscriptQuery>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let back = query.back.split(',').filter_map(|at| at.parse().ok().map(Lsn)).take(MOST_BACK).collect();
    console.conversation_page(&ctx, &SessionId::new(id), query.before.map(Lsn), back, None).await
}

impl ConsoleState {
    async fn conversation_page(
        &self,
        ctx: &PageContext,
        id: &SessionId,
        before: Option<Lsn>,
        back: Vec<Lsn>,
        problem: Option<(StatusCode, String)>,
    ) -> Result<Response, PageError> {
        let transcript = self.load_transcript(id, before).await?;
        let about = &transcript.about;
        let title = about.name.as_deref().map_or_else(|| "Untitled".to_owned(), plain_text);
        let at = url_path("/console/sessions/", id.as_str());
        let door = about.door.as_deref().unwrap_or_default();
        let can_speak = !about.is_spoken_for && matches!(door, "console" | "hermes" | "api");
        let written = if can_speak { self.message_texts(&back).await?.join("\n\n") } else { String::new() };
        let body = html! {
            p.back { a href="/console/sessions" { "← Sessions" } }
            h1 { (title) }
            (self.status_line(about, id))
            @if let Some((_, problem)) = &problem { p.problem role="alert" { (escape_lines(problem)) } }
            @if about.is_agents { (self.agent_requests(ctx, id).await?) }
            @else { (render_conversation(&transcript, ctx, &at)) }
            @if can_speak && before.is_none() { (self.message_form(ctx, about, &at, &written)) }
            @else if !about.is_spoken_for && before.is_none() {
                p.note { "The client of this session sends its messages. You can read it here, answer its pending approvals and stop it." }
                div.speak #speak { @if about.run.is_some() { (stop_form(ctx, &at)) } }
            }
            @else if !about.is_agents && before.is_none() { p.note { "The host of this session sends its messages. You can read it here and answer its pending approvals." } }
        };
        let status = problem.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
        let follows = before.is_none().then_some(id.as_str());
        Ok(render_page_with(status, ctx, ConsoleTab::Sessions, &title, follows, &body))
    }

    fn status_line(&self, about: &SessionFacts, id: &SessionId) -> Markup {
        html! {
            p.meta #state {
                span { "via " (plain_text(about.door.as_deref().unwrap_or("omp"))) }
                @if !about.cwd.is_empty() { span { "in " code { (plain_text(&about.cwd)) } } }
                @if let Some((provider, model)) = &about.model { span { (plain_text(provider)) "/" (plain_text(model)) } }
                @if about.run.is_some() { span.badge.good { "working" } }
                a href={ "/console/record?" (serde_urlencoded::to_string([("session", id.as_str())]).unwrap_or_default()) } { "In the record" }
            }
        }
    }

    fn message_form(&self, ctx: &PageContext, about: &SessionFacts, at: &str, written: &str) -> Markup {
        let csrf = html! { input type="hidden" name="csrf" value=(ctx.caller.csrf_token()); };
        let current = about.model.as_ref().map(|(provider, id)| (provider.as_str(), id.as_str()));
        html! {
            div.speak #speak {
                form.stack method="post" action={ (at) "/say" } #say {
                    (csrf)
                    input type="hidden" name="key" value=(fresh_key());
                    label for="message" { @if about.run.is_some() { "Guidance for the running agent" } @else { "Message" } }
                    textarea #message name="message" rows="3" required { "\n" (written) }
                    div.act { button.primary type="submit" { @if about.run.is_some() { "Steer" } @else { "Send" } } }
                }
                div.row {
                    @if about.run.is_some() {
                        (stop_form(ctx, at))
                    }
                    form.inline method="post" action={ (at) "/model" } { (csrf) label for="model" { "Model" } (self.model_choice("model", current)) button type="submit" { "Use" } }
                }
            }
        }
    }

    /// Renders the recent requests of an agent, and their outcomes.
    async fn agent_requests(&self, ctx: &PageContext, id: &SessionId) -> Result<Markup, PageError> {
        let past = self.history.upto_now(&self.context.handle).await.map_err(PageError::unreadable_record)?;
        let calls: Vec<_> = past.calls().rev().filter(|made| made.session == *id).take(CALLS).collect();
        Ok(html! {
            div #transcript aria-label="Requests" role="region" {
                @if calls.is_empty() { p.empty { "No requests yet." } }
                @for made in calls {
                    @let (class, word) = verdict_badge(made.verdict);
                    article.said.agent #{ "c-" (made.id) } {
                        header { (time_ago(made.at, ctx.now)) }
                        pre.code { (escape_line(&made.signature)) }
                        p.verdict {
                            span.badge.(class) { (word) }
                            @if let Some(by) = &made.by { " by " (super::labels::principal_name(&ctx.people, by)) }
                            @else if !made.why.is_empty() { " " span.why { (escape_line(&made.why)) } }
                            @if let Some(end) = made.end { " " span.badge.(super::labels::Severity::for_end(end).css_class()) { (countersign_view::record::end_text(end)) } }
                            @match (made.verdict, made.gate) {
                                (CallVerdict::Open, Some(gate)) => { " " a href=(url_path("/console/gates/", &gate.to_string())) { "Decide" } }
                                _ => { " " a.more href=(url_path("/console/record/", &made.id.to_string())) { "in the record" } }
                            }
                        }
                    }
                }
            }
        })
    }
}

const fn verdict_badge(verdict: CallVerdict) -> (&'static str, &'static str) {
    match verdict {
        CallVerdict::Open => ("ask", "pending"),
        CallVerdict::Rule => ("good", "allowed"),
        CallVerdict::Grant => ("good", "allowed by a grant"),
        CallVerdict::Person => ("good", "allowed"),
        CallVerdict::RefusedByRule => ("bad", "denied"),
        CallVerdict::RefusedByPerson => ("bad", "denied"),
        CallVerdict::Undecided => ("still", "not decided"),
    }
}

fn stop_form(ctx: &PageContext, at: &str) -> Markup {
    html! {
        form method="post" action={ (at) "/stop" } {
            input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
            button.danger type="submit" { "Stop" }
        }
    }
}

/// Renders the queued messages, with a form that withdraws them.
fn queued_messages(transcript: &SessionTranscript, ctx: &PageContext, at: &str) -> Markup {
    html! {
        div #queue {
            @if !transcript.waiting.is_empty() {
                section.panel #queued aria-labelledby="queued-title" {
                    h2 #queued-title { "Queued messages" }
                    @for text in &transcript.waiting { pre.prose { "\n" (escape_lines(text)) } }
                    @if !transcript.about.is_spoken_for {
                        form.act method="post" action={ (at) "/unsay" } {
                            input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                            button type="submit" { "Withdraw" }
                            span.note { @if transcript.about.run.is_some() { "The run reads them at its next step." } @else { "They are sent before the next message." } }
                        }
                    }
                }
            }
        }
    }
}

fn render_conversation(transcript: &SessionTranscript, ctx: &PageContext, at: &str) -> Markup {
    html! {
        @if let (true, Some(first)) = (transcript.has_more, transcript.first_lsn()) { p { a.button href={ (at) "?before=" (first) } { "Earlier" } } }
        div #transcript aria-label="Conversation" role="region" {
            @if transcript.is_empty() { p.empty { "No messages yet." } }
            (transcript.render_entries(&ctx.people))
        }
        div #live aria-label="Live output" role="region" hidden {}
        (queued_messages(transcript, ctx, at))
    }
}

/// Redirects to the conversation, or to it with an error.
async fn redirect_back(
    console: &ConsoleState,
    form: &ConversationForm,
    done: Result<(), ChatError>,
) -> Result<Response, PageError> {
    let ConversationForm { ctx, id, .. } = form;
    match done {
        Ok(()) => Ok(Redirect::to(&format!("{}#speak", url_path("/console/sessions/", id.as_str()))).into_response()),
        Err(error) => console.conversation_page(ctx, id, None, Vec::new(), Some(chat_error(&error))).await,
    }
}

/// Redirects to the conversation, with withdrawn messages in the field.
async fn redirect_with_drafts(
    console: &ConsoleState,
    form: &ConversationForm,
    done: Result<Vec<Lsn>, ChatError>,
) -> Result<Response, PageError> {
    match done {
        Ok(taken) if !taken.is_empty() => {
            let places = taken.iter().map(|at| at.0.to_string()).collect::<Vec<_>>().join(",");
            let at = url_path("/console/sessions/", form.id.as_str());
            Ok(Redirect::to(&format!("{at}?back={places}#speak")).into_response())
        }
        done => redirect_back(console, form, done.map(drop)).await,
    }
}

pub(super) async fn take_back_messages(
    State(console): State<Arc<ConsoleState>>,
    form: ConversationForm,
) -> Result<Response, PageError> {
    let taken = console.context.chats.take_back(&form.id).await;
    redirect_with_drafts(&console, &form, taken).await
}

pub(super) async fn send_message(
    State(console): State<Arc<ConsoleState>>,
    form: ConversationForm,
) -> Result<Response, PageError> {
    let message = form.body.text_field("message").unwrap_or_default();
    let key = keyed_request(&form.ctx, &form.body, "say");
    let sent = console.context.chats.prompt_once(&form.id, message, WhenBusy::Steer, key.as_ref()).await;
    redirect_back(&console, &form, sent.map(drop)).await
}

pub(super) async fn stop_run(
    State(console): State<Arc<ConsoleState>>,
    form: ConversationForm,
) -> Result<Response, PageError> {
    let chats = &console.context.chats;
    // After a stop nothing more may run by itself: queued messages return to their author.
    let taken = match chats.stop_session(&form.id).await {
        Ok(_) => match chats.take_back(&form.id).await {
            // Messages of its own host belong to that host.
            Err(ChatError::NotOurs) => Ok(Vec::new()),
            taken => taken,
        },
        Err(error) => Err(error),
    };
    redirect_with_drafts(&console, &form, taken).await
}

pub(super) async fn use_model(
    State(console): State<Arc<ConsoleState>>,
    form: ConversationForm,
) -> Result<Response, PageError> {
    let chats = &console.context.chats;
    let found = match requested_model(&form.body) {
        Some((provider, model)) => chats.find_model(provider.as_deref(), &model),
        None => Err(ChatError::Invalid("Choose a model".to_owned())),
    };
    let done = match found {
        Ok(model) => chats.use_model(&form.id, model).await,
        Err(error) => Err(error),
    };
    redirect_back(&console, &form, done).await
}
