//! The rules of a gateway: the file, its entities, its problems, and its verdict on a call.
//!
//! It must not know an adapter: what adapters have of their own is passed in as [`adapter::RunTools`] and
//! [`adapter::StdioRules`].

pub mod adapter;
mod approvers;
mod calls;
pub mod case_result;
pub mod explained;
pub mod loaded_rules;
pub mod malformed;
pub mod outranked;
pub mod rules;
pub mod rules_error;
pub mod rules_file;
pub mod service_tools;
pub mod shell_hints;
#[cfg(test)]
mod testing;
pub mod tool_catalog;
pub mod tool_inventory;
pub mod trial;
mod unchecked;
mod unmet;
