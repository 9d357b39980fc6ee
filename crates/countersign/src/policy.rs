//! `policy`: rules looked at before they are in force.
//!
//! It must not decide anything: it prints what the gateway makes of a file, a case or a request.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use countersign_agent_dir::ProcessEnvironment;
use countersign_config as config;
use countersign_core::{
    gate::{ApprovalStep, OnExpiry},
    policy::RuleAction,
};
use countersign_gateway::adapter;
use countersign_policy_admin::{
    adapter::TrialAdapter,
    case_result::{CaseFailure, CaseResult, action_word},
    explained::{ExplainedVerdict, kept_off, verdict_action},
    loaded_rules::LoadedRules,
    rules,
    rules_error::{RulesLoadError, TooFew, UnknownApprover},
    tool_inventory::ToolInventory,
    trial,
};
use countersign_view::{LineMode, Protocol, escape, shell_quote};
use serde_json::{Map, Value, json};

use crate::{
    agent,
    audit::Form,
    paint::{Paint, Tone},
};

/// How many rules that nearly decided are shown to a person.
const NEAR: usize = 6;

/// The files that are meant.
pub(crate) struct Files {
    rules: PathBuf,
    config: Option<PathBuf>,
    /// Whether somebody named the rules.
    is_named: bool,
    /// The adapter that is meant, where it is known.
    adapter: Option<TrialAdapter>,
}

/// What the command line names.
pub(crate) struct Named<'a> {
    pub(crate) rules: Option<&'a Path>,
    pub(crate) config: Option<&'a Path>,
    /// The adapter whose calls are judged.
    pub(crate) door: Option<&'a str>,
    /// The agent that asks.
    pub(crate) asker: Option<&'a str>,
}

impl Files {
    /// The rules, else those beside the configuration, else those of this folder; the configuration, else the one beside the
    /// rules if there is one. For a stdio adapter the rules, else those of its agent directory; it has no configuration.
    pub(crate) fn new(named: &Named<'_>, usual: Option<PathBuf>) -> anyhow::Result<Self> {
        let environment = ProcessEnvironment::of_process();
        let cwd = std::env::current_dir().context("the working folder is not known")?;
        let adapter = match (named.door, named.rules) {
            (Some(door), _) => Some(adapter::find_adapter(door, &environment, &cwd)),
            (None, Some(rules)) => adapter::adapter_for_file(rules, &environment, &cwd).transpose(),
            (None, None) => None,
        };
        let adapter = adapter.transpose().map_err(anyhow::Error::msg)?;
        let is_named = named.rules.is_some();
        let rules = named.rules.map(Path::to_owned);
        if let (Some(adapter), Some(agent)) = (&adapter, named.asker)
            && adapter.name() != Protocol::AgentGate.name()
            && agent != config::DEFAULT_AGENT
        {
            bail!("--agent {agent}: only agent-gate has agents, and these rules are judged as {} does", adapter.name());
        }
        if let Some(stdio) = adapter.as_ref().and_then(TrialAdapter::stdio_rules) {
            let name = adapter.as_ref().map_or("", TrialAdapter::name);
            if let Some(config) = named.config.or(usual.as_deref()) {
                bail!("--config {}: {name} has no configuration of a gateway", config.display());
            }
            let rules = rules.unwrap_or_else(|| stdio.permissions_path());
            return Ok(Self { rules, config: None, is_named, adapter });
        }
        let config = named.config.map(Path::to_owned).or(usual);
        let beside = |path: &Path, name: &str| path.parent().unwrap_or_else(|| Path::new("")).join(name);
        let rules = rules.unwrap_or_else(|| {
            config.as_deref().map_or_else(|| "permissions.yaml".into(), |config| beside(config, "permissions.yaml"))
        });
        let config =
            config.or_else(|| Some(beside(&rules, "config.yaml")).filter(|usual| usual.symlink_metadata().is_ok()));
        Ok(Self { rules, config, is_named, adapter })
    }

    /// What the rules are about.
    fn household(&self) -> anyhow::Result<ToolInventory> {
        let household = self.of_configuration()?;
        Ok(match &self.adapter {
            Some(adapter) => household.with_adapter(adapter.clone()),
            None => household,
        })
    }

