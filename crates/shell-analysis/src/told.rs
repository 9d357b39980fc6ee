//! What a line itself tells of its variables and functions: the values that are set before they are read, and the words of calls.
//!
//! It must not guess. A name counts only if each mention of it in the text is a plain assignment, a read or a plain call.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use brush_parser::ast;

use super::word::Word;

/// The most values of a variable, and the most commands that the words of one may come to.
pub(super) const MOST_VALUES: usize = 16;

/// The most variables that are followed in one text.
const MOST_ASSIGNED: usize = 64;

/// The longest value that is followed, in bytes.
const LONGEST: usize = 1_024;

/// Variables that the shell changes by itself. Those whose names begin with `BASH` are more of them.
const CHANGING: &str = "IFS RANDOM SRANDOM SECONDS OPTIND OPTARG OPTERR LINENO EPOCHSECONDS EPOCHREALTIME PPID UID EUID GROUPS \
    SHLVL PIPESTATUS COLUMNS LINES PWD OLDPWD DIRSTACK HISTCMD FUNCNAME REPLY MAPFILE COPROC _";

/// Functions that the shell calls by itself, with words that stand nowhere as a call.
const CALLED_BY_SHELL: [&str; 2] = ["command_not_found_handle", "command_not_found_handler"];

/// Builtins that assign what stands behind them.
pub(super) const DECLARING: [&str; 5] = ["export", "readonly", "local", "declare", "typeset"];

/// The values that a line gives to its variables, wherever it does so. It is kept between the walks over one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    values: BTreeMap<String, BTreeSet<String>>,
    /// Variables that may hold other values, too.
    open: BTreeSet<String>,
    /// Functions that are called with unknown words.
    open_calls: BTreeSet<String>,
    /// True if nothing is known of any variable.
    all_open: bool,
}

impl Told {
    /// Takes note of the values of an assignment. `None` if they are not known.
    pub(super) fn note(&mut self, name: &str, values: Option<BTreeSet<String>>) {
        let Some(values) = values.filter(|values| values.iter().all(|value| value.len() <= LONGEST)) else {
            self.open.insert(name.to_owned());
            return;
        };
        let known = self.values.entry(name.to_owned()).or_default();
        known.extend(values);
        if known.len() > MOST_VALUES {
            self.open.insert(name.to_owned());
        }
    }

    /// Every value that the line gives to `name`. `None` if there may be others.
    pub(super) fn values(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.values.get(name).filter(|_| !self.all_open && !self.open.contains(name))
    }

    /// Takes note that the function `name` is called with unknown words.
    pub(super) fn note_open_call(&mut self, name: &str) {
        self.open_calls.insert(name.to_owned());
    }

    /// Whether the words of each call of the function `name` are known.
    pub(super) fn knows_calls(&self, name: &str) -> bool {
        !self.all_open && !self.open_calls.contains(name)
    }

    /// Takes note that nothing is known of any variable.
    pub(super) const fn lose(&mut self) {
        self.all_open = true;
    }

    /// Takes note of a word that braces made: no mention shows a name that it holds.
    pub(super) fn note_made(&mut self, raw: &str) {
        let plain = raw.replace(['\\', '\'', '"'], "");
        let names = plain.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|name| !name.is_empty());
        names.for_each(|name| self.note(name, None));
    }

    /// Whether anything is known of variables and parameters.
    pub(super) const fn is_lost(&self) -> bool {
        self.all_open
    }

    /// Whether less is known than `before`.
    pub(super) fn lost_since(&self, before: &Self) -> bool {
        self.open != before.open || self.open_calls != before.open_calls || self.all_open != before.all_open
    }
}

/// One text that a shell reads, with what is known at the command at hand.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    is_open: bool,
    /// The variables of which each mention is a plain assignment or a read.
    variables: BTreeSet<String>,
    /// The functions of which each mention is their definition or a plain call.
    functions: BTreeMap<String, Rc<ast::CompoundCommand>>,
    /// Whether the positional parameters stay those of the call.
    keeps_parameters: bool,
    /// Whether unquoted values are cut at blanks.
    cuts_at_blanks: bool,
    /// The variables that are assigned on every way to the command at hand.
    pub(super) assigned: BTreeSet<String>,
    /// The positional parameters of the function around it.
    pub(super) parameters: Option<Vec<String>>,
}

