//! Jobs from their time to the end of their runs.

use std::time::Duration;

use countersign_core::{
    FiringStep, OwedWork,
    engine::{Command, CommandError, EngineReply, ResumeMode},
    id::JobId,
    ledger::{BudgetLimits, LedgerMetric},
    message::StopReason,
    owed_work,
    run::{ProviderFailure, RunMetadata, RunOutcome as RunEnd},
    schedule::{
        AfterRun, Command as OfJobs, ConversationMode, FinishedRun, FiringId, FiringMessage, FiringOutcome,
        FiringResult, FiringStage as Step_, FiringStatus, HeartbeatPlan, Job, JobKind, JobLimits, JobPlan, JobSchedule,
        JobSelector, ReplanMode, ScheduleError as Refused, Zone,
    },
    session::{self, CompactionOutcome},
    time::Millis,
    unattended::{ContractTerms, UnattendedContract},
};

use super::at;
use crate::engine_fixture::{EngineFixture, open_rules, sample_message, session_id};

const MINUTE: u64 = 60_000;

fn id(name: &str) -> JobId {
    JobId::new(name)
}

fn firing(name: &str, number: u64) -> FiringId {
    FiringId { job: id(name), number }
}

fn plan(schedule: JobSchedule) -> JobPlan {
    let (agent, afterwards) = ("main".to_owned(), AfterRun::Stays);
    JobPlan { agent, kind: JobKind::Job, schedule, follows_house: false, enabled: true, afterwards }
}

fn every(stage: &EngineFixture, minutes: u64) -> JobPlan {
    plan(JobSchedule::every(minutes * MINUTE, stage.now).unwrap())
}

fn tell(stage: &mut EngineFixture, command: OfJobs) -> String {
    stage.send_command(Command::Schedule(command)).table_cell()
}

fn add(stage: &mut EngineFixture, name: &str, plan: JobPlan) -> String {
    tell(stage, OfJobs::Add { job: id(name), plan: Box::new(plan), content: "{}".into() })
}

fn say(stage: &mut EngineFixture, name: &str, number: u64) -> String {
    say_under(stage, name, number, None)
}

fn say_under(stage: &mut EngineFixture, name: &str, number: u64, terms: Option<ContractTerms>) -> String {
    let marks = Box::new(RunMetadata { terms: terms.map(Box::new), ..RunMetadata::default() });
    let message = FiringMessage {
        session: session_id(),
        message: sample_message(1),
        marks,
        conversation: ConversationMode::GoesOn,
    };
    tell(stage, OfJobs::Say { firing: firing(name, number), message: Box::new(message) })
}

fn end(stage: &mut EngineFixture, name: &str, number: u64, status: FiringStatus) -> String {
    let ending = FiringResult { status, reported: false, outcome: FiringOutcome::default() };
    tell(stage, OfJobs::End { firing: firing(name, number), ending })
}

fn job<'a>(stage: &'a EngineFixture, name: &str) -> &'a Job {
    stage.engine.state().schedule().job(&id(name)).unwrap()
}

/// Lets time come to the next deadline, and pass it.
fn pass(stage: &mut EngineFixture) -> String {
    stage.now = stage.now.max(stage.engine.state().next_deadline().unwrap());
    stage.send_command(Command::Tick).table_cell()
}

/// Returns the owed work of jobs.
fn due(stage: &EngineFixture) -> Vec<(String, u64, FiringStep)> {
    let fires = owed_work(stage.engine.state()).into_iter().filter_map(|work| match work {
        OwedWork::Fire { firing, step } => Some((firing.job.as_str().to_owned(), firing.number, step)),
        _ => None,
    });
    fires.collect()
}

fn over(stage: &EngineFixture, name: &str) -> FinishedRun {
    match &job(stage, name).firing().unwrap().stage {
        Step_::Over(over) => over.clone(),
        stage => panic!("{stage:?}"),
    }
}

