//! Methods about skills: parameters, answers, and which machine has what a skill needs.

mod eligibility;

use serde::{Deserialize, Serialize};

pub use eligibility::{SkillEligibility, SkillHost, skill_eligibility};

use super::GsvError;
use super::fields::ParamFields;
use super::heartbeat::{DEFAULT_AGENT, read_agent};
use super::runtime::{HostRole, MachineCapability};
use crate::json::wire_values;

/// Parameters of `skills.status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillsStatusParams {
    /// The agent.
    pub agent: String,
}

impl SkillsStatusParams {
    pub(super) fn from_fields(fields: &mut ParamFields) -> Result<Self, GsvError> {
        Ok(Self { agent: read_agent(fields)?.unwrap_or_else(|| DEFAULT_AGENT.to_owned()) })
    }
}

/// Parameters of `skills.update`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillsUpdateParams {
    /// The agent.
    pub agent: String,
    /// True to ask nodes even if their last answer is fresh.
    pub force: bool,
    /// Time limit of nodes, in milliseconds.
    pub timeout_ms: u64,
}

impl SkillsUpdateParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let SkillsStatusParams { agent } = SkillsStatusParams::from_fields(&mut fields)?;
        let timeout_ms = super::node::probe_timeout(fields.take_count("timeoutMs")?);
        Ok(Self { agent, force: fields.take_flag("force")?.unwrap_or(false), timeout_ms })
    }
}

/// Requirements of a skill. All of them must be met by the same machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillRequirements {
    /// Programs, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bins: Vec<String>,
    /// Programs, one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_bins: Vec<String>,
    /// Environment variables, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Settings that must not be empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<String>,
    /// Operating systems, one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub os: Vec<String>,
    /// Roles of the machine, one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_roles: Vec<HostRole>,
    /// Capabilities of the machine, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<MachineCapability>,
    /// Capabilities of the machine, one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_capabilities: Vec<MachineCapability>,
}

/// A node, as far as skills are concerned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillNode {
    /// The node.
    pub node_id: String,
    /// Role of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_role: Option<HostRole>,
    /// Capabilities.
    pub host_capabilities: Vec<MachineCapability>,
    /// Its operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_os: Option<String>,
    /// The names of its environment variables.
    pub host_env: Vec<String>,
    /// Programs that it has.
    pub host_bins: Vec<String>,
    /// Time of its last answer about programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bin_status_updated_at: Option<u64>,
    /// True if it can be asked for programs.
    pub can_probe_bins: bool,
}

/// A skill in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillEntry {
    /// Its name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Path of the skill.
    pub location: String,
    /// True if it is available on any machine.
    pub always: bool,
    /// True if it can be used.
    pub eligible: bool,
    /// Nodes on which it can be used.
    pub eligible_hosts: Vec<String>,
    /// Reasons that it cannot be used.
    pub reasons: Vec<String>,
    /// Requirements. Absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<SkillRequirements>,
}

/// The answer to `skills.status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillsStatusResult {
    /// The agent.
    pub agent_id: String,
    /// Time of this status.
    pub refreshed_at: u64,
    /// Programs that any skill needs.
    pub required_bins: Vec<String>,
    /// Nodes that are connected.
    pub nodes: Vec<SkillNode>,
    /// All skills.
    pub skills: Vec<SkillEntry>,
}

/// The answer to `skills.update`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillsUpdateResult {
    /// The refreshed status.
    #[serde(flatten)]
    pub status: SkillsStatusResult,
    /// Number of nodes that were asked.
    pub updated_node_count: usize,
    /// Nodes that were not asked, as their last answer is fresh.
    pub skipped_node_ids: Vec<String>,
    /// Error texts.
    pub errors: Vec<String>,
}

wire_values! { SkillsStatusResult, SkillsUpdateResult }
