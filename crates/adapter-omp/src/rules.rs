//! The rules of a stdio adapter: their sources, and the paths that they protect.

use std::path::{Path, PathBuf};

use countersign_agent_dir::{AgentDir, AgentProduct, Restrictions};
use countersign_config::{
    ConfigErrors, RulesText,
    lint::{ExtraArguments, KnownTool, ToolCoverage, lint_rules},
};
use countersign_core::{
    engine::ActiveRules,
    gate::IdentityMap,
    policy::{
        self, ApprovalMode, CompileError, DefaultPolicy, PathContext, Rule, RuleAction, RuleLayer, RuleScopeKey,
        RuleSource,
    },
};
use countersign_files::paths;
use countersign_runtime::tools::ToolRegistry;
use countersign_view::{Protocol, mcp_server_status::ALWAYS_ASKED};

/// Why rules were not taken.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file that was named is not there.
    #[error("--permissions {path}: there is no such file", path = .0.display())]
    Absent(PathBuf),
    /// The file that was named cannot be read.
    #[error("--permissions {0}")]
    Named(ConfigErrors),
    /// A file cannot be read or is not what a rules file is.
    #[error(transparent)]
    Form(#[from] ConfigErrors),
    /// Rules contradict themselves or cannot be compiled.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Compile(Vec<CompileError>),
}

/// The rules in force, and what a person should know about them.
#[derive(Debug)]
pub struct PreparedRules {
    pub rules: ActiveRules,
    pub warnings: Vec<String>,
}

/// The file of a repository's own rules, below its working folder. It can only tighten.
const PROJECT: &str = ".countersign/permissions.yaml";

/// Owner of the rules, and the environment of the calls that they judge.
pub struct RulesContext<'a> {
    /// Product whose adapter it is.
    pub product: AgentProduct,
    /// The agent directory.
    pub folder: &'a AgentDir,
    /// The working folder.
    pub cwd: &'a Path,
    /// `--permissions`.
    pub named: Option<&'a Path>,
    /// The folder of `--session-dir`.
    pub sessions: Option<&'a Path>,
    /// The folder for temporary files.
    pub temporary: &'a Path,
    /// The files of the gateway that the session lives in.
    pub gateway: Option<&'a PathContext>,
    /// Tools that ask where no rule says anything.
    pub asks: &'a [&'a str],
    /// Folders below the working folder whose files people's tools read as records.
    pub records: &'a [&'a str],
    /// Restrictions by settings of the originals.
    pub restrictions: &'a Restrictions,
    /// Calls that are approved each time.
    pub approval: ApprovalMode,
}

/// Reads the rules files of a stdio adapter: `--permissions`, or those of the agent directory, and the working folder's own.
///
/// # Errors
/// [`RulesError`] for the first file that cannot be read.
pub fn read_rule_files(folder: &AgentDir, cwd: &Path, named: Option<&Path>) -> Result<Vec<RulesText>, RulesError> {
    let usual = folder.permissions_path();
    let main = named.map_or_else(|| usual.clone(), |named| cwd.join(named));
    let project = cwd.join(PROJECT);
    let mut files = Vec::new();
    for (path, layer, must) in [(&main, RuleLayer::Main, named.is_some()), (&project, RuleLayer::Tighten, false)] {
        let read = RulesText::read_file(path, layer);
        match if must { read.map_err(RulesError::Named)? } else { read? } {
            Some(file) => files.push(file),
            None if must => return Err(RulesError::Absent(path.clone())),
            None => {}
        }
    }
    Ok(files)
}

