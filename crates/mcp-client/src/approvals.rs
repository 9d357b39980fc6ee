//! Record of approved servers and tools, in a file of the data directory.
//!
//! It must not decide who approves. A file that cannot be read whole is an error: it means neither that nothing nor that
//! everything is approved.

mod approved_server;
mod changes;
mod differences;
mod file_lock;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use countersign_core::{
    digest::{Digest, canonical_json},
    id::PrincipalId,
    policy::ServerChange,
    time::Millis,
};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::{GatewaySecrets, regular};
use serde::{Deserialize, Serialize};

pub use self::{
    approved_server::{ApprovalTimes, ApprovedTool},
    changes::{ApprovalChange, ApprovalNote, ApprovalOrigin},
};

use self::{approved_server::ApprovedServer, differences::find_differences, file_lock::lock_file};
use crate::{
    definition::ServerDefinition,
    listing::{ServerListing, ServerTool},
};

/// Name of the file in the data directory.
const FILE: &str = "mcp-approvals.json";
/// Version of its form.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// Reason that approvals cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The file cannot be read.
    #[error("cannot read MCP approvals in {}: {problem}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        problem: io::Error,
    },
    /// The file has another form.
    #[error("cannot read MCP approvals in {}: {problem}; restore the file, or delete it to approve all servers again", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// The flaw.
        problem: String,
    },
    /// Others may have changed the file.
    #[error("MCP approvals in {} can be written by others (mode {mode:03o}); make it 600", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
    /// The file cannot be written. The approvals are as they were.
    #[error("cannot write MCP approvals to {}: {problem}", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        problem: io::Error,
    },
}

impl ApprovalError {
    /// Returns the error of a task that was ended.
    pub(crate) fn interrupted(data_dir: &Path, error: impl Into<io::Error>) -> Self {
        Self::Unreadable { path: data_dir.join(FILE), problem: error.into() }
    }
}

/// Approved servers and tools of a gateway.
#[derive(Clone, Debug)]
pub struct ApprovedServers {
    path: PathBuf,
    file: ApprovalFile,
    /// Hidden in all tools that are read from the file: an earlier version, or a time when they were no secrets, may have stored them.
    secrets: GatewaySecrets,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalFile {
    version: u32,
    servers: BTreeMap<String, ApprovedServer>,
    /// Servers whose approval was taken back, or replaced by that of another definition, until a gateway has revoked the standing
    /// approvals of their tools.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    revoked: BTreeSet<String>,
    /// Tools of each server that were replaced by tools in another form, or are gone, until a gateway has revoked their standing
    /// approvals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    changed_tools: BTreeMap<String, BTreeSet<String>>,
    /// Number of revocations of each server so far. An answer to a request from before the last one approves nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    revocations: BTreeMap<String, u64>,
    /// Changes that the record does not have yet, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unrecorded: Vec<ApprovalChange>,
}

/// State of a server's approval at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalMark {
    /// Digest of the approval; none if there is none.
    approval: Option<Digest>,
    /// Number of revocations before it.
    pub revocations: u64,
}

/// State of a tool compared with its approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolApproval {
    /// It is the approved one.
    Approved,
    /// It was never approved.
    New,
    /// It differs from the approved one.
    Changed {
        /// Differences for a person, each on one line.
        differences: Vec<String>,
    },
    /// It was approved, and the server does not offer it any more.
    Gone,
}

/// A server compared with its approval.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerApproval {
    /// True if the server was never approved.
    pub is_new: bool,
    /// True if it was approved under another definition: none of its tools counts as approved.
    pub definition_changed: bool,
    /// Tools that the server offers, in its order, then those that are gone. A tool that is gone is as it was approved.
    pub tools: Vec<(ServerTool, ToolApproval)>,
    /// The approval that it was compared with.
    pub mark: ApprovalMark,
}

