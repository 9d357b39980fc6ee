//! Tool calls of an agent: what it says of them, what was decided, and whether they ran as they were allowed.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

use super::{
    call_files::{WORDS, absolute, is_content},
    tool_calls::{CallPlace, calls_of},
};
use crate::{agent_call::AgentCall, unknown_members::is_blank};

/// Members of a tool call that an update replaces.
const MEMBERS: [&str; 6] = ["title", "kind", "content", "locations", "rawInput", "_meta"];
/// Tools of one file.
const FILE_TOOLS: [&str; 3] = ["read", "write", "edit"];
/// Tools for which a location is a file that they change. For others it is a place that they have found.
const PLACE_TOOLS: [&str; 2] = ["delete", "move"];
/// Arguments of calls that agents add once the call runs, and that name its process.
const PROCESS_NAMES: [&str; 2] = ["process_id", "source"];
/// Most tool calls that are kept.
const MOST: usize = 512;

/// State of the decision about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionState {
    /// Not decided, or taken back before that.
    Waiting,
    Allowed,
    Denied,
}

/// Decision about a tool call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KnownDecision {
    Allowed(Vec<AgentCall>),
    Denied,
}

/// End of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    Completed,
    Failed,
}

impl CallEnd {
    /// Reads a status. One that is not known may be the end of a call that ran.
    pub(super) fn from_status(status: Option<&str>) -> Option<Self> {
        match status {
            None | Some("pending" | "in_progress") => None,
            Some("failed") => Some(Self::Failed),
            Some(_) => Some(Self::Completed),
        }
    }
}

/// Tool call as far as the agent has described it.
#[derive(Clone, Debug, Default)]
struct KnownCall {
    described: Map<String, Value>,
    decision: Option<DecisionState>,
    /// Calls that were allowed.
    allowed: Vec<AgentCall>,
    /// Calls that ran in another form, and are reported.
    reported: Vec<AgentCall>,
    has_completed: bool,
}

/// Tool calls of an agent, by session and id.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    known: BTreeMap<(String, String), KnownCall>,
    /// In the order in which they came.
    order: VecDeque<(String, String)>,
}

impl ToolCalls {
    /// Merges a description of a tool call with earlier ones, and returns all of it.
    pub(super) fn describe(&mut self, session: &str, id: &str, update: &Map<String, Value>) -> Map<String, Value> {
        let known = self.call(session, id);
        for name in MEMBERS {
            if let Some(value) = update.get(name).filter(|value| !value.is_null()) {
                known.described.insert(name.to_owned(), value.clone());
            }
        }
        known.described.clone()
    }

    /// Forgets a call that has completed as it was allowed: the agent uses its id for another one.
    pub(super) fn begin(&mut self, session: &str, id: &str) {
        let key = (session.to_owned(), id.to_owned());
        let is_over = |known: &KnownCall| known.has_completed && known.decision == Some(DecisionState::Allowed);
        if self.known.get(&key).is_some_and(is_over) {
            self.known.insert(key, KnownCall::default());
        }
    }

    /// Keeps that a call waits for its decision. Until then it must not run.
    pub(super) fn wait(&mut self, session: &str, id: &str) {
        self.call(session, id).decision = Some(DecisionState::Waiting);
    }

    /// Keeps a decision.
    pub(super) fn decide(&mut self, session: &str, id: &str, decision: KnownDecision) {
        let known = self.call(session, id);
        match decision {
            KnownDecision::Allowed(calls) => {
                known.decision = Some(DecisionState::Allowed);
                known.allowed.extend(calls);
            }
            KnownDecision::Denied => known.decision = Some(DecisionState::Denied),
        }
    }

    /// Takes in the end of a call. Returns the calls that ran in another form than they were allowed, each once.
    pub(super) fn end(&mut self, place: CallPlace<'_>, id: &str, end: CallEnd) -> Vec<AgentCall> {
        let key = (place.session.to_owned(), id.to_owned());
        let Some(known) = self.known.get_mut(&key) else { return Vec::new() };
        known.has_completed |= end == CallEnd::Completed;
        let differing = match (known.decision, end) {
            (None, _) => Vec::new(),
            // One that was refused is reported as failed.
            (Some(DecisionState::Waiting | DecisionState::Denied), CallEnd::Failed) => Vec::new(),
            (Some(DecisionState::Waiting | DecisionState::Denied), CallEnd::Completed) => {
                calls_of(place, Some(id), &known.described)
            }
            // One that failed may have done a part.
            (Some(DecisionState::Allowed), CallEnd::Completed | CallEnd::Failed) => {
                let ran = calls_of(place, Some(id), &known.described);
                let is_covered = |ran: &AgentCall| known.allowed.iter().any(|allowed| covers(allowed, ran));
                ran.into_iter().filter(|ran| !is_covered(ran)).collect()
            }
        };
        let new: Vec<AgentCall> = differing.into_iter().filter(|call| !known.reported.contains(call)).collect();
        known.reported.extend(new.clone());
        new
    }

