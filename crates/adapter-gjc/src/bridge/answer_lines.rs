//! Answers of clients to open prompts, as lines for the adapter.
//!
//! It must not know HTTP, nor which client may answer.

use countersign_protocol::{
    RawJson, WireValue,
    gjc::bridge::{DialogAnswer, GateAnswer, PermissionAnswer, PermissionKind},
    omp::UiAnswer,
};
use serde::Serialize;

/// The line that answers a dialog.
#[derive(Serialize)]
#[serde(tag = "type", rename = "extension_ui_response", rename_all = "camelCase")]
struct DialogAnswerLine<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<bool>,
}

impl WireValue for DialogAnswerLine<'_> {}

/// The line that answers a gate, without its id.
#[derive(Serialize)]
#[serde(tag = "type", rename = "workflow_gate_response")]
struct GateAnswerLine<'a> {
    gate_id: &'a str,
    answer: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

impl WireValue for GateAnswerLine<'_> {}

fn dialog_line(id: &str, answer: &UiAnswer) -> String {
    let mut answer_line = DialogAnswerLine { id, value: None, confirmed: None, cancelled: None, timed_out: None };
    match answer {
        UiAnswer::Value(value) => answer_line.value = Some(value),
        UiAnswer::Confirmed(yes) => answer_line.confirmed = Some(*yes),
        UiAnswer::Cancelled { timed_out } => {
            answer_line.cancelled = Some(true);
            answer_line.timed_out = timed_out.then_some(true);
        }
    }
    RawJson::from_wire(&answer_line).as_text().to_owned()
}

/// Returns the line that answers a dialog. A client that cannot show it leaves it unanswered.
pub(super) fn dialog_answer(id: &str, answer: &DialogAnswer) -> String {
    match answer {
        DialogAnswer::Answered(answer) => dialog_line(id, answer),
        DialogAnswer::Unsupported => cancelled_dialog(id),
    }
}

/// Returns the line that answers a call that requires an approval: one of the options, by its id.
pub(super) fn permission_answer(id: &str, answer: &PermissionAnswer) -> String {
    match answer {
        PermissionAnswer::Selected { option_id } => {
            dialog_line(id, &UiAnswer::Value(PermissionKind::name(*option_id).to_owned()))
        }
        PermissionAnswer::Cancelled => cancelled_dialog(id),
    }
}

/// Returns the line that leaves a dialog unanswered.
pub(super) fn cancelled_dialog(id: &str) -> String {
    dialog_line(id, &UiAnswer::Cancelled { timed_out: false })
}

/// Returns the command that answers a gate.
pub(super) fn gate_answer(answer: &GateAnswer) -> String {
    let GateAnswer { gate_id, answer, idempotency_key } = answer;
    RawJson::from_wire(&GateAnswerLine { gate_id, answer, idempotency_key: idempotency_key.as_deref() })
        .as_text()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gjc::{
        GjcInboundFrame,
        bridge::{DialogAnswer, PermissionAnswer},
        parse_line,
    };
    use countersign_protocol::omp::UiAnswer;

    use super::{dialog_answer, permission_answer};

    #[test]
    fn the_adapter_reads_the_frames_of_a_client_unchanged() {
        let answered = |answer| GjcInboundFrame::UiResponse { id: "d1".to_owned(), answer };
        for (body, want) in [
            (r#"{"status":"value","value":"x"}"#, UiAnswer::Value("x".to_owned())),
            (r#"{"status":"value","value":true}"#, UiAnswer::Confirmed(true)),
            (r#"{"status":"cancelled","reason":"timeout"}"#, UiAnswer::Cancelled { timed_out: true }),
            (r#"{"status":"cancelled"}"#, UiAnswer::Cancelled { timed_out: false }),
            (r#"{"status":"unsupported","capability":"x"}"#, UiAnswer::Cancelled { timed_out: false }),
        ] {
            let line = dialog_answer("d1", &DialogAnswer::from_body(body).unwrap());
            assert_eq!(parse_line(&line).unwrap(), answered(want), "{body}");
        }
        for (body, want) in [
            (r#"{"outcome":"selected","optionId":"allow_once"}"#, UiAnswer::Value("allow_once".to_owned())),
            (
                r#"{"outcome":"selected","optionId":"reject_always","kind":"x"}"#,
                UiAnswer::Value("reject_always".to_owned()),
            ),
            (r#"{"outcome":"cancelled"}"#, UiAnswer::Cancelled { timed_out: false }),
        ] {
            let line = permission_answer("d1", &PermissionAnswer::from_body(body).unwrap());
            assert_eq!(parse_line(&line).unwrap(), answered(want), "{body}");
        }
    }
}
