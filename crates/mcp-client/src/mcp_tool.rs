//! An approved tool of a server, as runs and agents call it.
//!
//! It must not decide whether a call is allowed. Hints of the server about its tool grant nothing.

use std::sync::Arc;

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, ToolContext};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    connection_monitor::ProgressSink,
    listing::ServerTool,
    offered_tool::{OfferedTool, check_by_schema, run_for_session},
    refused_servers::RefusedServers,
    servers::McpServers,
    tool_call::CallOutcome,
    tool_caller::ToolCaller,
};

/// An approved tool of a server.
///
/// A call is sent only if the server offers the tool as it was approved.
pub struct McpTool {
    spec: ToolSpec,
    servers: McpServers,
    approved: ServerTool,
    /// Learns of calls that were not sent: the tool may have changed.
    refused: Arc<RefusedServers>,
}

impl McpTool {
    /// Creates the tool from what was approved.
    pub fn new(servers: McpServers, approved: ServerTool) -> Self {
        Self::watched_by(servers, approved, Arc::default())
    }

    /// Does the same, with a list of the servers of which a call was refused.
    pub(crate) fn watched_by(servers: McpServers, approved: ServerTool, refused: Arc<RefusedServers>) -> Self {
        let spec = ToolSpec {
            name: approved.offered_name.clone(),
            description: approved.description.clone(),
            schema: approved.schema.clone(),
            concurrency: CallConcurrency::Exclusive,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            signature: &[],
        };
        Self { spec, servers, approved, refused }
    }
}

impl OfferedTool for McpTool {
    fn service(&self) -> String {
        format!("mcp:{}", self.approved.server)
    }

    fn call<'a>(
        &'a self,
        caller: &'a ToolCaller,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
        progress: ProgressSink,
    ) -> BoxFuture<'a, CallOutcome> {
        Box::pin(async move {
            let outcome = self.servers.call_approved(&self.approved, caller, arguments, cancel, progress).await;
            if matches!(outcome, CallOutcome::NotBegun { .. }) {
                self.refused.add(&self.approved.server);
            }
            outcome
        })
    }
}

impl AgentTool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        check_by_schema(&self.spec.name, &self.spec.schema, arguments)
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
