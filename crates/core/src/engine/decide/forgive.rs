//! Deciders that take denials back: one that binds, and those after which a run asks for nothing more.

use crate::{
    decision::{Decision, Event, Fact, Refusal, Reply, View},
    digest::Digest,
    id::{PrincipalId, RunId, SessionId},
    policy, principal, run,
};

pub(super) fn denial(
    view: View<'_>,
    principal: PrincipalId,
    key: Digest,
    only: Option<SessionId>,
    by: PrincipalId,
) -> Result<Decision, Refusal> {
    is_a_persons(&by)?;
    let mut constraints = view.state.policy().constraints().iter();
    if !constraints.any(|one| one.principal == principal && one.key == key && one.session == only) {
        return Ok(Decision { facts: Vec::new(), reply: Reply::Idle });
    }
    // An agent's session has its name, and something may follow there.
    let session = only.clone().unwrap_or_else(|| SessionId::new(principal.as_str()));
    let session = view.state.session(&session).map(|session| session.id().clone());
    let fact = Fact::plain(Event::Policy(policy::Event::Lifted { principal, key, session: only, by }), session);
    Ok(Decision { facts: vec![fact], reply: Reply::Done })
}

pub(super) fn denials(view: View<'_>, id: RunId, by: PrincipalId) -> Result<Decision, Refusal> {
    is_a_persons(&by)?;
    let Some(run) = view.state.run(id).filter(|run| run.denials > 0) else {
        return Ok(Decision { facts: Vec::new(), reply: Reply::Idle });
    };
    let forgiven = run::Event::DenialsForgiven { run: id, of: None, by: Some(by) };
    let fact = Fact::plain(Event::Run(forgiven), Some(run.session().clone()));
    Ok(Decision { facts: vec![fact], reply: Reply::Done })
}

/// Whom denials are to stop may not lift them.
fn is_a_persons(by: &PrincipalId) -> Result<(), Refusal> {
    if *by == principal::agent() { Err(Refusal::OutOfPlace("an agent takes no denial back")) } else { Ok(()) }
}
