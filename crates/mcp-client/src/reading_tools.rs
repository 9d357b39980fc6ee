//! Tools that list and read the resources and prompts of approved servers.
//!
//! It must not decide whether a call is allowed. The name of no server's own tool begins like theirs: it begins with `mcp__`.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    message::MessageBlock,
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, ToolContext};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    connection_monitor::ProgressSink,
    content::ContentBuilder,
    error::McpError,
    listing::show_hidden,
    offered_tool::{OfferedTool, check_by_schema, run_for_session},
    resource_uri::check_uri,
    resources::{ListedEntries, PromptText},
    servers::McpServers,
    tool_call::CallOutcome,
    tool_caller::ToolCaller,
};

/// Service under which agents call these tools. No server has a name that begins so.
const SERVICE: &str = "mcp:_reading";

/// Most entries that are left out and named in a list.
const MOST_PROBLEMS: usize = 20;

/// Reports whether a tool lists or reads the resources or prompts of the server that its argument `server` names.
pub(crate) fn is_reading_tool(tool: &str) -> bool {
    ReadOperation::ALL.iter().any(|operation| operation.name() == tool)
}

/// Returns the tools that read from `approved` servers; none if there are no such servers.
pub fn reading_tools(approved: &BTreeMap<String, McpServers>) -> Vec<Arc<dyn OfferedTool>> {
    if approved.is_empty() {
        return Vec::new();
    }
    let servers = Arc::new(approved.clone());
    let tools = ReadOperation::ALL.map(|operation| ReadingTool::new(operation, Arc::clone(&servers)));
    tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn OfferedTool>).collect()
}

/// Operation of one of the tools.
#[derive(Clone, Copy)]
enum ReadOperation {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

impl ReadOperation {
    const ALL: [Self; 4] = [Self::ListResources, Self::ReadResource, Self::ListPrompts, Self::GetPrompt];

    const fn name(self) -> &'static str {
        match self {
            Self::ListResources => "mcp_list_resources",
            Self::ReadResource => "mcp_read_resource",
            Self::ListPrompts => "mcp_list_prompts",
            Self::GetPrompt => "mcp_get_prompt",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::ListResources => "List the resources of an MCP server, one JSON object a line.",
            Self::ReadResource => "Read a resource of an MCP server by its URI.",
            Self::ListPrompts => "List the prompts of an MCP server and their arguments, one JSON object a line.",
            Self::GetPrompt => "Get a prompt of an MCP server, filled with arguments.",
        }
    }

    const fn reads_uri(self) -> bool {
        match self {
            Self::ReadResource => true,
            Self::ListResources | Self::ListPrompts | Self::GetPrompt => false,
        }
    }

    /// Returns the arguments that the signature names.
    const fn signature(self) -> &'static [&'static str] {
        match self {
            Self::ListResources | Self::ListPrompts => &["server"],
            Self::ReadResource => &["server", "uri"],
            Self::GetPrompt => &["server", "prompt"],
        }
    }

    fn schema(self, servers: &[&String]) -> Value {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let mut properties = Map::new();
        let server = json!({ "type": "string", "enum": servers, "description": "Name of the server" });
        properties.insert("server".to_owned(), server);
        match self {
            Self::ListResources | Self::ListPrompts => {}
            Self::ReadResource => drop(
                properties
                    .insert("uri".to_owned(), text("URI of the resource, in its normal form and without dot segments")),
            ),
            Self::GetPrompt => {
                properties.insert("prompt".to_owned(), text("Name of the prompt"));
                let arguments = json!({
                    "type": "object",
                    "description": "Arguments of the prompt, each a text",
                    "additionalProperties": { "type": "string" },
                });
                properties.insert("arguments".to_owned(), arguments);
            }
        }
        json!({
            "type": "object",
            "properties": properties,
            "required": self.signature(),
            "additionalProperties": false,
        })
    }
}

struct ReadingTool {
    operation: ReadOperation,
    spec: ToolSpec,
    servers: Arc<BTreeMap<String, McpServers>>,
}

impl ReadingTool {
    fn new(operation: ReadOperation, servers: Arc<BTreeMap<String, McpServers>>) -> Self {
        let spec = ToolSpec {
            name: operation.name().to_owned(),
            description: operation.description().to_owned(),
            schema: operation.schema(&servers.keys().collect::<Vec<_>>()),
            concurrency: CallConcurrency::Exclusive,
            repeat: RepeatMode::Once,
            // What a server does when it is read is its own affair, and an address can carry something out.
            effect: ToolEffect::Changes,
            signature: operation.signature(),
        };
        Self { operation, spec, servers }
    }

