//! The index of a session's tree, its queues and its current work.

mod message_queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

pub use self::message_queue::{MessageQueue, QueuedMessage};
use super::{
    agent_requests::AgentRequests,
    compaction::ActiveCompaction,
    event::{CompactionCause, Event, SessionEntryKind},
    idempotency::{IdempotencyKeys, KeyedRecord},
    settings::Settings,
    staged_entries::StagedEntries,
    withheld_calls::WithheldCalls,
};
use crate::{
    digest::Digest,
    gate::GateStage,
    id::{CallId, EntryId, GateId, Lsn, RunId, SessionId},
    time::Millis,
    unattended::UnattendedContract,
};

/// An entry of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// Its name.
    pub id: EntryId,
    /// The entry before it.
    pub parent: Option<EntryId>,
    /// Its kind.
    pub kind: SessionEntryKind,
    /// The record that added it.
    pub lsn: Lsn,
    /// Position of its content.
    pub content: Lsn,
    /// Time of its creation.
    pub at: Millis,
    /// An estimate of its length.
    pub tokens: u64,
    /// False if the model no longer sees it.
    pub shown: bool,
    /// The record since which the model sees a notice in its place.
    pub pruned: Option<Lsn>,
}

/// State of a session whose rules come from its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedState {
    /// Realm of permanent grants that it shares with other sessions.
    pub realm: String,
    /// Digest of the rules in force, wherever they are loaded.
    pub rules: Digest,
}

/// One conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub(crate) id: SessionId,
    pub(crate) opened_at: Millis,
    pub(crate) cwd: String,
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<String>,
    #[serde(default)]
    pub(crate) door: Option<String>,
    pub(crate) settings: Settings,
    pub(crate) entries: Vec<SessionEntry>,
    /// Index of each entry. Rebuilt from the entries when a session is read back.
    #[serde(skip)]
    pub(crate) by_id: BTreeMap<EntryId, usize>,
    pub(crate) leaf: Option<EntryId>,
    /// Staged entries of the session's file.
    #[serde(default)]
    pub(crate) gathering: Option<StagedEntries>,
    /// The last run that added an entry, and its first entry.
    #[serde(default)]
    pub(crate) began: Option<(RunId, EntryId)>,
    pub(crate) steering: VecDeque<QueuedMessage>,
    pub(crate) follow_up: VecDeque<QueuedMessage>,
    pub(crate) prompts: VecDeque<QueuedMessage>,
    pub(crate) held: VecDeque<QueuedMessage>,
    #[serde(default)]
    pub(crate) next: VecDeque<QueuedMessage>,
    pub(crate) compaction: Option<ActiveCompaction>,
    pub(crate) compactions: u32,
    pub(crate) overflow_tried: bool,
    /// True if the context was compacted since the last message of a person because it had grown too long.
    #[serde(default)]
    pub(crate) sum_tried: bool,
    /// Number of restarts, and the time of the last.
    #[serde(default)]
    pub(crate) renewals: (u32, Option<Millis>),
    pub(crate) file: Option<(String, u64, String)>,
    /// Folder of the shell; absent means the folder of the session.
    pub(crate) folder: Option<String>,
    /// True if a call that may change something ran in it: its shell may have been used.
    #[serde(default)]
    pub(crate) is_shell_used: bool,
    pub(crate) open_tasks: u32,
    pub(crate) reminded: u32,
    /// The run that works in it. Kept by the engine's `apply` for runs.
    pub(crate) run: Option<RunId>,
    /// Commands of a person that run in it.
    pub(crate) commands: BTreeSet<CallId>,
    /// Requests of the agent, if the session is one's.
    #[serde(default)]
    pub(crate) requester: Option<Box<AgentRequests>>,
    /// Absent: it has the rules of the process that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosted: Option<HostedState>,
    /// Contract that binds all that works in it, if it works without approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unattended: Option<Box<UnattendedContract>>,
    /// Reason for which calls with an effect are held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<WithheldCalls>,
    /// The log that it continues in, in the form of the component that moved it. This one only has its past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left_for: Option<String>,
    /// Commands that it has executed under keys.
    #[serde(default, skip_serializing_if = "IdempotencyKeys::is_empty")]
    pub(crate) keys: IdempotencyKeys,
    /// Number of its gates.
    pub(crate) gates: u32,
    /// Counted gates, by stage and in order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) stages: BTreeMap<GateStage, Vec<GateId>>,
    /// Time of the last event in it.
    pub(crate) last_at: Millis,
}

