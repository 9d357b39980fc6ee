//! Tools that runs and agents are offered because of servers, and the run of one in a session.
//!
//! It must not know which tools there are, nor whether a call is allowed.

use countersign_core::message::MessageBlock;
use countersign_runtime::tools::{AgentTool, CallFailure, CallOutput, ToolContext};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    argument_check::find_problems,
    connection_monitor::{ProgressSink, ToolProgress},
    tool_call::CallOutcome,
    tool_caller::ToolCaller,
};

/// A tool that goes to servers. Runs call it as an [`AgentTool`], agents of the gateway with [`OfferedTool::call`].
pub trait OfferedTool: AgentTool {
    /// Returns the service under which agents call it, as rules name it: `mcp:` and the name of the server.
    fn service(&self) -> String;

    /// Calls it with arguments that [`AgentTool::check_arguments`] accepted, and waits for the end or for `cancel`. If the server asks
    /// people meanwhile, they are shown `caller`.
    fn call<'a>(
        &'a self,
        caller: &'a ToolCaller,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
        progress: ProgressSink,
    ) -> BoxFuture<'a, CallOutcome>;
}

/// Calls a tool for a run, which sees its progress and may stop it.
pub(crate) async fn run_for_session<T: OfferedTool + ?Sized>(
    tool: &T,
    arguments: Map<String, Value>,
    cx: &ToolContext,
) -> Result<CallOutput, CallFailure> {
    let cancel = CancellationToken::new();
    let updates = cx.updates.clone();
    let progress = ProgressSink::new(move |progress| {
        updates.send_update(|| CallOutput::from_text(progress_text(&progress)));
    });
    let name = if cx.call.is_empty() { String::new() } else { format!("a run ({})", cx.call) };
    let caller = ToolCaller { name, principal: None };
    let call = tool.call(&caller, arguments, cancel.clone(), progress);
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

/// Checks arguments against the schema of a tool. They are never changed.
pub(crate) fn check_by_schema(
    name: &str,
    schema: &Value,
    arguments: &Value,
) -> Result<Map<String, Value>, CallFailure> {
    let Value::Object(members) = arguments else {
        return Err(CallFailure::Invalid(format!("Invalid arguments for {name}:\n- arguments must be an object")));
    };
    let problems = find_problems(schema, members);
    if problems.is_empty() {
        return Ok(members.clone());
    }
    Err(CallFailure::Invalid(format!("Invalid arguments for {name}:\n- {}", problems.join("\n- "))))
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
