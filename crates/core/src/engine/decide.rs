//! One pure decider a command: what is asked becomes facts, or a refusal that changes nothing.

mod answer;
mod answered;
mod calls;
mod channels;
mod compaction;
mod contract;
mod forgive;
mod once;
mod peers;
mod reach;
mod recover;
mod refer;
mod renewal;
mod requests;
mod schedule;
mod session;
mod settings;
mod shown;
mod stop;

use std::sync::Arc;

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

pub(super) fn decide(
    view: DecisionView<'_>,
    command: Command,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    match command {
        Command::Recover(resume) => recover::recover(view, resume, context),
        Command::Extend => Ok(DecisionResult { facts: recover::extended(view, context.now), reply: EngineReply::Done }),
        Command::UseRules(_) | Command::UseRulesFor(..) | Command::Leave(_) | Command::Tick => {
            Err(CommandError::OutOfPlace("rules and time are taken by the engine itself"))
        }
        Command::Session(id, command) => decide_session(view, id, command, context),
        Command::Run(run::Command::Answered { run, epoch, answer }) => {
            Ok(answered::answered(view, run, epoch, *answer, context))
        }
        Command::Run(run::Command::Abort { session }) => stop::abort(view, &session),
        Command::Run(run::Command::Stop { session, run }) => stop::stop(view, &session, run),
        Command::Run(run::Command::AbortRetry { session }) => stop::abort_retry(view, &session),
        Command::Call(call::Command::Run { session, tool, arguments, signature, executor }) => {
            let wanted = calls::Own { tool, arguments, signature, executor };
            calls::run_own(view, &session, wanted, context)
        }
        Command::Call(call::Command::Act(act)) => calls::act(view, *act, context),
        Command::Call(call::Command::Request(request)) => requests::request(view, *request, context),
        Command::Call(call::Command::Received { session, calls }) => requests::received(view, &session, &calls),
        Command::Call(call::Command::Reach { call, gate, host }) => reach::reach(view, call, gate, &host, context),
        Command::Call(call::Command::Ended { call, progress }) => Ok(calls::ended(view, call, progress, context)),
        Command::Call(call::Command::Abort { session }) => stop::abort_commands(view, &session),
        Command::Peer(command) => Ok(peers::decide(view, command)),
        Command::Channel(command) => channels::decide(view, command, context),
        Command::Gate(gate::Command::Answer { gate, answer, by, key }) => {
            answer::answer(view, gate, &answer, &by, key.as_deref(), context)
        }
        Command::Gate(gate::Command::AnswerAs { gate, answer, by, reference, key }) => {
            refer::answer(view, gate, &answer, (&by, key.as_deref()), reference, context)
        }
        Command::Run(run::Command::Forgive { run, by }) => forgive::denials(view, run, by),
        Command::Lift { principal, key, session, by } => forgive::denial(view, principal, key, session, by),
        Command::Gate(gate::Command::Withdraw { gate, by }) => answer::withdraw(view, gate, by),
        Command::Gate(gate::Command::Shown { gate, surface, reference }) => {
            shown::shown(view, gate, &surface, &reference)
        }
        Command::Gate(gate::Command::Updated { gate, surface, reference }) => {
            shown::updated(view, gate, &surface, &reference)
        }
        Command::EditRules { by, to, change } => Ok(edit_rules(view, by, to, change)),
        Command::Settings(command) => settings::decide(view, command),
        Command::Unattended(unattended::Command::Declare { session, terms, carried }) => {
            contract::declare(view, &session, *terms, carried, context)
        }
        Command::Unattended(unattended::Command::Admit { session, need }) => {
            contract::admit(view, &session, need, context)
        }
        Command::Schedule(command) => schedule::decide(view, command, context),
        Command::Adopt(grants) => Ok(adopt(view, grants)),
        Command::Revoke { grant, by } => Ok(revoke(view, grant, by)),
    }
}

