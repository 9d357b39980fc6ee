//! Heartbeats: at intervals an agent works through its list, `HEARTBEAT.md`, and reports to its users.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::{
    engine::{EngineReply, Event},
    id::JobId,
    run::RunMetadata,
    schedule::{
        self, ActiveHours, ConversationMode, FiringCause, FiringId, FiringOutcome, FiringStatus, HeartbeatPlan,
        HeartbeatReport, Job, JobKind, JobSelector, ReplanMode, SkipReason, Zone, has_tasks, heartbeat_report,
        parse_span,
    },
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError,
        chat::CANCELLED,
        heartbeat::{self, AgentHeartbeat, HeartbeatTriggerResult, STARTED},
        key::{SessionKeyScheme, agent_id, agent_of},
        workspace::WorkspacePath,
    },
};
use countersign_runtime::{DueFiring, InboxLane};
use serde_json::Value;

use super::{
    super::{
        GsvAdapter, chat,
        method_result::MethodResult,
        registry,
        workspace::{self, WorkspaceError},
    },
    fact_of_schedule, firing, gateway_closing,
    notify::NotifyTarget,
    send_command,
};

/// Prefix of the name of a job that is a heartbeat.
const NAMED: &str = "heartbeat:";
/// List of an agent, in its folder.
const LIST: &str = "HEARTBEAT.md";
/// Longest time of a heartbeat, in milliseconds.
const LONGEST: u64 = 30 * 60 * 1000;
/// Prompt of a heartbeat if the settings have none.
const PROMPT: &str = "Look at your list HEARTBEAT.md, which follows, and do what it asks for now. Take up nothing from earlier \
                      conversations that it does not name. If nothing needs anybody's attention, answer with HEARTBEAT_OK \
                      and nothing else.";

/// Heartbeat of one agent, as the settings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeartbeatRules {
    /// Milliseconds. Absent: never by itself.
    every: Option<u64>,
    prompt: String,
    target: HeartbeatTarget,
    hours: Option<ActiveHours>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HeartbeatTarget {
    Nobody,
    Last,
    Channel(String),
}

fn job_of(agent: &str) -> JobId {
    JobId::new(format!("{NAMED}{agent}"))
}

impl HeartbeatRules {
    fn from_tree(tree: &Value, agent: &str, house: Zone) -> Self {
        let listed = tree["agents"]["list"].as_array().into_iter().flatten();
        let mut own = listed.filter(|listed| listed["id"].as_str().map(agent_id).as_deref() == Some(agent));
        let own = own.next().map_or(&Value::Null, |agent| &agent["heartbeat"]);
        let usual = &tree["agents"]["defaultHeartbeat"];
        let text = |name: &str| own[name].as_str().or_else(|| usual[name].as_str());
        let hour = |name: &str| {
            own["activeHours"][name].as_str().or_else(|| usual["activeHours"][name].as_str()).map(str::to_owned)
        };
        let zone = hour("timezone").and_then(|name| name.parse().ok()).unwrap_or(house);
        let hours = hour("start").zip(hour("end")).and_then(|(start, end)| ActiveHours::new(&start, &end, zone).ok());
        let every = text("every").filter(|every| every.trim() != "0").and_then(|every| parse_span(every).ok());
        Self {
            every: every.and_then(|every| u64::try_from(every.as_millis()).ok()).filter(|every| *every > 0),
            prompt: text("prompt").filter(|prompt| !prompt.trim().is_empty()).unwrap_or(PROMPT).to_owned(),
            target: match text("target").unwrap_or("last") {
                "none" => HeartbeatTarget::Nobody,
                "last" => HeartbeatTarget::Last,
                channel => HeartbeatTarget::Channel(channel.to_owned()),
            },
            hours,
        }
    }

    fn for_agent(door: &GsvAdapter, agent: &str) -> Self {
        Self::from_tree(&door.settings.tree(), agent, door.settings.user_zone())
    }
}

/// Returns every agent: the default one, and those of the settings.
fn all_agents(door: &GsvAdapter) -> BTreeSet<String> {
    let tree = door.settings.tree();
    let listed = tree["agents"]["list"].as_array().into_iter().flatten();
    listed.filter_map(|agent| agent["id"].as_str().map(agent_id)).chain([door.settings.default_agent()]).collect()
}

/// Plans the heartbeats of all agents.
///
/// # Errors
/// 500 if that was not recorded.
pub(super) async fn plan_heartbeats(door: &Arc<GsvAdapter>, replan: ReplanMode) -> Result<(), GsvError> {
    let _turn = door.automation.planning.lock().await;
    let beat = |agent: String| HeartbeatPlan {
        job: job_of(&agent),
        every: HeartbeatRules::for_agent(door, &agent).every,
        agent,
    };
    let beats = all_agents(door).into_iter().map(beat).collect();
    send_command(door, schedule::Command::Beats { beats, replan }).await.map(drop)
}

