//! Unattended runs: what a host declares, and what that lets its commands do.
//!
//! It decides nothing: the engine says what a contract covers and when a budget is used up. This asks it before each command of
//! the host, tells the host what came of it, and keeps the audit file. Source: docs/protocol/gjc.md, Unattended runs.

mod preamble;

use std::{collections::BTreeMap, sync::Arc};

use countersign_adapter_omp::{OmpAdapter, refusal_text::refusal_message};
use countersign_core::{
    engine::{Command as EngineCommand, CommandError, EngineReply, RecordedFact},
    id::SessionId,
    ledger::BudgetBreach,
    unattended::{BreachPoint, Command as OfContract, ContractOutcome, Event, HostCommandNeeds},
};
use countersign_protocol::{
    RawJson,
    gjc::{
        GjcCommand,
        unattended::{
            CommandScope, DeclarationAccepted, DeclarationRefusal as Wrong, RefusalCode, UnattendedDeclaration,
            UsageMetering, phase,
        },
    },
    omp::{OmpCommand as Shared, OmpRequestId, OmpResponse, ui::NotifyType},
};
use countersign_runtime::{OwnerError, RunEnvironment as _};
use countersign_view::time;
use serde_json::Value;

use super::{
    audit::{Audit, lines},
    audit_writer,
    contract_terms::{self, Of},
    dialect_state::{Unattended, state_mut, unattended_mut},
    workflow,
};

const NAME: &str = "negotiate_unattended";

/// How deep a declaration nests: its budget has members.
const DEEPEST: usize = 3;

/// A declaration in which a number beyond a double's range is null: it is no finite limit.
fn finite(json: &RawJson, depth: usize) -> Value {
    if let Ok(value) = json.decode_as() {
        return value;
    }
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    if let Ok(members) = json.decode_as::<BTreeMap<String, RawJson>>() {
        return members.into_iter().map(|(name, member)| (name, finite(&member, depth))).collect();
    }
    let items = json.decode_as::<Vec<RawJson>>().unwrap_or_default();
    if items.is_empty() { Value::Null } else { items.iter().map(|item| finite(item, depth)).collect() }
}

/// Enters unattended mode, or declares once more.
pub(super) async fn negotiate(door: &mut OmpAdapter, id: Option<OmpRequestId>, declaration: Option<RawJson>) {
    let metering = metering(door).await;
    let declaration = declaration.map(|declaration| finite(&declaration, DEEPEST));
    let declaration = match UnattendedDeclaration::from_json(declaration.as_ref(), metering) {
        Ok(declaration) => declaration,
        Err(wrong) => return door.write_frame(&OmpResponse::typed_failure(id, NAME, &wrong)),
    };
    // What cannot be audited is not begun.
    let under = match open_audit(door, Some(&declaration.actor)).await {
        Ok(under) => under,
        Err(problem) => return door.write_frame(&OmpResponse::failure(id, NAME, problem)),
    };
    preamble::measure(door).await;
    let Some(seat) = door.current_session() else { return };
    let terms = Box::new(contract_terms::terms(&declaration));
    let command = OfContract::Declare { session: seat.id.clone(), terms, carried: None };
    let accepted_at = time::iso(door.store.common.clock.now());
    let accepted = DeclarationAccepted { run_id: under, declaration, accepted_at };
    let requests = seat.requests.clone();
    let replied = requests.send_command(EngineCommand::Unattended(command)).await;
    if let Ok(reply) = &replied {
        door.catch_up(reply.position).await;
    }
    match replied.map(|reply| reply.outcome) {
        Ok(EngineReply::Unattended(ContractOutcome::Asking(_))) => {
            if let Some(unattended) = unattended_mut(door) {
                unattended.asked = Some((id, accepted));
            }
        }
        Ok(_) => door.write_frame(&OmpResponse::success(id, NAME, &accepted)),
        Err(OwnerError::Refusal(CommandError::Unattended(refusal))) => {
            return door.write_frame(&OmpResponse::typed_failure(id, NAME, &contract_terms::refused(&refusal)));
        }
        Err(refused) => return door.write_frame(&OmpResponse::failure(id, NAME, refusal_message(&refused))),
    }
    workflow::enter(door).await;
}

