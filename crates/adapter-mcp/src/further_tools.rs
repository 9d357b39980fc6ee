//! Tools beyond those of services, such as those of other MCP servers.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;

/// Tool that the gateway offers in addition to those of its services.
///
/// Rules match its name alone as the signature, and its arguments by argument rules.
#[derive(Clone, Debug, PartialEq)]
pub struct FurtherTool {
    /// Name of the tool.
    pub name: String,
    /// Description for models.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub schema: Map<String, Value>,
    /// Name of the service that runs it, as rules name it.
    pub service: Arc<str>,
}

/// Source of [`FurtherTool`]s.
pub trait FurtherTools: Send + Sync {
    /// Returns all tools, in the order in which clients see them.
    fn tools(&self) -> Vec<FurtherTool>;

    /// Checks the arguments of a call before policy, so that no gate opens for a call that could not be sent.
    ///
    /// # Errors
    /// The problems, for the model.
    fn check_arguments(&self, _tool: &str, _arguments: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }

    /// Returns why a tool that is not among them is missing, for the model. `None` if it is not known.
    fn missing_reason(&self, _tool: &str) -> Option<String> {
        None
    }

    /// Returns a number that changes with the tools.
    fn changed(&self) -> watch::Receiver<u64>;
}
