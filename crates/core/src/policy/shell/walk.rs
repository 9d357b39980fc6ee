//! Walks the tree of a parsed line and notes every command in it.

use std::collections::BTreeSet;

use brush_parser::{Parser, Token, ast};

use super::{
    limits,
    line::{Line, Place},
    programs::{self, base_name},
    protect,
    simple::{self, Cover},
    unwrap::{self, Runs},
    word::{self, Known, UNKNOWN, Word},
};
use crate::policy::{contract::Class, path};

/// How many texts may lie inside one another: `sh -c "sh -c …"`, substitutions in substitutions.
const MOST_TEXTS_DEEP: usize = 8;

/// The most commands that are noted, unwrapped ones included.
const MOST_COMMANDS: usize = 4_000;

/// Where the shell may be at some point of a line: `cd` may fail, so it never leaves for sure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Here {
    dirs: BTreeSet<String>,
    unknown: bool,
}

impl Here {
    /// Every folder that it may be in, as far as known.
    pub(super) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.dirs.iter().map(String::as_str)
    }

    /// True if it may be anywhere.
    pub(super) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    fn go(&mut self, to: Option<&str>) {
        match to.filter(|to| !to.contains([UNKNOWN, word::GLOB]) && *to != "-" && self.dirs.len() < 16) {
            Some(to) => {
                let reached: Vec<String> = self.dirs.iter().map(|dir| path::resolve(dir, to)).collect();
                self.dirs.extend(reached);
            }
            None => self.unknown = true,
        }
    }
}

