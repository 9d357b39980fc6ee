//! Writes dialogs: those of omp, and what this dialect adds.
//!
//! It must not know what a dialog decides. Source: the RPC reference of gjc, Extension UI Sub-Protocol.

use serde::{Deserialize, Serialize};

use crate::json::WireValue;
pub use crate::omp::ui::{NotifyType, UiAnswer, WidgetPlacement};

/// Something for the host to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "extension_ui_request")]
pub struct GjcUiRequest {
    /// Names the dialog; its answer carries the same id.
    pub id: String,
    /// The dialog or display to show.
    #[serde(flatten)]
    pub method: GjcUiMethod,
}

impl WireValue for GjcUiRequest {}

/// Dialog or display to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GjcUiMethod {
    /// One that omp has too.
    Shared(crate::omp::UiMethod),
    /// Ours alone.
    Own(OwnMethod),
}

/// Displays that only this dialect has. They need no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case")]
pub enum OwnMethod {
    /// Opens a page, to log in.
    OpenUrl {
        /// The page.
        url: String,
        /// Instructions for the person.
        #[serde(skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
    },
}

impl From<crate::omp::UiMethod> for GjcUiMethod {
    fn from(method: crate::omp::UiMethod) -> Self {
        Self::Shared(method)
    }
}

/// The variables by which a host asks for `setTitle`, of which the first that is set counts.
pub const TITLE_VARIABLES: [&str; 2] = ["GJC_RPC_EMIT_TITLE", "PI_RPC_EMIT_TITLE"];

/// Returns true if the value of such a variable asks for it.
pub fn asks_for_titles(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}
