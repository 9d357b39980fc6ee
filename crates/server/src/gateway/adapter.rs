//! Which adapter a trial of rules is about: one of the gateway's, or a stdio adapter with the files of its agent directory.
//!
//! It must not judge: it says what policy is asked, and which rules a session of the adapter starts with.

use std::path::{Path, PathBuf};

use countersign_core::{
    Whereabouts, call,
    id::SessionId,
    policy::{Class, Subject},
    tool::{Effect, Foreign, Machine, Shell, Spec},
};
use countersign_runtime::tools::Registry;
use serde_json::{Map, Value};

use super::rules::{Loaded, RulesError};
use crate::{gjc, omp::rules as of_adapter};
use countersign_agent_dir::{AgentDir, Environment, Product, Settings};
use countersign_config::{Errors, Fault, Problem};
use countersign_view::Protocol;

/// The adapters of a gateway, as rules name them.
pub const OF_GATEWAY: [&str; 5] = [
    Protocol::AgentGate.name(),
    Protocol::Console.name(),
    Protocol::Api.name(),
    Protocol::Gsv.name(),
    Protocol::Hermes.name(),
];
/// The stdio adapters, as rules name them. Each has a file of rules in its agent directory.
pub const STDIO: [Product; 2] = [Product::Omp, Product::Gjc];

/// The adapter that a trial of rules is about.
#[derive(Clone, Debug)]
pub enum Adapter {
    /// One of a gateway's.
    Gateway(&'static str),
    /// A stdio adapter, as a process that is started here would be.
    Stdio(Box<Stdio>),
}

/// A stdio adapter with its agent directory and settings.
#[derive(Clone, Debug)]
pub struct Stdio {
    product: Product,
    folder: AgentDir,
    cwd: PathBuf,
    temporary: PathBuf,
    settings: Settings,
}

impl Adapter {
    /// Finds the adapter of that name, for a process of `environment` that is started in `cwd`.
    ///
    /// # Errors
    /// Which names there are, or why the agent directory or its settings cannot be read.
    pub fn named(name: &str, environment: &Environment, cwd: &Path) -> Result<Self, String> {
        if let Some(name) = OF_GATEWAY.into_iter().find(|known| *known == name) {
            return Ok(Self::Gateway(name));
        }
        let names = OF_GATEWAY.into_iter().chain(STDIO.map(Product::name)).collect::<Vec<_>>().join(", ");
        let product =
            Product::named(name).ok_or_else(|| format!("there is no door {name:?}; the doors are {names}"))?;
        Stdio::new(product, environment, cwd).map(|stdio| Self::Stdio(Box::new(stdio)))
    }

    /// Finds the stdio adapter in whose agent directory `file` is the file of rules.
    ///
    /// # Errors
    /// Why its settings cannot be read.
    pub fn of_file(file: &Path, environment: &Environment, cwd: &Path) -> Result<Option<Self>, String> {
        let whole = |path: &Path| path.canonicalize().ok();
        let Some(wanted) = whole(&cwd.join(file)) else { return Ok(None) };
        let has = |product: &Product| {
            let folder = AgentDir::resolve(*product, environment, cwd, Path::exists);
            folder.is_ok_and(|folder| whole(&folder.permissions()).as_ref() == Some(&wanted))
        };
        let product = STDIO.into_iter().find(|product| has(product));
        product.map(|product| Ok(Self::Stdio(Box::new(Stdio::new(product, environment, cwd)?)))).transpose()
    }

    /// Returns the name that rules know it by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gateway(name) => name,
            Self::Stdio(stdio) => stdio.product.name(),
        }
    }

    /// Returns the stdio adapter, if it is one.
    pub fn stdio(&self) -> Option<&Stdio> {
        match self {
            Self::Gateway(_) => None,
            Self::Stdio(stdio) => Some(stdio),
        }
    }
}

impl Stdio {
    fn new(product: Product, environment: &Environment, cwd: &Path) -> Result<Self, String> {
        let folder = AgentDir::resolve(product, environment, cwd, Path::exists).map_err(|error| error.to_string())?;
        let settings = Settings::load(&folder, cwd).map_err(|error| error.to_string())?;
        Ok(Self { product, folder, cwd: cwd.to_owned(), temporary: std::env::temp_dir(), settings })
    }

