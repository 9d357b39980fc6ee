//! `policy`: rules looked at before they are in force.
//!
//! It must not decide anything: it prints what the gateway makes of a file, a case or a request.

mod explain_input;

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
    case_result::{CaseFailure, CaseResult, expectation_text, verdict_text, verdict_word},
    explained::{ExplainedVerdict, kept_off, reason_text, verdict_action},
    loaded_rules::LoadedRules,
    malformed::restrictions_without_effect,
    rules,
    rules_error::{RulesLoadError, TooFew, UnknownApprover},
    shell_hints::shell_hints,
    tool_inventory::ToolInventory,
    trial,
};
use countersign_view::{LineMode, Protocol, escape, shell_quote, time::duration_text};
use serde_json::{Value, json};

use crate::{
    audit::OutputFormat,
    exit::print_notice,
    style::{ColourMode, TextStyle},
};

pub(crate) use explain_input::ExplainInput;

/// Number of rules that nearly decided that are shown.
const NEAR: usize = 6;

/// The files that are meant.
pub(crate) struct PolicyFiles {
    rules: PathBuf,
    config: Option<PathBuf>,
    /// True if the command line named the rules.
    is_named: bool,
    /// The adapter that is meant, where it is known.
    adapter: Option<TrialAdapter>,
}

/// Files that the command line names.
pub(crate) struct PolicySelection<'a> {
    pub(crate) rules: Option<&'a Path>,
    pub(crate) config: Option<&'a Path>,
    /// The adapter whose calls are judged.
    pub(crate) door: Option<&'a str>,
    /// The agent that asks.
    pub(crate) asker: Option<&'a str>,
}

impl PolicyFiles {
    /// Returns the rules, else those next to the configuration, else those of this folder; the configuration, else the one that `serve`
    /// would read in the folder of the rules. For a stdio adapter the rules, else those of its agent directory; it has no configuration.
    pub(crate) fn new(named: &PolicySelection<'_>, usual: Option<PathBuf>) -> anyhow::Result<Self> {
        let environment = ProcessEnvironment::of_process();
        let cwd = std::env::current_dir().context("the working folder is unknown")?;
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
            bail!("--agent {agent}: only agent-gate has agents, and these rules are for {}", adapter.name());
        }
        if let Some(stdio) = adapter.as_ref().and_then(TrialAdapter::stdio_rules) {
            let name = adapter.as_ref().map_or("", TrialAdapter::name);
            if let Some(config) = named.config.or(usual.as_deref()) {
                bail!("--config {}: {name} uses no gateway configuration", config.display());
            }
            let rules = rules.unwrap_or_else(|| stdio.permissions_path());
            return Ok(Self { rules, config: None, is_named, adapter });
        }
        let config = named.config.map(Path::to_owned).or(usual);
        let folder_of = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        let rules =
            rules.unwrap_or_else(|| config.as_deref().map(folder_of).unwrap_or_default().join("permissions.yaml"));
        let config = config.or_else(|| config::find_config(&folder_of(&rules)));
        if let Some(file) = &config {
            config::check_one_gateway(file).map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))?;
        }
        Ok(Self { rules, config, is_named, adapter })
    }

    /// Returns the tools that the rules are about.
    fn tool_inventory(&self) -> anyhow::Result<ToolInventory> {
        let inventory = self.inventory_from_config()?;
        Ok(match &self.adapter {
            Some(adapter) => inventory.with_adapter(adapter.clone()),
            None => inventory,
        })
    }

    fn inventory_from_config(&self) -> anyhow::Result<ToolInventory> {
        if let Some(config) = self.config.as_deref().filter(|config| !config.exists()) {
            bail!("{} does not exist", config.display());
        }
        let Some(config) = &self.config else { return Ok(adapter::tool_inventory(config::KnownEntities::default())) };
        let known = config::known_entities(config, &|name| std::env::var(name).ok());
        let known = known.map_err(|errors| anyhow::anyhow!("Configuration error: {errors}"))?;
        Ok(adapter::tool_inventory(known))
    }

    /// Fails where there are no rules.
    fn ensure_exists(&self) -> anyhow::Result<()> {
        if !self.rules.exists() {
            let advice = if self.is_named { "" } else { ": pass a file, or run this command in its folder" };
            bail!("{} does not exist{advice}", self.rules.display());
        }
        Ok(())
    }

    /// Says where the tools come from, which signatures depend on.
    fn context_note(&self, paint: ColourMode) -> String {
        let stdio = self.adapter.as_ref().filter(|adapter| adapter.stdio_rules().is_some());
        let text = match &self.config {
            _ if stdio.is_some() => {
                format!("(as a session of {} that starts in this folder)", stdio.map_or("", TrialAdapter::name))
            }
            Some(config) => format!("(with the agents and tools of {})", config.display()),
            None => "(without a configuration: every tool counts as undefined)".to_owned(),
        };
        paint.apply_style(TextStyle::Faint, text)
    }
}

