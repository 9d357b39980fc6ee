//! Jobs follow the wall clock, wherever it is put.

use countersign_core::{
    engine::{Command, Engine},
    id::JobId,
    schedule::{AfterRun, Command as OfJobs, JobKind, JobPlan, JobSchedule},
    time::Millis,
};

use super::{at, zone};
use crate::engine_fixture::{EngineFixture, open_rules};

const MINUTE: u64 = 60_000;
const HOUR: i64 = 3_600_000;

fn tell(stage: &mut EngineFixture, command: OfJobs) -> String {
    stage.send_command(Command::Schedule(command)).table_cell()
}

fn add(stage: &mut EngineFixture, name: &str, schedule: JobSchedule) {
    let (agent, afterwards) = ("main".to_owned(), AfterRun::Stays);
    let plan = JobPlan { agent, kind: JobKind::Job, schedule, follows_house: false, enabled: true, afterwards };
    tell(stage, OfJobs::Add { job: JobId::new(name), plan: Box::new(plan), content: "{}".into() });
}

fn next(stage: &EngineFixture, name: &str) -> Option<Millis> {
    stage.engine.state().schedule().job(&JobId::new(name)).unwrap().next()
}

/// Returns a fixture at this instant with a job once, one of every day and one of every ten minutes.
fn planned(now: &str, once: &str) -> EngineFixture {
    let mut stage = EngineFixture::new(open_rules());
    stage.now = at(now);
    add(&mut stage, "once", JobSchedule::At { at: at(once) });
    add(&mut stage, "daily", JobSchedule::Cron { expression: "0 9 * * *".parse().unwrap(), zone: zone("UTC") });
    add(&mut stage, "steps", JobSchedule::every(10 * MINUTE, at(now)).unwrap());
    stage
}

#[test]
fn a_job_is_due_at_its_instant_of_the_clock_that_was_set() {
    for (case, ahead, deadline) in [
        ("put forward past all of it: at once", HOUR, "2026-03-02T08:00:00Z"),
        ("put forward a little", HOUR / 12, "2026-03-02T08:05:00Z"),
        ("put back: the steps go on", -24 * HOUR, "2026-03-02T08:10:00Z"),
    ] {
        let mut stage = planned("2026-03-02T08:00:00Z", "2026-03-02T08:25:00Z");
        assert_eq!(tell(&mut stage, OfJobs::Clocked { ahead }), "Done: schedule clocked", "{case}");
        let due = stage.engine.state().next_deadline().unwrap().max(stage.now);
        assert_eq!(due, at(deadline), "{case}");
    }
    let mut stage = planned("2026-03-02T08:00:00Z", "2026-03-02T08:25:00Z");
    tell(&mut stage, OfJobs::Clocked { ahead: HOUR / 4 });
    stage.now = Millis(at("2026-03-02T08:10:00Z").0);
    assert!(stage.send_command(Command::Tick).table_cell().contains("schedule fired"));
    assert_eq!(next(&stage, "once"), None, "08:25 by the wall clock is ten past by the other");
    assert_eq!(next(&stage, "daily"), Some(at("2026-03-02T09:00:00Z")));
}

#[test]
fn a_clock_that_is_put_back_repeats_nothing_unless_it_was_wrong() {
    for (case, back, daily) in [
        ("a correction", -60_000, "2026-03-03T09:00:00Z"),
        ("three hours", -3 * HOUR, "2026-03-03T09:00:00Z"),
        ("a clock that was a day ahead", -24 * HOUR, "2026-03-02T09:00:00Z"),
    ] {
        let mut stage = planned("2026-03-02T08:00:00Z", "2026-03-05T00:00:00Z");
        stage.now = Millis(at("2026-03-02T09:00:30Z").0);
        stage.send_command(Command::Tick);
        assert_eq!(next(&stage, "daily"), Some(at("2026-03-03T09:00:00Z")), "{case}");
        tell(&mut stage, OfJobs::Clocked { ahead: back });
        assert_eq!(next(&stage, "daily"), Some(at(daily)), "{case}");
        assert_eq!(next(&stage, "once"), Some(at("2026-03-05T00:00:00Z")), "{case}");
        let wall = stage.now.moved_by(back);
        let wait = next(&stage, "steps").unwrap().since(wall);
        assert!(wait.as_millis() < 2 * 10 * u128::from(MINUTE), "{case}: {wait:?}");
        let read = Engine::from_snapshot(open_rules(), &stage.engine.to_snapshot()).unwrap();
        assert_eq!(read.state(), stage.engine.state(), "{case}");
    }
}

#[test]
fn a_clock_that_is_a_little_off_was_not_moved() {
    let mut stage = planned("2026-03-02T08:00:00Z", "2026-03-02T08:25:00Z");
    for (ahead, want) in
        [(1_000, "Done"), (1_001, "Done: schedule clocked"), (1_500, "Done"), (0, "Done: schedule clocked")]
    {
        assert_eq!(tell(&mut stage, OfJobs::Clocked { ahead }), want, "{ahead}");
    }
}
