//! Answers of a hook, in words that its program knows. A word that it does not know would let the call run.

use countersign_view::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::input::HookEvent;

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookReply {
    /// The one JSON document on standard output; absent if the gateway has no opinion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
    /// Exit code of the process.
    #[serde(default)]
    pub exit: u8,
    /// Text on standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl HookReply {
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

#[cfg(test)]
mod tests {
    use countersign_view::Protocol::{Claude, Codex, Copilot, Gemini};
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
