//! Compiles rules as people write them into the tables that decisions use.

use std::{cmp::Reverse, fmt, sync::Arc};

use crate::{
    digest::{Digest, canonical_json},
    gate::{ApprovalStep, OnExpiry},
    policy::{
        lint::{self, PatternOddity},
        narrow::NarrowPath,
        rule_scope::RuleScopeKey,
        rules::{ArgConditions, ArgMatcher, Rule, RuleAction, RuleLayer, RuleOrigin, RuleSource},
        rules_digest::RulesDigest,
        secrets, shell, spelling,
        table::RuleTable,
        verdict::NamedRule,
    },
    tool::is_shell_in_rules,
};

/// Reason for which a rule cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Neither or both ways to match.
    #[error("{0}: a rule needs either a pattern or a tool")]
    Selector(RuleOrigin),
    /// Arguments together with a pattern.
    #[error("{0}: a rule with a pattern accepts only `args: any`")]
    ArgsBesidePattern(RuleOrigin),
    /// Approvals that no approver could give, or that no approver is asked for.
    #[error("{origin}: {problem}")]
    Approvals {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The problem.
        problem: &'static str,
    },
    /// A grant of everything that an interpreter can do.
    #[error("{origin}: \"{pattern}\" allows {program} to run any code; name a script or a subcommand")]
    Interpreter {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The pattern.
        pattern: String,
        /// The interpreter.
        program: String,
    },
}

impl CompileError {
    /// Returns the origin of the rule.
    pub const fn origin(&self) -> &RuleOrigin {
        match self {
            Self::Approvals { origin, .. }
            | Self::Selector(origin)
            | Self::ArgsBesidePattern(origin)
            | Self::Interpreter { origin, .. } => origin,
        }
    }
}

/// Property of a rule that its author probably does not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleWarning {
    /// A repository's own file allows something; the rule is left out.
    AllowIgnored(RuleOrigin),
    /// `tool(*)` does not match a call without arguments.
    MissesBareCalls {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The pattern.
        pattern: String,
    },
    /// A typing error, after which no call has a signature that the pattern matches.
    NeverMatches {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The pattern.
        pattern: String,
        /// The fault.
        slip: PatternFault,
    },
    /// The pattern has the form of other agents' rules, and matches little or nothing here.
    ForeignForm {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The pattern.
        pattern: String,
        /// Text with which everything begins that it matches.
        begins: String,
        /// The pattern that was probably meant.
        proposed: String,
    },
    /// The pattern contains characters that have another meaning to its author.
    Odd {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The pattern.
        pattern: String,
        /// The oddity.
        oddity: PatternOddity,
    },
    /// A text of the rule contains an invisible character.
    HiddenCharacter {
        /// Origin of the rule.
        origin: RuleOrigin,
        /// The key that holds the text.
        key: &'static str,
        /// The character.
        letter: char,
    },
}

/// Fault of a pattern that matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// The parenthesis after the tool is not closed at the end.
    Unclosed,
    /// White space around it or after its tool, which no signature has.
    Space,
    /// Arguments after the name of a tool.
    Arguments,
}

impl fmt::Display for RuleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllowIgnored(origin) => {
                write!(f, "{origin}: allow rule ignored: a repository's own file can only tighten rules")
            }
            Self::MissesBareCalls { origin, pattern } => {
                write!(
                    f,
                    "{origin}: \"{pattern}\" does not match a call without arguments; write \"{}*\" to cover both",
                    &pattern[..pattern.len() - 3]
                )
            }
            Self::NeverMatches { origin, pattern, slip } => {
                let slip = match slip {
                    PatternFault::Unclosed => "the closing parenthesis is missing at the end",
                    PatternFault::Space => "remove the spaces around it or after the tool name",
                    PatternFault::Arguments => "`tool` takes only a tool name; write a signature as `pattern`",
                };
                write!(f, "{origin}: \"{pattern}\" matches nothing: {slip}")
            }
            Self::ForeignForm { origin, pattern, begins, proposed } => {
                let more = match (proposed.ends_with("*)"), proposed.contains('(')) {
                    (_, true) if begins.contains("(//") => "path",
                    (true, _) => "command with any arguments",
                    (false, true) => "command",
                    (false, false) => "tool with any arguments",
                };
                write!(
                    f,
                    "{origin}: \"{pattern}\" matches only signatures that start with \"{begins}\"; write \"{proposed}\" for the {more}"
                )
            }
            Self::Odd { origin, pattern, oddity } => write!(f, "{origin}: \"{pattern}\" {oddity}"),
            Self::HiddenCharacter { origin, key, letter } => {
                let code = u32::from(*letter);
                write!(
                    f,
                    "{origin}: {key} contains the invisible character U+{code:04X}; remove it, or no plain text matches"
                )
            }
        }
    }
}