impl Scope {
    /// Reads what `program`, which is `text`, assigns, defines and calls. The first text in a scope counts.
    pub(super) fn open(&mut self, text: &str, program: &ast::Program) {
        if self.is_open {
            return;
        }
        self.is_open = true;
        // Quotes of these kinds may hide a name.
        if text.contains("$'") || text.contains("$\"") {
            return;
        }
        let plain = text.replace("\\\n", "").replace(['\\', '\'', '"'], "");
        let mentions = mentions(&plain);
        let mut survey = Survey::default();
        program.complete_commands.iter().for_each(|list| survey.list(list));
        let count = |name: &str| mentions.get(name).copied().unwrap_or(0);
        let is_changing =
            |name: &str| name.starts_with("BASH") || CHANGING.split_ascii_whitespace().any(|known| known == name);
        let is_plain = |(name, sites): &(&String, &usize)| count(name) == **sites && !is_changing(name);
        self.variables = survey.sites.iter().filter(is_plain).map(|(name, _)| name.clone()).collect();
        let calls = |name: &str| survey.calls.get(name).copied().unwrap_or(0);
        let is_followed = |(name, bodies): &(String, Vec<_>)| {
            let is_called = calls(name) > 0 && count(name) == calls(name) + 1;
            bodies.len() == 1 && is_called && !CALLED_BY_SHELL.contains(&name.as_str())
        };
        self.keeps_parameters = count("shift") == 0 && count("set") == survey.plain_sets;
        self.cuts_at_blanks = count("IFS") == 0 && !plain.contains("$IFS");
        let functions = survey.functions.into_iter().filter(is_followed);
        self.functions = functions.filter_map(|(name, bodies)| Some((name, bodies.into_iter().next()?))).collect();
    }

    /// Takes note that `name` is assigned from here on.
    pub(super) fn assign(&mut self, name: &str) {
        // The set is copied at each command.
        if self.assigned.len() < MOST_ASSIGNED {
            self.assigned.insert(name.to_owned());
        }
    }

    /// Whether `name` is assigned on every way to the command at hand, and only plainly.
    pub(super) fn is_assigned(&self, name: &str) -> bool {
        self.assigned.contains(name) && self.variables.contains(name)
    }

    /// The body of the function `name`, if each mention of it is plain.
    pub(super) fn function(&self, name: &str) -> Option<Rc<ast::CompoundCommand>> {
        self.functions.get(name).cloned()
    }

    /// Whether the positional parameters stay those of the call.
    pub(super) const fn keeps_parameters(&self) -> bool {
        self.keeps_parameters
    }

    /// All of `parameters` in one word. `None` if that is not known.
    pub(super) fn joined(&self, parameters: &[String]) -> Option<Word> {
        self.cuts_at_blanks.then(|| Word::said(&parameters.join(" ")))
    }

    /// The words that `value` comes to. `None` if that is not known.
    pub(super) fn parts(&self, raw: &str, value: &str, splits: bool) -> Option<Vec<Word>> {
        if !splits {
            return Some(vec![Word::said(value)]);
        }
        let is_cut = value.contains(char::is_whitespace);
        let is_plain = self.cuts_at_blanks && !value.contains(['*', '?', '[', '\\']);
        // A quoted part is not cut.
        (is_plain && !(is_cut && raw.contains(['"', '\'', '\\'])))
            .then(|| value.split([' ', '\t', '\n']).filter(|part| !part.is_empty()).map(Word::said).collect())
    }
}

/// How often a text mentions each name other than to read it as a variable.
fn mentions(text: &str) -> BTreeMap<&str, usize> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeMap::new();
    let mut rest = 0;
    while let Some(start) = text[rest..].find(is_name).map(|at| rest + at) {
        let end = text[start..].find(|c| !is_name(c)).map_or(text.len(), |at| start + at);
        let (before, behind) = (&text[..start], &text[end..]);
        let is_set = behind.starts_with('=') || behind.starts_with(":=");
        let is_read = before.ends_with('$') || before.ends_with("${") && !is_set;
        if !is_read {
            *found.entry(&text[start..end]).or_insert(0) += 1;
        }
        rest = end;
    }
    found
}

/// What the tree of a text assigns, defines and calls.
#[derive(Default)]
struct Survey {
    sites: BTreeMap<String, usize>,
    functions: BTreeMap<String, Vec<Rc<ast::CompoundCommand>>>,
    calls: BTreeMap<String, usize>,
    /// How often `set` leaves the parameters alone.
    plain_sets: usize,
}

impl Survey {
    fn list(&mut self, list: &ast::CompoundList) {
        list.0.iter().flat_map(|item| &item.0).flat_map(|(_, one)| &one.seq).for_each(|one| self.command(one));
    }

