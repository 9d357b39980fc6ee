//! Reads and writes the entries of a session: the lines after the header.
//!
//! It must not know how entries make a tree, only that each names its parent.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, value::RawValue};

use crate::json::{ExtraMembers, RawJson, WireValue, replace_lone_surrogates};
use crate::omp::message::{AgentMessage, MessageAttribution, OmpContent};

/// One entry: `type, id, parentId, timestamp` and what its type adds.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFileEntry {
    /// Names the entry in its file.
    pub id: String,
    /// The entry before it; none for the first.
    pub parent_id: Option<String>,
    /// Time at which it was added, in ISO 8601.
    pub timestamp: String,
    /// Body of the entry.
    pub body: SessionEntryBody,
}

impl WireValue for SessionFileEntry {}

/// Body of an entry, distinguished by its `type`.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEntryBody {
    /// `message`
    Message(Box<MessageEntry>),
    /// `model_change`
    ModelChange(ModelChange),
    /// `thinking_level_change`
    ThinkingLevelChange(ThinkingLevelChange),
    /// `service_tier_change`
    ServiceTierChange(ServiceTierChange),
    /// `compaction`
    Compaction(CompactionEntry),
    /// `branch_summary`
    BranchSummary(BranchSummaryEntry),
    /// `custom`
    Custom(CustomEntry),
    /// `custom_message`
    CustomMessage(CustomMessageEntry),
    /// `label`
    Label(LabelEntry),
    /// `ttsr_injection`
    TtsrInjection(TtsrInjection),
    /// `session_init`
    SessionInit(SessionInit),
    /// `mode_change`
    ModeChange(ModeChange),
    /// `session_info`
    SessionInfo(SessionInfo),
    /// Any other type, or one of these in a form that we cannot read: the whole line as it was.
    Unknown(RawJson),
}

