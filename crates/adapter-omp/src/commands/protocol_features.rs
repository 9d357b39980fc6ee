//! Commands of versions after 13.19, and of pi, that need nothing of the session. Source: docs/protocol/omp.md, Commands of
//! later versions and of pi.

use std::sync::Arc;

use countersign_conversations::prompt::{
    DiskFiles,
    slash_commands::{self, PromptTemplate},
};
use countersign_protocol::omp::{
    OmpRequestId, OmpResponse,
    command::SubscriptionLevel,
    state::{FastMode, ProtocolVersion, SlashCommand, SlashCommands, SourceInfo, SubagentList, SubagentSubscription},
};

use crate::adapter::{AdapterCallback, OmpAdapter};

/// The version of the protocol that is spoken.
const VERSION: u64 = 1;

pub(super) fn negotiate_protocol(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, version: u64) {
    const NAME: &str = "negotiate_protocol";
    let response = if version == VERSION {
        OmpResponse::success(id, NAME, &ProtocolVersion { protocol_version: VERSION })
    } else {
        let problem = format!("Unsupported RPC protocol version: {version}; `protocolVersion` must be {VERSION}");
        OmpResponse::failure(id, NAME, problem)
    };
    adapter.write_frame(&response);
}

pub(super) fn set_fast_mode(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, enabled: bool) {
    const NAME: &str = "set_fast_mode";
    let response = if enabled {
        OmpResponse::failure(id, NAME, "Fast mode is unavailable for the current model.")
    } else {
        OmpResponse::success(id, NAME, &FastMode { enabled: false, active: false })
    };
    adapter.write_frame(&response);
}

/// Accepts the subscription: there are no subagents with events.
pub(super) fn set_subagent_subscription(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, level: SubscriptionLevel) {
    adapter.write_frame(&OmpResponse::success(id, "set_subagent_subscription", &SubagentSubscription { level }));
}

pub(super) fn get_subagents(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    adapter.write_frame(&OmpResponse::success(id, "get_subagents", &SubagentList::default()));
}

pub(super) fn subagent_messages(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, subagent: Option<String>) {
    let problem = match subagent {
        Some(subagent) => format!("Unknown subagent: {subagent}. There are no subagents here."),
        None => "get_subagent_messages: `subagentId` or `sessionFile` is required".to_owned(),
    };
    adapter.write_frame(&OmpResponse::failure(id, "get_subagent_messages", problem));
}

/// Lists the files that slash commands stand for, in the form of the command called `name`.
pub(super) fn slash_commands(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, name: &'static str) {
    let (common, cwd) = (Arc::clone(&adapter.store.common), adapter.store.cwd.clone());
    adapter.reply_unordered(async move {
        let listed = tokio::task::spawn_blocking(move || {
            if common.reads_templates {
                slash_commands::list_templates(&common.folder, &cwd, &DiskFiles)
            } else {
                Vec::new()
            }
        });
        let templates = listed.await.unwrap_or_default();
        let commands =
            templates.into_iter().map(|template| to_slash_command(template, name == "get_commands")).collect();
        let then: AdapterCallback =
            Box::new(move |adapter| adapter.write_frame(&OmpResponse::success(id, name, &SlashCommands { commands })));
        (0, then)
    });
}

fn to_slash_command(template: PromptTemplate, is_of_pi: bool) -> SlashCommand {
    let PromptTemplate { name, description, path, is_of_project } = template;
    let source_info = is_of_pi.then(|| SourceInfo {
        path: path.display().to_string(),
        source: "auto",
        scope: if is_of_project { "project" } else { "user" },
        origin: "top-level",
    });
    SlashCommand { name, description, source: if is_of_pi { "prompt" } else { "file" }, source_info }
}
