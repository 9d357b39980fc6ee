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
    audit::{AuditFile, lines},
    audit_writer,
    contract_terms::{self, ContractIds},
    dialect_state::{UnattendedState, gjc_state_mut, unattended_mut},
    workflow,
};

const NAME: &str = "negotiate_unattended";

/// Maximum depth of a declaration: its budget has members.
const DEEPEST: usize = 3;

/// Returns a declaration in which a number beyond a double's range is null: it is no finite limit.
fn finite_numbers(json: &RawJson, depth: usize) -> Value {
    if let Ok(value) = json.decode_as() {
        return value;
    }
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    if let Ok(members) = json.decode_as::<BTreeMap<String, RawJson>>() {
        return members.into_iter().map(|(name, member)| (name, finite_numbers(&member, depth))).collect();
    }
    let items = json.decode_as::<Vec<RawJson>>().unwrap_or_default();
    if items.is_empty() { Value::Null } else { items.iter().map(|item| finite_numbers(item, depth)).collect() }
}

/// Enters unattended mode, or declares once more.
pub(super) async fn negotiate_contract(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    declaration: Option<RawJson>,
) {
    let metering = session_metering(adapter).await;
    let declaration = declaration.map(|declaration| finite_numbers(&declaration, DEEPEST));
    let declaration = match UnattendedDeclaration::from_json(declaration.as_ref(), metering) {
        Ok(declaration) => declaration,
        Err(wrong) => return adapter.write_frame(&OmpResponse::typed_failure(id, NAME, &wrong)),
    };
    // A run that cannot be audited does not begin.
    let under = match open_audit(adapter, Some(&declaration.actor)).await {
        Ok(under) => under,
        Err(problem) => return adapter.write_frame(&OmpResponse::failure(id, NAME, problem)),
    };
    preamble::measure_preamble(adapter).await;
    let Some(current) = adapter.current_session() else { return };
    let terms = Box::new(contract_terms::terms_from_declaration(&declaration));
    let command = OfContract::Declare { session: current.id.clone(), terms, carried: None };
    let accepted_at = time::format_iso(adapter.store.common.clock.now());
    let accepted = DeclarationAccepted { run_id: under, declaration, accepted_at };
    let requests = current.requests.clone();
    let replied = requests.send_command(EngineCommand::Unattended(command)).await;
    if let Ok(reply) = &replied {
        adapter.catch_up(reply.position).await;
    }
    match replied.map(|reply| reply.outcome) {
        Ok(EngineReply::Unattended(ContractOutcome::Asking(_))) => {
            if let Some(unattended) = unattended_mut(adapter) {
                unattended.pending_declaration = Some((id, accepted));
            }
        }
        Ok(_) => adapter.write_frame(&OmpResponse::success(id, NAME, &accepted)),
        Err(OwnerError::Refusal(CommandError::Unattended(refusal))) => {
            return adapter.write_frame(&OmpResponse::typed_failure(id, NAME, &contract_terms::refusal_body(&refusal)));
        }
        Err(refused) => return adapter.write_frame(&OmpResponse::failure(id, NAME, refusal_message(&refused))),
    }
    workflow::enter_unattended(adapter).await;
}

async fn session_metering(adapter: &mut OmpAdapter) -> UsageMetering {
    let Some(current) = adapter.current_session() else { return UsageMetering::NoModel };
    let (session, requests, environment) =
        (current.id.clone(), current.requests.clone(), Arc::clone(&current.environment));
    let read = requests.read_state(move |engine| engine.state().session(&session)?.settings().model.clone());
    match read.await {
        Some((Some(model), _)) => match environment.resolve_model(&model) {
            Ok(chosen) if chosen.entry.tells_usage => UsageMetering::Reported,
            Ok(_) => UsageMetering::Unreported,
            Err(_) => UsageMetering::NoModel,
        },
        _ => UsageMetering::NoModel,
    }
}

