//! Answers of a hook, in words that its program knows. A word that it does not know would let the call run.

use countersign_view::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    closed_input::closed_arguments,
    input::{HookEvent, HookInput},
    input_reader::event_of,
};

/// Exit code with which every program blocks the call.
const BLOCKED: u8 = 2;

/// Exit code of a hook that failed after a call.
const UNCHECKED: u8 = 1;

/// Decision about a call of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookDecision {
    Allow,
    /// The call may run with these arguments in place of its own. Only of Codex.
    AllowAs(Map<String, Value>),
    /// The reason is for the agent.
    Deny(String),
    /// The program ends, and asks again when it is resumed.
    Defer(String),
}

/// Answer of a hook: what its process writes, and how it ends.
///
/// The process takes one from the gateway only as [`HookReply::decode`] reads it: an answer that means nothing would let the call run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookReply {
    /// The one JSON document on standard output; absent if the gateway has no opinion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
    /// Exit code of the process.
    pub exit: u8,
    /// Text on standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl HookReply {
    /// Reads the answer of a gateway to the hook of `program` with this input.
    ///
    /// # Errors
    /// The reason why it is no answer that the program would obey.
    pub fn decode(program: &str, input: &str, answer: Value) -> Result<Self, String> {
        let reply: Self = serde_json::from_value(answer).map_err(|error| error.to_string())?;
        let protocol = Protocol::HOOKS.into_iter().find(|known| known.name() == program);
        let event = protocol.and_then(|protocol| event_of(protocol, input));
        let call = protocol.and_then(|protocol| HookInput::parse(protocol, input).ok());
        let closed = protocol.zip(call.as_ref()).and_then(|(protocol, call)| closed_arguments(protocol, call));
        let is_known = match (reply.exit, &reply.document, &reply.message) {
            (BLOCKED, None, Some(_)) => true,
            (UNCHECKED, None, Some(_)) => event == Some(HookEvent::AfterCall),
            (0, None, None) => {
                event == Some(HookEvent::AfterCall)
                    || protocol == Some(Protocol::Codex)
                        && event == Some(HookEvent::BeforeCall)
                        && call.is_some()
                        && closed.is_none()
            }
            (0, Some(document), message) => {
                // Copilot CLI gets a document about an input that is not understood, too. It must deny.
                let is_failure = message.is_some() || event.is_none();
                let event = event.unwrap_or(HookEvent::BeforeCall);
                protocol.is_some_and(|protocol| {
                    (!is_failure || protocol == Protocol::Copilot)
                        && decisions_in(document, is_failure).into_iter().chain(closed.map(HookDecision::AllowAs)).any(
                            |decision| Self::encode(protocol, event, &decision).document.as_ref() == Some(document),
                        )
                })
            }
            _ => false,
        };
        if is_known { Ok(reply) } else { Err("it has no form that the program obeys".to_owned()) }
    }

    /// Returns the answer that blocks a call about which nothing else can be said.
    pub fn failure(message: impl Into<String>) -> Self {
        Self { document: None, exit: BLOCKED, message: Some(message.into()) }
    }

    /// Returns the answer of the hook of `program` that blocks a call, with the reason where the agent sees it. Copilot CLI shows its agent
    /// nothing of a failed hook.
    pub fn blocked(program: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        if program != Protocol::Copilot.name() {
            return Self::failure(message);
        }
        let denied = HookDecision::Deny(format!("countersign: {message}"));
        Self { message: Some(message), ..Self::encode(Protocol::Copilot, HookEvent::BeforeCall, &denied) }
    }

    /// Returns the answer to a call that ran and could not be compared with its decision. Exit code 2 would tell the agent that it was
    /// blocked.
    pub(crate) fn unchecked(problem: impl std::fmt::Display) -> Self {
        let message = format!("the call ran, and was not compared with the decision about it: {problem}");
        Self { document: None, exit: UNCHECKED, message: Some(message) }
    }

    /// Returns the answer without an opinion.
    pub(crate) const fn silence() -> Self {
        Self { document: None, exit: 0, message: None }
    }

    /// Encodes a decision for a program.
    pub(crate) fn encode(protocol: Protocol, event: HookEvent, decision: &HookDecision) -> Self {
        let document = match (protocol, event) {
            (_, HookEvent::AfterCall) => return Self::silence(),
            (Protocol::Gemini | Protocol::Opencode, _) => match decision {
                HookDecision::Allow | HookDecision::AllowAs(_) => json!({ "decision": "allow" }),
                HookDecision::Deny(why) | HookDecision::Defer(why) => json!({ "decision": "deny", "reason": why }),
            },
            (Protocol::Copilot, _) => match decision {
                HookDecision::Allow | HookDecision::AllowAs(_) => json!({ "permissionDecision": "allow" }),
                HookDecision::Deny(why) | HookDecision::Defer(why) => {
                    json!({ "permissionDecision": "deny", "permissionDecisionReason": why })
                }
            },
            (_, HookEvent::Permission) => {
                let answer = match decision {
                    HookDecision::Allow | HookDecision::AllowAs(_) => json!({ "behavior": "allow" }),
                    HookDecision::Deny(why) | HookDecision::Defer(why) => json!({ "behavior": "deny", "message": why }),
                };
                json!({ "hookSpecificOutput": { "hookEventName": "PermissionRequest", "decision": answer } })
            }
            // Codex lets a call run at every word but deny.
            (Protocol::Codex, _) if *decision == HookDecision::Allow => return Self::silence(),
            (_, HookEvent::BeforeCall) => {
                let (word, why) = match decision {
                    HookDecision::Allow | HookDecision::AllowAs(_) => ("allow", None),
                    HookDecision::Defer(why) if protocol == Protocol::Claude => ("defer", Some(why)),
                    HookDecision::Deny(why) | HookDecision::Defer(why) => ("deny", Some(why)),
                };
                let mut answer = json!({ "hookEventName": "PreToolUse", "permissionDecision": word });
                if let Some(why) = why {
                    answer["permissionDecisionReason"] = why.as_str().into();
                }
                if let HookDecision::AllowAs(arguments) = decision {
                    answer["updatedInput"] = Value::Object(arguments.clone());
                }
                json!({ "hookSpecificOutput": answer })
            }
        };
        Self { document: Some(document), exit: 0, message: None }
    }
}

