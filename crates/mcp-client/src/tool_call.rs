//! Outcome of a tool call: how far it got, and the bounded answer of the server.
//!
//! It must not know whether the call was allowed.

use countersign_core::message::MessageBlock;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, InputResponses, ServerResult,
};
use serde_json::{Map, Value};

use crate::{connection::RequestFailure, content::ContentBuilder, error::McpError, options::McpLimits};

/// Outcome of a call. Each text names the server.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// The server did it, or reports an error of the tool.
    Done {
        /// Text and images, up to the limits.
        content: Vec<MessageBlock>,
        /// True if the tool ran and reports that it failed.
        is_error: bool,
        /// Structured result, if there is one and it is not larger than the limit of text.
        structured: Option<Value>,
    },
    /// The server answered, and its answer is an error or no result of a tool.
    Failed {
        /// Why.
        text: String,
    },
    /// Nothing was sent.
    NotBegun {
        /// Why.
        text: String,
    },
    /// The call was sent, or may have been, and no answer came back.
    InDoubt {
        /// Why.
        text: String,
    },
}

impl CallOutcome {
    /// Returns the outcome of a call for which there was no connection.
    pub(crate) fn from_error(error: &McpError) -> Self {
        Self::NotBegun { text: error.to_string() }
    }

    /// Returns the outcome of a call of `tool` that has no result.
    pub(crate) fn from_failure(server: &str, tool: &str, failure: RequestFailure) -> Self {
        match failure {
            RequestFailure::NotSent(why) => {
                Self::NotBegun { text: format!("MCP server {server}: {tool} was not called: {why}") }
            }
            RequestFailure::Lost(why) => Self::InDoubt {
                text: format!("Outcome unknown: MCP server {server} got the call of {tool}, but {why}"),
            },
            RequestFailure::Refused(why) => Self::Failed { text: format!("MCP server {server}: {tool} failed: {why}") },
        }
    }

    /// Returns the outcome of a call of `tool` that was answered.
    pub(crate) fn from_answer(server: &str, tool: &str, answer: ServerResult, limits: &McpLimits) -> Self {
        let failed = |why: &str| Self::Failed { text: format!("MCP server {server}: {tool} failed: {why}") };
        match answer {
            ServerResult::CallToolResult(result) => Self::from_result(result, limits),
            // Nothing of it says that the tool did something.
            ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => {
                failed("the answer is no result of a tool: it has neither content nor structuredContent")
            }
            ServerResult::InputRequiredResult(_) => failed("the server wants input that it cannot get"),
            ServerResult::CreateTaskResult(_) => failed("the server made it a task, which this client does not follow"),
            _ => failed("the answer is no result of a tool"),
        }
    }

    fn from_result(result: CallToolResult, limits: &McpLimits) -> Self {
        // Null says nothing: the result is empty then, as one with an empty content.
        let structured = result.structured_content.filter(|value| !value.is_null());
        let mut content = ContentBuilder::new(limits);
        if let Some(value) = structured.as_ref().filter(|_| result.content.is_empty()) {
            content.push_text(&value.to_string());
        }
        for block in result.content {
            content.push_block(block);
        }
        Self::Done {
            content: content.finish(),
            is_error: result.is_error.unwrap_or(false),
            structured: structured.filter(|value| value.to_string().len() <= limits.text),
        }
    }
}

/// Input that a server wanted for a call, with its own state as it sent it.
#[derive(Default)]
pub(crate) struct CallInput {
    pub(crate) responses: Option<InputResponses>,
    pub(crate) state: Option<String>,
}

/// Returns the request of a call.
pub(crate) fn call_request(tool: &str, arguments: Map<String, Value>, input: CallInput) -> ClientRequest {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = Some(arguments);
    params.input_responses = input.responses;
    params.request_state = input.state;
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}
