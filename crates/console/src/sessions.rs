//! List of sessions, and starting a chat.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
};
use countersign_conversations::{
    chats::{ChatError, NewConversation, RequestKey},
    sessions as index,
};
use countersign_core::{engine::Engine, session::WhenBusy, time::Millis};
use countersign_http::web::{BodyFields, HttpCaller};
use countersign_runtime::InboxLane;
use maud::{Markup, html};

use super::{
    ConsoleState, PageContext,
    gates::fresh_key,
    labels::{count_text, plain_text, time_ago, url_path},
    page::{ConsoleTab, PageError, render_page_with},
};

/// Most sessions in the list.
const ROWS: usize = 200;
/// Longest key of a form, in characters.
const LONGEST_KEY: usize = 64;

/// Load of a session.
#[derive(Clone, Copy, Debug, Default)]
struct SessionLoad {
    /// Run, compaction of the conversation, or command of a user.
    works: bool,
    waits: usize,
}

pub(super) async fn list_sessions(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    console.sessions_page(&ctx, None).await
}

impl ConsoleState {
    async fn sessions_page(
        &self,
        ctx: &PageContext,
        problem: Option<(StatusCode, String)>,
    ) -> Result<Response, PageError> {
        let log = self.context.handle.log();
        let rows = index::list_page(log, None, ROWS).await.map_err(PageError::unreadable_record)?;
        let count = index::count_sessions(log).await.map_err(PageError::unreadable_record)?;
        let read = |engine: &Engine| {
            let mut busy: BTreeMap<String, SessionLoad> = BTreeMap::new();
            for session in engine.state().sessions().filter(|session| !session.is_at_rest()) {
                busy.entry(session.id().as_str().to_owned()).or_default().works = true;
            }
            for session in engine.state().pending_gates().filter_map(|gate| gate.session()) {
                busy.entry(session.as_str().to_owned()).or_default().waits += 1;
            }
            busy
        };
        let busy = self
            .context
            .handle
            .source(InboxLane::Request)
            .read_state(read)
            .await
            .ok_or_else(PageError::gateway_closing)?
            .0;
        let of = |id: &str| busy.get(id).copied().unwrap_or_default();
        let agents = self.context.agents.all_agents();
        let agents: Vec<(&str, &str)> = agents.iter().map(|(id, session)| (id.as_str(), session.as_str())).collect();
        let status = problem.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
        let new_chat = self.new_chat(ctx).await;
        let body = html! {
            h1 { "Sessions" }
            @if let Some((_, problem)) = &problem { p.problem role="alert" { (problem) } }
            (new_chat)
            div #lists data-follows {
                section #listed aria-labelledby="chats" {
                    h2 #chats { "Sessions" }
                    @if rows.is_empty() { p.empty { "No sessions yet." } }
                    @else {
                        ul.sessions {
                            @for row in &rows {
                                li {
                                    a href=(url_path("/console/sessions/", &row.id)) { (row.name.as_deref().map_or_else(|| "Untitled".to_owned(), plain_text)) }
                                    " " (activity_badge(of(&row.id)))
                                    p.meta {
                                        span { "via " (plain_text(row.door.as_deref().unwrap_or("omp"))) }
                                        span { (count_text(row.messages, "message")) ", " (count_text(row.calls, "call")) }
                                        span { (time_ago(Millis(row.last_at), ctx.now)) }
                                        @if let Some((provider, model)) = &row.model { span { (plain_text(provider)) "/" (plain_text(model)) } }
                                    }
                                }
                            }
                        }
                        @if count > rows.len() { p.note { "Showing the newest " (rows.len()) " of " (count) "." } }
                    }
                }
                @if !agents.is_empty() {
                    section #asking aria-labelledby="of-agents" {
                        h2 #of-agents { "Agents" }
                        ul.sessions { @for (id, session) in &agents { li { a href=(url_path("/console/sessions/", session)) { (plain_text(id)) } " " (activity_badge(of(session))) } } }
                    }
                }
            }
        };
        Ok(render_page_with(status, ctx, ConsoleTab::Sessions, "Sessions", None, &body))
    }

    async fn new_chat(&self, ctx: &PageContext) -> Markup {
        let workspaces = self.context.chats.list_workspaces().await;
        html! {
            details.panel.new open[false] {
                summary { "New session" }
                form.stack method="post" action="/console/sessions" {
                    input type="hidden" name="csrf" value=(ctx.caller.csrf_token());
                    input type="hidden" name="key" value=(fresh_key());
                    label for="message" { "Message" }
                    textarea #message name="message" rows="3" required {}
                    div.row {
                        div { label for="model" { "Model" } (self.model_choice("model", None)) }
                        div { label for="workspace" { "Workspace" } input #workspace name="workspace" list="workspaces" placeholder=(countersign_config::MAIN) autocomplete="off";
                            datalist #workspaces { @for folder in &workspaces { @if let Some(name) = folder.file_name() { option value=(name.to_string_lossy()) {} } } } }
                        button.primary type="submit" { "Start" }
                    }
                }
            }
        }
    }

    /// Renders a choice of model. `None` is the default one.
    pub(super) fn model_choice(&self, id: &str, current: Option<(&str, &str)>) -> Markup {
        let models = self.context.chats.models();
        let usual = models.default_model();
        let usual = usual.as_ref().map(|usual| (usual.provider.as_str(), usual.id.as_str()));
        let chosen = current.or(usual);
        html! {
            select #(id) name="model" {
                @for entry in models.entries() {
                    @let own = (entry.provider.as_str(), entry.id.as_str());
                    option value={ (entry.provider) "/" (entry.id) } selected[chosen == Some(own)] { (plain_text(&entry.name)) " (" (plain_text(&entry.provider)) ")" }
                }
            }
        }
    }
}