impl Session {
    pub(crate) fn from_opened(id: &SessionId, event: &Event, at: Millis) -> Option<Self> {
        let Event::Opened { cwd, name, parent, door } = event else { return None };
        Some(Self {
            id: id.clone(),
            opened_at: at,
            cwd: cwd.clone(),
            name: name.clone(),
            parent: parent.clone(),
            door: door.clone(),
            settings: Settings::default(),
            entries: Vec::new(),
            by_id: BTreeMap::new(),
            leaf: None,
            gathering: None,
            began: None,
            steering: VecDeque::new(),
            follow_up: VecDeque::new(),
            prompts: VecDeque::new(),
            held: VecDeque::new(),
            next: VecDeque::new(),
            compaction: None,
            compactions: 0,
            overflow_tried: false,
            sum_tried: false,
            renewals: (0, None),
            file: None,
            folder: None,
            is_shell_used: false,
            open_tasks: 0,
            reminded: 0,
            run: None,
            commands: BTreeSet::new(),
            requester: None,
            hosted: None,
            unattended: None,
            withheld: None,
            left_for: None,
            keys: IdempotencyKeys::default(),
            gates: 0,
            stages: BTreeMap::new(),
            last_at: at,
        })
    }

    /// Returns its id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the time at which it was opened.
    pub fn opened_at(&self) -> Millis {
        self.opened_at
    }

    /// Returns the folder that its tools work in.
    pub fn cwd(&self) -> &str {
        &self.cwd
    }

    /// Returns the folder that its shell is in.
    pub fn folder(&self) -> &str {
        self.folder.as_deref().unwrap_or(&self.cwd)
    }

    /// Returns its display name.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the session that it came from.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Returns the adapter that it was opened through, if known.
    pub fn door(&self) -> Option<&str> {
        self.door.as_deref()
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns all entries in the order in which they came, all branches.
    pub fn entries(&self) -> &[SessionEntry] {
        &self.entries
    }

    /// Returns the entry that the next one follows.
    pub fn leaf(&self) -> Option<&EntryId> {
        self.leaf.as_ref()
    }

    /// Returns an entry.
    pub fn entry(&self, id: &EntryId) -> Option<&SessionEntry> {
        self.by_id.get(id).map(|&at| &self.entries[at])
    }

    /// Returns the run that works in it.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the active compaction.
    pub fn active_compaction(&self) -> Option<&ActiveCompaction> {
        self.compaction.as_ref()
    }

    /// Returns commands of a person that run in it.
    pub fn commands(&self) -> impl Iterator<Item = CallId> + '_ {
        self.commands.iter().copied()
    }

    /// Returns the last record of its file: path, length and digest.
    pub fn session_file(&self) -> Option<(&str, u64, &str)> {
        self.file.as_ref().map(|(path, length, digest)| (path.as_str(), *length, digest.as_str()))
    }

    /// Reports whether nothing works in it: no run, no compaction, no command.
    pub fn is_at_rest(&self) -> bool {
        self.run.is_none() && self.compaction.is_none() && self.commands.is_empty()
    }

    /// Returns the commands that it has executed under keys.
    pub fn idempotency_keys(&self) -> &IdempotencyKeys {
        &self.keys
    }

    /// Returns the state of its host's rules, if its rules come from its host.
    pub fn hosted_state(&self) -> Option<&HostedState> {
        self.hosted.as_ref()
    }

    /// Returns the contract that binds all that works in it, if it works without approvers.
    pub fn unattended(&self) -> Option<&UnattendedContract> {
        self.unattended.as_deref()
    }

    /// Returns the log that it continues in, if that is not this one.
    pub fn left_for(&self) -> Option<&str> {
        self.left_for.as_deref()
    }

    /// Returns the requests of the agent, if the session is one's.
    pub fn agent_requests(&self) -> Option<&AgentRequests> {
        self.requester.as_deref()
    }

    /// Reports whether it may be unloaded: nothing works or waits in it. The log has it all. There are few agents, and each sends
    /// requests often: their sessions stay.
    pub(crate) fn may_park(&self) -> bool {
        let queues = [&self.steering, &self.follow_up, &self.prompts, &self.held, &self.next];
        let is_asked = self.unattended().is_some_and(|unattended| unattended.gate_ids().next().is_some());
        self.is_at_rest() && self.requester.is_none() && !is_asked && queues.iter().all(|queue| queue.is_empty())
    }