/// One walk over one line.
pub(super) struct Walk<'a> {
    place: &'a Place,
    line: Line,
    here: Here,
    depth: usize,
    functions: Vec<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(place: &'a Place) -> Self {
        let here = Here { dirs: BTreeSet::from([place.cwd.clone()]), unknown: false };
        Self { place, line: Line::default(), here, depth: 0, functions: Vec::new() }
    }

    pub(super) fn judge(mut self, command: &str) -> Line {
        self.text(command);
        self.line
    }

    fn text(&mut self, text: &str) {
        if let Some(reason) = limits::too_much(text) {
            return self.beyond(reason);
        }
        if self.depth >= MOST_TEXTS_DEEP {
            return self.beyond("is too involved to be judged");
        }
        let options = limits::options();
        let Ok(tokens) = brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()) else { return self.unparsable(text) };
        if let Some(reason) = limits::too_deep(&tokens) {
            return self.beyond(reason);
        }
        if tokens.iter().any(|token| limits::is_involved_index(token.to_str())) {
            return self.involved(text, &tokens);
        }
        match Parser::new(text.as_bytes(), &options).parse_program() {
            Ok(program) => {
                self.depth += 1;
                program.complete_commands.iter().for_each(|list| self.list(list));
                self.depth -= 1;
            }
            Err(_) => self.unparsable(text),
        }
    }

    /// What a text in a place of its own runs: a subshell, as far as folders go.
    fn aside(&mut self, text: &str) {
        let here = self.here.clone();
        self.text(text);
        self.here = here;
    }

    fn beyond(&mut self, reason: &str) {
        self.line.note_opaque(format!("a line that {reason}"));
        self.line.note_floor(reason);
        self.line.classes.insert(Class::BashDestructive);
    }

    fn unparsable(&mut self, text: &str) {
        self.line.note_opaque("text that cannot be parsed");
        self.line.classes.insert(Class::BashMutating);
        if let Some(program) = programs::mentions_destroyer(text) {
            self.line.note_floor(format!("cannot be parsed and names {program}"));
        }
    }

    /// A text that is not parsed for its array indices: what its words run is judged all the same.
    fn involved(&mut self, text: &str, tokens: &[Token]) {
        self.unparsable(text);
        self.depth += 1;
        for token in tokens {
            for word in self.words(token.to_str()) {
                self.run_all(&word);
            }
        }
        self.depth -= 1;
    }

    fn list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let background = matches!(separator, ast::SeparatorOperator::Async);
            for (_, pipeline) in and_or {
                self.pipeline(pipeline, background);
            }
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, background: bool) {
        let piped = pipeline.seq.len() > 1;
        if (piped || background) && pipeline.seq.iter().any(|command| self.calls_itself(command)) {
            self.line.note_floor("multiplies itself without end");
        }
        if piped && let Some(text) = echoed_to_shell(&pipeline.seq) {
            self.line.note_opaque("a shell that reads its commands from elsewhere");
            self.aside(&text);
        }
        for command in &pipeline.seq {
            let here = self.here.clone();
            self.command(command);
            if piped || background {
                self.here = here;
            }
        }
        self.line.plain.push(format!("|{}", u8::from(pipeline.bang)));
    }

    fn calls_itself(&self, command: &ast::Command) -> bool {
        let ast::Command::Simple(simple) = command else { return false };
        simple.word_or_name.as_ref().is_some_and(|name| self.functions.contains(&name.value))
    }

    fn command(&mut self, command: &ast::Command) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple),
            ast::Command::Compound(compound, redirects) => {
                self.redirects(redirects.as_ref());
                self.compound(compound);
            }
            ast::Command::Function(function) => {
                self.functions.push(function.fname.value.clone());
                self.redirects(function.body.1.as_ref());
                // Its body runs when it is called, perhaps somewhere else.
                self.line.note_opaque("a function");
                self.compound(&function.body.0);
                self.functions.pop();
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref());
                self.test(&test.expr);
            }
        }
    }

    fn compound(&mut self, compound: &ast::CompoundCommand) {
        self.line.plain.push(format!("{:?}", std::mem::discriminant(compound)));
        match compound {
            ast::CompoundCommand::Arithmetic(arithmetic) => {
                self.live(&arithmetic.expr.value);
                // `((a) )` is two subshells to the shell; the grammar cannot tell.
                self.aside(&arithmetic.expr.value);
                self.line.note_opaque("arithmetic over names");
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                for part in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.live(&part.value);
                }
                self.line.note_opaque("arithmetic over names");
                self.repeated(&[&clause.body.list]);
            }
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list),
            ast::CompoundCommand::Subshell(subshell) => {
                let here = self.here.clone();
                self.list(&subshell.list);
                self.here = here;
            }
            ast::CompoundCommand::ForClause(clause) => {
                for value in clause.values.iter().flatten() {
                    self.expanded(value);
                }
                if programs::is_dangerous_variable(&clause.variable_name) {
                    self.line.note_opaque(format!("an assignment to {}", clause.variable_name));
                }
                self.repeated(&[&clause.body.list]);
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.expanded(&clause.value);
                for case in &clause.cases {
                    case.patterns.iter().for_each(|pattern| self.expanded(pattern));
                    case.cmd.iter().for_each(|list| self.list(list));
                }
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for branch in clause.elses.iter().flatten() {
                    branch.condition.iter().for_each(|list| self.list(list));
                    self.list(&branch.body);
                }
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => self.repeated(&[&clause.0, &clause.1.list]),
            ast::CompoundCommand::Coprocess(coprocess) => {
                self.line.note_opaque("a coprocess");
                self.command(&coprocess.body);
            }
        }
    }

    /// A loop that changes folder may end anywhere: then it is walked again as if it had.
    fn repeated(&mut self, lists: &[&ast::CompoundList]) {
        let before = self.here.clone();
        lists.iter().for_each(|list| self.list(list));
        if self.here != before && !self.here.unknown {
            self.here.unknown = true;
            lists.iter().for_each(|list| self.list(list));
        }
    }

    fn test(&mut self, expr: &ast::ExtendedTestExpr) {
        self.line.note_opaque("a test that may compute");
        match expr {
            ast::ExtendedTestExpr::And(left, right) | ast::ExtendedTestExpr::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            ast::ExtendedTestExpr::Not(inner) | ast::ExtendedTestExpr::Parenthesized(inner) => self.test(inner),
            ast::ExtendedTestExpr::UnaryTest(_, word) => self.expanded(word),
            ast::ExtendedTestExpr::BinaryTest(_, left, right) => {
                self.expanded(left);
                self.expanded(right);
            }
        }
    }

    fn simple(&mut self, command: &ast::SimpleCommand) {
        let (mut assignments, mut argv) = (Vec::new(), Vec::new());
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            self.item(item, &mut assignments);
        }
        argv.extend(command.word_or_name.iter().flat_map(|name| self.words(&name.value)));
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut argv);
        }
        if !assignments.is_empty() || !argv.is_empty() {
            self.invoke(&assignments, &argv, Cover::Needed, 0);
        }
    }

    fn item(&mut self, item: &ast::CommandPrefixOrSuffixItem, words: &mut Vec<Word>) {
        match item {
            ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect),
            ast::CommandPrefixOrSuffixItem::Word(word) => words.extend(self.words(&word.value)),
            ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                if matches!(assignment.name, ast::AssignmentName::ArrayElementName(..)) || matches!(assignment.value, ast::AssignmentValue::Array(_)) {
                    self.line.note_opaque("an array");
                }
                words.push(word::scan(&word.value, self.known().as_known()));
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.substitution(&subshell.list);
                words.push(Word { opaque: Some("process substitution"), ..Word::unknown() });
            }
        }
    }

    fn substitution(&mut self, list: &ast::CompoundList) {
        self.line.note_opaque("process substitution");
        let here = self.here.clone();
        self.list(list);
        self.here = here;
    }

    fn invoke(&mut self, assignments: &[Word], argv: &[Word], cover: Cover, wrapped: usize) {
        if self.line.commands.len() >= MOST_COMMANDS || wrapped > MOST_TEXTS_DEEP {
            return self.beyond("is too involved to be judged");
        }
        for text in assignments.iter().chain(argv).flat_map(|word| word.runs.clone()) {
            if wrapped == 0 {
                self.aside(&text);
            }
        }
        let runs = if argv.is_empty() { Runs::Itself } else { unwrap::runs(argv) };
        let own = if matches!(runs, Runs::Other { .. } | Runs::Text(_)) && cover == Cover::Needed { Cover::Wrapper } else { cover };
        simple::note(&mut self.line, self.place, &self.here, assignments, argv, own);
        if own == Cover::Needed {
            let words: Vec<String> = assignments.iter().chain(argv).map(Word::normal).collect();
            self.line.plain.push(words.join(" "));
        }
        match runs {
            Runs::Itself => self.change_folder(argv),
            Runs::Other { assignments: more, argv: inner } => {
                let all = [assignments, more.as_slice()].concat();
                self.invoke(&all, &inner, cover, wrapped + 1);
            }
            Runs::Beside(inner) => inner.iter().for_each(|argv| self.invoke(&[], argv, cover, wrapped + 1)),
            Runs::Text(text) => {
                if !assignments.is_empty() {
                    self.line.note_opaque("a shell with assignments");
                }
                self.aside(&text);
            }
            Runs::Anything { why, perhaps, texts } => {
                if cover != Cover::Perhaps {
                    self.line.note_opaque(why);
                }
                perhaps.iter().for_each(|argv| self.invoke(&[], argv, Cover::Perhaps, wrapped + 1));
                texts.iter().for_each(|text| self.aside(text));
            }
        }
    }

    fn change_folder(&mut self, argv: &[Word]) {
        let program = argv.first().and_then(Word::as_literal).map(base_name);
        if matches!(program, Some("cd" | "pushd" | "popd")) {
            let to = argv[1..].iter().find(|word| !matches!(word.value.as_str(), "-P" | "-L" | "-e" | "-@" | "--"));
            match (program, to) {
                (Some("cd"), None) => self.here.go(self.place.home.as_deref()),
                (_, to) => self.here.go(to.map(|word| word.value.as_str()).filter(|_| program != Some("popd"))),
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        redirects.iter().flat_map(|list| &list.0).for_each(|redirect| self.redirect(redirect));
    }

    fn redirect(&mut self, redirect: &ast::IoRedirect) {
        match redirect {
            ast::IoRedirect::File(_, kind, target) => {
                let reads = matches!(kind, ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::DuplicateInput);
                match target {
                    ast::IoFileRedirectTarget::Fd(_) => {}
                    ast::IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.substitution(&subshell.list),
                    ast::IoFileRedirectTarget::Duplicate(word) if word.value == "-" || word.value.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit()) => {}
                    ast::IoFileRedirectTarget::Filename(word) if reads => self.expanded(word),
                    ast::IoFileRedirectTarget::Duplicate(word) if reads => {
                        self.line.note_opaque("a redirection to what only the running shell knows");
                        self.expanded(word);
                    }
                    ast::IoFileRedirectTarget::Filename(word) | ast::IoFileRedirectTarget::Duplicate(word) => self.written(word),
                }
            }
            ast::IoRedirect::OutputAndError(word, _) => self.written(word),
            ast::IoRedirect::HereString(_, word) => self.expanded(word),
            ast::IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    self.live(&document.doc.value);
                }
            }
        }
        self.line.plain.push(redirect.to_string());
    }

    fn written(&mut self, target: &ast::Word) {
        for word in self.words(&target.value) {
            self.run_all(&word);
            if word.as_literal() == Some("/dev/null") {
                continue;
            }
            self.line.note_opaque("a redirection that writes");
            self.line.classes.extend([Class::FileWrite, Class::BashMutating]);
            match protect::leads(self.place, &self.here, &word.value) {
                Some(protect::Found::Surely(path)) => self.line.note_protected(path),
                Some(protect::Found::Perhaps(path)) => self.line.note_floor(format!("may change {path}, which belongs to the gateway")),
                None => {}
            }
            if path::is_device(&path::resolve("/", &word.value)) && word.value.starts_with('/') {
                self.line.note_floor(format!("writes to {}", word.value));
            }
        }
    }

    fn words(&self, raw: &str) -> Vec<Word> {
        let known = self.known();
        word::braces(raw).iter().map(|raw| word::scan(raw, known.as_known())).collect()
    }

    /// A word whose expansion matters, not its value.
    fn expanded(&mut self, word: &ast::Word) {
        for word in self.words(&word.value) {
            self.run_all(&word);
        }
        self.line.plain.push(word.value.clone());
    }

    fn live(&mut self, text: &str) {
        let word = word::scan_live(text, self.known().as_known());
        self.run_all(&word);
    }

    fn run_all(&mut self, word: &Word) {
        if let Some(why) = word.opaque {
            self.line.note_opaque(why);
        }
        word.runs.iter().for_each(|text| self.aside(text));
    }

    fn known(&self) -> Variables {
        let only = self.here.dirs.first().filter(|_| self.here.dirs.len() == 1 && !self.here.unknown);
        Variables { home: self.place.home.clone(), cwd: only.cloned() }
    }
}

