//! Writes dialogs as the bridge has them, and reads their answers.
//!
//! It must not know what a dialog decides.

use serde::{Deserialize, Serialize};

use super::{BridgeError, ExpectedInput};
use crate::gjc::ui::{GjcUiMethod, OwnMethod};
use crate::json::{RawJson, WireValue};
use crate::omp::ui::{NotifyType, UiAnswer, WidgetPlacement};

/// The payload of a `ui_request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum DialogPayload {
    /// Lets a person choose one of several.
    Select {
        /// The question.
        title: String,
        /// The choices.
        options: Vec<String>,
        /// Milliseconds until the default counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// Asks yes or no.
    Confirm {
        /// The question.
        title: String,
        /// Details of the question.
        message: String,
        /// Milliseconds until the default counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// Asks for a line of text.
    Input {
        /// The question.
        title: String,
        /// Shown while the line is empty.
        #[serde(skip_serializing_if = "Option::is_none")]
        placeholder: Option<String>,
        /// Milliseconds until the default counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// Asks for a longer text.
    Editor {
        /// The question.
        title: String,
        /// Text to begin with.
        #[serde(skip_serializing_if = "Option::is_none")]
        prefill: Option<String>,
        /// True if it looks like the prompt.
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt_style: Option<bool>,
    },
    /// Shows a notice.
    Notify {
        /// Text of the notice.
        message: String,
        /// Absent means info.
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        notify_type: Option<NotifyType>,
    },
    /// Shows a word in the status line, or takes it away.
    Status {
        /// Names the word's place.
        key: String,
        /// Absent takes it away.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// Shows lines next to the editor, or removes them.
    Widget {
        /// Names the place.
        key: String,
        /// Absent takes them away.
        #[serde(skip_serializing_if = "Option::is_none")]
        lines: Option<Vec<String>>,
        /// Absent means above.
        #[serde(skip_serializing_if = "Option::is_none")]
        placement: Option<WidgetPlacement>,
    },
    /// Names the window.
    Title {
        /// The name.
        title: String,
    },
    /// Puts a text where a person types.
    SetEditorText {
        /// The text.
        text: String,
    },
    /// Something that the bridge cannot show.
    Unsupported {
        /// The capability that it would need.
        capability: String,
        /// Reason that it is not available.
        reason: String,
    },
}

impl WireValue for DialogPayload {}

impl DialogPayload {
    /// Makes a dialog of stdio one of the bridge; none for one that only takes another away.
    pub fn from_ui_method(method: GjcUiMethod) -> Option<Self> {
        use crate::omp::UiMethod as Shared;
        Some(match method {
            GjcUiMethod::Shared(Shared::Select { title, options, timeout }) => Self::Select { title, options, timeout },
            GjcUiMethod::Shared(Shared::Confirm { title, message, timeout }) => {
                Self::Confirm { title, message, timeout }
            }
            GjcUiMethod::Shared(Shared::Input { title, placeholder, timeout }) => {
                Self::Input { title, placeholder, timeout }
            }
            GjcUiMethod::Shared(Shared::Editor { title, prefill, prompt_style }) => {
                Self::Editor { title, prefill, prompt_style }
            }
            GjcUiMethod::Shared(Shared::Notify { message, notify_type }) => Self::Notify { message, notify_type },
            GjcUiMethod::Shared(Shared::SetStatus { status_key: key, status_text: text }) => Self::Status { key, text },
            GjcUiMethod::Shared(Shared::SetWidget { widget_key, widget_lines, widget_placement }) => {
                Self::Widget { key: widget_key, lines: widget_lines, placement: widget_placement }
            }
            GjcUiMethod::Shared(Shared::SetTitle { title }) => Self::Title { title },
            GjcUiMethod::Shared(Shared::SetEditorText { text }) => Self::SetEditorText { text },
            GjcUiMethod::Shared(Shared::Cancel { .. }) => return None,
            GjcUiMethod::Own(OwnMethod::OpenUrl { url, instructions }) => Self::Notify {
                message: instructions.map_or_else(|| url.clone(), |instructions| format!("{instructions}\n{url}")),
                notify_type: Some(NotifyType::Info),
            },
        })
    }
}

/// Body of a client's answer to a dialog.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[serde(rename = "Said")]
enum DialogAnswerBody {
    Value { value: serde_json::Value },
    Cancelled { reason: Option<String> },
    Unsupported,
}

/// Answer of a client to a dialog. The owner of the dialog decides whether the answer fits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialogAnswer {
    /// A choice, a text, yes or no, or no answer.
    Answered(UiAnswer),
    /// The client cannot show it.
    Unsupported,
}

impl DialogAnswer {
    /// Reads the body of `POST …/ui-responses/{dialog id}`.
    ///
    /// # Errors
    /// [`BridgeError::InvalidJson`] and [`ExpectedInput::UiResponse`].
    pub fn from_body(body: &str) -> Result<Self, BridgeError> {
        let answer: DialogAnswerBody = super::read_json(body, ExpectedInput::UiResponse)?;
        Ok(match answer {
            DialogAnswerBody::Value { value: serde_json::Value::String(text) } => Self::Answered(UiAnswer::Value(text)),
            DialogAnswerBody::Value { value: serde_json::Value::Bool(yes) } => Self::Answered(UiAnswer::Confirmed(yes)),
            DialogAnswerBody::Value { value } => {
                let message = format!("`value` must be a string or a boolean, not {}", RawJson::from(value).as_text());
                return Err(BridgeError::Invalid { what: ExpectedInput::UiResponse, message });
            }
            DialogAnswerBody::Cancelled { reason } => {
                Self::Answered(UiAnswer::Cancelled { timed_out: reason.as_deref() == Some("timeout") })
            }
            DialogAnswerBody::Unsupported => Self::Unsupported,
        })
    }
}