/// Returns a job that has not begun, one whose run works under a contract, one that is over, and a heartbeat.
pub(crate) fn planned() -> EngineFixture {
    let mut stage = EngineFixture::new(open_rules());
    tell(&mut stage, OfJobs::Limit(JobLimits { zone: super::zone("Europe/Berlin"), ..JobLimits::default() }));
    let follows = JobPlan { follows_house: true, ..every(&stage, 10) };
    for name in ["a", "b", "c"] {
        add(&mut stage, name, follows.clone());
    }
    let beat = HeartbeatPlan { job: id("beat"), agent: "main".to_owned(), every: Some(MINUTE) };
    tell(&mut stage, OfJobs::Beats { beats: vec![beat], replan: ReplanMode::Changes });
    stage.now = Millis(stage.now.0 + 10 * MINUTE);
    stage.send_command(Command::Tick);
    say(&mut stage, "b", 1);
    stage.answer(StopReason::Stop, Vec::new(), None);
    end(&mut stage, "b", 1, FiringStatus::Ok);
    let budget = BudgetLimits { wall_time: Some(1_000), ..BudgetLimits::default() };
    say_under(&mut stage, "c", 1, Some(ContractTerms { actor: "cron".to_owned(), budget, ..ContractTerms::default() }));
    stage
}

#[test]
fn steps_without_an_anchor_are_counted_from_when_they_are_planned() {
    let mut stage = EngineFixture::new(open_rules());
    let step = plan(JobSchedule::every_from_now(60_000).unwrap());
    add(&mut stage, "j", step.clone());
    let first = stage.now + Duration::from_secs(60);
    assert_eq!(job(&stage, "j").next(), Some(first));
    assert_eq!(job(&stage, "j").plan().schedule, JobSchedule::every(60_000, stage.now).unwrap());
    stage.now = stage.now + Duration::from_secs(7);
    let (job_id, content) = (id("j"), "{}".into());
    tell(&mut stage, OfJobs::Change { job: job_id, plan: Box::new(step), content });
    assert_eq!(job(&stage, "j").next(), Some(first + Duration::from_secs(7)));
}

#[test]
fn a_firing_goes_from_its_time_to_the_end_of_its_run() {
    let mut stage = EngineFixture::new(open_rules());
    let created = stage.now;
    let plan = every(&stage, 10);
    assert_eq!(add(&mut stage, "j", plan), "Done: schedule added");
    assert_eq!(stage.engine.state().next_deadline(), Some(Millis(created.0 + 10 * MINUTE)));
    assert_eq!(pass(&mut stage), "Done: schedule fired");
    assert_eq!(due(&stage), [("j".to_owned(), 1, FiringStep::Say)]);
    let fired = stage.now;
    stage.now = Millis(stage.now.0 + 5);
    assert_eq!(
        say(&mut stage, "j", 1),
        "Done: schedule said, run started prompt, run marked, run turn_opened, session entry user, run asked"
    );
    assert_eq!(due(&stage), []);
    stage.now = Millis(stage.now.0 + 1000);
    let facts = stage.answer(StopReason::Stop, Vec::new(), None).0;
    assert_eq!(facts[2..], ["run turn_closed", "run ended completed", "schedule ran"]);
    assert_eq!(due(&stage), [("j".to_owned(), 1, FiringStep::Tell)]);
    stage.now = Millis(stage.now.0 + 500);
    assert_eq!(end(&mut stage, "j", 1, FiringStatus::Ok), "Done: schedule ended job");
    let last = job(&stage, "j").last_firing().copied().unwrap();
    assert_eq!((last.at, last.status, last.took), (fired, FiringStatus::Ok, Duration::from_millis(1005)));
    assert_eq!((job(&stage, "j").next(), due(&stage)), (Some(Millis(created.0 + 20 * MINUTE)), Vec::new()));
}

