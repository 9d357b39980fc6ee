//! Saves a rule: the file is changed, its rules come into force, and a pending gate is allowed if that was requested.

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

use super::{
    ConsoleState, PageContext, answers, console_card::ConsoleGate, history::PastCall, page::PageError,
    rule_form::RuleForm,
};

pub(super) async fn save_rule(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    body: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let rule_form = RuleForm::from_body(&body);
    let refused = |status, text: String| (status, format!("Nothing was saved: {text}"));
    let edit = match rule_form.parse_edit() {
        Ok(Some(edit)) => edit,
        Ok(None) => {
            let notice = refused(StatusCode::BAD_REQUEST, "the form has no rule.".to_owned());
            return console.trial_page(&ctx, rule_form, Some(notice)).await;
        }
        Err(problem) => {
            let notice = refused(StatusCode::BAD_REQUEST, problem);
            return console.trial_page(&ctx, rule_form, Some(notice)).await;
        }
    };
    let waits = if body.text_field("then") == Some("allow") { console.waiting_call(&rule_form).await? } else { None };
    if let Some((console_gate, _)) = &waits
        && console_gate.is_pending()
        && body.text_field("digest") != Some(&console_gate.digest())
    {
        let notice = refused(
            StatusCode::BAD_REQUEST,
            "the pending call has changed since this page was loaded. Review it again.".to_owned(),
        );
        return console.trial_page(&ctx, rule_form, Some(notice)).await;
    }
    let is_out = edit.comes.is_none();
    let seen = body.text_field("seen").unwrap_or_default().to_owned();
    let saved = console.context.rules_file.save_edit(edit, seen, ctx.caller.principal.clone()).await;
    match saved {
        Ok(()) => {}
        Err(SaveError::NotInForce(problem)) => {
            let text = format!("The file was saved, but its rules are not in force:\n{problem}");
            return console.policy_page(&ctx, Some((false, text))).await;
        }
        Err(error) => {
            let status = error_status(&error);
            let reason = match error {
                SaveError::Changed => {
                    "the rules file has changed since this page was loaded. The page now shows the effect on the new file."
                        .to_owned()
                }
                error => error.to_string(),
            };
            return console.trial_page(&ctx, rule_form, Some(refused(status, reason))).await;
        }
    }
    let file = console.context.rules_file.path().display();
    let mut message = match is_out {
        true => format!("Rule removed from {file}. The rules are in force."),
        false => format!("Rule saved in {file}. The rules are in force."),
    };
    if body.text_field("then") == Some("allow") && waits.is_none() {
        message.push_str("\nThe pending call is no longer in the history on which rules are tried. It is still pending: answer it in the inbox.");
    }
    if let Some((console_gate, made)) = waits {
        message.push('\n');
        message.push_str(&console.allow_waiting(&ctx, &console_gate, &made, body.text_field("key")).await?);
    }
    console.policy_page(&ctx, Some((true, message))).await
}

const fn error_status(error: &SaveError) -> StatusCode {
    match error {
        SaveError::Changed | SaveError::Draft(DraftError::There { .. }) => StatusCode::CONFLICT,
        SaveError::NotRecorded(_) | SaveError::NotInForce(_) => StatusCode::SERVICE_UNAVAILABLE,
        SaveError::Draft(DraftError::Io { .. } | DraftError::Lost) => StatusCode::INTERNAL_SERVER_ERROR,
        SaveError::Draft(DraftError::Form { .. } | DraftError::Idle(_) | DraftError::Rules(_)) => {
            StatusCode::BAD_REQUEST
        }
    }
}

impl ConsoleState {
    /// Returns the gate from which the rule was made, and its call.
    async fn waiting_call(&self, rule_form: &RuleForm) -> Result<Option<(ConsoleGate, PastCall)>, PageError> {
        let Some(made) = self.find_call(rule_form.source_id()).await? else { return Ok(None) };
        let Some(gate) = made.gate else { return Ok(None) };
        Ok(self.load_gate(gate).await?.map(|(console_gate, _)| (console_gate, made)))
    }

    /// Allows the pending gate if the rules in force now do, and returns the result.
    async fn allow_waiting(
        &self,
        ctx: &PageContext,
        console_gate: &ConsoleGate,
        made: &PastCall,
        key: Option<&str>,
    ) -> Result<String, PageError> {
        let Some(subject) = made.subject.clone().filter(|_| !console_gate.is_hosted()) else {
            return Ok("This rules file does not apply to the pending call. It is still pending.".to_owned());
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
        let verdict = self
            .context
            .handle
            .source(InboxLane::Request)
            .read_state(judge)
            .await
            .ok_or_else(PageError::gateway_closing)?
            .0;
        if !matches!(verdict, Verdict::Allow(_)) {
            return Ok(format!("The rules do not allow the pending call: {}. It is still pending.", verdict.why()));
        }
        let source = self.context.handle.source(InboxLane::Result);
        let (by, key) = (&ctx.caller.principal, key.map(str::to_owned));
        let allowed =
            decisions::answer_gate(&source, console_gate.id, GateReply::Allow(ApprovalScope::Once), by, key).await;
        Ok(match allowed {
            Ok(EngineReply::Voted { have, need }) => {
                format!("Your approval of the pending call was recorded: {have} of {need} approvals.")
            }
            Ok(_) => "The pending call was allowed.".to_owned(),
            Err(refused) => {
                format!("The pending call could not be allowed. {}", answers::answer_error(&refused, &ctx.people).1)
            }
        })
    }
}
