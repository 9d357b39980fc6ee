//! Writes what commands answer: the state of a session, models, counts and results.
//!
//! It must not know where the values come from. Absent values are absent keys, never null. Source: the RPC reference
//! of omp, Response Schema; docs/protocol/omp.md, Commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{command::SubscriptionLevel, todo::TodoPhase};
use crate::json::{JsNumber, RawJson, wire_values};

/// Data of `get_state`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcSessionState {
    /// Absent if none is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<OmpModel>,
    /// Absent for a model that does not reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// True through waits for a retry and work after a run.
    pub is_streaming: bool,
    /// True if the context is being summarised.
    pub is_compacting: bool,
    /// Mode as it was set.
    pub steering_mode: String,
    /// Mode as it was set.
    pub follow_up_mode: String,
    /// Mode as it was set.
    pub interrupt_mode: String,
    /// Absent if the session is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<String>,
    /// Opaque.
    pub session_id: String,
    /// Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// True if the context is summarised automatically.
    pub auto_compaction_enabled: bool,
    /// Messages in the context.
    pub message_count: usize,
    /// Messages that wait in a queue.
    pub queued_message_count: usize,
}

/// Usage of the context.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    /// Null if it is not known.
    pub tokens: Option<u64>,
    /// Context window of the model, in tokens.
    pub context_window: u64,
    /// Share of the window, from 0 to 100; null if it is not known.
    pub percent: Option<JsNumber>,
    /// Source of the number. Of later versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<UsageSource>,
}

/// Source of a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider counted.
    ProviderAnchor,
    /// We guessed.
    Heuristic,
    /// Unknown.
    Unknown,
}

/// Data of `get_state` at the omp adapter: what 13.19 has, and what clients of later versions and of pi read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedState {
    /// The members of 13.19.
    #[serde(flatten)]
    pub shared: RpcSessionState,
    /// The tasks.
    pub todo_phases: Vec<TodoPhase>,
    /// Size of the context. Absent without a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<ContextUsage>,
    /// Messages that wait in a queue, by the name that pi has for it.
    pub pending_message_count: usize,
    /// True if a provider's faster way is requested. It never is.
    pub fast_mode_enabled: bool,
    /// True if it is in use.
    pub fast_mode_active: bool,
}

/// Data of `negotiate_protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtocolVersion {
    /// The version in use.
    pub protocol_version: u64,
}

/// Data of `set_fast_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FastMode {
    /// True if it is requested.
    pub enabled: bool,
    /// True if it is in use.
    pub active: bool,
}

/// Data of `set_subagent_subscription`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SubagentSubscription {
    /// Detail of reports about subagents.
    pub level: SubscriptionLevel,
}

/// Data of `get_subagents`: there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SubagentList {
    /// Always empty.
    pub subagents: Vec<RawJson>,
}

/// Data of `get_available_thinking_levels`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThinkingLevels {
    /// `off` first.
    pub levels: Vec<String>,
}

/// Data of `get_messages_page`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessagesPage {
    /// The messages of the page.
    pub messages: Vec<RawJson>,
    /// Cursor of the next page; absent after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Messages of the whole context.
    pub total_messages: usize,
}

/// Data of `get_available_commands` and of `get_commands`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlashCommands {
    /// In the order of their names.
    pub commands: Vec<SlashCommand>,
}

/// File that a slash command is expanded from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: String,
    /// The first line of the file that describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `file` for omp, `prompt` for pi.
    pub source: &'static str,
    /// Path of the file. Of pi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_info: Option<SourceInfo>,
}

/// Place of the file of a slash command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceInfo {
    /// Its path.
    pub path: String,
    /// Way in which it was found: `auto`.
    pub source: &'static str,
    /// `user` or `project`.
    pub scope: &'static str,
    /// `top-level`: it belongs to no package.
    pub origin: &'static str,
}

/// One model that can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OmpModel {
    /// Its id at its provider.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// The wire it speaks.
    pub api: String,
    /// Id of its provider.
    pub provider: String,
    /// Base URL of its provider.
    pub base_url: String,
    /// True if it thinks.
    pub reasoning: bool,
    /// Kinds of input that it takes.
    pub input: Vec<ModelInput>,
    /// Dollars for a million tokens.
    pub cost: ModelCost,
    /// Most tokens of a request; more than 0.
    pub context_window: u64,
    /// Most tokens of an answer.
    pub max_tokens: u64,
    /// Way in which its thinking is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ModelThinking>,
    /// Sent with each request. Never the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Number of requests that one request counts for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premium_multiplier: Option<JsNumber>,
    /// True if a WebSocket is the better way to its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_websockets: Option<bool>,
    /// The larger model to continue with when the context is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_promotion_target: Option<String>,
    /// Order among models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<JsNumber>,
    /// Differences of its API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compat: Option<RawJson>,
}

/// Kind of input of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelInput {
    /// Text.
    Text,
    /// Images.
    Image,
}

/// Dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCost {
    /// Price of input.
    pub input: JsNumber,
    /// Price of output.
    pub output: JsNumber,
    /// Price of input read from the cache.
    pub cache_read: JsNumber,
    /// Price of input written to the cache.
    pub cache_write: JsNumber,
}

/// Way in which a model's thinking is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelThinking {
    /// Format of the setting.
    pub mode: ModelThinkingMode,
    /// The least level.
    pub min_level: String,
    /// The highest level.
    pub max_level: String,
}

/// Format of a model's thinking settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelThinkingMode {
    /// An effort by name.
    Effort,
    /// A number of tokens.
    Budget,
    /// Google's levels.
    GoogleLevel,
    /// Anthropic's effort.
    AnthropicAdaptive,
    /// Anthropic's number of tokens with an effort.
    AnthropicBudgetEffort,
}

/// Data of `get_session_stats`: sums over the messages in the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStats {
    /// Absent if the session is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<String>,
    /// Opaque.
    pub session_id: String,
    /// Messages of the person.
    pub user_messages: usize,
    /// Messages of the model.
    pub assistant_messages: usize,
    /// Calls in them.
    pub tool_calls: usize,
    /// Results of calls.
    pub tool_results: usize,
    /// Messages of every kind.
    pub total_messages: usize,
    /// Tokens of all assistant messages.
    pub tokens: TokenSums,
    /// Dollars.
    pub cost: JsNumber,
    /// Number of premium requests, as the provider counts them.
    pub premium_requests: JsNumber,
}

/// Sums of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenSums {
    /// Sent, without what was kept.
    pub input: u64,
    /// Answered.
    pub output: u64,
    /// Sent and kept before.
    pub cache_read: u64,
    /// Sent to be kept.
    pub cache_write: u64,
    /// The sum of the four.
    pub total: u64,
}

/// Data of `compact`, and the result of compaction by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionResult {
    /// Summary of the older part.
    pub summary: String,
    /// One line for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_summary: Option<String>,
    /// The first entry that is still shown to the model.
    pub first_kept_entry_id: String,
    /// Size of the context before.
    pub tokens_before: u64,
    /// Details of the files that the older part touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<CompactionDetails>,
    /// Opaque, carried from one compaction to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_data: Option<RawJson>,
}

/// The files that a summarised part touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionDetails {
    /// Read, and not changed.
    pub read_files: Vec<String>,
    /// Changed.
    pub modified_files: Vec<String>,
}

/// Data of `bash`. A code other than 0 is no failure of the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BashResult {
    /// Absent if the command was stopped or took too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if it was stopped.
    pub cancelled: bool,
    /// Both outputs as they came, or their end.
    pub output: String,
    /// True if `output` lacks its beginning.
    pub truncated: bool,
    /// Lines of all output; a line break at the end counts as one more.
    pub total_lines: usize,
    /// Bytes of all output.
    pub total_bytes: usize,
    /// Lines of `output`.
    pub output_lines: usize,
    /// Bytes of `output`.
    pub output_bytes: usize,
    /// Names where all output is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<String>,
}

/// Data of `new_session` and `switch_session`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SessionSwitchResult {
    /// True if something kept the session from changing.
    pub cancelled: bool,
}

/// Data of `branch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BranchResult {
    /// The chosen message, for the person to change.
    pub text: String,
    /// True if something kept the session from changing.
    pub cancelled: bool,
}

/// Data of `cycle_model`; null instead if there is no other model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CycledModel {
    /// The model chosen.
    pub model: OmpModel,
    /// Absent for a model that does not reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// True if it was chosen from a list of the person's.
    pub is_scoped: bool,
}

/// Data of `get_available_models`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AvailableModels {
    /// Models that could be used now.
    pub models: Vec<OmpModel>,
}

/// Data of `cycle_thinking_level`; null instead for a model that does not reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CycledThinkingLevel {
    /// The level chosen.
    pub level: String,
}

/// Data of `export_html`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportedHtml {
    /// Path that it was written to.
    pub path: String,
}

/// Data of `get_branch_messages`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BranchMessages {
    /// In the order of the file, of all branches.
    pub messages: Vec<BranchMessage>,
}

/// A user message that can be branched from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchMessage {
    /// Its entry.
    pub entry_id: String,
    /// Its text; not empty.
    pub text: String,
}

/// Data of `get_last_assistant_text`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LastAssistantText {
    /// Absent if there is none: the data is then an empty object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Data of `get_messages`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContextMessages {
    /// The context, each message as it was encoded.
    pub messages: Vec<RawJson>,
}

wire_values! {
    RpcSessionState, ExtendedState, ProtocolVersion, FastMode, SubagentSubscription, SubagentList, ThinkingLevels,
    MessagesPage, SlashCommands, OmpModel, SessionStats, CompactionResult, CompactionDetails, BashResult,
    SessionSwitchResult, BranchResult, CycledModel, AvailableModels, CycledThinkingLevel, ExportedHtml, BranchMessages,
    LastAssistantText, ContextMessages,
}
