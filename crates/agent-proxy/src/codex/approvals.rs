//! Approvals that Codex asks for: the calls in them, and the answers to them.

use serde_json::{Map, Value, json};

use crate::{
    agent_call::AgentCall,
    command_words::{line_of_words, plain_name, split_words, without_shell},
    unknown_members::{add_unknown_call, unknown_members},
};

/// Members of an approval that its calls are made of, or that describe it.
const MEMBERS: [(&str, &[&str]); 6] = [
    (
        "item/commandExecution/requestApproval",
        &[
            "threadId",
            "turnId",
            "itemId",
            "approvalId",
            "startedAtMs",
            "environmentId",
            "kind",
            "command",
            "cwd",
            "reason",
            "commandActions",
            "networkApprovalContext",
            "additionalPermissions",
            "availableDecisions",
            "proposedExecpolicyAmendment",
            "proposedNetworkPolicyAmendments",
        ],
    ),
    ("item/fileChange/requestApproval", &["threadId", "turnId", "itemId", "startedAtMs", "reason", "grantRoot"]),
    (
        "item/permissions/requestApproval",
        &["threadId", "turnId", "itemId", "startedAtMs", "environmentId", "cwd", "permissions", "reason"],
    ),
    (
        "mcpServer/elicitation/request",
        &[
            "threadId",
            "turnId",
            "serverName",
            "environmentId",
            "_meta",
            "mode",
            "message",
            "requestedSchema",
            "title",
            "description",
            "challenge",
            "url",
            "elicitationId",
        ],
    ),
    ("execCommandApproval", &["conversationId", "callId", "approvalId", "command", "cwd", "parsedCmd", "reason"]),
    ("applyPatchApproval", &["conversationId", "callId", "fileChanges", "grantRoot", "reason"]),
];
/// Members of a change of a file.
const CHANGE_MEMBERS: [&str; 4] = ["path", "kind", "diff", "content"];
/// The same in the older protocol.
const LEGACY_CHANGE_MEMBERS: [&str; 4] = ["type", "content", "unified_diff", "move_path"];
/// Members of the approval of a tool of an MCP server.
const TOOL_MEMBERS: [&str; 12] = [
    "codex_approval_kind",
    "tool_name",
    "tool",
    "tool_params",
    "tool_params_display",
    "tool_title",
    "tool_description",
    "persist",
    "source",
    "connector_id",
    "connector_name",
    "connector_description",
];

/// Kind of an approval: it has an answer of its own.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ApprovalKind {
    /// `accept` or `decline`.
    Item,
    /// Permissions for one turn.
    Permissions(Value),
    /// A tool of an MCP server, as an elicitation.
    McpTool,
    /// `approved` or `denied`.
    Legacy,
}

/// Approval with its calls. All of them must be allowed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CodexApproval {
    pub(super) kind: ApprovalKind,
    /// Item that it is about.
    pub(super) item: Option<String>,
    pub(super) calls: Vec<AgentCall>,
}

/// Files that an item changes.
pub(super) type FileChanges = Vec<Value>;

/// Thread with its folder.
#[derive(Clone, Copy)]
pub(super) struct ThreadPlace<'a> {
    pub(super) thread: &'a str,
    pub(super) cwd: &'a str,
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

impl ThreadPlace<'_> {
    fn call(self, id: Option<&str>, tool: &str, arguments: Map<String, Value>) -> AgentCall {
        AgentCall {
            session: self.thread.to_owned(),
            id: id.map(str::to_owned),
            tool: tool.to_owned(),
            arguments,
            cwd: self.cwd.to_owned(),
        }
    }
}

/// Returns the id of the thread that a message is about.
pub(super) fn thread_of(params: &Value) -> Option<&str> {
    text(params, "threadId").or_else(|| text(params, "conversationId"))
}

/// Copies members that have a value.
fn members(params: &Value, names: &[(&str, &str)]) -> Map<String, Value> {
    let present = names.iter().filter_map(|(name, member)| {
        let value = params.get(*member).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    });
    present.collect()
}

