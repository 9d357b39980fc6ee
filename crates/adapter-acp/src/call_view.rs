//! A call as an editor shows it: title, kind, files, change.
//!
//! It must not shorten what a person decides about: the exact arguments are always there.

use std::path::Path;

use countersign_acp_protocol::{
    ContentBlock, PlanEntry, PlanStatus, SessionUpdate, ToolCall, ToolCallContent, ToolCallFields, ToolCallStatus,
    ToolKind, ToolLocation,
};
use countersign_core::message::{MessageBlock, ToolResult, text_of};
use countersign_view::{LineMode, escape};
use serde_json::{Map, Value, json};

/// Longest title, in characters.
const TITLE: usize = 200;
/// Tool that keeps the list of tasks.
const TODO: &str = "todo_write";

/// A call in the form in which the editor shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallView {
    /// The model's id of the call.
    pub(crate) id: String,
    /// The tool.
    pub(crate) tool: String,
    /// The arguments.
    pub(crate) arguments: Map<String, Value>,
}

impl CallView {
    /// Returns its parts for an editor, in a session whose folder is `cwd`.
    pub(crate) fn fields(&self, cwd: &str, status: ToolCallStatus) -> ToolCallFields {
        let diff = self.diff(cwd);
        ToolCallFields {
            title: Some(self.title()),
            name: Some(escape(&self.tool, LineMode::One).into_owned()),
            kind: Some(kind_of(&self.tool)),
            status: Some(status),
            content: diff.map(|diff| vec![diff]),
            locations: Some(self.locations(cwd)),
            raw_input: Some(Value::Object(self.arguments.clone())),
            raw_output: None,
        }
    }

    /// Returns the update that it begins.
    pub(crate) fn begun(&self, cwd: &str, status: ToolCallStatus) -> SessionUpdate {
        SessionUpdate::ToolCall(ToolCall { tool_call_id: self.id.clone(), fields: self.fields(cwd, status) })
    }

    /// Returns the change of a file that it asks for, as far as its arguments show it.
    pub(crate) fn diff(&self, cwd: &str) -> Option<ToolCallContent> {
        let text = |name: &str| self.arguments.get(name).and_then(Value::as_str).map(str::to_owned);
        let path = absolute(cwd, self.arguments.get("path")?.as_str()?);
        match self.tool.as_str() {
            "write" => Some(ToolCallContent::Diff { path, old_text: None, new_text: text("content")? }),
            "edit" => {
                let (old_text, new_text) = (text("old_text")?, text("new_text")?);
                Some(ToolCallContent::Diff { path, old_text: Some(old_text), new_text })
            }
            _ => None,
        }
    }

    fn title(&self) -> String {
        let argument = |name: &str| self.arguments.get(name).and_then(Value::as_str);
        let subject = match self.tool.as_str() {
            "bash" => argument("command").map(str::to_owned),
            tool => argument("path").or_else(|| argument("pattern")).map(|subject| format!("{tool} {subject}")),
        };
        let title = escape(subject.as_deref().unwrap_or(&self.tool), LineMode::One).into_owned();
        match title.char_indices().nth(TITLE) {
            Some((end, _)) => format!("{}…", &title[..end]),
            None => title,
        }
    }

    fn locations(&self, cwd: &str) -> Vec<ToolLocation> {
        if !matches!(kind_of(&self.tool), ToolKind::Read | ToolKind::Edit | ToolKind::Search) {
            return Vec::new();
        }
        let path = self.arguments.get("path").and_then(Value::as_str);
        path.map(|path| ToolLocation { path: absolute(cwd, path), line: None }).into_iter().collect()
    }