/// Compiled rules for decisions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompiledRules(Arc<PolicyTables>);

#[derive(Debug, Default)]
pub(crate) struct PolicyTables {
    digest: Option<Digest>,
    warnings: Vec<RuleWarning>,
    has_main: bool,
    /// True if any rule names required approvers.
    pub(crate) has_steps: bool,
    rules: Vec<CompiledRule>,
    pub(crate) deny: RuleTable,
    pub(crate) allow: RuleTable,
    pub(crate) ask: RuleTable,
    /// Ask rules and defaults of a repository's own file: they precede the owner's allow rules.
    pub(crate) tighten: RuleTable,
    pub(crate) default_allow: RuleTable,
    pub(crate) default_deny: RuleTable,
    pub(crate) default_ask: RuleTable,
    /// A repository's deny defaults.
    pub(crate) tighten_deny: RuleTable,
}

/// A rule as it was compiled.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) named: NamedRule,
    pub(crate) rule: Rule,
    pub(crate) is_default: bool,
    pub(crate) looks_at_arguments: bool,
}

impl CompiledRules {
    /// Returns the digest of the normalised rules.
    pub fn digest(&self) -> Digest {
        self.0.digest.unwrap_or_else(|| Digest::hash_bytes(b""))
    }

    /// Returns the warnings: properties of rules that their authors probably do not expect.
    pub fn warnings(&self) -> &[RuleWarning] {
        &self.0.warnings
    }

    /// Reports whether the owner wrote any rule or default.
    pub fn has_rules(&self) -> bool {
        self.0.has_main
    }

    /// Returns every rule in force, in the order of evaluation among those of the same action; defaults last.
    pub fn rules(&self) -> impl Iterator<Item = RuleRef<'_>> {
        self.0.rules.iter().map(RuleRef::from)
    }

    /// Returns the rule of this rank.
    pub(crate) fn rule_at(&self, rank: usize) -> RuleRef<'_> {
        RuleRef::from(&self.0.rules[rank])
    }

    pub(crate) fn tables(&self) -> &PolicyTables {
        &self.0
    }
}

/// One rule in force.
#[derive(Clone, Copy, Debug)]
pub struct RuleRef<'a> {
    /// Its name and its origin.
    pub named: &'a NamedRule,
    /// The rule.
    pub rule: &'a Rule,
    /// True if it is one of the defaults.
    pub is_default: bool,
}

impl<'a> From<&'a CompiledRule> for RuleRef<'a> {
    fn from(entry: &'a CompiledRule) -> Self {
        Self { named: &entry.named, rule: &entry.rule, is_default: entry.is_default }
    }
}

impl Default for CompiledRules {
    /// Returns the empty set of rules.
    fn default() -> Self {
        Self(Arc::new(PolicyTables { digest: Some(Digest::hash_bytes(b"")), ..PolicyTables::default() }))
    }
}

impl PolicyTables {
    /// Returns every rule, by rank.
    pub(crate) fn entries(&self) -> &[CompiledRule] {
        &self.rules
    }

    pub(crate) fn named_rule(&self, rank: usize) -> NamedRule {
        self.rules[rank].named.clone()
    }

    /// Reports whether a rule names each of `paths`, by its pattern or by its conditions on arguments.
    pub(crate) fn names_paths(&self, rank: usize, paths: &[&NarrowPath]) -> bool {
        if paths.is_empty() {
            return true;
        }
        let rule = &self.rules[rank].rule;
        let texts: Vec<&str> = match (&rule.pattern, &rule.args) {
            (Some(pattern), _) => vec![pattern],
            (None, Some(ArgConditions::Each(each))) => each.values().filter_map(ArgMatcher::as_text).collect(),
            (None, Some(ArgConditions::Any(_)) | None) => Vec::new(),
        };
        paths.iter().all(|path| texts.iter().any(|text| path.is_named_by(text)))
    }

    /// Returns the maximum number of `..` steps of a path in a rule.
    pub(crate) fn steps_up(&self, rank: usize) -> usize {
        let rule = &self.rules[rank].rule;
        let each = match &rule.args {
            Some(ArgConditions::Each(each)) => each.values().filter_map(ArgMatcher::as_text).collect(),
            Some(ArgConditions::Any(_)) | None => Vec::new(),
        };
        each.into_iter().chain(rule.pattern.as_deref()).map(spelling::steps_in).max().unwrap_or(0)
    }