fn edit_rules(view: DecisionView<'_>, by: PrincipalId, to: Digest, change: Option<Arc<str>>) -> DecisionResult {
    if change.is_none() && view.state.policy().digest() == Some(to) {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    }
    let event = Event::Policy(policy::Event::Edited { by, to });
    DecisionResult { facts: vec![Fact { event, session: None, content: change }], reply: EngineReply::Done }
}

fn adopt(view: DecisionView<'_>, grants: Vec<Grant>) -> DecisionResult {
    let known = view.state.policy().grants();
    let new = grants.into_iter().filter(|grant| known.get(grant.id).is_none());
    let facts = new.map(|grant| Fact::without_content(Event::Policy(policy::Event::Granted(grant)), None)).collect();
    DecisionResult { facts, reply: EngineReply::Done }
}

fn revoke(view: DecisionView<'_>, id: GrantId, by: PrincipalId) -> DecisionResult {
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
        return session::open(view, id, SessionEvent::Opened { cwd, name, parent, door }, settings);
    }
    if let SessionCommand::Once { key, command } = command {
        return once::once(view, id, key, *command, context);
    }
    let session = find(view, &id)?;
    if let SessionCommand::Prompt { .. }
    | SessionCommand::HandOff { .. }
    | SessionCommand::Say { .. }
    | SessionCommand::Compact { .. } = command
    {
        // Nothing that needs rules or a model is begun where neither is at hand.
        view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(id.clone()))?;
    }
    match command {
        SessionCommand::Open { .. } | SessionCommand::Once { .. } => Err(CommandError::SessionExists(id)),
        SessionCommand::Import { entries, leaf } => session::import(session, entries, leaf),
        SessionCommand::Gather { part, entries } => session::gather(session, part, entries),
        SessionCommand::Replace { leaf } => session::replace(view, session, leaf),
        SessionCommand::Prompt { said, with, when_busy } => {
            session::prompt(session, said, with, when_busy, None, context)
        }
        SessionCommand::HandOff { said } => {
            let marks = run::Marks { last: true, ..run::Marks::default() };
            session::prompt(session, said, Vec::new(), WhenBusy::Refuse, Some(Box::new(marks)), context)
        }
        SessionCommand::Say { said, marks } => renewal::say(view, session, said, marks, context),
        SessionCommand::Renew { by, owed } => renewal::renew(view, session, &by, owed),
        SessionCommand::Remembered { renewed } => Ok(renewal::remembered(session, renewed)),
        SessionCommand::Trim { first_kept } => renewal::trim(session, first_kept),
        SessionCommand::Queue { queue, said } => session::queue(session, queue, said),
        SessionCommand::Steer { said } => Ok(session::steer(view, session, said)),
        SessionCommand::Clear => session::clear(session),
        SessionCommand::Set { setting, entry } => session::set(session, setting, entry, context),
        SessionCommand::SetTasks { said, open } => Ok(session::set_tasks(session, said, open, context)),
        SessionCommand::CountTasks { open } => Ok(session::count_tasks(session, open)),
        SessionCommand::Name { name } => session::name(session, &name),
        SessionCommand::Relocate { cwd } => session::relocate(session, cwd),
        SessionCommand::Move { leaf } => session::move_to(session, leaf),
        SessionCommand::Compact { instructions } => compaction::begin(session, instructions, context.now),
        SessionCommand::AbortCompaction => Ok(compaction::abort(session)),
        SessionCommand::Compacted { epoch, outcome } => Ok(compaction::ended(session, epoch, outcome, context)),
        SessionCommand::Told { number, upto } => Ok(session::told(session, number, upto)),
        SessionCommand::FileWritten { path, length, digest } => {
            Ok(session::file_written(session, path, length, digest))
        }
        SessionCommand::LeaveFor { home } => session::leave_for(session, home),
        SessionCommand::ComeFrom { home } => Ok(session::came_from(session, home)),
    }
}

fn find<'a>(view: DecisionView<'a>, id: &SessionId) -> Result<&'a Session, CommandError> {
    view.state.session(id).ok_or_else(|| CommandError::NoSession(id.clone()))
}
