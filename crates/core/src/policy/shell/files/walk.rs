//! Walks a parsed line in the order in which it runs, and keeps in mind where the shell is and where it looks for programs.

use std::collections::BTreeSet;

use brush_parser::{Parser, ast};

use super::{Files, MOST, Named, Where};
use crate::{
    call::pins::Role,
    policy::{
        path,
        shell::{
            limits,
            word::{self, GLOB, Known, UNKNOWN, Word},
        },
    },
};

/// How many texts may lie inside one another.
const DEEPEST: usize = 8;
/// In how many folders the shell may be before nobody keeps count.
const MOST_FOLDERS: usize = 4;

/// What of the shell's state names depend on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// Where it may be, the likeliest first; none if that is not known.
    pub(super) folders: Option<Vec<String>>,
    /// Where it looks for programs; none if that is not known.
    pub(super) path: Option<String>,
    /// Variables that the line set to something that is known.
    pub(super) variables: Vec<(String, String)>,
}

/// One walk over one line.
pub(super) struct Walk<'a> {
    place: &'a Where,
    pub(super) state: State,
    pub(super) files: Files,
    /// What the line writes itself, absolute.
    pub(super) written: BTreeSet<String>,
    /// Whether a command before may have made files.
    pub(super) may_have_made: bool,
    pub(super) functions: BTreeSet<String>,
    pub(super) depth: usize,
    sets_home: bool,
    sets_folder: bool,
}

/// What the command at hand reads on its input.
#[derive(Clone, Debug, Default)]
pub(super) enum Input {
    /// Nothing of this line.
    #[default]
    Nothing,
    /// These files, one behind the other.
    Files(Vec<Word>),
    /// A text that is written out.
    Text(String),
    /// What another command says.
    Unknown,
}

impl<'a> Walk<'a> {
    pub(super) fn new(command: &str, place: &'a Where) -> Self {
        let sets = |name: &str| command.contains(&format!("{name}=")) || command.contains(&format!("unset {name}"));
        Self {
            place,
            state: State {
                folders: Some(vec![path::resolve("/", &place.folder)]),
                path: place.path.clone(),
                variables: Vec::new(),
            },
            files: Files::default(),
            written: BTreeSet::new(),
            may_have_made: false,
            functions: BTreeSet::new(),
            depth: 0,
            sets_home: sets("HOME"),
            sets_folder: sets("PWD") || sets("CDPATH"),
        }
    }

    pub(super) fn files(mut self, command: &str) -> Files {
        self.text(command);
        self.files
    }

    pub(super) fn unknown(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.files.unknown.len() < MOST && !self.files.unknown.contains(&what) {
            self.files.unknown.push(what);
        }
    }

