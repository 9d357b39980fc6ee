//! Turns rules as people write them into what decisions look things up in.

use std::{cmp::Reverse, collections::BTreeSet, fmt, sync::Arc};

use serde_json::Value;

use crate::{
    digest::{Digest, canonical},
    gate::{OnExpiry, Step},
    policy::{
        bound::Side,
        lint::{self, Oddity},
        narrow::NarrowPath,
        rules::{Action, Args, Layer, Matcher, Origin, Rule, Source},
        secrets, shell, spelling,
        table::Table,
        verdict::Named,
    },
    tool::is_shell_in_rules,
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

impl CompileError {
    /// Where.
    pub const fn origin(&self) -> &Origin {
        match self {
            Self::Approvals { origin, .. }
            | Self::Selector(origin)
            | Self::ArgsBesidePattern(origin)
            | Self::Interpreter { origin, .. } => origin,
        }
    }
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
    /// The pattern has the form in which other agents write rules, and matches little or nothing here.
    ForeignForm {
        /// Where.
        origin: Origin,
        /// The pattern.
        pattern: String,
        /// The text with which everything begins that it matches.
        begins: String,
        /// The pattern that was probably meant.
        proposed: String,
    },
    /// The pattern holds something that means something else to its author.
    Odd {
        /// Where.
        origin: Origin,
        /// The pattern.
        pattern: String,
        /// What it is.
        oddity: Oddity,
    },
    /// A text of the rule holds a character that nobody sees.
    HiddenCharacter {
        /// Where.
        origin: Origin,
        /// The key whose text it is in.
        key: &'static str,
        /// The character.
        letter: char,
    },
}

/// What keeps a pattern from matching anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// The parenthesis behind the tool is not closed at the end.
    Unclosed,
    /// White space around it or behind its tool, which no signature has.
    Space,
    /// Arguments behind the name of a tool.
    Arguments,
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
                    Slip::Arguments => "a tool is named alone; a signature is written as a pattern",
                };
                write!(f, "{origin}: \"{pattern}\" matches nothing: {slip}")
            }
            Self::ForeignForm { origin, pattern, begins, proposed } => {
                let more = match (proposed.ends_with("*)"), proposed.contains('(')) {
                    (true, _) => "command with any arguments",
                    (false, true) => "command",
                    (false, false) => "tool with any arguments",
                };
                write!(
                    f,
                    "{origin}: \"{pattern}\" matches only what begins with \"{begins}\"; write \"{proposed}\" for the {more}"
                )
            }
            Self::Odd { origin, pattern, oddity } => write!(f, "{origin}: \"{pattern}\" {oddity}"),
            Self::HiddenCharacter { origin, key, letter } => {
                let code = u32::from(*letter);
                write!(
                    f,
                    "{origin}: {key} holds the invisible character U+{code:04X}; remove it, or no plain text matches"
                )
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

/// A rule as it was compiled.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) named: Named,
    pub(crate) rule: Rule,
    pub(crate) is_default: bool,
    pub(crate) looks_at_arguments: bool,
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

    /// Every rule in force, in the order in which they are looked at among those of the same action; defaults last.
    pub fn rules(&self) -> impl Iterator<Item = Listed<'_>> {
        self.0.rules.iter().map(Listed::from)
    }

    /// The rule of this rank.
    pub(crate) fn listed(&self, rank: usize) -> Listed<'_> {
        Listed::from(&self.0.rules[rank])
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.0
    }
}

/// One rule in force.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its name and where it stands.
    pub named: &'a Named,
    /// What it says.
    pub rule: &'a Rule,
    /// True if it is one of the defaults.
    pub is_default: bool,
}

impl<'a> From<&'a Entry> for Listed<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self { named: &entry.named, rule: &entry.rule, is_default: entry.is_default }
    }
}

impl Default for Compiled {
    /// No rules at all.
    fn default() -> Self {
        Self(Arc::new(Tables { digest: Some(Digest::of(b"")), ..Tables::default() }))
    }
}

