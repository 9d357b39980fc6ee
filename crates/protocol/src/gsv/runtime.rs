//! A node's description of its machine, and the checks on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::ParamFields;
use super::tool::ToolDefinition;
use crate::json::WireValue;

/// Role of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostRole {
    /// Files and a shell.
    Execution,
    /// Something else.
    Specialized,
}

/// Capability of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MachineCapability {
    /// List files.
    #[serde(rename = "filesystem.list")]
    FilesystemList,
    /// Read files.
    #[serde(rename = "filesystem.read")]
    FilesystemRead,
    /// Write files.
    #[serde(rename = "filesystem.write")]
    FilesystemWrite,
    /// Change files.
    #[serde(rename = "filesystem.edit")]
    FilesystemEdit,
    /// Search in files.
    #[serde(rename = "text.search")]
    TextSearch,
    /// Run commands.
    #[serde(rename = "shell.exec")]
    ShellExec,
}

const CAPABILITIES: [(&str, MachineCapability); 6] = [
    ("filesystem.list", MachineCapability::FilesystemList),
    ("filesystem.read", MachineCapability::FilesystemRead),
    ("filesystem.write", MachineCapability::FilesystemWrite),
    ("filesystem.edit", MachineCapability::FilesystemEdit),
    ("text.search", MachineCapability::TextSearch),
    ("shell.exec", MachineCapability::ShellExec),
];

/// Capabilities that an execution host must have.
const OF_EXECUTION: [&str; 4] = ["filesystem.list", "filesystem.read", "filesystem.write", "shell.exec"];

impl MachineCapability {
    /// Returns the capability of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        CAPABILITIES.iter().find(|(known, _)| *known == name).map(|(_, capability)| *capability)
    }

    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        CAPABILITIES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| *name)
    }
}

/// A node's description of its machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeInfo {
    /// Role of the machine. Newer nodes do not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_role: Option<HostRole>,
    /// Capabilities, each once.
    pub host_capabilities: Vec<MachineCapability>,
    /// Capabilities that each of its tools needs.
    pub tool_capabilities: BTreeMap<String, Vec<MachineCapability>>,
    /// Its operating system in lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_os: Option<String>,
    /// The names of its environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_env: Vec<String>,
    /// Programs, with true for those that it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_bin_status: BTreeMap<String, bool>,
    /// Time at which it looked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bin_status_updated_at: Option<u64>,
}

impl WireValue for RuntimeInfo {}

impl RuntimeInfo {
    /// Reads the description of a node with these tools.
    pub(super) fn from_fields(mut fields: ParamFields, tools: &[ToolDefinition]) -> Result<Self, String> {
        let host_role = if fields.has_member("hostRole") {
            let roles = [("execution", HostRole::Execution), ("specialized", HostRole::Specialized)];
            fields
                .take_choice("hostRole", &roles)
                .map_err(|_| "hostRole must be execution or specialized".to_owned())?
        } else {
            None
        };
        let host_capabilities = fields.take_value("hostCapabilities");
        let host_capabilities = read_capabilities(host_capabilities, "hostCapabilities")?;
        let tool_capabilities = tool_capabilities(&mut fields, tools, &host_capabilities)?;
        if host_role == Some(HostRole::Execution) {
            let has = |name: &&str| host_capabilities.iter().any(|capability| capability.name() == *name);
            if let Some(missing) = OF_EXECUTION.iter().find(|name| !has(name)) {
                return Err(format!("an execution host needs {missing}"));
            }
        }
        let host_os = fields.take_text("hostOs").map_err(error_text)?.map(|os| os.trim().to_lowercase());
        if host_os.as_ref().is_some_and(String::is_empty) {
            return Err("hostOs must not be empty".to_owned());
        }
        Ok(Self {
            host_role,
            host_capabilities,
            tool_capabilities,
            host_os,
            host_env: fields.take_texts("hostEnv").map_err(error_text)?.unwrap_or_default(),
            host_bin_status: fields.take_flags("hostBinStatus").map_err(error_text)?.unwrap_or_default(),
            host_bin_status_updated_at: fields.take_count("hostBinStatusUpdatedAt").map_err(error_text)?,
        })
    }
}

fn error_text(fault: super::GsvError) -> String {
    fault.message.strip_prefix("nodeRuntime.").map_or_else(|| fault.message.clone(), str::to_owned)
}

fn read_capabilities(value: Option<Value>, of: &str) -> Result<Vec<MachineCapability>, String> {
    let Some(Value::Array(names)) = value else { return Err(format!("{of} must be an array")) };
    if names.is_empty() {
        return Err(format!("{of} must not be empty"));
    }
    let mut read = Vec::with_capacity(names.len().min(CAPABILITIES.len()));
    for name in names {
        let named = name.as_str().and_then(MachineCapability::from_name);
        let capability = named.ok_or_else(|| format!("{of} has an unknown capability: {name}"))?;
        if !read.contains(&capability) {
            read.push(capability);
        }
    }
    Ok(read)
}

fn tool_capabilities(
    fields: &mut ParamFields,
    tools: &[ToolDefinition],
    host: &[MachineCapability],
) -> Result<BTreeMap<String, Vec<MachineCapability>>, String> {
    let Ok(Some(entries)) = fields.take_object("toolCapabilities") else {
        return Err("toolCapabilities must be an object".to_owned());
    };
    let mut read = BTreeMap::new();
    for (tool, names) in entries {
        if !tools.iter().any(|known| known.name == tool) {
            return Err(format!("toolCapabilities names a tool that is not offered: {tool}"));
        }
        let needs = read_capabilities(Some(names), &format!("toolCapabilities.{tool}"))?;
        if let Some(missing) = needs.iter().find(|capability| !host.contains(capability)) {
            return Err(format!("toolCapabilities.{tool} needs {}, which the host has not", missing.name()));
        }
        read.insert(tool, needs);
    }
    match tools.iter().find(|tool| !read.contains_key(&tool.name)) {
        Some(tool) => Err(format!("toolCapabilities has no entry for {}", tool.name)),
        None => Ok(read),
    }
}
