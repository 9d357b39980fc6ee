//! Reads the input of `serve`: the configuration, the tools of its services, and the rules.
//!
//! It must not know any adapter or the engine: it turns files, flags and an environment into plain values. All problems
//! are reported at once, with file, line and key.

mod agent_list;
mod agents_file;
mod approvals;
pub mod cases;
mod cluster;
mod config_field;
mod config_file;
pub mod credential_names;
mod database;
mod diagnostics;
mod exposure;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod gateway_paths;
mod known_entities;
pub mod lint;
mod load;
mod location;
pub mod logging;
mod mcp;
pub mod mcp_checks;
mod misnamed_files;
mod model_check;
mod own_address;
mod permissions;
mod problem;
mod providers;
mod realms;
mod redacted;
pub mod rule_lines;
mod sandbox;
mod secrets;
mod services;
mod settings;
pub mod suggest;
mod tools;
mod typed_values;
mod value;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use agents_file::{AgentChange, AgentsError, ListedAgent, TokenSource, change_agents, list_agents, new_token};
pub use cases::{DEFAULT_AGENT, PolicyCase};
pub use cluster::ClusterConfig;
pub use config_file::{check_sections, find_config};
pub use database::DatabaseSettings;
pub use diagnostics::LiteralCredential;
pub use exposure::{ExposureKind, FileFinding};
pub use gateway_paths::{GatewayPaths, MAIN, SKILLS, shared_skills};
pub use known_entities::{KnownEntities, known_entities, tool_files};
pub use load::{LoadedConfig, load_config, load_storage};
pub use mcp::{McpAuthConfig, McpServerConfig, McpServerOrigin, McpTransportConfig};
pub use misnamed_files::misnamed_files;
pub use permissions::{ParsedRules, RulesText, read_permissions};
pub use problem::{ConfigErrors, ConfigFault, ConfigProblem};
pub use realms::check_one_gateway;
pub use redacted::{hidden_parts, redacted_address, redacted_arguments};
pub use services::{HealthCheckConfig, ServiceAuthConfig, ServiceConfig};
pub use settings::{
    AgentConfig, ApproverAccounts, BindError, Config, ConfigFlags, GatewayConfig, LogConfig, ModelSelection,
    OnShutdown, PersonConfig, ProviderConfig, RateLimits, RealmConfig, RetentionConfig, StoragePaths, TOKENS_FILE,
    TelegramConfig, TlsFiles, WebConfig,
};
pub use tools::{RequestTemplate, ToolConfig, UndeclaredArguments};