    /// Returns the updates that it ended with: its result, and the list of tasks if it changed that.
    pub(crate) fn ended(&self, cwd: &str, status: ToolCallStatus, result: Option<&ToolResult>) -> Vec<SessionUpdate> {
        // A change that did not happen must not look like one.
        let diff = self.diff(cwd).filter(|_| status == ToolCallStatus::Completed);
        let mut content: Vec<ToolCallContent> = diff.into_iter().collect();
        content.extend(result.into_iter().flat_map(|result| result_content(&result.content)));
        let first_line = result.and_then(|result| result.details.as_ref()?.get("firstChangedLine")?.as_u64());
        let line = first_line.and_then(|line| u32::try_from(line).ok());
        let fields = ToolCallFields {
            status: Some(status),
            content: (!content.is_empty()).then_some(content),
            locations: line.map(|line| {
                let at_line = |location| ToolLocation { line: Some(line), ..location };
                self.locations(cwd).into_iter().map(at_line).collect()
            }),
            raw_output: result.map(raw_output),
            ..ToolCallFields::default()
        };
        let ended = SessionUpdate::ToolCallUpdate(ToolCall { tool_call_id: self.id.clone(), fields });
        let plan = result.filter(|result| self.tool == TODO && !result.is_error).and_then(plan_of);
        std::iter::once(ended).chain(plan).collect()
    }
}

/// Returns the blocks of a result as content.
pub(crate) fn result_content(blocks: &[MessageBlock]) -> Vec<ToolCallContent> {
    let content = blocks.iter().filter_map(|block| match block {
        MessageBlock::Text(text) => Some(ToolCallContent::from_text(text.text.as_str())),
        MessageBlock::Image(image) => {
            let (data, mime_type) = (image.data.clone(), image.mime_type.clone());
            Some(ToolCallContent::Content { content: ContentBlock::Image { data, mime_type } })
        }
        MessageBlock::Thinking(_) | MessageBlock::RedactedThinking { .. } | MessageBlock::ToolCall(_) => None,
    });
    content.collect()
}

fn raw_output(result: &ToolResult) -> Value {
    let mut output = json!({ "output": text_of(&result.content), "isError": result.is_error });
    if let Some(details) = result.details.as_ref().filter(|details| details.as_object().is_some_and(|d| !d.is_empty()))
    {
        output["details"] = details.clone();
    }
    output
}

/// Returns the list of tasks after a change of it. Tasks that were given up are left out.
fn plan_of(result: &ToolResult) -> Option<SessionUpdate> {
    let phases = result.details.as_ref()?.get("phases")?.as_array()?;
    let tasks = phases.iter().filter_map(|phase| phase.get("tasks")?.as_array()).flatten();
    let entries = tasks.filter_map(|task| {
        let status = match task.get("status")?.as_str()? {
            "pending" => PlanStatus::Pending,
            "in_progress" => PlanStatus::InProgress,
            "completed" => PlanStatus::Completed,
            _ => return None,
        };
        let content = escape(task.get("content")?.as_str()?, LineMode::One).into_owned();
        Some(PlanEntry { content, priority: "medium", status })
    });
    Some(SessionUpdate::Plan { entries: entries.collect() })
}

