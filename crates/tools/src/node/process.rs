//! `Process` of a node: manages commands in the background.
//!
//! It must not start any. A missing command is a result, as gateways expect it, and not an error.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    execution::{NodeExecution, now_millis},
    executions::NodeExecutions,
};
use crate::arguments;

/// Default number of lines of a log.
const LINES: usize = 200;
/// The longest input that is taken at once, in bytes. More could not be judged.
pub(super) const INPUT: usize = 32 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeProcessArguments {
    action: String,
    session_id: Option<String>,
    data: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// Performs `action`.
pub(super) async fn run(arguments: Map<String, Value>, executions: &NodeExecutions) -> Result<Value, String> {
    let arguments: NodeProcessArguments =
        arguments::parse_arguments("Process", arguments).map_err(|failure| failure.to_string())?;
    let action = arguments.action.trim().to_lowercase();
    if action == "list" {
        return Ok(list_sessions(executions));
    }
    let Some(id) = arguments.session_id.as_deref().map(str::trim).filter(|id| !id.is_empty()) else {
        return Err("sessionId is required for this action".to_owned());
    };
    let Some(execution) = executions.get(id) else { return Ok(failed_result(format!("No session found for {id}"))) };
    if !execution.in_background() {
        return Ok(failed_result(format!("Session {id} is not in the background")));
    }
    let is_over = execution.ended_at().is_some();
    Ok(match action.as_str() {
        "poll" => poll(&execution),
        "log" => read_log(&execution, arguments.offset.unwrap_or(0), arguments.limit.unwrap_or(LINES)),
        "write" | "submit" | "kill" if is_over => failed_result(format!("Session {id} has ended already")),
        "write" | "submit" => {
            let mut data = arguments.data.unwrap_or_default();
            if action == "submit" {
                data.push('\n');
            }
            let bytes = data.len();
            if bytes > INPUT {
                failed_result(format!("data has {bytes} bytes, but at most {INPUT} can be written at once"))
            } else {
                match execution.write_input(data.into_bytes()).await {
                    Ok(()) => json!({"status": "running", "sessionId": id, "bytesWritten": bytes}),
                    Err(error) => failed_result(format!("Failed to write to session {id}: {error}")),
                }
            }
        }
        "kill" => {
            execution.stop().await;
            json!({"status": "running", "sessionId": id, "message": "The command is being stopped"})
        }
        _ => failed_result(format!("Unknown action {action}: expected list, poll, log, write, submit or kill")),
    })
}

fn failed_result(error: String) -> Value {
    json!({"status": "failed", "error": error})
}

fn list_sessions(executions: &NodeExecutions) -> Value {
    let now = now_millis();
    let (mut sessions, mut lines) = (Vec::new(), Vec::new());
    for execution in executions.list_background() {
        let look = execution.current_status();
        let runtime = look.ended_at.unwrap_or(now).saturating_sub(execution.started_at);
        let NodeExecution { id, command, leader, started_at, .. } = &*execution;
        lines.push(format!("{id} {:<9} {runtime}ms :: {command}", look.status));
        sessions.push(json!({
            "sessionId": id,
            "status": look.status,
            "pid": leader,
            "startedAt": started_at,
            "endedAt": look.ended_at,
            "runtimeMs": runtime,
            "workdir": execution.workdir.display().to_string(),
            "command": command,
            "tail": look.tail,
            "truncated": look.truncated,
            "exitCode": look.exit_code,
            "signal": look.signal,
            "timedOut": look.timed_out,
        }));
    }
    let text = if lines.is_empty() { "No running or recent sessions.".to_owned() } else { lines.join("\n") };
    json!({"status": "completed", "sessions": sessions, "text": text})
}

fn poll(execution: &NodeExecution) -> Value {
    let look = execution.current_status();
    json!({
        "status": look.status,
        "sessionId": execution.id,
        "exitCode": look.exit_code,
        "signal": look.signal,
        "timedOut": look.timed_out,
        "tail": look.tail,
        "running": look.ended_at.is_none(),
    })
}

fn read_log(execution: &NodeExecution, offset: usize, limit: usize) -> Value {
    let look = execution.current_status();
    let output = execution.kept_output();
    let lines: Vec<&str> = output.lines().skip(offset).take(limit).collect();
    let shown = match (lines.is_empty(), look.ended_at) {
        (false, _) => lines.join("\n"),
        (true, None) => "(no output yet)".to_owned(),
        (true, Some(_)) => "(no output recorded)".to_owned(),
    };
    let mut result = json!({
        "status": look.status,
        "sessionId": execution.id,
        "log": shown,
        "totalLines": output.lines().count(),
        "totalChars": output.chars().count(),
        "truncated": look.truncated,
    });
    if look.ended_at.is_some() {
        result["exitCode"] = look.exit_code.into();
        result["signal"] = look.signal.into();
    }
    result
}
