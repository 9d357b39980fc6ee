//! A session: one conversation as a tree of entries, its settings and its queues.
//!
//! State holds the index of the tree, never its text: content is fetched by position outside the owner.

mod agent_requests;
mod breaker;
mod command;
mod compaction;
mod context;
mod cut;
mod event;
mod gate_stages;
mod idempotency;
mod profile;
mod question_settings;
mod renewal;
mod run_settings;
mod run_start;
mod settings;
mod staged_entries;
mod state;
mod used_ids;
mod withheld_calls;

pub use crate::run::InterruptMode;
pub use agent_requests::{
    AgentRequests, KeyedRequest, ProgramGeneration, RequestOutcome, RequestRecord, counted_number,
};
pub(crate) use breaker::BreakerAnswer;
pub use breaker::{Breaker, BreakerPhase, TRIPS_AT};
pub use command::{
    Command, CompactError, CompactionOutcome, FilePart, IdempotencyKey, ImportedEntry, MessageContent, PromptError,
    StagedEntry, WhenBusy,
};
pub use compaction::ActiveCompaction;
pub use context::ContextPiece;
pub use cut::CompactionCut;
pub use event::{AfterCompaction, CompactionCause, Event, KeyedOutcome, SessionEntryKind, model_change};
pub use idempotency::{IdempotencyKeys, KeyedRecord};
pub use profile::{RenewalMode, RenewalSettings, SessionProfile};
pub use question_settings::{AnswerFormat, AskTimeouts, NoAnswerRule, QuestionSettings};
pub use settings::{
    CompactionThresholds, CompactionTiming, DenialReach, ListingFlags, ModelPrice, ModelRef, QueueModes, RetryPolicy,
    SessionSetting, Settings, StoppedRun, TakeMode,
};
pub use state::{HostedState, MessageQueue, QueuedMessage, Session, SessionEntry};
pub use withheld_calls::WithheldCalls;