    fn of_configuration(&self) -> anyhow::Result<ToolInventory> {
        if let Some(config) = self.config.as_deref().filter(|config| !config.exists()) {
            bail!("there is no file {}", config.display());
        }
        let Some(config) = &self.config else { return Ok(adapter::tool_inventory(config::KnownEntities::default())) };
        let known = config::known_entities(config, &|name| std::env::var(name).ok());
        let known = known.map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))?;
        Ok(adapter::tool_inventory(known))
    }

    /// Fails where there are no rules.
    fn there(&self) -> anyhow::Result<()> {
        if !self.rules.exists() {
            bail!("there is no file {}", self.rules.display());
        }
        Ok(())
    }

    /// Says where the tools come from, which signatures depend on.
    fn note(&self, paint: Paint) -> String {
        let stdio = self.adapter.as_ref().filter(|adapter| adapter.stdio_rules().is_some());
        let told = match &self.config {
            _ if stdio.is_some() => {
                format!("(as a session of {} that starts in this folder)", stdio.map_or("", TrialAdapter::name))
            }
            Some(config) => format!("(with the agents and tools of {})", config.display()),
            None => "(without a configuration: every tool counts as one that nobody defined)".to_owned(),
        };
        paint.tone(Tone::Faint, told)
    }
}

/// What is asked for, as it stands on the command line.
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) args: Option<String>,
    pub(crate) agent: String,
}

impl Asked {
    fn arguments(&self) -> anyhow::Result<Map<String, Value>> {
        let mut all = agent::read(&self.arguments).map_err(|failed| anyhow::anyhow!(failed.told))?;
        if let Some(text) = &self.args {
            let more: Map<String, Value> = serde_json::from_str(text).context("--args takes a JSON object")?;
            for (key, value) in more {
                if all.contains_key(&key) {
                    bail!("the argument {key} is there twice");
                }
                all.insert(key, value);
            }
        }
        Ok(all)
    }
}

pub(crate) fn check(files: &Files, form: Form) -> anyhow::Result<ExitCode> {
    let household = files.household()?;
    files.there()?;
    let loaded = rules::load_rules(&files.rules, &household);
    let warnings = loaded.as_ref().map(|loaded| loaded.warnings.clone()).unwrap_or_default();
    let problems = loaded.as_ref().err().map(problems).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        let told = json!({
            "file": files.rules, "config": files.config, "ok": loaded.is_ok(), "errors": problems, "warnings": warnings,
            "rules": loaded.as_ref().ok().map(|loaded| loaded.count),
            "cases": loaded.as_ref().ok().map(|loaded| loaded.cases.len()),
        });
        writeln!(out, "{told:#}")?;
        return Ok(ended(loaded.is_ok()));
    }
    let paint = Paint::stdout();
    for warning in &warnings {
        writeln!(out, "{}  {}", paint.tone(Tone::Asking, "warning"), one(warning))?;
    }
    match &loaded {
        Ok(LoadedRules { count, cases, .. }) => {
            let file = files.rules.display();
            let told = format!("{file}: {}, {}", counted(*count, "rule"), counted(cases.len(), "case"));
            writeln!(out, "{}       {told} {}", paint.tone(Tone::Good, "ok"), files.note(paint))?;
        }
        Err(error) => {
            for line in error.to_string().lines() {
                writeln!(out, "{}    {}", paint.tone(Tone::Bad, "error"), one(line))?;
            }
        }
    }
    Ok(ended(loaded.is_ok()))
}

/// What is wrong, for programs.
fn problems(error: &RulesLoadError) -> Vec<Value> {
    match error {
        RulesLoadError::Form(errors) => {
            let told = |problem: &config::ConfigProblem| {
                let message = problem.fault.to_string();
                json!({ "file": problem.file, "line": problem.line, "key": problem.key, "message": message })
            };
            errors.0.iter().map(told).collect()
        }
        RulesLoadError::Compile(errors) => {
            let told = errors.iter().map(|error| (error.origin(), error.to_string()));
            told.map(|(at, message)| json!({ "file": at.file, "line": at.line, "key": "", "message": message }))
                .collect()
        }
        RulesLoadError::Nobody(nobodies) => {
            let told = |nobody: &UnknownApprover| json!({ "file": nobody.file, "line": nobody.line, "key": "from", "message": nobody.to_string() });
            nobodies.iter().map(told).collect()
        }
        RulesLoadError::TooFew(steps) => {
            let told = |few: &TooFew| json!({ "file": few.file, "line": few.line, "key": "approvals", "message": few.to_string() });
            steps.iter().map(told).collect()
        }
        RulesLoadError::Cases(failed) => {
            let told = |failed: &CaseFailure| {
                let case = &failed.0.case;
                json!({ "file": case.file, "line": case.line, "key": "tests", "message": failed.to_string() })
            };
            failed.iter().map(told).collect()
        }
    }
}