impl Tables {
    /// Every rule, by rank.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.rules
    }

    pub(crate) fn named(&self, rank: usize) -> Named {
        self.rules[rank].named.clone()
    }

    /// True if a rule names each of `paths`, by its pattern or by what it wants of arguments.
    pub(crate) fn names(&self, rank: usize, paths: &[&NarrowPath]) -> bool {
        if paths.is_empty() {
            return true;
        }
        let rule = &self.rules[rank].rule;
        let texts: Vec<&str> = match (&rule.pattern, &rule.args) {
            (Some(pattern), _) => vec![pattern],
            (None, Some(Args::Each(each))) => each.values().filter_map(Matcher::as_text).collect(),
            (None, Some(Args::Any(_)) | None) => Vec::new(),
        };
        paths.iter().all(|path| texts.iter().any(|text| path.is_named_by(text)))
    }

    /// The most steps up that a path in a rule has.
    pub(crate) fn steps_up(&self, rank: usize) -> usize {
        let rule = &self.rules[rank].rule;
        let each = match &rule.args {
            Some(Args::Each(each)) => each.values().filter_map(Matcher::as_text).collect(),
            Some(Args::Any(_)) | None => Vec::new(),
        };
        each.into_iter().chain(rule.pattern.as_deref()).map(spelling::steps_in).max().unwrap_or(0)
    }

    /// True if a rule says who has to allow.
    pub(crate) fn demands(&self, rank: usize) -> bool {
        !self.rules[rank].named.steps.is_empty()
    }

    /// True if a rule is about the use of secrets by its own words, and not because it is about everything.
    pub(crate) fn names_secrets(&self, rank: usize) -> bool {
        let rule = &self.rules[rank].rule;
        match (&rule.pattern, &rule.tool) {
            (Some(pattern), _) => pattern.strip_prefix(secrets::TOOL).is_some_and(|rest| rest.starts_with('(')),
            (None, Some(tool)) => tool == secrets::TOOL,
            (None, None) => false,
        }
    }

    /// True if a rule covers arguments that its tool does not declare.
    pub(crate) fn covers_undeclared(&self, rank: usize) -> bool {
        !self.rules[rank].looks_at_arguments
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
            let before = errors.len();
            errors.extend(faults(rule, &origin));
            if errors.len() > before {
                continue;
            }
            if let Some(pattern) = rule.pattern.as_deref().filter(|pattern| misses_bare_calls(pattern)) {
                tables.warnings.push(Warning::MissesBareCalls { origin: origin.clone(), pattern: pattern.to_owned() });
            }
            let of_pattern = rule.pattern.as_deref().and_then(|pattern| Some((pattern, slip(pattern)?)));
            let of_tool = rule.tool.as_deref().and_then(|tool| Some((tool, slip_of_tool(tool)?)));
            if let Some((pattern, slip)) = of_pattern.or(of_tool) {
                let pattern = pattern.to_owned();
                tables.warnings.push(Warning::NeverMatches { origin: origin.clone(), pattern, slip });
            }
            tables.warnings.extend(lint::warnings(rule, &origin));
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
            tables.rules.push(entry(rule, is_default, origin));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let Tables { deny, allow, ask, tighten, default_allow, default_deny, default_ask, tighten_deny, .. } = &mut tables;
    for table in [deny, allow, ask, tighten, default_allow, default_deny, default_ask, tighten_deny] {
        table.compile();
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

/// Everything that is wrong with a rule.
fn faults(rule: &Rule, origin: &Origin) -> impl Iterator<Item = CompileError> {
    let approvals = unreachable(rule).map(|problem| CompileError::Approvals { origin: origin.clone(), problem });
    let selector = match (&rule.pattern, &rule.tool, &rule.args) {
        (None, None, _) | (Some(_), Some(_), _) => Some(CompileError::Selector(origin.clone())),
        (Some(_), None, Some(Args::Each(_))) => Some(CompileError::ArgsBesidePattern(origin.clone())),
        (Some(_), None, Some(Args::Any(_)) | None) | (None, Some(_), _) => None,
    };
    let allowed = rule.pattern.as_deref().filter(|_| rule.action == Action::Allow);
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

/// What keeps `pattern` from matching any signature: those end with a tool's name or with the parenthesis behind its arguments.
/// What an agent calls a tool is its own affair, so nothing is said where a wildcard may stand for it.
fn slip(pattern: &str) -> Option<Slip> {
    let (tool, behind) = pattern.split_once('(').map_or((pattern, None), |(tool, behind)| (tool, Some(behind)));
    let is_space_behind = behind.is_some_and(|behind| behind.trim_end() != behind);
    if is_space_behind || tool.trim() != tool && !has_wildcard(tool) {
        return Some(Slip::Space);
    }
    (behind.is_some() && !pattern.ends_with([')', '*', '?', ']'])).then_some(Slip::Unclosed)
}

/// What keeps the name of a tool from being one.
fn slip_of_tool(tool: &str) -> Option<Slip> {
    let is_signature = tool.split_once('(').is_some_and(|(name, _)| !has_wildcard(name));
    let arguments = is_signature.then_some(Slip::Arguments);
    arguments.or_else(|| (tool.trim() != tool && !has_wildcard(tool)).then_some(Slip::Space))
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

fn entry(rule: &Rule, is_default: bool, origin: Origin) -> Entry {
    let mut pattern = match (&rule.pattern, &rule.tool) {
        (Some(pattern), _) => pattern.clone(),
        (None, Some(tool)) => {
            let args = rule.args.as_ref().and_then(|args| serde_json::to_value(args).ok());
            args.map_or_else(|| tool.clone(), |args| format!("{tool} {}", canonical(&args)))
        }
        (None, None) => String::new(),
    };
    for side in Side::ALL {
        if let Some(bound) = side.of(rule) {
            pattern.push_str(&format!(", {side} {bound}"));
        }
    }
    let looks_at_arguments = match (&rule.args, &rule.pattern) {
        (Some(Args::Any(_)), _) => false,
        (_, Some(pattern)) => pattern.contains('('),
        (Some(Args::Each(_)) | None, None) => true,
    };
    let named = Named { pattern, origin, description: rule.description.clone(), steps: rule.steps.clone() };
    Entry { named, rule: rule.clone(), is_default, looks_at_arguments }
}