async fn metering(door: &mut OmpAdapter) -> UsageMetering {
    let Some(seat) = door.current_session() else { return UsageMetering::NoModel };
    let (session, requests, workshop) = (seat.id.clone(), seat.requests.clone(), Arc::clone(&seat.environment));
    let read = requests.read_state(move |engine| engine.state().session(&session)?.settings().model.clone());
    match read.await {
        Some((Some(model), _)) => match workshop.resolve_model(&model) {
            Ok(chosen) if chosen.entry.tells_usage => UsageMetering::Reported,
            Ok(_) => UsageMetering::Unreported,
            Err(_) => UsageMetering::NoModel,
        },
        _ => UsageMetering::NoModel,
    }
}

/// Whether a command of the host may be done. The host is told if not.
pub(super) async fn admit(door: &mut OmpAdapter, id: Option<&OmpRequestId>, command: &GjcCommand) -> bool {
    let name = command.name();
    let line = match command {
        // Whoever declares again is judged by what is declared.
        GjcCommand::NegotiateUnattended { .. } => return true,
        GjcCommand::Shared(Shared::Bash { command }) => Some(command.clone()),
        _ => None,
    };
    let need = HostCommandNeeds {
        command: name.to_owned(),
        scope: contract_terms::scope_of(command.required_scope()),
        takes_a_call: command.takes_a_call(),
        line,
    };
    let is_admitted = match refusal(door, need).await {
        None => true,
        Some(error) => {
            door.write_frame(&error.of(id.cloned(), name));
            false
        }
    };
    let is_prompt = matches!(command, GjcCommand::Shared(Shared::Prompt { .. } | Shared::AbortAndPrompt { .. }));
    if is_admitted
        && is_prompt
        && let Some(unattended) = unattended_mut(door)
    {
        unattended.coming.push_back((id.cloned(), name));
    }
    is_admitted
}

/// Whether a command that nobody knows may be told so: under a contract only where it covers everything else.
pub(super) async fn admit_unknown(door: &mut OmpAdapter, id: Option<&OmpRequestId>, name: Option<&str>) -> bool {
    let name = name.unwrap_or("undefined").to_owned();
    let need = HostCommandNeeds {
        command: name.clone(),
        scope: contract_terms::scope_of(CommandScope::Admin),
        takes_a_call: false,
        line: None,
    };
    match refusal(door, need).await {
        None => true,
        Some(error) => {
            door.write_frame(&error.of(id.cloned(), name));
            false
        }
    }
}

/// Why a command is not done.
enum Error {
    Typed(RawJson),
    Text(String),
}

impl Error {
    fn of(self, id: Option<OmpRequestId>, name: impl Into<std::borrow::Cow<'static, str>>) -> OmpResponse {
        match self {
            Self::Typed(error) => OmpResponse::typed_failure(id, name, &error),
            Self::Text(error) => OmpResponse::failure(id, name, error),
        }
    }
}

async fn refusal(door: &mut OmpAdapter, need: HostCommandNeeds) -> Option<Error> {
    let seat = door.current_session()?;
    let (session, requests) = (seat.id.clone(), seat.requests.clone());
    let of_session = session.clone();
    let read = requests
        .read_state(move |engine| Some(engine.state().session(&of_session)?.unattended()?.declared_in().clone()));
    let under = read.await?.0?;
    audit_writer::check(door);
    if let Some(Some(Err(problem))) = unattended_mut(door).map(|unattended| &unattended.audit) {
        return Some(Error::Text(problem.clone()));
    }
    let whose = Of { run: under.to_string(), session: session.to_string() };
    let (name, line) = (need.command.clone(), need.line.clone());
    let command = EngineCommand::Unattended(OfContract::Admit { session, need });
    let replied = requests.send_command(command).await;
    // What was decided is told, and audited, before the command hears of it.
    if let Ok(reply) = &replied {
        door.catch_up(reply.position).await;
    }
    match replied.map(|reply| reply.outcome) {
        Ok(EngineReply::Unattended(ContractOutcome::Lacks(lack))) => Some(Error::Typed(whose.denied(&lack, line))),
        Ok(EngineReply::Unattended(ContractOutcome::Exceeded(breach))) => {
            Some(Error::Typed(whose.exceeded(breach, phase::preflight(&name))))
        }
        Ok(EngineReply::Unattended(ContractOutcome::Over(breach))) => {
            Some(Error::Typed(RawJson::from_wire(&contract_terms::over(breach))))
        }
        Ok(_) => None,
        Err(refused) => Some(Error::Text(refusal_message(&refused))),
    }
}