#[test]
fn a_death_between_any_two_steps_changes_nothing_of_it() {
    let mut stage = EngineFixture::new(open_rules());
    let plan = every(&stage, 10);
    add(&mut stage, "j", plan);
    let steps: [fn(&mut EngineFixture); 4] = [
        |stage| drop(pass(stage)),
        |stage| drop(say(stage, "j", 1)),
        |stage| {
            stage.answer(StopReason::Stop, Vec::new(), None);
        },
        |stage| drop(end(stage, "j", 1, FiringStatus::Ok)),
    ];
    for died_before in 0..=steps.len() {
        let mut stage = stage.clone();
        for (at, step) in steps.iter().enumerate() {
            if at == died_before {
                stage.restart(open_rules(), ResumeMode::Go);
            }
            step(&mut stage);
        }
        if died_before == steps.len() {
            stage.restart(open_rules(), ResumeMode::Go);
        }
        let job = job(&stage, "j");
        assert_eq!((job.last_firing().unwrap().status, job.firing()), (FiringStatus::Ok, None), "{died_before}");
        let message_count = stage
            .current_session()
            .entries()
            .iter()
            .filter(|entry| entry.kind == session::SessionEntryKind::User)
            .count();
        assert_eq!(message_count, 1, "{died_before}");
    }
}

#[test]
fn a_repeated_command_happens_once() {
    let mut stage = EngineFixture::new(open_rules());
    let plan = every(&stage, 10);
    add(&mut stage, "j", plan);
    pass(&mut stage);
    say(&mut stage, "j", 1);
    assert_eq!(say(&mut stage, "j", 1), "Idle");
    assert_eq!(end(&mut stage, "j", 1, FiringStatus::Ok), "Dropped", "it runs yet");
    stage.answer(StopReason::Stop, Vec::new(), None);
    end(&mut stage, "j", 1, FiringStatus::Ok);
    assert_eq!(end(&mut stage, "j", 1, FiringStatus::Failed), "Dropped");
    assert_eq!(end(&mut stage, "j", 7, FiringStatus::Failed), "Dropped");
}

#[test]
fn what_was_missed_fires_once_and_the_next_is_ahead() {
    let mut stage = EngineFixture::new(open_rules());
    let plan = every(&stage, 10);
    let begun = stage.now.0;
    add(&mut stage, "j", plan);
    stage.now = Millis(begun + 55 * MINUTE);
    stage.restart(open_rules(), ResumeMode::Go);
    stage.send_command(Command::Tick);
    let fired = job(&stage, "j").firing().unwrap().clone();
    assert_eq!((fired.number, fired.planned), (1, Millis(begun + 10 * MINUTE)));
    assert_eq!(job(&stage, "j").next(), Some(Millis(begun + 60 * MINUTE)));
}

#[test]
fn a_single_time_is_over_after_its_run_and_a_run_before_it_leaves_it() {
    let once = |afterwards| JobPlan { afterwards, ..plan(JobSchedule::At { at: Millis(50_000) }) };
    for (case, afterwards, status, want) in [
        ("stays", AfterRun::Stays, FiringStatus::Ok, Some(false)),
        ("goes", AfterRun::Goes, FiringStatus::Ok, None),
        ("goes not, as it failed", AfterRun::Goes, FiringStatus::Failed, Some(false)),
    ] {
        let mut stage = EngineFixture::new(open_rules());
        add(&mut stage, "j", once(afterwards));
        tell(&mut stage, OfJobs::Fire(JobSelector::Now(id("j"))));
        end(&mut stage, "j", 1, FiringStatus::Skipped);
        assert_eq!(job(&stage, "j").next(), Some(Millis(50_000)), "{case}");
        pass(&mut stage);
        say(&mut stage, "j", 2);
        stage.answer(StopReason::Stop, Vec::new(), None);
        end(&mut stage, "j", 2, status);
        let left = stage.engine.state().schedule().job(&id("j")).map(|job| job.plan().enabled);
        assert_eq!((left, stage.engine.state().next_deadline()), (want, None), "{case}");
    }
}

