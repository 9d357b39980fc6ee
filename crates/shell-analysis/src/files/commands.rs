//! Simple commands: their words, what they wrap, and what of that is a file.

use brush_parser::ast;

use super::{
    NamedFile,
    arguments::{self, InterpreterSource},
    walk::{FileWalk, ProcessStream, StdinSource, stream_by_name},
};
use crate::{
    files::FileRole,
    path,
    programs::{SHELLS, base_name},
    run_target::RunTarget,
    simple_command, unwrap,
    word::{self, ShellWord},
};

/// Builtins of the shell.
const BUILTINS: &str = "! . : [ [[ ]] alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown \
    echo enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf \
    pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask \
    unalias unset wait time { }";
/// Programs that run the rest of their line on another machine, or in another root.
const ELSEWHERE: &str =
    "ssh scp rsync docker podman kubectl lxc chroot unshare nsenter systemd-run firejail bwrap proot";
/// Maximum nesting of wrappers.
const MOST_WRAPPED: usize = 8;

/// Invoker of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvokedBy {
    /// The shell runs it.
    Shell,
    /// Another program does, which knows no builtins.
    Program,
    /// Perhaps another program does.
    Perhaps,
}

/// Returns true for a shell by its base name.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || matches!(name, "zsh" | "ksh" | "mksh" | "ash" | "fish" | "csh" | "tcsh")
}

fn is_listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

