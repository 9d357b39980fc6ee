//! Turns rules as people write them into what decisions look things up in.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde_json::Value;

use crate::{
    digest::{Digest, canonical},
    gate::{OnExpiry, Step},
    policy::{
        fnmatch::Pattern,
        patterns::Patterns,
        rules::{Action, Args, Layer, Matcher, Operator, Origin, Rule, Source},
        shell,
        subject::Subject,
        verdict::Named,
    },
};

/// Why a rule cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Neither or both ways to match.
    #[error("{0}: a rule needs either a pattern or a tool")]
    Selector(Origin),
    /// Arguments beside a pattern.
    #[error("{0}: a rule with a pattern takes no args but `any`")]
    ArgsBesidePattern(Origin),
    /// Approvals that nobody could give, or that nobody is asked for.
    #[error("{origin}: {problem}")]
    Approvals {
        /// Where.
        origin: Origin,
        /// What is wrong with them.
        problem: &'static str,
    },
    /// A grant of everything that an interpreter can do.
    #[error("{origin}: \"{pattern}\" allows whatever {program} is told to run; name a script or a subcommand")]
    Interpreter {
        /// Where.
        origin: Origin,
        /// The pattern.
        pattern: String,
        /// The interpreter.
        program: String,
    },
}

/// Something about a rule that its author probably does not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A repository's own file allows something; that is left out.
    AllowIgnored(Origin),
    /// `tool(*)` does not match a call without arguments.
    MissesBareCalls {
        /// Where.
        origin: Origin,
        /// The pattern.
        pattern: String,
    },
    /// A slip of the pen, after which no call has a signature that the pattern matches.
    NeverMatches {
        /// Where.
        origin: Origin,
        /// The pattern.
        pattern: String,
        /// The slip.
        slip: Slip,
    },
}

/// What keeps a pattern from matching anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// The parenthesis behind the tool is not closed at the end.
    Unclosed,
    /// White space around it or behind its tool, which no signature has.
    Space,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllowIgnored(origin) => {
                write!(f, "{origin}: a repository's own file can only tighten; this allow is left out")
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
                    Slip::Unclosed => "it does not end with the parenthesis that closes the arguments",
                    Slip::Space => "there is white space around it or behind its tool",
                };
                write!(f, "{origin}: \"{pattern}\" matches nothing: {slip}")
            }
        }
    }
}

/// Rules that decisions can be looked up in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Compiled(Arc<Tables>);

#[derive(Debug, Default)]
pub(crate) struct Tables {
    digest: Option<Digest>,
    warnings: Vec<Warning>,
    has_main: bool,
    /// Whether any rule says who has to allow.
    pub(crate) has_steps: bool,
    rules: Vec<Entry>,
    pub(crate) deny: Table,
    pub(crate) allow: Table,
    pub(crate) ask: Table,
    /// Ask rules and defaults of a repository's own file: they stand before what the owner's rules allow.
    pub(crate) tighten: Table,
    pub(crate) default_allow: Table,
    pub(crate) default_deny: Table,
    pub(crate) default_ask: Table,
    /// A repository's deny defaults.
    pub(crate) tighten_deny: Table,
}

#[derive(Debug)]
struct Entry {
    named: Named,
    looks_at_arguments: bool,
}

/// Rules with one action: by pattern over the signature, and by arguments.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) patterns: Patterns,
    structured: Vec<Structured>,
    exact_tools: BTreeMap<String, Vec<usize>>,
    other_tools: Vec<usize>,
}

#[derive(Debug)]
struct Structured {
    rank: usize,
    tool: Pattern,
    args: Vec<(String, Test)>,
}

#[derive(Debug)]
enum Test {
    Pattern(Pattern),
    Is(Value),
    In(Vec<Value>),
    Max(f64),
    Min(f64),
    Present(bool),
    Not(Box<Test>),
}

impl Compiled {
    /// The digest of the normalised rules.
    pub fn digest(&self) -> Digest {
        self.0.digest.unwrap_or_else(|| Digest::of(b""))
    }

    /// What the authors of the rules probably do not expect.
    pub fn warnings(&self) -> &[Warning] {
        &self.0.warnings
    }

    /// True if the owner wrote any rule or default.
    pub fn has_rules(&self) -> bool {
        self.0.has_main
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.0
    }
}

impl Default for Compiled {
    /// No rules at all.
    fn default() -> Self {
        Self(Arc::new(Tables { digest: Some(Digest::of(b"")), ..Tables::default() }))
    }
}

impl Tables {
    pub(crate) fn named(&self, rank: usize) -> Named {
        self.rules[rank].named.clone()
    }

    /// True if a rule covers arguments that its tool does not declare.
    pub(crate) fn covers_undeclared(&self, rank: usize) -> bool {
        !self.rules[rank].looks_at_arguments
    }
}

