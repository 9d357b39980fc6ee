//! Walks the tree of a parsed line and notes every command in it.

use std::collections::BTreeSet;

use brush_parser::{Token, ast};

use super::{
    call_graph::CallGraph,
    classes,
    cwd::PossibleCwd,
    dataflow::FlowSigns,
    declarations, descriptors, grammar, limits,
    line::{CommandAnalysis, LineAnalysis, Place, StartFolder},
    loops,
    path_globs::HiddenNames,
    programs, protect, simple_command, stdin, tokenizer,
    variables::{LineVariables, TooManyValues},
    word::{self, GLOB, KnownVariables, ShellWord},
};
use crate::action_class::ActionClass as Class;

mod commands;
mod possible;
mod test_expressions;
mod unparsed;

/// Maximum nesting of texts: `sh -c "sh -c …"`, substitutions in substitutions.
const MOST_TEXTS_DEEP: usize = 8;

/// The most commands that are noted, unwrapped ones included.
const MOST_COMMANDS: usize = 4_000;

/// The most that is judged of one line, in bytes: of its texts, and of its commands with what their words may be. Wrappers in wrappers
/// may hand on as much as they like.
const MOST_JUDGED: usize = 1 << 20;
/// The most bytes of commands in the arguments of programs that are not known. Beyond them such a program may run any command.
const MOST_WRAPPED: usize = 1 << 20;
/// The most wrappers in the arguments of such a program that are unwrapped.
const MOST_WRAPPERS: usize = 4;

/// The most words that braces may make in one line.
const MOST_MADE: usize = 4_000;

/// One walk over one line.
pub(super) struct LineWalk<'a> {
    place: &'a Place,
    line: LineAnalysis,
    here: PossibleCwd,
    depth: usize,
    /// Number of words that braces made.
    made: usize,
    /// Number of bytes that were judged.
    judged: usize,
    /// Size of the commands that programs which are not known may run, in bytes.
    wrapped: usize,
    /// True while what the command at hand reads on its input is written out in the line.
    fed: bool,
    /// Texts of the line that the command at hand may read on its input, through groups, loops and wrappers around it too.
    inputs: Vec<String>,
    /// Number of the first of them that were judged as the commands of a program that may obey them.
    noted_inputs: usize,
    /// Texts that the commands walked so far may write on their output: what they are given as input, and what `echo` says.
    outputs: Vec<String>,
    calls: CallGraph,
    /// Variables that the line itself may set, so that they are unknown: the home for `~`, the target of `cd`.
    sets_home: bool,
    sets_folders: bool,
    /// True if the line may set the signs at which the shell cuts words.
    sets_cuts: bool,
    /// True if the shell computes a number or an index in the line, and with it what a variable holds.
    computes: bool,
    /// Texts of the line with expansions in them that quotes keep.
    kept: BTreeSet<String>,
    variables: LineVariables,
    /// All of the line.
    command: &'a str,
    /// The variables of loops around the command at hand that hold what these tell.
    settled: Vec<String>,
}

impl<'a> LineWalk<'a> {
    /// Judges `command`. A line that sets variables is walked again, so that what they may be is known from its start on.
    pub(super) fn judge_line(command: &'a str, place: &'a Place) -> LineAnalysis {
        let mut variables = LineVariables::new(place);
        let before = variables.clone();
        let signs = FlowSigns::from_text(command);
        let mut line = Self::walk_line(command, place, &mut variables, signs);
        if variables != before {
            line = Self::walk_line(command, place, &mut variables, signs);
        }
        // Braces and escapes may spell what its text does not show.
        let all = signs.merged_with(line.met);
        if all == signs { line } else { Self::walk_line(command, place, &mut variables, all) }
    }

    fn walk_line(command: &'a str, place: &'a Place, variables: &mut LineVariables, signs: FlowSigns) -> LineAnalysis {
        let sets = |name: &str| may_set(command, name) || place.environment.iter().any(|(given, _)| given == name);
        let matches_hidden = ["shopt", "dotglob", "GLOBIGNORE"].into_iter().any(sets);
        let hidden_names = if matches_hidden { HiddenNames::Matched } else { HiddenNames::PassedOver };
        let mut here = match &place.start {
            StartFolder::Folder(folder) => PossibleCwd::from_dir(folder, hidden_names),
            StartFolder::Working | StartFolder::Unknown => PossibleCwd::from_dir(&place.cwd, hidden_names),
        };
        if place.start == StartFolder::Unknown {
            here.lose_track();
        }
        let mut walk = Self {
            place,
            line: LineAnalysis { signs, is_input_open: true, ..LineAnalysis::default() },
            here,
            depth: 0,
            made: 0,
            judged: 0,
            wrapped: 0,
            fed: false,
            inputs: Vec::new(),
            noted_inputs: 0,
            outputs: Vec::new(),
            calls: CallGraph::default(),
            sets_home: sets("HOME"),
            sets_folders: sets("PWD") || sets("CDPATH"),
            sets_cuts: may_set(command, "IFS"),
            computes: false,
            kept: BTreeSet::new(),
            variables: std::mem::take(variables),
            command,
            settled: Vec::new(),
        };
        if let Some(beside) = &place.beside {
            walk.line.note_opaque(beside.as_str());
        }
        walk.walk_text(command);
        walk.note_computed();
        walk.line.settle_assignments();
        if walk.calls.has_multiplying_cycle() {
            walk.line.note_floor("multiplies itself without end");
        }
        if walk.line.floor.is_some() {
            walk.line.classes.insert(Class::BashDestructive);
        }
        *variables = walk.variables;
        walk.line
    }

