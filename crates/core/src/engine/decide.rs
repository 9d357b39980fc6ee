//! One pure decider a command: a command becomes facts, or a refusal that changes nothing.

mod answer;
mod answer_reference;
mod calls;
mod channels;
mod compaction;
mod contract;
mod forgive;
mod gate_surfaces;
mod keyed_command;
mod model_answer;
mod network_reach;
mod peers;
mod recover;
mod renewal;
mod requests;
mod schedule;
mod session;
mod settings;
mod stop;

use std::sync::Arc;

pub(super) use self::requests::denial_now;
use crate::{
    call,
    decision::{Command, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    digest::Digest,
    gate,
    id::{PrincipalId, SessionId},
    policy::{self, Grant, GrantId},
    run,
    session::{Command as SessionCommand, Event as SessionEvent, Session, WhenBusy},
    unattended,
};

pub(super) fn decide_command(
    view: DecisionView<'_>,
    command: Command,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    match command {
        Command::Recover(resume) => recover::recover_work(view, resume, context),
        Command::Extend => {
            Ok(DecisionResult { facts: recover::extend_deadlines(view, context.now), reply: EngineReply::Done })
        }
        Command::UseRules(_) | Command::UseRulesFor(..) | Command::Leave(_) | Command::Tick => {
            Err(CommandError::OutOfPlace("the engine itself handles commands for rules and time"))
        }
        Command::Session(id, command) => decide_session(view, id, command, context),
        Command::Run(run::Command::Answered { run, epoch, answer }) => {
            Ok(model_answer::record_answer(view, run, epoch, *answer, context))
        }
        Command::Run(run::Command::Abort { session }) => stop::abort_run(view, &session),
        Command::Run(run::Command::Stop { session, run }) => stop::stop_run(view, &session, run),
        Command::Run(run::Command::AbortRetry { session }) => stop::abort_retry(view, &session),
        Command::Call(call::Command::Run { session, tool, arguments, signature, executor }) => {
            let own_command = calls::OwnCommand { tool, arguments, signature, executor };
            calls::run_own(view, &session, own_command, context)
        }
        Command::Call(call::Command::Act(act)) => calls::start_peer_action(view, *act, context),
        Command::Call(call::Command::Request(request)) => requests::submit_request(view, *request, context),
        Command::Call(call::Command::Received { session, calls }) => requests::mark_received(view, &session, &calls),
        Command::Call(call::Command::Reach { call, gate, host }) => {
            network_reach::request_host(view, call, gate, &host, context)
        }
        Command::Call(call::Command::Ended { call, progress }) => Ok(calls::end_call(view, call, progress, context)),
        Command::Call(call::Command::Abort { session }) => stop::abort_commands(view, &session),
        Command::Peer(command) => Ok(peers::decide_peer(view, command)),
        Command::Channel(command) => channels::decide_channel(view, command, context),
        Command::Gate(gate::Command::Answer { gate, answer, by, key }) => {
            answer::answer_gate(view, gate, &answer, &by, key.as_deref(), context)
        }
        Command::Gate(gate::Command::AnswerAs { gate, answer, by, reference, key }) => {
            answer_reference::answer_as(view, gate, &answer, (&by, key.as_deref()), reference, context)
        }
        Command::Run(run::Command::Forgive { run, by }) => forgive::forgive_denials(view, run, by),
        Command::Lift { principal, key, session, by } => forgive::lift_denial(view, principal, key, session, by),
        Command::Gate(gate::Command::Withdraw { gate, by }) => answer::withdraw_gate(view, gate, by),
        Command::Gate(gate::Command::Shown { gate, surface, reference }) => {
            gate_surfaces::mark_shown(view, gate, &surface, &reference)
        }
        Command::Gate(gate::Command::Updated { gate, surface, reference }) => {
            gate_surfaces::mark_updated(view, gate, &surface, &reference)
        }
        Command::EditRules { by, to, change } => Ok(edit_rules(view, by, to, change)),
        Command::NoteServerApproval { server, change, by, at } => {
            let event = Event::Policy(policy::Event::ServerApproval { server, change, by, at });
            Ok(DecisionResult { facts: vec![Fact::without_content(event, None)], reply: EngineReply::Done })
        }
        Command::Settings(command) => settings::decide_settings(view, command),
        Command::Unattended(unattended::Command::Declare { session, terms, carried }) => {
            contract::declare_contract(view, &session, *terms, carried, context)
        }
        Command::Unattended(unattended::Command::Admit { session, need }) => {
            contract::admit_command(view, &session, need, context)
        }
        Command::Schedule(command) => schedule::decide_schedule(view, command, context),
        Command::Adopt(grants) => Ok(adopt_grants(view, grants)),
        Command::Revoke { grant, by } => Ok(revoke_grant(view, grant, by)),
    }
}

fn edit_rules(view: DecisionView<'_>, by: PrincipalId, to: Digest, change: Option<Arc<str>>) -> DecisionResult {
    if change.is_none() && view.state.policy().digest() == Some(to) {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    }
    let event = Event::Policy(policy::Event::Edited { by, to });
    DecisionResult { facts: vec![Fact { event, session: None, content: change }], reply: EngineReply::Done }
}

fn adopt_grants(view: DecisionView<'_>, grants: Vec<Grant>) -> DecisionResult {
    let known = view.state.policy().grants();
    let new = grants.into_iter().filter(|grant| known.get(grant.id).is_none());
    let facts = new.map(|grant| Fact::without_content(Event::Policy(policy::Event::Granted(grant)), None)).collect();
    DecisionResult { facts, reply: EngineReply::Done }
}

fn revoke_grant(view: DecisionView<'_>, id: GrantId, by: PrincipalId) -> DecisionResult {
    if view.state.policy().grants().get(id).is_none() {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    }
    let fact = Fact::without_content(Event::Policy(policy::Event::Revoked { id, by }), None);
    DecisionResult { facts: vec![fact], reply: EngineReply::Done }
}

fn decide_session(
    view: DecisionView<'_>,
    id: SessionId,
    command: SessionCommand,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if let SessionCommand::Open { cwd, name, parent, door, settings } = command {
        return session::open_session(view, id, SessionEvent::Opened { cwd, name, parent, door }, settings);
    }
    if let SessionCommand::Once { key, command } = command {
        return keyed_command::run_once(view, id, key, *command, context);
    }
    let session = find_session(view, &id)?;
    if let SessionCommand::Prompt { .. }
    | SessionCommand::HandOff { .. }
    | SessionCommand::Say { .. }
    | SessionCommand::AskAgain { .. }
    | SessionCommand::Compact { .. } = command
    {
        // Work that needs rules or a model does not begin while they are not loaded.
        view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(id.clone()))?;
    }
    match command {
        SessionCommand::Open { .. } | SessionCommand::Once { .. } => Err(CommandError::SessionExists(id)),
        SessionCommand::Import { entries, leaf } => session::import_entries(session, entries, leaf),
        SessionCommand::Gather { part, entries } => session::gather_entries(session, part, entries),
        SessionCommand::Replace { leaf } => session::replace_tree(view, session, leaf),
        SessionCommand::Prompt { message, with, when_busy } => {
            session::start_prompt(session, message, with, when_busy, None, context)
        }
        SessionCommand::HandOff { message } => {
            let marks = run::RunMetadata { last: true, ..run::RunMetadata::default() };
            session::start_prompt(session, message, Vec::new(), WhenBusy::Refuse, Some(Box::new(marks)), context)
        }
        SessionCommand::Say { message, marks } => renewal::submit_message(view, session, message, marks, context),
        SessionCommand::Renew { by, owed } => renewal::renew_session(view, session, &by, owed),
        SessionCommand::Remembered { renewed } => Ok(renewal::mark_remembered(session, renewed)),
        SessionCommand::Trim { first_kept } => renewal::trim_session(session, first_kept),
        SessionCommand::Queue { queue, message } => session::queue_message(session, queue, message),
        SessionCommand::Steer { message } => Ok(session::steer_run(view, session, message)),
        SessionCommand::Clear => session::clear_queues(session),
        SessionCommand::Set { setting, entry } => session::change_setting(session, setting, entry, context),
        SessionCommand::SetTasks { entry, open } => Ok(session::set_tasks(session, entry, open, context)),
        SessionCommand::CountTasks { open } => Ok(session::count_tasks(session, open)),
        SessionCommand::Name { name } => session::name_session(session, &name),
        SessionCommand::Relocate { cwd } => session::relocate_session(session, cwd),
        SessionCommand::Move { leaf } => session::move_to(session, leaf),
        SessionCommand::AskAgain { answer } => session::ask_again(session, &answer, context),
        SessionCommand::Compact { instructions } => compaction::begin_compaction(session, instructions, context.now),
        SessionCommand::AbortCompaction => Ok(compaction::abort_compaction(session)),
        SessionCommand::Compacted { epoch, outcome } => {
            Ok(compaction::end_compaction(session, epoch, outcome, context))
        }
        SessionCommand::RecordSequence { number, upto } => Ok(session::record_sequence(session, number, upto)),
        SessionCommand::FileWritten { path, length, digest } => {
            Ok(session::file_written(session, path, length, digest))
        }
        SessionCommand::LeaveFor { home } => session::leave_for(session, home),
        SessionCommand::ComeFrom { home } => Ok(session::came_from(session, home)),
    }
}

fn find_session<'a>(view: DecisionView<'a>, id: &SessionId) -> Result<&'a Session, CommandError> {
    view.state.session(id).ok_or_else(|| CommandError::NoSession(id.clone()))
}
