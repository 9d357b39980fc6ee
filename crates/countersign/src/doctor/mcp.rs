//! MCP servers: whether they are approved, can be started, and offer what was approved.

use std::path::Path;

use countersign_config::{Config, McpServerConfig};
use countersign_mcp_client::{ApprovedServers, ServerDefinition, ToolApproval};
use countersign_view::{LineMode, escape};
use futures_util::future::join_all;

use super::{DoctorCheck, gateway_flags};
use crate::{
    error_text::chain_text,
    mcp_servers::{is_approved, with_tools},
};

/// Name of these checks.
const CHECK: &str = "MCP servers";

/// Checks the enabled servers of a configuration. Only approved ones are started.
pub(super) fn check_servers(config: &Config, file: Option<&Path>) -> Vec<DoctorCheck> {
    let enabled: Vec<&McpServerConfig> = config.mcp_servers.iter().filter(|server| server.enabled).collect();
    if enabled.is_empty() {
        return Vec::new();
    }
    let approved = match ApprovedServers::open(&config.storage.folder) {
        Ok(approved) => approved,
        Err(error) => {
            let advice = "restore the file, or delete it and approve the servers again";
            return vec![DoctorCheck::fix(CHECK, format!("{error}; none is offered"), advice)];
        }
    };
    let (approved, others): (Vec<_>, Vec<_>) =
        enabled.into_iter().partition(|server| approved.is_approved(&ServerDefinition::from(*server)));
    let flags = gateway_flags(file, None);
    let mut checks: Vec<DoctorCheck> = others
        .into_iter()
        .map(|server| {
            let advice = format!("run `countersign mcp-servers approve {}{flags}`, or answer its gate", server.name);
            DoctorCheck::warn(
                CHECK,
                format!("{} is not approved as it is configured, and not offered", server.name),
                advice,
            )
        })
        .collect();
    if approved.is_empty() {
        return checks;
    }
    let reached = with_tools(config, async |tools| {
        Ok(join_all(approved.iter().map(async |server| (&server.name, tools.compare(&server.name).await))).await)
    });
    match reached {
        Err(error) => {
            checks.push(DoctorCheck::fix(CHECK, chain_text(&error), "correct mcp.servers in the configuration"));
        }
        Ok(reached) => checks.extend(reached.into_iter().map(|(name, compared)| match compared {
            Err(error) => DoctorCheck::fix(
                CHECK,
                escape(&error.to_string(), LineMode::One).into_owned(),
                format!("see `countersign mcp-servers test {name}{flags}`"),
            ),
            Ok((listing, approval)) if is_approved(&approval) => {
                DoctorCheck::ok(CHECK, format!("{name} offers {} tools, all approved", listing.tools.len()))
            }
            Ok((_, approval)) => {
                let others = approval.tools.iter().filter(|(_, state)| *state != ToolApproval::Approved).count();
                DoctorCheck::warn(
                    CHECK,
                    format!("{name} has {others} tools that are new, changed or gone since it was approved"),
                    format!("run `countersign mcp-servers approve {name}{flags}`"),
                )
            }
        })),
    }
    checks
}