#[test]
fn as_many_run_at_once_as_may_and_the_others_wait_without_a_timer() {
    let mut stage = EngineFixture::new(open_rules());
    tell(&mut stage, OfJobs::Limit(JobLimits { at_once: 2, most: 3, ..JobLimits::default() }));
    for name in ["a", "b", "c"] {
        add(&mut stage, name, plan(JobSchedule::At { at: Millis(2_000) }));
    }
    assert_eq!(
        add(&mut stage, "d", plan(JobSchedule::At { at: Millis(2_000) })),
        "refused: there are already 3 jobs, which is the limit"
    );
    assert_eq!(pass(&mut stage), "Done: schedule fired, schedule fired");
    assert_eq!(stage.engine.state().next_deadline(), None);
    let forced = stage.send_command(Command::Schedule(OfJobs::Fire(JobSelector::Now(id("c"))))).1;
    assert_eq!(forced, Err(CommandError::Schedule(Refused::Full(2))));
    end(&mut stage, "a", 1, FiringStatus::Skipped);
    assert_eq!(pass(&mut stage), "Done: schedule fired");
    assert_eq!(due(&stage).len(), 2);
}

#[test]
fn who_forces_a_job_that_its_own_time_began_means_that_run_and_never_two() {
    let mut stage = EngineFixture::new(open_rules());
    add(&mut stage, "j", plan(JobSchedule::At { at: Millis(1) }));
    assert_eq!(pass(&mut stage), "Done: schedule fired");
    let now =
        |stage: &mut EngineFixture| stage.send_command(Command::Schedule(OfJobs::Fire(JobSelector::Now(id("j"))))).1;
    assert_eq!(now(&mut stage), Ok(EngineReply::Fired(vec![firing("j", 1)])), "before it is said");
    say(&mut stage, "j", 1);
    assert_eq!(now(&mut stage), Ok(EngineReply::Fired(vec![firing("j", 1)])), "and while it runs");
    stage.answer(StopReason::Stop, Vec::new(), None);
    end(&mut stage, "j", 1, FiringStatus::Ok);
    // A manual firing runs once for each request.
    assert_eq!(now(&mut stage), Ok(EngineReply::Fired(vec![firing("j", 2)])));
    assert_eq!(now(&mut stage), Err(CommandError::Schedule(Refused::Busy(id("j")))));
}

#[test]
fn disabled_jobs_start_by_request_only() {
    let mut stage = EngineFixture::new(open_rules());
    let off = JobLimits { enabled: false, ..JobLimits::default() };
    tell(&mut stage, OfJobs::Limit(off));
    assert_eq!(tell(&mut stage, OfJobs::Limit(off)), "Done");
    add(&mut stage, "j", plan(JobSchedule::At { at: Millis(2_000) }));
    stage.now = Millis(3_000);
    assert_eq!(
        (stage.engine.state().next_deadline(), stage.send_command(Command::Tick).table_cell()),
        (None, "Done".to_owned())
    );
    let fired = stage.send_command(Command::Schedule(OfJobs::Fire(JobSelector::Due))).1;
    assert_eq!(fired, Ok(EngineReply::Fired(vec![firing("j", 1)])));
    let disabled = JobPlan { enabled: false, ..every(&stage, 1) };
    add(&mut stage, "k", disabled);
    assert_eq!(job(&stage, "k").next(), None);
    assert_eq!(
        stage.send_command(Command::Schedule(OfJobs::Fire(JobSelector::IfDue(id("k"))))).1,
        Ok(EngineReply::Fired(Vec::new()))
    );
}

#[test]
fn a_job_that_is_removed_lets_its_run_end_and_what_has_not_begun_does_not_begin() {
    let mut stage = EngineFixture::new(open_rules());
    for name in ["a", "b"] {
        add(&mut stage, name, plan(JobSchedule::At { at: Millis(2_000) }));
    }
    pass(&mut stage);
    say(&mut stage, "a", 1);
    for name in ["a", "b"] {
        assert_eq!(tell(&mut stage, OfJobs::Remove { job: id(name) }), "Done: schedule removed");
        assert_eq!(tell(&mut stage, OfJobs::Remove { job: id(name) }), "Idle");
    }
    assert_eq!((due(&stage), stage.engine.state().schedule().planned_count()), (Vec::new(), 0));
    assert_eq!(say(&mut stage, "b", 1), "Idle");
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert_eq!(due(&stage), [("a".to_owned(), 1, FiringStep::Tell)]);
    end(&mut stage, "a", 1, FiringStatus::Ok);
    assert_eq!(stage.engine.state().schedule().open_firings().count(), 0);
}

