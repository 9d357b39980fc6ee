//! Input of a hook: one JSON object, in the form of its program.

use countersign_view::Protocol;
use serde_json::{Map, Value};

/// Longest id of a session or an agent, in characters.
const LONGEST_ID: usize = 200;

/// Point at which a program runs a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookEvent {
    /// Before a call.
    BeforeCall,
    /// Before the program asks its user about a call.
    Permission,
    /// After a call.
    AfterCall,
}

/// Call about which a program asks, or that it ran.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HookInput {
    pub(crate) event: HookEvent,
    /// Id of the program's session.
    pub(crate) session: String,
    /// Agent below the main one, with its kind.
    pub(crate) subagent: Option<String>,
    /// Folder in which the program works, absolute.
    pub(crate) cwd: String,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    /// Id of the call in the program.
    pub(crate) call: Option<String>,
    /// Id of the user's prompt that the program works on, if it names one.
    pub(crate) prompt: Option<String>,
}

/// Agent that asks about a call.
#[derive(Clone, Copy)]
pub(crate) struct CallAsker<'a> {
    /// Id of the program's session.
    pub(crate) session: &'a str,
    /// Agent below the main one, with its kind.
    pub(crate) subagent: Option<&'a str>,
    /// Folder in which the program works, absolute.
    pub(crate) cwd: &'a str,
}

/// Call of a program, in its own words.
#[derive(Clone, Copy)]
pub(crate) struct CallInput<'a> {
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Map<String, Value>,
    pub(crate) cwd: &'a str,
    /// Id of the call in the program.
    pub(crate) id: Option<&'a str>,
}

impl HookInput {
    /// Reads the input of a hook of `protocol`.
    ///
    /// # Errors
    /// The field that is missing or has a wrong type, and what is expected.
    pub(crate) fn parse(protocol: Protocol, text: &str) -> Result<Self, String> {
        let input: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("the input of the hook is no JSON object: {error}"))?;
        let names = FieldNames::of(protocol);
        let event = hook_event(protocol, &input)?;
        let session = id_field(&input, names.session)?
            .ok_or_else(|| format!("{} is missing: expected the id of the session", names.session))?;
        let cwd = text_field(&input, "cwd")?.ok_or("cwd is missing: expected an absolute path")?;
        if !cwd.starts_with('/') {
            return Err(format!("cwd {}: expected an absolute path", shown_value(&cwd.into())));
        }
        let tool = text_field(&input, names.tool)?.filter(|tool| !tool.trim().is_empty());
        let tool = tool.ok_or_else(|| format!("{} is missing: expected the name of the tool", names.tool))?;
        let kind = text_field(&input, "agent_type")?.filter(|kind| !kind.is_empty()).map(plain_name);
        let subagent = match (kind, id_field(&input, "agent_id")?) {
            (Some(kind), Some(id)) => Some(format!("{kind}:{id}")),
            (kind, id) => kind.or(id),
        };
        Ok(Self {
            event,
            session,
            subagent,
            cwd: cwd.to_owned(),
            tool: mcp_tool(&input)?.unwrap_or_else(|| tool.to_owned()),
            arguments: arguments_field(&input, names.arguments)?,
            call: id_field(&input, names.call)?,
            prompt: text_field(&input, "prompt_id")?.map(str::to_owned),
        })
    }
}

impl HookInput {
    /// Returns the agent that asks.
    pub(crate) fn asker(&self) -> CallAsker<'_> {
        CallAsker { session: &self.session, subagent: self.subagent.as_deref(), cwd: &self.cwd }
    }

    /// Returns the call.
    pub(crate) fn requested_call(&self) -> CallInput<'_> {
        CallInput { tool: &self.tool, arguments: &self.arguments, cwd: &self.cwd, id: self.call.as_deref() }
    }
}

/// Names of the fields of a program.
struct FieldNames {
    session: &'static str,
    tool: &'static str,
    arguments: &'static str,
    call: &'static str,
}

impl FieldNames {
    const fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Copilot => {
                Self { session: "sessionId", tool: "toolName", arguments: "toolArgs", call: "tool_use_id" }
            }
            Protocol::Opencode => Self { session: "sessionID", tool: "tool", arguments: "args", call: "callID" },
            _ => Self { session: "session_id", tool: "tool_name", arguments: "tool_input", call: "tool_use_id" },
        }
    }
}