/// Body of `message`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageEntry {
    /// The message.
    pub message: AgentMessage,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `model_change`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelChange {
    /// Provider and id with a slash between them.
    pub model: String,
    /// Role of the model; absent means the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `thinking_level_change`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingLevelChange {
    /// The level; absent or null if none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `service_tier_change`, which we keep and do not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTierChange {
    /// All that it has.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `compaction`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionEntry {
    /// Summary of the older part.
    pub summary: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_summary: Option<String>,
    /// The first entry that is still shown to the model.
    pub first_kept_entry_id: String,
    /// Size of the context before.
    pub tokens_before: u64,
    /// Details of the files that the older part touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// Opaque, carried from one compaction to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_data: Option<RawJson>,
    /// True if an extension wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_extension: Option<bool>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `branch_summary`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchSummaryEntry {
    /// The entry where the branch began, or `root`.
    pub from_id: String,
    /// Summary of the branch.
    pub summary: String,
    /// Details of the files that the branch touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// True if an extension wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_extension: Option<bool>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `custom`: kept for an extension, never shown to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomEntry {
    /// Chosen by the extension.
    pub custom_type: String,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `custom_message`: a message of role `custom`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomMessageEntry {
    /// Type name chosen by the sender.
    pub custom_type: String,
    /// Content that the model sees.
    pub content: OmpContent,
    /// True if people see it.
    pub display: bool,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// Originator of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<MessageAttribution>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `label`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelEntry {
    /// The entry that is labelled.
    pub target_id: String,
    /// Absent takes the label away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `ttsr_injection`, which we keep and do not act on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TtsrInjection {
    /// The rules that stopped a stream.
    pub injected_rules: RawJson,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `session_init`: what a session of a subtask was started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInit {
    /// The whole system prompt.
    pub system_prompt: String,
    /// The task.
    pub task: String,
    /// The tools offered.
    pub tools: RawJson,
    /// Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<RawJson>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `mode_change`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeChange {
    /// The mode.
    pub mode: String,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Body of `session_info`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The name of the session; absent takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Members that every entry has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryHead {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    /// Null for the first entry. Absent in a file whose entries are in one row.
    #[serde(default, deserialize_with = "present")]
    parent_id: Option<Option<String>>,
    #[serde(default)]
    timestamp: String,
}

/// Reads a member that is there, null too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Whether the line of an entry has a parent member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentMember {
    /// Its id, or null.
    Named,
    /// No parent member.
    Missing,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryLine<'a, B> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    parent_id: Option<&'a str>,
    timestamp: &'a str,
    #[serde(flatten)]
    body: &'a B,
}

macro_rules! bodies {
    ($($kind:literal => $variant:ident),+ $(,)?) => {
        fn read_body(kind: &str, line: &str) -> Option<SessionEntryBody> {
            match kind {
                $($kind => {
                    let mut body = SessionEntryBody::$variant(serde_json::from_str(line).ok()?);
                    if let SessionEntryBody::$variant(body) = &mut body {
                        body.extra = std::mem::take(&mut body.extra).without_members(&["id", "parentId", "timestamp"]);
                    }
                    Some(body)
                })+
                _ => None,
            }
        }

        impl Serialize for SessionFileEntry {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { id, parent_id, timestamp, body } = self;
                let parent_id = parent_id.as_deref();
                match body {
                    $(SessionEntryBody::$variant(body) => EntryLine { kind: $kind, id, parent_id, timestamp, body }.serialize(serializer),)+
                    SessionEntryBody::Unknown(line) => line.serialize(serializer),
                }
            }
        }
    };
}

bodies! {
    "message" => Message,
    "model_change" => ModelChange,
    "thinking_level_change" => ThinkingLevelChange,
    "service_tier_change" => ServiceTierChange,
    "compaction" => Compaction,
    "branch_summary" => BranchSummary,
    "custom" => Custom,
    "custom_message" => CustomMessage,
    "label" => Label,
    "ttsr_injection" => TtsrInjection,
    "session_init" => SessionInit,
    "mode_change" => ModeChange,
    "session_info" => SessionInfo,
}

impl SessionFileEntry {
    /// Reads one line. A type or a form that we do not know gives [`SessionEntryBody::Unknown`], so that the entry keeps its place.
    ///
    /// # Errors
    /// If the line is no object with a `type` and an `id`.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        Self::parse_with_parent(line).map(|(entry, _)| entry)
    }

    /// Reads one line as [`SessionFileEntry::parse`] does, and returns whether it names a parent.
    ///
    /// # Errors
    /// As [`SessionFileEntry::parse`].
    pub fn parse_with_parent(line: &str) -> Result<(Self, ParentMember), serde_json::Error> {
        let line = replace_lone_surrogates(line);
        // A list would be read as the members of an object in their order, and has no id that could be changed.
        if !line.trim_start().starts_with('{') {
            return Err(serde::de::Error::custom("an entry is an object"));
        }
        let head = serde_json::from_str(&line).or_else(|error| match deduplicate_members(&line) {
            Some(once) => serde_json::from_str(&once),
            None => Err(error),
        });
        let EntryHead { kind, id, parent_id, timestamp } = head?;
        let body = read_body(&kind, &line).or_else(|| read_once(&kind, &line));
        let body = match body.or_else(|| read_incomplete_message(&kind, &line)) {
            Some(body) => body,
            None => SessionEntryBody::Unknown(RawJson::parse(line.into_owned())?),
        };
        let parent = if parent_id.is_some() { ParentMember::Named } else { ParentMember::Missing };
        Ok((Self { id, parent_id: parent_id.flatten(), timestamp, body }, parent))
    }
}

/// Reads the body of a line that names a member twice.
fn read_once(kind: &str, line: &str) -> Option<SessionEntryBody> {
    let outer = deduplicate_members(line)?;
    read_body(kind, &outer).or_else(|| read_body(kind, &serde_json::from_str::<Value>(&outer).ok()?.to_string()))
}

/// Reads the body of a message that lacks members of its role: it stays as it is written, for a reader who needs less.
fn read_incomplete_message(kind: &str, line: &str) -> Option<SessionEntryBody> {
    #[derive(Deserialize)]
    struct IncompleteMessage {
        message: RawJson,
        #[serde(flatten)]
        extra: ExtraMembers,
    }

    if kind != "message" {
        return None;
    }
    let loose = |line: &str| serde_json::from_str::<IncompleteMessage>(line).ok();
    let IncompleteMessage { message, extra } = loose(line).or_else(|| loose(&deduplicate_members(line)?))?;
    let extra = extra.without_members(&["id", "parentId", "timestamp"]);
    let is_object = message.as_text().trim_start().starts_with('{');
    is_object
        .then(|| SessionEntryBody::Message(Box::new(MessageEntry { message: AgentMessage::Other(message), extra })))
}

/// Returns a line with each member once. The last one counts, as in the original; the value of one that does not count may be
/// anything, even a number that no number of ours can hold.
fn deduplicate_members(line: &str) -> Option<String> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line).ok()?;
    serde_json::to_string(&members).ok()
}