struct Variables {
    home: Option<String>,
    cwd: Option<String>,
}

impl Variables {
    fn as_known(&self) -> Known<'_> {
        Known { home: self.home.as_deref(), cwd: self.cwd.as_deref() }
    }
}

/// The text that `echo … | sh` runs, where it is written out.
fn echoed_to_shell(commands: &[ast::Command]) -> Option<String> {
    let words = |command: &ast::Command| -> Vec<String> {
        let ast::Command::Simple(simple) = command else { return Vec::new() };
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0).filter_map(|item| match item {
            ast::CommandPrefixOrSuffixItem::Word(word) => Some(word.value.clone()),
            ast::CommandPrefixOrSuffixItem::IoRedirect(_)
            | ast::CommandPrefixOrSuffixItem::AssignmentWord(..)
            | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
        });
        simple.word_or_name.iter().map(|name| name.value.clone()).chain(suffix).collect()
    };
    let shell = commands.iter().skip(1).any(|command| words(command).iter().any(|word| programs::SHELLS.contains(&base_name(word))));
    let texts = commands.iter().flat_map(|command| {
        let words = words(command);
        let echoes = words.first().is_some_and(|name| matches!(base_name(name), "echo" | "printf"));
        words.into_iter().skip(1).filter(move |_| echoes)
    });
    let known = Known { home: None, cwd: None };
    let text = texts.map(|raw| word::scan(&raw, known).value.replace(UNKNOWN, "$unknown").replace("\\n", "\n")).collect::<Vec<_>>().join(" ");
    (shell && !text.is_empty()).then_some(text)
}