/// Reports whether heartbeats were ever planned.
///
/// # Errors
/// 500 if the gateway closes.
pub(super) async fn are_planned(door: &Arc<GsvAdapter>) -> Result<bool, GsvError> {
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| engine.state().schedule().jobs(JobKind::Heartbeat).next().is_some());
    Ok(read.await.ok_or_else(gateway_closing)?.0)
}

pub(super) async fn heartbeat_status(door: &Arc<GsvAdapter>) -> MethodResult {
    Ok(RawJson::from_wire(&heartbeat::HeartbeatStatusResult { message: None, agents: heartbeat_states(door).await? }))
}

pub(super) async fn start_heartbeats(door: &Arc<GsvAdapter>) -> MethodResult {
    plan_heartbeats(door, ReplanMode::All).await?;
    Ok(RawJson::from_wire(&heartbeat::HeartbeatStatusResult {
        message: Some(STARTED.to_owned()),
        agents: heartbeat_states(door).await?,
    }))
}

async fn heartbeat_states(door: &Arc<GsvAdapter>) -> Result<BTreeMap<String, AgentHeartbeat>, GsvError> {
    let source = door.context.handle.source(InboxLane::Request);
    let read =
        source.read_state(|engine| engine.state().schedule().jobs(JobKind::Heartbeat).cloned().collect::<Vec<Job>>());
    let (jobs, _) = read.await.ok_or_else(gateway_closing)?;
    let mut states = BTreeMap::new();
    for agent in all_agents(door) {
        let job = jobs.iter().find(|job| *job.id() == job_of(&agent));
        let last_sent = job.and_then(Job::last_report);
        let text = match last_sent {
            Some((_, place)) => firing::last_report(door, place).await,
            None => None,
        };
        let state = AgentHeartbeat {
            agent_id: agent.clone(),
            next_heartbeat_at: job.and_then(Job::next).map(|next| next.0),
            last_heartbeat_at: job.and_then(Job::last_firing).map(|last| last.at.0),
            last_heartbeat_text: text,
            last_heartbeat_sent_at: last_sent.map(|(at, _)| at.0),
            last_active: super::notify::last_active(door, &agent).await,
        };
        states.insert(agent, state);
    }
    Ok(states)
}

pub(super) async fn trigger_heartbeat(door: &Arc<GsvAdapter>, agent: &str) -> MethodResult {
    let agent = agent_id(agent);
    if !all_agents(door).contains(&agent) {
        return Ok(RawJson::from_wire(&HeartbeatTriggerResult::failed(&agent, "there is no such agent")));
    }
    // Settings may be newer than what is planned by them.
    plan_heartbeats(door, ReplanMode::Changes).await?;
    let triggered = match fire_now(door, &agent).await {
        Ok(None) => HeartbeatTriggerResult::started_in(&agent, &SessionKeyScheme::heartbeat_session_key(&agent)),
        Ok(Some((FiringStatus::Skipped, reason))) => HeartbeatTriggerResult::skipped(&agent, &reason),
        Ok(Some((FiringStatus::Ok | FiringStatus::Failed, error))) => HeartbeatTriggerResult::failed(&agent, &error),
        Err(fault) => HeartbeatTriggerResult::failed(&agent, &fault.message),
    };
    Ok(RawJson::from_wire(&triggered))
}

/// Starts the heartbeat of an agent now, and waits until its message is sent. Returns the outcome if it was not sent.
async fn fire_now(door: &Arc<GsvAdapter>, agent: &str) -> Result<Option<(FiringStatus, String)>, GsvError> {
    let mut facts = door.context.handle.follow_facts(fact_of_schedule).await.ok_or_else(gateway_closing)?;
    let EngineReply::Fired(fired) =
        send_command(door, schedule::Command::Fire(JobSelector::Now(job_of(agent)))).await?
    else {
        return Ok(None);
    };
    let is_it = |firing: &FiringId| fired.contains(firing);
    let mut has_fired = false;
    loop {
        let recorded = facts.next().await.ok_or_else(gateway_closing)?;
        match &recorded.fact.event {
            Event::Schedule(schedule::Event::MessageSent { firing }) if is_it(firing) => return Ok(None),
            Event::Schedule(schedule::Event::Ended { firing, status, .. }) if is_it(firing) => {
                let content = recorded.fact.content.as_deref();
                let outcome = content.and_then(|text| serde_json::from_str::<FiringOutcome>(text).ok());
                return Ok(Some((*status, outcome.and_then(|outcome| outcome.error).unwrap_or_default())));
            }
            Event::Schedule(schedule::Event::Fired { firing, .. }) if is_it(firing) => has_fired = true,
            // A firing that was not begun is removed with its agent. Its name may have been that of an earlier agent.
            Event::Schedule(schedule::Event::Removed { job })
                if has_fired && fired.iter().any(|firing| firing.job == *job) =>
            {
                return Ok(Some((FiringStatus::Failed, "the agent was removed".to_owned())));
            }
            _ => {}
        }
    }
}

