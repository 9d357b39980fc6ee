//! Commands whose words the line itself tells: variables that it sets before, and functions that it calls.

use std::{collections::BTreeSet, ops::Range};

use brush_parser::ast;

use super::Walk;
use crate::{
    simple::{self, Cover},
    told::{self, DECLARING, MOST_VALUES, Scope},
    word::{self, GLOB, UNKNOWN, Word},
};

/// The most functions around one another that are followed, and the most calls in one line.
const MOST_DEEP: usize = 4;
const MOST_CALLS: usize = 32;

/// What of a walk is followed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) scope: Scope,
    /// True while commands are judged that rules need not cover, for they are judged elsewhere as they are written.
    pub(super) supposes: bool,
    /// How many loops there are around the command at hand.
    pub(super) loops: usize,
    /// True while a command is judged as it is written and its words are known.
    is_written: bool,
    /// True in the body of a function of which each call is judged, as far as is known.
    is_defined: bool,
    /// The functions around the command at hand.
    around: Vec<String>,
    calls: usize,
    called: BTreeSet<String>,
    /// The commands of the bodies of functions, as defined.
    defined: Vec<(String, Range<usize>)>,
}

/// The variables that are assigned where a list of commands succeeds, and where it fails.
#[derive(Default)]
pub(super) struct Outcomes(Option<[BTreeSet<String>; 2]>);

impl Outcomes {
    pub(super) fn begin(&self, is_or: bool, scope: &mut Scope) {
        if let Some(outcomes) = &self.0 {
            scope.assigned.clone_from(&outcomes[usize::from(is_or)]);
        }
    }

    pub(super) fn end(&mut self, is_or: bool, is_negated: bool, scope: &Scope) {
        let after = scope.assigned.clone();
        let mut outcomes = match self.0.take() {
            None => [after.clone(), after],
            Some([yes, _]) if is_or => [&yes & &after, after],
            Some([_, no]) => [after.clone(), &no & &after],
        };
        if is_negated {
            outcomes.swap(0, 1);
        }
        self.0 = Some(outcomes);
    }

    pub(super) fn both(self) -> BTreeSet<String> {
        self.0.map(|[yes, no]| &yes & &no).unwrap_or_default()
    }
}

/// The variables that are assigned on each of several ways.
pub(super) struct Ways {
    before: BTreeSet<String>,
    after: Option<BTreeSet<String>>,
}

impl Ways {
    pub(super) fn of(scope: &Scope) -> Self {
        Self { before: scope.assigned.clone(), after: None }
    }

    /// Ends one way and begins the next.
    pub(super) fn end(&mut self, scope: &mut Scope) {
        let after = std::mem::replace(&mut scope.assigned, self.before.clone());
        self.after = Some(match self.after.take() {
            Some(known) => &known & &after,
            None => after,
        });
    }

    /// Ends all of them. `is_any` says that one of them is taken.
    pub(super) fn leave(self, is_any: bool, scope: &mut Scope) {
        scope.assigned = self.after.filter(|_| is_any).unwrap_or(self.before);
    }
}

impl Followed {
    /// Whether the command at hand is judged again in words that are known.
    pub(super) const fn is_judged_elsewhere(&self) -> bool {
        self.is_written || self.is_defined
    }
}

