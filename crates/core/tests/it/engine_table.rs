//! The commands that are to no machine in every state of a session, and two sessions at the same time.

use countersign_core::{
    digest::Digest,
    engine::Command,
    id::{IdGenerator, PrincipalId, SessionId},
    message::StopReason,
    policy::{self, Grant, GrantAuth, GrantCoverage, GrantId, GrantReach},
    run::{self, ModelAnswer},
    session::{self, MessageQueue, Settings, WhenBusy},
    settings,
    time::Millis,
};
use serde_json::{Value, json};

use crate::{
    engine_fixture::{EngineFixture, EngineOutcome, open_rules, rules_from, sample_message},
    states::{NamedState, calling, check, compacting, idle, in_every_state, thinking},
};

const EVERY: &str = "none, idle, command, thinking, calling, gated, asked, backoff, stopping, compacting, behind";

fn grant_id() -> GrantId {
    GrantId::new(IdGenerator::new([9; 16]).next_uuid(Millis(1)))
}

fn grant() -> Grant {
    Grant {
        id: grant_id(),
        by: PrincipalId::new("ana"),
        to: PrincipalId::new("agent"),
        scope: GrantReach::Always,
        covers: GrantCoverage::Pattern("nothing(here)".to_owned()),
        label: "nothing".to_owned(),
        until: None,
        door: GrantAuth::Open,
    }
}

#[test]
fn time_that_has_not_come_changes_nothing() {
    in_every_state("tick", |stage| stage.send_command(Command::Tick), &[(EVERY, "Done")]);
}

#[test]
fn new_rules_are_recorded_once() {
    let rules = |stage: &mut EngineFixture| {
        stage.send_command(Command::UseRules(Box::new(rules_from(&["deny nothing(here)"]))))
    };
    in_every_state("other rules", rules, &[(EVERY, "Done: policy compiled")]);
    let twice = |stage: &mut EngineFixture| {
        rules(stage);
        rules(stage)
    };
    in_every_state("the same rules", twice, &[(EVERY, "Done")]);
}

#[test]
fn who_changes_rules_is_recorded_and_a_look_that_finds_nothing_new_is_not() {
    let edit = |change: Option<&'static str>, to: fn(&EngineFixture) -> Digest| {
        move |stage: &mut EngineFixture| {
            stage.send_command(Command::UseRules(Box::new(rules_from(&["deny nothing(here)"]))));
            let to = to(stage);
            stage.send_command(Command::EditRules { by: PrincipalId::new("ana"), to, change: change.map(Into::into) })
        }
    };
    let same = |stage: &EngineFixture| stage.engine.rules().digest();
    let other = |_: &EngineFixture| Digest::hash_bytes(b"other rules");
    in_every_state("a change", edit(Some("+ allow nothing(here)"), other), &[(EVERY, "Done: policy edited")]);
    in_every_state("a change of words", edit(Some("+ # why"), same), &[(EVERY, "Done: policy edited")]);
    in_every_state("a look at other rules", edit(None, other), &[(EVERY, "Done: policy edited")]);
    in_every_state("a look at the same", edit(None, same), &[(EVERY, "Idle")]);
}

#[test]
fn a_change_of_the_approval_of_a_server_is_recorded() {
    let note = |stage: &mut EngineFixture| {
        stage.send_command(Command::NoteServerApproval {
            server: "files".to_owned(),
            change: policy::ServerChange::Revoked,
            by: PrincipalId::new("ana"),
            at: Millis(7),
        })
    };
    in_every_state("a revocation", note, &[(EVERY, "Done: policy server_approval")]);
}

#[test]
fn a_setting_is_recorded_where_it_says_something_new() {
    let path =
        |text: &str| settings::SettingsPath::from_names(text.split('.').map(str::to_owned)).expect("it has names");
    let by = || PrincipalId::new("ana");
    let set = move |at: &'static str, value: Option<Value>, secret: Option<&'static str>| {
        move |stage: &mut EngineFixture| {
            let secrets = secret.iter().map(|at| (path(at), Digest::hash_bytes(at.as_bytes()))).collect();
            let set = settings::Command::Set { by: by(), path: path(at), value: value.clone(), secrets };
            stage.send_command(Command::Settings(set))
        }
    };
    let add = move |item: &'static str| {
        move |stage: &mut EngineFixture| {
            let add = settings::Command::Add { by: by(), path: path("a.l"), item: item.to_owned() };
            stage.send_command(Command::Settings(add))
        }
    };
    let twice = |first: &dyn Fn(&mut EngineFixture) -> EngineOutcome,
                 second: &dyn Fn(&mut EngineFixture) -> EngineOutcome,
                 stage: &mut EngineFixture| {
        first(stage);
        second(stage)
    };
    let one = || set("a.b", Some(json!(1)), None);
    in_every_state("a value", one(), &[(EVERY, "Done: settings set")]);
    in_every_state("the same", |stage| twice(&one(), &one(), stage), &[(EVERY, "Idle")]);
    in_every_state("out", |stage| twice(&one(), &set("a", None, None), stage), &[(EVERY, "Done: settings set")]);
    in_every_state("out of nothing", set("a", None, None), &[(EVERY, "Idle")]);
    in_every_state("a secret", set("a", Some(json!({})), Some("a.k")), &[(EVERY, "Done: settings set")]);
    let elsewhere = "refused: a secret lies elsewhere than what is set";
    in_every_state("a secret elsewhere", set("a", None, Some("b.k")), &[(EVERY, elsewhere)]);
    in_every_state("a text", add("x"), &[(EVERY, "Done: settings added")]);
    in_every_state("the same text", |stage| twice(&add("x"), &add("x"), stage), &[(EVERY, "Idle")]);
    in_every_state("another text", |stage| twice(&add("x"), &add("y"), stage), &[(EVERY, "Done: settings added")]);
    let no_list = set("a.l", Some(json!(5)), None);
    let refused = "refused: there is no list at this path";
    in_every_state("no list", |stage| twice(&no_list, &add("x"), stage), &[(EVERY, refused)]);
    let long = set("a", Some(json!("x".repeat(40_000))), None);
    in_every_state("too long", long, &[(EVERY, "refused: a setting is longer than 32768 bytes")]);
}

