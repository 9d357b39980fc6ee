//! Writes dialogs for the host to show, and reads their answers.
//!
//! It must not know what a dialog decides. Source: the RPC reference of omp, Extension UI Sub-Protocol;
//! docs/protocol/omp.md, Dialogs.

use serde::{Deserialize, Serialize};

use crate::json::WireValue;

/// Something for the host to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "extension_ui_request")]
pub struct UiRequest {
    /// Names the dialog; its answer carries the same id.
    pub id: String,
    /// The dialog or display to show.
    #[serde(flatten)]
    pub method: UiMethod,
}

impl WireValue for UiRequest {}

/// Dialog or display to show. The first four need an answer, the others none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum UiMethod {
    /// Lets a person choose one of several.
    Select {
        /// The question.
        title: String,
        /// The choices; the answer is one of them.
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
        #[serde(skip_serializing_if = "Option::is_none")]
        notify_type: Option<NotifyType>,
    },
    /// Shows a word in the status line, or takes it away.
    SetStatus {
        /// Names the word's place.
        status_key: String,
        /// Absent takes it away.
        #[serde(skip_serializing_if = "Option::is_none")]
        status_text: Option<String>,
    },
    /// Shows lines next to the editor, or removes them.
    SetWidget {
        /// Names the place.
        widget_key: String,
        /// Absent takes them away.
        #[serde(skip_serializing_if = "Option::is_none")]
        widget_lines: Option<Vec<String>>,
        /// Absent means above.
        #[serde(skip_serializing_if = "Option::is_none")]
        widget_placement: Option<WidgetPlacement>,
    },
    /// Names the window.
    SetTitle {
        /// The name.
        title: String,
    },
    /// Puts a text where a person types.
    #[serde(rename = "set_editor_text")]
    SetEditorText {
        /// The text.
        text: String,
    },
    /// Takes an open dialog away.
    Cancel {
        /// Id of that dialog.
        target_id: String,
    },
}

/// Urgency of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyType {
    /// Good to know.
    Info,
    /// Look at it.
    Warning,
    /// Something failed.
    Error,
}

/// Position of a widget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WidgetPlacement {
    /// Above the editor.
    AboveEditor,
    /// Below the editor.
    BelowEditor,
}

/// Answer of a person to a dialog. The owner of the dialog decides whether the answer fits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UiAnswer {
    /// A choice or a text.
    Value(String),
    /// Yes or no.
    Confirmed(bool),
    /// No answer.
    Cancelled {
        /// True if the host's own clock ended the dialog.
        timed_out: bool,
    },
}