    fn command(&mut self, command: &ast::Command) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple),
            ast::Command::Compound(compound, _) => self.compound(compound),
            ast::Command::Function(function) => {
                let bodies = self.functions.entry(function.fname.value.clone()).or_default();
                bodies.push(Rc::new(function.body.0.clone()));
                self.compound(&function.body.0);
            }
            ast::Command::ExtendedTest(..) => {}
        }
    }

    fn simple(&mut self, command: &ast::SimpleCommand) {
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        prefix.filter_map(assignment).for_each(|(name, _)| self.site(name));
        let Some(program) = &command.word_or_name else { return };
        *self.calls.entry(program.value.clone()).or_insert(0) += 1;
        let suffix = || command.suffix.iter().flat_map(|suffix| &suffix.0);
        if DECLARING.contains(&program.value.as_str()) {
            let is_kept = matches!(program.value.as_str(), "export" | "readonly");
            let plain = suffix().filter_map(declaration).filter(|(_, value)| is_kept || value.is_some());
            plain.for_each(|(name, _)| self.site(name));
        }
        let words: Vec<&str> = suffix().filter_map(plain_word).collect();
        self.plain_sets += usize::from(program.value == "set" && super::simple::only_ends_earlier(&words));
    }

    fn site(&mut self, name: &str) {
        *self.sites.entry(name.to_owned()).or_insert(0) += 1;
    }

    fn compound(&mut self, compound: &ast::CompoundCommand) {
        match compound {
            ast::CompoundCommand::Arithmetic(_) => {}
            ast::CompoundCommand::ArithmeticForClause(clause) => self.list(&clause.body.list),
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list),
            ast::CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            ast::CompoundCommand::ForClause(clause) => {
                self.site(&clause.variable_name);
                self.list(&clause.body.list);
            }
            ast::CompoundCommand::CaseClause(clause) => {
                clause.cases.iter().flat_map(|case| &case.cmd).for_each(|list| self.list(list));
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for branch in clause.elses.iter().flatten() {
                    branch.condition.iter().for_each(|list| self.list(list));
                    self.list(&branch.body);
                }
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            ast::CompoundCommand::Coprocess(coprocess) => self.command(&coprocess.body),
        }
    }
}

/// The name and the value, as it is written, of a plain assignment.
pub(super) fn assignment(item: &ast::CommandPrefixOrSuffixItem) -> Option<(&str, &str)> {
    match item {
        ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => match (&assignment.name, &assignment.value) {
            (ast::AssignmentName::VariableName(name), ast::AssignmentValue::Scalar(value)) if !assignment.append => {
                Some((name, &value.value))
            }
            _ => None,
        },
        ast::CommandPrefixOrSuffixItem::Word(_)
        | ast::CommandPrefixOrSuffixItem::IoRedirect(_)
        | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
    }
}

/// The same of a word behind a declaring builtin. Without a value for a name that only gets an attribute.
pub(super) fn declaration(item: &ast::CommandPrefixOrSuffixItem) -> Option<(&str, Option<&str>)> {
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match plain_word(item) {
        Some(word) => match word.split_once('=') {
            Some((name, value)) => is_name(name).then_some((name, Some(value))),
            None => is_name(word).then_some((word, None)),
        },
        None => assignment(item).map(|(name, value)| (name, Some(value))),
    }
}

/// A word as it is written.
pub(super) fn plain_word(item: &ast::CommandPrefixOrSuffixItem) -> Option<&str> {
    match item {
        ast::CommandPrefixOrSuffixItem::Word(word) => Some(&word.value),
        ast::CommandPrefixOrSuffixItem::AssignmentWord(..)
        | ast::CommandPrefixOrSuffixItem::IoRedirect(_)
        | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
    }
}

/// The commands that `argv` may come to, where words of it are known. `None` if none is, or there are too many.
pub(super) fn commands(argv: &[Word]) -> Option<Vec<Vec<Word>>> {
    if argv.iter().all(|word| word.known.is_empty()) {
        return None;
    }
    let mut all: Vec<Vec<Word>> = vec![Vec::new()];
    for word in argv {
        let itself = [vec![word.clone()]];
        let choices = if word.known.is_empty() { &itself[..] } else { &word.known };
        if all.len() * choices.len() > MOST_VALUES {
            return None;
        }
        let longer = |begun: &Vec<Word>| choices.iter().map(|words| [begun.as_slice(), words].concat()).collect();
        all = all.iter().flat_map(|begun| -> Vec<Vec<Word>> { longer(begun) }).collect();
    }
    Some(all)
}