pub(crate) fn check_policy(files: &PolicyFiles, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let inventory = files.tool_inventory()?;
    files.ensure_exists()?;
    let loaded = rules::load_rules(&files.rules, &inventory);
    // A start only reports such a rule; here it is an error, as in the editor of the console.
    let mut malformed =
        loaded.as_ref().map(|loaded| restrictions_without_effect(&loaded.rules.compiled)).unwrap_or_default();
    malformed.sort_by(|one, other| finding_place(&one.message).cmp(&finding_place(&other.message)));
    let mut warnings = loaded.as_ref().map(|loaded| loaded.other_warnings(&malformed)).unwrap_or_default();
    warnings.extend(loaded.as_ref().map(|loaded| shell_hints(&loaded.rules.compiled)).unwrap_or_default());
    warnings.sort_by(|one, other| finding_place(one).cmp(&finding_place(other)));
    let mut problems = loaded.as_ref().err().map(problem_rows).unwrap_or_default();
    problems.extend(malformed.iter().map(|rule| {
        let at = &rule.origin;
        json!({ "file": at.file, "line": at.line, "key": "", "message": rule.message })
    }));
    let is_ok = problems.is_empty();
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let summary = json!({
            "file": files.rules, "config": files.config, "ok": is_ok, "errors": problems, "warnings": warnings,
            "rules": loaded.as_ref().ok().map(|loaded| loaded.count),
            "cases": loaded.as_ref().ok().map(|loaded| loaded.cases.len()),
        });
        writeln!(out, "{summary:#}")?;
        return Ok(exit_code(is_ok));
    }
    let paint = ColourMode::for_stdout();
    let mut findings: Vec<(TextStyle, &str, &str)> =
        warnings.iter().map(|warning| (TextStyle::Asking, "warning", warning.as_str())).collect();
    findings.extend(malformed.iter().map(|rule| (TextStyle::Bad, "error", rule.message.as_str())));
    findings.sort_by(|one, other| finding_place(one.2).cmp(&finding_place(other.2)));
    for (tone, word, message) in findings {
        writeln!(out, "{}  {}", paint.apply_style(tone, format!("{word:<7}")), one_line(message))?;
    }
    let file = files.rules.display();
    match &loaded {
        Ok(LoadedRules { count, cases, .. }) if is_ok => {
            let mut summary = format!("{file}: {}, {}", count_text(*count, "rule"), count_text(cases.len(), "case"));
            if !warnings.is_empty() {
                summary.push_str(&format!(", {}", count_text(warnings.len(), "warning")));
            }
            writeln!(
                out,
                "{}       {summary} {}",
                paint.apply_style(TextStyle::Good, "ok"),
                files.context_note(paint)
            )?;
        }
        Ok(_) => {}
        Err(error) => {
            for line in error.to_string().lines() {
                writeln!(out, "{}    {}", paint.apply_style(TextStyle::Bad, "error"), one_line(line))?;
            }
        }
    }
    if !is_ok {
        let (errors, warned) = (count_text(problems.len(), "error"), count_text(warnings.len(), "warning"));
        writeln!(out, "{}   {file}: {errors}, {warned}", paint.apply_style(TextStyle::Bad, "failed"))?;
    }
    Ok(exit_code(is_ok))
}