impl ServerApproval {
    /// Returns the tools that may be used: none of a server that is new or has another definition.
    pub fn usable_tools(&self) -> impl Iterator<Item = &ServerTool> {
        let is_known = !self.is_new && !self.definition_changed;
        let usable = self.tools.iter().filter(move |(_, approval)| is_known && *approval == ToolApproval::Approved);
        usable.map(|(tool, _)| tool)
    }
}

impl ApprovedServers {
    /// Reads the approvals in a data directory. Without a file nothing was approved yet.
    ///
    /// # Errors
    /// [`ApprovalError`] for a file that cannot be read whole, has another form, or can be written by others.
    pub fn open(data_dir: &Path) -> Result<Self, ApprovalError> {
        let path = data_dir.join(FILE);
        let unreadable = |problem| ApprovalError::Unreadable { path: path.clone(), problem };
        let mode = match fs::metadata(&path) {
            Ok(found) => found.mode() & 0o777,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link that leads nowhere is no missing file.
                return match fs::symlink_metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        Ok(Self { path, file: ApprovalFile::empty(), secrets: GatewaySecrets::default() })
                    }
                    Ok(_) | Err(_) => Err(unreadable(error)),
                };
            }
            Err(error) => return Err(unreadable(error)),
        };
        if mode & 0o022 != 0 {
            return Err(ApprovalError::Open { path, mode });
        }
        let text = regular::read_text(&path, LARGEST).map_err(unreadable)?;
        let invalid = |problem| ApprovalError::Invalid { path: path.clone(), problem };
        let file: ApprovalFile = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if file.version != VERSION {
            return Err(invalid(format!("its version is {}, expected {VERSION}", file.version)));
        }
        Ok(Self { path, file, secrets: GatewaySecrets::default() })
    }

    /// Hides `secrets` in all tools that are read from the file.
    #[must_use]
    pub fn with_secrets(self, secrets: GatewaySecrets) -> Self {
        Self { secrets, ..self }
    }

    /// Returns the approved tools of a server, for its definition as it is now, as they were approved.
    pub fn approved_tools(&self, definition: &ServerDefinition) -> Vec<ServerTool> {
        let server = self.file.servers.get(&definition.name);
        let server = server.filter(|server| server.definition == definition.digest());
        let tools = server.into_iter().flat_map(|server| &server.tools);
        tools.filter_map(|(name, tool)| self.shown_tool(tool).to_server_tool(&definition.name, name)).collect()
    }

    /// Returns true if a server is approved under its definition as it is now, whatever its tools are.
    pub fn is_approved(&self, definition: &ServerDefinition) -> bool {
        self.file.servers.get(&definition.name).is_some_and(|server| server.definition == definition.digest())
    }

    /// Returns the time of the approval of a server under its definition as it is now, and its author.
    pub fn approval_note(&self, definition: &ServerDefinition) -> Option<&ApprovalNote> {
        let server = self.file.servers.get(&definition.name)?;
        server.approved.as_ref().filter(|_| server.definition == definition.digest())
    }

    /// Adds the times since which a server and its tools are approved as they are, for its definition as it is now.
    pub(crate) fn add_times(&self, definition: &ServerDefinition, times: &mut ApprovalTimes) {
        let server = self.file.servers.get(&definition.name);
        if let Some(server) = server.filter(|server| server.definition == definition.digest()) {
            server.add_times(&definition.name, times);
        }
    }

    /// Returns the names of all approved servers.
    pub fn server_names(&self) -> impl Iterator<Item = &str> {
        self.file.servers.keys().map(String::as_str)
    }

    /// Returns the number of revocations of a server so far.
    pub fn revocations(&self, server: &str) -> u64 {
        self.file.revocations.get(server).copied().unwrap_or_default()
    }

    /// Returns the state of the approval of a server.
    pub fn mark(&self, server: &str) -> ApprovalMark {
        self.file.mark(server)
    }

    /// Compares a server with its approval.
    pub fn compare(&self, definition: &ServerDefinition, listing: &ServerListing) -> ServerApproval {
        let approved = self.file.servers.get(&definition.name);
        let known = |name: &str| approved.and_then(|server| server.tools.get(name));
        let state = |tool: &ServerTool| match known(&tool.name) {
            None => ToolApproval::New,
            Some(before) if before.digest == tool.digest => ToolApproval::Approved,
            Some(before) => ToolApproval::Changed { differences: find_differences(&self.shown_tool(before), tool) },
        };
        let mut tools: Vec<(ServerTool, ToolApproval)> =
            listing.tools.iter().map(|tool| (tool.clone(), state(tool))).collect();
        let gone = approved.into_iter().flat_map(|server| &server.tools);
        let gone = gone.filter(|(name, _)| listing.get(name).is_none());
        tools.extend(gone.filter_map(|(name, tool)| {
            Some((self.shown_tool(tool).to_server_tool(&definition.name, name)?, ToolApproval::Gone))
        }));
        ServerApproval {
            is_new: approved.is_none(),
            definition_changed: approved.is_some_and(|server| server.definition != definition.digest()),
            tools,
            mark: self.mark(&definition.name),
        }
    }

    /// Returns an approved tool without secrets.
    fn shown_tool(&self, tool: &ApprovedTool) -> ApprovedTool {
        let (redactor, mut shown) = (self.secrets.redactor(), tool.clone());
        shown.description = redactor.redact_text(&tool.description).into_owned();
        redactor.redact_value(&mut shown.schema);
        shown.output_schema.iter_mut().for_each(|schema| redactor.redact_value(schema));
        redactor.redact_value(&mut shown.annotations);
        shown
    }

    /// Records the approval of a server with these tools in place of the one that the approver saw. False if the approval is
    /// another one by now.
    ///
    /// # Errors
    /// [`ApprovalError`], with the approvals as they were.
    pub fn approve(
        &mut self,
        seen: ApprovalMark,
        definition: &ServerDefinition,
        tools: &[ServerTool],
        origin: &ApprovalOrigin,
        at: Millis,
    ) -> Result<bool, ApprovalError> {
        let note = ApprovalNote { at, by: origin.person().cloned() };
        let mut approved = ApprovedServer::new(definition, tools, note);
        let change = origin.person().map(|by| ApprovalChange {
            server: definition.name.clone(),
            change: ServerChange::Approved,
            by: by.clone(),
            at,
        });
        self.change(|file| {
            if file.mark(&definition.name) != seen {
                return false;
            }
            file.unrecorded.extend(change);
            file.note_changed_tools(&definition.name, &approved);
            if let Some(earlier) = file.servers.get(&definition.name) {
                approved.keep_times(earlier);
            }
            file.servers.insert(definition.name.clone(), approved);
            true
        })
    }

    /// Takes the approval of a server back. False if there is none.
    ///
    /// # Errors
    /// [`ApprovalError`], with the approvals as they were.
    pub fn revoke(&mut self, server: &str, by: &PrincipalId, at: Millis) -> Result<bool, ApprovalError> {
        let change = ApprovalChange { server: server.to_owned(), change: ServerChange::Revoked, by: by.clone(), at };
        self.change(|file| {
            let was_approved = file.servers.remove(server).is_some();
            if was_approved {
                file.revoked.insert(server.to_owned());
                *file.revocations.entry(server.to_owned()).or_default() += 1;
                file.unrecorded.push(change);
            }
            was_approved
        })
    }

    /// Returns the servers whose approval was taken back or replaced, and whose tools may still have standing approvals.
    pub const fn revoked(&self) -> &BTreeSet<String> {
        &self.file.revoked
    }

    /// Notes that tools of these servers have no standing approvals any more.
    ///
    /// # Errors
    /// [`ApprovalError`], with the approvals as they were.
    pub fn forget_revoked(&mut self, servers: &BTreeSet<String>) -> Result<(), ApprovalError> {
        self.change(|file| file.revoked.retain(|server| !servers.contains(server)))
    }

    /// Returns the tools of each server that were approved in another form before, and that may still have standing approvals.
    pub const fn changed_tools(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.file.changed_tools
    }

    /// Notes that these tools have no standing approvals for an earlier form any more.
    ///
    /// # Errors
    /// [`ApprovalError`], with the approvals as they were.
    pub fn forget_changed_tools(&mut self, tools: &BTreeMap<String, BTreeSet<String>>) -> Result<(), ApprovalError> {
        self.change(|file| {
            for (server, names) in tools {
                if let Some(changed) = file.changed_tools.get_mut(server) {
                    changed.retain(|name| !names.contains(name));
                }
            }
            file.changed_tools.retain(|_, changed| !changed.is_empty());
        })
    }

    /// Returns the changes that the record does not have yet, the oldest first.
    pub fn unrecorded(&self) -> &[ApprovalChange] {
        &self.file.unrecorded
    }

    /// Forgets changes that the record has now.
    ///
    /// # Errors
    /// [`ApprovalError`], with the changes as they were.
    pub fn mark_recorded(&mut self, recorded: &[ApprovalChange]) -> Result<(), ApprovalError> {
        self.change(|file| {
            for change in recorded {
                if let Some(first) = file.unrecorded.iter().position(|unrecorded| unrecorded == change) {
                    file.unrecorded.remove(first);
                }
            }
        })
    }

    /// Changes the approvals that the file has now. No other process changes them meanwhile.
    fn change<T>(&mut self, work: impl FnOnce(&mut ApprovalFile) -> T) -> Result<T, ApprovalError> {
        let unwritable = |problem| ApprovalError::Unwritable { path: self.path.clone(), problem };
        let folder = self.path.parent().unwrap_or_else(|| Path::new(""));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritable)?;
        let _lock = lock_file(&self.path.with_extension("json.lock")).map_err(unwritable)?;
        let Self { mut file, .. } = Self::open(folder)?;
        let changed = work(&mut file);
        let text = serde_json::to_string(&file).map_err(|error| unwritable(error.into()))?;
        // A larger file could not be read again.
        if text.len() as u64 > LARGEST {
            let problem = format!("it would be larger than {} MiB", LARGEST >> 20);
            return Err(unwritable(io::Error::new(io::ErrorKind::FileTooLarge, problem)));
        }
        replace_file(&self.path, text.as_bytes(), FileAccess::Private).map_err(unwritable)?;
        self.file = file;
        Ok(changed)
    }
}