/// Returns the decisions that a document may have encoded. After a failure only a denial counts.
fn decisions_in(document: &Value, is_failure: bool) -> Vec<HookDecision> {
    const REASONS: [&str; 4] = [
        "/reason",
        "/permissionDecisionReason",
        "/hookSpecificOutput/permissionDecisionReason",
        "/hookSpecificOutput/decision/message",
    ];
    let why = REASONS.iter().find_map(|at| document.pointer(at)).and_then(Value::as_str);
    match why {
        Some(why) => vec![HookDecision::Deny(why.to_owned()), HookDecision::Defer(why.to_owned())],
        None if is_failure => Vec::new(),
        None => vec![HookDecision::Allow],
    }
}

#[cfg(test)]
mod tests {
    use countersign_view::Protocol::{self, Claude, Codex, Copilot, Gemini, Opencode};
    use serde_json::json;

    use super::{HookDecision, HookEvent, HookReply};

    #[test]
    fn a_failure_blocks_the_call_and_reaches_the_agent() {
        for program in ["claude", "codex", "gemini", "opencode"] {
            assert_eq!(HookReply::blocked(program, "no"), HookReply::failure("no"), "{program}");
        }
        let denied = json!({ "permissionDecision": "deny", "permissionDecisionReason": "countersign: no" });
        let want = HookReply { document: Some(denied), exit: 0, message: Some("no".to_owned()) };
        assert_eq!(HookReply::blocked("copilot", "no"), want);
    }

