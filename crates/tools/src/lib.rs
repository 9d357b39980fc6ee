//! Runs the tools that agents call: files, search, a shell, a list of tasks.
//!
//! It must not know the caller, permissions, or how a call is recorded: policy and engine decide before anything here runs. It
//! knows no wire and no provider.

mod arguments;
pub mod artifacts;
pub mod ask;
pub mod bash;
pub mod conform;
mod diff;
pub mod disk;
pub mod edit;
pub mod environment;
pub mod exec;
pub mod find;
pub mod grep;
pub mod intercept;
pub mod live_questions;
pub mod ls;
pub mod node;
mod outcome;
pub mod pins;
mod proxy;
pub mod read;
pub mod registry;
pub mod regular;
pub mod roots;
pub mod sandbox;
pub mod schema;
pub mod secrets;
pub mod shell;
mod text;
pub mod todo;
pub mod todo_write;
pub mod tool;
pub mod workflow;
pub mod write;

pub use arguments::leads_to;
pub use conform::conform_arguments;
pub use environment::CommandEnvironment;
pub use intercept::{CommandInterceptor, InterceptRule};
pub use live_questions::{CallQuestions, HostAccessAnswer, HostApprover};
pub use outcome::{CallFailure, CallOutput};
pub use proxy::is_ours as is_own_address;
pub use registry::ToolRegistry;
pub use roots::AllowedRoots;
pub use sandbox::Sandbox;
pub use schema::{strip_intent, validate_arguments, with_intent};
pub use secrets::GatewaySecrets;
pub use shell::{PipedProgram, ProgramPipes, SessionShell};
pub use todo::TodoList;
pub use tool::{AgentTool, CallRoute, EditFormat, PeerRoute, ToolContext, UpdateSink};
