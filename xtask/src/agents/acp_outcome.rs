//! Outcome of a client of the Agent Client Protocol, in the form in which it is compared with a table.

use std::{collections::BTreeMap, fmt};

use anyhow::Context as _;
use serde_json::Value;

use crate::agents::relay::{host_messages, server_messages};

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcpOutcome {
    /// Files of the project that changed.
    pub(crate) changed: Vec<String>,
    pub(crate) prompt: PromptOutcome,
    /// Exit code of the client.
    pub(crate) exit: Option<i32>,
    /// Number of gates that nobody has answered.
    pub(crate) open: usize,
}

/// Outcome of a prompt, read from the lines between client and agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptOutcome {
    /// Calls in order, each with its kind and its last status.
    calls: Vec<String>,
    /// Options that the client selected, with their number.
    answers: BTreeMap<String, usize>,
    stop_reason: String,
}

impl PromptOutcome {
    /// Reads the outcome of the only prompt.
    ///
    /// # Errors
    /// The prompt has no reply.
    pub(crate) fn parse(lines: &str) -> anyhow::Result<Self> {
        let mut calls: Vec<ToolCall> = Vec::new();
        for message in server_messages(lines) {
            let update = &message["params"]["update"];
            let text = |name: &str| update[name].as_str().unwrap_or_default().to_owned();
            let id = text("toolCallId");
            match update["sessionUpdate"].as_str() {
                Some("tool_call") => calls.push(ToolCall { id, kind: text("kind"), status: text("status") }),
                Some("tool_call_update") if update["status"].is_string() => {
                    let known = calls.iter_mut().find(|call| call.id == id);
                    known.with_context(|| format!("an update of the unknown call {id}"))?.status = text("status");
                }
                _ => {}
            }
        }
        let mut answers = BTreeMap::new();
        for message in host_messages(lines) {
            let outcome = &message["result"]["outcome"];
            if let Some(answer) = outcome["optionId"].as_str().or_else(|| outcome["outcome"].as_str()) {
                *answers.entry(answer.to_owned()).or_default() += 1;
            }
        }
        let stop_reason = |reply: Value| reply["result"]["stopReason"].as_str().map(str::to_owned);
        let stop_reason = server_messages(lines).find_map(stop_reason).context("the prompt has no reply")?;
        let calls = calls.into_iter().map(|call| format!("{} {}", call.kind, call.status)).collect();
        Ok(Self { calls, answers, stop_reason })
    }
}

/// Call that the agent reports.
struct ToolCall {
    id: String,
    kind: String,
    status: String,
}

impl fmt::Display for AcpOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PromptOutcome { calls, answers, stop_reason } = &self.prompt;
        let changed = if self.changed.is_empty() { "nothing".to_owned() } else { self.changed.join(", ") };
        let answers: Vec<String> = answers.iter().map(|(answer, count)| format!("{count} {answer}")).collect();
        write!(f, "changed: {changed} | calls: {} | answers: {}", calls.join(" / "), answers.join(", "))?;
        let exit = self.exit.map_or_else(|| "signal".to_owned(), |code| code.to_string());
        write!(f, " | stop: {stop_reason} | exit: {exit} | open: {}", self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::{AcpOutcome, PromptOutcome};

    #[test]
    fn an_outcome_has_the_last_status_of_each_call_and_the_answers() {
        let lines = r#"> {"id":0,"method":"initialize"}
< {"id":0,"result":{"protocolVersion":1}}
< {"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"a","kind":"read","status":"pending"}}}
< {"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"b","kind":"edit","status":"pending"}}}
< {"id":1,"method":"session/request_permission","params":{}}
> {"id":1,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}
> {"id":2,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}
> {"id":3,"result":{"outcome":{"outcome":"cancelled"}}}
< {"method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}}}
< {"method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"x"}}}
< {"id":2,"result":{"stopReason":"end_turn"}}
"#;
        let prompt = PromptOutcome::parse(lines).unwrap();
        let outcome = AcpOutcome { changed: vec!["a".to_owned()], prompt, exit: Some(0), open: 1 };
        let want = "changed: a | calls: read completed / edit pending | answers: 2 allow_once, 1 cancelled | stop: end_turn | \
                    exit: 0 | open: 1";
        assert_eq!(outcome.to_string(), want);
        let unfinished = lines.replace("stopReason", "other");
        assert_eq!(PromptOutcome::parse(&unfinished).unwrap_err().to_string(), "the prompt has no reply");
    }
}