    fn call(&mut self, session: &str, id: &str) -> &mut KnownCall {
        let key = (session.to_owned(), id.to_owned());
        if !self.known.contains_key(&key) {
            self.order.push_back(key.clone());
            while self.order.len() > MOST {
                if let Some(oldest) = self.order.pop_front() {
                    self.known.remove(&oldest);
                }
            }
        }
        self.known.entry(key).or_default()
    }
}

/// Reports whether a call that ran is the allowed one. Agents describe a call again in other members, and leave some out.
fn covers(allowed: &AgentCall, ran: &AgentCall) -> bool {
    let is_file = |call: &AgentCall| FILE_TOOLS.contains(&call.tool.as_str());
    if allowed.tool != ran.tool && !(is_file(allowed) && is_file(ran) && allowed.tool != "read") {
        return false;
    }
    ran.arguments.iter().all(|(name, value)| match name.as_str() {
        "path" if is_file(ran) => place_of(allowed, name) == place_of(ran, name),
        "cwd" if ran.tool == "bash" => place_of(allowed, name) == place_of(ran, name),
        "title" | "content_shown" => true,
        name if WORDS.contains(&name) => true,
        name => match allowed.arguments.get(name) {
            Some(allowed) => allowed == value,
            None => is_harmless_addition(allowed, name, value),
        },
    })
}

/// Returns the path in an argument as seen from the folder of the call, which it is if there is none.
fn place_of(call: &AgentCall, name: &str) -> Option<std::path::PathBuf> {
    match call.arguments.get(name) {
        None => Some(absolute(&call.cwd, "")),
        Some(value) => value.as_str().map(|path| absolute(&call.cwd, path)),
    }
}