pub(crate) fn hook_event(protocol: Protocol, input: &Map<String, Value>) -> Result<HookEvent, String> {
    // Copilot CLI does not name the event: only a call that ended has a result.
    if protocol == Protocol::Copilot && !input.contains_key("hook_event_name") {
        let is_over = input.contains_key("toolResult");
        return Ok(if is_over { HookEvent::AfterCall } else { HookEvent::BeforeCall });
    }
    let known: &[(&str, HookEvent)] = match protocol {
        Protocol::Gemini => &[("BeforeTool", HookEvent::BeforeCall), ("AfterTool", HookEvent::AfterCall)],
        Protocol::Opencode => {
            &[("tool.execute.before", HookEvent::BeforeCall), ("tool.execute.after", HookEvent::AfterCall)]
        }
        _ => &[
            ("PreToolUse", HookEvent::BeforeCall),
            ("PermissionRequest", HookEvent::Permission),
            ("PostToolUse", HookEvent::AfterCall),
            ("PostToolUseFailure", HookEvent::AfterCall),
        ],
    };
    let name = text_field(input, "hook_event_name")?.unwrap_or_default();
    known.iter().find(|(known, _)| *known == name).map(|(_, event)| *event).ok_or_else(|| {
        let accepted: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
        format!("hook_event_name {name:?}: expected one of {}", accepted.join(", "))
    })
}

/// Returns the name of a tool of an MCP server as all programs have it, where the program names the server apart.
fn mcp_tool(input: &Map<String, Value>) -> Result<Option<String>, String> {
    let context = match input.get("mcp_context") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(context)) => context,
        Some(wrong) => return Err(format!("mcp_context {}: expected an object", shown_value(wrong))),
    };
    match (text_field(context, "server_name")?, text_field(context, "tool_name")?) {
        (Some(server), Some(tool)) => Ok(Some(format!("mcp__{server}__{tool}"))),
        _ => Err("mcp_context: expected server_name and tool_name".to_owned()),
    }
}

fn arguments_field(input: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, String> {
    match input.get(name) {
        None => Err(format!("{name} is missing: expected an object")),
        Some(Value::Object(arguments)) => Ok(arguments.clone()),
        // Copilot CLI encodes them as a text.
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|error| {
            let value = shown_value(&text.as_str().into());
            format!("{name} {value}: expected an object, or one as a text of JSON ({error})")
        }),
        Some(wrong) => Err(format!("{name} {}: expected an object", shown_value(wrong))),
    }
}

/// Returns a wrong value as errors show it, on one line and not longer than an id.
fn shown_value(value: &Value) -> String {
    let text = value.to_string();
    let mut shown: String = text.chars().take(LONGEST_ID).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn text_field<'a>(input: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match input.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(wrong) => Err(format!("{name} {}: expected a text", shown_value(wrong))),
    }
}

/// Returns a name that a user has chosen as part of the name of a principal.
fn plain_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    name.chars().take(LONGEST_ID).map(plain).collect()
}

/// Returns an id, which becomes part of the name of a principal.
fn id_field(input: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    let Some(id) = text_field(input, name)?.filter(|id| !id.is_empty()) else { return Ok(None) };
    check_id(name, id)?;
    Ok(Some(id.to_owned()))
}

