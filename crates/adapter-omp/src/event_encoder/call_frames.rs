//! Frames of the calls of a run: their beginnings, and their ends with the results.
//!
//! It must not know when a run or a turn begins or ends.

use countersign_core::{
    call::{self, Executor},
    id::CallId,
};
use countersign_protocol::omp::message::ToolOutput;
use serde_json::{Value, json};

use super::{EndedOperation, EventEncoder, OmpEvent, shown_call::shown_call};

impl EventEncoder {
    pub(super) fn encode_call(
        &mut self,
        event: &call::Event,
        content: Option<&str>,
        frames: &mut Vec<OmpEvent>,
    ) -> Option<EndedOperation> {
        match event {
            call::Event::Proposed { call, run, executor, .. } => {
                if run.is_some() && *executor != Executor::Shell {
                    let content = content.and_then(|content| serde_json::from_str(content).ok());
                    if let Some(content) = content {
                        self.calls.insert(*call, shown_call(&content));
                    }
                }
            }
            call::Event::Started { call, .. } => self.start_call(*call, frames),
            call::Event::Ended { call, .. } => {
                if !self.calls.contains_key(call) {
                    return Some(EndedOperation::Command(*call, None));
                }
                self.start_call(*call, frames);
                self.end_call(*call, frames);
            }
            call::Event::Requested { .. }
            | call::Event::Received { .. }
            | call::Event::Allowed { .. }
            | call::Event::Gated { .. }
            | call::Event::Waits { .. }
            | call::Event::Aborting { .. }
            | call::Event::InDoubt { .. }
            | call::Event::AskedAgain { .. }
            | call::Event::LeftBehind { .. }
            | call::Event::Again { .. }
            | call::Event::ResultDropped { .. } => {}
        }
        None
    }

    pub(super) fn start_call(&mut self, call: CallId, frames: &mut Vec<OmpEvent>) {
        let Some(shown) = self.calls.get_mut(&call) else { return };
        if !std::mem::replace(&mut shown.is_started, true) && !self.is_detached {
            frames.push(OmpEvent::ToolExecutionStart {
                tool_call_id: shown.tool_call_id.clone(),
                tool_name: shown.tool.clone(),
                args: shown.arguments.clone(),
                intent: shown.intent.clone(),
            });
        }
    }

    fn end_call(&mut self, call: CallId, frames: &mut Vec<OmpEvent>) {
        let Some((shown, (result, message))) = self.calls.remove(&call).zip(self.result.take()) else { return };
        self.turn_results.push(message.clone());
        self.added.push(message.clone());
        if self.is_detached {
            return;
        }
        let output = json!({ "content": result.get("content"), "details": result.get("details") });
        let empty = || ToolOutput { content: Vec::new(), details: None };
        frames.push(OmpEvent::ToolExecutionEnd {
            tool_call_id: shown.tool_call_id,
            tool_name: shown.tool,
            result: serde_json::from_value(output).unwrap_or_else(|_| empty()),
            is_error: result.get("isError") == Some(&Value::Bool(true)),
        });
        frames.push(OmpEvent::MessageStart { message: message.clone() });
        frames.push(OmpEvent::MessageEnd { message });
    }
}
