//! Long waits that a provider asks for, and the answers of people about them.

use countersign_core::{
    engine::{Command, CommandError, EngineReply, ResumeMode},
    gate::{self, AnswerError, Fallback, Gate, GateContent, GateReply, GateResolution, Kind},
    id::{GateId, PrincipalId},
    message::StopReason,
    run::{self, ProviderFailure, RunPhase},
    session::{self, ModelRef, SessionSetting, WhenBusy},
    time::Millis,
};

use crate::engine_fixture::{EngineFixture, EngineOutcome, open_rules, sample_message, seconds, session_id};

const NOT_NOW: ProviderFailure = ProviderFailure { retryable: true, overflow: false, after: None };
const AGAIN: [&str; 3] = ["run resumed", "run turn_opened", "run asked"];

fn model(id: &str) -> ModelRef {
    ModelRef { provider: "q".to_owned(), id: id.to_owned(), context_window: 1_000, max_tokens: 10, price: None }
}

/// Fails a run with a provider that asks to wait for this many seconds.
fn fails(stage: &mut EngineFixture, after: u64) -> EngineOutcome {
    let (run, epoch) =
        (stage.current_run(), stage.engine.state().run(stage.current_run()).expect("the stage has it").epoch());
    let answer = run::ModelAnswer {
        message: sample_message(1),
        stop: StopReason::Error,
        total_tokens: 0,
        calls: Vec::new(),
        failure: Some(ProviderFailure { after: Some(seconds(after)), ..NOT_NOW }),
        others: vec![model("one"), model("two")],
        spent: None,
    };
    stage.answer_run(run, epoch, answer)
}

fn working() -> EngineFixture {
    let mut stage = EngineFixture::new(open_rules());
    stage.send_prompt(WhenBusy::Refuse);
    stage
}

fn waiting(after: u64) -> EngineFixture {
    let mut stage = working();
    let facts = fails(&mut stage, after).0;
    assert_eq!(facts[facts.len() - 2..], [format!("run backed_off 1 {after} s"), "gate opened question []".to_owned()]);
    stage
}

