//! One session: what was said in it, as it comes, and saying something in it.

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
    Console, Look,
    gates::fresh_key,
    history::Verdict,
    page::{Tab, Trouble, page_with},
    sessions::{asking, model, told},
    transcript::{About, Transcript},
    words::{ago, many, one, path, plain},
};

/// How many calls of an agent are shown.
const CALLS: usize = 100;
/// How many messages that were taken back are put into the field.
const MOST_BACK: usize = 20;

/// Which part of it.
#[derive(Deserialize)]
pub(super) struct Wanted {
    /// Entries before this position.
    before: Option<u64>,
    /// What was taken back, to be written again: positions with commas between.
    #[serde(default)]
    back: String,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let back = wanted.back.split(',').filter_map(|at| at.parse().ok().map(Lsn)).take(MOST_BACK).collect();
    console.conversation(&look, &SessionId::new(id), wanted.before.map(Lsn), back, None).await
}

impl Console {
    async fn conversation(
        &self,
        look: &Look,
        id: &SessionId,
        before: Option<Lsn>,
        back: Vec<Lsn>,
        problem: Option<(StatusCode, String)>,
    ) -> Result<Response, Trouble> {
        let transcript = self.transcript(id, before).await?;
        let about = &transcript.about;
        let title = about.name.as_deref().map_or_else(|| "Untitled".to_owned(), plain);
        let at = path("/console/sessions/", id.as_str());
        let door = about.door.as_deref().unwrap_or_default();
        let can_speak = !about.is_spoken_for && matches!(door, "console" | "hermes" | "api");
        let written = if can_speak { self.said_at(&back).await?.join("\n\n") } else { String::new() };
        let body = html! {
            p.back { a href="/console/sessions" { "← Sessions" } }
            h1 { (title) }
            (self.line(about, id))
            @if let Some((_, problem)) = &problem { p.problem role="alert" { (many(problem)) } }
            @if about.is_agents { (self.requests(look, id).await?) }
            @else { (conversation(&transcript, look, &at)) }
            @if can_speak && before.is_none() { (self.speak(look, about, &at, &written)) }
            @else if !about.is_spoken_for && before.is_none() {
                p.note { "Its client speaks in this session. It is shown here, can be decided about, and stopped." }
                div.speak #speak { @if about.run.is_some() { (stop_form(look, &at)) } }
            }
            @else if !about.is_agents && before.is_none() { p.note { "Its host speaks in this session. It is shown here and can be decided about." } }
        };
        let status = problem.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
        let follows = before.is_none().then_some(id.as_str());
        Ok(page_with(status, look, Tab::Sessions, &title, follows, &body))
    }

    fn line(&self, about: &About, id: &SessionId) -> Markup {
        html! {
            p.meta #state {
                span { "through " (plain(about.door.as_deref().unwrap_or("omp"))) }
                @if !about.cwd.is_empty() { span { "in " code { (plain(&about.cwd)) } } }
                @if let Some((provider, model)) = &about.model { span { (plain(provider)) "/" (plain(model)) } }
                @if about.run.is_some() { span.badge.good { "working" } }
                a href={ "/console/record?" (serde_urlencoded::to_string([("session", id.as_str())]).unwrap_or_default()) } { "In the record" }
            }
        }
    }

    fn speak(&self, look: &Look, about: &About, at: &str, written: &str) -> Markup {
        let csrf = html! { input type="hidden" name="csrf" value=(look.caller.csrf_token()); };
        let current = about.model.as_ref().map(|(provider, id)| (provider.as_str(), id.as_str()));
        html! {
            div.speak #speak {
                form.stack method="post" action={ (at) "/say" } #say {
                    (csrf)
                    input type="hidden" name="key" value=(fresh_key());
                    label for="message" { @if about.run.is_some() { "Steer it: it reads this on its way" } @else { "Message" } }
                    textarea #message name="message" rows="3" required { "\n" (written) }
                    div.act { button.primary type="submit" { @if about.run.is_some() { "Steer" } @else { "Send" } } }
                }
                div.row {
                    @if about.run.is_some() {
                        (stop_form(look, at))
                    }
                    form.inline method="post" action={ (at) "/model" } { (csrf) label for="model" { "Model" } (self.model_choice("model", current)) button type="submit" { "Use" } }
                }
            }
        }
    }

    /// What an agent asked for lately, and what became of it.
    async fn requests(&self, look: &Look, id: &SessionId) -> Result<Markup, Trouble> {
        let past = self.history.upto_now(&self.context.handle).await.map_err(Trouble::unread)?;
        let calls: Vec<_> = past.calls().rev().filter(|made| made.session == *id).take(CALLS).collect();
        Ok(html! {
            div #transcript aria-label="Requests" role="region" {
                @if calls.is_empty() { p.empty { "It has asked for nothing yet." } }
                @for made in calls {
                    @let (class, word) = verdict(made.verdict);
                    article.said.agent #{ "c-" (made.id) } {
                        header { (ago(made.at, look.now)) }
                        pre.code { (one(&made.signature)) }
                        p.verdict {
                            span.badge.(class) { (word) }
                            @if let Some(by) = &made.by { " by " (super::words::who(&look.people, by)) }
                            @else if !made.why.is_empty() { " " span.why { (one(&made.why)) } }
                            @if let Some(end) = made.end { " " span.badge.(super::words::Tone::of_end(end).class()) { (countersign_view::record::end_text(end)) } }
                            @match (made.verdict, made.gate) {
                                (Verdict::Open, Some(gate)) => { " " a href=(path("/console/gates/", &gate.to_string())) { "Decide" } }
                                _ => { " " a.more href=(path("/console/record/", &made.id.to_string())) { "in the record" } }
                            }
                        }
                    }
                }
            }
        })
    }
}