    fn walk_text(&mut self, text: &str) {
        if let Some(reason) = limits::too_much(text) {
            return self.note_beyond(reason);
        }
        if self.depth >= MOST_TEXTS_DEEP || self.is_spent_by(text.len()) {
            return self.note_beyond("is too involved to be judged");
        }
        let Some(tokens) = grammar::tokenize_text(text) else { return self.note_unparsable(text) };
        if let Some(reason) = limits::too_deep(&tokens) {
            return self.note_beyond(reason);
        }
        if !tokenizer::agrees_with_grammar(text, &tokens) {
            return self.note_unparsable(text);
        }
        if let Some(text) = tokenizer::inline_documents(text) {
            return self.walk_text(&text);
        }
        if let Some(text) = descriptors::without_names(text, &tokens) {
            self.line.note_opaque("a redirection that sets a variable");
            self.depth += 1;
            for word in tokens
                .iter()
                .map(Token::to_str)
                .filter(|word| limits::is_involved_index(&word[usize::from(word.starts_with('{'))..]))
            {
                self.run_live(word);
            }
            self.depth -= 1;
            return self.walk_text(&text);
        }
        if tokens.iter().any(|token| limits::is_involved_index(token.to_str())) {
            return self.note_involved(text, &tokens);
        }
        match grammar::parse_program(&tokens) {
            Some(program) => {
                self.depth += 1;
                program.complete_commands.iter().for_each(|list| self.walk_list(list));
                self.depth -= 1;
            }
            None => self.note_unparsable(text),
        }
    }

    /// Takes note that so much more is judged. True if it is too much.
    pub(super) const fn is_spent_by(&mut self, bytes: usize) -> bool {
        // Nothing comes without a price.
        self.judged = self.judged.saturating_add(bytes).saturating_add(64);
        self.judged > MOST_JUDGED
    }

    /// Analyses a text that runs in a place of its own: a subshell, as far as folders go.
    fn walk_aside(&mut self, text: &str) {
        let (here, fed) = (self.here.clone(), self.fed);
        self.walk_text(text);
        (self.here, self.fed) = (here, fed);
    }

    /// Analyses the text of a substitution in the same way.
    fn walk_within(&mut self, text: &str) {
        let around = self.calls.go_within();
        self.walk_aside(text);
        self.calls.leave_within(around);
    }

    /// Analyses in the same way a text that another shell reads, or this one at another time: the variables of loops are others there.
    fn walk_apart(&mut self, text: &str) {
        let settled = std::mem::take(&mut self.settled);
        self.walk_aside(text);
        self.settled = settled;
    }

