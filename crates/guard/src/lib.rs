//! Guards: the hooks of Countersign in the settings of agents that people already run.
//!
//! A guard is planned first, so that a person sees the exact change. It remembers what it added, and its end takes only that away. It
//! must not ask anybody, start a program or know the gateway: the command line does.

mod edit;
mod error;
mod guard;
mod json_syntax;
mod own_entries;
mod places;
mod presence;
mod program;
mod receipt;
mod settings_file;
mod text_blocks;
mod toml_tables;
mod undo;
mod undo_note;

pub use error::GuardError;
pub use guard::{
    FileChange, GuardPlan, GuardState, apply_guard, guard_command, guard_state, manual_entries, plan_guard,
    trust_tables,
};
pub use places::GuardPlaces;
pub use program::{GuardGrade, GuardScope, GuardedProgram, ProgramVersion};
pub use text_blocks::HookTrust;
pub use undo::{UndoOutcome, undo_guard};
pub use undo_note::UndoNote;
