//! MCP servers: whether they are approved, can be started, and offer what was approved.

use std::{collections::BTreeSet, path::Path};

use countersign_config::{Config, McpServerConfig};
use countersign_mcp_client::{ApprovedServers, ServerDefinition, ToolApproval};
use countersign_view::{LineMode, escape_rest};
use futures_util::future::join_all;

use super::{DoctorCheck, servers::certificate_advice};
use crate::{
    config::gateway_flags,
    error_text::chain_text,
    mcp_servers::{count_tools, is_approved, with_tools},
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
            return vec![DoctorCheck::fix(CHECK, format!("{error}; agents get no tool of an MCP server"), advice)];
        }
    };
    let known: BTreeSet<String> = approved.server_names().map(str::to_owned).collect();
    let (approved, others): (Vec<_>, Vec<_>) =
        enabled.into_iter().partition(|server| approved.is_approved(&ServerDefinition::from(*server)));
    let flags = gateway_flags(file, None);
    let mut checks: Vec<DoctorCheck> = others
        .into_iter()
        .map(|server| {
            let name = &server.name;
            let is_changed = known.contains(name);
            let what = if is_changed {
                "its command or address changed since you approved it"
            } else {
                "you have not approved it yet"
            };
            let advice = format!(
                "run `countersign mcp-servers approve {name}{flags}`, or start the gateway and use the console: allow its approval, or request it again after a denial"
            );
            DoctorCheck::warn(CHECK, format!("{name} does not start, and agents do not get its tools: {what}"), advice)
        })
        .collect();
    if approved.is_empty() {
        return checks;
    }
    let reached = with_tools(config, async |tools| {
        Ok(join_all(
            approved.iter().map(async |server| (&server.name, tools.approvals().compare_approved(&server.name).await)),
        )
        .await)
    });
    match reached {
        Err(error) => {
            checks.push(DoctorCheck::fix(CHECK, chain_text(&error), "correct mcp.servers in the configuration"));
        }
        Ok(reached) => checks.extend(reached.into_iter().map(|(name, compared)| match compared {
            Err(error) => {
                let what = escape_rest(&error.to_string(), LineMode::One).into_owned();
                let advice = certificate_advice(&what, &format!("mcp.servers.{name}.url"))
                    .unwrap_or_else(|| format!("correct mcp.servers.{name}"));
                DoctorCheck::fix(
                    CHECK,
                    what,
                    format!("{advice}, then run `countersign mcp-servers test {name}{flags}`"),
                )
            }
            Ok((listing, approval)) if is_approved(&approval) => DoctorCheck::ok(
                CHECK,
                format!("{name} starts and has {}, all approved", count_tools(listing.tools.len())),
            ),
            Ok((_, approval)) => {
                let others = approval.tools.iter().filter(|(_, state)| *state != ToolApproval::Approved).count();
                DoctorCheck::warn(
                    CHECK,
                    format!(
                        "{name} has {} that you did not approve as they are now: new, changed or gone",
                        count_tools(others)
                    ),
                    format!(
                        "run `countersign mcp-servers approve {name}{flags}` to see the differences and approve them"
                    ),
                )
            }
        })),
    }
    checks
}
