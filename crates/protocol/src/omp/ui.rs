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
    /// What to show.
    #[serde(flatten)]
    pub method: UiMethod,
}

impl WireValue for UiRequest {}

/// What to show. The first four want an answer, the others none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum UiMethod {
    /// Lets a person choose one of several.
    Select {
        /// What is asked.
        title: String,
        /// The choices; the answer is one of them.
        options: Vec<String>,
        /// Milliseconds until the default counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// Asks yes or no.
    Confirm {
        /// What is asked.
        title: String,
        /// What exactly.
        message: String,
        /// Milliseconds until the default counts.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// Asks for a line of text.
    Input {
        /// What is asked.
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
        /// What is asked.
        title: String,
        /// Text to begin with.
        #[serde(skip_serializing_if = "Option::is_none")]
        prefill: Option<String>,
        /// Whether it looks like the prompt.
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt_style: Option<bool>,
    },
    /// Tells something.
    Notify {
        /// What.
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
    /// Shows lines beside the editor, or takes them away.
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

/// How urgent a notice is.
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

/// Where a widget is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WidgetPlacement {
    /// Above the editor.
    AboveEditor,
    /// Below the editor.
    BelowEditor,
}

/// What a person said to a dialog. Whether it fits that dialog is for its owner to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UiAnswer {
    /// A choice or a text.
    Value(String),
    /// Yes or no.
    Confirmed(bool),
    /// No answer.
    Cancelled {
        /// Whether the host's own clock ended the dialog.
        timed_out: bool,
    },
}
