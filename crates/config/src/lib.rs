//! Reads what `serve` is told: the configuration, the tools of its services, and the rules.
//!
//! It must not know any door or the engine: it turns files, flags and an environment into plain values. Everything that
//! is wrong is told at once, with file, line and key.

mod agents_file;
mod approvals;
mod at;
pub mod cases;
mod chosen;
mod exposed;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod known;
mod load;
mod location;
pub mod logging;
mod notes;
mod permissions;
mod places;
mod problem;
mod providers;
mod redacted;
pub mod rule_lines;
mod sandbox;
mod secrets;
mod services;
mod settings;
pub mod slips;
pub mod strangers;
mod tools;
mod typed_values;
mod value;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use agents_file::{AgentsError, Change, Listed, TokenFrom, agents, change_agents, new_token};
pub use cases::{Case, DEFAULT_AGENT};
pub use exposed::{Exposure, Finding};
pub use known::{Known, known, tool_files};
pub use load::{Loaded, load, storage};
pub use notes::Literal;
pub use permissions::{Permissions, RuleFile, permissions};
pub use places::{MAIN, Places, SKILLS, shared_skills};
pub use problem::{Errors, Fault, Problem};
pub use services::{Auth, Health, Service};
pub use settings::{
    Accounts, Agent, BindError, Config, Flags, Gateway, Limits, Logging, ModelName, OnShutdown, Person, Provider,
    Retention, Storage, TOKENS_FILE, Telegram, Tls, Web,
};
pub use tools::{Request, Tool, Undeclared};
