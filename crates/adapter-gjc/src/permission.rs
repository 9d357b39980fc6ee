//! Calls that require an approval, as the bridge shows them, and the answers of its clients.
//!
//! It must not know which calls need that: policy says so, and the gate is the same as everywhere.

use countersign_core::gate::{ApprovalScope, GateReply};
use countersign_protocol::{
    gjc::bridge::{PermissionKind, PermissionOption, PermissionRequest, ToolCallCard},
    omp::UiAnswer,
};
use countersign_view::{GateRequest, LineMode, escape};
use serde_json::{Map, Value, json};

/// Shows a call that waits; none for a gate that is about no call. Clients have one word for all that lasts: it is the
/// session where that is offered, and its option says so.
pub(crate) fn permission_request(
    call: &str,
    request: &GateRequest,
    offered: &[ApprovalScope],
) -> Option<PermissionRequest> {
    let tool_call = request.call()?;
    let once = PermissionOption::new(PermissionKind::AllowOnce, "Allow once");
    let lasting = lasting_scope(offered).map(|scope| {
        let name = match scope {
            ApprovalScope::Always => "Always allow exactly this",
            ApprovalScope::Session | ApprovalScope::Once => "Allow for this session",
        };
        PermissionOption::new(PermissionKind::AllowAlways, name)
    });
    let deny = PermissionOption::new(PermissionKind::RejectOnce, "Deny");
    Some(PermissionRequest {
        tool_call: ToolCallCard {
            tool_call_id: call.to_owned(),
            tool_name: tool_call.tool.to_owned(),
            title: escape(tool_call.signature, LineMode::One).into_owned(),
            kind: Some(tool_kind(tool_call.tool).to_owned()),
            status: "pending".to_owned(),
            raw_input: Value::Object(tool_call.arguments.clone()).into(),
            content: None,
            locations: call_locations(tool_call.arguments).into_iter().map(Into::into).collect(),
        },
        options: [Some(once), lasting, Some(deny)].into_iter().flatten().collect(),
    })
}

/// Returns the meaning of a client's answer to such a call; None for another gate. An answer that does not clearly allow is a denial.
pub(crate) fn read_answer(answer: &UiAnswer, request: &GateRequest, offered: &[ApprovalScope]) -> Option<GateReply> {
    request.call()?;
    let scope = match answer {
        UiAnswer::Value(option) if option == PermissionKind::AllowOnce.name() => Some(ApprovalScope::Once),
        UiAnswer::Value(option) if option == PermissionKind::AllowAlways.name() => lasting_scope(offered),
        UiAnswer::Value(_) | UiAnswer::Confirmed(_) | UiAnswer::Cancelled { .. } => None,
    };
    let allowed = scope.filter(|scope| offered.contains(scope));
    Some(allowed.map_or(GateReply::Deny { reason: None }, GateReply::Allow))
}

fn lasting_scope(offered: &[ApprovalScope]) -> Option<ApprovalScope> {
    [ApprovalScope::Session, ApprovalScope::Always].into_iter().find(|scope| offered.contains(scope))
}

/// Returns the kind of a tool, in the terms of the bridge's clients.
fn tool_kind(tool: &str) -> &'static str {
    match tool {
        "bash" => "execute",
        "edit" | "write" => "edit",
        "read" | "ls" => "read",
        "grep" | "find" => "search",
        _ => "other",
    }
}

fn call_locations(arguments: &Map<String, Value>) -> Option<Value> {
    let path = ["path", "file_path"].into_iter().find_map(|name| arguments.get(name)?.as_str())?;
    Some(json!({ "path": path }))
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::{ApprovalScope, GateContent, GateReply};
    use countersign_protocol::{encode_line, omp::UiAnswer};
    use countersign_view::GateRequest;
    use serde_json::{Value, json};

    use super::{permission_request, read_answer};

    fn content() -> GateRequest {
        let Value::Object(arguments) = json!({"command": "rm a"}) else { unreachable!() };
        let signature = "bash(rm a)".to_owned();
        GateContent::Approval {
            tool: "bash".into(),
            arguments,
            signature,
            intent: None,
            why: "rule".to_owned(),
            pins: None,
        }
        .into()
    }

    #[test]
    fn a_call_offers_what_its_gate_offers() {
        let option = |kind: &str, name: &str| json!({"optionId": kind, "name": name, "kind": kind});
        let (once, deny) = (option("allow_once", "Allow once"), option("reject_once", "Deny"));
        let session = option("allow_always", "Allow for this session");
        for (offered, want) in [
            (&[ApprovalScope::Once][..], json!([once, deny])),
            (&[ApprovalScope::Once, ApprovalScope::Session, ApprovalScope::Always], json!([once, session, deny])),
            (
                &[ApprovalScope::Once, ApprovalScope::Always],
                json!([once, option("allow_always", "Always allow exactly this"), deny]),
            ),
        ] {
            let shown: Value =
                serde_json::from_slice(&encode_line(&permission_request("c1", &content(), offered).unwrap())).unwrap();
            assert_eq!(shown["options"], want);
            assert_eq!(
                shown["toolCall"],
                json!({"toolCallId": "c1", "toolName": "bash", "title": "bash(rm a)",
                "kind": "execute", "status": "pending", "rawInput": {"command": "rm a"}, "locations": []})
            );
        }
    }

    #[test]
    fn what_does_not_clearly_allow_is_a_denial() {
        let deny = GateReply::Deny { reason: None };
        let value = |text: &str| UiAnswer::Value(text.to_owned());
        for (answer, offered, want) in [
            (value("allow_once"), &[ApprovalScope::Once][..], GateReply::Allow(ApprovalScope::Once)),
            (value("allow_always"), &[ApprovalScope::Once], deny.clone()),
            (
                value("allow_always"),
                &[ApprovalScope::Once, ApprovalScope::Session],
                GateReply::Allow(ApprovalScope::Session),
            ),
            (value("allow_once"), &[], deny.clone()),
            (value("reject_once"), &[ApprovalScope::Once], deny.clone()),
            (value("reject_always"), &[ApprovalScope::Once], deny.clone()),
            (value("Allow once"), &[ApprovalScope::Once], deny.clone()),
            (UiAnswer::Confirmed(true), &[ApprovalScope::Once], deny.clone()),
            (UiAnswer::Cancelled { timed_out: false }, &[ApprovalScope::Once], deny),
        ] {
            assert_eq!(read_answer(&answer, &content(), offered), Some(want), "{answer:?}");
        }
    }
}
