//! Methods about the files of an agent: parameters and answers.

use serde::Serialize;

use super::fields::Fields;
use super::heartbeat::agent;
use super::{Fault, code};
use crate::json::Wire;

/// The most bytes that a file may have when it is written or read.
pub const LARGEST_FILE: usize = 16 << 20;

/// A path within an agent's folder: parts joined by `/`, none of them `.` or `..`. Empty is the folder itself.
///
/// That no link leads out is looked after where files are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// Reads a path as clients write it; `/` in front means the agent's folder.
    ///
    /// # Errors
    /// 500 for whatever could lead out of the folder, 400 for what is no path.
    pub fn read(text: &str) -> Result<Self, Fault> {
        if text.contains('\0') {
            return Err(Fault::invalid("path must not contain NUL"));
        }
        let parts: Vec<&str> = text.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.iter().any(|part| part.trim() == ".." || part.ends_with(':')) {
            return Err(Fault::new(code::FAILED, "Path traversal not allowed"));
        }
        if parts.iter().any(|part| part.len() > 255) || text.len() > 4096 {
            return Err(Fault::invalid("path is too long"));
        }
        Ok(Self(parts.join("/")))
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The path of a file below `skills/`, without that: it may lie with the agent or with everybody's skills.
    pub fn of_skill(&self) -> Option<&str> {
        self.0.strip_prefix("skills/")
    }
}

/// Parameters of `workspace.list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Whose folder. Absent is the default agent's.
    pub agent: Option<String>,
    /// Which folder in it.
    pub path: Path,
    /// What the answer repeats.
    pub echo: String,
}

impl List {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let text = fields.text("path")?.filter(|path| !path.is_empty());
        let path = text.as_deref().map_or_else(|| Ok(Path::default()), Path::read)?;
        Ok(Self { agent: agent(&mut fields)?, path, echo: text.unwrap_or_else(|| "/".to_owned()) })
    }
}

/// Parameters of `workspace.read` and `workspace.delete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Whose folder. Absent is the default agent's.
    pub agent: Option<String>,
    /// Which file in it.
    pub path: Path,
    /// What the answer repeats.
    pub echo: String,
}

impl File {
    pub(super) fn read(fields: &mut Fields) -> Result<Self, Fault> {
        let echo = fields.required("path", "path required")?;
        let path = Path::read(&echo)?;
        if path.0.is_empty() {
            return Err(Fault::invalid("path required"));
        }
        Ok(Self { agent: agent(fields)?, path, echo })
    }
}

/// Parameters of `workspace.write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which file.
    pub file: File,
    /// What it shall hold. May be empty.
    pub content: String,
}

impl Write {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let file = File::read(&mut fields)?;
        let content = fields.text("content")?.ok_or_else(|| Fault::invalid("content is required"))?;
        if content.len() > LARGEST_FILE {
            let message = format!("content has {} bytes, at most {LARGEST_FILE} are taken", content.len());
            return Err(Fault::invalid(message));
        }
        Ok(Self { file, content })
    }
}

/// The answer to `workspace.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// What was asked for.
    pub path: String,
    /// Files, from the agent's folder on.
    pub files: Vec<String>,
    /// Folders, from the agent's folder on, each with `/` behind it.
    pub directories: Vec<String>,
}

impl Wire for Listed {}

/// The answer to `workspace.read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// What was asked for.
    pub path: String,
    /// What it holds.
    pub content: String,
    /// How many bytes.
    pub size: usize,
    /// When it was changed, as ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl Wire for Content {}

/// The answer to `workspace.write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// What was asked for.
    pub path: String,
    /// How many characters.
    pub size: usize,
    /// Always true.
    pub written: bool,
}

impl Wire for Written {}

/// The answer to `workspace.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// What was asked for.
    pub path: String,
    /// Always true.
    pub deleted: bool,
}

impl Wire for Deleted {}
