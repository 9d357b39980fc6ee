//! A rule is saved: the file is changed, its rules come into force, and what waits is allowed if that was asked for.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use countersign_core::{
    engine::{Engine, EngineReply},
    gate::{ApprovalScope, GateReply},
    policy::{self, PolicyLayers, Verdict},
};
use countersign_http::web::{BodyFields, HttpCaller};
use countersign_policy_admin::rules_file::{DraftError, SaveError};
use countersign_runtime::InboxLane;
use countersign_view::decisions;

use super::{Console, Look, answers, card::Asked, history::Made, page::Trouble, wanted::Wanted};

pub(super) async fn save(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<HttpCaller>,
    body: BodyFields,
) -> Result<Response, Trouble> {
    let look = console.look(caller).await?;
    let wanted = Wanted::sent(&body);
    let refused = |status, text: String| (status, format!("Nothing was saved: {text}"));
    let edit = match wanted.edit() {
        Ok(Some(edit)) => edit,
        Ok(None) => {
            let told = refused(StatusCode::BAD_REQUEST, "there is no rule.".to_owned());
            return console.trial_page(&look, wanted, Some(told)).await;
        }
        Err(problem) => {
            let told = refused(StatusCode::BAD_REQUEST, problem);
            return console.trial_page(&look, wanted, Some(told)).await;
        }
    };
    let waits = if body.text_field("then") == Some("allow") { console.waits(&wanted).await? } else { None };
    if let Some((asked, _)) = &waits
        && asked.is_pending()
        && body.text_field("digest") != Some(&asked.digest())
    {
        let told = refused(StatusCode::BAD_REQUEST, "what waits is not what was shown. Look at it again.".to_owned());
        return console.trial_page(&look, wanted, Some(told)).await;
    }
    let is_out = edit.comes.is_none();
    let seen = body.text_field("seen").unwrap_or_default().to_owned();
    let saved = console.context.rulebook.save_edit(edit, seen, look.caller.principal.clone()).await;
    match saved {
        Ok(()) => {}
        Err(SaveError::NotInForce(problem)) => {
            let text = format!("The file was saved, and its rules are not in force:\n{problem}");
            return console.policy_page(&look, Some((false, text))).await;
        }
        Err(error) => {
            let status = status(&error);
            let told = match error {
                SaveError::Changed => {
                    "the file of rules has changed since this page was made. This is what would become of it now."
                        .to_owned()
                }
                error => error.to_string(),
            };
            return console.trial_page(&look, wanted, Some(refused(status, told))).await;
        }
    }
    let file = console.context.rulebook.path().display();
    let mut told = match is_out {
        true => format!("The rule is taken out of {file}. The rules are in force."),
        false => format!("The rule is saved in {file}. The rules are in force."),
    };
    if body.text_field("then") == Some("allow") && waits.is_none() {
        told.push_str("\nWhat waits is not among the calls any more on which rules are tried, and waits on. Answer it in the inbox.");
    }
    if let Some((asked, made)) = waits {
        told.push('\n');
        told.push_str(&console.allow(&look, &asked, &made, body.text_field("key")).await?);
    }
    console.policy_page(&look, Some((true, told))).await
}

const fn status(error: &SaveError) -> StatusCode {
    match error {
        SaveError::Changed | SaveError::Draft(DraftError::There { .. }) => StatusCode::CONFLICT,
        SaveError::NotRecorded(_) | SaveError::NotInForce(_) => StatusCode::SERVICE_UNAVAILABLE,
        SaveError::Draft(DraftError::Io { .. } | DraftError::Lost) => StatusCode::INTERNAL_SERVER_ERROR,
        SaveError::Draft(DraftError::Form { .. } | DraftError::Idle(_) | DraftError::Rules(_)) => {
            StatusCode::BAD_REQUEST
        }
    }
}

impl Console {
    /// The gate from which the rule came, and its call.
    async fn waits(&self, wanted: &Wanted) -> Result<Option<(Asked, Made)>, Trouble> {
        let Some(made) = self.like(wanted.of()).await? else { return Ok(None) };
        let Some(gate) = made.gate else { return Ok(None) };
        Ok(self.gate(gate).await?.map(|(asked, _)| (asked, made)))
    }

    /// Allows what waits if the rules that are in force now do, and says what came of it.
    async fn allow(&self, look: &Look, asked: &Asked, made: &Made, key: Option<&str>) -> Result<String, Trouble> {
        let Some(subject) = made.subject.clone().filter(|_| !asked.is_hosted()) else {
            return Ok("What waits is not decided by the rules of this file. It waits on.".to_owned());
        };
        let now = self.context.clock.now();
        let judge = move |engine: &Engine| {
            let (rules, state) = (engine.rules(), engine.state().policy());
            let layers = PolicyLayers {
                compiled: &rules.compiled,
                constraints: state.constraints(),
                contract: None,
                grants: state.grants(),
                default_policy: rules.default_policy,
                path_context: &rules.path_context,
            };
            policy::evaluate(&layers, &subject, now)
        };
        let verdict =
            self.context.handle.source(InboxLane::Request).read_state(judge).await.ok_or_else(Trouble::closing)?.0;
        if !matches!(verdict, Verdict::Allow(_)) {
            return Ok(format!("What waits is not let through by it: {}. It waits on.", verdict.why()));
        }
        let source = self.context.handle.source(InboxLane::Result);
        let (by, key) = (&look.caller.principal, key.map(str::to_owned));
        let allowed = decisions::answer_gate(&source, asked.id, GateReply::Allow(ApprovalScope::Once), by, key).await;
        Ok(match allowed {
            Ok(EngineReply::Voted { have, need }) => {
                format!("What waits: your approval counts, {have} of {need} have allowed it.")
            }
            Ok(_) => "What waited is allowed.".to_owned(),
            Err(refused) => format!("What waits could not be allowed. {}", answers::told(&refused, &look.people).1),
        })
    }
}