fn shown(stage: &EngineFixture) -> (String, Vec<String>) {
    match &**stage.engine.admitted().gate_content(stage.oldest_gate()).expect("the stage has it") {
        GateContent::Question { question, choices, .. } => {
            (question.clone(), choices.iter().map(|choice| choice.label.clone()).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn say(stage: &mut EngineFixture, label: &str) -> EngineOutcome {
    stage.answer_gate(stage.oldest_gate(), GateReply::Say(vec![label.to_owned()]), "ann", None)
}

/// The end of the wait, on the clock of the fixture.
const END: &str = "Wait until 00:15 UTC";

#[test]
fn a_long_wait_is_a_question_with_its_end_the_other_models_and_stop() {
    let stage = waiting(900);
    let (question, choices) = shown(&stage);
    assert_eq!(question, "p/m cannot be asked again before 00:15 UTC. Without an answer it is asked again then.");
    assert_eq!(choices, [END, "Use q/one", "Use q/two", "Stop"]);
    let gate = stage.first_gate().unwrap();
    let seen = (gate.kind(), gate.deadline(), gate.fallback(), gate.run(), gate.call(), gate.number());
    let run = Some(stage.current_run());
    assert_eq!(seen, (Kind::Question, Some(Millis(901_000)), Fallback::Choice(0), run, None, 1));
}

#[test]
fn each_answer_does_what_it_says() {
    let switched = ["session set", "session entry model_change"];
    for (label, follows) in [
        (END, &[][..]),
        ("Use q/two", &[switched[0], switched[1], AGAIN[0], AGAIN[1], AGAIN[2]]),
        ("Stop", &["run ended failed"]),
    ] {
        let mut stage = waiting(900);
        let want: Vec<&str> = ["gate resolved answered"].iter().chain(follows).copied().collect();
        assert_eq!(say(&mut stage, label).0, want, "{label}");
    }
    let mut stage = waiting(900);
    say(&mut stage, "Use q/two");
    assert_eq!(stage.current_session().settings().model, Some(model("two")));
    // A run that has a model of its own gets the other one too.
    let mut stage = EngineFixture::new(open_rules());
    let marks = run::RunMetadata { model: Some(model("own")), ..run::RunMetadata::default() };
    stage.session_command(session::Command::Say { message: sample_message(1), marks: Box::new(marks) });
    fails(&mut stage, 900);
    let facts = say(&mut stage, "Use q/two").0;
    assert!(facts.ends_with(&["run marked"].iter().chain(&AGAIN).map(|fact| (*fact).to_owned()).collect::<Vec<_>>()));
}

#[test]
fn without_an_answer_it_is_as_without_the_question() {
    for (case, answer) in [("nobody answers", None), ("whoever is asked declines", Some(GateReply::Decline))] {
        let mut stage = waiting(900);
        if let Some(answer) = answer.clone() {
            assert_eq!(
                stage.answer_gate(stage.oldest_gate(), answer, "ann", None).0,
                ["gate resolved declined"],
                "{case}"
            );
        }
        stage.now = stage.engine.state().next_deadline().unwrap();
        assert_eq!(stage.now, Millis(901_000), "{case}");
        let facts = stage.send_command(Command::Tick).0;
        assert!(facts.ends_with(&AGAIN.map(str::to_owned)), "{case}: {facts:?}");
        // The wait that is too long ends the run, at the configured maximum.
        let mut stage = waiting(86_400);
        let (question, _) = shown(&stage);
        let want =
            "p/m cannot be asked again before 1970-01-02 00:00 UTC. Without an answer by 00:30 UTC the run ends.";
        assert_eq!(question, want);
        let facts = match answer {
            Some(answer) => stage.answer_gate(stage.oldest_gate(), answer, "ann", None).0,
            None => {
                stage.now = stage.engine.state().next_deadline().unwrap();
                assert_eq!(stage.now, Millis(1_801_000));
                stage.send_command(Command::Tick).0
            }
        };
        assert_eq!(facts.last().unwrap(), "run ended failed", "{case}");
    }
    // With this answer the run waits for all of it.
    let mut stage = waiting(86_400);
    assert_eq!(say(&mut stage, "Wait until 1970-01-02 00:00 UTC").0, ["gate resolved answered"]);
    assert_eq!(stage.engine.state().next_deadline(), Some(Millis(86_401_000)));
}

#[test]
fn a_short_wait_or_a_missing_approver_opens_no_question() {
    let asks = |stage: &mut EngineFixture, after| {
        fails(stage, after);
        stage.first_gate().is_some()
    };
    assert!(asks(&mut working(), 180) && !asks(&mut working(), 179));
    let set = |change: fn(&mut session::Settings)| {
        let mut stage = working();
        let mut settings = stage.current_session().settings().clone();
        change(&mut settings);
        stage.change_setting(SessionSetting::All(Box::new(settings)));
        stage
    };
    assert!(!asks(&mut set(|settings| settings.asking.nobody = Some("nobody is there".to_owned())), 900));
    assert!(!asks(&mut set(|settings| settings.retry.enabled = false), 900));
    assert!(!asks(&mut set(|settings| settings.retry.max = 0), 900));
    assert!(!asks(&mut set(|settings| settings.retry.ask_after = seconds(901)), 900));
    assert!(asks(&mut set(|settings| settings.retry.ask_after = seconds(60)), 60));
    assert!(asks(&mut set(|settings| settings.retry.longest = seconds(600)), 601));
    let bounded = |settings: &mut session::Settings| {
        settings.retry.longest = seconds(600);
        settings.retry.ask_beyond = false;
    };
    assert!(asks(&mut set(bounded), 600) && !asks(&mut set(bounded), 601));
}

#[test]
fn the_question_goes_with_its_wait() {
    let withdrawn = "gate resolved withdrawn";
    for (case, command, want) in [
        ("abort", Command::Run(run::Command::Abort { session: session_id() }), vec![withdrawn, "run ended aborted"]),
        (
            "abort_retry",
            Command::Run(run::Command::AbortRetry { session: session_id() }),
            vec![withdrawn, "run ended retry_cancelled"],
        ),
        (
            "set_model",
            Command::Session(
                session_id(),
                session::Command::Set { setting: SessionSetting::Model(model("x")), entry: None },
            ),
            vec!["session set", withdrawn, AGAIN[0], AGAIN[1], AGAIN[2]],
        ),
    ] {
        let mut stage = waiting(900);
        assert_eq!(stage.send_command(command).0, want, "{case}");
        assert_eq!(stage.first_gate(), None, "{case}");
    }
    // Without its own end, a withdrawal by another program is no answer.
    let mut stage = waiting(900);
    let withdraw = gate::Command::Withdraw { gate: stage.oldest_gate(), by: PrincipalId::new("host") };
    assert_eq!(stage.send_command(Command::Gate(withdraw)).0, [withdrawn]);
    assert!(matches!(
        stage.engine.state().run(stage.current_run()).expect("the stage has it").phase(),
        RunPhase::Backoff { .. }
    ));
}

#[test]
fn only_its_choices_answer_it() {
    let mut stage = waiting(900);
    let gate = stage.oldest_gate();
    for labels in [vec!["no"], vec!["use q/"], vec!["0"], vec!["5"], vec!["Stop", "now"], vec!["Stop", "Stop"]] {
        let answer = GateReply::Say(labels.into_iter().map(str::to_owned).collect());
        let refused = stage.answer_gate(gate, answer, "ann", None).1.unwrap_err();
        assert!(matches!(refused, CommandError::Answer(AnswerError::NotOffered { .. })), "{refused}");
    }
    for label in ["Stop", "stop", " 4 "] {
        let outcome = say(&mut stage.clone(), label);
        assert_eq!(outcome.0.last().unwrap(), "run ended failed", "{label}");
        assert_eq!(outcome.1.unwrap(), EngineReply::Resolved(GateResolution::Answered), "{label}");
    }
    say(&mut stage, "use q/tw");
    assert_eq!(stage.current_session().settings().model, Some(model("two")));
}

/// Executes the next step of the model or a person. False once there is nothing left.
fn goes_on(stage: &mut EngineFixture, label: &str) -> bool {
    let Some(run) = stage.current_session().run() else { return false };
    if stage.first_gate().is_some() {
        say(stage, label);
        return true;
    }
    match stage.engine.state().run(run).expect("the stage has it").phase() {
        RunPhase::Backoff { until } => {
            stage.now = *until;
            stage.send_command(Command::Tick);
        }
        _ if stage.resolutions().is_empty() => drop(fails(stage, 900)),
        _ => drop(stage.answer(StopReason::Stop, Vec::new(), None)),
    }
    true
}

#[test]
fn a_death_behind_any_batch_asks_once_and_does_what_was_answered() {
    for (label, want) in [(END, "m"), ("Use q/one", "one"), ("Stop", "m")] {
        let mut whole = working();
        let opened_at = whole.batches();
        while goes_on(&mut whole, label) {}
        for resume in [ResumeMode::Go, ResumeMode::Wait] {
            for dies_after in opened_at + 1..=whole.batches() {
                let case = format!("{label}, {resume:?}, behind batch {dies_after}");
                let mut stage = whole.clone();
                let gates: Vec<Gate> = whole.engine.state().all_gates().cloned().collect();
                stage.die_after(dies_after, open_rules(), resume);
                while goes_on(&mut stage, label) {}
                let resolved: Vec<(GateId, usize)> = gates.iter().map(|gate| (gate.id(), 1)).collect();
                assert_eq!(stage.resolutions(), resolved, "{case}");
                assert_eq!(stage.current_session().settings().model.as_ref().unwrap().id, want, "{case}");
                let end = if label == "Stop" { "run ended failed" } else { "run ended completed" };
                assert_eq!(stage.run_ends(), [end], "{case}");
            }
        }
    }
}

#[test]
fn the_answer_about_a_wait_is_there_for_the_next_process() {
    for label in [END, "Use q/one", "Stop"] {
        let mut stage = waiting(900);
        stage.restart(open_rules(), ResumeMode::Wait);
        assert!(stage.first_gate().is_some(), "{label}");
        say(&mut stage, label);
        // The answer of a gate is kept as long as its wait, for any duration.
        stage.now = stage.now + seconds(800);
        stage.engine.evict_idle(stage.now, None);
        stage.restart(open_rules(), ResumeMode::Wait);
        let phase = stage
            .current_session()
            .run()
            .map(|run| stage.engine.state().run(run).expect("the stage has it").phase().clone());
        match label {
            END => assert_eq!(phase, Some(RunPhase::Backoff { until: Millis(901_000) })),
            "Stop" => assert_eq!(phase, None),
            _ => assert!(matches!(phase, Some(RunPhase::Thinking { .. })), "{phase:?}"),
        }
    }
}

#[test]
fn a_death_behind_any_batch_of_a_wait_without_a_question_makes_each_attempt_once() {
    let attempts = |stage: &EngineFixture| stage.count_of("run asked");
    let goes_on = |stage: &mut EngineFixture| {
        let Some(run) = stage.current_session().run() else { return false };
        match stage.engine.state().run(run).expect("the stage has it").phase() {
            RunPhase::Backoff { until } => {
                stage.now = *until;
                stage.send_command(Command::Tick);
            }
            _ if attempts(stage) == 1 => drop(fails(stage, 100)),
            _ => drop(stage.answer(StopReason::Stop, Vec::new(), None)),
        }
        true
    };
    let mut whole = working();
    let opened_at = whole.batches();
    let mut died_at = Vec::new();
    while goes_on(&mut whole) {
        died_at.push(whole.now);
    }
    assert_eq!(died_at, [1_000, 101_000, 101_000].map(Millis), "it fails, it is asked again, it answers");
    for (dies_after, resume, want) in [
        (opened_at + 1, ResumeMode::Go, (2, "run ended completed")),
        (opened_at + 1, ResumeMode::Wait, (2, "run ended completed")),
        // The next attempt is in flight.
        (opened_at + 2, ResumeMode::Go, (3, "run ended completed")),
        (opened_at + 2, ResumeMode::Wait, (2, "run ended interrupted")),
        (opened_at + 3, ResumeMode::Wait, (2, "run ended completed")),
    ] {
        for later in [0, 3_600] {
            let case = format!("{resume:?}, behind batch {dies_after}, {later} s later");
            let mut stage = whole.clone();
            stage.now = died_at[dies_after - opened_at - 1] + seconds(later);
            stage.die_after(dies_after, open_rules(), resume);
            while goes_on(&mut stage) {}
            assert_eq!((attempts(&stage), stage.run_ends()), (want.0, vec![want.1.to_owned()]), "{case}");
        }
    }
}