impl ApprovalFile {
    const fn empty() -> Self {
        Self {
            version: VERSION,
            servers: BTreeMap::new(),
            revoked: BTreeSet::new(),
            changed_tools: BTreeMap::new(),
            revocations: BTreeMap::new(),
            unrecorded: Vec::new(),
        }
    }

    /// Notes the tools whose standing approvals end with the next approval of a server: they were given for another program, or for
    /// tools in another form.
    fn note_changed_tools(&mut self, server: &str, next: &ApprovedServer) {
        let Some(earlier) = self.servers.get(server) else { return };
        if earlier.definition != next.definition {
            self.revoked.insert(server.to_owned());
            return;
        }
        let is_same =
            |name: &String, tool: &ApprovedTool| next.tools.get(name).is_some_and(|now| now.digest == tool.digest);
        let changed = earlier.tools.iter().filter(|(name, tool)| !is_same(name, tool)).map(|(name, _)| name.clone());
        let changed: BTreeSet<String> = changed.collect();
        if !changed.is_empty() {
            self.changed_tools.entry(server.to_owned()).or_default().extend(changed);
        }
    }

    fn mark(&self, server: &str) -> ApprovalMark {
        let approval = self.servers.get(server).and_then(|approved| serde_json::to_value(approved).ok());
        ApprovalMark {
            approval: approval.map(|approval| Digest::hash_bytes(canonical_json(&approval).as_bytes())),
            revocations: self.revocations.get(server).copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