impl FileWalk<'_> {
    /// Returns the words of a command, without what is set before it.
    pub(super) fn plain_words(&mut self, command: &ast::SimpleCommand) -> Vec<ShellWord> {
        let mut raw: Vec<Option<&str>> = command.word_or_name.iter().map(|name| Some(name.value.as_str())).collect();
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::Word(word)
                | ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => raw.push(Some(&word.value)),
                // It stands for a name that is only known when it runs.
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => raw.push(None),
                ast::CommandPrefixOrSuffixItem::IoRedirect(_) => {}
            }
        }
        let mut words = Vec::new();
        for raw in raw {
            match raw {
                Some(raw) => {
                    // Too many are one of which nothing is known.
                    let made = word::expand_braces(raw).unwrap_or_else(|word::TooManyWords| vec![raw.to_owned()]);
                    words.extend(made.iter().map(|raw| self.scan_word(raw)));
                }
                None => words.push(ShellWord { raw: "<(…)".to_owned(), ..ShellWord::unknown_word() }),
            }
        }
        words
    }

    fn command_items(command: &ast::SimpleCommand) -> impl Iterator<Item = &ast::CommandPrefixOrSuffixItem> {
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        prefix.chain(command.suffix.iter().flat_map(|suffix| &suffix.0))
    }

    /// Returns the input that a command's own redirections set.
    pub(super) fn redirected_input(&mut self, command: &ast::SimpleCommand) -> Option<StdinSource> {
        let redirects: Vec<&ast::IoRedirect> = Self::command_items(command)
            .filter_map(|item| match item {
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => Some(redirect),
                ast::CommandPrefixOrSuffixItem::Word(_)
                | ast::CommandPrefixOrSuffixItem::AssignmentWord(..)
                | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
            })
            .collect();
        redirects.into_iter().filter_map(|redirect| self.read_by(redirect)).last()
    }

    fn read_by(&mut self, redirect: &ast::IoRedirect) -> Option<StdinSource> {
        match redirect {
            ast::IoRedirect::File(
                fd,
                ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::ReadAndWrite,
                target,
            ) if fd.is_none_or(|fd| fd == 0) => match target {
                ast::IoFileRedirectTarget::Filename(word) => {
                    let word = self.scan_word(&word.value);
                    Some(StdinSource::Files(vec![word]))
                }
                ast::IoFileRedirectTarget::Fd(_)
                | ast::IoFileRedirectTarget::ProcessSubstitution(..)
                | ast::IoFileRedirectTarget::Duplicate(_) => Some(StdinSource::Unknown),
            },
            ast::IoRedirect::File(None | Some(0), ast::IoFileRedirectKind::DuplicateInput, _) => {
                Some(StdinSource::Unknown)
            }
            ast::IoRedirect::File(..) | ast::IoRedirect::OutputAndError(..) => None,
            ast::IoRedirect::HereString(fd, word) if fd.is_none_or(|fd| fd == 0) => {
                let word = self.scan_word(&word.value);
                Some(Self::known_text(&word).map_or(StdinSource::Unknown, |text| StdinSource::Text(text.to_owned())))
            }
            ast::IoRedirect::HereDocument(fd, document) if fd.is_none_or(|fd| fd == 0) => {
                let text = &document.doc.value;
                let is_plain = !document.requires_expansion || !text.contains(['$', '`', '\\']);
                Some(if is_plain { StdinSource::Text(text.clone()) } else { StdinSource::Unknown })
            }
            ast::IoRedirect::HereString(..) | ast::IoRedirect::HereDocument(..) => None,
        }
    }

    /// Takes a redirection: what it runs, what it writes, and what it has its command read.
    pub(super) fn walk_redirect(&mut self, redirect: &ast::IoRedirect) -> Option<StdinSource> {
        match redirect {
            ast::IoRedirect::File(_, kind, target) => match target {
                ast::IoFileRedirectTarget::Filename(word) => {
                    self.run_expansions(&word.value);
                    if !matches!(kind, ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::DuplicateInput) {
                        self.note_write(&word.value);
                    }
                }
                ast::IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                    self.walk_aside(&subshell.list.to_string())
                }
                ast::IoFileRedirectTarget::Duplicate(word) => self.run_expansions(&word.value),
                ast::IoFileRedirectTarget::Fd(_) => {}
            },
            ast::IoRedirect::OutputAndError(word, _) => {
                self.run_expansions(&word.value);
                self.note_write(&word.value);
            }
            ast::IoRedirect::HereString(_, word) => self.run_expansions(&word.value),
            ast::IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    self.words_in(&document.doc.value);
                }
            }
        }
        self.read_by(redirect)
    }

    fn note_write(&mut self, raw: &str) {
        let word = self.scan_word(raw);
        match Self::known_text(&word).filter(|name| *name != "/dev/null").map(str::to_owned) {
            Some(name) => {
                let places = self.candidate_paths(&name).unwrap_or_default();
                self.written.extend(places.iter().map(|place| path::resolve("/", place)));
            }
            None if word.value == "/dev/null" => {}
            None => self.may_have_made = true,
        }
    }

    pub(super) fn walk_simple(&mut self, command: &ast::SimpleCommand, fed: &StdinSource) {
        let mut set = Vec::new();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            if let ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) = item {
                let word = self.scan_word(&word.value);
                self.run_all(&word);
                set.push(word);
            }
        }
        let argv = self.plain_words(command);
        argv.iter().for_each(|word| self.run_all(word));
        let mut own = None;
        let items: Vec<_> = Self::command_items(command).collect();
        for item in items {
            match item {
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => own = self.walk_redirect(redirect).or(own),
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                    self.walk_aside(&subshell.list.to_string());
                }
                ast::CommandPrefixOrSuffixItem::Word(_) | ast::CommandPrefixOrSuffixItem::AssignmentWord(..) => {}
            }
        }
        if argv.is_empty() {
            set.iter().for_each(|word| self.set_variable(word));
            return;
        }
        set.iter().for_each(|word| self.note_variable(word));
        if let ([only], Some(own)) = (argv.as_slice(), &own)
            && only.value == "exec"
        {
            (self.around, self.reads_elsewhere) = (self.seen_from_here(own), true);
        }
        let given = if matches!(fed, StdinSource::Nothing) { self.around.clone() } else { fed.clone() };
        let input = own.unwrap_or(given);
        let before = self.state.path.clone();
        self.set_path(&set);
        self.invoke_command(&argv, InvokedBy::Shell, &input, 0);
        // Assignments before a command apply to that command.
        if !set.is_empty() && set.iter().any(|word| word.value.starts_with("PATH")) {
            self.state.path = before;
        }
        if !simple_command::is_read_only(&argv) {
            self.may_have_made = true;
        }
    }

    pub(super) fn invoke_command(&mut self, argv: &[ShellWord], by: InvokedBy, input: &StdinSource, wrapped: usize) {
        let Some(first) = argv.first().filter(|_| wrapped < MOST_WRAPPED) else { return };
        let name = if first.raw == "[" { Some("[") } else { Self::known_text(first) };
        let Some(program) = name.map(str::to_owned) else {
            if by != InvokedBy::Perhaps {
                self.note_unknown(format!("{}: which program it is is only known when it runs", first.raw));
            }
            return;
        };
        if by == InvokedBy::Perhaps && program.contains(char::is_whitespace) {
            return;
        }
        let is_builtin = by == InvokedBy::Shell && is_listed(BUILTINS, &program);
        if by == InvokedBy::Shell && self.call_function(&program) {
            return;
        }
        if !is_builtin {
            self.note_program(&program, by == InvokedBy::Perhaps);
        }
        let name = base_name(&program).to_owned();
        if by == InvokedBy::Shell {
            self.change_state(&name, argv);
        }
        let by_shell = is_builtin && matches!(name.as_str(), "command" | "builtin" | "time");
        let next = match by {
            InvokedBy::Perhaps => InvokedBy::Perhaps,
            InvokedBy::Shell if by_shell => InvokedBy::Shell,
            InvokedBy::Shell | InvokedBy::Program => InvokedBy::Program,
        };
        if is_listed(ELSEWHERE, &name) {
            if by != InvokedBy::Perhaps && !matches!(name.as_str(), "scp" | "rsync") {
                self.note_unknown(format!("what {name} runs elsewhere"));
            }
            return;
        }
        if let Some(at) = arguments::wrapped_start(&name, argv) {
            return self.invoke_wrapped(&name, (&argv[1..at], &argv[at..]), next, input, wrapped);
        }
        self.note_options(&name, argv, by);
        if is_shell(&name) || arguments::option_style(&name).is_some() {
            return self.note_interpreter(&name, argv, by, input);
        }
        // The words of the program itself are literal for the unwrapping code.
        let mut literal = argv.to_vec();
        literal[0] = ShellWord { raw: program.clone(), value: program, ..ShellWord::default() };
        match unwrap::unwrap_command(&literal) {
            RunTarget::Itself => {}
            RunTarget::Other { assignments, argv: inner } => {
                let before = self.state.path.clone();
                if literal.iter().any(|word| matches!(word.value.as_str(), "-i" | "-" | "--ignore-environment"))
                    && name == "env"
                {
                    self.state.path = None;
                }
                if name == "command" && literal.get(1).is_some_and(|word| word.value == "-p") {
                    self.state.path = None;
                }
                self.set_path(&assignments);
                assignments.iter().for_each(|word| self.note_variable(word));
                self.invoke_command(&inner, next, input, wrapped + 1);
                self.state.path = before;
            }
            RunTarget::Beside(all) => {
                all.iter().for_each(|inner| self.invoke_command(inner, InvokedBy::Program, input, wrapped + 1))
            }
            RunTarget::Text(text) => self.with_input(input, |walk| walk.walk_aside(&text)),
            RunTarget::Anything { perhaps, texts, .. } => {
                self.invoke_anything(&name, argv, (&perhaps, &texts), (by, input), wrapped)
            }
        }
    }

    /// Notes a program by its path, or by its name.
    fn note_program(&mut self, program: &str, is_perhaps: bool) {
        if program.contains('/') {
            let word = ShellWord { raw: program.to_owned(), value: program.to_owned(), ..ShellWord::default() };
            return self.note_path(&word, FileRole::Program, is_perhaps);
        }
        if is_perhaps {
            return;
        }
        let path = self.state.path.clone();
        match self.searched_paths(program, path.as_deref()) {
            Some(tried) => self.note_file(NamedFile {
                name: program.to_owned(),
                role: FileRole::Program,
                tried,
                is_searched: true,
                is_perhaps: false,
                may_be_made: self.may_have_made,
                path,
            }),
            None => self.note_unknown(format!("{program}: where it is looked for is only known when it runs")),
        }
    }

    /// Notes a file that an interpreter runs.
    fn note_interpreter(&mut self, name: &str, argv: &[ShellWord], by: InvokedBy, input: &StdinSource) {
        let is_perhaps = by == InvokedBy::Perhaps;
        let found = if is_shell(name) { arguments::of_shell(argv) } else { arguments::of_interpreter(name, argv) };
        let endings = found.endings;
        found.files.iter().for_each(|word| self.note_with(word, FileRole::Script, is_perhaps, endings));
        found.perhaps.iter().for_each(|word| self.note_with(word, FileRole::Script, true, endings));
        if !is_perhaps {
            found.modules.iter().for_each(|module| self.note_module(name, module));
        }
        match found.reads {
            InterpreterSource::Nothing => {}
            InterpreterSource::Text(text) if is_shell(name) => match Self::known_text(&text).map(str::to_owned) {
                Some(text) => self.with_input(input, |walk| walk.walk_aside(&text)),
                None => self.note_unknown(format!("the text that {name} runs is only known when it runs")),
            },
            InterpreterSource::Text(_) => {}
            InterpreterSource::Module(module) => self.note_module(name, &module),
            InterpreterSource::File(word) => {
                if Self::known_text(&word).and_then(stream_by_name) == Some(ProcessStream::Input) {
                    return self.note_input(name, input);
                }
                self.note_script(name, &word, is_perhaps, endings);
            }
            InterpreterSource::Input => self.note_input(name, input),
            InterpreterSource::Unclear(word) if !is_perhaps => {
                self.note_unknown(format!("what {name} makes of {word}"))
            }
            InterpreterSource::Unclear(_) => {}
        }
    }

    fn note_module(&mut self, name: &str, module: &str) {
        self.note_unknown(format!("{module}: a module, which {name} looks for itself"));
    }

    /// Notes a script by its name: a shell looks for one without a slash in its folder first, and then among the programs.
    fn note_script(&mut self, shell: &str, word: &ShellWord, is_perhaps: bool, endings: &[&str]) {
        let name = Self::known_text(word)
            .filter(|name| is_shell(shell) && !name.contains('/') && stream_by_name(name).is_none());
        let Some(name) = name.map(str::to_owned) else {
            return self.note_with(word, FileRole::Script, is_perhaps, endings);
        };
        let path = self.state.path.clone();
        let (Some(places), searched) = (self.candidate_paths(&name), self.searched_paths(&name, path.as_deref()))
        else {
            return self.note_path(word, FileRole::Script, is_perhaps);
        };
        for place in places {
            let mut tried = vec![place];
            tried.extend(searched.clone().unwrap_or_default());
            self.note_file(NamedFile {
                name: name.clone(),
                role: FileRole::Script,
                tried,
                is_searched: false,
                is_perhaps,
                may_be_made: self.may_have_made,
                path: path.clone(),
            });
        }
    }

    /// Notes the input that an interpreter reads.
    fn note_input(&mut self, name: &str, input: &StdinSource) {
        match input {
            StdinSource::Nothing => {}
            StdinSource::Files(words) => {
                for word in words.clone() {
                    match Self::known_text(&word).and_then(stream_by_name) {
                        Some(ProcessStream::Nothing) => {}
                        Some(_) => self.note_unknown(format!("what {name} reads on its input")),
                        None => self.note_path(&word, FileRole::Script, false),
                    }
                }
            }
            // A shell within it reads the rest of it.
            StdinSource::Text(text) if is_shell(name) => {
                self.with_input(&StdinSource::Unknown, |walk| walk.walk_aside(text))
            }
            StdinSource::Text(_) => {}
            StdinSource::Unknown => self.note_unknown(format!("what {name} reads on its input")),
        }
    }
}