/// Returns the file and the line that a finding names at its beginning, for its place in a list.
fn finding_place(message: &str) -> (&str, u64) {
    let place = message.split_once(": ").and_then(|(place, _)| place.rsplit_once(':'));
    place.and_then(|(file, line)| Some((file, line.parse().ok()?))).unwrap_or(("", 0))
}

/// Returns the problems as rows, for programs.
fn problem_rows(error: &RulesLoadError) -> Vec<Value> {
    match error {
        RulesLoadError::Form(errors) => {
            let to_row = |problem: &config::ConfigProblem| {
                let message = problem.fault.to_string();
                json!({ "file": problem.file, "line": problem.line, "key": problem.key, "message": message })
            };
            errors.0.iter().map(to_row).collect()
        }
        RulesLoadError::Compile(errors) => {
            let messages = errors.iter().map(|error| (error.origin(), error.to_string()));
            messages
                .map(|(at, message)| json!({ "file": at.file, "line": at.line, "key": "", "message": message }))
                .collect()
        }
        RulesLoadError::Nobody(nobodies) => {
            let to_row = |nobody: &UnknownApprover| json!({ "file": nobody.file, "line": nobody.line, "key": "from", "message": nobody.to_string() });
            nobodies.iter().map(to_row).collect()
        }
        RulesLoadError::TooFew(steps) => {
            let to_row = |few: &TooFew| json!({ "file": few.file, "line": few.line, "key": "approvals", "message": few.to_string() });
            steps.iter().map(to_row).collect()
        }
        RulesLoadError::Cases(failed) => {
            let to_row = |failed: &CaseFailure| {
                let case = &failed.0.case;
                json!({ "file": case.file, "line": case.line, "key": "tests", "message": failed.to_string() })
            };
            failed.iter().map(to_row).collect()
        }
    }
}

pub(crate) fn test_policy(files: &PolicyFiles, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let inventory = files.tool_inventory()?;
    files.ensure_exists()?;
    let tried = trial::run_cases(&rules::read_rules(&files.rules, &inventory)?, &inventory);
    let failed = tried.iter().filter(|tried| !tried.is_as_expected()).count();
    if tried.is_empty() {
        let file = files.rules.display();
        print_notice(&format!(
            "{file} has no cases, so nothing was tested: add cases under `tests` in it, or in its .test.yaml file"
        ));
    }
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let to_row = |tried: &CaseResult| {
            let case = &tried.case;
            json!({
                "file": case.file, "line": case.line, "description": case.description, "agent": case.agent,
                "tool": case.tool, "args": case.args, "expect": case.expect, "got": tried.got,
                "ok": tried.is_as_expected(), "why": tried.why,
            })
        };
        let cases: Vec<Value> = tried.iter().map(to_row).collect();
        let summary = json!({
            "file": files.rules, "config": files.config, "passed": tried.len() - failed, "failed": failed, "cases": cases
        });
        writeln!(out, "{summary:#}")?;
        return Ok(exit_code(failed == 0));
    }
    if tried.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    for tried in tried.iter().filter(|tried| !tried.is_as_expected()) {
        let CaseResult { case, got, why } = tried;
        let place = format!("{}:{}", case.file.display(), case.line);
        let description = case.description.as_deref().map(|text| format!(" ({})", one_line(text))).unwrap_or_default();
        let arguments =
            case.args.iter().map(|(name, value)| format!(" {}={}", one_line(name), one_line(&plain_text(value))));
        let request: String = std::iter::once(one_line(&case.tool)).chain(arguments).collect();
        writeln!(
            out,
            "{}  {request}{description}  {}",
            paint.apply_style(TextStyle::Bad, "failed"),
            paint.apply_style(TextStyle::Faint, place)
        )?;
        writeln!(
            out,
            "        {}, but {}: {}",
            expectation_text(case.expect),
            paint.apply_style(verdict_style(*got), verdict_text(*got)),
            one_line(why)
        )?;
    }
    let (tone, word) = if failed == 0 { (TextStyle::Good, "ok") } else { (TextStyle::Bad, "failed") };
    let passed = format!("{} of {} passed", tried.len() - failed, count_text(tried.len(), "case"));
    writeln!(out, "{}  {passed} {}", paint.apply_style(tone, format!("{word:<6}")), files.context_note(paint))?;
    Ok(exit_code(failed == 0))
}

