//! Stdio adapters for trials of rules: selection of one, with the files of its agent directory.
//!
//! It must not judge: it returns the subject for policy, and the rules with which a session of the adapter starts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_adapter_gjc as gjc;
use countersign_adapter_gsv as gsv;
use countersign_adapter_omp::rules as session_rules;
use countersign_agent_dir::{AgentDir, AgentProduct, AgentSettings, ProcessEnvironment};
use countersign_config::{ConfigErrors, ConfigFault, ConfigProblem, KnownEntities, lint};
use countersign_core::{call, policy::PolicySubject};
use countersign_policy_admin::{
    adapter::{self, RunTools, StdioRules, TrialAdapter},
    loaded_rules::LoadedRules,
    rules_error::RulesLoadError,
    tool_inventory::ToolInventory,
};
use countersign_view::Protocol;
use serde_json::{Map, Value};

/// Tools that the gsv adapter brings to runs.
#[derive(Clone, Copy, Debug)]
pub struct GsvTools;

impl RunTools for GsvTools {
    fn own_tools(&self) -> Vec<lint::KnownTool<'static>> {
        gsv::native_known().collect()
    }

    fn node_call(&self, tool: &str, arguments: &Map<String, Value>) -> Option<call::CallDetails> {
        gsv::assumed_call(tool, arguments)
    }
}

/// Returns the subjects of rules as far as a configuration names them.
pub fn tool_inventory(known: KnownEntities) -> ToolInventory {
    ToolInventory::from_known(known, Arc::new(GsvTools))
}

/// Finds the adapter of that name, for a process of `environment` that is started in `cwd`.
///
/// # Errors
/// The known names, or the reason why the agent directory or its settings cannot be read.
pub fn find_adapter(name: &str, environment: &ProcessEnvironment, cwd: &Path) -> Result<TrialAdapter, String> {
    let gateway = Protocol::OF_GATEWAY.map(Protocol::name);
    if let Some(name) = gateway.into_iter().find(|known| *known == name) {
        return Ok(TrialAdapter::Gateway(name));
    }
    let names = gateway.into_iter().chain(STDIO.map(AgentProduct::name)).collect::<Vec<_>>().join(", ");
    let product = AgentProduct::from_name(name).ok_or_else(|| format!("--door {name:?}: expected one of {names}"))?;
    Ok(TrialAdapter::Stdio(Arc::new(StdioAdapter::new(product, environment, cwd)?)))
}

/// Finds the stdio adapter in whose agent directory `file` is the rules file.
///
/// # Errors
/// The reason why its settings cannot be read.
pub fn adapter_for_file(
    file: &Path,
    environment: &ProcessEnvironment,
    cwd: &Path,
) -> Result<Option<TrialAdapter>, String> {
    let whole = |path: &Path| path.canonicalize().ok();
    let Some(target) = whole(&cwd.join(file)) else { return Ok(None) };
    let has = |product: &AgentProduct| {
        let folder = AgentDir::resolve(*product, environment, cwd, Path::exists);
        folder.is_ok_and(|folder| whole(&folder.permissions_path()).as_ref() == Some(&target))
    };
    let product = STDIO.into_iter().find(|product| has(product));
    product.map(|product| Ok(TrialAdapter::Stdio(Arc::new(StdioAdapter::new(product, environment, cwd)?)))).transpose()
}

/// Stdio adapters. Each has a rules file in its agent directory.
const STDIO: [AgentProduct; 2] = [AgentProduct::Omp, AgentProduct::Gjc];

/// Stdio adapter with its agent directory and settings.
#[derive(Clone, Debug)]
pub struct StdioAdapter {
    product: AgentProduct,
    folder: AgentDir,
    cwd: PathBuf,
    temporary: PathBuf,
    settings: AgentSettings,
}

impl StdioAdapter {
    fn new(product: AgentProduct, environment: &ProcessEnvironment, cwd: &Path) -> Result<Self, String> {
        let folder = AgentDir::resolve(product, environment, cwd, Path::exists).map_err(|error| error.to_string())?;
        let settings = AgentSettings::load(&folder, cwd).map_err(|error| error.to_string())?;
        Ok(Self { product, folder, cwd: cwd.to_owned(), temporary: std::env::temp_dir(), settings })
    }
}

impl StdioRules for StdioAdapter {
    fn name(&self) -> &'static str {
        self.product.name()
    }

    fn permissions_path(&self) -> PathBuf {
        self.folder.permissions_path()
    }

    // These include those of the working folder, and removals by settings.
    fn load_rules(&self, named: Option<&Path>) -> Result<LoadedRules, RulesLoadError> {
        let files = session_rules::read_rule_files(&self.folder, &self.cwd, named).map_err(rules_load_error)?;
        let place = session_rules::RulesContext {
            product: self.product,
            folder: &self.folder,
            cwd: &self.cwd,
            named,
            sessions: None,
            temporary: &self.temporary,
            gateway: None,
            asks: &[],
            records: match self.product {
                AgentProduct::Omp => &[],
                AgentProduct::Gjc => &gjc::RECORD_FOLDERS,
            },
            restrictions: &self.settings.restrictions,
            approval: self.settings.restrictions.approval,
        };
        let session_rules::PreparedRules { rules, warnings } =
            session_rules::compile_rules(&files, &place).map_err(rules_load_error)?;
        let (mut cases, mut count) = (Vec::new(), 0);
        for file in &files {
            let mut read = file.parse()?;
            cases.append(&mut read.cases);
            count += read.source.rules.rules.len() + read.source.rules.defaults.len();
        }
        Ok(LoadedRules { rules, cases, count, warnings, idle: Vec::new() })
    }

    // A tool that is not the adapter's own is one of the host.
    fn policy_subject(&self, tool: &str, arguments: &Map<String, Value>) -> Result<PolicySubject, String> {
        if self.settings.restrictions.withheld.contains(tool) {
            return Err(format!("settings disable {tool}: no session has it"));
        }
        let door = self.product.name();
        let cwd = self.cwd.display().to_string();
        Ok(adapter::run_tool_subject(door, &cwd, tool, arguments)
            .unwrap_or_else(|| adapter::host_tool_subject(door, &cwd, tool, arguments)))
    }
}