/// Reads an approval. None for a method that is none.
///
/// # Errors
/// A reason to refuse it.
pub(super) fn read_approval(
    method: &str,
    params: &Value,
    place: ThreadPlace<'_>,
    changes: impl Fn(&str) -> Option<FileChanges>,
) -> Option<Result<CodexApproval, String>> {
    let approval = |kind, item: Option<&str>, calls| CodexApproval { kind, item: item.map(str::to_owned), calls };
    let item = text(params, "itemId");
    let mut unknown = MEMBERS
        .iter()
        .find(|(approval, _)| *approval == method)
        .map_or_else(Map::new, |(_, known)| unknown_members(params, known));
    let read = match method {
        "item/commandExecution/requestApproval" => {
            let id = text(params, "approvalId").or(item);
            command_call(params, place, id).map(|call| approval(ApprovalKind::Item, item, vec![call]))
        }
        "item/fileChange/requestApproval" => match item.and_then(changes) {
            Some(changes) => {
                add_unknown_changes(&mut unknown, changes.iter(), &CHANGE_MEMBERS);
                file_calls(&changes, params, place, item).map(|calls| approval(ApprovalKind::Item, item, calls))
            }
            None => Err("the change is not known: no item/started with this itemId came before".to_owned()),
        },
        "item/permissions/requestApproval" => {
            let names = [("permissions", "permissions"), ("justification", "reason"), ("folder", "cwd")];
            let requested = params.get("permissions").cloned().unwrap_or_default();
            let call = place.call(item, "request_permissions", members(params, &names));
            Ok(approval(ApprovalKind::Permissions(requested), item, vec![call]))
        }
        "mcpServer/elicitation/request" => {
            let is_approval = |meta: &&Value| meta.get("codex_approval_kind").is_some_and(|kind| !kind.is_null());
            let meta = params.get("_meta").filter(is_approval)?;
            unknown.extend(unknown_members(meta, &TOOL_MEMBERS));
            if let Some(odd) = meta.get("tool_params").filter(|odd| !odd.is_object() && !odd.is_null()) {
                unknown.insert("tool_params".to_owned(), odd.clone());
            }
            Ok(approval(ApprovalKind::McpTool, None, vec![mcp_call(params, meta, place)]))
        }
        "execCommandApproval" => {
            let words = params.get("command").and_then(Value::as_array);
            let words = words.and_then(|words| words.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
            match words.filter(|words| !words.is_empty()) {
                Some(words) => {
                    let mut arguments = members(params, &[("workdir", "cwd"), ("justification", "reason")]);
                    arguments.insert("command".to_owned(), line_of_words(&words).into());
                    let call = place.call(text(params, "callId"), "exec_command", arguments);
                    Ok(approval(ApprovalKind::Legacy, None, vec![call]))
                }
                None => Err("command: expected a list of texts".to_owned()),
            }
        }
        "applyPatchApproval" => {
            let changes = params.get("fileChanges").and_then(Value::as_object).into_iter().flatten();
            add_unknown_changes(&mut unknown, changes.map(|(_, change)| change), &LEGACY_CHANGE_MEMBERS);
            legacy_changes(params)
                .and_then(|changes| file_calls(&changes, params, place, text(params, "callId")))
                .map(|calls| approval(ApprovalKind::Legacy, None, calls))
        }
        _ => return None,
    };
    Some(read.map(|mut approval| {
        add_unknown_call(&mut approval.calls, method, unknown);
        approval
    }))
}

/// Adds the unknown members of changes of files, and of their kinds.
fn add_unknown_changes<'a>(unknown: &mut Map<String, Value>, changes: impl Iterator<Item = &'a Value>, known: &[&str]) {
    for change in changes {
        unknown.extend(unknown_members(change, known));
        unknown
            .extend(change.get("kind").map(|kind| unknown_members(kind, &["type", "move_path"])).into_iter().flatten());
    }
}

