//! `Bash` of a node: a command in a shell of its own, waited for or left in the background.
//!
//! It must not judge the command.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{
    execution::NodeExecution,
    executions::{CommandRequest, NodeExecutions},
    files::resolve_path,
};
use crate::{arguments, tool::ToolContext};

/// Default time limit of a command, in milliseconds.
const TIMEOUT: u64 = 5 * 60 * 1000;
/// The shortest and the longest time after which a command can be left in the background, in milliseconds.
const YIELD: (u64, u64) = (10, 120_000);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeBashArguments {
    command: String,
    workdir: Option<String>,
    timeout: Option<u64>,
    #[serde(default)]
    background: bool,
    yield_ms: Option<u64>,
}

/// Runs a command as the call `call`.
pub(super) async fn run(
    arguments: Map<String, Value>,
    call: &str,
    executions: &NodeExecutions,
    cx: &ToolContext,
) -> Result<Value, String> {
    let arguments: NodeBashArguments =
        arguments::parse_arguments("Bash", arguments).map_err(|failure| failure.to_string())?;
    if arguments.command.trim().is_empty() {
        return Err("Invalid arguments: command must not be empty".to_owned());
    }
    let workdir = match &arguments.workdir {
        None => cx.cwd.clone(),
        Some(given) => {
            let place = resolve_path(given, cx).map_err(|error| format!("Invalid arguments: workdir: {error}"))?;
            if !place.path().is_dir() {
                return Err(format!("Invalid arguments: workdir: {given} is not a folder"));
            }
            place.path().to_owned()
        }
    };
    let patience = arguments.yield_ms.map(|millis| millis.clamp(YIELD.0, YIELD.1));
    let timeout = Some(arguments.timeout.unwrap_or(TIMEOUT)).filter(|timeout| *timeout > 0);
    let request = CommandRequest {
        call: call.to_owned(),
        command: arguments.command,
        workdir,
        timeout: timeout.map(Duration::from_millis),
        // A command that is waited for cannot be given input, and would wait for it until its time is over.
        input: arguments.background || patience.is_some(),
    };
    let execution = executions.start(request).await?;
    if arguments.background && executions.move_to_background(&execution) {
        return Ok(running_result(&execution));
    }
    let waited = StopOnDrop(Some(Arc::clone(&execution)));
    let over = tokio::select! {
        biased;
        () = execution.wait_ended() => true,
        () = cx.cancel.cancelled() => {
            execution.stop().await;
            execution.wait_ended().await;
            true
        }
        () = sleep(Duration::from_millis(patience.unwrap_or_default())), if patience.is_some() => false,
    };
    waited.disarm();
    if !over && executions.move_to_background(&execution) {
        return Ok(running_result(&execution));
    }
    executions.forget_execution(&execution);
    Ok(finished_result(&execution))
}

/// A command that a call waits for. It ends when the call is dropped.
struct StopOnDrop(Option<Arc<NodeExecution>>);

impl StopOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(execution) = &self.0 {
            execution.stop_soon();
        }
    }
}

fn running_result(execution: &NodeExecution) -> Value {
    json!({
        "status": "running",
        "sessionId": execution.id,
        "pid": execution.leader,
        "startedAt": execution.started_at,
        "tail": execution.current_status().tail,
        "workdir": execution.workdir.display().to_string(),
    })
}

fn finished_result(execution: &NodeExecution) -> Value {
    let look = execution.current_status();
    let ended_at = look.ended_at.unwrap_or(execution.started_at);
    json!({
        "status": if look.status == "completed" { "completed" } else { "failed" },
        "sessionId": execution.id,
        "exitCode": look.exit_code,
        "signal": look.signal,
        "timedOut": look.timed_out,
        "startedAt": execution.started_at,
        "endedAt": ended_at,
        "durationMs": ended_at.saturating_sub(execution.started_at),
        "output": execution.kept_output(),
        "tail": look.tail,
        "truncated": look.truncated,
        "workdir": execution.workdir.display().to_string(),
    })
}