/// Returns the message of a heartbeat, or its end if it is skipped.
///
/// # Errors
/// The failure as text.
pub(super) async fn heartbeat_message(door: &Arc<GsvAdapter>, fired: &DueFiring) -> Result<schedule::Command, String> {
    let agent = &fired.job.plan().agent;
    let rules = HeartbeatRules::for_agent(door, agent);
    let list = read_list(door, agent).await?;
    if fired.firing.cause == FiringCause::Due
        && let Some(skip) = check_skip(door, fired, &rules, list.as_deref()).await?
    {
        return Ok(firing::end_command(fired, FiringStatus::Skipped, false, Some(skip_reason(skip).to_owned()), None));
    }
    let key = SessionKeyScheme::heartbeat_session_key(agent);
    let session = chat::prepare_session(door, &key).await.map_err(|fault| fault.message)?;
    let time = door.settings.user_zone().full_time(door.context.clock.wall_time());
    let list = list.map_or_else(|| format!("({LIST} is not there.)"), |list| format!("{LIST}:\n\n{}", list.trim()));
    let text = format!("[heartbeat · {time}] {}\n\n{list}", rules.prompt);
    let model = door.settings.model_ref(&door.context, &door.settings.agent_model(agent));
    let marks = RunMetadata {
        model: Some(model),
        terms: firing::contract_terms(fired, Some(LONGEST)),
        ..RunMetadata::default()
    };
    Ok(firing::say_command(fired, session, &text, marks, ConversationMode::GoesOn))
}

/// Returns a reason in the terms of the wire.
const fn skip_reason(skip: SkipReason) -> &'static str {
    match skip {
        SkipReason::OutsideActiveHours => "outside_active_hours",
        SkipReason::NoHeartbeatFile => "no_heartbeat_file",
        SkipReason::EmptyHeartbeatFile => "empty_heartbeat_file",
        SkipReason::SessionBusy => "session_busy",
    }
}

/// Returns the reason to skip a heartbeat now, if there is one.
async fn check_skip(
    door: &Arc<GsvAdapter>,
    fired: &DueFiring,
    rules: &HeartbeatRules,
    list: Option<&str>,
) -> Result<Option<SkipReason>, String> {
    if rules.hours.is_some_and(|hours| !hours.contains_time(door.context.clock.wall_time())) {
        return Ok(Some(SkipReason::OutsideActiveHours));
    }
    let Some(list) = list else { return Ok(Some(SkipReason::NoHeartbeatFile)) };
    if !has_tasks(list) {
        return Ok(Some(SkipReason::EmptyHeartbeatFile));
    }
    let agent = &fired.job.plan().agent;
    Ok(is_busy(door, agent).await?.then_some(SkipReason::SessionBusy))
}

/// Reports whether a run works in the session in which a user last spoke with the agent.
async fn is_busy(door: &Arc<GsvAdapter>, agent: &str) -> Result<bool, String> {
    let rows = registry::list_sessions(door.context.handle.log()).await.map_err(|error| error.to_string())?;
    let is_its = |key: &str| agent_of(key).map(agent_id).as_deref() == Some(agent);
    let is_ours = |key: &str| key.split(':').nth(2).is_some_and(|part| part == "cron" || part == "heartbeat");
    let spoken = rows.iter().filter(|row| is_its(&row.key) && !is_ours(&row.key));
    let Some(last) = spoken.max_by_key(|row| row.last_said_at) else { return Ok(false) };
    let id = registry::session_of(&last.key);
    let source = door.context.handle.source(InboxLane::Request);
    // A session that is not in memory rests.
    let read =
        source.read_state(move |engine| engine.state().session(&id).is_some_and(|session| !session.is_at_rest()));
    Ok(read.await.is_some_and(|(busy, _)| busy))
}

