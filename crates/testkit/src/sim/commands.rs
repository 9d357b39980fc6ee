//! Commands of users and hosts in a simulation.

use std::time::Duration;

use countersign_core::{
    call::{self, CallProgress, Executor},
    digest::Digest,
    engine::{Command, Engine},
    gate::{self, ApprovalScope, GateReply},
    id::{EntryId, GateId, PrincipalId, SessionId},
    run,
    session::{
        self, AnswerFormat, AskTimeouts, CompactionThresholds, InterruptMode, MessageQueue, ModelRef, NoAnswerRule,
        QuestionSettings, QueueModes, RetryPolicy, SessionEntryKind, SessionSetting, Settings, TakeMode, WhenBusy,
    },
    tool::{RepeatMode, ToolEffect},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{audit::LogAudit, contracts, hosts, messages, rng::SimRng, rules};

/// Sessions of a simulation.
pub(super) const SESSIONS: [&str; 3] = ["s1", "s2", hosts::SESSION];
/// Session of an agent that has no run.
pub(super) const AGENT: &str = "agent:kitchen";

pub(super) fn open_command(id: &str) -> Command {
    let settings = Settings {
        model: Some(ModelRef {
            provider: "p".to_owned(),
            id: "m".to_owned(),
            context_window: 2_000,
            max_tokens: 100,
            price: None,
        }),
        retry: RetryPolicy { enabled: true, max: 2, ..RetryPolicy::default() },
        thresholds: CompactionThresholds {
            auto: true,
            reserve: 100,
            keep_recent: 300,
            at_tokens: None,
            at_percent: None,
        },
        approval_timeout: Duration::from_secs(300),
        clarify_timeout: Duration::from_secs(400),
        max_pending: 3,
        peer_timeout: Duration::from_secs(200),
        todo_reminders: 1,
        asking: question_settings(),
        ..Settings::default()
    };
    let command = session::Command::Open {
        cwd: "/work".to_owned(),
        name: None,
        parent: None,
        door: None,
        settings: Box::new(settings),
    };
    Command::Session(SessionId::new(id), command)
}

/// Returns settings by which plans expire soon and get their default, and executions get a reminder.
fn question_settings() -> QuestionSettings {
    let soon = Some(Duration::from_secs(60));
    let plan = AskTimeouts { within: soon, remind: None, otherwise: NoAnswerRule::Default };
    let execution = AskTimeouts { within: None, remind: soon, otherwise: NoAnswerRule::Nothing };
    QuestionSettings { answer_format: AnswerFormat::Selected, plan, execution, ..QuestionSettings::default() }
}

/// Returns any command that a sender may send.
pub(super) fn random_command(rng: &mut SimRng, engine: &Engine, audit: &LogAudit) -> Command {
    let id = SessionId::new(rng.pick(&SESSIONS));
    let gates = engine.state().pending_gates().count();
    if gates > 0 && rng.chance(35) {
        return answer_command(rng, engine, audit);
    }
    if rng.chance(15) {
        return agent_command(rng, engine);
    }
    if rng.chance(8) {
        let leaves = Command::Leave(SessionId::new(hosts::SESSION));
        return if rng.chance(25) { leaves } else { hosts::attach_command(rng) };
    }
    let to = |command| Command::Session(id.clone(), command);
    match rng.below(100) {
        0..32 => to(prompt_command(rng)),
        32..34 => to(session::Command::Steer { message: messages::user_message(rng) }),
        34..36 => to(session::Command::Once {
            // Few names and few meanings, so that both meet again.
            key: session::IdempotencyKey {
                name: format!("k{}", rng.below(16)),
                asks: Digest::hash_bytes(rng.pick(&["one", "other"]).as_bytes()),
            },
            command: Box::new(prompt_command(rng)),
        }),
        36 => to(session::Command::HandOff { message: messages::user_message(rng) }),
        37 => {
            let reference = rng.chance(80).then(|| rng.pick(&["r1", "r2", "r3"]).to_owned());
            let marks = Box::new(run::RunMetadata { reference, ..run::RunMetadata::default() });
            to(session::Command::Say { message: messages::user_message(rng), marks })
        }
        38 => to(session::Command::Renew { by: PrincipalId::new("person:ana"), owed: None }),
        39 => {
            // A trim keeps a message with its results.
            let entries = engine.state().session(&id).map(session::Session::path_entries).unwrap_or_default();
            let user_entries: Vec<_> = entries.iter().filter(|entry| entry.kind == SessionEntryKind::User).collect();
            let Some(kept) = user_entries.get(rng.index(user_entries.len() + 1)) else {
                return to(session::Command::Clear);
            };
            to(session::Command::Trim { first_kept: kept.id.clone() })
        }
        40..48 => to(session::Command::Queue {
            queue: rng.pick(&[
                MessageQueue::Steering,
                MessageQueue::FollowUp,
                MessageQueue::Steering,
                MessageQueue::FollowUp,
                MessageQueue::Prompt,
            ]),
            message: messages::user_message(rng),
        }),
        48..56 => stop_command(rng, engine, id),
        56..58 => Command::Run(run::Command::AbortRetry { session: id }),
        58..66 => answer_command(rng, engine, audit),
        66..72 => own_command(rng, id),
        72..74 => Command::Call(call::Command::Abort { session: id }),
        74..78 => to(session::Command::Compact { instructions: rng.chance(30).then(|| "briefly".into()) }),
        78..80 => to(session::Command::AbortCompaction),
        80..84 => to(set_command(rng)),
        84..86 => to(session::Command::Clear),
        86..88 => to(session::Command::Name { name: rng.pick(&["a name", " "]).to_owned() }),
        88..91 => {
            // A host moves to a message of a user: after a message with calls there would be no results.
            let entries = engine.state().session(&id).map(session::Session::entries).unwrap_or_default();
            let user_entries: Vec<_> = entries.iter().filter(|entry| entry.kind == SessionEntryKind::User).collect();
            let leaf = user_entries.get(rng.index(user_entries.len() + 1)).map(|entry| entry.id.clone());
            to(session::Command::Move { leaf })
        }
        91 => file_command(rng, engine, id),
        92..94 => Command::UseRules(Box::new(rules::rule_set(rng.below(rules::SETS)))),
        94..96 => stray_command(rng, engine, audit),
        96 => revoke_command(rng, engine),
        97..99 => contracts::random_command(rng, id),
        _ => open_command(rng.pick(&SESSIONS)),
    }
}

fn prompt_command(rng: &mut SimRng) -> session::Command {
    session::Command::Prompt {
        message: messages::user_message(rng),
        with: if rng.chance(10) { vec![(SessionEntryKind::Custom, messages::user_message(rng))] } else { Vec::new() },
        when_busy: rng.pick(&[WhenBusy::Refuse, WhenBusy::Steer, WhenBusy::FollowUp]),
    }
}

/// Stops whatever works, or the run that works or is about to and no other.
fn stop_command(rng: &mut SimRng, engine: &Engine, id: SessionId) -> Command {
    let session = engine.state().session(&id);
    let run = session.and_then(|session| session.run().or_else(|| session.awaited_run()));
    Command::Run(match run.filter(|_| rng.chance(50)) {
        Some(run) => run::Command::Stop { session: id, run },
        None => run::Command::Abort { session: id },
    })
}

/// Replaces the tree by the content of the session's file after an edit, in two steps.
fn file_command(rng: &mut SimRng, engine: &Engine, id: SessionId) -> Command {
    let entries = engine.state().session(&id).map(session::Session::entries).unwrap_or_default();
    let held = &entries[..rng.index(entries.len() + 1)];
    let command = if rng.chance(50) {
        let user_entries: Vec<_> = held.iter().filter(|entry| entry.kind == SessionEntryKind::User).collect();
        session::Command::Replace {
            leaf: user_entries.get(rng.index(user_entries.len() + 1)).map(|entry| entry.id.clone()),
        }
    } else {
        let known = held.iter().map(|entry| session::StagedEntry::Known(entry.id.clone()));
        let foreign = session::StagedEntry::Foreign(session::ImportedEntry {
            id: EntryId::new(format!("f{}", rng.below(1_000_000))),
            parent: held.last().map(|entry| entry.id.clone()),
            kind: SessionEntryKind::User,
            message: messages::user_message(rng),
            made_at: None,
        });
        let entries = known.chain(rng.chance(60).then_some(foreign)).collect();
        session::Command::Gather { part: session::FilePart::First, entries }
    };
    Command::Session(id, command)
}

/// Returns a request of an agent without a run, or the receipt of its result.
fn agent_command(rng: &mut SimRng, engine: &Engine) -> Command {
    let session = SessionId::new(AGENT);
    let state = engine.state().session(&session);
    let results =
        state.and_then(|session| Some(session.agent_requests()?.results().keys().copied().collect::<Vec<_>>()));
    if let Some(calls) = results.filter(|calls| !calls.is_empty() && rng.chance(30)) {
        return Command::Call(call::Command::Received { session, calls });
    }
    let tool = rng.pick(&["look", "write", "note", "bash"]);
    let arguments = json!({ "path": rng.pick(&["a", "b"]), "command": rng.pick(&["ls", "make", "rm -rf build"]) });
    Command::Call(call::Command::Request(Box::new(call::AgentRequest {
        session,
        principal: PrincipalId::new("agent:kitchen"),
        door: "agent-gate".into(),
        wire: rng.pick(&["1", "2", "3", "4", "5"]).into(),
        key: rng.chance(20).then(|| rng.pick(&["k1", "k2", "k3"]).to_owned()),
        tool: tool.into(),
        signatures: vec![format!("{tool}({})", arguments["path"].as_str().unwrap_or_default())],
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        named: vec!["path".to_owned()],
        undeclared: if rng.chance(20) { vec!["command".to_owned()] } else { Vec::new() },
        service: rng.chance(90).then(|| "house".into()),
        executor: call::RequestExecutor::Service,
        paths: Vec::new(),
        cwd: String::new(),
        leads_to: None,
        for_principals: Vec::new(),
        effect: ToolEffect::Changes,
        repeat: rng.pick(&[RepeatMode::Once, RepeatMode::Idempotent]),
    })))
}

fn own_command(rng: &mut SimRng, session: SessionId) -> Command {
    let command = rng.pick(&["ls", "make", "rm -rf /"]);
    let arguments = json!({ "command": command });
    Command::Call(call::Command::Run {
        session,
        tool: "bash".into(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        signature: format!("bash({command})"),
        executor: Executor::Shell,
    })
}

fn set_command(rng: &mut SimRng) -> session::Command {
    let setting = match rng.below(4) {
        0 => SessionSetting::AutoCompaction(rng.chance(80)),
        1 => SessionSetting::AutoRetry(rng.chance(80)),
        2 => SessionSetting::Thinking(Some("high".to_owned())),
        _ => SessionSetting::Modes(QueueModes {
            steering: rng.pick(&[TakeMode::One, TakeMode::All]),
            follow_up: rng.pick(&[TakeMode::One, TakeMode::All]),
            interrupt: rng.pick(&[InterruptMode::Immediate, InterruptMode::Wait]),
        }),
    };
    let entry = rng.chance(30).then(|| (SessionEntryKind::ThinkingChange, messages::user_message(rng)));
    session::Command::Set { setting, entry }
}

/// Returns an answer to any gate that ever existed, or to one that never did.
fn answer_command(rng: &mut SimRng, engine: &Engine, audit: &LogAudit) -> Command {
    let pending: Vec<GateId> = engine.state().pending_gates().map(gate::Gate::id).collect();
    let known: Vec<GateId> = audit.gate_ids().collect();
    let gate = match (pending.is_empty(), known.is_empty()) {
        (false, _) if rng.chance(75) => rng.pick(&pending),
        (_, false) if rng.chance(90) => rng.pick(&known),
        _ => GateId::new(Uuid::from_u128(7)),
    };
    if rng.chance(25) {
        return card_command(rng, gate);
    }
    let answer = match rng.below(10) {
        0..3 => GateReply::Allow(ApprovalScope::Once),
        3 => GateReply::Allow(ApprovalScope::Session),
        4 if rng.chance(50) => GateReply::Grant(gate::GrantTerms {
            scope: rng.pick(&[ApprovalScope::Session, ApprovalScope::Always]),
            pattern: Some(rng.pick(&["bash(ls*)", "write(*)"]).to_owned()),
            lasts: rng.chance(50).then_some(std::time::Duration::from_secs(300)),
        }),
        4 => GateReply::Allow(ApprovalScope::Always),
        5 | 6 => GateReply::Deny { reason: rng.chance(50).then(|| "not now".to_owned()) },
        7 if rng.chance(50) => GateReply::Decline,
        7 => random_form(rng),
        8 => GateReply::Say(rng.pick(&[&[][..], &[""], &["left", "right"]]).iter().map(ToString::to_string).collect()),
        _ => GateReply::Say(vec!["left".to_owned()]),
    };
    let by =
        PrincipalId::new(rng.pick(&["person:ana", "person:bo", "person:ana", "chat:ana", "person:cleo", "somebody"]));
    let key = rng.chance(40).then(|| rng.pick(&["k1", "k2"]).to_owned());
    Command::Gate(gate::Command::Answer { gate, answer, by, key })
}

/// Returns an answer in the form of an adapter.
fn random_form(rng: &mut SimRng) -> GateReply {
    let choices = rng.pick(&[&["approve"][..], &["request-changes"], &["request-changes", "smaller"], &["left"]]);
    let selected: Vec<String> = choices.iter().map(ToString::to_string).collect();
    let form = json!({ "selected": selected });
    let digest = Digest::hash_bytes(form.to_string().as_bytes());
    let answer = if rng.chance(20) { GateReply::Allow(ApprovalScope::Once) } else { GateReply::Say(selected) };
    GateReply::Form(Box::new(gate::AnswerForm { answer, form, digest }))
}

/// Shows a gate on a surface, or reports its end.
fn card_command(rng: &mut SimRng, gate: GateId) -> Command {
    let (surface, reference) = ("chat".to_owned(), rng.pick(&["1", "2"]).to_owned());
    Command::Gate(if rng.chance(50) {
        gate::Command::Shown { gate, surface, reference }
    } else {
        gate::Command::Updated { gate, surface, reference }
    })
}

/// Returns a result without a waiter: of another attempt, of a call that is over, of a compaction that is gone.
fn stray_command(rng: &mut SimRng, engine: &Engine, audit: &LogAudit) -> Command {
    let id = SessionId::new(rng.pick(&SESSIONS));
    let over: Vec<_> =
        audit.calls.keys().filter(|id| engine.state().call(**id).is_none_or(call::Call::is_over)).collect();
    let run = engine.state().runs().next();
    match (run, over.is_empty()) {
        (Some(run), _) if rng.chance(50) => {
            let epoch = if rng.chance(50) { run.epoch() + 1 } else { run.epoch().saturating_sub(1) };
            let answer = Box::new(messages::random_answer(rng));
            Command::Run(run::Command::Answered { run: run.id(), epoch, answer })
        }
        (_, false) if rng.chance(70) => {
            let progress = if rng.chance(50) { CallProgress::Broke } else { CallProgress::NotBegun("late".into()) };
            Command::Call(call::Command::Ended { call: *rng.pick(&over), progress })
        }
        _ => Command::Session(
            id,
            session::Command::Compacted { epoch: 1_000, outcome: session::CompactionOutcome::Aborted },
        ),
    }
}

fn revoke_command(rng: &mut SimRng, engine: &Engine) -> Command {
    let grants: Vec<_> = engine.state().policy().grants().iter().map(|grant| grant.id).collect();
    let none = countersign_core::policy::GrantId::new(Uuid::from_u128(9));
    let grant = if grants.is_empty() { none } else { rng.pick(&grants) };
    let by = PrincipalId::new("person:ana");
    let run = engine.state().runs().next().map(run::Run::id);
    let denial = engine.state().policy().constraints().iter().next();
    match (run, denial, rng.below(3)) {
        (Some(run), _, 0) => Command::Run(run::Command::Forgive { run, by }),
        (_, Some(denial), 1) => {
            Command::Lift { principal: denial.principal.clone(), key: denial.key, session: denial.session.clone(), by }
        }
        _ => Command::Revoke { grant, by },
    }
}

/// Describes a command in few words, for the report of a failure.
pub(super) fn describe_command(command: &Command) -> String {
    let text = match command {
        Command::UseRules(rules) => format!("UseRules {}", rules.digest()),
        Command::UseRulesFor(session, rules) => format!("UseRulesFor {session} {}", rules.digest_of_all()),
        Command::Run(run::Command::Answered { run, epoch, answer }) => {
            let calls: Vec<String> =
                answer.calls.iter().take(5).map(|resolved| resolved.signature.chars().take(30).collect()).collect();
            format!(
                "Answered {run} {epoch} {:?} {:?} {} {}",
                answer.stop,
                answer.failure,
                answer.calls.len(),
                Value::from(calls)
            )
        }
        Command::Session(id, session::Command::Prompt { when_busy, .. }) => format!("Prompt {id} {when_busy:?}"),
        other => format!("{other:?}"),
    };
    text.chars().take(240).collect()
}