/// Compiles the rules of a stdio adapter.
///
/// # Errors
/// [`RulesError`] for the first file with something wrong in it: without rules that were understood nothing starts.
pub fn compile_rules(files: &[RulesText], place: &RulesContext<'_>) -> Result<PreparedRules, RulesError> {
    let mut sources = files.iter().map(|file| Ok(file.parse()?.source)).collect::<Result<Vec<_>, ConfigErrors>>()?;
    let has_rules = sources.iter().any(|source| source.layer == RuleLayer::Main && has_any(source));
    sources.extend(asking_source(place.asks, has_rules));
    // Settings name a tool in any case, and their reader rejects mistakes.
    let of_files = sources.len();
    sources.extend(place.restrictions.rule_sources());
    // A host may bring tools of its own, also of these names.
    let own = ToolRegistry::argument_names();
    let tools: Vec<KnownTool<'_>> =
        own.iter().map(|tool| KnownTool { others: ExtraArguments::Perhaps, ..KnownTool::gateway_tool(tool) }).collect();
    // A gateway knows people.
    let lonely = sources.iter().filter(|_| place.gateway.is_none());
    let people = lonely.flat_map(|source| {
        let rules = source
            .rules
            .rules
            .iter()
            .chain(&source.rules.defaults)
            .filter(|rule| rule.steps.iter().any(|step| step.from.is_some() || step.approvals > 1));
        rules.map(|rule| {
            let (file, line) = (&source.name, rule.line);
            format!(
                "{file}:{line}: a rule with `from` or several approvals needs a gateway; without one, its requests are denied"
            )
        })
    });
    let people: Vec<String> = people.collect();
    let doors: Vec<String> = sources.iter().flat_map(unknown_doors).collect();
    let strangers: Vec<String> =
        sources[..of_files].iter().flat_map(|source| lint_rules(source, &tools, ToolCoverage::Some)).collect();
    let compiled = policy::compile_rules(sources).map_err(RulesError::Compile)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let RulesContext {
        product,
        folder,
        cwd,
        named,
        sessions,
        temporary,
        gateway,
        asks: _,
        records,
        restrictions: _,
        approval,
    } = *place;
    let own = protected_paths(records, folder, cwd, named, sessions);
    let of_gateway = |of: fn(&PathContext) -> &Vec<String>| gateway.into_iter().flat_map(of).cloned();
    let unreadable = [folder.root().to_owned(), folder.server_homes()].into_iter().flat_map(paths::path_variants);
    let surroundings = PathContext {
        home: Some(text(folder.home())),
        temporary: vec![text(temporary), "/tmp".to_owned(), "/var/tmp".to_owned()],
        protected: own.iter().map(|path| text(path)).chain(of_gateway(|around| &around.protected)).collect(),
        unreadable: unreadable.map(|path| text(&path)).chain(of_gateway(|around| &around.unreadable)).collect(),
        door: Some(product.name().to_owned()),
        // The agent directory is where permanent grants are kept.
        realm: gateway.map(|_| text(folder.root())),
        approval,
        always_asked: ALWAYS_ASKED.map(|(tool, reason)| (tool.to_owned(), reason.to_owned())).into(),
    };
    Ok(PreparedRules {
        warnings: compiled
            .warnings()
            .iter()
            .map(ToString::to_string)
            .chain(strangers)
            .chain(doors)
            .chain(people)
            .collect(),
        rules: ActiveRules {
            compiled,
            default_policy: DefaultPolicy::Stdio,
            path_context: surroundings,
            people: IdentityMap::default(),
        },
    })
}

/// Returns a warning for each rule that is bound to an adapter which this program does not have. One of a gateway's may stand in a file of
/// both.
fn unknown_doors(source: &RuleSource) -> Vec<String> {
    let known = Protocol::OF_GATEWAY.into_iter().chain(Protocol::STDIO).map(Protocol::name);
    let known: Vec<&str> = known.collect();
    let unknown = source.rules.rules.iter().chain(&source.rules.defaults).filter_map(|rule| {
        let pattern = rule.door.as_deref()?;
        let is_known = known.iter().any(|name| RuleScopeKey::Door.matches_id(pattern, name));
        (!is_known).then(|| {
            let (file, line, known) = (&source.name, rule.line, known.join(", "));
            format!("{file}:{line}: unknown adapter \"{pattern}\": expected one of {known}; this rule matches nothing")
        })
    });
    unknown.collect()
}

fn has_any(source: &RuleSource) -> bool {
    !source.rules.rules.is_empty() || !source.rules.defaults.is_empty()
}