const fn verdict(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Open => ("ask", "waits"),
        Verdict::Rule => ("good", "allowed"),
        Verdict::Grant => ("good", "allowed by a grant"),
        Verdict::Person => ("good", "allowed"),
        Verdict::RefusedByRule => ("bad", "denied"),
        Verdict::RefusedByPerson => ("bad", "denied"),
        Verdict::Undecided => ("still", "nobody decided"),
    }
}

fn stop_form(look: &Look, at: &str) -> Markup {
    html! {
        form method="post" action={ (at) "/stop" } {
            input type="hidden" name="csrf" value=(look.caller.csrf_token());
            button.danger type="submit" { "Stop" }
        }
    }
}

/// What waits to be said, and taking it back.
fn waiting(transcript: &Transcript, look: &Look, at: &str) -> Markup {
    html! {
        div #queue {
            @if !transcript.waiting.is_empty() {
                section.panel #queued aria-labelledby="queued-title" {
                    h2 #queued-title { "Waits to be said" }
                    @for text in &transcript.waiting { pre.prose { "\n" (many(text)) } }
                    @if !transcript.about.is_spoken_for {
                        form.act method="post" action={ (at) "/unsay" } {
                            input type="hidden" name="csrf" value=(look.caller.csrf_token());
                            button type="submit" { "Take it back" }
                            span.note { @if transcript.about.run.is_some() { "It is read at the next step of the run." } @else { "It is said before the next message." } }
                        }
                    }
                }
            }
        }
    }
}

fn conversation(transcript: &Transcript, look: &Look, at: &str) -> Markup {
    html! {
        @if let (true, Some(first)) = (transcript.has_more, transcript.first()) { p { a.button href={ (at) "?before=" (first) } { "Earlier" } } }
        div #transcript aria-label="Conversation" role="region" {
            @if transcript.is_empty() { p.empty { "Nothing was said yet." } }
            (transcript.shown(&look.people))
        }
        div #live aria-label="As it comes" role="region" hidden {}
        (waiting(transcript, look, at))
    }
}

/// Back to the conversation, or to it with what went wrong.
async fn back(console: &Console, form: &ConversationForm, done: Result<(), ChatError>) -> Result<Response, Trouble> {
    let ConversationForm { look, id, .. } = form;
    match done {
        Ok(()) => Ok(Redirect::to(&format!("{}#speak", path("/console/sessions/", id.as_str()))).into_response()),
        Err(error) => console.conversation(look, id, None, Vec::new(), Some(told(&error))).await,
    }
}

/// Back to the conversation, with what was taken back in the field.
async fn back_with(
    console: &Console,
    form: &ConversationForm,
    done: Result<Vec<Lsn>, ChatError>,
) -> Result<Response, Trouble> {
    match done {
        Ok(taken) if !taken.is_empty() => {
            let places = taken.iter().map(|at| at.0.to_string()).collect::<Vec<_>>().join(",");
            let at = path("/console/sessions/", form.id.as_str());
            Ok(Redirect::to(&format!("{at}?back={places}#speak")).into_response())
        }
        done => back(console, form, done.map(drop)).await,
    }
}

pub(super) async fn unsay(State(console): State<Arc<Console>>, form: ConversationForm) -> Result<Response, Trouble> {
    let taken = console.context.chats.take_back(&form.id).await;
    back_with(&console, &form, taken).await
}

pub(super) async fn say(State(console): State<Arc<Console>>, form: ConversationForm) -> Result<Response, Trouble> {
    let message = form.body.text_field("message").unwrap_or_default();
    let key = asking(&form.look, &form.body, "say");
    let said = console.context.chats.prompt_once(&form.id, message, WhenBusy::Steer, key.as_ref()).await;
    back(&console, &form, said.map(drop)).await
}

pub(super) async fn stop(State(console): State<Arc<Console>>, form: ConversationForm) -> Result<Response, Trouble> {
    let chats = &console.context.chats;
    // Whoever stops it wants nothing more of it to happen by itself: what waits is theirs to say again.
    let taken = match chats.stop_session(&form.id).await {
        Ok(_) => match chats.take_back(&form.id).await {
            // Its own host's messages are that host's.
            Err(ChatError::NotOurs) => Ok(Vec::new()),
            taken => taken,
        },
        Err(error) => Err(error),
    };
    back_with(&console, &form, taken).await
}

pub(super) async fn use_model(
    State(console): State<Arc<Console>>,
    form: ConversationForm,
) -> Result<Response, Trouble> {
    let chats = &console.context.chats;
    let found = match model(&form.body) {
        Some((provider, model)) => chats.find_model(provider.as_deref(), &model),
        None => Err(ChatError::Invalid("Choose a model".to_owned())),
    };
    let done = match found {
        Ok(model) => chats.use_model(&form.id, model).await,
        Err(error) => Err(error),
    };
    back(&console, &form, done).await
}