/// Reports whether an argument that the allowed call did not have changes nothing about it.
fn is_harmless_addition(allowed: &AgentCall, name: &str, value: &Value) -> bool {
    let is_file = FILE_TOOLS.contains(&allowed.tool.as_str());
    // The change was shown in another form, for example as a diff.
    let is_shown = is_file && allowed.arguments.keys().any(|name| is_content(name));
    if is_blank(value) {
        return true;
    }
    match value {
        // Limits, and switches of a change that was shown.
        Value::Null | Value::Number(_) | Value::Bool(false) => true,
        Value::Bool(true) => is_shown,
        Value::String(_) | Value::Array(_) | Value::Object(_) if is_content(name) => is_shown,
        Value::String(_) if name.starts_with("location_path") => !PLACE_TOOLS.contains(&allowed.tool.as_str()),
        Value::String(_) | Value::Array(_) | Value::Object(_) => PROCESS_NAMES.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{CallEnd, KnownDecision, ToolCalls};
    use crate::acp::tool_calls::{CallPlace, TitleMeaning, calls_of};

    const PLACE: CallPlace<'_> = CallPlace { session: "s", cwd: "/w", titles: TitleMeaning::Words };

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// Describes a call, decides it (unless it waits), and ends it with each update and status. Returns the numbers of reports.
    fn reports(requested: Value, decision: Option<bool>, ends: &[(Value, &str)]) -> Vec<usize> {
        let mut calls = ToolCalls::default();
        let described = calls.describe("s", "t", &map(requested));
        calls.wait("s", "t");
        match decision {
            None => {}
            Some(true) => {
                calls.decide("s", "t", KnownDecision::Allowed(calls_of(PLACE, Some("t"), &described)));
            }
            Some(false) => calls.decide("s", "t", KnownDecision::Denied),
        }
        let end = |(update, status): &(Value, &str)| {
            calls.describe("s", "t", &map(update.clone()));
            CallEnd::from_status(Some(*status)).map_or(0, |end| calls.end(PLACE, "t", end).len())
        };
        ends.iter().map(end).collect()
    }

    #[test]
    fn a_command_that_ran_is_compared_with_the_one_that_was_allowed() {
        let requested = json!({"kind": "execute", "title": "t", "rawInput": {"command": "ls", "description": "d"}});
        let ran = |input: Value| json!({"rawInput": input});
        for (case, decision, update, status, want) in [
            ("the same", Some(true), json!({}), "completed", 0),
            ("other words", Some(true), ran(json!({"command": "ls", "description": "e"})), "completed", 0),
            ("members left out", Some(true), ran(json!({"command": "ls"})), "completed", 0),
            ("the folder of the session", Some(true), ran(json!({"command": "ls", "cwd": "/w/"})), "completed", 0),
            ("a time limit", Some(true), ran(json!({"command": "ls", "timeout": 5})), "completed", 0),
            ("another command", Some(true), ran(json!({"command": "rm x"})), "completed", 1),
            ("another command that failed", Some(true), ran(json!({"command": "rm x"})), "failed", 1),
            ("the same that failed", Some(true), json!({}), "failed", 0),
            ("another folder", Some(true), ran(json!({"command": "ls", "cwd": "/etc"})), "completed", 1),
            ("a variable", Some(true), ran(json!({"command": "ls", "env": {"LD_PRELOAD": "/x"}})), "completed", 1),
            ("an input", Some(true), ran(json!({"command": "ls", "stdin": "rm x"})), "completed", 1),
            ("no input", Some(true), ran(json!({})), "completed", 1),
            ("a status of another form", Some(true), ran(json!({"command": "rm x"})), "Completed", 1),
            ("in progress", Some(true), ran(json!({"command": "rm x"})), "in_progress", 0),
            ("denied, and ran", Some(false), json!({}), "completed", 1),
            ("denied, and failed", Some(false), json!({}), "failed", 0),
            ("not decided, and ran", None, json!({}), "completed", 1),
            ("not decided, and failed", None, json!({}), "failed", 0),
        ] {
            assert_eq!(reports(requested.clone(), decision, &[(update, status)]), [want], "{case}");
        }
    }

    #[test]
    fn a_call_that_ends_again_is_compared_again_and_reported_once() {
        let requested = json!({"kind": "execute", "rawInput": {"command": "ls"}});
        let other = json!({"rawInput": {"command": "rm x"}});
        let same = json!({});
        for (decision, ends, want) in [
            (Some(false), [(&same, "failed"), (&same, "completed"), (&same, "completed")], [0, 1, 0]),
            (Some(true), [(&same, "completed"), (&other, "completed"), (&other, "failed")], [0, 1, 0]),
            (Some(true), [(&same, "failed"), (&same, "completed"), (&other, "failed")], [0, 0, 1]),
        ] {
            let ends = ends.map(|(update, status)| (update.clone(), status));
            assert_eq!(reports(requested.clone(), decision, &ends), want);
        }
    }

    #[test]
    fn a_decision_after_the_end_reports_nothing_twice() {
        let mut calls = ToolCalls::default();
        calls.describe("s", "t", &map(json!({"kind": "execute", "rawInput": {"command": "ls"}})));
        calls.wait("s", "t");
        assert_eq!(calls.end(PLACE, "t", CallEnd::Completed).len(), 1);
        calls.decide("s", "t", KnownDecision::Denied);
        assert_eq!(calls.end(PLACE, "t", CallEnd::Completed).len(), 0);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_call() {
        let mut calls = ToolCalls::default();
        let described = calls.describe("s", "t", &map(json!({"kind": "execute", "rawInput": {"command": "ls"}})));
        calls.decide("s", "t", KnownDecision::Allowed(calls_of(PLACE, Some("t"), &described)));
        calls.begin("s", "t");
        assert_eq!(calls.end(PLACE, "t", CallEnd::Completed).len(), 0);
        calls.begin("s", "t");
        calls.describe("s", "t", &map(json!({"kind": "read", "rawInput": {"path": "/w/a"}})));
        assert_eq!(calls.end(PLACE, "t", CallEnd::Completed).len(), 0);
    }

    #[test]
    fn a_file_that_was_allowed_may_be_described_otherwise_but_be_no_other_file() {
        let shown = json!({"path": "/w/a", "newString": "y"});
        let hidden = json!({"path": "/w/a"});
        for (allowed, ran, want) in [
            (&shown, json!({"filePath": "/w/a", "oldString": "x"}), 0),
            (&shown, json!({"filePath": "/w/a", "content": "z", "replaceAll": true}), 0),
            (&shown, json!({"path": "a"}), 0),
            (&shown, json!({"path": "/w/b"}), 1),
            (&shown, json!({"path": "/w/a", "newString": "z"}), 1),
            (&shown, json!({"path": "/w/a", "newString": "y", "paths": ["/etc/x"]}), 2),
            (&hidden, json!({"path": "/w/a", "content": "z"}), 1),
            (&hidden, json!({"path": "/w/a", "edits": [{"new_string": "z"}]}), 1),
        ] {
            let requested = json!({"kind": "edit", "rawInput": allowed});
            let ends = [(json!({"rawInput": ran}), "completed")];
            assert_eq!(reports(requested, Some(true), &ends), [want], "{ran}");
        }
    }
}