pub(crate) fn test(files: &Files, form: Form) -> anyhow::Result<ExitCode> {
    let household = files.household()?;
    files.there()?;
    let tried = trial::run_cases(&rules::read_rules(&files.rules, &household)?, &household);
    let failed = tried.iter().filter(|tried| !tried.is_as_expected()).count();
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        let told = |tried: &CaseResult| {
            let case = &tried.case;
            json!({
                "file": case.file, "line": case.line, "description": case.description, "agent": case.agent,
                "tool": case.tool, "args": case.args, "expect": case.expect, "got": tried.got,
                "ok": tried.is_as_expected(), "why": tried.why,
            })
        };
        let cases: Vec<Value> = tried.iter().map(told).collect();
        let told = json!({
            "file": files.rules, "config": files.config, "passed": tried.len() - failed, "failed": failed, "cases": cases
        });
        writeln!(out, "{told:#}")?;
        return Ok(ended(failed == 0));
    }
    let paint = Paint::stdout();
    for tried in tried.iter().filter(|tried| !tried.is_as_expected()) {
        let CaseResult { case, got, why } = tried;
        let place = format!("{}:{}", case.file.display(), case.line);
        let said = case.description.as_deref().map(|text| format!(" ({})", one(text))).unwrap_or_default();
        let arguments = case.args.iter().map(|(name, value)| format!(" {}={}", one(name), one(&plain(value))));
        let request: String = std::iter::once(one(&case.tool)).chain(arguments).collect();
        writeln!(out, "{}  {request}{said}  {}", paint.tone(Tone::Bad, "failed"), paint.tone(Tone::Faint, place))?;
        writeln!(out, "        should be {} and is {}: {}", action_word(case.expect), painted(*got, paint), one(why))?;
    }
    let (tone, word) = if failed == 0 { (Tone::Good, "ok") } else { (Tone::Bad, "failed") };
    let passed = format!("{} of {} as expected", tried.len() - failed, counted(tried.len(), "case"));
    writeln!(out, "{}  {passed} {}", paint.tone(tone, format!("{word:<6}")), files.note(paint))?;
    Ok(ended(failed == 0))
}

