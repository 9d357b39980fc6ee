//! The rules and tools of an owner that is measured. No model answers: a measurement starts no turn.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use countersign_core::{
    engine::ActiveRules,
    gate::IdentityMap,
    id::SessionId,
    policy::{self, ApprovalMode, DefaultPolicy, PathContext, Rule, RuleAction, RuleLayer, RuleSource},
    session::ModelRef,
    tool::ToolSpec,
};
use countersign_runtime::{ResolvedModel, RunEnvironment};
use countersign_tools::{
    AllowedRoots, CommandEnvironment, SessionShell, ToolContext, ToolRegistry, exec::ExecLauncher,
};

/// Calls that the rules allow. Any other call raises a gate.
const ALLOWED: [&str; 7] = ["read(*)", "ls(*)", "grep(*)", "find(*)", "edit(*)", "write(*)", "bash(sh test.sh)"];

/// The standard tools, confined to one folder.
pub(super) struct IdleEnvironment {
    registry: Arc<ToolRegistry>,
    environment: CommandEnvironment,
    roots: AllowedRoots,
    shells: SessionShell,
}

impl IdleEnvironment {
    /// Confines the tools to `folder`.
    ///
    /// # Errors
    /// The system's error if `folder` is not there.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            registry: Arc::new(ToolRegistry::standard()),
            environment: CommandEnvironment::clean_with([]),
            roots: AllowedRoots::new(folder, [])?,
            shells: SessionShell::new(ExecLauncher::new(&std::env::current_exe()?)),
        })
    }
}

impl RunEnvironment for IdleEnvironment {
    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
        Err(format!("benchmarks have no model {}/{}", model.provider, model.id))
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::clone(&self.registry)
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        String::new()
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> ToolContext {
        ToolContext::new(PathBuf::from(cwd), self.roots.clone(), self.environment.clone(), self.shells.clone())
    }
}

/// Returns rules that allow the calls of a history and protect the log at `log` from the tools.
///
/// # Errors
/// Rules that do not compile, which is a defect.
pub(super) fn bench_rules(log: &Path) -> anyhow::Result<ActiveRules> {
    let rules = ALLOWED.map(|pattern| Rule::new(pattern, RuleAction::Allow));
    let rules = policy::RuleSet { defaults: Vec::new(), rules: rules.into() };
    let source = RuleSource { name: "bench".to_owned(), layer: RuleLayer::Main, rules };
    let compiled =
        policy::compile_rules(vec![source]).map_err(|errors| anyhow!("the rules do not compile: {errors:?}"))?;
    let log_file = |suffix: &str| format!("{}{suffix}", log.display());
    let surroundings = PathContext {
        home: std::env::var("HOME").ok(),
        temporary: Vec::new(),
        protected: ["", "-wal", "-shm", ".lock"].map(log_file).into(),
        unreadable: Vec::new(),
        door: None,
        realm: None,
        approval: ApprovalMode::default(),
        always_asked: Vec::new(),
    };
    Ok(ActiveRules {
        compiled,
        default_policy: DefaultPolicy::Gateway,
        path_context: surroundings,
        people: IdentityMap::default(),
    })
}