#[test]
fn a_message_that_waits_is_over_when_it_is_taken_back() {
    let mut stage = crate::states::thinking(open_rules());
    add(&mut stage, "j", plan(JobSchedule::At { at: Millis(0) }));
    pass(&mut stage);
    assert_eq!(say(&mut stage, "j", 1), "Done: schedule said, session queued user next");
    assert_eq!(stage.session_command(session::Command::Clear).table_cell(), "Done: session cleared, schedule ran");
    assert_eq!((over(&stage, "j").end, over(&stage, "j").words), (None, None));
}

#[test]
fn a_run_has_a_contract_of_its_own_that_ends_with_it() {
    let budget = BudgetLimits { wall_time: Some(1_000), ..BudgetLimits::default() };
    let terms = || Some(ContractTerms { actor: "cron".to_owned(), budget, ..ContractTerms::default() });
    let mut stage = EngineFixture::new(open_rules());
    let plan = every(&stage, 10);
    add(&mut stage, "j", plan);
    for number in 1..=2 {
        while due(&stage).is_empty() {
            pass(&mut stage);
        }
        say_under(&mut stage, "j", number, terms());
        assert_eq!(
            stage.current_session().unattended().and_then(UnattendedContract::firing_id),
            Some(&firing("j", number))
        );
        assert!(pass(&mut stage).starts_with("Done: unattended breached, run aborting"), "{number}");
        stage.answer(StopReason::Aborted, Vec::new(), None);
        assert_eq!(over(&stage, "j").breach.map(|breach| breach.metric), Some(LedgerMetric::WallTime));
        assert_eq!(stage.current_session().unattended(), None);
        end(&mut stage, "j", number, FiringStatus::Failed);
    }
    let refused = stage.send_prompt(session::WhenBusy::Refuse).1;
    assert!(matches!(refused, Ok(EngineReply::Started(_))), "{refused:?}");
}

/// Returns a job whose request was too long, while the context before it is compacted.
fn summed_up() -> EngineFixture {
    let mut stage = EngineFixture::new(open_rules());
    let assistant = session::SessionEntryKind::Assistant { stop: StopReason::Stop, total_tokens: 9 };
    stage.import([("a", session::SessionEntryKind::User, 400), ("b", assistant, 400)]);
    add(&mut stage, "j", plan(JobSchedule::At { at: Millis(2_000) }));
    pass(&mut stage);
    let budget = BudgetLimits { calls: Some(3), ..BudgetLimits::default() };
    say_under(&mut stage, "j", 1, Some(ContractTerms { actor: "cron".to_owned(), budget, ..ContractTerms::default() }));
    stage.fail_request(ProviderFailure { retryable: false, overflow: true, after: None });
    stage
}

#[test]
fn a_request_that_did_not_fit_is_sent_again_for_the_same_firing() {
    let mut stage = summed_up();
    let epoch = stage.current_session().active_compaction().unwrap().epoch;
    stage.session_command(session::Command::Compacted {
        epoch,
        outcome: CompactionOutcome::Done { summary: sample_message(1), spent: None },
    });
    let run = stage.engine.state().run(stage.current_run()).unwrap();
    assert_eq!(run.run_metadata().firing, Some(firing("j", 1)));
    assert_eq!(
        (due(&stage), stage.current_session().unattended().and_then(UnattendedContract::firing_id)),
        (Vec::new(), Some(&firing("j", 1)))
    );
    stage.answer(StopReason::Stop, Vec::new(), None);
    assert_eq!((due(&stage).len(), stage.current_session().unattended()), (1, None));
}