pub(crate) fn explain(files: &Files, asked: &Asked, form: Form) -> anyhow::Result<ExitCode> {
    let household = files.household()?;
    if files.is_named {
        files.there()?;
    }
    let loaded = rules::read_rules(&files.rules, &household)?;
    if let Some((name, _)) = asked.tool.split_once('(').filter(|_| asked.tool.ends_with(')')) {
        let name = if name.is_empty() { "TOOL".to_owned() } else { one(&shell_quote(name)) };
        let tool = one(&asked.tool);
        bail!(
            "{tool}: that is a signature. The tool is named alone, and what it is called with stands behind it: \
             countersign policy explain {name} KEY=VALUE"
        );
    }
    let arguments = asked.arguments()?;
    let explained = trial::explain_request(&loaded, &household, &asked.agent, &asked.tool, arguments);
    let mut out = std::io::stdout().lock();
    match (form, explained) {
        (Form::Json, Ok(explained)) => {
            let mut told = explained.to_json();
            told["file"] = json!(files.rules.exists().then_some(&files.rules));
            writeln!(out, "{told:#}")?;
        }
        (Form::Json, Err(refused)) => writeln!(out, "{:#}", json!({ "verdict": "refused", "why": refused }))?,
        (Form::Text, Ok(explained)) => shown(&mut out, &explained, files, household.is_stranger(&asked.agent))?,
        (Form::Text, Err(refused)) => {
            let paint = Paint::stdout();
            writeln!(out, "{}  {}", paint.tone(Tone::Bad, "refused"), paint.tone(Tone::Strong, one(&asked.tool)))?;
            writeln!(out, "  why     {}, so policy is not even asked", one(&refused))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(
    out: &mut impl std::io::Write,
    explained: &ExplainedVerdict,
    files: &Files,
    is_stranger: bool,
) -> std::io::Result<()> {
    let (paint, ExplainedVerdict { subject, verdict, near }) = (Paint::stdout(), explained);
    let signature = paint.tone(Tone::Strong, one(&subject.signature));
    writeln!(out, "{}  {signature}", painted(verdict_action(verdict), paint))?;
    for further in &subject.further_signatures {
        writeln!(out, "  and     {}", one(further))?;
    }
    writeln!(out, "  why     {}", one(&verdict.why().to_string()))?;
    if let Some(description) = explained.deciding_rule().and_then(|(rule, _)| rule.description.as_deref()) {
        writeln!(out, "          {}", paint.tone(Tone::Faint, one(description)))?;
    }
    for told in who_allows(explained) {
        writeln!(out, "  {:<7} {}", told.key, one(&told.text))?;
    }
    let is_of_stdio = files.adapter.as_ref().is_some_and(|adapter| adapter.stdio_rules().is_some());
    let is_runs = subject.door.as_deref() != Some(Protocol::AgentGate.name());
    let agent = if is_of_stdio {
        "a session of the adapter"
    } else if is_runs {
        "a run of the gateway"
    } else {
        agent_of(subject.principal.as_str())
    };
    let unknown = if is_stranger && !is_runs { " (the configuration has no agent of this name)" } else { "" };
    writeln!(out, "  agent   {}{unknown}", one(agent))?;
    writeln!(out, "  door    {}", one(subject.door.as_deref().unwrap_or("-")))?;
    let nowhere = if is_runs { "- (a tool of runs)" } else { "- (no service has this tool)" };
    writeln!(out, "  target  {}", one(subject.target.as_deref().unwrap_or(nowhere)))?;
    let used: Vec<String> = subject.secret_names().unwrap_or_default().into_iter().collect();
    if !used.is_empty() {
        writeln!(out, "  secrets {}", one(&used.join(", ")))?;
    }
    if !subject.undeclared.is_empty() {
        writeln!(out, "  not declared by the tool: {}", one(&subject.undeclared.join(", ")))?;
    }
    if !files.rules.exists() {
        let told = format!("(there is no file {}: this is what holds without rules)", files.rules.display());
        writeln!(out, "  {}", paint.tone(Tone::Faint, told))?;
    }
    writeln!(out, "  {}", files.note(paint))?;
    if !near.is_empty() {
        writeln!(out, "\n{}", paint.tone(Tone::Strong, "Nearly decided"))?;
    }
    for near in near.iter().take(NEAR) {
        let kind = if near.is_default { ", a default" } else { "" };
        writeln!(out, "  {:<5}  {}{kind}", verb(near.action), one(&near.rule.to_string()))?;
        for told in kept_off(near) {
            writeln!(out, "         {}", paint.tone(Tone::Faint, one(&told)))?;
        }
    }
    match near.len().saturating_sub(NEAR) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more, which --json shows"),
    }
}

/// An agent as its configuration calls it.
fn agent_of(principal: &str) -> &str {
    principal.strip_prefix("agent:").unwrap_or(principal)
}

/// One line for people about who has to allow.
struct Told {
    key: &'static str,
    text: String,
}

/// Who has to allow, a line each, and what follows when they do not.
fn who_allows(explained: &ExplainedVerdict) -> Vec<Told> {
    let told = |(at, step): (usize, &ApprovalStep)| {
        let of = match &step.from {
            Some(from) => from.iter().cloned().collect::<Vec<_>>().join(", "),
            None => "whoever may answer".to_owned(),
        };
        let within = step.within.map_or_else(|| "approval_timeout".to_owned(), |time| format!("{} s", time.as_secs()));
        let behind = match step.on_expiry {
            OnExpiry::Deny => ", else it is denied".to_owned(),
            OnExpiry::Again(times) => format!(
                ", else they are asked again ({})",
                if times == 1 { "once".to_owned() } else { format!("{times} times") }
            ),
            OnExpiry::Next => String::new(),
        };
        let text = format!("{} of {of} within {within}{behind}", step.approvals);
        Told { key: if at == 0 { "allowed" } else { "else" }, text }
    };
    explained.approval_steps().iter().enumerate().map(told).collect()
}

fn painted(action: RuleAction, paint: Paint) -> String {
    let tone = match action {
        RuleAction::Allow => Tone::Good,
        RuleAction::Deny => Tone::Bad,
        RuleAction::Ask => Tone::Asking,
    };
    paint.tone(tone, action_word(action))
}

const fn verb(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Allow => "allow",
        RuleAction::Deny => "deny",
        RuleAction::Ask => "ask",
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one(text: &str) -> String {
    escape(text, LineMode::One).into_owned()
}

fn ended(is_well: bool) -> ExitCode {
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