    fn walk_list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let background = matches!(separator, ast::SeparatorOperator::Async);
            let here = self.here.clone();
            let before = self.here.begin_list();
            for (operator, pipeline) in and_or {
                if matches!(operator, ast::PipelineOperator::Or) {
                    self.here.lose_list();
                }
                self.walk_pipeline(pipeline, background);
                if pipeline.bang {
                    self.here.lose_list();
                }
            }
            self.here.end_list(before);
            // It runs in the background, all of it in one process.
            if background {
                self.here = here;
            }
        }
    }

    /// Notes that a shell may run any command here.
    fn any_command(&mut self) {
        let begun = vec![format!("{}(", self.place.tool)];
        self.line.commands.push(CommandAnalysis { begun, ..CommandAnalysis::default() });
    }

    fn walk_pipeline(&mut self, pipeline: &ast::Pipeline, background: bool) {
        let piped = pipeline.seq.len() > 1;
        let around = self.calls.is_beside();
        if piped || background {
            self.calls.go_beside(true);
        }
        for text in stdin::texts_for_a_shell(&pipeline.seq) {
            self.line.note_opaque("a shell that reads its commands from elsewhere");
            self.walk_aside(&text);
        }
        if stdin::reads_unknown(&pipeline.seq) {
            self.any_command();
        }
        for text in stdin::texts_for_another(&pipeline.seq) {
            self.suppose_commands(&text);
        }
        if let Some(client) = stdin::database_client(&pipeline.seq) {
            self.line.note_opaque(format!("what {client} reads on its input"));
        }
        let (around_inputs, mut passed_on) = (self.inputs.len(), self.outputs.len());
        let around_open = self.line.is_input_open;
        for (at, command) in pipeline.seq.iter().enumerate() {
            self.fed = stdin::is_written_out(&pipeline.seq, at);
            // What a program before it reads, it may pass on.
            self.line.is_input_open &= !self.fed && !stdin::gives_input(command);
            let here = self.here.clone();
            let given = stdin::document_texts(command);
            self.inputs.extend(given.iter().cloned());
            self.walk_command(command);
            self.outputs.extend(stdin::echoed_text(command));
            self.inputs.extend_from_slice(&self.outputs[passed_on..]);
            self.outputs.extend(given);
            passed_on = self.outputs.len();
            if piped {
                self.here = here;
            }
        }
        self.line.is_input_open = around_open;
        self.inputs.truncate(around_inputs);
        self.noted_inputs = self.noted_inputs.min(around_inputs);
        self.calls.go_beside(around);
        self.line.plain.push(format!("|{}", u8::from(pipeline.bang)));
    }

    fn walk_command(&mut self, command: &ast::Command) {
        match command {
            ast::Command::Simple(simple) => self.walk_simple(simple),
            ast::Command::Compound(compound, redirects) => {
                self.walk_redirects(redirects.as_ref());
                self.walk_compound(compound);
            }
            ast::Command::Function(function) => {
                if classes::means_something(&function.fname.value) {
                    self.line.classes.insert(Class::BashDestructive);
                }
                let around = self.calls.enter_function(&function.fname.value);
                self.walk_redirects(function.body.1.as_ref());
                // Its body runs when it is called, perhaps somewhere else.
                self.line.note_opaque("a function");
                self.walk_compound(&function.body.0);
                self.calls.leave_function(around);
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.walk_redirects(redirects.as_ref());
                self.walk_test(&test.expr);
            }
        }
    }

    fn walk_compound(&mut self, compound: &ast::CompoundCommand) {
        self.line.plain.push(format!("{:?}", std::mem::discriminant(compound)));
        match compound {
            ast::CompoundCommand::Arithmetic(arithmetic) => {
                self.computes = true;
                self.run_live(&arithmetic.expr.value);
                // `((a) )` is two subshells to the shell; the grammar cannot tell.
                self.walk_aside(&arithmetic.expr.value);
                self.line.note_opaque("arithmetic over names");
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                self.computes = true;
                for part in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.run_live(&part.value);
                }
                self.line.note_opaque("arithmetic over names");
                self.walk_repeated(&[&clause.body.list]);
            }
            ast::CompoundCommand::BraceGroup(group) => self.walk_list(&group.list),
            ast::CompoundCommand::Subshell(subshell) => {
                let here = self.here.clone();
                self.walk_list(&subshell.list);
                self.here = here;
            }
            ast::CompoundCommand::ForClause(clause) => {
                let mut values = Vec::new();
                for value in clause.values.iter().flatten() {
                    for word in self.scan_words(&value.value) {
                        self.variables.set_value(&clause.variable_name, &word);
                        values.push(word);
                    }
                    self.run_expansions(value);
                }
                if programs::is_dangerous_variable(&clause.variable_name) {
                    self.line.note_opaque(declarations::assignment_reason(&clause.variable_name));
                }
                let around = self.settled.clone();
                if !self.is_spent_by(self.command.len()) && loops::settles_variable(self.command, clause, &values) {
                    self.settled.push(clause.variable_name.clone());
                }
                self.walk_repeated(&[&clause.body.list]);
                self.settled = around;
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.run_expansions(&clause.value);
                for case in &clause.cases {
                    case.patterns.iter().for_each(|pattern| self.run_expansions(pattern));
                    case.cmd.iter().for_each(|list| self.walk_list(list));
                }
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.walk_list(&clause.condition);
                self.walk_list(&clause.then);
                for branch in clause.elses.iter().flatten() {
                    branch.condition.iter().for_each(|list| self.walk_list(list));
                    self.walk_list(&branch.body);
                }
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.walk_repeated(&[&clause.0, &clause.1.list])
            }
            ast::CompoundCommand::Coprocess(coprocess) => {
                self.line.note_opaque("a coprocess");
                let around = self.calls.is_beside();
                self.calls.go_beside(true);
                self.walk_command(&coprocess.body);
                self.calls.go_beside(around);
            }
        }
    }

    /// Walks a loop: one that changes folder may end anywhere, and is then walked again as if it had.
    fn walk_repeated(&mut self, lists: &[&ast::CompoundList]) {
        let before = self.here.clone();
        lists.iter().for_each(|list| self.walk_list(list));
        if self.here.has_left(&before) && !self.here.is_unknown() {
            self.here.lose_track();
            lists.iter().for_each(|list| self.walk_list(list));
        }
    }

    fn scan_words(&mut self, raw: &str) -> Vec<ShellWord> {
        let words =
            word::expand_braces(raw).ok().filter(|words| self.made + words.len() <= MOST_MADE || words.len() < 2);
        let Some(words) = words else {
            self.note_beyond("is too involved to be judged");
            return vec![self.scan_word(raw)];
        };
        self.made += words.len().saturating_sub(1);
        words.iter().map(|raw| self.scan_word(raw)).collect()
    }

    fn scan_word(&mut self, raw: &str) -> ShellWord {
        let folders = self.known_folders();
        let mut word = word::scan_word(raw, folders.as_known(&[]));
        self.computes |= may_compute(raw);
        self.keep_text(&word.value);
        if !word.names.is_empty() {
            let home = self.place.home.iter().map(|home| ("HOME", home.clone()));
            let dirs = self.here.possible_dirs().flat_map(|dir| [("PWD", dir.to_owned()), ("OLDPWD", dir.to_owned())]);
            let given = home.chain(dirs).chain([("IFS", " ".to_owned())]);
            match self.variables.value_choices(&word.names, &given.collect::<Vec<_>>()) {
                Ok(choices) if self.is_spent_by(choices.len() * raw.len()) => {
                    self.line.note_opaque("a variable with too many values");
                }
                Ok(choices) => {
                    let values = choices.iter().map(|tried| word::scan_word(raw, folders.as_known(tried)).value);
                    word.perhaps = values.filter(|value| *value != word.value).collect();
                }
                Err(TooManyValues) => self.line.note_opaque("a variable with too many values"),
            }
            let is_told = |name: &String| self.settled.contains(name) && self.variables.is_told(name);
            // If other signs may cut it, parts of it count.
            let is_whole = !word.splits || !self.sets_cuts;
            if word.names.iter().any(|name| self.variables.is_unfollowed(name)) {
                word.opaque = word.opaque.or(Some("a parameter expansion that is not followed"));
            }
            if word.names.iter().any(|name| self.variables.may_be_left(name)) {
                word.opaque = word.opaque.or(Some("a variable that an earlier line of this shell may have set"));
            }
            word.settled = word.names.iter().all(is_told) && !word.perhaps.is_empty() && is_whole;
        }
        word
    }

    /// Walks a word whose expansion matters, not its value.
    fn run_expansions(&mut self, word: &ast::Word) {
        for word in self.scan_words(&word.value) {
            self.run_all(&word);
            // As a pattern it is text, and of files that it finds another word tells.
            if !word.value.contains(GLOB) {
                protect::note_output_words(&mut self.line, self.place, &self.here, &[word]);
            }
        }
        self.line.plain.push(word.value.clone());
    }

    fn run_live(&mut self, text: &str) {
        let word = word::scan_live(text, self.known_folders().as_known(&[]));
        self.run_all(&word);
    }

    fn run_all(&mut self, word: &ShellWord) {
        if let Some(why) = word.opaque {
            self.line.note_opaque(why);
        }
        if word.disguised {
            self.line.note_floor(simple_command::DISGUISE);
        }
        word.runs.iter().for_each(|text| self.walk_within(text));
    }

    fn known_folders(&self) -> KnownFolders {
        let only = self.here.only_dir();
        let home = self.place.home.clone().filter(|_| !self.sets_home);
        KnownFolders { home, cwd: only.filter(|_| !self.sets_folders).map(str::to_owned) }
    }
}

struct KnownFolders {
    home: Option<String>,
    cwd: Option<String>,
}

impl KnownFolders {
    fn as_known<'k>(&'k self, tried: &'k [(String, String)]) -> KnownVariables<'k> {
        KnownVariables { home: self.home.as_deref(), cwd: self.cwd.as_deref(), tried }
    }
}

/// Reports whether a word may have the shell compute a number: in arithmetic, as an index, or as the place of a part.
fn may_compute(raw: &str) -> bool {
    raw.contains("$((") || raw.contains("$[") || raw.contains("${") && raw.contains(['[', ':'])
}

/// Reports whether `text` mentions a variable other than to read it. Quotes do not hide it.
fn may_set(text: &str, name: &str) -> bool {
    let text: String = text.chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect();
    text.match_indices(name).any(|(at, _)| !text[..at].ends_with('$') && !text[..at].ends_with("${"))
}