fn kind_of(tool: &str) -> ToolKind {
    match tool {
        "read" | "ls" => ToolKind::Read,
        "write" | "edit" => ToolKind::Edit,
        "grep" | "find" => ToolKind::Search,
        "bash" => ToolKind::Execute,
        "ask" | TODO => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// Returns a path as it is meant in a folder.
fn absolute(cwd: &str, path: &str) -> String {
    Path::new(cwd).join(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use countersign_acp_protocol::{
        PlanEntry, PlanStatus, SessionUpdate, ToolCallContent, ToolCallStatus, ToolKind, ToolLocation,
    };
    use countersign_core::message::{MessageBlock, ToolResult};
    use serde_json::{Value, json};

    use super::CallView;

    fn call(tool: &str, arguments: Value) -> CallView {
        let arguments = arguments.as_object().unwrap().clone();
        CallView { id: "c".to_owned(), tool: tool.to_owned(), arguments }
    }

    #[test]
    fn a_call_shows_what_it_would_do_and_its_exact_arguments() {
        let diff = |path: &str, old: Option<&str>, new: &str| {
            let (path, old_text) = (path.to_owned(), old.map(str::to_owned));
            Some(vec![ToolCallContent::Diff { path, old_text, new_text: new.to_owned() }])
        };
        for (tool, arguments, title, kind, locations, content) in [
            ("bash", json!({ "command": "ls\n\u{202e}x" }), "ls\\u{a}\\u{202e}x", ToolKind::Execute, vec![], None),
            ("read", json!({ "path": "a.rs" }), "read a.rs", ToolKind::Read, vec!["/w/a.rs"], None),
            ("grep", json!({ "pattern": "x" }), "grep x", ToolKind::Search, vec![], None),
            (
                "write",
                json!({ "path": "/w/b", "content": "t" }),
                "write /w/b",
                ToolKind::Edit,
                vec!["/w/b"],
                diff("/w/b", None, "t"),
            ),
            (
                "edit",
                json!({ "path": "b", "old_text": "1", "new_text": "2" }),
                "edit b",
                ToolKind::Edit,
                vec!["/w/b"],
                diff("/w/b", Some("1"), "2"),
            ),
            ("edit", json!({ "path": "b", "edits": [] }), "edit b", ToolKind::Edit, vec!["/w/b"], None),
            ("mcp__d__t", json!({ "path": "b" }), "mcp__d__t b", ToolKind::Other, vec![], None),
        ] {
            let fields = call(tool, arguments.clone()).fields("/w", ToolCallStatus::Pending);
            assert_eq!(fields.title.as_deref(), Some(title));
            assert_eq!(fields.kind, Some(kind), "{title}");
            let want: Vec<ToolLocation> =
                locations.into_iter().map(|path: &str| ToolLocation { path: path.to_owned(), line: None }).collect();
            assert_eq!(fields.locations, Some(want), "{title}");
            assert_eq!(fields.content, content, "{title}");
            assert_eq!(fields.raw_input, Some(arguments), "{title}");
        }
    }

    #[test]
    fn only_a_change_that_happened_is_shown_as_one() {
        let edit = call("edit", json!({ "path": "b", "old_text": "1", "new_text": "2" }));
        let result = ToolResult { content: vec![MessageBlock::from_text("r")], ..ToolResult::default() };
        let text = ToolCallContent::from_text("r");
        for (status, want) in [
            (ToolCallStatus::Completed, vec![edit.diff("/w").unwrap(), text.clone()]),
            (ToolCallStatus::Failed, vec![text]),
        ] {
            let [SessionUpdate::ToolCallUpdate(update)] = &edit.ended("/w", status, Some(&result))[..] else {
                panic!("{status:?}")
            };
            assert_eq!(update.fields.content.as_ref(), Some(&want), "{status:?}");
        }
    }

    #[test]
    fn a_list_of_tasks_is_a_plan_without_those_that_were_given_up() {
        let task = |content: &str, status: &str| json!({ "id": "t", "content": content, "status": status });
        let tasks = [task("a", "completed"), task("b", "in_progress"), task("c", "abandoned"), task("d", "pending")];
        let result = ToolResult {
            content: vec![MessageBlock::from_text("ok")],
            details: Some(json!({ "phases": [{ "id": "p", "name": "n", "tasks": tasks }] })),
            ..ToolResult::default()
        };
        let updates = call("todo_write", json!({ "ops": [] })).ended("/w", ToolCallStatus::Completed, Some(&result));
        let entry = |content: &str, status| PlanEntry { content: content.to_owned(), priority: "medium", status };
        let entries = vec![
            entry("a", PlanStatus::Completed),
            entry("b", PlanStatus::InProgress),
            entry("d", PlanStatus::Pending),
        ];
        assert_eq!(updates[1..], [SessionUpdate::Plan { entries }]);
    }
}