impl Table {
    fn insert(&mut self, rank: usize, rule: &Rule) {
        if let Some(pattern) = &rule.pattern {
            self.patterns.insert(rank, Pattern::new(pattern));
        } else if let Some(name) = &rule.tool {
            let tool = Pattern::new(name);
            let args = match &rule.args {
                Some(Args::Each(each)) => {
                    each.iter().map(|(name, matcher)| (name.clone(), Test::new(matcher))).collect()
                }
                Some(Args::Any(_)) | None => Vec::new(),
            };
            if tool.is_literal() {
                self.exact_tools.entry(name.clone()).or_default().push(self.structured.len());
            } else {
                self.other_tools.push(self.structured.len());
            }
            self.structured.push(Structured { rank, tool, args });
        }
    }

    /// The first rule on arguments that `subject` meets and `wanted` accepts.
    pub(crate) fn first_structured(&self, subject: &Subject, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let exact = self.exact_tools.get(&subject.tool).into_iter().flatten();
        exact
            .chain(&self.other_tools)
            .map(|at| &self.structured[*at])
            .filter(|rule| wanted(rule.rank) && rule.tool.matches(&subject.tool))
            .find(|rule| rule.args.iter().all(|(name, test)| test.holds(subject.arguments.get(name))))
            .map(|rule| rule.rank)
    }
}

impl Test {
    fn new(matcher: &Matcher) -> Self {
        match matcher {
            Matcher::Pattern(pattern) => Self::Pattern(Pattern::new(pattern)),
            Matcher::Equals(value) | Matcher::Operator(Operator::Is(value)) => Self::Is(value.clone()),
            Matcher::Operator(Operator::In(values)) => Self::In(values.clone()),
            Matcher::Operator(Operator::Max(most)) => Self::Max(*most),
            Matcher::Operator(Operator::Min(least)) => Self::Min(*least),
            Matcher::Operator(Operator::Present(present)) => Self::Present(*present),
            Matcher::Operator(Operator::Not(matcher)) => Self::Not(Box::new(Self::new(matcher))),
        }
    }

    fn holds(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Self::Present(present), value) => value.is_some() == *present,
            (Self::Not(test), value) => !test.holds(value),
            (Self::Pattern(_) | Self::Is(_) | Self::In(_) | Self::Max(_) | Self::Min(_), None) => false,
            (Self::Pattern(pattern), Some(Value::String(text))) => pattern.matches(text),
            (Self::Pattern(pattern), Some(value)) => pattern.matches(&canonical(value)),
            (Self::Is(wanted), Some(value)) => canonical(wanted) == canonical(value),
            (Self::In(wanted), Some(value)) => wanted.iter().any(|one| canonical(one) == canonical(value)),
            (Self::Max(most), Some(value)) => value.as_f64().is_some_and(|number| number <= *most),
            (Self::Min(least), Some(value)) => value.as_f64().is_some_and(|number| number >= *least),
        }
    }
}

