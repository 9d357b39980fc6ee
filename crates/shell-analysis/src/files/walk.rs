//! Walks a parsed line in the order in which it runs, and keeps in mind where the shell is and where it looks for programs.

use std::collections::{BTreeMap, BTreeSet};

use brush_parser::{Token, ast};

use super::{LineFiles, LookupContext, MOST, NamedFile, state::ShellState};
use crate::{
    files::FileRole,
    grammar, limits, path,
    word::{self, GLOB, KnownVariables, ShellWord, UNKNOWN},
};

/// Maximum nesting of texts.
const DEEPEST: usize = 8;
/// Maximum number of bytes of text that are walked for one line: texts may name themselves again and again.
const MOST_TEXT: usize = 1 << 20;

/// One walk over one line.
pub(super) struct FileWalk<'a> {
    place: &'a LookupContext,
    /// The whole line.
    pub(super) line: &'a str,
    pub(super) state: ShellState,
    pub(super) files: LineFiles,
    /// Files that the line writes itself, absolute.
    pub(super) written: BTreeSet<String>,
    /// True if a command before may have made files.
    pub(super) may_have_made: bool,
    /// Functions, each with what the shell was when its body was walked, and whether it changes that.
    pub(super) functions: BTreeMap<String, (ShellState, bool)>,
    /// Input of a command without an input of its own.
    pub(super) around: StdinSource,
    /// True if `exec` changed the input of the shell.
    pub(super) reads_elsewhere: bool,
    depth: usize,
    walked: usize,
    sets_home: bool,
    sets_folder: bool,
}

/// Input of the current command.
#[derive(Clone, Debug, Default)]
pub(super) enum StdinSource {
    /// Nothing of this line.
    #[default]
    Nothing,
    /// These files, one after the other.
    Files(Vec<ShellWord>),
    /// A text that is written out.
    Text(String),
    /// Output of another command.
    Unknown,
}

impl<'a> FileWalk<'a> {
    pub(super) fn new(command: &'a str, place: &'a LookupContext) -> Self {
        let sets = |name: &str| command.contains(&format!("{name}=")) || command.contains(&format!("unset {name}"));
        Self {
            place,
            line: command,
            state: ShellState {
                folders: Some(vec![path::resolve("/", &place.folder)]),
                path: place.path.clone(),
                variables: Vec::new(),
            },
            files: LineFiles::default(),
            written: BTreeSet::new(),
            may_have_made: false,
            functions: BTreeMap::new(),
            around: StdinSource::Nothing,
            reads_elsewhere: false,
            depth: 0,
            walked: 0,
            sets_home: sets("HOME"),
            sets_folder: sets("PWD") || sets("CDPATH"),
        }
    }

    pub(super) fn collect_files(mut self, command: &str) -> LineFiles {
        self.walk_text(command);
        self.files
    }

    pub(super) fn note_unknown(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.files.unknown.len() < MOST && !self.files.unknown.contains(&what) {
            self.files.unknown.push(what);
        }
    }

    /// Walks a text that runs in this place.
    pub(super) fn walk_text(&mut self, text: &str) {
        self.walked = self.walked.saturating_add(text.len() + 1);
        if self.walked > MOST_TEXT {
            return self.note_unknown("more than is counted");
        }
        let can_be_walked = |tokens: &Vec<_>| {
            self.depth < DEEPEST
                && limits::too_deep(tokens).is_none()
                && !tokens.iter().any(|token: &Token| limits::is_involved_index(token.to_str()))
        };
        let tokens = if limits::too_much(text).is_some() { None } else { grammar::tokenize_text(text) };
        let parsed = tokens.filter(can_be_walked).and_then(|tokens| grammar::parse_program(&tokens));
        let Some(program) = parsed else { return self.note_unknown("a text that cannot be parsed") };
        self.depth += 1;
        program.complete_commands.iter().for_each(|list| self.walk_list(list));
        self.depth -= 1;
    }

    /// Walks a text that runs in a shell of its own.
    pub(super) fn walk_aside(&mut self, text: &str) {
        let before = self.state.clone();
        self.walk_text(text);
        self.state = before;
    }