/// Reads the list of an agent, if it has one.
async fn read_list(door: &Arc<GsvAdapter>, agent: &str) -> Result<Option<String>, String> {
    let (folder, path) =
        (workspace::folder_of(door, Some(agent)), WorkspacePath::from_text(LIST).map_err(|fault| fault.message)?);
    let read = tokio::task::spawn_blocking(move || folder.read_text(&path)).await;
    match read.map_err(|error| error.to_string())? {
        Ok(found) => Ok(Some(found.text)),
        Err(WorkspaceError::Missing(_)) => Ok(None),
        Err(error) => Err(format!("{LIST} cannot be read: {error}")),
    }
}

/// Returns the target of a heartbeat's report. `None` if it has none.
fn notify_target(door: &GsvAdapter, fired: &DueFiring) -> Option<NotifyTarget> {
    let channel = match HeartbeatRules::for_agent(door, &fired.job.plan().agent).target {
        HeartbeatTarget::Nobody => return None,
        HeartbeatTarget::Last => None,
        HeartbeatTarget::Channel(channel) => Some(channel),
    };
    let is_required = channel.is_some();
    Some(NotifyTarget { channel, to: None, is_required })
}

/// Reports the agent's answer, unless it is empty or was reported a short while ago.
///
/// # Errors
/// The failure as text.
pub(super) async fn report_heartbeat(door: &Arc<GsvAdapter>, fired: &DueFiring) -> Result<schedule::Command, String> {
    let (over, answer) = firing::run_outcome(door, fired).await?;
    let (text, problem) = firing::answer_and_problem(&over, answer.as_ref());
    if let Some(problem) = problem {
        let report = match notify_target(door, fired) {
            Some(telling) if problem != CANCELLED => {
                let text = format!("The heartbeat failed: {}", firing::shorten_text(&problem));
                firing::tell_failure(door, fired, telling, text).await
            }
            Some(_) | None => None,
        };
        return Ok(firing::end_command(fired, FiringStatus::Failed, report.is_some(), Some(problem), report));
    }
    let last = match fired.job.last_report() {
        Some((at, place)) => firing::last_report(door, place).await.map(|text| (text, at)),
        None => None,
    };
    let last = last.as_ref().map(|(text, at)| (text.as_str(), *at));
    let text = match heartbeat_report(&text.unwrap_or_default(), last, door.context.clock.now()) {
        HeartbeatReport::Say(text) => text,
        HeartbeatReport::Nothing | HeartbeatReport::Repeated => {
            return Ok(firing::end_command(fired, FiringStatus::Ok, false, None, None));
        }
    };
    let Some(telling) = notify_target(door, fired) else {
        return Ok(firing::end_command(fired, FiringStatus::Ok, false, None, Some(text)));
    };
    Ok(match firing::deliver_report(door, fired, &over.session, telling, &text).await {
        Ok(was_sent) => firing::end_command(fired, FiringStatus::Ok, was_sent, None, Some(text)),
        Err(problem) => {
            let problem = format!("delivery failed: {problem}");
            firing::end_command(fired, FiringStatus::Failed, false, Some(problem), Some(text))
        }
    })
}

#[cfg(test)]
mod tests {
    use countersign_core::schedule::{ActiveHours, Zone};
    use serde_json::json;

    use super::{HeartbeatRules, HeartbeatTarget, PROMPT};

    #[test]
    fn what_an_agent_has_of_its_own_goes_before_what_all_have() {
        let tree = json!({ "agents": {
            "defaultHeartbeat": { "every": "30m", "target": "last", "activeHours": { "start": "08:00", "end": "23:00" } },
            "list": [
                { "id": "main" },
                { "id": "night", "heartbeat": { "every": "1h30m", "prompt": "look", "target": "wx",
                    "activeHours": { "start": "22:00", "timezone": "Europe/Berlin" } } },
                { "id": "off", "heartbeat": { "every": "0", "target": "none" } },
            ],
        } });
        let hours = |start, end, zone: &str| ActiveHours::new(start, end, zone.parse().unwrap()).ok();
        let day = hours("08:00", "23:00", "UTC");
        let rules =
            |every, prompt: &str, target, hours| HeartbeatRules { every, prompt: prompt.to_owned(), target, hours };
        for (agent, want) in [
            ("main", rules(Some(1_800_000), PROMPT, HeartbeatTarget::Last, day)),
            ("other", rules(Some(1_800_000), PROMPT, HeartbeatTarget::Last, day)),
            (
                "night",
                rules(
                    Some(5_400_000),
                    "look",
                    HeartbeatTarget::Channel("wx".to_owned()),
                    hours("22:00", "23:00", "Europe/Berlin"),
                ),
            ),
            ("off", rules(None, PROMPT, HeartbeatTarget::Nobody, day)),
        ] {
            assert_eq!(HeartbeatRules::from_tree(&tree, agent, Zone::UTC), want, "{agent}");
        }
    }
}