fn command_call(params: &Value, place: ThreadPlace<'_>, id: Option<&str>) -> Result<AgentCall, String> {
    let mut arguments = members(
        params,
        &[
            ("workdir", "cwd"),
            ("justification", "reason"),
            ("network", "networkApprovalContext"),
            ("permissions", "additionalPermissions"),
        ],
    );
    let kind = match params.get("kind") {
        None | Some(Value::Null) => "command",
        Some(Value::String(kind)) => kind,
        Some(other) => return Err(format!("kind: {other}: expected command or writeStdin")),
    };
    match (kind, text(params, "command")) {
        ("command", Some(command)) if arguments.contains_key("network") => {
            // About the connection, not about the command, which runs already.
            arguments.insert("command".to_owned(), command.into());
            Ok(place.call(id, "network_access", arguments))
        }
        ("command", Some(command)) => {
            arguments.insert("command".to_owned(), without_shell(command).into());
            Ok(place.call(id, "exec_command", arguments))
        }
        ("command", None) if arguments.contains_key("network") => Ok(place.call(id, "network_access", arguments)),
        ("writeStdin", Some(command)) => {
            arguments.extend(stdin_arguments(command));
            Ok(place.call(id, "write_stdin", arguments))
        }
        (_, None) => Err("command: expected a text".to_owned()),
        (kind, Some(_)) => Err(format!("kind {kind:?}: expected command or writeStdin")),
    }
}

/// Reads `write_stdin --session-id 88938 'text'`. A line of another form is shown as it is.
fn stdin_arguments(line: &str) -> Map<String, Value> {
    let words = split_words(line).unwrap_or_default();
    match words.as_slice() {
        [name, flag, session, text] if name == "write_stdin" && flag == "--session-id" => Map::from_iter([
            ("session".to_owned(), session.as_str().into()),
            ("chars".to_owned(), text.as_str().into()),
        ]),
        _ => Map::from_iter([("line".to_owned(), line.into())]),
    }
}

/// Returns a call for each file of a change, and for the folder that it would open for the whole session.
pub(super) fn file_calls(
    changes: &[Value],
    params: &Value,
    place: ThreadPlace<'_>,
    id: Option<&str>,
) -> Result<Vec<AgentCall>, String> {
    let reason = members(params, &[("justification", "reason")]);
    let mut calls = Vec::new();
    for change in changes {
        let path = text(change, "path").ok_or("a change names no path")?;
        let kind = change.get("kind").and_then(|kind| kind.as_str().or_else(|| text(kind, "type")));
        let moved = change.get("kind").and_then(|kind| text(kind, "move_path"));
        let mut arguments = Map::from_iter([("path".to_owned(), Value::from(path))]);
        arguments.extend(members(change, &[("diff", "diff"), ("content", "content")]));
        arguments.extend(reason.clone());
        let tool = match kind {
            Some("add") => "write",
            Some("update") => "edit",
            Some("delete") => "delete",
            other => return Err(format!("kind {other:?} of a change: expected add, update or delete")),
        };
        calls.push(place.call(id, tool, arguments.clone()));
        if let Some(moved) = moved {
            arguments.insert("path".to_owned(), moved.into());
            arguments.insert("moved_from".to_owned(), path.into());
            calls.push(place.call(id, "write", arguments));
        }
    }
    if let Some(root) = text(params, "grantRoot") {
        calls.push(place.call(id, "grant_root", Map::from_iter([("path".to_owned(), root.into())])));
    }
    if calls.is_empty() { Err("the change names no file".to_owned()) } else { Ok(calls) }
}

/// Returns the changes of the older protocol in the form of the newer one.
fn legacy_changes(params: &Value) -> Result<FileChanges, String> {
    let changes = params.get("fileChanges").and_then(Value::as_object).ok_or("fileChanges: expected an object")?;
    let change = |(path, change): (&String, &Value)| {
        let diff = text(change, "unified_diff").map_or(Value::Null, Value::from);
        json!({
            "path": path, "diff": diff, "content": change.get("content").cloned().unwrap_or_default(),
            "kind": { "type": text(change, "type"), "move_path": change.get("move_path").cloned().unwrap_or_default() },
        })
    };
    Ok(changes.iter().map(change).collect())
}

/// Returns the call of a tool of an MCP server, which Codex asks for as an elicitation.
fn mcp_call(params: &Value, meta: &Value, place: ThreadPlace<'_>) -> AgentCall {
    let server = text(params, "serverName").unwrap_or_default();
    let mut arguments = match meta.get("tool_params") {
        Some(Value::Object(arguments)) => arguments.clone(),
        _ => Map::new(),
    };
    match text(meta, "tool_name").or_else(|| text(meta, "tool")) {
        Some(tool) => place.call(None, &format!("mcp__{}__{}", plain_name(server), plain_name(tool)), arguments),
        None => {
            arguments.insert("server".to_owned(), server.into());
            arguments.extend(members(params, &[("message", "message")]));
            arguments.insert("approval".to_owned(), meta.clone());
            place.call(None, "mcp_tool", arguments)
        }
    }
}

