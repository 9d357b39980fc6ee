//! Proxies on standard input and output that stand between a client and an agent: what the agent asks of its client becomes a decision.
//!
//! It must not know rules or gates: each call is decided through the trait [`Decider`]. Source: docs/protocol/proxies.md.

mod acp;
mod agent_call;
mod agent_process;
mod byte_queue;
mod call_waits;
mod codex;
mod command_words;
mod interceptor;
mod json_line;
mod line_reader;
mod open_requests;
mod proxy;
mod unknown_members;

pub use acp::{AcpOptions, AcpProxy, EditorApprovals, GuardedAgent, InnerGuard};
pub use agent_call::{AgentCall, CallAnswer, CallDecision, CallLinks, Decider, GateNotice};
pub use agent_process::{AgentProcess, AgentProcessError};
pub use codex::{CodexOptions, CodexProxy, CodexVersion, PROVEN_VERSION};
pub use command_words::{WordsError, split_words};
pub use interceptor::{CallToken, Interceptor, OpenSettings, ProxyAction, ProxyActions};
pub use line_reader::LARGEST_LINE;
pub use proxy::{Proxy, ProxyEnd};