#[test]
fn a_grant_is_taken_over_and_taken_back_once() {
    let adopt = |stage: &mut EngineFixture| stage.send_command(Command::Adopt(vec![grant()]));
    let revoke = |stage: &mut EngineFixture| {
        let by = PrincipalId::new("ana");
        stage.send_command(Command::Revoke { grant: grant_id(), by })
    };
    let after = |first: fn(&mut EngineFixture) -> EngineOutcome, second: fn(&mut EngineFixture) -> EngineOutcome| {
        move |stage: &mut EngineFixture| {
            first(stage);
            second(stage)
        }
    };
    in_every_state("adopt", adopt, &[(EVERY, "Done: policy granted")]);
    in_every_state("adopt again", after(adopt, adopt), &[(EVERY, "Done")]);
    in_every_state("revoke", revoke, &[(EVERY, "Idle")]);
    in_every_state("revoke what was adopted", after(adopt, revoke), &[(EVERY, "Done: policy revoked")]);
}

fn other() -> SessionId {
    SessionId::new("t")
}

/// Opens another session, in which a run thinks.
fn with_another(mut stage: EngineFixture) -> EngineFixture {
    let settings = Settings { ..stage.current_session().settings().clone() };
    let open = session::Command::Open {
        cwd: "/w".to_owned(),
        name: None,
        parent: None,
        door: None,
        settings: Box::new(settings),
    };
    stage.send_command(Command::Session(other(), open));
    let prompt = session::Command::Prompt { message: sample_message(1), with: Vec::new(), when_busy: WhenBusy::Refuse };
    stage.send_command(Command::Session(other(), prompt));
    stage
}

/// Returns the current work of the other session.
fn standing(stage: &EngineFixture) -> String {
    let session = stage.engine.state().session(&other()).expect("it was opened");
    let run = session.run().and_then(|run| stage.engine.state().run(run));
    format!(
        "{:?} {} {}",
        run.map(|run| (run.phase().clone(), run.abort_state())),
        session.queued_count(),
        session.entries().len()
    )
}

#[test]
fn what_happens_in_one_session_leaves_the_other_alone() {
    let states: [NamedState; 4] = [
        ("idle", || with_another(idle())),
        ("thinking", || with_another(thinking(open_rules()))),
        ("calling", || with_another(calling(["write", "write"]))),
        ("compacting", || with_another(compacting())),
    ];
    let rows = [("idle, thinking, calling, compacting", "the same")];
    type SessionAct = (&'static str, fn(&mut EngineFixture));
    let acts: [SessionAct; 7] =
        [
            ("abort", |stage| drop(stage.abort())),
            ("prompt", |stage| drop(stage.send_prompt(WhenBusy::Steer))),
            ("queue", |stage| {
                drop(stage.session_command(session::Command::Queue {
                    queue: MessageQueue::Steering,
                    message: sample_message(1),
                }))
            }),
            ("clear", |stage| drop(stage.session_command(session::Command::Clear))),
            ("abort a compaction", |stage| drop(stage.session_command(session::Command::AbortCompaction))),
            ("an outcome", |stage| {
                let outcome = session::CompactionOutcome::Aborted;
                stage.session_command(session::Command::Compacted { epoch: 1, outcome });
            }),
            ("an end", |stage| {
                if stage.current_session().run().is_some() && !stage.calls().is_empty() {
                    stage.end_call(0);
                }
            }),
        ];
    for (case, act) in acts {
        let look = |stage: &mut EngineFixture| {
            let before = standing(stage);
            act(stage);
            if standing(stage) == before { "the same".to_owned() } else { standing(stage) }
        };
        check(case, &states, look, &rows);
    }
}

#[test]
fn an_answer_goes_to_the_run_that_it_names() {
    let mut stage = with_another(thinking(open_rules()));
    let run = stage.engine.state().session(&other()).unwrap().run().unwrap();
    let answer = ModelAnswer {
        message: sample_message(1),
        stop: StopReason::Stop,
        total_tokens: 0,
        calls: Vec::new(),
        failure: None,
        others: Vec::new(),
        spent: None,
    };
    let outcome = stage.send_command(Command::Run(run::Command::Answered { run, epoch: 1, answer: Box::new(answer) }));
    assert_eq!(outcome.0.last().unwrap(), "run ended completed");
    assert!(stage.current_session().run().is_some(), "the other run still thinks");
    assert!(standing(&stage).starts_with("None"), "{}", standing(&stage));
}
