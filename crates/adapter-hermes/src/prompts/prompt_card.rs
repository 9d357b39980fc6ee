//! One pending gate on the wire: an approval or a question.
//!
//! The command is shown whole and escaped, with the exact arguments.

use countersign_core::{
    engine::Engine,
    gate::{ApprovalScope, Gate, Kind},
    id::GateId,
};
use countersign_view::{
    GateCard, GateSummary, LineMode, escape, gate_card::GateCardInput as Subject, gate_request::RequestKind,
};
use serde_json::{Map, Value, json};

use super::super::transcript::unix_seconds;

/// Longest text of a notification, in characters. A longer call can only be denied from there.
const NOTIFIED: usize = 1000;

/// Gate with its content, taken out of the engine.
#[derive(Clone, Debug)]
pub(crate) struct PromptCard(GateSummary);

/// Returns a pending gate, by name and value as the chat stream has it: bare, with the number of pending gates.
pub(crate) fn gate_event(engine: &Engine, gate: &Gate) -> Option<(&'static str, Value)> {
    let prompt = PromptCard::from_gate(engine, gate)?;
    let of_kind = |other: &&Gate| other.session() == gate.session() && is_question(other) == is_question(gate);
    let count = engine.state().pending_gates().filter(of_kind).count();
    let mut body = prompt.to_json();
    body["pending_count"] = count.into();
    Some((if is_question(gate) { "clarify" } else { "approval" }, body))
}

/// Reports whether a gate is answered with a text.
pub(crate) fn is_question(gate: &Gate) -> bool {
    gate.kind().takes_words()
}

/// Reports whether a gate is allowed automatically in a covered session: neither the floor nor a rule with named approvers is.
pub(crate) fn is_coverable(gate: &Gate) -> bool {
    gate.kind() == Kind::Approval && gate.current_step().is_none() && gate.scopes().contains(&ApprovalScope::Session)
}

/// Returns the widest scope that a gate offers within the requested one.
pub(crate) fn widest_scope(gate: &Gate, requested: ApprovalScope) -> ApprovalScope {
    gate.scopes().iter().copied().filter(|scope| *scope <= requested).max().unwrap_or(ApprovalScope::Once)
}