    /// Walks a text that runs in this place.
    pub(super) fn text(&mut self, text: &str) {
        let options = limits::options();
        let parsed = match limits::too_much(text) {
            Some(_) => None,
            None => match brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()) {
                Ok(tokens)
                    if self.depth < DEEPEST
                        && limits::too_deep(&tokens).is_none()
                        && !tokens.iter().any(|token| limits::is_involved_index(token.to_str())) =>
                {
                    Parser::new(text.as_bytes(), &options).parse_program().ok()
                }
                Ok(_) | Err(_) => None,
            },
        };
        let Some(program) = parsed else { return self.unknown("a text that cannot be parsed") };
        self.depth += 1;
        program.complete_commands.iter().for_each(|list| self.list(list));
        self.depth -= 1;
    }

    /// Walks a text that runs in a shell of its own.
    pub(super) fn aside(&mut self, text: &str) {
        let before = self.state.clone();
        self.text(text);
        self.state = before;
    }

    fn list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let before = self.state.clone();
            for (_, pipeline) in and_or {
                self.pipeline(pipeline);
            }
            if matches!(separator, ast::SeparatorOperator::Async) {
                self.state = before;
            } else if self.state.folders != before.folders {
                // What follows runs also where a change of folder failed.
                self.state.folders = self.state.folders.take().zip(before.folders).map(|(mut now, before)| {
                    now.extend(before);
                    now
                });
                self.bound_folders();
            }
        }
    }

    /// Lets go of the folders where there are too many of them.
    pub(super) fn bound_folders(&mut self) {
        if let Some(folders) = &mut self.state.folders {
            let mut seen = BTreeSet::new();
            folders.retain(|folder| seen.insert(folder.clone()));
            if folders.len() > MOST_FOLDERS {
                self.state.folders = None;
            }
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline) {
        let is_piped = pipeline.seq.len() > 1;
        let mut input = Input::Nothing;
        for command in &pipeline.seq {
            let before = self.state.clone();
            let said = self.says(command);
            self.command(command, &input);
            if is_piped {
                self.state = before;
            }
            input = said;
        }
    }

    fn command(&mut self, command: &ast::Command, input: &Input) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple, input),
            ast::Command::Compound(compound, redirects) => {
                let own = redirects.iter().flat_map(|list| &list.0).fold(None, |own, redirect| {
                    let read = self.redirect(redirect);
                    read.or(own)
                });
                let given = own.unwrap_or_else(|| input.clone());
                if !matches!(given, Input::Nothing) {
                    self.note_fed_compound(compound, &given);
                }
                self.compound(compound);
            }
            ast::Command::Function(function) => {
                self.functions.insert(function.fname.value.clone());
                let before = self.state.clone();
                // Where it is called nobody follows.
                if self.changes_state(&function.body.0.to_string()) {
                    self.state.folders = None;
                }
                self.compound(&function.body.0);
                self.state = before;
            }
            ast::Command::ExtendedTest(test, _) => self.words_in(&test.to_string()),
        }
    }

    /// A group that is fed something: what reads it inside cannot be told.
    fn note_fed_compound(&mut self, compound: &ast::CompoundCommand, _input: &Input) {
        let text = compound.to_string();
        let is_shell = |word: &str| super::commands::is_shell(crate::policy::shell::programs::base_name(word));
        if text.split(|c: char| c.is_whitespace() || ";|&(){}".contains(c)).any(is_shell) {
            self.unknown("what a shell in a group reads on its input");
        }
    }

    /// Whether a text may change what names mean behind it.
    fn changes_state(&self, text: &str) -> bool {
        text.split(|c: char| c.is_whitespace() || ";|&(){}".contains(c)).any(|word| {
            matches!(word, "cd" | "pushd" | "popd" | "." | "source" | "eval" | "export" | "unset")
                || word.starts_with("PATH=")
        })
    }

    fn compound(&mut self, compound: &ast::CompoundCommand) {
        match compound {
            ast::CompoundCommand::Arithmetic(arithmetic) => self.words_in(&arithmetic.expr.value),
            ast::CompoundCommand::ArithmeticForClause(clause) => self.repeated(&[&clause.body.list]),
            ast::CompoundCommand::BraceGroup(group) => self.list(&group.list),
            ast::CompoundCommand::Subshell(subshell) => {
                let before = self.state.clone();
                self.list(&subshell.list);
                self.state = before;
            }
            ast::CompoundCommand::ForClause(clause) => {
                clause.values.iter().flatten().for_each(|value| self.expanded(&value.value));
                self.repeated(&[&clause.body.list]);
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.expanded(&clause.value.value);
                let lists: Vec<_> = clause.cases.iter().filter_map(|case| case.cmd.as_ref()).collect();
                self.either(&lists);
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                let mut lists = vec![&clause.then];
                for branch in clause.elses.iter().flatten() {
                    lists.extend(&branch.condition);
                    lists.push(&branch.body);
                }
                self.either(&lists);
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.repeated(&[&clause.0, &clause.1.list]);
            }
            ast::CompoundCommand::Coprocess(coprocess) => {
                let before = self.state.clone();
                self.command(&coprocess.body, &Input::Unknown);
                self.state = before;
            }
        }
    }

    /// Lists of which one runs, or none.
    fn either(&mut self, lists: &[&ast::CompoundList]) {
        let before = self.state.clone();
        let mut after = before.clone();
        for list in lists {
            self.state = before.clone();
            self.list(list);
            if self.state.folders != before.folders {
                after.folders = None;
            }
            if self.state.path != before.path {
                after.path = None;
            }
            if self.state.variables != before.variables {
                after.variables.clear();
            }
        }
        self.state = after;
    }

    /// Lists that run as often as they like: what changes within them is not known from their start on.
    fn repeated(&mut self, lists: &[&ast::CompoundList]) {
        let text: Vec<String> = lists.iter().map(|list| list.to_string()).collect();
        if self.changes_state(&text.join("\n")) {
            self.state = State { folders: None, path: None, variables: Vec::new() };
        }
        self.may_have_made = true;
        self.either(lists);
    }

    /// What a command says to whoever reads it.
    fn says(&mut self, command: &ast::Command) -> Input {
        let ast::Command::Simple(simple) = command else { return Input::Unknown };
        let words = self.plain_words(simple);
        let (Some(program), rest) = (words.first().and_then(Word::as_literal), words.get(1..).unwrap_or_default())
        else {
            return Input::Unknown;
        };
        match crate::policy::shell::programs::base_name(program) {
            "cat" => {
                let files: Vec<Word> =
                    rest.iter().filter(|word| !word.value.starts_with('-') || word.value == "-").cloned().collect();
                let read = self.reads(simple);
                match (files.is_empty(), read) {
                    (false, _) => Input::Files(files),
                    (true, Some(input)) => input,
                    (true, None) => Input::Unknown,
                }
            }
            "echo" | "printf"
                if rest.iter().all(|word| word.as_literal().is_some_and(|text| !text.contains(['\\', '%']))) =>
            {
                let words: Vec<&str> = rest.iter().filter_map(Word::as_literal).filter(|text| *text != "-n").collect();
                Input::Text(words.join(" "))
            }
            _ => Input::Unknown,
        }
    }

    /// The words of what expands, for what expanding runs.
    pub(super) fn expanded(&mut self, raw: &str) {
        let word = self.word(raw);
        self.run_all(&word);
    }

    fn words_in(&mut self, text: &str) {
        let word = word::scan_live(text, Known { home: None, cwd: None, tried: &[] });
        self.run_all(&word);
    }

    pub(super) fn run_all(&mut self, word: &Word) {
        word.runs.iter().for_each(|text| self.aside(text));
    }

    pub(super) fn word(&mut self, raw: &str) -> Word {
        let home = self.place.home.as_deref().filter(|_| !self.sets_home);
        let folders = self.state.folders.as_deref().filter(|folders| folders.len() == 1 && !self.sets_folder);
        let folder = folders.and_then(|folders| folders.first()).cloned();
        let mut tried = self.state.variables.clone();
        tried.extend(self.state.path.iter().map(|path| ("PATH".to_owned(), path.clone())));
        word::scan(raw, Known { home, cwd: folder.as_deref(), tried: &tried })
    }

    /// Whether the shell's own folder can be told from what the line says.
    pub(super) fn home(&self) -> Option<String> {
        self.place.home.clone().filter(|_| !self.sets_home)
    }

    pub(super) const fn sets_folder(&self) -> bool {
        self.sets_folder
    }

    /// Where a name with a slash leads, in every folder where the shell may be. None if that is not known.
    pub(super) fn places(&self, name: &str) -> Option<Vec<String>> {
        if name.starts_with('/') {
            return Some(vec![name.to_owned()]);
        }
        let folders = self.state.folders.as_ref()?;
        Some(folders.iter().map(|folder| format!("{}/{name}", folder.trim_end_matches('/'))).collect())
    }

    /// Where a name without a slash is looked for.
    pub(super) fn searched(&self, name: &str, path: Option<&str>) -> Option<Vec<String>> {
        let mut tried = Vec::new();
        for entry in path?.split(':') {
            match entry {
                "" | "." => tried.extend(self.places(name)?),
                entry if entry.starts_with('/') => tried.push(format!("{}/{name}", entry.trim_end_matches('/'))),
                entry => tried.extend(self.places(&format!("{entry}/{name}"))?),
            }
        }
        Some(tried)
    }

    /// Notes one thing. Where the shell may be in several folders, each of them counts.
    pub(super) fn note(&mut self, named: Named) {
        if self.files.named.len() >= MOST {
            return self.unknown("more than is counted");
        }
        let is_written = named.tried.iter().any(|path| self.written.contains(&path::resolve("/", path)));
        if is_written {
            return self.unknown(format!("{}: the line itself writes it", named.name));
        }
        if !self.files.named.contains(&named) {
            self.files.named.push(named);
        }
    }

    /// The text of a word if it is known, whether or not the shell expands it.
    pub(super) fn known(word: &Word) -> Option<&str> {
        (word.opaque.is_none() && !word.value.contains([UNKNOWN, GLOB])).then_some(word.value.as_str())
    }

    /// Notes a file that is named by a word and read as it is.
    pub(super) fn note_path(&mut self, word: &Word, role: Role, is_perhaps: bool) {
        let Some(name) = Self::known(word).map(str::to_owned) else {
            if !is_perhaps {
                self.unknown(format!("{}: its name is only known when it runs", word.raw));
            }
            return;
        };
        if is_stream(&name) {
            return;
        }
        match self.places(&name) {
            None if is_perhaps => {}
            None => self.unknown(format!("{name}: the folder is only known when it runs")),
            Some(places) => {
                for place in places {
                    self.note(Named {
                        name: name.clone(),
                        role,
                        tried: vec![place],
                        is_searched: false,
                        is_perhaps,
                        may_be_made: self.may_have_made,
                        path: self.state.path.clone(),
                    });
                }
            }
        }
    }
}

/// True for a name that means whatever the process that reads it has open.
pub(super) fn is_stream(name: &str) -> bool {
    name == "-"
        || name.starts_with("/dev/fd/")
        || matches!(name, "/dev/stdin" | "/dev/null" | "/dev/tty")
        || name.starts_with("/proc/self/")
        || name.starts_with("/proc/thread-self/")
}