impl Walk<'_> {
    /// Judges a command, as it is written and in the words that it comes to.
    pub(super) fn run(&mut self, assignments: &[Word], argv: &[Word]) {
        let cover = if self.followed.supposes { Cover::Perhaps } else { Cover::Needed };
        let Some(commands) = told::commands(argv) else { return self.invoke(assignments, argv, cover, 0) };
        let from = self.line.commands.len();
        let is_written = std::mem::replace(&mut self.followed.is_written, true);
        self.invoke(assignments, argv, cover, 0);
        self.followed.is_written = is_written;
        self.line.commands[from..].iter_mut().for_each(|command| command.is_told = true);
        let (here, plain) = (self.here.clone(), self.line.plain.len());
        let supposes = std::mem::replace(&mut self.followed.supposes, true);
        for argv in commands {
            self.invoke(assignments, &argv, Cover::Perhaps, 0);
            self.here.clone_from(&here);
        }
        self.line.plain.truncate(plain);
        self.followed.supposes = supposes;
    }

    /// Judges the body of a function that `argv` calls, with its words as the parameters.
    pub(super) fn call(&mut self, argv: &[Word]) {
        let Some((name, words)) = argv.split_first().and_then(|(name, words)| Some((name.as_literal()?, words))) else {
            return;
        };
        if matches!(name, "." | "source") {
            self.variables.told.lose();
        }
        let is_in_function = self.followed.is_defined || !self.followed.around.is_empty();
        let arguments: Vec<&str> = words.iter().map(|word| word.value.as_str()).collect();
        if is_in_function && (name == "shift" || name == "set" && !simple::only_ends_earlier(&arguments)) {
            self.variables.told.lose();
        }
        let is_elsewhere = self.followed.is_judged_elsewhere();
        let Some(body) = self.followed.scope.function(name).filter(|_| !is_elsewhere) else { return };
        if self.followed.around.iter().any(|around| around == name) {
            // What it sets it may set again and again.
            self.variables.told.lose();
            return;
        }
        let literal: Option<Vec<String>> = words.iter().map(|word| word.as_literal().map(str::to_owned)).collect();
        let is_followed = self.followed.around.len() < MOST_DEEP && self.followed.calls < MOST_CALLS;
        let Some(parameters) = literal.filter(|_| is_followed) else {
            return self.variables.told.note_open_call(name);
        };
        self.followed.calls += 1;
        self.followed.called.insert(name.to_owned());
        self.followed.around.push(name.to_owned());
        let (here, fed, plain) = (self.here.clone(), self.fed, self.line.plain.len());
        let supposes = std::mem::replace(&mut self.followed.supposes, true);
        let assigned = self.followed.scope.assigned.clone();
        let is_kept = self.followed.scope.keeps_parameters() && !self.variables.told.is_lost();
        let given = Some(parameters).filter(|_| is_kept);
        let around = std::mem::replace(&mut self.followed.scope.parameters, given);
        let is_defined = std::mem::replace(&mut self.followed.is_defined, false);
        self.compound(&body);
        self.followed.is_defined = is_defined;
        self.followed.scope.parameters = around;
        self.followed.scope.assigned = assigned;
        self.followed.supposes = supposes;
        self.line.plain.truncate(plain);
        (self.here, self.fed) = (here, fed);
        self.followed.around.pop();
    }

    /// Judges the body of a function that may be called anywhere, with any words.
    pub(super) fn defined(&mut self, function: &ast::FunctionDefinition) {
        let from = self.line.commands.len();
        let assigned = std::mem::take(&mut self.followed.scope.assigned);
        let parameters = self.followed.scope.parameters.take();
        let name = &function.fname.value;
        let is_followed = self.followed.scope.function(name).is_some();
        let is_known = is_followed && self.variables.told.knows_calls(name);
        let is_defined = std::mem::replace(&mut self.followed.is_defined, is_known);
        self.compound(&function.body.0);
        self.followed.is_defined = is_defined;
        self.followed.scope.parameters = parameters;
        self.followed.scope.assigned = assigned;
        if is_followed {
            self.followed.defined.push((name.clone(), from..self.line.commands.len()));
        }
    }

    /// Marks the commands of functions of which all calls are known and judged.
    pub(super) fn settle_functions(&mut self) {
        for (name, commands) in std::mem::take(&mut self.followed.defined) {
            if self.followed.called.contains(&name) && self.variables.told.knows_calls(&name) {
                self.line.commands[commands].iter_mut().for_each(|command| command.is_told = true);
            }
        }
    }

    /// Takes note of what a command assigns.
    pub(super) fn note_assigned(&mut self, command: &ast::SimpleCommand, argv: &[Word]) {
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        for (name, value) in prefix.filter_map(told::assignment) {
            let values = self.values_of(value);
            self.note_values(name, values);
            if argv.is_empty() {
                self.followed.scope.assign(name);
            }
        }
        let Some(program) = command.word_or_name.as_ref().filter(|name| DECLARING.contains(&name.value.as_str()))
        else {
            return;
        };
        let suffix = || command.suffix.iter().flat_map(|suffix| &suffix.0);
        // Others change the value on its way.
        let is_plain = |word: &str| !word.starts_with(['-', '+']) || matches!(word, "-x" | "-g" | "-r" | "-gx" | "--");
        let are_plain = suffix().filter_map(told::plain_word).all(is_plain);
        for (name, value) in suffix().filter_map(told::declaration) {
            let Some(value) = value else {
                if !are_plain {
                    self.note_values(name, None);
                }
                continue;
            };
            let values = self.values_of(value).filter(|_| are_plain);
            self.note_values(name, values);
            // A function's own is gone when the function ends, and so is the outer one in the meantime.
            if !matches!(program.value.as_str(), "local") || !self.followed.around.is_empty() {
                self.followed.scope.assign(name);
            }
        }
    }

    /// Takes note of one of the values that a loop gives to its variable.
    pub(super) fn note_looped(&mut self, name: &str, word: &Word) {
        let value = word.as_literal().map(|text| BTreeSet::from([(text.to_owned(), false)]));
        self.note_values(name, value);
    }

    /// Takes note of the variable of a loop, which is set in its body.
    pub(super) fn note_looping(&mut self, clause: &ast::ForClauseCommand) {
        match clause.values {
            Some(_) => self.followed.scope.assign(&clause.variable_name),
            // It goes through the parameters.
            None => self.note_values(&clause.variable_name, None),
        }
    }

    fn note_values(&mut self, name: &str, values: Option<BTreeSet<(String, bool)>>) {
        // In a loop a value that is made of others may be made again.
        let is_repeated = self.followed.loops > 0;
        let values = values.and_then(|values| -> Option<BTreeSet<String>> {
            values.into_iter().map(|(value, is_made)| (!is_made || !is_repeated).then_some(value)).collect()
        });
        // What is not known in a body as it is defined is known where it is called.
        if values.is_some() || !self.followed.is_defined {
            self.variables.told.note(name, values);
        }
    }

    /// The values that a value of an assignment may come to, with whether it is made of others. `None` if they are not known.
    fn values_of(&self, raw: &str) -> Option<BTreeSet<(String, bool)>> {
        let word = word::scan(raw, self.folders().as_known(&[]));
        let is_plain = !word.value.contains(GLOB) && word.runs.is_empty() && !word.disguised && !raw.contains(":~");
        if !is_plain {
            return None;
        }
        if !word.value.contains(UNKNOWN) {
            return Some(BTreeSet::from([(word.value, false)]));
        }
        let found = self.tried(&word)?;
        found.into_iter().map(|value| (!value.contains(GLOB)).then_some((value, true))).collect()
    }

    /// The words that `word` comes to on each way, if the line tells all of them.
    pub(super) fn known(&mut self, word: &Word) -> Vec<Vec<Word>> {
        if !word.value.contains(UNKNOWN) || !word.runs.is_empty() || word.disguised {
            return Vec::new();
        }
        if let Some(words) = self.parameters(word) {
            return vec![words];
        }
        let Some(values) = self.tried(word) else { return Vec::new() };
        if self.is_spent_by(values.len() * word.raw.len()) {
            return Vec::new();
        }
        let parts = |value: String| self.followed.scope.parts(&word.raw, &value, word.splits);
        values.into_iter().map(parts).collect::<Option<_>>().unwrap_or_default()
    }

    /// All parameters of the function around it, if `word` is these and nothing else.
    fn parameters(&self, word: &Word) -> Option<Vec<Word>> {
        let (scope, raw) = (&self.followed.scope, word.raw.as_str());
        let parameters = scope.parameters.as_ref()?;
        match raw {
            "\"$@\"" | "\"${@}\"" => Some(parameters.iter().map(|text| Word::said(text)).collect()),
            "$@" | "$*" | "${@}" | "${*}" => {
                let parts: Option<Vec<Vec<Word>>> =
                    parameters.iter().map(|text| scope.parts(raw, text, true)).collect();
                parts.map(|parts| parts.concat())
            }
            "\"$*\"" | "\"${*}\"" => scope.joined(parameters).map(|word| vec![word]),
            _ => None,
        }
    }

    /// The texts that `word` comes to, if the line tells all of them.
    fn tried(&self, word: &Word) -> Option<Vec<String>> {
        let mut given: Vec<(String, String)> = Vec::new();
        if let Some(parameters) = &self.followed.scope.parameters {
            let numbered = |at: usize| parameters.get(at - 1).cloned().unwrap_or_default();
            given.extend((1..=parameters.len().max(9)).map(|at| (at.to_string(), numbered(at))));
            given.push(("#".to_owned(), parameters.len().to_string()));
        }
        let mut choices = vec![given];
        for name in word.names.iter().collect::<BTreeSet<_>>() {
            if choices[0].iter().any(|(given, _)| given == name) {
                continue;
            }
            let is_assigned = self.followed.scope.is_assigned(name);
            let values = self.variables.told.values(name).filter(|_| is_assigned)?;
            if choices.len() * values.len() > MOST_VALUES {
                return None;
            }
            let with = |choice: &Vec<(String, String)>| {
                let longer = |value: &String| [choice.as_slice(), &[(name.clone(), value.clone())]].concat();
                values.iter().map(longer).collect::<Vec<_>>()
            };
            choices = choices.iter().flat_map(with).collect();
        }
        let folders = self.folders();
        let texts = choices.iter().map(|choice| word::scan(&word.raw, folders.as_known(choice)).value);
        texts.map(|text| (!text.contains(UNKNOWN)).then_some(text)).collect()
    }
}