impl PromptCard {
    /// Returns the card of a gate whose content is in memory.
    pub(crate) fn from_gate(engine: &Engine, gate: &Gate) -> Option<Self> {
        GateSummary::at_hand(engine, gate).map(Self)
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> GateId {
        self.gate().id()
    }

    /// Returns the gate.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Returns it in the form of the wire, without the other pending gates.
    pub(crate) fn to_json(&self) -> Value {
        let gate = self.gate();
        match self.0.request.kind() {
            RequestKind::Call(call) => {
                let runs = call.run_lines();
                let mut why =
                    format!("Needs approval {}", without_command(call.reason, call.arguments, call.signature));
                runs.iter().for_each(|line| why.push_str(&format!("\nRuns {line}")));
                let mut body = self.approval_json(&command_text(call.tool, call.arguments, call.signature), &why);
                if !runs.is_empty() {
                    body["runs"] = runs.iter().map(|line| escape(line, LineMode::One)).collect();
                }
                // Clients show it next to the command, which is all that it covers.
                let key = match gate.scopes() {
                    [ApprovalScope::Once] | [] => "only this call",
                    _ => "exactly this call",
                };
                body["pattern_key"] = key.into();
                body["pattern_keys"] = json!([key]);
                body["tool"] = escape(call.tool, LineMode::One).into();
                body["args"] = Value::Object(call.arguments.clone());
                body["risk_level"] = self.risk_level(call.tool).into();
                if let Some(intent) = call.intent {
                    body["intent"] = escape(intent, LineMode::One).into();
                }
                if let Some(folder) = &self.0.folder {
                    body["cwd"] = escape(folder, LineMode::One).into();
                }
                body
            }
            RequestKind::GoOn(go_on) => {
                let asker = go_on.asker;
                let denied = || format!("{asker} was denied several times in a row");
                let why = go_on.reason.map_or_else(denied, str::to_owned);
                let mut body = self.approval_json(&escape(go_on.text, LineMode::Many), &why);
                let key = match go_on.about.get("host").and_then(Value::as_str).filter(|_| gate.call().is_some()) {
                    Some(host) => format!("only {} for this call", escape(host, LineMode::One)),
                    None => format!("{} may go on", escape(asker, LineMode::One)),
                };
                body["pattern_key"] = key.as_str().into();
                body["pattern_keys"] = json!([key]);
                body["risk_level"] = "medium".into();
                body
            }
            RequestKind::Question(question) => {
                let label = |label: &str| escape(label, LineMode::One).into_owned();
                let offered: Vec<String> = question.choices.iter().map(|choice| label(&choice.label)).collect();
                let recommended = question.recommended.and_then(|at| offered.get(at)).cloned();
                let limit = gate.deadline().map(|deadline| deadline.since(gate.opened_at()));
                json!({
                    "clarify_id": self.id().to_string(),
                    "question": escape(question.text, LineMode::Many),
                    "choices_offered": offered,
                    "multi": question.is_multi,
                    "recommended": recommended,
                    "session_id": gate.session(),
                    "run_id": gate.run().map(|run| run.to_string()),
                    "kind": "clarify",
                    "requested_at": unix_seconds(gate.opened_at()),
                    "timeout_seconds": limit.map_or(0, |limit| limit.as_secs_f64().round() as u64),
                    "expires_at": gate.deadline().map_or(0.0, unix_seconds),
                })
            }
        }
    }

    /// Returns it as a notification, which has little room. A call that does not fit can only be denied there.
    pub(crate) fn notification(&self, body: &Value) -> Value {
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        // Clients put all of it in one line, where the text after a line end would seem to continue. These texts are escaped already:
        // only the line ends and tabs that they may have are written out.
        let place = body["cwd"].as_str().map(|folder| format!(" in {folder}")).unwrap_or_default();
        let tool = body["tool"].as_str().map(|tool| format!(" ({tool}{place})")).unwrap_or_default();
        let [why, command] = ["description", "command"].map(|name| one_line(text(name)));
        let whole = format!("{why}{tool}: {command}");
        let (description, choices) = if whole.chars().count() <= NOTIFIED {
            (whole, body["choices"].clone())
        } else {
            let beginning: String = whole.chars().take(NOTIFIED - 100).collect();
            let left = whole.chars().count() - (NOTIFIED - 100);
            (format!("{beginning} [… {left} more characters: open it to allow it]"), json!(["deny"]))
        };
        let mut notice = json!({
            "approval_id": body["approval_id"],
            "session_id": body["session_id"],
            "description": description,
            "summary": text("description"),
            "choices": choices,
        });
        for name in ["tool", "run_id", "risk_level", "expires_at"] {
            if !body[name].is_null() {
                notice[name] = body[name].clone();
            }
        }
        if let Some(session) = body["session_id"].as_str() {
            notice["route"] = session_route(session).into();
        }
        notice
    }

    fn approval_json(&self, command: &str, description: &str) -> Value {
        let gate = self.gate();
        let scopes = gate.scopes();
        let choices: Vec<&str> = scopes.iter().map(|scope| scope_word(*scope)).chain(["deny"]).collect();
        let mut body = json!({
            "approval_id": self.id().to_string(),
            "session_id": gate.session(),
            "run_id": gate.run().map(|run| run.to_string()),
            "command": command,
            "description": escape(description, LineMode::Many),
            "choices": choices,
            "allow_permanent": scopes.contains(&ApprovalScope::Always),
            "requested_at": unix_seconds(gate.opened_at()),
        });
        if let Some(deadline) = gate.deadline() {
            body["expires_at"] = unix_seconds(deadline).into();
        }
        if let Some(approvals) = self.0.approvals() {
            body["description"] = format!("{} ({approvals})", body["description"].as_str().unwrap_or_default()).into();
            body["have"] = approvals.have.len().into();
            body["need"] = approvals.need.into();
        }
        body
    }

    fn risk_level(&self, tool: &str) -> &'static str {
        match tool {
            _ if !is_coverable(self.gate()) => "high",
            "read" | "ls" | "grep" | "find" => "low",
            _ => "medium",
        }
    }
}

