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

/// Calls that the model makes, all of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelScript {
    /// Name of the tool without the prefix of the program.
    pub tool: &'static str,
    /// Arguments of each call.
    pub arguments: Value,
    /// Number of calls. Each but the first waits for its release.
    pub calls: usize,
}

/// Next step of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptStep {
    /// The reply can be sent.
    Reply(ModelReply),
    /// The reply is sent once the script is released.
    ReplyWhenReleased(ModelReply),
}

impl ModelScript {
    /// Decides the next step.
    pub(crate) fn next_step(&self, id: ScriptId, request: &ModelRequest) -> ScriptStep {
        let calls = request.results.len();
        if calls >= self.calls {
            return ScriptStep::Reply(ModelReply::Text("finished".to_owned()));
        }
        let call = |kind: &str, tool, arguments| {
            // Programs drop a call whose id they have seen.
            let id = format!("{kind}_{}_{calls}", id.0);
            ModelReply::Call(ModelCall { id, tool, arguments })
        };
        match self.find_tool(request) {
            Some(tool) if calls == 0 => ScriptStep::Reply(call("call", tool, self.arguments.clone())),
            Some(tool) => ScriptStep::ReplyWhenReleased(call("call", tool, self.arguments.clone())),
            None => match request.tools.iter().find(|tool| tool.name == TOOL_SEARCH && !request.is_searched) {
                Some(search) => {
                    let query = format!("select:{CLAUDE_PREFIX}{}", self.tool);
                    ScriptStep::Reply(call("search", search.clone(), json!({ "query": query, "max_results": 5 })))
                }
                None => ScriptStep::Reply(ModelReply::Text(format!("{} is not offered", self.tool))),
            },
        }
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

    use super::{ModelScript, ScriptId, ScriptStep};
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
        let script = ModelScript { tool: "turn", arguments: json!({}), calls: 2 };
        for (tools, results, want) in [
            (&["turn"][..], 0, "call turn"),
            (&["return", "mcp__countersign__turn"], 0, "call mcp__countersign__turn"),
            (&["countersign_turn"], 1, "call countersign_turn when released"),
            (&["return", "ToolSearch"], 0, "call ToolSearch"),
            (&["return"], 0, "turn is not offered"),
            (&["turn"], 2, "finished"),
        ] {
            let named = |reply: &ModelReply| match reply {
                ModelReply::Text(text) => text.clone(),
                ModelReply::Call(call) => format!("call {}", call.tool.name),
            };
            let step = match script.next_step(ScriptId(1), &request(tools, results)) {
                ScriptStep::Reply(reply) => named(&reply),
                ScriptStep::ReplyWhenReleased(reply) => format!("{} when released", named(&reply)),
            };
            assert_eq!(step, want, "{tools:?}");
        }
    }
}