/// Leaves a session: whoever waits for a person's word about what it declared there hears that there will be none.
pub(crate) fn leave(door: &mut OmpAdapter) {
    let Some(left) = unattended_mut(door).map(std::mem::take) else { return };
    if let Some((id, _)) = left.asked {
        let message = "the session was left before anybody agreed to the declaration".to_owned();
        let wrong = Wrong { code: RefusalCode::InvalidUnattendedDeclaration, message };
        door.write_frame(&OmpResponse::typed_failure(id, NAME, &wrong));
    }
}

/// Takes up a session: where it has a contract, its audit file is completed from the log.
pub(crate) async fn take_up(door: &mut OmpAdapter) {
    leave(door);
    let Some(seat) = door.current_session() else { return };
    let session = seat.id.clone();
    let read = seat.requests.read_state(move |engine| {
        engine.state().session(&session)?.unattended().map(|contract| contract.terms().actor.clone())
    });
    let Some((Some(actor), _)) = read.await else { return };
    if let Err(problem) = open_audit(door, Some(&actor)).await {
        door.notify_host(problem, NotifyType::Error);
    }
    preamble::measure(door).await;
}

/// Has the budget know of tools that are others now, where there is one.
pub(crate) async fn tools_changed(door: &mut OmpAdapter) {
    if unattended_mut(door).is_some_and(|unattended| unattended.audit.is_some()) {
        preamble::measure(door).await;
    }
}

/// Opens the audit file and completes it from the log. It gives the name of the run.
async fn open_audit(door: &mut OmpAdapter, actor: Option<&str>) -> Result<String, String> {
    let Some(seat) = door.current_session() else { return Err("the session is closed".to_owned()) };
    let (session, handle, requests) = (seat.id.clone(), seat.handle.clone(), seat.requests.clone());
    let of_session = session.clone();
    let read = requests.read_state(move |engine| {
        engine.state().session(&of_session)?.unattended().map(|contract| contract.declared_in().to_string())
    });
    let under = read.await.and_then(|(under, _)| under).unwrap_or_else(|| session.to_string());
    let cwd = door.store.cwd.clone();
    let opened = async {
        let audit = Audit::open(&cwd, &under, session.as_str(), actor.map(str::to_owned));
        let mut audit = audit.map_err(|error| error.to_string())?;
        for note in lines::recorded(&handle, &session).await? {
            audit.write(note).map_err(|error| error.to_string())?;
        }
        Ok(audit)
    };
    let opened = opened.await;
    let problem = opened.as_ref().err().cloned();
    if let Some(unattended) = unattended_mut(door) {
        unattended.audit = Some(opened);
    }
    problem.map_or(Ok(under), Err)
}

/// What a fact about the session comes to for its host.
pub(crate) fn heard(door: &mut OmpAdapter, recorded: &RecordedFact) {
    match &recorded.fact.event {
        countersign_core::engine::Event::Unattended(event) => {
            write_audit(door, event, recorded);
            tell(door, event, recorded.meta.session.as_ref());
        }
        countersign_core::engine::Event::Run(countersign_core::run::Event::Started { .. }) => {
            if let Some(gjc) = state_mut(door) {
                gjc.workflow.begun();
            }
        }
        countersign_core::engine::Event::Run(countersign_core::run::Event::Ended { .. }) => {
            if let Some(unattended) = unattended_mut(door) {
                unattended.prompted = None;
            }
        }
        _ => {}
    }
}