#[test]
fn a_summary_cut_off_by_a_crash_is_reported_as_stopped_and_its_firing_as_failed() {
    for is_killed in [true, false] {
        let mut stage = summed_up();
        let summary = if is_killed {
            stage.restart(open_rules(), ResumeMode::Go).table_cell()
        } else {
            let epoch = stage.current_session().active_compaction().unwrap().epoch;
            stage
                .session_command(session::Command::Compacted { epoch, outcome: CompactionOutcome::Aborted })
                .table_cell()
        };
        assert!(summary.contains("session compaction_aborting, session compaction_ended rest"), "{summary}");
        assert_eq!((stage.current_session().active_compaction(), stage.current_session().unattended()), (None, None));
        assert_eq!((due(&stage).len(), over(&stage, "j").end), (1, Some(RunEnd::Overflowed)), "{is_killed}");
    }
}

#[test]
fn the_zone_of_the_house_moves_what_follows_it() {
    let mut stage = EngineFixture::new(open_rules());
    stage.now = at("2026-06-01T00:00:00Z");
    let cron = |follows_house| {
        let expression = "0 9 * * *".parse().unwrap();
        JobPlan { follows_house, ..plan(JobSchedule::Cron { expression, zone: Zone::UTC }) }
    };
    add(&mut stage, "house", cron(true));
    add(&mut stage, "own", cron(false));
    let zone = super::zone("Europe/Berlin");
    tell(&mut stage, OfJobs::Limit(JobLimits { zone, ..JobLimits::default() }));
    assert_eq!(job(&stage, "house").next(), Some(at("2026-06-01T07:00:00Z")));
    assert_eq!(job(&stage, "own").next(), Some(at("2026-06-01T09:00:00Z")));
    stage.restart(open_rules(), ResumeMode::Go);
    assert_eq!(job(&stage, "house").next(), Some(at("2026-06-01T07:00:00Z")));
}

#[test]
fn heartbeats_are_planned_together_and_only_what_differs_moves() {
    let mut stage = EngineFixture::new(open_rules());
    let beat = |agent: &str, every| HeartbeatPlan { job: id(agent), agent: agent.to_owned(), every };
    let beats = |beats: Vec<HeartbeatPlan>, replan| OfJobs::Beats { beats, replan };
    let both = || vec![beat("a", Some(MINUTE)), beat("b", None)];
    assert_eq!(tell(&mut stage, beats(both(), ReplanMode::Changes)), "Done: schedule added, schedule added");
    assert_eq!(tell(&mut stage, beats(both(), ReplanMode::Changes)), "Done");
    stage.now = Millis(stage.now.0 + 10_000);
    assert_eq!(tell(&mut stage, beats(both(), ReplanMode::All)), "Done: schedule changed, schedule changed");
    assert_eq!((job(&stage, "a").next(), job(&stage, "b").next()), (Some(Millis(stage.now.0 + MINUTE)), None));
    tell(&mut stage, OfJobs::Fire(JobSelector::Now(id("b"))));
    end(&mut stage, "b", 1, FiringStatus::Skipped);
    assert_eq!((job(&stage, "b").last_firing(), job(&stage, "b").firing()), (None, None), "there was none");
    // One that comes back while its last firing is open continues it.
    tell(&mut stage, OfJobs::Fire(JobSelector::Now(id("a"))));
    say(&mut stage, "a", 1);
    tell(&mut stage, beats(vec![beat("b", None)], ReplanMode::Changes));
    tell(&mut stage, beats(both(), ReplanMode::Changes));
    let next = Some(Millis(stage.now.0 + MINUTE));
    assert_eq!((job(&stage, "a").firing().is_some(), job(&stage, "a").next()), (true, next));
    stage.answer(StopReason::Stop, Vec::new(), None);
    end(&mut stage, "a", 1, FiringStatus::Ok);
    assert_eq!(stage.engine.state().next_deadline(), next);
    assert_eq!(
        tell(&mut stage, beats(vec![beat("b", Some(MINUTE))], ReplanMode::Changes)),
        "Done: schedule removed, schedule changed"
    );
}