    fn before(protocol: Protocol) -> String {
        let event = match protocol {
            Gemini => "BeforeTool",
            Opencode => "tool.execute.before",
            _ => "PreToolUse",
        };
        match protocol {
            Copilot => "{}".to_owned(),
            Codex => codex_input("mcp__files__read"),
            _ => json!({ "hook_event_name": event }).to_string(),
        }
    }

    fn codex_input(tool: &str) -> String {
        json!({
            "session_id": "s", "cwd": "/w", "hook_event_name": "PreToolUse", "tool_name": tool,
            "tool_input": { "command": "ls" }, "tool_use_id": "c",
        })
        .to_string()
    }

    #[test]
    fn a_command_of_codex_runs_only_with_its_input_closed() {
        let input = codex_input("Bash");
        let decode = |answer: serde_json::Value| HookReply::decode("codex", &input, answer);
        let allow = |command: &str| {
            let arguments = json!({ "command": command }).as_object().cloned().unwrap();
            serde_json::to_value(HookReply::encode(Codex, HookEvent::BeforeCall, &HookDecision::AllowAs(arguments)))
                .unwrap()
        };
        assert!(decode(allow("exec < /dev/null\nls")).is_ok());
        for wrong in [json!({ "exit": 0 }), allow("ls"), allow("exec < /dev/null\nrm x")] {
            assert!(decode(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_of_the_gateway_is_taken_only_in_a_form_that_the_program_obeys() {
        let decisions = [HookDecision::Allow, HookDecision::Deny("no".to_owned()), HookDecision::Defer("x".to_owned())];
        for protocol in Protocol::HOOKS {
            let decode =
                |input: &str, answer: &serde_json::Value| HookReply::decode(protocol.name(), input, answer.clone());
            let input = before(protocol);
            let mut good: Vec<HookReply> =
                decisions.iter().map(|decision| HookReply::encode(protocol, HookEvent::BeforeCall, decision)).collect();
            good.push(HookReply::blocked(protocol.name(), "no"));
            for reply in good {
                let sent = serde_json::to_value(&reply).unwrap();
                assert_eq!(decode(&input, &sent), Ok(reply), "{protocol:?}");
                let mut more = sent.clone();
                more["verdict"] = "deny".into();
                assert!(decode(&input, &more).is_err(), "{protocol:?} {more}");
                if let Some(document) = sent.get("document").and_then(|document| document.as_object()) {
                    let mut more = sent.clone();
                    more["document"] = document.clone().into_iter().chain([("x".to_owned(), json!(1))]).collect();
                    assert!(decode(&input, &more).is_err(), "{protocol:?} {more}");
                }
            }
            for wrong in [
                json!({}),
                json!(null),
                json!("allow"),
                json!({ "verdict": "deny" }),
                json!({ "exit": 1 }),
                json!({ "exit": 1, "message": "x" }),
                json!({ "exit": 2 }),
                json!({ "exit": 3, "message": "x" }),
                json!({ "exit": 300, "message": "x" }),
                json!({ "exit": 0, "document": {} }),
                json!({ "exit": 0, "document": { "foo": 1 } }),
                json!({ "exit": 0, "document": { "decision": "approve" } }),
                json!({ "exit": 0, "document": { "hookSpecificOutput": { "permissionDecision": "deny" } } }),
                json!({ "exit": 2, "document": { "decision": "allow" }, "message": "x" }),
                json!({ "document": { "decision": "allow" } }),
            ] {
                assert!(decode(&input, &wrong).is_err(), "{protocol:?} {wrong}");
            }
            assert_eq!(decode(&input, &json!({ "exit": 0 })).is_ok(), protocol == Codex, "{protocol:?}");
            assert!(decode("no JSON", &json!({ "exit": 0 })).is_err(), "{protocol:?}");
        }
        let after = json!({ "hook_event_name": "PostToolUse" }).to_string();
        let ran = HookReply::unchecked("x");
        assert_eq!(HookReply::decode("claude", &after, serde_json::to_value(&ran).unwrap()), Ok(ran));
        assert_eq!(HookReply::decode("claude", &after, json!({ "exit": 0 })), Ok(HookReply::silence()));
        let allowed = HookReply::encode(Claude, HookEvent::BeforeCall, &HookDecision::Allow);
        let permission = json!({ "hook_event_name": "PermissionRequest" }).to_string();
        for input in [after, permission] {
            assert!(HookReply::decode("claude", &input, serde_json::to_value(&allowed).unwrap()).is_err(), "{input}");
        }
        assert!(HookReply::decode("cursor", "{}", serde_json::to_value(&allowed).unwrap()).is_err());
        let failed = HookReply {
            message: Some("x".to_owned()),
            ..HookReply::encode(Copilot, HookEvent::BeforeCall, &HookDecision::Allow)
        };
        assert!(HookReply::decode("copilot", "{}", serde_json::to_value(&failed).unwrap()).is_err());
    }

    /// Source: docs/protocol/hooks.md, The hook.
    #[test]
    fn each_program_gets_only_words_that_it_knows() {
        let (allow, deny) = (HookDecision::Allow, HookDecision::Deny("no".to_owned()));
        let defer = HookDecision::Defer("later".to_owned());
        let before = |word: &str, why: Option<&str>| {
            let mut answer = json!({ "hookEventName": "PreToolUse", "permissionDecision": word });
            if let Some(why) = why {
                answer["permissionDecisionReason"] = why.into();
            }
            Some(json!({ "hookSpecificOutput": answer }))
        };
        let permission = |decision| {
            Some(json!({ "hookSpecificOutput": { "hookEventName": "PermissionRequest", "decision": decision } }))
        };
        let changed = HookDecision::AllowAs(json!({ "command": "ls" }).as_object().cloned().unwrap_or_default());
        let mut changed_answer = before("allow", None);
        if let Some(answer) = &mut changed_answer {
            answer["hookSpecificOutput"]["updatedInput"] = json!({ "command": "ls" });
        }
        for (protocol, event, decision, want) in [
            (Claude, HookEvent::BeforeCall, &allow, before("allow", None)),
            (Claude, HookEvent::BeforeCall, &deny, before("deny", Some("no"))),
            (Claude, HookEvent::BeforeCall, &defer, before("defer", Some("later"))),
            (Claude, HookEvent::Permission, &allow, permission(json!({ "behavior": "allow" }))),
            (Claude, HookEvent::Permission, &deny, permission(json!({ "behavior": "deny", "message": "no" }))),
            (Claude, HookEvent::Permission, &defer, permission(json!({ "behavior": "deny", "message": "later" }))),
            (Codex, HookEvent::BeforeCall, &allow, None),
            (Codex, HookEvent::BeforeCall, &deny, before("deny", Some("no"))),
            (Codex, HookEvent::BeforeCall, &defer, before("deny", Some("later"))),
            (Gemini, HookEvent::BeforeCall, &allow, Some(json!({ "decision": "allow" }))),
            (Gemini, HookEvent::BeforeCall, &defer, Some(json!({ "decision": "deny", "reason": "later" }))),
            (Copilot, HookEvent::BeforeCall, &allow, Some(json!({ "permissionDecision": "allow" }))),
            (
                Copilot,
                HookEvent::BeforeCall,
                &deny,
                Some(json!({ "permissionDecision": "deny", "permissionDecisionReason": "no" })),
            ),
            (Claude, HookEvent::AfterCall, &allow, None),
            (Codex, HookEvent::BeforeCall, &changed, changed_answer),
        ] {
            let reply = HookReply::encode(protocol, event, decision);
            assert_eq!((reply.document, reply.exit), (want, 0), "{protocol:?} {event:?} {decision:?}");
        }
        assert_eq!(HookReply::failure("x").exit, 2);
    }
}