fn write_audit(door: &mut OmpAdapter, event: &Event, recorded: &RecordedFact) {
    let Some(session) = &recorded.meta.session else { return };
    if let (
        Event::Declared { terms, .. } | Event::Narrowed { terms, .. },
        Some(Unattended { audit: Some(Ok(audit)), .. }),
    ) = (event, unattended_mut(door))
    {
        audit.is_of(&terms.actor);
    }
    for line in lines::of(event, session, recorded.meta.lsn, recorded.meta.at) {
        audit_writer::note(door, line);
    }
}

fn tell(door: &mut OmpAdapter, event: &Event, session: Option<&SessionId>) {
    match event {
        Event::Widened { .. } => {
            if let Some((id, accepted)) = unattended_mut(door).and_then(|unattended| unattended.asked.take()) {
                door.write_frame(&OmpResponse::success(id, NAME, &accepted));
            }
        }
        Event::Kept => {
            if let Some((id, _)) = unattended_mut(door).and_then(|unattended| unattended.asked.take()) {
                let message = "nobody agreed to a declaration that widens what was negotiated".to_owned();
                let wrong = Wrong { code: RefusalCode::InvalidUnattendedDeclaration, message };
                door.write_frame(&OmpResponse::typed_failure(id, NAME, &wrong));
            }
        }
        Event::Breached { breach, place, gate } => {
            let told = (*breach, place.clone());
            match gate {
                Some(_) => {
                    if let Some(unattended) = unattended_mut(door) {
                        unattended.breach = Some(told);
                    }
                }
                None => ended(door, told, session),
            }
        }
        Event::Extended { .. } => {
            if let Some(unattended) = unattended_mut(door) {
                unattended.breach = None;
            }
        }
        Event::Ended => {
            if let Some(told) = unattended_mut(door).and_then(|unattended| unattended.breach.take()) {
                ended(door, told, session);
            }
        }
        Event::Declared { .. }
        | Event::Narrowed { .. }
        | Event::Proposed { .. }
        | Event::Counted { .. }
        | Event::Denied { .. }
        | Event::Settled => {}
    }
}

/// The prompt whose run is being ended has failed, and the end of the run says so. A command that was refused is told so by itself.
fn ended(door: &mut OmpAdapter, (breach, place): (BudgetBreach, BreachPoint), session: Option<&SessionId>) {
    let is_running = door.encoder.is_running();
    let Some(gjc) = state_mut(door) else { return };
    let run = match &gjc.unattended.audit {
        Some(Ok(audit)) => audit.run().to_owned(),
        Some(Err(_)) | None => String::new(),
    };
    let session = session.map(ToString::to_string).unwrap_or_default();
    let error = Of { run, session }.exceeded(breach, contract_terms::phase_of(&place));
    if is_running {
        gjc.voice.breached(error.clone());
    }
    if let BreachPoint::Before(_) = place {
        return;
    }
    let unattended = &mut gjc.unattended;
    let begun = unattended.prompted.take();
    let is_early = begun.is_none();
    let Some((id, command)) = begun.or_else(|| unattended.coming.pop_front()) else { return };
    door.write_frame(&OmpResponse::typed_failure(id.clone(), command, &error));
    if let Some(unattended) = unattended_mut(door).filter(|_| is_early) {
        unattended.failed = Some((id, command));
    }
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gjc::unattended::{RefusalCode, UsageMetering};
    use countersign_protocol::{RawJson, gjc::unattended::UnattendedDeclaration};
    use serde_json::value::RawValue;

    use super::{DEEPEST, finite};

    #[test]
    fn a_limit_that_no_number_holds_is_an_incomplete_budget() {
        for limit in ["1e400", "-1e400"] {
            let text = format!(
                "{{\"actor\":\"a\",\"scopes\":[\"prompt\"],\"action_allowlist\":[\"command.prompt\"],\"budget\":{{\"max_tokens\":{limit},\
                 \"max_tool_calls\":1,\"max_wall_time_ms\":1,\"max_cost_usd\":1}}}}"
            );
            let json = RawJson::from(RawValue::from_string(text).unwrap());
            let refused =
                UnattendedDeclaration::from_json(Some(&finite(&json, DEEPEST)), UsageMetering::Reported).unwrap_err();
            assert_eq!(
                (refused.code, refused.message.as_str()),
                (RefusalCode::IncompleteBudget, "budget.max_tokens must be a positive finite number")
            );
        }
    }
}