pub(crate) fn explain_policy(
    files: &PolicyFiles,
    query: &ExplainInput,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let inventory = files.tool_inventory()?;
    if files.is_named {
        files.ensure_exists()?;
    }
    let loaded = rules::read_rules(&files.rules, &inventory)?;
    if let Some((name, _)) = query.tool.split_once('(').filter(|_| query.tool.ends_with(')')) {
        let name = if name.is_empty() { "TOOL".to_owned() } else { one_line(&shell_quote(name)) };
        let tool = one_line(&query.tool);
        bail!(
            "{tool} is a signature: pass the name of the tool and its arguments separately, for example \
             countersign policy explain {name} KEY=VALUE"
        );
    }
    if query.tool.contains(char::is_whitespace) {
        print_notice(&format!(
            "{:?} is not a tool name; for a command use: countersign policy explain bash command={}",
            query.tool,
            one_line(&shell_quote(&query.tool))
        ));
        return Ok(ExitCode::from(2));
    }
    let arguments = query.parse_arguments()?;
    for rule in restrictions_without_effect(&loaded.rules.compiled) {
        print_notice(&format!("the verdict ignores this rule: {}", one_line(&rule.effect_warning())));
    }
    let explained = trial::explain_request(&loaded, &inventory, &query.agent, &query.tool, arguments);
    let mut out = std::io::stdout().lock();
    match (form, explained) {
        (OutputFormat::Json, Ok(explained)) => {
            let mut body = explained.to_json();
            body["file"] = json!(files.rules.exists().then_some(&files.rules));
            writeln!(out, "{body:#}")?;
        }
        (OutputFormat::Json, Err(refused)) => writeln!(out, "{:#}", json!({ "verdict": "refused", "why": refused }))?,
        (OutputFormat::Text, Ok(explained)) => {
            print_explanation(&mut out, &explained, files, inventory.is_stranger(&query.agent))?
        }
        (OutputFormat::Text, Err(refused)) => {
            let paint = ColourMode::for_stdout();
            writeln!(
                out,
                "{}  {}",
                paint.apply_style(TextStyle::Bad, "refused"),
                paint.apply_style(TextStyle::Strong, one_line(&query.tool))
            )?;
            writeln!(out, "  reason  {}, so policy is not evaluated", one_line(&refused))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_explanation(
    out: &mut impl std::io::Write,
    explained: &ExplainedVerdict,
    files: &PolicyFiles,
    is_stranger: bool,
) -> std::io::Result<()> {
    let (paint, ExplainedVerdict { subject, verdict, near }) = (ColourMode::for_stdout(), explained);
    let signature = paint.apply_style(TextStyle::Strong, one_line(&subject.signature));
    let action = verdict_action(verdict);
    writeln!(out, "{}  {signature}", paint.apply_style(verdict_style(action), verdict_word(action)))?;
    for further in &subject.further_signatures {
        writeln!(out, "  and     {}", one_line(further))?;
    }
    writeln!(out, "  reason  {}", one_line(&reason_text(verdict)))?;
    if let Some(description) = explained.deciding_rule().and_then(|(rule, _)| rule.description.as_deref()) {
        writeln!(out, "          {}", paint.apply_style(TextStyle::Faint, one_line(description)))?;
    }
    for line in approval_lines(explained) {
        writeln!(out, "  {:<7} {}", line.key, one_line(&line.text))?;
    }
    let is_of_stdio = files.adapter.as_ref().is_some_and(|adapter| adapter.stdio_rules().is_some());
    let is_runs = subject.door.as_deref() != Some(Protocol::AgentGate.name());
    let agent = if is_of_stdio {
        "a session of the adapter"
    } else if is_runs {
        "runs of the gateway"
    } else {
        agent_of(subject.principal.as_str())
    };
    let unknown = if is_stranger && !is_runs { " (the configuration has no agent of this name)" } else { "" };
    writeln!(out, "  agent   {}{unknown}", one_line(agent))?;
    writeln!(out, "  adapter {}", one_line(subject.door.as_deref().unwrap_or("-")))?;
    let nowhere = if is_runs { "- (a tool of the gateway's runs)" } else { "- (no service has this tool)" };
    writeln!(out, "  target  {}", one_line(subject.target.as_deref().unwrap_or(nowhere)))?;
    let used: Vec<String> = subject.secret_names().unwrap_or_default().into_iter().collect();
    if !used.is_empty() {
        writeln!(out, "  secrets {}", one_line(&used.join(", ")))?;
    }
    if !subject.undeclared.is_empty() {
        writeln!(out, "  not declared by the tool: {}", one_line(&subject.undeclared.join(", ")))?;
    }
    if !files.rules.exists() {
        let note = format!("({} does not exist: this is the verdict without rules)", files.rules.display());
        writeln!(out, "  {}", paint.apply_style(TextStyle::Faint, note))?;
    }
    writeln!(out, "  {}", files.context_note(paint))?;
    if !near.is_empty() {
        writeln!(out, "\n{}", paint.apply_style(TextStyle::Strong, "Nearly decided"))?;
    }
    for near in near.iter().take(NEAR) {
        let kind = if near.is_default { ", a default" } else { "" };
        writeln!(out, "  {:<5}  {}{kind}", action_verb(near.action), one_line(&near.rule.to_string()))?;
        for reason in kept_off(near) {
            writeln!(out, "         {}", paint.apply_style(TextStyle::Faint, one_line(&reason)))?;
        }
    }
    match near.len().saturating_sub(NEAR) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more, which --json shows"),
    }
}

/// Returns an agent as its configuration calls it.
fn agent_of(principal: &str) -> &str {
    principal.strip_prefix("agent:").unwrap_or(principal)
}

/// One line for people about who has to allow.
struct ApprovalLine {
    key: &'static str,
    text: String,
}

/// Returns the required approvals, a line each, and the steps if they do not come.
fn approval_lines(explained: &ExplainedVerdict) -> Vec<ApprovalLine> {
    let to_line = |(at, step): (usize, &ApprovalStep)| {
        let approvers = match &step.from {
            Some(from) => format!("{} of {}", step.approvals, from.iter().cloned().collect::<Vec<_>>().join(", ")),
            None if step.approvals == 1 => "1 approver".to_owned(),
            None => format!("{} approvers", step.approvals),
        };
        let within = step.within.map_or_else(|| "approval_timeout".to_owned(), duration_text);
        let behind = match step.on_expiry {
            OnExpiry::Deny => ", else denied".to_owned(),
            OnExpiry::Again(times) => format!(
                ", else asked again ({})",
                if times == 1 { "once".to_owned() } else { format!("{times} times") }
            ),
            OnExpiry::Next => String::new(),
        };
        let text = format!("{approvers} within {within}{behind}");
        ApprovalLine { key: if at == 0 { "needs" } else { "else" }, text }
    };
    explained.approval_steps().iter().enumerate().map(to_line).collect()
}

const fn verdict_style(action: RuleAction) -> TextStyle {
    match action {
        RuleAction::Allow => TextStyle::Good,
        RuleAction::Deny => TextStyle::Bad,
        RuleAction::Ask => TextStyle::Asking,
    }
}

const fn action_verb(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Allow => "allow",
        RuleAction::Deny => "deny",
        RuleAction::Ask => "ask",
    }
}

fn count_text(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one_line(text: &str) -> String {
    escape(text, LineMode::One).into_owned()
}

fn exit_code(is_well: bool) -> ExitCode {
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
