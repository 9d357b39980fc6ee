//! What would become of a request. Source: docs/protocol/api.md, Policy.

use std::sync::Arc;

use axum::extract::State;
use countersign_config::DEFAULT_AGENT;
use countersign_http::{reply, web::Body};
use countersign_policy_admin::trial;
use countersign_runtime::Lane;
use serde_json::json;

use super::{
    Answered, Api, Failure,
    gates::{object, only, text},
};

/// `POST /api/v1/policy/explain`: under the rules that are in force, with what people granted and denied.
pub(super) async fn explain(State(api): State<Arc<Api>>, body: Body) -> Answered {
    only(&body, &["tool", "arguments", "agent"])?;
    let tool = text(&body, "tool")?.ok_or_else(|| Failure::bad("tool is missing: the name of a tool"))?.to_owned();
    let arguments = object(&body, "arguments")?;
    let agent = text(&body, "agent")?.unwrap_or(DEFAULT_AGENT).to_owned();
    let source = api.context.handle.source(Lane::Request);
    let read = source.read(|engine| {
        let policy = engine.state().policy();
        (engine.rules().clone(), policy.constraints().clone(), policy.grants().clone())
    });
    let ((rules, constraints, grants), _) = read.await.ok_or_else(Failure::closing)?;
    let now = api.context.clock.now();
    let under = trial::InForce { rules: &rules, constraints: &constraints, grants: &grants, now };
    Ok(reply::ok(&match trial::explain_under(&under, &api.context.household, &agent, &tool, arguments) {
        Ok(explained) => explained.told(),
        Err(why) => json!({ "verdict": "refused", "why": why }),
    }))
}