/// Returns defaults that require approval for `tools`, after those of every file. If no file has rules, all else continues without
/// approval.
fn asking_source(tools: &[&str], has_rules: bool) -> Option<RuleSource> {
    let ask = |tool: &&str| Rule::new(format!("{tool}(*)"), RuleAction::Ask);
    let rest = (!has_rules).then(|| Rule::new("*".to_owned(), RuleAction::Allow));
    let rules = policy::RuleSet { defaults: tools.iter().map(ask).chain(rest).collect(), rules: Vec::new() };
    (!tools.is_empty()).then(|| RuleSource { name: "the bridge".to_owned(), layer: RuleLayer::Main, rules })
}

/// Returns the paths that no governed tool may write to, each as named and as resolved: the gateway's own files, the rules, and the
/// sessions.
pub(crate) fn protected_paths(
    records: &[&str],
    folder: &AgentDir,
    cwd: &Path,
    named: Option<&Path>,
    sessions: Option<&Path>,
) -> Vec<PathBuf> {
    let ours = [
        folder.root().to_owned(),
        folder.sessions_dir(),
        folder.blobs_dir(),
        folder.server_homes(),
        cwd.join(".countersign"),
    ];
    let records = records.iter().map(|folder| cwd.join(folder));
    let named = named.into_iter().chain(sessions).map(|named| cwd.join(named));
    let mut protected: Vec<PathBuf> =
        ours.into_iter().chain(records).chain(named).flat_map(paths::path_variants).collect();
    protected.sort_unstable();
    protected.dedup();
    protected
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::{PROJECT, RulesContext, compile_rules, protected_paths, read_rule_files, unknown_doors};
    use countersign_core::policy::{ApprovalMode, Rule, RuleAction, RuleLayer, RuleSet, RuleSource};

    use countersign_agent_dir::{AgentDir, AgentProduct, AgentSettings, ProcessEnvironment, Restrictions};

    #[test]
    fn what_is_protected_is_so_by_every_name() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("agent")).unwrap();
        let agent = root.join("agent").display().to_string();
        let environment: ProcessEnvironment = [("PI_CODING_AGENT_DIR", agent.as_str())].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, &root, |_| false).unwrap();
        let got = protected_paths(&[], &folder, &root.join("work"), None, Some(Path::new("../kept")));
        let below = |top: &str| ["", "blobs", "sessions"].map(|name| root.join(top).join(name));
        let work = ["agent.mcp", "work/.countersign", "work/../kept"].map(|name| root.join(name));
        let mut want: Vec<_> = below("agent").into_iter().chain(below("real")).chain(work).collect();
        want.sort_unstable();
        assert_eq!(got, want);
        let with_records = protected_paths(&["records/audit"], &folder, &root.join("work"), None, None);
        assert!(with_records.contains(&root.join("work/records/audit")));
    }

    #[test]
    fn a_rule_on_an_unknown_adapter_is_reported() {
        let rule =
            |door: &str| Rule { door: Some(door.to_owned()), line: 7, ..Rule::new("bash(x*)", RuleAction::Deny) };
        let source = |door: &str| {
            let rules = RuleSet { rules: vec![rule(door)], ..RuleSet::default() };
            RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }
        };
        for door in ["OMP", "opm", "cli", ""] {
            let warnings = unknown_doors(&source(door));
            let want = format!("permissions.yaml:7: unknown adapter \"{door}\": expected one of agent-gate, ");
            assert!(warnings.len() == 1 && warnings[0].starts_with(&want), "{warnings:?}");
        }
        for door in ["omp", "gjc", "gsv", "o*", "*"] {
            assert!(unknown_doors(&source(door)).is_empty(), "{door}");
        }
    }

    #[test]
    fn rules_that_are_no_regular_file_are_not_waited_for() {
        let cwd = tempfile::tempdir().unwrap();
        let environment: ProcessEnvironment = [("HOME", "/nowhere")].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, cwd.path(), |_| false).unwrap();
        let refused = |named| {
            let error = read_rule_files(&folder, cwd.path(), named).unwrap_err().to_string();
            assert!(error.ends_with(": it is not a regular file"), "{error}");
        };
        refused(Some(Path::new("/dev/null")));
        let project = cwd.path().join(PROJECT);
        std::fs::create_dir(project.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(&project).status().unwrap().success());
        refused(None);
    }

    #[test]
    fn a_misspelt_tool_is_reported_with_its_line() {
        for (tool, want) in [
            ("pattern: 'bahs(git push*)'", Some(("bahs", "bash"))),
            ("pattern: 'Read(*.pem)'", Some(("Read", "read"))),
            ("tool: wirte", Some(("wirte", "write"))),
            ("pattern: 'bash(git push*)'", None),
            ("pattern: 'deploy(*)*'", None),
            ("pattern: 'l*'", None),
            ("pattern: '*'", None),
        ] {
            let warning = want.map(|(tool, meant)| {
                format!("rules.yaml:3: there is no tool \"{tool}\" here, so this rule does not cover \"{meant}\"")
            });
            assert_eq!(
                loaded(&format!("# mine\nrules:\n  - {{ {tool}, action: deny }}\n")).unwrap(),
                Vec::from_iter(warning)
            );
        }
    }

    #[test]
    fn an_error_in_a_file_names_its_line() {
        for (text, want) in [
            ("rules: none\n", "rules.yaml:1: rules: expected a list, found text"),
            (
                "rules:\n  - pattern: read*\n    action: Deny\n",
                "rules.yaml:3: rules[0].action: Invalid permission action: 'Deny' (must be allow/deny/ask)",
            ),
            (
                "rule: []\n",
                "rules.yaml:1: rule: unknown key; did you mean `rules`? Expected one of defaults, rules, sets, tests",
            ),
        ] {
            assert_eq!(loaded(text).unwrap_err(), want);
        }
    }

    /// The warnings about `text`, or what is wrong with it.
    #[test]
    fn approvals_in_settings_name_tools_in_any_letters_without_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        std::fs::write(
            folder.path().join("config.yml"),
            "tools: { approval: { Bash: prompt, Edit: deny, READ: deny, glob: deny } }\n",
        )
        .unwrap();
        let environment: ProcessEnvironment = [("PI_CODING_AGENT_DIR", root.as_str())].into_iter().collect();
        let agent = AgentDir::resolve(AgentProduct::Omp, &environment, folder.path(), |_| false).unwrap();
        let restrictions = AgentSettings::load(&agent, folder.path()).unwrap().restrictions;
        assert!(!restrictions.rule_sources().is_empty());
        assert_eq!(loaded_with("rules: []\n", &restrictions), Ok(Vec::new()));
        let want = "rules.yaml:1: there is no tool \"Bash\" here, so this rule does not cover \"bash\"";
        let rules = "rules: [ { tool: Bash, action: deny } ]\n";
        assert_eq!(loaded_with(rules, &restrictions), Ok(vec![want.to_owned()]));
    }

    fn loaded(text: &str) -> Result<Vec<String>, String> {
        loaded_with(text, &Restrictions::default())
    }

    fn loaded_with(text: &str, restrictions: &Restrictions) -> Result<Vec<String>, String> {
        let cwd = tempfile::tempdir().unwrap();
        let environment: ProcessEnvironment = [("HOME", "/nowhere")].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, cwd.path(), |_| false).unwrap();
        let file = cwd.path().join("rules.yaml");
        std::fs::write(&file, text).unwrap();
        let relative = |text: String| text.replace(&format!("{}/", cwd.path().display()), "");
        let place = RulesContext {
            product: AgentProduct::Omp,
            asks: &[],
            records: &[],
            folder: &folder,
            cwd: cwd.path(),
            named: Some(&file),
            sessions: None,
            temporary: Path::new("/tmp"),
            gateway: None,
            restrictions,
            approval: ApprovalMode::default(),
        };
        match read_rule_files(&folder, cwd.path(), Some(&file)).and_then(|files| compile_rules(&files, &place)) {
            Ok(loaded) => Ok(loaded.warnings.into_iter().map(relative).collect()),
            Err(error) => Err(relative(error.to_string())),
        }
    }
}
