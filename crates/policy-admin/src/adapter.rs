//! Contributions of adapters to a trial of rules.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_config::lint::KnownTool;
use countersign_core::{call, policy::PolicySubject};
use serde_json::{Map, Value};

pub use super::calls::{host_tool_subject, run_tool_subject};
use super::{loaded_rules::LoadedRules, rules_error::RulesLoadError};

/// The tools that runs of a gateway have in addition to those of services and those that every run has.
pub trait RunTools: Send + Sync {
    /// Returns the tools of the gateway's own, with their arguments.
    fn own_tools(&self) -> Vec<KnownTool<'static>>;

    /// Returns the call of a node's tool that agents know by the name `tool`; none where it is no name of one.
    fn node_call(&self, tool: &str, arguments: &Map<String, Value>) -> Option<call::CallDetails>;
}

/// The rules of a stdio adapter, which come of its agent directory and settings.
pub trait StdioRules: Debug + Send + Sync {
    /// Returns the name that rules know it by.
    fn name(&self) -> &'static str;

    /// Returns the path of the rules file in its agent directory.
    fn permissions_path(&self) -> PathBuf;

    /// Reads the rules that a session would start with: those of the file `named`, or of the agent directory.
    ///
    /// # Errors
    /// [`RulesLoadError`]: with such rules nothing starts.
    fn load_rules(&self, named: Option<&Path>) -> Result<LoadedRules, RulesLoadError>;

    /// Returns the subject for policy of a call.
    ///
    /// # Errors
    /// The reason why no session has the tool.
    fn policy_subject(&self, tool: &str, arguments: &Map<String, Value>) -> Result<PolicySubject, String>;
}

/// The adapter that a trial of rules is about.
#[derive(Clone, Debug)]
pub enum TrialAdapter {
    /// One of a gateway's.
    Gateway(&'static str),
    /// A stdio adapter, as a process that is started here would be.
    Stdio(Arc<dyn StdioRules>),
}

impl TrialAdapter {
    /// Returns the name that rules know it by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gateway(name) => name,
            Self::Stdio(stdio) => stdio.name(),
        }
    }

    /// Returns the stdio adapter, if it is one.
    pub fn stdio_rules(&self) -> Option<&dyn StdioRules> {
        match self {
            Self::Gateway(_) => None,
            Self::Stdio(stdio) => Some(&**stdio),
        }
    }
}
