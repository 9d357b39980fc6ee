//! A wall clock that is set while a gateway works: jobs fire when it shows their time, and deadlines stay where they were.

use countersign_core::{
    engine::{Command, Event, ResumeMode},
    id::JobId,
    policy::DefaultPolicy,
    schedule::{self, AfterRun, JobKind, JobPlan, JobSchedule},
    time::Millis,
};
use countersign_runtime::{
    Clock, DueFiring, InboxLane, ReleasedItem,
    models::scripted::{ScriptedModel, ScriptedReply},
    store::MemoryLog,
};

use crate::fixture::open_seeing_to;

const MINUTE: u64 = 60_000;

fn failed(fired: &DueFiring) -> schedule::Command {
    fired.failed_command("nobody is here")
}

#[tokio::test(start_paused = true)]
async fn a_job_fires_when_the_clock_that_was_set_shows_its_time() {
    let from = Millis(1_774_393_200_000);
    let clock = Clock::starting_at(from);
    let model = ScriptedModel::new(Vec::<ScriptedReply>::new());
    let log = MemoryLog::new();
    let owner = open_seeing_to(failed, clock.clone(), log, &model, DefaultPolicy::Stdio, ResumeMode::Go).await;
    let mut released = owner.subscribe().await.unwrap();
    // It is planned for in ten hours, and the clock turns out to be slow by five minutes less than that.
    let at = Millis(from.0 + 600 * MINUTE);
    let (agent, kind, afterwards) = ("main".to_owned(), JobKind::Job, AfterRun::Stays);
    let plan =
        JobPlan { agent, kind, schedule: JobSchedule::At { at }, follows_house: false, enabled: true, afterwards };
    let add = schedule::Command::Add { job: JobId::new("once"), plan: Box::new(plan), content: "{}".into() };
    owner.source(InboxLane::Request).send_command(Command::Schedule(add)).await.unwrap();
    let ahead = i64::try_from(595 * MINUTE).unwrap();
    clock.set_ahead(ahead);
    let mut clocked = Vec::new();
    loop {
        let ReleasedItem::Fact(recorded) = released.next().await.unwrap() else { continue };
        match &recorded.fact.event {
            Event::Schedule(schedule::Event::Clocked { ahead }) => clocked.push((*ahead, recorded.meta.at)),
            Event::Schedule(schedule::Event::Fired { planned, .. }) => {
                assert_eq!((*planned, recorded.meta.at), (at, Millis(from.0 + 5 * MINUTE)));
                break;
            }
            _ => {}
        }
    }
    let [(recorded_ahead, when)] = clocked[..] else { panic!("{clocked:?}") };
    assert_eq!(recorded_ahead, ahead);
    assert!(when.since(from).as_secs() <= 30, "{when}");
}