/// Reports whether a command of the host is permitted. Sends the refusal to the host if not.
pub(super) async fn admit_command(adapter: &mut OmpAdapter, id: Option<&OmpRequestId>, command: &GjcCommand) -> bool {
    let name = command.name();
    let line = match command {
        // A host that declares again is judged by its new declaration.
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
    let is_admitted = match refusal_for(adapter, need).await {
        None => true,
        Some(error) => {
            adapter.write_frame(&error.into_response(id.cloned(), name));
            false
        }
    };
    let is_prompt = matches!(command, GjcCommand::Shared(Shared::Prompt { .. } | Shared::AbortAndPrompt { .. }));
    if is_admitted
        && is_prompt
        && let Some(unattended) = unattended_mut(adapter)
    {
        unattended.coming.push_back((id.cloned(), name));
    }
    is_admitted
}

/// Reports whether an unknown command may be answered as unknown: under a contract only if it covers everything else.
pub(super) async fn admit_unknown(adapter: &mut OmpAdapter, id: Option<&OmpRequestId>, name: Option<&str>) -> bool {
    let name = name.unwrap_or("undefined").to_owned();
    let need = HostCommandNeeds {
        command: name.clone(),
        scope: contract_terms::scope_of(CommandScope::Admin),
        takes_a_call: false,
        line: None,
    };
    match refusal_for(adapter, need).await {
        None => true,
        Some(error) => {
            adapter.write_frame(&error.into_response(id.cloned(), name));
            false
        }
    }
}

/// Why a command is not done.
enum AdmissionError {
    Typed(RawJson),
    Text(String),
}

impl AdmissionError {
    fn into_response(self, id: Option<OmpRequestId>, name: impl Into<std::borrow::Cow<'static, str>>) -> OmpResponse {
        match self {
            Self::Typed(error) => OmpResponse::typed_failure(id, name, &error),
            Self::Text(error) => OmpResponse::failure(id, name, error),
        }
    }
}

async fn refusal_for(adapter: &mut OmpAdapter, need: HostCommandNeeds) -> Option<AdmissionError> {
    let current = adapter.current_session()?;
    let (session, requests) = (current.id.clone(), current.requests.clone());
    let of_session = session.clone();
    let read = requests
        .read_state(move |engine| Some(engine.state().session(&of_session)?.unattended()?.declared_in().clone()));
    let under = read.await?.0?;
    audit_writer::check_audit(adapter);
    if let Some(Some(Err(problem))) = unattended_mut(adapter).map(|unattended| &unattended.audit) {
        return Some(AdmissionError::Text(problem.clone()));
    }
    let whose = ContractIds { run: under.to_string(), session: session.to_string() };
    let (name, line) = (need.command.clone(), need.line.clone());
    let command = EngineCommand::Unattended(OfContract::Admit { session, need });
    let replied = requests.send_command(command).await;
    // The decision is sent, and audited, before the command gets it.
    if let Ok(reply) = &replied {
        adapter.catch_up(reply.position).await;
    }
    match replied.map(|reply| reply.outcome) {
        Ok(EngineReply::Unattended(ContractOutcome::Lacks(lack))) => {
            Some(AdmissionError::Typed(whose.denied_error(&lack, line)))
        }
        Ok(EngineReply::Unattended(ContractOutcome::Exceeded(breach))) => {
            Some(AdmissionError::Typed(whose.exceeded_error(breach, phase::preflight(&name))))
        }
        Ok(EngineReply::Unattended(ContractOutcome::Over(breach))) => {
            Some(AdmissionError::Typed(RawJson::from_wire(&contract_terms::aborted_refusal(breach))))
        }
        Ok(_) => None,
        Err(refused) => Some(AdmissionError::Text(refusal_message(&refused))),
    }
}

/// Leaves a session: commands that wait for an approval of a declaration there are answered that there will be none.
pub(crate) fn leave_session(adapter: &mut OmpAdapter) {
    let Some(left) = unattended_mut(adapter).map(std::mem::take) else { return };
    if let Some((id, _)) = left.pending_declaration {
        let message = "the session was left before anybody agreed to the declaration".to_owned();
        let wrong = Wrong { code: RefusalCode::InvalidUnattendedDeclaration, message };
        adapter.write_frame(&OmpResponse::typed_failure(id, NAME, &wrong));
    }
}

/// Takes up a session: where it has a contract, its audit file is completed from the log.
pub(crate) async fn take_up(adapter: &mut OmpAdapter) {
    leave_session(adapter);
    let Some(current) = adapter.current_session() else { return };
    let session = current.id.clone();
    let read = current.requests.read_state(move |engine| {
        engine.state().session(&session)?.unattended().map(|contract| contract.terms().actor.clone())
    });
    let Some((Some(actor), _)) = read.await else { return };
    if let Err(problem) = open_audit(adapter, Some(&actor)).await {
        adapter.notify_host(problem, NotifyType::Error);
    }
    preamble::measure_preamble(adapter).await;
}

/// Has the budget know of tools that are others now, where there is one.
pub(crate) async fn tools_changed(adapter: &mut OmpAdapter) {
    if unattended_mut(adapter).is_some_and(|unattended| unattended.audit.is_some()) {
        preamble::measure_preamble(adapter).await;
    }
}

/// Opens the audit file and completes it from the log. It gives the name of the run.
async fn open_audit(adapter: &mut OmpAdapter, actor: Option<&str>) -> Result<String, String> {
    let Some(current) = adapter.current_session() else { return Err("the session is closed".to_owned()) };
    let (session, handle, requests) = (current.id.clone(), current.handle.clone(), current.requests.clone());
    let of_session = session.clone();
    let read = requests.read_state(move |engine| {
        engine.state().session(&of_session)?.unattended().map(|contract| contract.declared_in().to_string())
    });
    let under = read.await.and_then(|(under, _)| under).unwrap_or_else(|| session.to_string());
    let cwd = adapter.store.cwd.clone();
    let opened = async {
        let audit = AuditFile::open(&cwd, &under, session.as_str(), actor.map(str::to_owned));
        let mut audit = audit.map_err(|error| error.to_string())?;
        for note in lines::read_recorded(&handle, &session).await? {
            audit.write_note(note).map_err(|error| error.to_string())?;
        }
        Ok(audit)
    };
    let opened = opened.await;
    let problem = opened.as_ref().err().cloned();
    if let Some(unattended) = unattended_mut(adapter) {
        unattended.audit = Some(opened);
    }
    problem.map_or(Ok(under), Err)
}

/// Handles a fact about the session for its host.
pub(crate) fn handle_fact(adapter: &mut OmpAdapter, recorded: &RecordedFact) {
    match &recorded.fact.event {
        countersign_core::engine::Event::Unattended(event) => {
            write_audit(adapter, event, recorded);
            notify_host(adapter, event, recorded.meta.session.as_ref());
        }
        countersign_core::engine::Event::Run(countersign_core::run::Event::Started { .. }) => {
            if let Some(gjc) = gjc_state_mut(adapter) {
                gjc.workflow.start_run();
            }
        }
        countersign_core::engine::Event::Run(countersign_core::run::Event::Ended { .. }) => {
            if let Some(unattended) = unattended_mut(adapter) {
                unattended.prompted = None;
            }
        }
        _ => {}
    }
}

fn write_audit(adapter: &mut OmpAdapter, event: &Event, recorded: &RecordedFact) {
    let Some(session) = &recorded.meta.session else { return };
    if let (
        Event::Declared { terms, .. } | Event::Narrowed { terms, .. },
        Some(UnattendedState { audit: Some(Ok(audit)), .. }),
    ) = (event, unattended_mut(adapter))
    {
        audit.set_actor(&terms.actor);
    }
    for line in lines::notes_for_event(event, session, recorded.meta.lsn, recorded.meta.at) {
        audit_writer::write_note(adapter, line);
    }
}

fn notify_host(adapter: &mut OmpAdapter, event: &Event, session: Option<&SessionId>) {
    match event {
        Event::Widened { .. } => {
            if let Some((id, accepted)) =
                unattended_mut(adapter).and_then(|unattended| unattended.pending_declaration.take())
            {
                adapter.write_frame(&OmpResponse::success(id, NAME, &accepted));
            }
        }
        Event::Kept => {
            if let Some((id, _)) = unattended_mut(adapter).and_then(|unattended| unattended.pending_declaration.take())
            {
                let message = "nobody agreed to a declaration that widens what was negotiated".to_owned();
                let wrong = Wrong { code: RefusalCode::InvalidUnattendedDeclaration, message };
                adapter.write_frame(&OmpResponse::typed_failure(id, NAME, &wrong));
            }
        }
        Event::Breached { breach, place, gate } => {
            let breach_and_place = (*breach, place.clone());
            match gate {
                Some(_) => {
                    if let Some(unattended) = unattended_mut(adapter) {
                        unattended.breach = Some(breach_and_place);
                    }
                }
                None => fail_prompt(adapter, breach_and_place, session),
            }
        }
        Event::Extended { .. } => {
            if let Some(unattended) = unattended_mut(adapter) {
                unattended.breach = None;
            }
        }
        Event::Ended => {
            if let Some(breach_and_place) = unattended_mut(adapter).and_then(|unattended| unattended.breach.take()) {
                fail_prompt(adapter, breach_and_place, session);
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

/// Fails the prompt whose run is being ended; the end of the run reports it. A refused command is answered separately.
fn fail_prompt(adapter: &mut OmpAdapter, (breach, place): (BudgetBreach, BreachPoint), session: Option<&SessionId>) {
    let is_running = adapter.encoder.is_running();
    let Some(gjc) = gjc_state_mut(adapter) else { return };
    let run = match &gjc.unattended.audit {
        Some(Ok(audit)) => audit.run().to_owned(),
        Some(Err(_)) | None => String::new(),
    };
    let session = session.map(ToString::to_string).unwrap_or_default();
    let error = ContractIds { run, session }.exceeded_error(breach, contract_terms::phase_of(&place));
    if is_running {
        gjc.writer.set_breach(error.clone());
    }
    if let BreachPoint::Before(_) = place {
        return;
    }
    let unattended = &mut gjc.unattended;
    let begun = unattended.prompted.take();
    let is_early = begun.is_none();
    let Some((id, command)) = begun.or_else(|| unattended.coming.pop_front()) else { return };
    adapter.write_frame(&OmpResponse::typed_failure(id.clone(), command, &error));
    if let Some(unattended) = unattended_mut(adapter).filter(|_| is_early) {
        unattended.failed = Some((id, command));
    }
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gjc::unattended::{RefusalCode, UsageMetering};
    use countersign_protocol::{RawJson, gjc::unattended::UnattendedDeclaration};
    use serde_json::value::RawValue;

    use super::{DEEPEST, finite_numbers};

    #[test]
    fn a_limit_that_no_number_holds_is_an_incomplete_budget() {
        for limit in ["1e400", "-1e400"] {
            let text = format!(
                "{{\"actor\":\"a\",\"scopes\":[\"prompt\"],\"action_allowlist\":[\"command.prompt\"],\"budget\":{{\"max_tokens\":{limit},\
                 \"max_tool_calls\":1,\"max_wall_time_ms\":1,\"max_cost_usd\":1}}}}"
            );
            let json = RawJson::from(RawValue::from_string(text).unwrap());
            let refused =
                UnattendedDeclaration::from_json(Some(&finite_numbers(&json, DEEPEST)), UsageMetering::Reported)
                    .unwrap_err();
            assert_eq!(
                (refused.code, refused.message.as_str()),
                (RefusalCode::IncompleteBudget, "budget.max_tokens must be a positive finite number")
            );
        }
    }
}
