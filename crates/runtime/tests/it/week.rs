//! A week of jobs and heartbeats around each change of the clocks, in virtual time: every firing stands in the log at its
//! instant, and every run comes to its end.

use std::collections::BTreeMap;

use countersign_core::{
    FiringStep,
    engine::{Command, Event, ResumeMode},
    id::JobId,
    policy::DefaultPolicy,
    run::RunMetadata,
    schedule::{
        self, ActiveHours, AfterRun, ConversationMode, FiringMessage, FiringOutcome, FiringResult, FiringStatus,
        HeartbeatPlan, JobKind, JobPlan, JobSchedule, ReplanMode, Zone,
    },
    session::MessageContent,
    time::Millis,
};
use countersign_runtime::{
    Clock, DueFiring, InboxLane, OwnerHandle, ReleasedItem,
    models::scripted::{ScriptedModel, ScriptedReply},
    store::MemoryLog,
};

use crate::fixture::{begin, name, open_seeing_to};

const HOUR: u64 = 3_600_000;

fn zone() -> Zone {
    "Europe/Berlin".parse().unwrap()
}

/// Answers the firing of a job; there are heartbeats by day only.
fn see_to(fired: &DueFiring) -> schedule::Command {
    let ends = |status| {
        let ending = FiringResult { status, reported: false, outcome: FiringOutcome::default() };
        schedule::Command::End { firing: fired.id(), ending }
    };
    let by_day = ActiveHours::new("08:00", "23:00", zone()).unwrap();
    match fired.step {
        FiringStep::Tell => ends(FiringStatus::Ok),
        FiringStep::Say if fired.job.plan().kind == JobKind::Heartbeat && !by_day.contains_time(fired.firing.at) => {
            ends(FiringStatus::Skipped)
        }
        FiringStep::Say => {
            let prompt = MessageContent {
                content: r#"{"role":"user","content":[{"type":"text","text":"now"}]}"#.into(),
                tokens: 1,
            };
            let (marks, conversation) = (Box::new(RunMetadata::default()), ConversationMode::BeginsAnew);
            let message = FiringMessage { session: name(), message: prompt, marks, conversation };
            schedule::Command::Say { firing: fired.id(), message: Box::new(message) }
        }
    }
}

async fn ask(owner: &OwnerHandle, command: schedule::Command) {
    owner.source(InboxLane::Request).send_command(Command::Schedule(command)).await.unwrap();
}

async fn add(owner: &OwnerHandle, job: &str, schedule: JobSchedule) {
    let (agent, kind, afterwards) = ("main".to_owned(), JobKind::Job, AfterRun::Stays);
    let plan = JobPlan { agent, kind, schedule, follows_house: false, enabled: true, afterwards };
    ask(owner, schedule::Command::Add { job: JobId::new(job), plan: Box::new(plan), content: "{}".into() }).await;
}

/// Returns the firings in the week from `from` on, each with its instant, and how often each job ended how.
async fn week(from: Millis) -> (BTreeMap<String, Vec<u64>>, BTreeMap<(String, FiringStatus), usize>) {
    let model = ScriptedModel::new((0..2_000).map(|_| ScriptedReply::from_text("HEARTBEAT_OK")));
    let owner = open_seeing_to(
        see_to,
        Clock::starting_at(from),
        MemoryLog::new(),
        &model,
        DefaultPolicy::Stdio,
        ResumeMode::Go,
    )
    .await;
    let mut released = owner.subscribe().await.unwrap();
    begin(&owner, "/".as_ref()).await;
    for (job, expression) in [("night", "30 2 * * *"), ("hourly", "15 * * * *"), ("monday", "0 9 * * mon")] {
        let expression = expression.parse().unwrap();
        add(&owner, job, JobSchedule::Cron { expression, zone: zone() }).await;
    }
    add(&owner, "steps", JobSchedule::every(6 * HOUR, from).unwrap()).await;
    let beat = HeartbeatPlan { job: JobId::new("beat"), agent: "main".to_owned(), every: Some(HOUR / 2) };
    ask(&owner, schedule::Command::Beats { beats: vec![beat], replan: ReplanMode::Changes }).await;
    let (mut fired, mut ended) = (BTreeMap::<String, Vec<u64>>::new(), BTreeMap::new());
    let end = from.0 + 7 * 24 * HOUR;
    loop {
        let ReleasedItem::Fact(recorded) = released.next().await.unwrap() else { continue };
        match &recorded.fact.event {
            Event::Schedule(schedule::Event::Fired { firing, planned, .. }) => {
                if planned.0 >= end {
                    return (fired, ended);
                }
                assert_eq!(recorded.meta.at, *planned, "{firing:?}");
                fired.entry(firing.job.to_string()).or_default().push(planned.0);
            }
            Event::Schedule(schedule::Event::Ended { firing, status, .. }) => {
                *ended.entry((firing.job.to_string(), *status)).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// Returns half hours after the beginning, as instants.
fn behind(from: Millis, halves: impl IntoIterator<Item = u64>) -> Vec<u64> {
    halves.into_iter().map(|halves| from.0 + halves * HOUR / 2).collect()
}

#[tokio::test(start_paused = true)]
async fn a_week_around_each_change_of_the_clocks_fires_at_its_instants() {
    // Wednesday 0:00 in Berlin; on Sunday the clock goes from 2:00 to 3:00, or from 3:00 to 2:00.
    let spring = (1_774_393_200_000, [5, 53, 101, 149, 196, 243, 291], 256);
    let autumn = (1_792_533_600_000, [5, 53, 101, 149, 197, 247, 295], 260);
    for (from, nights, monday) in [spring, autumn] {
        let from = Millis(from);
        let (mut fired, ended) = week(from).await;
        let beats = fired.remove("beat").unwrap();
        assert!(beats.len() == 335 && beats.windows(2).all(|two| two[1] - two[0] == HOUR / 2), "{}", beats.len());
        let quarter = HOUR / 4;
        let want = [
            ("hourly", (0..168).map(|hour| from.0 + hour * HOUR + quarter).collect()),
            ("monday", behind(from, [monday])),
            ("night", behind(from, nights)),
            ("steps", behind(from, (1..28).map(|step| step * 12))),
        ];
        assert_eq!(fired, want.map(|(job, at)| (job.to_owned(), at)).into());
        let by_day =
            beats.iter().filter(|at| ActiveHours::new("08:00", "23:00", zone()).unwrap().contains_time(Millis(**at)));
        let by_day = by_day.count();
        let count = |job: &str, status| ended.get(&(job.to_owned(), status)).copied().unwrap_or_default();
        assert_eq!((count("beat", FiringStatus::Ok), count("beat", FiringStatus::Skipped)), (by_day, 335 - by_day));
        assert_eq!(["hourly", "monday", "night", "steps"].map(|job| count(job, FiringStatus::Ok)), [168, 1, 7, 27]);
    }
}
