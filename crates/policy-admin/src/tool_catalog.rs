//! Tools that agents may ask for at the moment: those of services, and those of MCP servers, which may change.
//!
//! It must not know how a tool is called.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::service_tools::{ServiceTool, ServiceTools};

/// Tools of a gateway. One is shared by all adapters.
#[derive(Default)]
pub struct ToolCatalog {
    /// Names of the tools of services, in the order of the files.
    order: Vec<String>,
    services: Arc<ServiceTools>,
    further: RwLock<Arc<ServiceTools>>,
}

/// The tools at one moment.
#[derive(Clone)]
pub struct CatalogSnapshot {
    services: Arc<ServiceTools>,
    further: Arc<ServiceTools>,
}

impl ToolCatalog {
    /// Creates a catalogue of the tools of services, which are listed in the order of `order`.
    pub fn new(services: Arc<ServiceTools>, order: Vec<String>) -> Self {
        Self { order, services, further: RwLock::default() }
    }

    /// Returns the names of the tools of services, in the order of the files.
    pub fn service_order(&self) -> &[String] {
        &self.order
    }

    /// Returns the tools of services, by name.
    pub const fn services(&self) -> &Arc<ServiceTools> {
        &self.services
    }

    /// Replaces the tools that no service has. A tool of a service with the same name keeps it.
    pub fn replace_further(&self, further: ServiceTools) {
        *self.further.write() = Arc::new(further);
    }

    /// Returns the tools as they are now.
    pub fn snapshot(&self) -> CatalogSnapshot {
        CatalogSnapshot { services: Arc::clone(&self.services), further: Arc::clone(&self.further.read()) }
    }

    /// Calls `visit` for every tool: those of services in their order, then the others by name.
    pub fn for_each_tool(&self, mut visit: impl FnMut(&str, &ServiceTool)) {
        let now = self.snapshot();
        for name in &self.order {
            if let Some(tool) = now.services.get(name) {
                visit(name, tool);
            }
        }
        for (name, tool) in now.further.iter().filter(|(name, _)| !now.services.contains_key(*name)) {
            visit(name, tool);
        }
    }
}

impl CatalogSnapshot {
    /// Returns the tool of a name.
    pub fn get(&self, name: &str) -> Option<&ServiceTool> {
        self.services.get(name).or_else(|| self.further.get(name))
    }
}

impl std::fmt::Debug for ToolCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.order).finish_non_exhaustive()
    }
}
