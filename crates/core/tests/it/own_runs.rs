//! Messages with runs of their own, metadata of a run, and conversations that restart.

use countersign_core::{
    engine::{Command, CommandError, Engine, Event, ResumeMode},
    gate::{self, ApprovalScope, GateReply},
    id::{EntryId, Lsn, PrincipalId},
    message::StopReason,
    run::{self, ProviderFailure, RunMetadata},
    session::{
        self, Command as InSession, CompactionTiming, ModelRef, SessionEntryKind, SessionSetting, Settings, WhenBusy,
    },
};

use crate::{
    channels,
    engine_fixture::{EngineFixture, asking_rules, open_rules, rules_from, sample_message, session_id, tool_call},
    states::{idle, thinking},
};

fn marks(reference: &str) -> Box<RunMetadata> {
    Box::new(RunMetadata { reference: Some(reference.to_owned()), ..RunMetadata::default() })
}

fn say(stage: &mut EngineFixture, reference: &str) -> String {
    stage.session_command(InSession::Say { message: sample_message(1), marks: marks(reference) }).table_cell()
}

fn called(stage: &EngineFixture) -> Option<String> {
    let run = stage.engine.state().run(stage.current_run())?;
    run.run_metadata().reference.clone()
}

fn renew(stage: &mut EngineFixture) -> String {
    stage.session_command(InSession::Renew { by: PrincipalId::new("ana"), owed: None }).table_cell()
}

#[test]
fn each_message_gets_a_run_of_its_own_in_the_order_in_which_they_came() {
    let mut stage = idle();
    assert_eq!(
        say(&mut stage, "r1"),
        "Started: run started prompt, run marked, run turn_opened, session entry user, run asked"
    );
    for reference in ["r2", "r3"] {
        assert_eq!(say(&mut stage, reference), "Queued: session queued user next", "{reference}");
    }
    for reference in ["r1", "r2", "r3"] {
        assert_eq!(called(&stage).as_deref(), Some(reference));
        stage.answer(StopReason::Stop, Vec::new(), None);
    }
    assert!(stage.current_session().is_at_rest() && stage.current_session().queued_count() == 0);
}

#[test]
fn what_waits_for_its_run_gets_it_after_a_stop_and_after_a_restart() {
    let mut stage = idle();
    for reference in ["r1", "r2", "r3"] {
        say(&mut stage, reference);
    }
    stage.abort();
    stage.answer(StopReason::Aborted, Vec::new(), None);
    assert_eq!(called(&stage).as_deref(), Some("r2"));
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(called(&stage).as_deref(), Some("r2"));
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(called(&stage).as_deref(), Some("r3"));
}

#[test]
fn a_message_waits_for_a_run_of_another_adapter() {
    let mut stage = thinking(open_rules());
    say(&mut stage, "r1");
    assert_eq!(called(&stage), None);
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(called(&stage).as_deref(), Some("r1"));
    let refused = stage.send_prompt(WhenBusy::Refuse).1;
    assert!(matches!(refused, Err(CommandError::Prompt(session::PromptError::Busy(_)))), "{refused:?}");
}

#[test]
fn what_a_message_says_of_its_run_counts_for_that_run_alone() {
    let mut stage = idle();
    let model =
        ModelRef { provider: "p".to_owned(), id: "other".to_owned(), context_window: 9, max_tokens: 9, price: None };
    let own = RunMetadata { model: Some(model), thinking: Some("high".to_owned()), ..RunMetadata::default() };
    stage.session_command(InSession::Say { message: sample_message(1), marks: Box::new(own) });
    let settings = |stage: &EngineFixture| {
        let settings = stage
            .engine
            .state()
            .run(stage.current_run())
            .unwrap()
            .effective_settings(stage.current_session().settings());
        (settings.model.unwrap().id, settings.thinking)
    };
    assert_eq!(settings(&stage), ("other".to_owned(), Some("high".to_owned())));
    say(&mut stage, "r2");
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(settings(&stage), ("m".to_owned(), None));
}

#[test]
fn a_run_that_asks_again_behind_a_summary_is_what_the_one_before_was() {
    let mut stage = thinking(open_rules());
    stage.answer(StopReason::Stop, Vec::new(), None);
    let marks = RunMetadata {
        origin: Some(Box::new(channels::origin("m1"))),
        thinking: Some("high".to_owned()),
        ..*marks("r1")
    };
    stage.session_command(InSession::Say { message: sample_message(60), marks: Box::new(marks.clone()) });
    let facts = stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None }).0;
    assert_eq!(facts.last().unwrap(), "session compaction_started again");
    // Also where another process makes the summary.
    stage.restart(open_rules(), ResumeMode::Go);
    let epoch = stage.current_session().active_compaction().unwrap().epoch;
    stage.session_command(InSession::Compacted {
        epoch,
        outcome: session::CompactionOutcome::Done { summary: sample_message(1), spent: None },
    });
    assert_eq!(stage.engine.state().run(stage.current_run()).unwrap().run_metadata(), &marks);
}