    /// Returns the file of rules in its agent directory.
    pub fn permissions(&self) -> PathBuf {
        self.folder.permissions()
    }

    /// Reads the rules that a session would start with: `named`, or those of the agent directory, the working folder's own,
    /// and what its settings take away.
    ///
    /// # Errors
    /// [`RulesError`]: with such rules nothing starts.
    pub(super) fn load(&self, named: Option<&Path>) -> Result<Loaded, RulesError> {
        let files = of_adapter::files(&self.folder, &self.cwd, named)?;
        let place = of_adapter::Place {
            product: self.product,
            folder: &self.folder,
            cwd: &self.cwd,
            named,
            sessions: None,
            temporary: &self.temporary,
            gateway: None,
            asks: &[],
            records: match self.product {
                Product::Omp => &[],
                Product::Gjc => &gjc::RECORD_FOLDERS,
            },
            restrictions: &self.settings.restrictions,
            approval: self.settings.restrictions.approval,
        };
        let of_adapter::Loaded { rules, warnings } = of_adapter::compile(&files, &place)?;
        let (mut cases, mut count) = (Vec::new(), 0);
        for file in &files {
            let mut read = file.parse()?;
            cases.append(&mut read.cases);
            count += read.source.rules.rules.len() + read.source.rules.defaults.len();
        }
        Ok(Loaded { rules, cases, count, warnings, idle: Vec::new() })
    }

    /// Returns what policy is asked about a call. What is no tool of the adapter's own is one of the host.
    ///
    /// # Errors
    /// Settings take the tool from every session.
    pub(super) fn subject(&self, tool: &str, arguments: &Map<String, Value>) -> Result<Subject, String> {
        if self.settings.restrictions.withheld.contains(tool) {
            return Err(format!("settings switch {tool} off, so no session has it"));
        }
        let door = self.product.name();
        let cwd = self.cwd.display().to_string();
        Ok(own(door, &cwd, tool, arguments).unwrap_or_else(|| of_host(door, &cwd, tool, arguments)))
    }
}

/// Returns what policy is asked about a call of a tool of runs; `None` if runs have none of this name.
pub(super) fn own(door: &str, cwd: &str, tool: &str, arguments: &Map<String, Value>) -> Option<Subject> {
    let registry = Registry::standard();
    let spec = registry.specs().find(|spec| spec.name == tool)?;
    let effect = if spec.effect == Effect::Reads { Effect::Reads } else { Effect::Changes };
    let content = content(spec.signature_of(arguments), spec.signature, tool, arguments);
    Some(subject(door, cwd, &content, effect))
}

fn of_host(door: &str, cwd: &str, tool: &str, arguments: &Map<String, Value>) -> Subject {
    let spec = Spec {
        name: tool.to_owned(),
        description: String::new(),
        schema: Value::Null,
        lane: countersign_core::tool::Lane::Shared,
        repeat: countersign_core::tool::Repeat::Once,
        effect: Effect::Changes,
        signature: &[],
    };
    // No schema is known here.
    let foreign = Foreign { name: tool, schema: &Map::new(), needs_shell: false, machine: Machine::This };
    let content = call::Content {
        class: Some(Class::HostToolInvoke),
        shell: Some(Shell::of_foreign(&foreign, arguments)),
        ..content(spec.signature_of(arguments), &[], tool, arguments)
    };
    subject(door, cwd, &content, Effect::Changes)
}

fn content(signature: String, named: &[&str], tool: &str, arguments: &Map<String, Value>) -> call::Content {
    call::Content {
        pins: None,
        leads_to: None,
        tool: tool.into(),
        tool_call_id: "".into(),
        arguments: arguments.clone(),
        intent: None,
        signature,
        named: named.iter().map(|name| (*name).to_owned()).collect(),
        class: None,
        shell: None,
        problem: None,
        request: None,
    }
}

fn subject(door: &str, cwd: &str, content: &call::Content, effect: Effect) -> Subject {
    let session = SessionId::new("trial");
    let place = Whereabouts { session: &session, door: Some(door), cwd, folder: cwd, is_shell_used: false };
    countersign_core::subject_at(place, content, effect)
}