    /// Reports whether a rule names required approvers.
    pub(crate) fn has_approval_steps(&self, rank: usize) -> bool {
        !self.rules[rank].named.steps.is_empty()
    }

    /// Reports whether a rule is about the use of secrets by its own words, and not because it is about everything.
    pub(crate) fn names_secrets(&self, rank: usize) -> bool {
        let rule = &self.rules[rank].rule;
        match (&rule.pattern, &rule.tool) {
            (Some(pattern), _) => pattern.strip_prefix(secrets::TOOL).is_some_and(|rest| rest.starts_with('(')),
            (None, Some(tool)) => tool == secrets::TOOL,
            (None, None) => false,
        }
    }

    /// Reports whether a rule covers arguments that its tool does not declare.
    pub(crate) fn covers_undeclared(&self, rank: usize) -> bool {
        !self.rules[rank].looks_at_arguments
    }
}

/// Compiles rules of all sources into one policy, with warnings about unexpected properties.
///
/// # Errors
/// Every rule that makes no sense or grants an interpreter whole; nothing is compiled then.
pub fn compile_rules(sources: Vec<RuleSource>) -> Result<CompiledRules, Vec<CompileError>> {
    let mut tables = PolicyTables::default();
    let mut errors = Vec::new();
    let mut digest = RulesDigest::default();
    for source in &sources {
        // Of the rules that ask, the first that matches counts. The strictest come first: their order must not
        // soften them.
        let mut rules: Vec<&Rule> = source.rules.rules.iter().collect();
        rules.sort_by_key(|rule| strictness_key(rule));
        let rules = rules.into_iter().map(|rule| (rule, false));
        for (rule, is_default) in rules.chain(source.rules.defaults.iter().map(|rule| (rule, true))) {
            let origin = RuleOrigin { file: source.name.clone(), line: rule.line };
            let before = errors.len();
            errors.extend(rule_errors(rule, &origin));
            if errors.len() > before {
                continue;
            }
            if let Some(pattern) = rule.pattern.as_deref().filter(|pattern| misses_bare_calls(pattern)) {
                tables
                    .warnings
                    .push(RuleWarning::MissesBareCalls { origin: origin.clone(), pattern: pattern.to_owned() });
            }
            let of_pattern = rule.pattern.as_deref().and_then(|pattern| Some((pattern, pattern_fault(pattern)?)));
            let of_tool = rule.tool.as_deref().and_then(|tool| Some((tool, tool_fault(tool)?)));
            if let Some((pattern, slip)) = of_pattern.or(of_tool) {
                let pattern = pattern.to_owned();
                tables.warnings.push(RuleWarning::NeverMatches { origin: origin.clone(), pattern, slip });
            }
            tables.warnings.extend(lint::rule_warnings(rule, &origin));
            tables.has_steps |= !rule.steps.is_empty();
            tables.has_main |= source.layer == RuleLayer::Main;
            let rank = tables.rules.len();
            let table = match (source.layer, rule.action, is_default) {
                (RuleLayer::Tighten, RuleAction::Allow, _) => {
                    tables.warnings.push(RuleWarning::AllowIgnored(origin));
                    continue;
                }
                (_, RuleAction::Deny, false) => &mut tables.deny,
                (RuleLayer::Main, RuleAction::Allow, false) => &mut tables.allow,
                (RuleLayer::Main, RuleAction::Ask, false) => &mut tables.ask,
                (RuleLayer::Main, RuleAction::Allow, true) => &mut tables.default_allow,
                (RuleLayer::Main, RuleAction::Deny, true) => &mut tables.default_deny,
                (RuleLayer::Main, RuleAction::Ask, true) => &mut tables.default_ask,
                (RuleLayer::Tighten, RuleAction::Deny, true) => &mut tables.tighten_deny,
                (RuleLayer::Tighten, RuleAction::Ask, _) => &mut tables.tighten,
            };
            table.insert(rank, rule);
            digest.add_rule(source.layer, is_default, rule);
            tables.rules.push(compile_rule(rule, is_default, origin));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let PolicyTables { deny, allow, ask, tighten, default_allow, default_deny, default_ask, tighten_deny, .. } =
        &mut tables;
    for table in [deny, allow, ask, tighten, default_allow, default_deny, default_ask, tighten_deny] {
        table.compile();
    }
    tables.digest = Some(digest.finish());
    Ok(CompiledRules(Arc::new(tables)))
}

/// Returns a sort key that is lower for stricter rules.
fn strictness_key(rule: &Rule) -> (bool, Reverse<u32>, bool) {
    let first = rule.steps.first();
    (first.is_none(), Reverse(first.map_or(1, |step| step.approvals)), first.is_none_or(|step| step.from.is_none()))
}

/// Returns the problem of the required approvals of a rule.
fn approval_problem(rule: &Rule) -> Option<&'static str> {
    let too_few = |step: &ApprovalStep| {
        let people = step.from.as_ref().map(|from| from.len());
        people.is_some_and(|people| u32::try_from(people).is_ok_and(|people| people < step.approvals))
    };
    let is_last_next = rule.steps.last().is_some_and(|step| step.on_expiry == OnExpiry::Next);
    if rule.steps.is_empty() {
        None
    } else if rule.action != RuleAction::Ask {
        Some("only a rule with `action: ask` can require approvers")
    } else if rule.steps.iter().any(|step| step.approvals == 0) {
        Some("at least one approval must be required")
    } else if rule.steps.iter().any(too_few) {
        Some("the rule requires more approvals than there are people in `from`")
    } else if is_last_next {
        Some("the last step cannot escalate: no step follows")
    } else {
        None
    }
}

/// Returns every error of a rule.
fn rule_errors(rule: &Rule, origin: &RuleOrigin) -> impl Iterator<Item = CompileError> {
    let approvals = approval_problem(rule).map(|problem| CompileError::Approvals { origin: origin.clone(), problem });
    let selector = match (&rule.pattern, &rule.tool, &rule.args) {
        (None, None, _) | (Some(_), Some(_), _) => Some(CompileError::Selector(origin.clone())),
        (Some(_), None, Some(ArgConditions::Each(_))) => Some(CompileError::ArgsBesidePattern(origin.clone())),
        (Some(_), None, Some(ArgConditions::Any(_)) | None) | (None, Some(_), _) => None,
    };
    let allowed = rule.pattern.as_deref().filter(|_| rule.action == RuleAction::Allow);
    let interpreter = allowed.and_then(|pattern| Some((pattern.to_owned(), shell::grants_interpreter(pattern)?)));
    let interpreter = interpreter.map(|(pattern, program)| CompileError::Interpreter {
        origin: origin.clone(),
        pattern,
        program: program.to_owned(),
    });
    approvals.into_iter().chain(selector).chain(interpreter)
}

fn misses_bare_calls(pattern: &str) -> bool {
    pattern.strip_suffix("(*)").is_some_and(|tool| !tool.is_empty() && !is_shell_in_rules(tool) && !tool.contains('('))
}

/// Returns the fault of a `pattern` that matches no signature: those end with a tool's name or with the parenthesis after its arguments.
/// Names of an agent's tools are its own affair, so nothing is reported if a wildcard may stand for it.
fn pattern_fault(pattern: &str) -> Option<PatternFault> {
    let (tool, behind) = pattern.split_once('(').map_or((pattern, None), |(tool, behind)| (tool, Some(behind)));
    let is_space_behind = behind.is_some_and(|behind| behind.trim_end() != behind);
    if is_space_behind || tool.trim() != tool && !has_wildcard(tool) {
        return Some(PatternFault::Space);
    }
    (behind.is_some() && !pattern.ends_with([')', '*', '?', ']'])).then_some(PatternFault::Unclosed)
}

/// Returns the fault of an invalid tool name.
fn tool_fault(tool: &str) -> Option<PatternFault> {
    let is_signature = tool.split_once('(').is_some_and(|(name, _)| !has_wildcard(name));
    let arguments = is_signature.then_some(PatternFault::Arguments);
    arguments.or_else(|| (tool.trim() != tool && !has_wildcard(tool)).then_some(PatternFault::Space))
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

fn compile_rule(rule: &Rule, is_default: bool, origin: RuleOrigin) -> CompiledRule {
    let mut pattern = match (&rule.pattern, &rule.tool) {
        (Some(pattern), _) => pattern.clone(),
        (None, Some(tool)) => {
            let args = rule.args.as_ref().and_then(|args| serde_json::to_value(args).ok());
            args.map_or_else(|| tool.clone(), |args| format!("{tool} {}", canonical_json(&args)))
        }
        (None, None) => String::new(),
    };
    for side in RuleScopeKey::ALL {
        if let Some(bound) = side.rule_pattern(rule) {
            pattern.push_str(&format!(", {side} {bound}"));
        }
    }
    let looks_at_arguments = match (&rule.args, &rule.pattern) {
        (Some(ArgConditions::Any(_)), _) => false,
        (_, Some(pattern)) => pattern.contains('('),
        (Some(ArgConditions::Each(_)) | None, None) => true,
    };
    let named = NamedRule { pattern, origin, description: rule.description.clone(), steps: rule.steps.clone() };
    CompiledRule { named, rule: rule.clone(), is_default, looks_at_arguments }
}
