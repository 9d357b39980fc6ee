//! Calls of agents that people already run: the program's hook, or a proxy before it, asks about each call, the gateway decides, and
//! the program acts.
//!
//! It must not know rules, or what a tool does: a call becomes a request of the engine. Source: docs/protocol/hooks.md.

mod adapter;
mod answers;
mod closed_input;
mod decided_calls;
mod http_route;
mod input;
mod input_reader;
mod open_hooks;
mod path_walk;
mod proxied_calls;
mod ran_calls;
mod real_paths;

pub use adapter::{HookAdapter, HookRequest, PROOF_MARK, PROOF_REASON};
pub use answers::HookReply;
pub use http_route::{PATH, routes};
pub use input_reader::{CompleteInput, InputError, InputReader, LARGEST_INPUT};
pub use proxied_calls::{ProxiedCall, ProxyAnswer, ProxyDecision, SurfaceAnswer, SurfaceDecision};