    fn walk_list(&mut self, list: &ast::CompoundList) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let before = self.state.clone();
            let is_chain = and_or.into_iter().skip(1).all(|(by, _)| matches!(by, ast::PipelineOperator::And));
            let mut sure: Option<ShellState> = None;
            for (_, pipeline) in and_or {
                let here = self.state.clone();
                self.walk_pipeline(pipeline);
                if !is_chain {
                    // The command after `||` may run with it or without.
                    let now = std::mem::take(&mut self.state);
                    self.state = now.merged_with(&here);
                }
                sure = sure.or_else(|| Some(self.state.clone()));
            }
            if matches!(separator, ast::SeparatorOperator::Async) {
                self.state = before;
                continue;
            }
            // The next command also runs if a change of folder failed, and if not all of this ran.
            let now = std::mem::take(&mut self.state);
            let path_and_variables = now.clone().or_beside_folders(sure.as_ref().unwrap_or(&before));
            let folders = ShellState { path: None, variables: Vec::new(), ..now };
            let folders = folders.merged_with(&ShellState { path: None, variables: Vec::new(), ..before }).folders;
            self.state = ShellState { folders, ..path_and_variables };
        }
    }

    fn walk_pipeline(&mut self, pipeline: &ast::Pipeline) {
        let is_piped = pipeline.seq.len() > 1;
        let mut input = StdinSource::Nothing;
        for command in &pipeline.seq {
            let before = self.state.clone();
            let output = self.output_of(command);
            self.walk_command(command, &input);
            if is_piped {
                self.state = before;
            }
            input = output;
        }
    }

    fn walk_command(&mut self, command: &ast::Command, input: &StdinSource) {
        match command {
            ast::Command::Simple(simple) => self.walk_simple(simple, input),
            ast::Command::Compound(compound, redirects) => {
                let given = self.walk_redirects(redirects.as_ref()).unwrap_or_else(|| input.clone());
                self.with_input(&given, |walk| walk.walk_compound(compound));
            }
            ast::Command::Function(function) => {
                let ast::FunctionBody(body, redirects) = &function.body;
                let before = self.state.clone();
                let name = function.fname.value.clone();
                self.functions.insert(name.clone(), (before.clone(), false));
                self.walk_redirects(redirects.as_ref());
                self.with_input(&StdinSource::Unknown, |walk| walk.walk_compound(body));
                let is_changed = self.state != before;
                self.functions.insert(name, (before.clone(), is_changed));
                self.state = before;
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.words_in(&test.to_string());
                self.walk_redirects(redirects.as_ref());
            }
        }
    }

    /// Takes the redirections of a group: what they have it read.
    fn walk_redirects(&mut self, redirects: Option<&ast::RedirectList>) -> Option<StdinSource> {
        redirects.into_iter().flat_map(|list| &list.0).fold(None, |own, redirect| self.walk_redirect(redirect).or(own))
    }

    /// Notes a call of a function. Its commands were noted where it was defined.
    pub(super) fn call_function(&mut self, name: &str) -> bool {
        let Some((made, changes)) = self.functions.get(name).cloned() else { return false };
        if made != self.state {
            self.note_unknown(format!("what {name} runs, which was looked at for where it was made"));
        }
        if changes {
            self.forget_state();
        }
        true
    }

    /// Reports whether a text may change the meaning of later names.
    fn changes_state(&self, text: &str) -> bool {
        let plain = text.replace(['\\', '\'', '"'], "");
        plain.split(|c: char| c.is_whitespace() || ";|&(){}".contains(c)).any(|word| {
            matches!(word, "cd" | "pushd" | "popd" | "." | "source" | "eval" | "export" | "unset" | "hash")
                || word.contains("PATH")
                || self.functions.contains_key(word)
        })
    }

    fn walk_compound(&mut self, compound: &ast::CompoundCommand) {
        match compound {
            ast::CompoundCommand::Arithmetic(arithmetic) => self.words_in(&arithmetic.expr.value),
            ast::CompoundCommand::ArithmeticForClause(clause) => {
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                parts.into_iter().flatten().for_each(|part| self.words_in(&part.value));
                self.walk_repeated(&[&clause.body.list]);
            }
            ast::CompoundCommand::BraceGroup(group) => self.walk_list(&group.list),
            ast::CompoundCommand::Subshell(subshell) => {
                let before = self.state.clone();
                self.walk_list(&subshell.list);
                self.state = before;
            }
            ast::CompoundCommand::ForClause(clause) => {
                clause.values.iter().flatten().for_each(|value| self.run_expansions(&value.value));
                self.walk_repeated(&[&clause.body.list]);
            }
            ast::CompoundCommand::CaseClause(clause) => {
                self.run_expansions(&clause.value.value);
                let patterns = clause.cases.iter().flat_map(|case| &case.patterns);
                patterns.for_each(|pattern| self.run_expansions(&pattern.value));
                let lists: Vec<_> = clause.cases.iter().filter_map(|case| case.cmd.as_ref()).collect();
                self.walk_either(&lists);
            }
            ast::CompoundCommand::IfClause(clause) => {
                self.walk_list(&clause.condition);
                let mut lists = vec![&clause.then];
                for branch in clause.elses.iter().flatten() {
                    lists.extend(&branch.condition);
                    lists.push(&branch.body);
                }
                self.walk_either(&lists);
            }
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                self.walk_repeated(&[&clause.0, &clause.1.list]);
            }
            ast::CompoundCommand::Coprocess(coprocess) => {
                let before = self.state.clone();
                self.walk_command(&coprocess.body, &StdinSource::Unknown);
                self.state = before;
            }
        }
    }

    /// Lists of which one runs, or none.
    fn walk_either(&mut self, lists: &[&ast::CompoundList]) {
        let before = self.state.clone();
        let mut after = before.clone();
        for list in lists {
            self.state = before.clone();
            self.walk_list(list);
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
    fn walk_repeated(&mut self, lists: &[&ast::CompoundList]) {
        let text: Vec<String> = lists.iter().map(|list| list.to_string()).collect();
        if self.changes_state(&text.join("\n")) {
            self.state = ShellState { folders: None, path: None, variables: Vec::new() };
        }
        self.may_have_made = true;
        let before = self.state.clone();
        self.walk_either(lists);
        if self.state.folders != before.folders || self.state.path != before.path {
            self.note_unknown("what a loop runs once it changed where it is or looks");
        }
    }

    /// Returns the output of a command, for its reader.
    fn output_of(&mut self, command: &ast::Command) -> StdinSource {
        let ast::Command::Simple(simple) = command else { return StdinSource::Unknown };
        let words = self.plain_words(simple);
        let (Some(program), rest) = (words.first().and_then(ShellWord::as_literal), words.get(1..).unwrap_or_default())
        else {
            return StdinSource::Unknown;
        };
        match crate::programs::base_name(program) {
            "cat" => {
                let files: Vec<ShellWord> =
                    rest.iter().filter(|word| !word.value.starts_with('-') || word.value == "-").cloned().collect();
                let read = self.redirected_input(simple);
                match (files.is_empty(), read) {
                    (false, _) => StdinSource::Files(files),
                    (true, Some(input)) => input,
                    (true, None) => StdinSource::Unknown,
                }
            }
            "echo" | "printf" => {
                let mut words = rest.iter().map(|word| word.as_literal().filter(|text| !text.contains(['\\', '%'])));
                let is_quiet = rest.first().is_some_and(|word| word.value == "-n");
                let printed = words.by_ref().skip(usize::from(is_quiet)).collect::<Option<Vec<_>>>();
                let printed = printed.filter(|words| !words.first().is_some_and(|word| word.starts_with('-')));
                printed.map_or(StdinSource::Unknown, |words| StdinSource::Text(words.join(" ")))
            }
            _ => StdinSource::Unknown,
        }
    }

    /// Walks the words of an expansion, for the commands that it runs.
    pub(super) fn run_expansions(&mut self, raw: &str) {
        let word = self.scan_word(raw);
        self.run_all(&word);
    }

    pub(super) fn words_in(&mut self, text: &str) {
        let word = word::scan_live(text, KnownVariables { home: None, cwd: None, tried: &[] });
        self.run_all(&word);
    }

    pub(super) fn run_all(&mut self, word: &ShellWord) {
        word.runs.iter().for_each(|text| self.walk_aside(text));
    }

    pub(super) fn scan_word(&mut self, raw: &str) -> ShellWord {
        let home = self.place.home.as_deref().filter(|_| !self.sets_home);
        let folders = self.state.folders.as_deref().filter(|folders| folders.len() == 1 && !self.sets_folder);
        let folder = folders.and_then(|folders| folders.first()).cloned();
        let mut tried = self.state.variables.clone();
        tried.extend(self.state.path.iter().map(|path| ("PATH".to_owned(), path.clone())));
        word::scan_word(raw, KnownVariables { home, cwd: folder.as_deref(), tried: &tried })
    }

    /// Returns the home folder, if the line leaves it as it is.
    pub(super) fn home_folder(&self) -> Option<String> {
        self.place.home.clone().filter(|_| !self.sets_home)
    }

    pub(super) const fn sets_folder(&self) -> bool {
        self.sets_folder
    }

    /// Returns the paths of a name with a slash, in every possible folder of the shell. None if they are not known.
    pub(super) fn candidate_paths(&self, name: &str) -> Option<Vec<String>> {
        if name.starts_with('/') {
            return Some(vec![name.to_owned()]);
        }
        let folders = self.state.folders.as_ref()?;
        Some(folders.iter().map(|folder| format!("{}/{name}", folder.trim_end_matches('/'))).collect())
    }

    /// Returns the paths at which a name without a slash is looked up.
    pub(super) fn searched_paths(&self, name: &str, path: Option<&str>) -> Option<Vec<String>> {
        let mut tried = Vec::new();
        for entry in path?.split(':') {
            match entry {
                "" | "." => tried.extend(self.candidate_paths(name)?),
                // Some shells take it for the home folder, others for its own name.
                entry if entry.starts_with('~') => {
                    let rest = entry[1..].strip_prefix('/').or_else(|| (entry == "~").then_some(""))?;
                    tried.push(format!("{}/{rest}/{name}", self.home_folder()?.trim_end_matches('/')));
                    tried.extend(self.candidate_paths(&format!("{entry}/{name}"))?);
                }
                entry if entry.starts_with('/') => tried.push(format!("{}/{name}", entry.trim_end_matches('/'))),
                entry => tried.extend(self.candidate_paths(&format!("{entry}/{name}"))?),
            }
        }
        Some(tried)
    }

    /// Notes one thing. Where the shell may be in several folders, each of them counts.
    pub(super) fn note_file(&mut self, named: NamedFile) {
        // This process is another there.
        if named.tried.iter().any(|path| is_of_the_process(path)) {
            return self.note_unknown(format!("{}: it is another in each process", named.name));
        }
        if self.files.named.len() >= MOST {
            return self.note_unknown("more than is counted");
        }
        let is_written = named.tried.iter().any(|path| self.written.contains(&path::resolve("/", path)));
        if is_written {
            return self.note_unknown(format!("{}: the line itself writes it", named.name));
        }
        if !self.files.named.contains(&named) {
            self.files.named.push(named);
        }
    }

    /// Returns the text of a word if it is known, whether or not the shell expands it.
    pub(super) fn known_text(word: &ShellWord) -> Option<&str> {
        (word.opaque.is_none() && !word.value.contains([UNKNOWN, GLOB])).then_some(word.value.as_str())
    }

    /// Notes a file that is named by a word and read as it is.
    pub(super) fn note_path(&mut self, word: &ShellWord, role: FileRole, is_perhaps: bool) {
        self.note_with(word, role, is_perhaps, &[]);
    }

    /// Notes a file whose name may be written without one of `endings`.
    pub(super) fn note_with(&mut self, word: &ShellWord, role: FileRole, is_perhaps: bool, endings: &[&str]) {
        let Some(name) = Self::known_text(word).map(str::to_owned) else {
            if !is_perhaps {
                self.note_unknown(format!("{}: its name is only known when it runs", word.raw));
            }
            return;
        };
        match stream_by_name(&name) {
            Some(ProcessStream::Nothing) => return,
            Some(_) if is_perhaps => return,
            Some(_) => return self.note_unknown(format!("{name}: what is open there is only known when it runs")),
            None => {}
        }
        match self.candidate_paths(&name) {
            None if is_perhaps => {}
            None => self.note_unknown(format!("{name}: the folder is only known when it runs")),
            Some(places) => {
                for place in places {
                    let tried = endings.iter().map(|ending| format!("{place}{ending}"));
                    self.note_file(NamedFile {
                        name: name.clone(),
                        role,
                        tried: std::iter::once(place.clone()).chain(tried).collect(),
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

/// A name for a stream that the reading process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessStream {
    /// Its input.
    Input,
    /// Nothing at all.
    Nothing,
    /// Something else.
    Other,
}

/// Returns the stream of `name`, if it is such a name.
pub(super) fn stream_by_name(name: &str) -> Option<ProcessStream> {
    let real = if name.starts_with('/') { path::resolve("/", name) } else { name.to_owned() };
    match real.as_str() {
        "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0" => Some(ProcessStream::Input),
        "/dev/null" => Some(ProcessStream::Nothing),
        "/dev/stdout" | "/dev/stderr" | "/dev/tty" => Some(ProcessStream::Other),
        real => (real.starts_with('/') && is_of_the_process(real)).then_some(ProcessStream::Other),
    }
}

/// Returns true for a path that leads elsewhere in each process.
fn is_of_the_process(path: &str) -> bool {
    let real = path::resolve("/", path);
    ["/proc/self", "/proc/thread-self", "/dev/fd"]
        .iter()
        .any(|folder| real.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}
