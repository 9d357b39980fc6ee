//! Guards: the hooks of Countersign in the settings of agents that people already run.
//!
//! A guard is planned first, so that a person sees the exact change. It remembers what it added, and its end takes only that away. It
//! must not ask anybody, start a program or know the gateway: the command line does.

mod edit;
mod error;
mod guard;
mod places;
mod program;
mod receipt;
mod settings_file;
mod text_blocks;

pub use error::GuardError;
pub use guard::{
    FileChange, GuardPlan, GuardState, UndoOutcome, apply_guard, guard_command, guard_state, plan_guard, trust_tables,
    undo_guard,
};
pub use places::GuardPlaces;
pub use program::{GuardGrade, GuardScope, GuardedProgram, ProgramVersion};
pub use text_blocks::HookTrust;