#[test]
fn an_answer_that_counts_renames_the_run_of_its_gate() {
    let mut stage = EngineFixture::new(asking_rules());
    say(&mut stage, "r1");
    stage.request_calls([tool_call("write", "/w/a")]);
    let gate = stage.oldest_gate();
    let answer = |answer: GateReply, reference: &str| {
        let by = PrincipalId::new("ana");
        Command::Gate(gate::Command::AnswerAs { gate, answer, by, reference: reference.to_owned(), key: None })
    };
    let refused = stage.send_command(answer(GateReply::Say(vec!["maybe".to_owned()]), "r2"));
    assert!(matches!(refused.1, Err(CommandError::Answer(_))), "{refused:?}");
    assert_eq!(called(&stage).as_deref(), Some("r1"), "an answer that does not count changes no name");
    let allowed = stage.send_command(answer(GateReply::Allow(ApprovalScope::Once), "r2")).table_cell();
    assert!(allowed.contains("run marked, gate resolved"), "{allowed}");
    assert_eq!(called(&stage).as_deref(), Some("r2"));
    assert!(matches!(
        stage.send_command(answer(GateReply::Allow(ApprovalScope::Once), "r3")).1,
        Err(CommandError::Answer(_))
    ));
    assert_eq!(called(&stage).as_deref(), Some("r2"));
}

#[test]
fn a_conversation_restarts_only_at_rest_and_drops_its_grants() {
    let mut stage = EngineFixture::new(asking_rules());
    say(&mut stage, "r1");
    say(&mut stage, "r2");
    assert_eq!(renew(&mut stage), "refused: s is busy");
    stage.request_calls([tool_call("write", "/w/a")]);
    let gate = stage.oldest_gate();
    stage.answer_gate(gate, GateReply::Allow(ApprovalScope::Session), "ana", None).1.unwrap();
    stage.end_call(0);
    stage.session_command(InSession::Clear);
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(renew(&mut stage), "Done: policy revoked, session renewed");
    let here = stage.current_session();
    assert_eq!((here.entries().len(), here.leaf(), here.queued_count(), here.renewal_count()), (0, None, 0, 1));
    assert_eq!(here.renewed_at(), Some(stage.now));
    say(&mut stage, "r3");
    stage.request_calls([tool_call("write", "/w/a")]);
    assert!(stage.engine.state().pending_gates().next().is_some(), "it is asked about again");
    stage.restart(asking_rules(), ResumeMode::Go);
    assert_eq!(stage.current_session().renewal_count(), 1);
}

#[test]
fn trimming_removes_messages_before_an_entry_and_none_of_a_run() {
    let mut stage = idle();
    let assistant = |stop| SessionEntryKind::Assistant { stop, total_tokens: 0 };
    stage.import([
        ("a", SessionEntryKind::User, 1),
        ("b", assistant(StopReason::ToolUse), 1),
        ("c", SessionEntryKind::ToolResult { prunable: false }, 1),
        ("d", assistant(StopReason::Stop), 1),
    ]);
    let trim = |stage: &mut EngineFixture, id: &str| {
        stage.session_command(InSession::Trim { first_kept: EntryId::new(id) }).table_cell()
    };
    assert_eq!(trim(&mut stage, "nope"), "refused: no entry nope in s");
    assert_eq!(trim(&mut stage, "b"), "Done: session trimmed");
    let path: Vec<String> = stage.current_session().path_entries().iter().map(|entry| entry.id.to_string()).collect();
    assert_eq!(path, ["b", "c", "d"]);
    say(&mut stage, "r1");
    let mine = stage.current_session().leaf().unwrap().to_string();
    assert_eq!(trim(&mut stage, &mine), "Done: session trimmed");
    stage.request_calls([tool_call("look", "/w/a")]);
    let later = stage.current_session().leaf().unwrap().to_string();
    assert_ne!(later, mine);
    assert_eq!(trim(&mut stage, &later), "refused: s is busy");
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(stage.current_session().entries()[0].id.to_string(), mine);
}

/// Returns a session whose context has grown too long.
fn too_long() -> EngineFixture {
    let mut stage = idle();
    let settings = Settings { sums: CompactionTiming::BeforeRuns, ..stage.current_session().settings().clone() };
    stage.change_setting(SessionSetting::All(Box::new(settings)));
    let assistant = SessionEntryKind::Assistant { stop: StopReason::Stop, total_tokens: 950 };
    stage.import([
        ("a", SessionEntryKind::User, 400),
        ("b", assistant.clone(), 400),
        ("c", SessionEntryKind::User, 100),
        ("d", assistant, 100),
    ]);
    stage
}