    /// Rebuilds the index that a stored form leaves out.
    pub(crate) fn index(&mut self) {
        self.by_id = self.entries.iter().enumerate().map(|(at, entry)| (entry.id.clone(), at)).collect();
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event, lsn: Lsn, at: Millis, boot: u32) {
        match event {
            Event::Opened { .. } | Event::CompactionDropped { .. } | Event::SequenceRecorded { .. } => {}
            Event::Hosted { realm, rules } => self.hosted = Some(HostedState { realm: realm.clone(), rules: *rules }),
            Event::LeftFor { home } => self.left_for = Some(home.clone()),
            Event::CameFrom { .. } => self.left_for = None,
            Event::Set(setting) => self.settings.apply_setting(setting),
            Event::Named { name } => self.name = Some(name.clone()),
            Event::Entry { id, parent, kind, tokens, made_at, content_at } => {
                if *kind == SessionEntryKind::User {
                    self.overflow_tried = false;
                    self.sum_tried = false;
                    self.reminded = 0;
                }
                // The model accepted the request: the next that is too long is another.
                self.overflow_tried &= !kind.is_answer();
                if let Some(run) = self.run.filter(|run| self.began.as_ref().is_none_or(|(began, _)| began != run)) {
                    self.began = Some((run, id.clone()));
                }
                self.by_id.insert(id.clone(), self.entries.len());
                self.entries.push(SessionEntry {
                    id: id.clone(),
                    parent: parent.clone(),
                    kind: kind.clone(),
                    lsn,
                    content: content_at.unwrap_or(lsn),
                    at: made_at.unwrap_or(at),
                    tokens: *tokens,
                    shown: true,
                    pruned: None,
                });
                self.leaf = Some(id.clone());
            }
            Event::Gathering => self.gathering = Some(StagedEntries::default()),
            Event::Kept { entries } => {
                let kept = entries.iter().filter_map(|id| self.by_id.get(id).map(|&at| self.entries[at].clone()));
                let kept: Vec<SessionEntry> = kept.collect();
                let gathering = self.gathering.get_or_insert_default();
                kept.into_iter().for_each(|entry| gathering.push(entry));
            }
            Event::Gathered { id, parent, kind, tokens, made_at } => {
                self.gathering.get_or_insert_default().push(SessionEntry {
                    id: id.clone(),
                    parent: parent.clone(),
                    kind: kind.clone(),
                    lsn,
                    content: lsn,
                    at: made_at.unwrap_or(at),
                    tokens: *tokens,
                    shown: true,
                    pruned: None,
                });
            }
            Event::Replaced { leaf } => {
                let StagedEntries { entries, by_id } = self.gathering.take().unwrap_or_default();
                self.entries = entries;
                self.by_id = by_id;
                self.leaf.clone_from(leaf);
            }
            Event::Moved { leaf, .. } => self.leaf.clone_from(leaf),
            Event::Queued { queue, tokens, kind, marks, behind } => {
                let queued =
                    QueuedMessage { content: lsn, at, tokens: *tokens, kind: kind.clone(), marks: marks.clone() };
                let waiting = self.queue_mut(*queue);
                let is_ahead = |queued: &QueuedMessage| queued.marks.as_ref().is_some_and(|marks| marks.ahead);
                // Most go to the end, however many wait.
                let place = is_ahead(&queued).then(|| {
                    let first = behind.and_then(|first| waiting.iter().position(|other| other.content == first));
                    let begun = first.map_or(0, |at| at + 1);
                    waiting.iter().skip(begun).position(|other| !is_ahead(other)).map(|behind| begun + behind)
                });
                waiting.insert(place.flatten().unwrap_or(waiting.len()), queued);
            }
            Event::Dequeued { queue } => {
                self.queue_mut(*queue).pop_front();
            }
            Event::Cleared => {
                self.steering.clear();
                self.follow_up.clear();
                self.prompts.clear();
                self.next.clear();
            }
            Event::Renewed => self.start_anew(at),
            // The executor of owed work reads it from the record.
            Event::Remembered { .. } => {}
            Event::Trimmed { first_kept } => self.trim_before(first_kept),
            Event::Dropped { entry } => self.change_entry(entry, |entry| entry.shown = false),
            Event::Pruned { entries } => {
                for entry in entries {
                    self.change_entry(entry, |entry| entry.pruned = Some(lsn));
                }
            }
            Event::CompactionStarted { epoch, reason, first_kept, split_from, tokens_before, then, run, marks } => {
                self.compactions = *epoch;
                self.sum_tried |= *reason == CompactionCause::Threshold;
                if *reason == CompactionCause::Overflow {
                    self.overflow_tried = true;
                }
                self.compaction = Some(ActiveCompaction {
                    epoch: *epoch,
                    reason: *reason,
                    first_kept: first_kept.clone(),
                    split_from: split_from.clone(),
                    tokens_before: *tokens_before,
                    then: then.clone(),
                    aborting: false,
                    instructions: lsn,
                    boot,
                    run: *run,
                    marks: marks.clone(),
                });
            }
            Event::CompactionAborting => {
                if let Some(compaction) = &mut self.compaction {
                    compaction.aborting = true;
                }
            }
            Event::CompactionEnded { .. } => self.compaction = None,
            Event::FileWritten { path, length, digest } => self.file = Some((path.clone(), *length, digest.clone())),
            Event::Relocated { cwd } => {
                self.cwd.clone_from(cwd);
                self.folder = None;
            }
            Event::Folder { path } => self.folder = Some(path.clone()),
            Event::Tasks { open } => self.open_tasks = *open,
            Event::Reminded { attempt } => self.reminded = *attempt,
            Event::Keyed { name, asks, came_to } => {
                self.keys.record_key(name, KeyedRecord { asks: *asks, came_to: *came_to })
            }
        }
    }

    fn change_entry(&mut self, id: &EntryId, change: impl FnOnce(&mut SessionEntry)) {
        if let Some(&at) = self.by_id.get(id) {
            change(&mut self.entries[at]);
        }
    }
}