impl From<of_adapter::RulesError> for RulesError {
    fn from(error: of_adapter::RulesError) -> Self {
        match error {
            of_adapter::RulesError::Absent(path) => {
                let fault = Fault::Io("it is not there".to_owned());
                Self::Form(Errors(vec![Problem { file: path, line: 0, key: String::new(), fault }]))
            }
            of_adapter::RulesError::Named(errors) | of_adapter::RulesError::Form(errors) => Self::Form(errors),
            of_adapter::RulesError::Compile(errors) => Self::Compile(errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::Adapter;
    use crate::gateway::{
        rules::{Household, read},
        trial::{action, explain},
    };
    use countersign_agent_dir::Environment;
    use countersign_core::policy::Action;

    fn environment(root: &Path) -> Environment {
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
            ("rules: []", "omp", Action::Allow),
            ("rules: []", "console", Action::Ask),
            ("rules: [ { pattern: 'bash(git push*)', door: omp, action: deny } ]", "omp", Action::Deny),
            ("rules: [ { pattern: 'bash(git push*)', door: omp, action: deny } ]", "hermes", Action::Ask),
            ("rules: [ { pattern: 'bash(git push*)', door: hermes, action: deny } ]", "hermes", Action::Deny),
            ("rules: [ { pattern: 'bash(git push*)', door: gjc, action: deny } ]", "omp", Action::Ask),
        ] {
            let path = rules(root.path(), text);
            let adapter = Adapter::named(door, &environment, root.path()).unwrap();
            let household = Household::default().with_adapter(adapter);
            let loaded = read(&path, &household).unwrap();
            let arguments = json!({"command": "git push"}).as_object().unwrap().clone();
            let explained = explain(&loaded, &household, "default", "bash", arguments).unwrap();
            assert_eq!(action(&explained.verdict), want, "{text} {door}: {}", explained.verdict);
            assert_eq!(explained.subject.door.as_deref(), Some(door));
        }
    }

    #[test]
    fn what_a_setting_takes_away_is_taken_away_in_a_trial() {
        let root = tempfile::tempdir().unwrap();
        let path = rules(root.path(), "defaults: [ { pattern: '*', action: allow } ]");
        let ask = |settings: &str, tool: &str| {
            std::fs::write(root.path().join(".omp/agent/config.yml"), settings).unwrap();
            let adapter = Adapter::named("omp", &environment(root.path()), root.path()).unwrap();
            let household = Household::default().with_adapter(adapter);
            let loaded = read(&path, &household).unwrap();
            let arguments = json!({"command": "touch x"}).as_object().unwrap().clone();
            explain(&loaded, &household, "default", tool, arguments).map(|explained| action(&explained.verdict))
        };
        assert_eq!(ask("{}", "bash"), Ok(Action::Allow));
        assert_eq!(ask("tools: { approvalMode: always-ask }", "bash"), Ok(Action::Ask));
        assert_eq!(ask("tools: { approval: { bash: deny } }", "bash"), Ok(Action::Deny));
        assert!(ask("bash: { enabled: false }", "bash").unwrap_err().contains("switch bash off"));
        assert_eq!(ask("{}", "a_tool_of_the_host"), Ok(Action::Allow));
    }

    #[test]
    fn the_file_of_an_agent_directory_is_known_by_its_place() {
        let root = tempfile::tempdir().unwrap();
        let environment = environment(root.path());
        let path = rules(root.path(), "rules: []");
        let name = |path: &Path| {
            let found = Adapter::of_file(path, &environment, root.path()).unwrap();
            found.map(|adapter| adapter.name())
        };
        assert_eq!(name(&path), Some("omp"));
        assert_eq!(name(Path::new(".omp/agent/../agent/permissions.yaml")), Some("omp"));
        std::fs::write(root.path().join("permissions.yaml"), "rules: []").unwrap();
        assert_eq!(name(Path::new("permissions.yaml")), None);
        let refused = Adapter::named("front", &environment, root.path()).unwrap_err();
        assert!(refused.ends_with("the doors are agent-gate, console, api, gsv, hermes, omp, gjc"), "{refused}");
    }
}
