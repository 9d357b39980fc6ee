//! Explanation of the verdict on a request. Source: docs/protocol/api.md, Policy.

use std::sync::Arc;

use axum::extract::State;
use countersign_config::DEFAULT_AGENT;
use countersign_http::reply;
use countersign_policy_admin::trial;
use countersign_runtime::InboxLane;

use super::{
    ApiError, ApiResult, ApiState,
    body::ApiRequest,
    wire::policy::{ExplainReply, ExplainRequest, RefusedVerdict},
};

/// Handles `POST /api/v1/policy/explain`: with the rules in force, grants and denials.
pub(super) async fn explain_request(
    State(api): State<Arc<ApiState>>,
    request: ApiRequest<ExplainRequest>,
) -> ApiResult {
    let ExplainRequest { tool, arguments, agent } = request.body;
    let agent = agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let source = api.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        let policy = engine.state().policy();
        (engine.rules().clone(), policy.constraints().clone(), policy.grants().clone())
    });
    let ((rules, constraints, grants), _) = read.await.ok_or_else(ApiError::gateway_closing)?;
    let now = api.context.clock.now();
    let under = trial::InForce { rules: &rules, constraints: &constraints, grants: &grants, now };
    let arguments = arguments.unwrap_or_default();
    Ok(reply::ok(&match trial::explain_under(&under, &api.context.tool_inventory, agent, &tool, arguments) {
        Ok(explained) => ExplainReply::Decided(Box::new(explained.to_explanation())),
        Err(why) => ExplainReply::Refused { verdict: RefusedVerdict::Refused, why },
    }))
}