#[test]
fn a_stop_during_a_summary_stops_the_message_that_it_is_made_for_and_no_other() {
    for restarts in [false, true] {
        let mut stage = too_long();
        say(&mut stage, "r1");
        say(&mut stage, "r3");
        // A message that precedes others does not precede one that counts as begun.
        let ahead = Box::new(RunMetadata { ahead: true, ..*marks("r2") });
        stage.session_command(InSession::Say { message: sample_message(1), marks: ahead });
        assert_eq!(stage.abort().table_cell(), "Done: session compaction_aborting", "{restarts}");
        assert_eq!(stage.abort().table_cell(), "Idle", "{restarts}");
        if restarts {
            stage.restart(open_rules(), ResumeMode::Go);
        } else {
            let epoch = stage.current_session().active_compaction().unwrap().epoch;
            let summary = stage
                .session_command(InSession::Compacted { epoch, outcome: session::CompactionOutcome::Aborted })
                .table_cell();
            let begun = "run started prompt, run marked, run turn_opened, session dequeued next, session entry user, run aborting";
            assert!(summary.contains(begun) && summary.contains("run ended aborted"), "{summary}");
        }
        // It has been recorded, and the context is too long for the other one, too.
        assert_eq!((stage.current_session().run(), stage.current_session().queued_count()), (None, 2), "{restarts}");
        let behind =
            stage.current_session().behind_compaction().and_then(|next| next.marks.as_ref()?.reference.clone());
        assert_eq!(behind.as_deref(), Some("r2"), "{restarts}");
    }
}

#[test]
fn where_a_message_waits_is_in_its_record_and_those_of_before_are_read_as_they_were_meant() {
    let mut stage = too_long();
    say(&mut stage, "r1");
    say(&mut stage, "r3");
    let ahead = Box::new(RunMetadata { ahead: true, ..*marks("r2") });
    stage.session_command(InSession::Say { message: sample_message(1), marks: ahead });
    let order =
        |engine: &Engine| -> Vec<Lsn> { engine.state().session(&session_id()).unwrap().queued_contents().collect() };
    let mut positions = order(&stage.engine);
    positions.sort_unstable();
    let [r1, r3, r2] = positions[..] else { panic!("three wait") };
    assert_eq!(order(&stage.engine), [r1, r2, r3]);
    let of_before = stage.read_with(open_rules(), |event| {
        if let Event::Session(session::Event::Queued { behind, .. }) = event {
            *behind = None;
        }
    });
    assert_eq!(order(&of_before), [r2, r1, r3]);
}

#[test]
fn what_comes_behind_a_summary_whose_message_was_taken_back_is_not_stopped_with_it() {
    for ahead in [false, true] {
        let mut stage = too_long();
        say(&mut stage, "r1");
        stage.session_command(InSession::Clear);
        stage.session_command(InSession::AbortCompaction);
        stage.session_command(InSession::Say {
            message: sample_message(1),
            marks: Box::new(RunMetadata { ahead, ..*marks("r2") }),
        });
        assert!(stage.current_session().behind_compaction().is_none());
        assert_eq!(stage.abort().table_cell(), "Idle");
        let epoch = stage.current_session().active_compaction().unwrap().epoch;
        let summary = stage
            .session_command(InSession::Compacted { epoch, outcome: session::CompactionOutcome::Aborted })
            .table_cell();
        assert!(summary.contains("run started prompt") && !summary.contains("aborting"), "{summary}");
        assert_eq!(called(&stage).as_deref(), Some("r2"));
    }
}

#[test]
fn a_context_that_has_grown_too_long_is_summed_up_before_the_next_run_and_once() {
    let mut stage = too_long();
    let summary = say(&mut stage, "r1");
    assert_eq!(summary, "Queued: session queued user next, session compaction_started rest", "{summary}");
    let epoch = stage.current_session().active_compaction().unwrap().epoch;
    let outcome = session::CompactionOutcome::Failed { message: "no".into() };
    let summary = stage.session_command(InSession::Compacted { epoch, outcome }).table_cell();
    assert!(summary.contains("run started prompt, run marked") && !summary.contains("compaction_started"), "{summary}");
    assert_eq!(called(&stage).as_deref(), Some("r1"));
    // Its end begins no other automatically, with a context of any length.
    let (run, epoch) = (stage.current_run(), 1);
    let answer = run::ModelAnswer {
        message: sample_message(1),
        stop: StopReason::Stop,
        total_tokens: 970,
        calls: Vec::new(),
        failure: None,
        others: Vec::new(),
        spent: None,
    };
    let response = stage.answer_run(run, epoch, answer);
    assert_eq!(response.0.last().unwrap(), "run ended completed", "{response:?}");
}

#[test]
fn a_tool_of_a_server_gets_a_secret_only_with_an_approval_that_names_it() {
    for (rules, tool, is_asked) in [
        (&["allow *"][..], "mcp__files__write", true),
        (&["allow secret(DOOR, mcp__files__write)"], "mcp__files__write", false),
        // Of other tools such a text is no placeholder.
        (&["allow *"], "write", false),
    ] {
        let mut stage = EngineFixture::new(rules_from(rules));
        stage.send_prompt(WhenBusy::Refuse);
        stage.request_calls([tool_call(tool, "{{secret:DOOR}}")]);
        assert_eq!(stage.first_gate().is_some(), is_asked, "{tool}");
    }
}
