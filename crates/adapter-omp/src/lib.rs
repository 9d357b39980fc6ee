//! The omp adapter: JSON lines over stdio, for hosts that embed a coding agent. Source: docs/protocol/omp.md.
//!
//! It turns lines into commands and what happens into lines; it decides nothing about calls, gates or runs.

mod adapter;
pub mod attach;
mod attached;
mod bash_result;
mod client_input;
mod command_kind;
pub mod commands;
mod contract_transfer;
mod dialect_options;
mod dialogs;
mod entries;
mod event_encoder;
mod event_loop;
mod event_sequence;
mod file_sync;
pub mod flags;
mod follower;
mod frame;
pub mod grants;
mod handoff;
mod host;
mod host_call_table;
mod host_capabilities;
pub mod image;
mod import_grants;
mod liveness;
mod model_scope;
mod models;
mod open_session;
mod open_session_error;
mod outbox;
mod outdated_approvals;
mod question_settings;
mod recover_unwritten;
pub mod refusal_text;
mod rights;
pub mod rules;
mod sandbox_settings;
mod select_session;
mod session_environment;
pub mod session_file;
mod session_file_writer;
mod session_listing;
mod session_servers;
mod session_settings;
mod session_store;
mod shutdown;
mod start;
mod start_error;
mod tasks;
pub mod todos;
mod working_dir;

pub use adapter::dialect::{ActiveDialect, ConfiguredDialect, DialectExtension, ExtensionFactory};
pub use adapter::{FrameSender, OmpAdapter, WaitUntil, for_each_frame};
pub use attached::{
    AttachPlan, AttachReply, attach_params, attach_plan, error_notice, failure_response, serve_attached,
};
pub use client_input::ClientInput;
pub use client_input::LineReceiver;
pub use dialect_options::{DialectOptions, SessionIdForm};
pub use event_encoder::EventEncoder;
pub use event_sequence::{EarlierEvents, KEPT_EVENTS};
pub use follower::{LogFollower, LogReaders};
pub use frame::OutgoingFrame;
pub use liveness::is_alive;
pub use session_environment::SessionEnvironment;
pub use session_file_writer::SessionFileWriter;
pub use session_listing::SessionListing;
pub use start::{LaunchEnvironment, OpenAdapter, ProcessContext, ProgramInfo, open_adapter, start_in};
pub use start_error::StartError;
