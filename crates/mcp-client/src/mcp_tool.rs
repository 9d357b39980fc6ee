//! An approved tool of a server, as runs call it.
//!
//! It must not decide whether a call is allowed. Hints of the server about its tool grant nothing.

use countersign_core::{
    message::MessageBlock,
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, ToolContext};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    argument_check::find_problems,
    connection_monitor::{ProgressSink, ToolProgress},
    listing::ServerTool,
    servers::McpServers,
    tool_call::CallOutcome,
};

/// An approved tool of a server.
///
/// A call is sent only if the server offers the tool as it was approved.
pub struct McpTool {
    spec: ToolSpec,
    servers: McpServers,
    approved: ServerTool,
}

impl McpTool {
    /// Creates the tool from what was approved.
    pub fn new(servers: McpServers, approved: ServerTool) -> Self {
        let spec = ToolSpec {
            name: approved.offered_name.clone(),
            description: approved.description.clone(),
            schema: approved.schema.clone(),
            concurrency: CallConcurrency::Exclusive,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            signature: &[],
        };
        Self { spec, servers, approved }
    }

    async fn run_call(&self, arguments: Map<String, Value>, cx: &ToolContext) -> Result<CallOutput, CallFailure> {
        let cancel = CancellationToken::new();
        let caller = if cx.call.is_empty() { String::new() } else { format!("a run ({})", cx.call) };
        let updates = cx.updates.clone();
        let progress = ProgressSink::new(move |progress| {
            updates.send_update(|| CallOutput::from_text(progress_text(&progress)));
        });
        let call = self.servers.call_approved(&self.approved, &caller, arguments, cancel.clone(), progress);
        tokio::pin!(call);
        let outcome = tokio::select! {
            biased;
            () = cx.wait_stopped() => {
                cancel.cancel();
                call.await
            }
            outcome = &mut call => outcome,
        };
        match outcome {
            CallOutcome::Done { mut content, is_error, structured } => {
                if content.is_empty() {
                    content.push(MessageBlock::from_text("(no content)"));
                }
                let details = structured.map(|structured| json!({ "structuredContent": structured }));
                Ok(CallOutput { content, details, is_error })
            }
            CallOutcome::Failed { text } => Err(CallFailure::Failed(text)),
            CallOutcome::NotBegun { text } => Err(CallFailure::NotBegun(text)),
            CallOutcome::InDoubt { text } => Err(CallFailure::InDoubt(text)),
        }
    }
}

impl AgentTool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        let name = &self.spec.name;
        let Value::Object(members) = arguments else {
            return Err(CallFailure::Invalid(format!("Invalid arguments for {name}:\n- arguments must be an object")));
        };
        let problems = find_problems(&self.spec.schema, members);
        if problems.is_empty() {
            return Ok(members.clone());
        }
        Err(CallFailure::Invalid(format!("Invalid arguments for {name}:\n- {}", problems.join("\n- "))))
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(self.run_call(arguments, cx))
    }
}

fn progress_text(progress: &ToolProgress) -> String {
    let ToolProgress { progress, total, message } = progress;
    let share = match total {
        Some(total) => format!("{progress} of {total}"),
        None => progress.to_string(),
    };
    match message {
        Some(message) => format!("{message} ({share})"),
        None => share,
    }
}

#[cfg(test)]
mod tests;