impl ApprovalKind {
    /// Returns the answer: only ever for this one time.
    pub(super) fn answer(&self, is_allowed: bool) -> Value {
        match (self, is_allowed) {
            (Self::Item, true) => json!({ "decision": "accept" }),
            (Self::Item, false) => json!({ "decision": "decline" }),
            (Self::Legacy, true) => json!({ "decision": "approved" }),
            (Self::Legacy, false) => json!({ "decision": "denied" }),
            (Self::Permissions(requested), true) => {
                let granted = members(requested, &[("fileSystem", "fileSystem"), ("network", "network")]);
                json!({ "permissions": granted, "scope": "turn" })
            }
            (Self::Permissions(_), false) => json!({ "permissions": {}, "scope": "turn" }),
            (Self::McpTool, true) => json!({ "action": "accept", "content": {} }),
            (Self::McpTool, false) => json!({ "action": "decline" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ApprovalKind, ThreadPlace, read_approval};

    const PLACE: ThreadPlace<'_> = ThreadPlace { thread: "t", cwd: "/w" };

    fn calls(method: &str, params: Value) -> Value {
        let changes = json!([
            {"path": "/w/a", "kind": {"type": "add"}, "diff": "x\n"},
            {"path": "/w/b", "kind": {"type": "update", "move_path": "/w/c"}, "diff": "@@"},
            {"path": "/w/d", "kind": {"type": "delete"}, "diff": "y"},
        ]);
        let known = |item: &str| (item == "i").then(|| changes.as_array().unwrap().clone());
        match read_approval(method, &params, PLACE, known) {
            None => json!(null),
            Some(Err(problem)) => json!(problem),
            Some(Ok(approval)) => approval.calls.into_iter().map(|call| json!([call.tool, call.arguments])).collect(),
        }
    }

    #[test]
    fn an_approval_consists_of_its_calls() {
        const COMMAND: &str = "item/commandExecution/requestApproval";
        for (case, method, params, want) in [
            (
                "a command",
                COMMAND,
                json!({"itemId": "i", "command": "/bin/bash -lc 'touch x'", "cwd": "/x", "reason": "r",
                    "kind": "command", "proposedExecpolicyAmendment": ["touch"], "availableDecisions": ["accept"]}),
                json!([["exec_command", {"workdir": "/x", "justification": "r", "command": "touch x"}]]),
            ),
            (
                "a text to a terminal",
                COMMAND,
                json!({"kind": "writeStdin", "command": "write_stdin --session-id 88 'touch x\n'"}),
                json!([["write_stdin", {"session": "88", "chars": "touch x\n"}]]),
            ),
            (
                "a text of another form",
                COMMAND,
                json!({"kind": "writeStdin", "command": "write_stdin 88 a b"}),
                json!([["write_stdin", {"line": "write_stdin 88 a b"}]]),
            ),
            (
                "a new kind",
                COMMAND,
                json!({"kind": "x", "command": "y"}),
                json!("kind \"x\": expected command or writeStdin"),
            ),
            (
                "a connection",
                COMMAND,
                json!({"command": "curl", "networkApprovalContext": {"host": "x.org"}}),
                json!([["network_access", {"network": {"host": "x.org"}, "command": "curl"}]]),
            ),
            (
                "files",
                "item/fileChange/requestApproval",
                json!({"itemId": "i", "reason": null}),
                json!([
                    ["write", {"path": "/w/a", "diff": "x\n"}],
                    ["edit", {"path": "/w/b", "diff": "@@"}],
                    ["write", {"path": "/w/c", "diff": "@@", "moved_from": "/w/b"}],
                    ["delete", {"path": "/w/d", "diff": "y"}],
                ]),
            ),
            (
                "unknown files",
                "item/fileChange/requestApproval",
                json!({"itemId": "j"}),
                json!("the change is not known: no item/started with this itemId came before"),
            ),
            (
                "permissions",
                "item/permissions/requestApproval",
                json!({"itemId": "i", "permissions": {"network": {"enabled": true}}}),
                json!([["request_permissions", {"permissions": {"network": {"enabled": true}}}]]),
            ),
            (
                "a legacy command",
                "execCommandApproval",
                json!({"command": ["bash", "-lc", "ls"], "cwd": "/x", "callId": "c"}),
                json!([["exec_command", {"workdir": "/x", "command": "ls"}]]),
            ),
            (
                "a legacy patch, with a folder for the session",
                "applyPatchApproval",
                json!({"fileChanges": {"/a": {"type": "update", "unified_diff": "@@", "move_path": null}},
                    "grantRoot": "/"}),
                json!([["edit", {"path": "/a", "diff": "@@"}], ["grant_root", {"path": "/"}]]),
            ),
            (
                "a tool of an MCP server",
                "mcpServer/elicitation/request",
                json!({"serverName": "x", "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_name": "y",
                    "tool_params": {"a": 1}}}),
                json!([["mcp__x__y", {"a": 1}]]),
            ),
            ("a question", "mcpServer/elicitation/request", json!({"serverName": "x", "message": "?"}), json!(null)),
            ("another question", "item/tool/requestUserInput", json!({}), json!(null)),
        ] {
            assert_eq!(calls(method, params), want, "{case}");
        }
    }

    #[test]
    fn members_that_the_proxy_does_not_know_are_decided_too() {
        const COMMAND: &str = "item/commandExecution/requestApproval";
        const ELICITATION: &str = "mcpServer/elicitation/request";
        let tool = |more: Value| {
            let mut meta = json!({"codex_approval_kind": "mcp_tool_call", "tool_name": "y"});
            meta.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"serverName": "x", "_meta": meta})
        };
        for (method, params, first, members) in [
            (COMMAND, json!({"command": "ls", "stdin": "rm x"}), "exec_command", json!({"stdin": "rm x"})),
            (COMMAND, json!({"command": "ls", "env": {"A": "b"}}), "exec_command", json!({"env": {"A": "b"}})),
            (COMMAND, json!({"command": "ls", "Kind": "x"}), "exec_command", json!({"Kind": "x"})),
            (
                "item/permissions/requestApproval",
                json!({"permissions": {}, "scope": "session"}),
                "request_permissions",
                json!({"scope": "session"}),
            ),
            ("item/fileChange/requestApproval", json!({"itemId": "i", "mode": 511}), "write", json!({"mode": 511})),
            (
                "execCommandApproval",
                json!({"command": ["ls"], "env": {"A": "b"}}),
                "exec_command",
                json!({"env": {"A": "b"}}),
            ),
            (
                "applyPatchApproval",
                json!({"fileChanges": {"/a": {"type": "add", "content": "x", "mode": 511}}}),
                "write",
                json!({"mode": 511}),
            ),
            (ELICITATION, tool(json!({"tool_params": ["a"]})), "mcp__x__y", json!({"tool_params": ["a"]})),
            (ELICITATION, tool(json!({"env": {"A": "b"}})), "mcp__x__y", json!({"env": {"A": "b"}})),
        ] {
            let calls = calls(method, params.clone());
            let last = calls.as_array().and_then(|calls| calls.last()).unwrap();
            assert_eq!((&calls[0][0], &last[0]), (&json!(first), &json!("unknown_members")), "{params}");
            assert_eq!(last[1]["members"], members, "{params}");
        }
        let empty = json!({"command": "ls", "stdin": null, "env": {}});
        assert_eq!(calls(COMMAND, empty), json!([["exec_command", {"command": "ls"}]]));
        assert_eq!(
            calls(COMMAND, json!({"command": "ls", "kind": 5})),
            json!("kind: 5: expected command or writeStdin")
        );
    }

    #[test]
    fn an_answer_is_for_this_one_time() {
        let requested = json!({"network": {"enabled": true}, "fileSystem": null});
        for (kind, allowed, denied) in [
            (ApprovalKind::Item, json!({"decision": "accept"}), json!({"decision": "decline"})),
            (ApprovalKind::Legacy, json!({"decision": "approved"}), json!({"decision": "denied"})),
            (ApprovalKind::McpTool, json!({"action": "accept", "content": {}}), json!({"action": "decline"})),
            (
                ApprovalKind::Permissions(requested),
                json!({"permissions": {"network": {"enabled": true}}, "scope": "turn"}),
                json!({"permissions": {}, "scope": "turn"}),
            ),
        ] {
            assert_eq!((kind.answer(true), kind.answer(false)), (allowed, denied));
        }
    }
}