/// Compiles rules of all sources into one policy, with warnings about what their authors probably do not expect.
///
/// # Errors
/// Every rule that makes no sense or grants an interpreter whole; nothing is compiled then.
pub fn compile(sources: Vec<Source>) -> Result<Compiled, Vec<CompileError>> {
    let mut tables = Tables::default();
    let mut errors = Vec::new();
    let mut normalised = Vec::new();
    for source in &sources {
        // Of the rules that ask, the first that matches counts. Those that ask most come first: their order must not
        // soften them.
        let mut rules: Vec<&Rule> = source.rules.rules.iter().collect();
        rules.sort_by_key(|rule| strictness(rule));
        let rules = rules.into_iter().map(|rule| (rule, false));
        for (rule, is_default) in rules.chain(source.rules.defaults.iter().map(|rule| (rule, true))) {
            let origin = Origin { file: source.name.clone(), line: rule.line };
            match check(rule, &origin) {
                Ok(()) => {}
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            }
            if let Some(pattern) = rule.pattern.as_deref().filter(|pattern| misses_bare_calls(pattern)) {
                tables.warnings.push(Warning::MissesBareCalls { origin: origin.clone(), pattern: pattern.to_owned() });
            }
            if let Some((pattern, slip)) = rule.pattern.as_deref().and_then(|pattern| Some((pattern, slip(pattern)?))) {
                let pattern = pattern.to_owned();
                tables.warnings.push(Warning::NeverMatches { origin: origin.clone(), pattern, slip });
            }
            tables.has_steps |= !rule.steps.is_empty();
            tables.has_main |= source.layer == Layer::Main;
            let rank = tables.rules.len();
            let table = match (source.layer, rule.action, is_default) {
                (Layer::Tighten, Action::Allow, _) => {
                    tables.warnings.push(Warning::AllowIgnored(origin));
                    continue;
                }
                (_, Action::Deny, false) => &mut tables.deny,
                (Layer::Main, Action::Allow, false) => &mut tables.allow,
                (Layer::Main, Action::Ask, false) => &mut tables.ask,
                (Layer::Main, Action::Allow, true) => &mut tables.default_allow,
                (Layer::Main, Action::Deny, true) => &mut tables.default_deny,
                (Layer::Main, Action::Ask, true) => &mut tables.default_ask,
                (Layer::Tighten, Action::Deny, true) => &mut tables.tighten_deny,
                (Layer::Tighten, Action::Ask, _) => &mut tables.tighten,
            };
            table.insert(rank, rule);
            normalised.push(serde_json::json!([source.layer, is_default, rule]));
            tables.rules.push(entry(rule, origin));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let Tables { deny, allow, ask, tighten, default_allow, default_deny, default_ask, tighten_deny, .. } = &mut tables;
    for table in [deny, allow, ask, tighten, default_allow, default_deny, default_ask, tighten_deny] {
        table.patterns.compile();
    }
    tables.digest = Some(Digest::of(
        if normalised.is_empty() { String::new() } else { canonical(&Value::Array(normalised)) }.as_bytes(),
    ));
    Ok(Compiled(Arc::new(tables)))
}

/// Less is stricter.
fn strictness(rule: &Rule) -> (bool, Reverse<u32>, bool) {
    let first = rule.steps.first();
    (first.is_none(), Reverse(first.map_or(1, |step| step.approvals)), first.is_none_or(|step| step.from.is_none()))
}

/// What is wrong with who a rule says has to allow.
fn unreachable(rule: &Rule) -> Option<&'static str> {
    let too_few = |step: &Step| {
        let people = step.from.as_ref().map(BTreeSet::len);
        people.is_some_and(|people| u32::try_from(people).is_ok_and(|people| people < step.approvals))
    };
    let is_last_next = rule.steps.last().is_some_and(|step| step.on_expiry == OnExpiry::Next);
    if rule.steps.is_empty() {
        None
    } else if rule.action != Action::Ask {
        Some("only a rule that asks says who has to allow")
    } else if rule.steps.iter().any(|step| step.approvals == 0) {
        Some("at least one person has to allow")
    } else if rule.steps.iter().any(too_few) {
        Some("more approvals are asked for than there are people in `from`")
    } else if is_last_next {
        Some("behind the last step there is no next one")
    } else {
        None
    }
}

fn check(rule: &Rule, origin: &Origin) -> Result<(), CompileError> {
    if let Some(problem) = unreachable(rule) {
        return Err(CompileError::Approvals { origin: origin.clone(), problem });
    }
    match (&rule.pattern, &rule.tool, &rule.args) {
        (None, None, _) | (Some(_), Some(_), _) => Err(CompileError::Selector(origin.clone())),
        (Some(_), None, Some(Args::Each(_))) => Err(CompileError::ArgsBesidePattern(origin.clone())),
        (Some(pattern), None, _) if rule.action == Action::Allow => match shell::grants_interpreter(pattern) {
            Some(program) => Err(CompileError::Interpreter {
                origin: origin.clone(),
                pattern: pattern.clone(),
                program: program.to_owned(),
            }),
            None => Ok(()),
        },
        (Some(_), None, _) | (None, Some(_), _) => Ok(()),
    }
}

fn misses_bare_calls(pattern: &str) -> bool {
    pattern.strip_suffix("(*)").is_some_and(|tool| !tool.is_empty() && tool != "bash" && !tool.contains('('))
}

/// What keeps `pattern` from matching any signature: those end with a tool's name or with the parenthesis behind its arguments.
fn slip(pattern: &str) -> Option<Slip> {
    let tool = pattern.split_once('(').map(|(tool, _)| tool).filter(|tool| !tool.contains(['*', '?', '[']));
    if pattern.trim() != pattern || tool.is_some_and(|tool| tool.trim() != tool) {
        return Some(Slip::Space);
    }
    (pattern.contains('(') && !pattern.ends_with([')', '*', '?', ']'])).then_some(Slip::Unclosed)
}

fn entry(rule: &Rule, origin: Origin) -> Entry {
    let pattern = match (&rule.pattern, &rule.tool) {
        (Some(pattern), _) => pattern.clone(),
        (None, Some(tool)) => {
            let args = serde_json::to_value(&rule.args).map(|args| canonical(&args)).unwrap_or_default();
            format!("{tool} {args}")
        }
        (None, None) => String::new(),
    };
    let looks_at_arguments = match (&rule.args, &rule.pattern) {
        (Some(Args::Any(_)), _) => false,
        (_, Some(pattern)) => pattern.contains('('),
        (Some(Args::Each(_)) | None, None) => true,
    };
    Entry {
        named: Named { pattern, origin, description: rule.description.clone(), steps: rule.steps.clone() },
        looks_at_arguments,
    }
}
