//! Methods about the files of an agent: parameters and answers.

use serde::Serialize;

use super::fields::ParamFields;
use super::heartbeat::read_agent;
use super::{GsvError, code};
use crate::json::wire_values;

/// The most bytes that a file may have when it is written or read.
pub const LARGEST_FILE: usize = 16 << 20;

/// A path within an agent's folder: parts joined by `/`, none of them `.` or `..`. Empty is the folder itself.
///
/// That no link leads out is looked after where files are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// Reads a path as clients write it; `/` in front means the agent's folder.
    ///
    /// # Errors
    /// 500 for a path that could lead out of the folder, 400 for a text that is no path.
    pub fn from_text(text: &str) -> Result<Self, GsvError> {
        if text.contains('\0') {
            return Err(GsvError::bad_request("path must not contain NUL"));
        }
        let parts: Vec<&str> = text.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.iter().any(|part| part.trim() == ".." || part.ends_with(':')) {
            return Err(GsvError::new(code::FAILED, "Path traversal not allowed"));
        }
        if parts.iter().any(|part| part.len() > 255) || text.len() > 4096 {
            return Err(GsvError::bad_request("path is too long"));
        }
        Ok(Self(parts.join("/")))
    }

    /// Returns its text.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// Returns the path of a file below `skills/`, without that prefix: the file may belong to the agent or to the shared skills.
    pub fn of_skill(&self) -> Option<&str> {
        self.0.strip_prefix("skills/")
    }
}

/// Parameters of `workspace.list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceListParams {
    /// Agent that owns the folder. Absent is the default agent.
    pub agent: Option<String>,
    /// Path of the folder in it.
    pub path: WorkspacePath,
    /// Path as requested, for the answer to repeat.
    pub echo: String,
}

impl WorkspaceListParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let text = fields.take_text("path")?.filter(|path| !path.is_empty());
        let path = text.as_deref().map_or_else(|| Ok(WorkspacePath::default()), WorkspacePath::from_text)?;
        Ok(Self { agent: read_agent(&mut fields)?, path, echo: text.unwrap_or_else(|| "/".to_owned()) })
    }
}

/// Parameters of `workspace.read` and `workspace.delete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceFileParams {
    /// Agent that owns the folder. Absent is the default agent.
    pub agent: Option<String>,
    /// Path of the file in it.
    pub path: WorkspacePath,
    /// Path as requested, for the answer to repeat.
    pub echo: String,
}

impl WorkspaceFileParams {
    pub(super) fn from_fields(fields: &mut ParamFields) -> Result<Self, GsvError> {
        let echo = fields.require_text("path", "path required")?;
        let path = WorkspacePath::from_text(&echo)?;
        if path.0.is_empty() {
            return Err(GsvError::bad_request("path required"));
        }
        Ok(Self { agent: read_agent(fields)?, path, echo })
    }
}

/// Parameters of `workspace.write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceWriteParams {
    /// The file.
    pub file: WorkspaceFileParams,
    /// New content. May be empty.
    pub content: String,
}

impl WorkspaceWriteParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let file = WorkspaceFileParams::from_fields(&mut fields)?;
        let content = fields.take_text("content")?.ok_or_else(|| GsvError::bad_request("content is required"))?;
        if content.len() > LARGEST_FILE {
            let message = format!("content has {} bytes, at most {LARGEST_FILE} are taken", content.len());
            return Err(GsvError::bad_request(message));
        }
        Ok(Self { file, content })
    }
}

/// The answer to `workspace.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkspaceListResult {
    /// Requested path.
    pub path: String,
    /// Files, from the agent's folder on.
    pub files: Vec<String>,
    /// Folders, from the agent's folder on, each with a trailing `/`.
    pub directories: Vec<String>,
}

/// The answer to `workspace.read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceReadResult {
    /// Requested path.
    pub path: String,
    /// Content of the file.
    pub content: String,
    /// Size, in bytes.
    pub size: usize,
    /// Time of the last change, as ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// The answer to `workspace.write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkspaceWriteResult {
    /// Requested path.
    pub path: String,
    /// Size, in characters.
    pub size: usize,
    /// Always true.
    pub written: bool,
}

/// The answer to `workspace.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkspaceDeleteResult {
    /// Requested path.
    pub path: String,
    /// Always true.
    pub deleted: bool,
}

wire_values! { WorkspaceListResult, WorkspaceReadResult, WorkspaceWriteResult, WorkspaceDeleteResult }
