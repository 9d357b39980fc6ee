//! Reads the commands that came after 13.19, and those of pi: what those versions' clients send is known by name.
//!
//! It must not know whether a command is served. Source: docs/protocol/omp.md, Commands of later versions and of pi.

use super::fields::{CommandFields, FieldValue, field_values, from_json};
use super::{OmpCommand, OmpParseError};

/// Commands of released clients that are not served, each with what to send instead.
const REFUSED: [(&str, &str); 8] = [
    ("open_session", "sessions are not opened beside each other: use switch_session with the path of its file"),
    (
        "set_event_filter",
        "events are not filtered: every event is sent, and a client passes over those it does not need",
    ),
    ("clear_queue", "queued messages are not taken back, by abort either: new_session begins without them"),
    ("queue_message", "this command of early versions of pi is not served: use steer or follow_up"),
    (
        "set_queue_mode",
        "this command of early versions of pi is not served: use set_steering_mode and set_follow_up_mode",
    ),
    ("reset", "this command of early versions of pi is not served: use new_session"),
    ("get_entries", "the entries of a session are not served: read the file that get_state names as sessionFile"),
    ("get_tree", "the tree of a session is not served: read the file that get_state names as sessionFile"),
];

/// Detail of reports about subagents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubscriptionLevel {
    /// No reports.
    Off,
    /// Their progress.
    Progress,
    /// Their events as well.
    Events,
}

/// The number of messages that a page may have: from 1 to 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit(usize);

impl PageLimit {
    const MOST: usize = 256;

    /// Returns the number.
    pub const fn get(self) -> usize {
        self.0
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self(100)
    }
}

field_values! { SubscriptionLevel = "\"off\", \"progress\" or \"events\"", }

impl FieldValue for PageLimit {
    const EXPECTED: &'static str = "a whole number from 1 to 256";

    fn read_json(json: &str) -> Option<Self> {
        from_json(json).filter(|limit| (1..=Self::MOST).contains(limit)).map(Self)
    }
}

/// Reads the fields of the command called `name`; none if no later version and no pi has it.
pub(super) fn read_later_command(name: &str, fields: &CommandFields<'_>) -> Result<Option<OmpCommand>, OmpParseError> {
    Ok(Some(match name {
        "negotiate_protocol" => OmpCommand::NegotiateProtocol { version: fields.required_field("protocolVersion")? },
        "set_fast_mode" => OmpCommand::SetFastMode { enabled: fields.required_field("enabled")? },
        "get_available_commands" => OmpCommand::GetAvailableCommands,
        "get_commands" => OmpCommand::GetCommands,
        "set_subagent_subscription" => OmpCommand::SetSubagentSubscription { level: fields.required_field("level")? },
        "get_subagents" => OmpCommand::GetSubagents,
        "get_subagent_messages" => {
            // It is read so that a wrong value is reported.
            let _: Option<u64> = fields.optional_field("fromByte")?;
            let file: Option<String> = fields.optional_field("sessionFile")?;
            OmpCommand::GetSubagentMessages { subagent: fields.optional_field("subagentId")?.or(file) }
        }
        "get_messages_page" => OmpCommand::GetMessagesPage {
            cursor: fields.optional_field("cursor")?,
            limit: fields.optional_field("limit")?.unwrap_or_default(),
        },
        "get_available_thinking_levels" => OmpCommand::GetAvailableThinkingLevels,
        "fork" => OmpCommand::Fork { entry_id: fields.required_field("entryId")? },
        "clone" => OmpCommand::Clone,
        "get_fork_messages" => OmpCommand::GetForkMessages,
        _ => {
            let refused = REFUSED.into_iter().find(|(refused, _)| *refused == name);
            return Ok(refused.map(|(name, reason)| OmpCommand::NotServed { name, reason }));
        }
    }))
}
