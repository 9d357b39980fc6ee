//! Reads what later versions of omp have in the form of the dialect of gjc: commands, and words about what belongs to a host.
//!
//! It must not know which of the two a host speaks. Source: the RPC reference of gjc; docs/protocol/gjc.md, Commands.

use super::OmpParseError;
use super::fields::CommandFields;
use crate::json::RawJson;
use crate::omp::host_tool::{self, HostTool, HostToolAnswer};
use crate::omp::host_uri::{self, HostScheme, HostUriResult};
use crate::omp::todo::TodoPhase;

/// A command of later versions of omp and of gjc, in one form.
#[derive(Clone, Debug, PartialEq)]
pub enum AdoptedCommand {
    /// Replaces the tasks.
    SetTodos {
        /// The new ones.
        phases: Vec<TodoPhase>,
    },
    /// Replaces the tools of the host.
    SetHostTools {
        /// The new ones; no two alike.
        tools: Vec<HostTool>,
    },
    /// Replaces the URI schemes of the host.
    SetHostUriSchemes {
        /// The new ones; no two alike.
        schemes: Vec<HostScheme>,
    },
    /// Writes a summary with which another session can continue.
    Handoff {
        /// Instructions for the summary.
        custom_instructions: Option<String>,
    },
    /// Asks where one can log in.
    GetLoginProviders,
    /// Logs in.
    Login {
        /// Id of the provider.
        provider_id: String,
    },
}

impl AdoptedCommand {
    /// Returns the `type` of the command, which its response repeats.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SetTodos { .. } => "set_todos",
            Self::SetHostTools { .. } => "set_host_tools",
            Self::SetHostUriSchemes { .. } => "set_host_uri_schemes",
            Self::Handoff { .. } => "handoff",
            Self::GetLoginProviders => "get_login_providers",
            Self::Login { .. } => "login",
        }
    }
}

/// Reads the fields of the command called `name`; none if it is no such command.
pub(crate) fn read_adopted(name: &str, fields: &CommandFields<'_>) -> Result<Option<AdoptedCommand>, OmpParseError> {
    let refused = |reason: String| OmpParseError::Refused { id: fields.id(), command: name.to_owned(), reason };
    Ok(Some(match name {
        "set_todos" => AdoptedCommand::SetTodos { phases: fields.required_field("phases")? },
        "set_host_tools" => {
            let given: Vec<RawJson> = fields.required_field("tools")?;
            let tools = host_tool::read_tools(&given).map_err(|error| refused(error.to_string()))?;
            AdoptedCommand::SetHostTools { tools }
        }
        "set_host_uri_schemes" => {
            let given: Vec<RawJson> = fields.required_field("schemes")?;
            let schemes = host_uri::read_schemes(&given).map_err(|error| refused(error.to_string()))?;
            AdoptedCommand::SetHostUriSchemes { schemes }
        }
        "handoff" => AdoptedCommand::Handoff { custom_instructions: fields.optional_field("customInstructions")? },
        "get_login_providers" => AdoptedCommand::GetLoginProviders,
        "login" => AdoptedCommand::Login { provider_id: fields.required_field("providerId")? },
        _ => return Ok(None),
    }))
}

/// Reads a host's result or update of a call, without its id: the body of a POST to the bridge has none.
pub(crate) fn host_tool_answer(name: &str, fields: &CommandFields<'_>) -> Option<HostToolAnswer> {
    let json = |field: &str| fields.raw_member(field).map(|raw| RawJson::from(raw.to_owned()));
    match name {
        "host_tool_update" => HostToolAnswer::from_update(&json("partialResult")?),
        "host_tool_result" => {
            let is_error: Option<bool> = fields.optional_field("isError").ok()?;
            HostToolAnswer::from_result(&json("result")?, is_error == Some(true))
        }
        _ => None,
    }
}

/// Reads a host's result of a request at a URI, without its id.
pub(crate) fn uri_result(line: &str) -> Option<HostUriResult> {
    serde_json::from_str(line).ok()
}