/// Returns an escaped text of several lines as one line.
fn one_line(escaped: &str) -> String {
    escaped.replace('\n', "\\u{a}").replace('\t', "\\u{9}")
}

/// Returns the path at which a client shows a session.
pub(crate) fn session_route(session: &str) -> String {
    format!("/session/{}", percent_encoding::utf8_percent_encode(session, percent_encoding::NON_ALPHANUMERIC))
}

/// Returns the wire's word for the scope of an answer.
pub(crate) const fn scope_word(scope: ApprovalScope) -> &'static str {
    match scope {
        ApprovalScope::Once => "once",
        ApprovalScope::Session => "session",
        ApprovalScope::Always => "always",
    }
}

/// Returns the reason of a gate without the call at its end: clients show the call next to the reason.
fn without_command(why: &str, arguments: &Map<String, Value>, signature: &str) -> String {
    let command = arguments.get("command").and_then(Value::as_str);
    // A reason has a command without its quotes and with one space between words.
    match command.into_iter().chain([signature]).find_map(|call| start_of_call(why, call)) {
        Some(start) => format!("{}it", &why[..start]),
        None => why.to_owned(),
    }
}

/// Returns where `call` starts, if it is the end of `why`, whatever white space and quotes are in either.
fn start_of_call(why: &str, call: &str) -> Option<usize> {
    let counts = |letter: &char| !letter.is_whitespace() && !['"', '\'', '\\'].contains(letter);
    let mut letters = why.char_indices().rev().filter(|(_, letter)| counts(letter));
    let mut start = None;
    for expected in call.chars().rev().filter(counts) {
        let (at, _) = letters.next().filter(|(_, letter)| *letter == expected)?;
        start = Some(at);
    }
    let before = why[..start?].trim_end_matches(['"', '\'', '\\']);
    before.ends_with(' ').then_some(before.len())
}

/// Returns the whole command, once. A shell command without other arguments is shown alone.
fn command_text(tool: &str, arguments: &Map<String, Value>, signature: &str) -> String {
    if let (Some(Value::String(command)), 1) = (arguments.get("command"), arguments.len()) {
        return escape(command, LineMode::Many).into_owned();
    }
    let card = GateCard::new(&Subject {
        tool,
        arguments,
        signature,
        asker: "",
        reason: "",
        intent: None,
        cwd: None,
        pins: None,
        choices: &[],
    });
    format!("{}\n{}", escape(tool, LineMode::One), card.text()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{command_text, one_line, without_command};

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_command_appears_once() {
        let echo = arguments(json!({ "command": "echo hi > made" }));
        assert_eq!(without_command("because no rule covers echo hi > made", &echo, ""), "because no rule covers it");
        assert_eq!(without_command("because no rule covers git push", &echo, "x"), "because no rule covers git push");
        assert_eq!(without_command("by rule ask: bash(echo*)", &echo, "x"), "by rule ask: bash(echo*)");
        assert_eq!(
            without_command("because of an option", &arguments(json!({ "command": "ion" })), "tion"),
            "because of an option"
        );
        let signature = "bash(echo hi > made)";
        assert_eq!(
            without_command("because no rule covers bash(echo hi > made)", &echo, signature),
            "because no rule covers it"
        );
        let quoted = arguments(json!({ "command": "git  commit -m \"it's done\" 'a b'" }));
        assert_eq!(
            without_command("because no rule covers git commit -m it's done a b", &quoted, ""),
            "because no rule covers it"
        );
        assert_eq!(command_text("bash", &echo, "bash(echo hi > made)"), "echo hi > made");
        let more = arguments(json!({ "command": "date\u{202e}", "timeout": 5 }));
        assert_eq!(command_text("bash", &more, "bash(date)"), "bash\ncommand: date\\u{202e}\ntimeout: 5");
        let edit = arguments(json!({ "path": "a.txt", "old_text": "a" }));
        assert_eq!(command_text("edit", &edit, "edit(a.txt)"), "edit\npath: a.txt\nold_text: a");
    }

    #[test]
    fn what_is_escaped_already_is_only_put_into_one_line() {
        assert_eq!(one_line("a\\u{202e}b\nc\td"), "a\\u{202e}b\\u{a}c\\u{9}d");
    }
}