    async fn read(&self, arguments: &Map<String, Value>) -> Result<Vec<MessageBlock>, McpError> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let server = text("server");
        let servers = self.servers.get(server).ok_or_else(|| McpError::UnknownServer(server.to_owned()))?;
        let mut content = ContentBuilder::new(servers.server(server)?.limits());
        match self.operation {
            ReadOperation::ListResources => {
                push_lines(&mut content, &servers.list_resources(server).await?, "no resources");
            }
            ReadOperation::ReadResource => return servers.read_resource(server, text("uri")).await,
            ReadOperation::ListPrompts => push_lines(&mut content, &servers.list_prompts(server).await?, "no prompts"),
            ReadOperation::GetPrompt => {
                let given = arguments.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
                for PromptText { is_assistant, content: blocks } in
                    servers.get_prompt(server, text("prompt"), given).await?
                {
                    content.push_text(if is_assistant {
                        "[message of the assistant]"
                    } else {
                        "[message of the user]"
                    });
                    blocks.into_iter().for_each(|block| content.push_read(block));
                }
            }
        }
        Ok(content.finish())
    }

    /// Returns the outcome of a request that may have been sent, without its answer. A list changes nothing.
    fn unanswered(&self, why: String) -> CallOutcome {
        match self.operation {
            ReadOperation::ListResources | ReadOperation::ListPrompts => CallOutcome::Failed { text: why },
            ReadOperation::ReadResource | ReadOperation::GetPrompt => {
                CallOutcome::InDoubt { text: format!("Outcome unknown: {why}") }
            }
        }
    }
}

/// Adds one line of JSON for each entry, and one for each that is left out, up to the limits.
fn push_lines<T: Serialize>(content: &mut ContentBuilder, listed: &ListedEntries<T>, none: &str) {
    // Before the entries: a server could push them beyond the limits.
    let problems = listed.problems.iter().take(MOST_PROBLEMS).map(|problem| format!("[left out: {problem}]"));
    let more = listed.problems.len().saturating_sub(MOST_PROBLEMS);
    let more = (more > 0).then(|| format!("[left out: {more} more entries]"));
    let lines = listed.entries.iter().filter_map(|entry| serde_json::to_string(entry).ok());
    // JSON has its own way to write control characters, and none for those that only change how text looks.
    let lines = lines.map(|line| show_hidden(&line));
    let lines: Vec<String> = problems.chain(more).chain(lines).collect();
    content.push_text(if lines.is_empty() { none.to_owned() } else { lines.join("\n") }.as_str());
}

impl OfferedTool for ReadingTool {
    fn service(&self) -> String {
        SERVICE.to_owned()
    }

    fn call<'a>(
        &'a self,
        _caller: &'a ToolCaller,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
        _progress: ProgressSink,
    ) -> BoxFuture<'a, CallOutcome> {
        Box::pin(async move {
            let stopped = format!("{} was stopped before its end", self.spec.name);
            if cancel.is_cancelled() {
                return CallOutcome::Failed { text: stopped };
            }
            let read = tokio::select! {
                biased;
                () = cancel.cancelled() => return self.unanswered(stopped),
                read = self.read(&arguments) => read,
            };
            match read {
                Ok(content) => CallOutcome::Done { content, is_error: false, structured: None },
                Err(error) if error.is_before_request() => CallOutcome::from_error(&error),
                Err(error @ McpError::Lost { .. }) => self.unanswered(error.to_string()),
                Err(error) => CallOutcome::Failed { text: error.to_string() },
            }
        })
    }
}

impl AgentTool for ReadingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        let members = check_by_schema(&self.spec.name, &self.spec.schema, arguments)?;
        let uri = members.get("uri").and_then(Value::as_str).filter(|_| self.operation.reads_uri());
        match uri.map_or(Ok(()), check_uri) {
            Ok(()) => Ok(members),
            Err(problem) => {
                let name = &self.spec.name;
                Err(CallFailure::Invalid(format!("Invalid arguments for {name}:\n- {problem}")))
            }
        }
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(run_for_session(self, arguments, cx))
    }
}

#[cfg(test)]
mod tests;
