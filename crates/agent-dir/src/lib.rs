//! Reads the agent directory: where it is, its settings, its models and their keys, its MCP servers.
//!
//! It must not know any adapter, the engine or a provider's wire: it turns files and an environment into plain values.

pub mod agent_dir;
pub mod environment;
pub mod keys;
pub mod load_error;
pub mod mcp_servers;
pub mod models_file;
pub mod names;
pub mod persist;
pub mod restrictions;
pub mod roster;
mod sandbox;
mod section;
mod setting_names;
pub mod settings;
pub mod wildcard;

pub use agent_dir::{AgentDir, AgentProduct};
pub use environment::ProcessEnvironment;
pub use keys::ProviderKeys;
pub use load_error::LoadError;
pub use mcp_servers::{McpServers, ProjectServers};
pub use models_file::ModelsFile;
pub use persist::{SettingChange, persist_change};
pub use restrictions::Restrictions;
pub use roster::{ModelChoice, ModelRoster};
pub use settings::AgentSettings;