fn activity_badge(busy: SessionLoad) -> Markup {
    html! {
        @if busy.waits > 0 { span.badge.ask { (busy.waits) " pending" } }
        @else if busy.works { span.badge.good { "working" } }
    }
}

/// Returns the provider and id that a form names.
pub(super) fn requested_model(body: &BodyFields) -> Option<(Option<String>, String)> {
    let (provider, id) = body.text_field("model")?.split_once('/')?;
    Some((Some(provider.to_owned()), id.to_owned()))
}

pub(super) async fn open_session(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    body: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let key = keyed_request(&ctx, &body, "open");
    let new_conversation = NewConversation {
        workspace: body.text_field("workspace").map(str::to_owned),
        model: requested_model(&body),
        message: body.text_field("message").map(str::to_owned),
        key: key.clone(),
        ..NewConversation::default()
    };
    let Some(message) = body.text_field("message") else {
        let problem = (StatusCode::BAD_REQUEST, "Enter a message.".to_owned());
        return console.sessions_page(&ctx, Some(problem)).await;
    };
    let chats = &console.context.chats;
    let opened = match chats.open_session("console", new_conversation).await {
        Ok(session) => {
            let key = key.map(|key| key.part_key("message"));
            chats.prompt_once(&session, message, WhenBusy::Steer, key.as_ref()).await.map(|_| session)
        }
        Err(error) => Err(error),
    };
    match opened {
        Ok(session) => Ok(Redirect::to(&url_path("/console/sessions/", session.as_str())).into_response()),
        Err(error) => console.sessions_page(&ctx, Some(chat_error(&error))).await,
    }
}

/// Returns the key of a form, by which its repetition is detected.
pub(super) fn keyed_request(ctx: &PageContext, body: &BodyFields, what: &str) -> Option<RequestKey> {
    let key = body.text_field("key")?;
    let is_plain = key.len() <= LONGEST_KEY && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| RequestKey::new(&ctx.caller.principal, key, what, &body.0).with_digest())
}

/// Returns the status and text of an error in a conversation.
pub(super) fn chat_error(error: &ChatError) -> (StatusCode, String) {
    let status = match error {
        ChatError::Unknown => StatusCode::NOT_FOUND,
        ChatError::NotOurs => StatusCode::FORBIDDEN,
        ChatError::Busy | ChatError::KeyTaken => StatusCode::CONFLICT,
        ChatError::Invalid(_) => StatusCode::BAD_REQUEST,
        ChatError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{error}."))
}
