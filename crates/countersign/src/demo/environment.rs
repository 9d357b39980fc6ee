//! Environment of the demo's runs: the scripted model, the standard tools confined to one folder, and the rules.
//!
//! It must not know who answers, nor how it is shown.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    engine::ActiveRules,
    gate::IdentityMap,
    id::SessionId,
    policy::{self, ApprovalMode, DefaultPolicy, PathContext, Rule, RuleAction, RuleLayer, RuleSource},
    session::ModelRef,
    tool::ToolSpec,
};
use countersign_models::{LanguageModel, ModelEvent, ModelFailure, ModelRequest, demo as script};
use countersign_runtime::{ResolvedModel, RunEnvironment};
use countersign_tools::{
    AllowedRoots, CommandEnvironment, SessionShell, ToolContext, ToolRegistry, exec::ExecLauncher,
};
use futures_util::{StreamExt as _, stream::BoxStream};

/// The rules for people: what, and what becomes of it.
pub(crate) const RULES: [(&str, &str); 3] = [
    ("reading, searching and editing in the project", "allowed by rule"),
    ("the command `sh test.sh`", "allowed by rule"),
    ("everything else", "needs approval"),
];

/// The same for the engine. The tools themselves reach nothing outside of the project.
const ALLOWED: [&str; 7] = ["read(*)", "ls(*)", "grep(*)", "find(*)", "edit(*)", "write(*)", "bash(sh test.sh)"];

/// Speed of the model's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputPace {
    /// All at once.
    AtOnce,
    /// So long for each delta of its text.
    Readable(Duration),
}

/// Models, tools and texts of the demo.
pub(crate) struct DemoEnvironment {
    registry: Arc<ToolRegistry>,
    environment: CommandEnvironment,
    roots: AllowedRoots,
    shells: SessionShell,
    model: Arc<dyn LanguageModel>,
}

impl DemoEnvironment {
    /// Tools that reach `project` only, and a shell that is started by `program`.
    ///
    /// # Errors
    /// Error of the system if `project` does not exist.
    pub(crate) fn new(program: &Path, project: &Path, pace: OutputPace) -> std::io::Result<Self> {
        Ok(Self {
            registry: Arc::new(ToolRegistry::standard()),
            environment: CommandEnvironment::clean_with([]),
            roots: AllowedRoots::new(project, [])?,
            shells: SessionShell::new(ExecLauncher::new(program)),
            model: match pace {
                OutputPace::AtOnce => Arc::new(script::DemoModel),
                OutputPace::Readable(delay) => Arc::new(PacedModel(delay)),
            },
        })
    }

    /// Ends the shell with everything that it started.
    pub(crate) async fn close(&self) {
        self.shells.close().await;
    }
}

/// Returns the rules of the demo. Nothing may write to `record`.
///
/// # Errors
/// Rules that do not compile, which is a defect.
pub(crate) fn demo_rules(record: &Path) -> anyhow::Result<ActiveRules> {
    let rules = ALLOWED.map(|pattern| Rule::new(pattern, RuleAction::Allow));
    let rules = policy::RuleSet { defaults: Vec::new(), rules: rules.into() };
    let source = RuleSource { name: "demo".to_owned(), layer: RuleLayer::Main, rules };
    let compiled = policy::compile_rules(vec![source]).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!(errors.join("; "))
    })?;
    let beside = |suffix: &str| format!("{}{suffix}", record.display());
    let surroundings = PathContext {
        home: std::env::var("HOME").ok(),
        temporary: Vec::new(),
        protected: ["", "-wal", "-shm", ".lock"].map(beside).into(),
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

impl RunEnvironment for DemoEnvironment {
    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
        if model.provider != script::PROVIDER {
            return Err(format!("the demo has no model {}/{}", model.provider, model.id));
        }
        Ok(ResolvedModel { entry: Arc::new(script::model_entry()), key: None, model: Arc::clone(&self.model) })
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::clone(&self.registry)
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        "You are the scripted model of the demo.".to_owned()
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> ToolContext {
        ToolContext::new(PathBuf::from(cwd), self.roots.clone(), self.environment.clone(), self.shells.clone())
    }
}

/// The scripted model at a pace that people can follow.
struct PacedModel(Duration);

impl LanguageModel for PacedModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
        let delay = self.0;
        let slow = move |event: Result<ModelEvent, ModelFailure>| async move {
            if matches!(event, Ok(ModelEvent::Delta { .. })) {
                tokio::time::sleep(delay).await;
            }
            event
        };
        script::DemoModel.stream(request).then(slow).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::demo_rules;

    #[test]
    fn the_rules_compile_and_surprise_nobody() {
        let rules = demo_rules(Path::new("/r/record.db")).unwrap();
        assert!(rules.compiled.has_rules());
        assert_eq!(rules.path_context.protected.len(), 4);
    }
}
