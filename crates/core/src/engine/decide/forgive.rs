//! Deciders that revoke denials: one that binds, and those after which a run may request nothing more.

use crate::{
    decision::{CommandError, DecisionResult, DecisionView, EngineReply, Event, Fact},
    digest::Digest,
    id::{PrincipalId, RunId, SessionId},
    policy, principal, run,
};

pub(super) fn lift_denial(
    view: DecisionView<'_>,
    principal: PrincipalId,
    key: Digest,
    only: Option<SessionId>,
    by: PrincipalId,
) -> Result<DecisionResult, CommandError> {
    is_a_persons(&by)?;
    let mut constraints = view.state.policy().constraints().iter();
    if !constraints.any(|one| one.principal == principal && one.key == key && one.session == only) {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle });
    }
    // An agent's session has its name, and work may follow there.
    let session = only.clone().unwrap_or_else(|| SessionId::new(principal.as_str()));
    let session = view.state.session(&session).map(|session| session.id().clone());
    let fact =
        Fact::without_content(Event::Policy(policy::Event::Lifted { principal, key, session: only, by }), session);
    Ok(DecisionResult { facts: vec![fact], reply: EngineReply::Done })
}

pub(super) fn forgive_denials(
    view: DecisionView<'_>,
    id: RunId,
    by: PrincipalId,
) -> Result<DecisionResult, CommandError> {
    is_a_persons(&by)?;
    let Some(run) = view.state.run(id).filter(|run| run.denials > 0) else {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle });
    };
    let forgiven = run::Event::DenialsForgiven { run: id, of: None, by: Some(by) };
    let fact = Fact::without_content(Event::Run(forgiven), Some(run.session().clone()));
    Ok(DecisionResult { facts: vec![fact], reply: EngineReply::Done })
}

/// Rejects the agent, to which denials apply: it may not revoke them.
fn is_a_persons(by: &PrincipalId) -> Result<(), CommandError> {
    if *by == principal::agent_principal() {
        Err(CommandError::OutOfPlace("an agent takes no denial back"))
    } else {
        Ok(())
    }
}
