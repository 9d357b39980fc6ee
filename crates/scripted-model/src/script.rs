//! Scripts of the model: which tool it calls, and when it calls again.
//!
//! A script is found by its key in the texts of the user, so that programs may ask in any order.

use serde_json::{Value, json};

use crate::wire::{ModelCall, ModelReply, ModelRequest, OfferedTool, TOOL_SEARCH};

/// Beginning of each key.
const KEY: &str = "script-";
/// Prefix of the tools of the gateway in Claude Code.
const CLAUDE_PREFIX: &str = "mcp__countersign__";

/// Number of a script, which makes its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScriptId(pub(crate) usize);

impl ScriptId {
    /// Returns the text for the user that starts the script.
    pub fn prompt(self) -> String {
        format!("Please run {KEY}{}.", self.0)
    }

    /// Finds the script of the last text that names one.
    pub(crate) fn find(request: &ModelRequest) -> Option<Self> {
        let named = |text: &String| {
            let (_, rest) = text.rsplit_once(KEY)?;
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().ok().map(Self)
        };
        request.texts.iter().rev().find_map(named)
    }
}

/// The same call again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelScript {
    /// Name of the tool without the prefix of the program.
    pub tool: &'static str,
    /// Arguments of each call.
    pub arguments: Value,
    /// Number of calls. Each but the first waits for its release.
    pub calls: usize,
}

/// Messages of the model, each with one or more calls of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageScript {
    /// Name of the tool without the prefix of the program.
    pub tool: &'static str,
    /// Arguments of each call of each message. Each message but the first waits for its release.
    pub messages: Vec<Vec<Value>>,
}

impl From<ModelScript> for MessageScript {
    fn from(script: ModelScript) -> Self {
        Self { tool: script.tool, messages: vec![vec![script.arguments]; script.calls] }
    }
}

/// Next step of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptStep {
    /// The reply can be sent.
    Reply(ModelReply),
    /// The reply is sent once the script is released.
    ReplyWhenReleased {
        reply: ModelReply,
        /// Number of releases that it needs.
        releases: usize,
    },
}

impl MessageScript {
    /// Decides the next step.
    pub(crate) fn next_step(&self, id: ScriptId, request: &ModelRequest) -> ScriptStep {
        let Some((index, first)) = self.next_message(request.results.len()) else {
            return ScriptStep::Reply(ModelReply::Text("finished".to_owned()));
        };
        let call = |kind: &str, number: usize, tool: &OfferedTool, arguments| {
            // Programs drop a call whose id they have seen.
            ModelCall { id: format!("{kind}_{}_{number}", id.0), tool: tool.clone(), arguments }
        };
        match self.find_tool(request) {
            Some(tool) => {
                let calls = self.messages[index].iter().enumerate();
                let calls = calls.map(|(at, arguments)| call("call", first + at, &tool, arguments.clone()));
                let reply = ModelReply::Calls(calls.collect());
                match index {
                    0 => ScriptStep::Reply(reply),
                    releases => ScriptStep::ReplyWhenReleased { reply, releases },
                }
            }
            None => match request.tools.iter().find(|tool| tool.name == TOOL_SEARCH && !request.is_searched) {
                Some(search) => {
                    let query = format!("select:{CLAUDE_PREFIX}{}", self.tool);
                    let arguments = json!({ "query": query, "max_results": 5 });
                    ScriptStep::Reply(ModelReply::Calls(vec![call("search", first, search, arguments)]))
                }
                None => ScriptStep::Reply(ModelReply::Text(format!("{} is not offered", self.tool))),
            },
        }
    }

    /// Returns the index of the message after so many results, and the number of calls before it.
    fn next_message(&self, results: usize) -> Option<(usize, usize)> {
        let mut first = 0;
        for (index, calls) in self.messages.iter().enumerate() {
            if results < first + calls.len() {
                return Some((index, first));
            }
            first += calls.len();
        }
        None
    }

    fn find_tool(&self, request: &ModelRequest) -> Option<OfferedTool> {
        let fits =
            |name: &str| name.strip_suffix(self.tool).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('_'));
        request.tools.iter().find(|tool| fits(&tool.name)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MessageScript, ModelScript, ScriptId, ScriptStep};
    use crate::wire::{ModelReply, ModelRequest, OfferedTool};

    fn request(tools: &[&str], results: usize) -> ModelRequest {
        let tool = |name: &&str| OfferedTool { name: (*name).to_owned(), namespace: None };
        ModelRequest {
            texts: vec!["Please run script-12.".to_owned(), "more".to_owned()],
            tools: tools.iter().map(tool).collect(),
            results: vec!["x".to_owned(); results],
            is_searched: false,
        }
    }

    #[test]
    fn a_script_is_found_by_its_key() {
        assert_eq!(ScriptId::find(&request(&[], 0)), Some(ScriptId(12)));
        assert_eq!(
            ScriptId::find(&ModelRequest { texts: vec![ScriptId(7).prompt()], ..ModelRequest::default() }),
            Some(ScriptId(7))
        );
        assert_eq!(
            ScriptId::find(&ModelRequest { texts: vec!["script-x".to_owned()], ..ModelRequest::default() }),
            None
        );
    }

    #[test]
    fn the_tool_is_called_under_the_name_that_the_program_gives_it() {
        let script = MessageScript::from(ModelScript { tool: "turn", arguments: json!({}), calls: 2 });
        for (tools, results, want) in [
            (&["turn"][..], 0, "call turn"),
            (&["return", "mcp__countersign__turn"], 0, "call mcp__countersign__turn"),
            (&["countersign_turn"], 1, "call countersign_turn when released 1"),
            (&["return", "ToolSearch"], 0, "call ToolSearch"),
            (&["return"], 0, "turn is not offered"),
            (&["turn"], 2, "finished"),
        ] {
            assert_eq!(shown(&script, tools, results), want, "{tools:?}");
        }
    }

    #[test]
    fn a_message_has_all_its_calls_and_follows_the_results_of_the_one_before() {
        let (a, b, c) = (json!({"n": 1}), json!({"n": 2}), json!({"n": 3}));
        let script = MessageScript { tool: "turn", messages: vec![vec![a, b], vec![c]] };
        for (results, want) in [(0, "call turn, call turn"), (2, "call turn when released 1"), (3, "finished")] {
            assert_eq!(shown(&script, &["turn"], results), want, "{results}");
        }
    }

    fn shown(script: &MessageScript, tools: &[&str], results: usize) -> String {
        let named = |reply: &ModelReply| match reply {
            ModelReply::Text(text) => text.clone(),
            ModelReply::Calls(calls) => {
                let names: Vec<String> = calls.iter().map(|call| format!("call {}", call.tool.name)).collect();
                names.join(", ")
            }
        };
        match script.next_step(ScriptId(1), &request(tools, results)) {
            ScriptStep::Reply(reply) => named(&reply),
            ScriptStep::ReplyWhenReleased { reply, releases } => {
                format!("{} when released {releases}", named(&reply))
            }
        }
    }
}