/// Checks an id, which becomes part of the name of a principal.
///
/// # Errors
/// The field, and the accepted characters.
pub(crate) fn check_id(name: &str, id: &str) -> Result<(), String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if id.is_empty() || id.chars().count() > LONGEST_ID || !id.chars().all(is_plain) {
        let value = shown_value(&id.into());
        return Err(format!(
            "{name} {value}: expected at most {LONGEST_ID} letters, digits, dashes, dots and underscores"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use countersign_view::Protocol::{self, Claude, Codex, Copilot, Gemini, Opencode};
    use serde_json::{Value, json};

    use super::{HookEvent, HookInput};

    fn parse(protocol: Protocol, input: &Value) -> Result<HookInput, String> {
        HookInput::parse(protocol, &input.to_string())
    }

    #[test]
    fn each_program_has_its_own_fields() {
        let claude = json!({
            "session_id": "0f-1", "cwd": "/w", "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1", "agent_id": "a1", "agent_type": "my-plugin:Prüfer 1",
            "permission_mode": "default", "of_a_later_version": {"x": 1},
        });
        let read = parse(Claude, &claude).unwrap();
        assert_eq!((read.event, read.session.as_str(), read.cwd.as_str()), (HookEvent::BeforeCall, "0f-1", "/w"));
        assert_eq!((read.subagent.as_deref(), read.call.as_deref()), (Some("my-plugin_Prüfer_1:a1"), Some("toolu_1")));
        let gemini = json!({
            "session_id": "s", "cwd": "/w", "hook_event_name": "AfterTool", "tool_name": "desk_turn", "tool_input": {},
            "mcp_context": {"server_name": "desk", "tool_name": "turn"},
        });
        let read = parse(Gemini, &gemini).unwrap();
        assert_eq!((read.event, read.tool.as_str()), (HookEvent::AfterCall, "mcp__desk__turn"));
        let opencode = json!({
            "hook_event_name": "tool.execute.before", "sessionID": "ses_1", "callID": "call_1", "cwd": "/w", "tool": "bash",
            "args": {"command": "ls"},
        });
        let read = parse(Opencode, &opencode).unwrap();
        assert_eq!((read.event, read.session.as_str(), read.tool.as_str()), (HookEvent::BeforeCall, "ses_1", "bash"));
        assert_eq!((read.call.as_deref(), &read.arguments["command"]), (Some("call_1"), &json!("ls")));
        for (more, event) in [(json!({}), HookEvent::BeforeCall), (json!({"toolResult": {}}), HookEvent::AfterCall)] {
            let mut copilot =
                json!({"sessionId": "s", "cwd": "/w", "toolName": "bash", "toolArgs": "{\"command\":\"ls\"}"});
            copilot.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let read = parse(Copilot, &copilot).unwrap();
            assert_eq!((read.event, &read.arguments["command"]), (event, &json!("ls")));
        }
    }

    #[test]
    fn a_field_that_is_missing_or_wrong_is_named() {
        let whole = json!({
            "session_id": "s", "cwd": "/w", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {},
        });
        for (protocol, field, value, want) in [
            (Claude, "session_id", json!(null), "session_id is missing: expected the id of the session"),
            (Claude, "session_id", json!(5), "session_id 5: expected a text"),
            (
                Claude,
                "session_id",
                json!("a b"),
                "session_id \"a b\": expected at most 200 letters, digits, dashes, dots and underscores",
            ),
            (Claude, "cwd", json!("w"), "cwd \"w\": expected an absolute path"),
            (Claude, "cwd", json!(null), "cwd is missing: expected an absolute path"),
            (
                Claude,
                "tool_use_id",
                json!("a/b"),
                "tool_use_id \"a/b\": expected at most 200 letters, digits, dashes, dots and underscores",
            ),
            (Codex, "tool_name", json!(""), "tool_name is missing: expected the name of the tool"),
            (Codex, "tool_input", json!([]), "tool_input []: expected an object"),
            (
                Claude,
                "hook_event_name",
                json!("PreToolUze"),
                "hook_event_name \"PreToolUze\": expected one of PreToolUse, PermissionRequest, PostToolUse, PostToolUseFailure",
            ),
            (
                Gemini,
                "hook_event_name",
                json!("PreToolUse"),
                "hook_event_name \"PreToolUse\": expected one of BeforeTool, AfterTool",
            ),
            (
                Opencode,
                "hook_event_name",
                json!("PreToolUse"),
                "hook_event_name \"PreToolUse\": expected one of tool.execute.before, tool.execute.after",
            ),
        ] {
            let mut input = whole.clone();
            input[field] = value;
            assert_eq!(parse(protocol, &input).unwrap_err(), want);
        }
        assert!(HookInput::parse(Claude, "[]").unwrap_err().starts_with("the input of the hook is no JSON object: "));
        assert!(HookInput::parse(Claude, "").unwrap_err().starts_with("the input of the hook is no JSON object: "));
    }
}
