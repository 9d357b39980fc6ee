//! Items of threads that ran: compared with what was decided about them.

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::{
    CodexProxy,
    approvals::{FileChanges, ThreadPlace, file_calls, text, thread_of},
};
use crate::{
    agent_call::AgentCall,
    command_words::without_shell,
    interceptor::{ProxyAction, ProxyActions},
};

/// Tool of a command.
const COMMAND: &str = "exec_command";
/// Tools of the files of a change.
const FILE_TOOLS: [&str; 3] = ["write", "edit", "delete"];
/// Most items that are kept.
const MOST_ITEMS: usize = 512;

/// State of the decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionState {
    /// Not decided, or settled by Codex before that.
    Waiting,
    Allowed,
    Denied,
}

/// Item of a thread, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownItem {
    pub(super) changes: Option<FileChanges>,
    decision: Option<DecisionState>,
    /// Calls that were allowed.
    allowed: Vec<AgentCall>,
    /// Calls that ran in another form, and are reported.
    reported: Vec<AgentCall>,
}

impl CodexProxy {
    fn item(&mut self, thread: &str, item: &str) -> &mut KnownItem {
        let key = (thread.to_owned(), item.to_owned());
        if !self.items.contains_key(&key) {
            self.item_order.push_back(key.clone());
            while self.item_order.len() > MOST_ITEMS {
                if let Some(oldest) = self.item_order.pop_front() {
                    self.items.remove(&oldest);
                }
            }
        }
        self.items.entry(key).or_default()
    }

    /// Keeps that an item waits for its decision. Until then it must not run.
    pub(super) fn item_waits(&mut self, thread: &str, item: &str, calls: &[AgentCall]) {
        if is_item_run(calls) {
            self.item(thread, item).decision = Some(DecisionState::Waiting);
        }
    }

    /// Keeps the decision about an item.
    pub(super) fn item_decided(&mut self, thread: &str, item: &str, calls: Vec<AgentCall>, is_allowed: bool) {
        if !is_item_run(&calls) {
            return;
        }
        let known = self.item(thread, item);
        if is_allowed {
            known.decision = Some(DecisionState::Allowed);
            known.allowed.extend(calls);
        } else {
            known.decision = Some(DecisionState::Denied);
        }
    }

    pub(super) fn read_changes(&mut self, params: &Value) {
        let (Some(thread), Some(item)) = (thread_of(params), text(params, "itemId")) else { return };
        if let Some(changes) = params.get("changes").and_then(Value::as_array) {
            self.item(thread, item).changes = Some(changes.clone());
        }
    }

    /// Keeps the changes of an item, and compares one that ran with what was decided.
    pub(super) fn read_item(&mut self, is_completed: bool, params: &Value, actions: &mut ProxyActions) {
        let (Some(thread), Some(item)) = (thread_of(params), params.get("item")) else { return };
        let Some(id) = text(item, "id") else { return };
        let changes = item.get("changes").and_then(Value::as_array).filter(|changes| !changes.is_empty()).cloned();
        if !is_completed {
            if text(item, "type") == Some("fileChange") {
                self.item(thread, id).changes = changes;
            }
            return;
        }
        let Some(known) = self.items.get(&(thread.to_owned(), id.to_owned())) else { return };
        let (Some(decision), Some(status @ ("completed" | "failed"))) = (known.decision, text(item, "status")) else {
            return;
        };
        let place = ThreadPlace { thread, cwd: self.cwd_of(thread) };
        let ran = match text(item, "type") {
            Some("commandExecution") => vec![self.command_that_ran(thread, id, item)],
            Some("fileChange") => {
                let changes = changes.or_else(|| known.changes.clone()).unwrap_or_default();
                let unnamed = || self.client_call(thread, "edit", Map::new());
                file_calls(&changes, &Value::Null, place, Some(id)).unwrap_or_else(|_| vec![unnamed()])
            }
            _ => return,
        };
        let differing: Vec<AgentCall> = match (decision, status) {
            // One that was refused may be reported as failed.
            (DecisionState::Waiting | DecisionState::Denied, "failed") => Vec::new(),
            (DecisionState::Waiting | DecisionState::Denied, _) => ran,
            (DecisionState::Allowed, _) => {
                ran.into_iter().filter(|ran| !known.allowed.iter().any(|allowed| covers(allowed, ran))).collect()
            }
        };
        let known = self.item(thread, id);
        let new: Vec<AgentCall> = differing.into_iter().filter(|call| !known.reported.contains(call)).collect();
        known.reported.extend(new.clone());
        actions.extend(new.into_iter().map(ProxyAction::Report));
    }

    fn command_that_ran(&self, thread: &str, id: &str, item: &Value) -> AgentCall {
        let ran = without_shell(text(item, "command").unwrap_or_default());
        let mut arguments = Map::from_iter([("command".to_owned(), Value::from(ran))]);
        if let Some(cwd) = text(item, "cwd") {
            arguments.insert("workdir".to_owned(), cwd.into());
        }
        AgentCall { id: Some(id.to_owned()), ..self.client_call(thread, COMMAND, arguments) }
    }
}

/// Reports whether calls are what an item itself does. A connection, or a text to a terminal, is asked about while the item runs.
fn is_item_run(calls: &[AgentCall]) -> bool {
    calls.first().is_some_and(|call| call.tool == COMMAND || FILE_TOOLS.contains(&call.tool.as_str()))
}

/// Reports whether a call that ran is the allowed one.
fn covers(allowed: &AgentCall, ran: &AgentCall) -> bool {
    let is_same = |name: &str| ran.arguments.get(name) == allowed.arguments.get(name);
    // Either side may leave the text of a change out.
    let may_be_same = |name: &str| is_same(name) || !ran.arguments.contains_key(name);
    let place = |call: &AgentCall, name: &str| {
        absolute(&call.cwd, call.arguments.get(name).and_then(Value::as_str).unwrap_or_default())
    };
    allowed.tool == ran.tool
        && if ran.tool == COMMAND {
            let is_same_folder =
                !ran.arguments.contains_key("workdir") || place(allowed, "workdir") == place(ran, "workdir");
            is_same("command") && is_same_folder
        } else {
            place(allowed, "path") == place(ran, "path")
                && is_same("moved_from")
                && may_be_same("diff")
                && may_be_same("content")
        }
}

/// Returns a path as seen from a folder, without `.` and `..`.
fn absolute(cwd: &str, path: &str) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in Path::new(cwd).join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}
