//! `Process` of a node: looks after commands in the background.
//!
//! It must not start any. What is not there is a result, as gateways expect it, and not an error.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    execution::{Execution, now},
    executions::Executions,
};
use crate::arguments;

/// How many lines of a log are shown where nothing is said.
const LINES: usize = 200;
/// The longest input that is taken at once, in bytes. More could not be judged.
pub(super) const INPUT: usize = 32 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    action: String,
    session_id: Option<String>,
    data: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// Does what `action` says.
pub(super) async fn run(arguments: Map<String, Value>, executions: &Executions) -> Result<Value, String> {
    let arguments: Arguments = arguments::parse("Process", arguments).map_err(|failure| failure.to_string())?;
    let action = arguments.action.trim().to_lowercase();
    if action == "list" {
        return Ok(list(executions));
    }
    let Some(id) = arguments.session_id.as_deref().map(str::trim).filter(|id| !id.is_empty()) else {
        return Err("sessionId is required for this action".to_owned());
    };
    let Some(execution) = executions.get(id) else { return Ok(failed(format!("No session found for {id}"))) };
    if !execution.in_background() {
        return Ok(failed(format!("Session {id} is not in the background")));
    }
    let is_over = execution.ended_at().is_some();
    Ok(match action.as_str() {
        "poll" => poll(&execution),
        "log" => log(&execution, arguments.offset.unwrap_or(0), arguments.limit.unwrap_or(LINES)),
        "write" | "submit" | "kill" if is_over => failed(format!("Session {id} has ended already")),
        "write" | "submit" => {
            let mut data = arguments.data.unwrap_or_default();
            if action == "submit" {
                data.push('\n');
            }
            let bytes = data.len();
            if bytes > INPUT {
                failed(format!("{bytes} bytes are more than can be written at once ({INPUT})"))
            } else {
                match execution.give(data.into_bytes()).await {
                    Ok(()) => json!({"status": "running", "sessionId": id, "bytesWritten": bytes}),
                    Err(error) => failed(format!("Session {id} was not written to: {error}")),
                }
            }
        }
        "kill" => {
            execution.stop().await;
            json!({"status": "running", "sessionId": id, "message": "It is being ended"})
        }
        _ => failed(format!("Unknown action {action}: one of list, poll, log, write, submit, kill is wanted")),
    })
}

fn failed(error: String) -> Value {
    json!({"status": "failed", "error": error})
}

fn list(executions: &Executions) -> Value {
    let now = now();
    let (mut sessions, mut lines) = (Vec::new(), Vec::new());
    for execution in executions.list() {
        let look = execution.look();
        let runtime = look.ended_at.unwrap_or(now).saturating_sub(execution.started_at);
        let Execution { id, command, leader, started_at, .. } = &*execution;
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

fn poll(execution: &Execution) -> Value {
    let look = execution.look();
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

fn log(execution: &Execution, offset: usize, limit: usize) -> Value {
    let look = execution.look();
    let output = execution.output();
    let lines: Vec<&str> = output.lines().skip(offset).take(limit).collect();
    let shown = match (lines.is_empty(), look.ended_at) {
        (false, _) => lines.join("\n"),
        (true, None) => "(no output yet)".to_owned(),
        (true, Some(_)) => "(no output recorded)".to_owned(),
    };
    let mut told = json!({
        "status": look.status,
        "sessionId": execution.id,
        "log": shown,
        "totalLines": output.lines().count(),
        "totalChars": output.chars().count(),
        "truncated": look.truncated,
    });
    if look.ended_at.is_some() {
        told["exitCode"] = look.exit_code.into();
        told["signal"] = look.signal.into();
    }
    told
}