/// Returns the error of loading the rules of a session, in the form of a trial of rules.
fn rules_load_error(error: session_rules::RulesError) -> RulesLoadError {
    match error {
        session_rules::RulesError::Absent(path) => {
            let fault = ConfigFault::Io("file not found".to_owned());
            RulesLoadError::Form(ConfigErrors(vec![ConfigProblem { file: path, line: 0, key: String::new(), fault }]))
        }
        session_rules::RulesError::Named(errors) | session_rules::RulesError::Form(errors) => {
            RulesLoadError::Form(errors)
        }
        session_rules::RulesError::Compile(errors) => RulesLoadError::Compile(errors),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{adapter_for_file, find_adapter, tool_inventory};
    use countersign_agent_dir::ProcessEnvironment;
    use countersign_core::policy::RuleAction;
    use countersign_policy_admin::{explained::verdict_action, rules::read_rules, trial::explain_request};

    fn environment(root: &Path) -> ProcessEnvironment {
        [("HOME", root.display().to_string())].into_iter().collect()
    }

    fn rules(root: &Path, text: &str) -> std::path::PathBuf {
        let folder = root.join(".omp/agent");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("permissions.yaml");
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_file_of_rules_is_judged_as_its_adapter_does() {
        let root = tempfile::tempdir().unwrap();
        let environment = environment(root.path());
        for (text, door, want) in [
            ("rules: []", "omp", RuleAction::Allow),
            ("rules: []", "console", RuleAction::Ask),
            ("rules: [ { pattern: 'bash(git push*)', door: omp, action: deny } ]", "omp", RuleAction::Deny),
            ("rules: [ { pattern: 'bash(git push*)', door: omp, action: deny } ]", "hermes", RuleAction::Ask),
            ("rules: [ { pattern: 'bash(git push*)', door: hermes, action: deny } ]", "hermes", RuleAction::Deny),
            ("rules: [ { pattern: 'bash(git push*)', door: gjc, action: deny } ]", "omp", RuleAction::Ask),
        ] {
            let path = rules(root.path(), text);
            let adapter = find_adapter(door, &environment, root.path()).unwrap();
            let inventory = tool_inventory(countersign_config::KnownEntities::default()).with_adapter(adapter);
            let loaded = read_rules(&path, &inventory).unwrap();
            let arguments = json!({"command": "git push"}).as_object().unwrap().clone();
            let explained = explain_request(&loaded, &inventory, "default", "bash", arguments).unwrap();
            assert_eq!(verdict_action(&explained.verdict), want, "{text} {door}: {}", explained.verdict);
            assert_eq!(explained.subject.door.as_deref(), Some(door));
        }
    }

    #[test]
    fn what_a_setting_takes_away_is_taken_away_in_a_trial() {
        let root = tempfile::tempdir().unwrap();
        let path = rules(root.path(), "defaults: [ { pattern: '*', action: allow } ]");
        let ask = |settings: &str, tool: &str| {
            std::fs::write(root.path().join(".omp/agent/config.yml"), settings).unwrap();
            let adapter = find_adapter("omp", &environment(root.path()), root.path()).unwrap();
            let inventory = tool_inventory(countersign_config::KnownEntities::default()).with_adapter(adapter);
            let loaded = read_rules(&path, &inventory).unwrap();
            let arguments = json!({"command": "touch x"}).as_object().unwrap().clone();
            explain_request(&loaded, &inventory, "default", tool, arguments)
                .map(|explained| verdict_action(&explained.verdict))
        };
        assert_eq!(ask("{}", "bash"), Ok(RuleAction::Allow));
        assert_eq!(ask("tools: { approvalMode: always-ask }", "bash"), Ok(RuleAction::Ask));
        assert_eq!(ask("tools: { approval: { bash: deny } }", "bash"), Ok(RuleAction::Deny));
        assert!(ask("bash: { enabled: false }", "bash").unwrap_err().contains("settings disable bash"));
        assert_eq!(ask("{}", "a_tool_of_the_host"), Ok(RuleAction::Allow));
        assert_eq!(ask("tools: { approval: { SHELL: deny } }", "shell"), Ok(RuleAction::Deny));
        assert_eq!(ask("tools: { approval: { deploy: prompt } }", "Deploy"), Ok(RuleAction::Ask));
    }

    #[test]
    fn the_file_of_an_agent_directory_is_known_by_its_place() {
        let root = tempfile::tempdir().unwrap();
        let environment = environment(root.path());
        let path = rules(root.path(), "rules: []");
        let name = |path: &Path| {
            let found = adapter_for_file(path, &environment, root.path()).unwrap();
            found.map(|adapter| adapter.name())
        };
        assert_eq!(name(&path), Some("omp"));
        assert_eq!(name(Path::new(".omp/agent/../agent/permissions.yaml")), Some("omp"));
        std::fs::write(root.path().join("permissions.yaml"), "rules: []").unwrap();
        assert_eq!(name(Path::new("permissions.yaml")), None);
        let refused = find_adapter("front", &environment, root.path()).unwrap_err();
        assert!(
            refused.ends_with(
                "expected one of agent-gate, console, api, gsv, hermes, mcp, claude, codex, gemini, copilot, acp, opencode, omp, gjc"
            ),
            "{refused}"
        );
    }
}
