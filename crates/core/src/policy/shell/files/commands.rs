//! Simple commands: their words, what they wrap, and what of that is a file.

use brush_parser::ast;

use super::{
    Named,
    arguments::{self, Reads},
    walk::{Input, Walk, is_stream},
};
use crate::{
    call::pins::Role,
    policy::{
        path,
        shell::{
            programs::{SHELLS, base_name},
            simple,
            unwrap::{self, Runs},
            word::{self, Word},
        },
    },
};

/// What the shell does itself.
const BUILTINS: &str = "! . : [ [[ ]] alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown \
    echo enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf \
    pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask \
    unalias unset wait time { }";
/// Programs that run the rest of their line on another machine, or in another root.
const ELSEWHERE: &str =
    "ssh scp rsync docker podman kubectl lxc chroot unshare nsenter systemd-run firejail bwrap proot";
/// How many wrappers may wrap one another.
const MOST_WRAPPED: usize = 8;

/// How a command comes to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The shell runs it.
    Shell,
    /// Another program does, which knows no builtins.
    Program,
    /// Perhaps another program does.
    Perhaps,
}

/// True for a shell by its base name.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || matches!(name, "zsh" | "ksh" | "mksh" | "ash" | "fish" | "csh" | "tcsh")
}

fn listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

impl Walk<'_> {
    /// The words of a command, without what is set before it.
    pub(super) fn plain_words(&mut self, command: &ast::SimpleCommand) -> Vec<Word> {
        let mut raw: Vec<&str> = command.word_or_name.iter().map(|name| name.value.as_str()).collect();
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::Word(word)
                | ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => raw.push(&word.value),
                ast::CommandPrefixOrSuffixItem::IoRedirect(_)
                | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => {}
            }
        }
        raw.into_iter().flat_map(word::braces).map(|raw| self.word(&raw)).collect()
    }

    fn items(command: &ast::SimpleCommand) -> impl Iterator<Item = &ast::CommandPrefixOrSuffixItem> {
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        prefix.chain(command.suffix.iter().flat_map(|suffix| &suffix.0))
    }

    /// What a command's own redirections have it read.
    pub(super) fn reads(&mut self, command: &ast::SimpleCommand) -> Option<Input> {
        let redirects: Vec<&ast::IoRedirect> = Self::items(command)
            .filter_map(|item| match item {
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => Some(redirect),
                ast::CommandPrefixOrSuffixItem::Word(_)
                | ast::CommandPrefixOrSuffixItem::AssignmentWord(..)
                | ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
            })
            .collect();
        redirects.into_iter().filter_map(|redirect| self.read_by(redirect)).last()
    }

    fn read_by(&mut self, redirect: &ast::IoRedirect) -> Option<Input> {
        match redirect {
            ast::IoRedirect::File(
                fd,
                ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::ReadAndWrite,
                target,
            ) if fd.is_none_or(|fd| fd == 0) => match target {
                ast::IoFileRedirectTarget::Filename(word) => {
                    let word = self.word(&word.value);
                    Some(Input::Files(vec![word]))
                }
                ast::IoFileRedirectTarget::Fd(_)
                | ast::IoFileRedirectTarget::ProcessSubstitution(..)
                | ast::IoFileRedirectTarget::Duplicate(_) => Some(Input::Unknown),
            },
            ast::IoRedirect::File(None | Some(0), ast::IoFileRedirectKind::DuplicateInput, _) => Some(Input::Unknown),
            ast::IoRedirect::File(..) | ast::IoRedirect::OutputAndError(..) => None,
            ast::IoRedirect::HereString(fd, word) if fd.is_none_or(|fd| fd == 0) => {
                let word = self.word(&word.value);
                Some(Self::known(&word).map_or(Input::Unknown, |text| Input::Text(text.to_owned())))
            }
            ast::IoRedirect::HereDocument(fd, document) if fd.is_none_or(|fd| fd == 0) => {
                let text = &document.doc.value;
                let is_plain = !document.requires_expansion || !text.contains(['$', '`', '\\']);
                Some(if is_plain { Input::Text(text.clone()) } else { Input::Unknown })
            }
            ast::IoRedirect::HereString(..) | ast::IoRedirect::HereDocument(..) => None,
        }
    }

    /// Takes a redirection: what it runs, what it writes, and what it has its command read.
    pub(super) fn redirect(&mut self, redirect: &ast::IoRedirect) -> Option<Input> {
        match redirect {
            ast::IoRedirect::File(_, kind, target) => match target {
                ast::IoFileRedirectTarget::Filename(word) => {
                    self.expanded(&word.value);
                    if !matches!(kind, ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::DuplicateInput) {
                        self.writes(&word.value);
                    }
                }
                ast::IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.aside(&subshell.list.to_string()),
                ast::IoFileRedirectTarget::Fd(_) | ast::IoFileRedirectTarget::Duplicate(_) => {}
            },
            ast::IoRedirect::OutputAndError(word, _) => {
                self.expanded(&word.value);
                self.writes(&word.value);
            }
            ast::IoRedirect::HereString(_, word) => self.expanded(&word.value),
            ast::IoRedirect::HereDocument(..) => {}
        }
        self.read_by(redirect)
    }

    fn writes(&mut self, raw: &str) {
        let word = self.word(raw);
        match Self::known(&word).filter(|name| *name != "/dev/null").map(str::to_owned) {
            Some(name) => {
                let places = self.places(&name).unwrap_or_default();
                self.written.extend(places.iter().map(|place| path::resolve("/", place)));
            }
            None if word.value == "/dev/null" => {}
            None => self.may_have_made = true,
        }
    }

    pub(super) fn simple(&mut self, command: &ast::SimpleCommand, fed: &Input) {
        let mut set = Vec::new();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            if let ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) = item {
                let word = self.word(&word.value);
                self.run_all(&word);
                set.push(word);
            }
        }
        let argv = self.plain_words(command);
        argv.iter().for_each(|word| self.run_all(word));
        let mut own = None;
        let items: Vec<_> = Self::items(command).collect();
        for item in items {
            match item {
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => own = self.redirect(redirect).or(own),
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                    self.aside(&subshell.list.to_string());
                }
                ast::CommandPrefixOrSuffixItem::Word(_) | ast::CommandPrefixOrSuffixItem::AssignmentWord(..) => {}
            }
        }
        if argv.is_empty() {
            set.iter().for_each(|word| self.set(word));
            return;
        }
        let input = own.unwrap_or_else(|| fed.clone());
        let before = self.state.path.clone();
        self.set_path(&set);
        self.invoke(&argv, By::Shell, &input, 0);
        // What stands before a command holds for that command.
        if !set.is_empty() && set.iter().any(|word| word.value.starts_with("PATH")) {
            self.state.path = before;
        }
        if !simple::reads(&argv) {
            self.may_have_made = true;
        }
    }

    /// Notes a variable that is set for good.
    fn set(&mut self, word: &Word) {
        self.set_path(std::slice::from_ref(word));
        let Some((name, value)) = word.value.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        else {
            return;
        };
        let name = name.trim_end_matches('+').to_owned();
        self.state.variables.retain(|(known, _)| *known != name);
        let is_plain = Self::known(word).is_some() && !word.raw.contains("+=") && !value.contains(char::is_whitespace);
        if is_plain && !matches!(name.as_str(), "PATH" | "HOME" | "PWD") {
            self.state.variables.push((name, value));
        }
    }

    fn set_path(&mut self, set: &[Word]) {
        for word in set {
            if let Some(value) = word.value.strip_prefix("PATH=") {
                self.state.path = Self::known(word).is_some().then(|| value.to_owned());
            } else if word.value.starts_with("PATH+") || word.value == "PATH" {
                self.state.path = None;
            }
        }
    }

    fn invoke(&mut self, argv: &[Word], by: By, input: &Input, wrapped: usize) {
        let Some(first) = argv.first().filter(|_| wrapped < MOST_WRAPPED) else { return };
        let Some(program) = Self::known(first).map(str::to_owned) else {
            if by != By::Perhaps {
                self.unknown(format!("{}: which program it is is only known when it runs", first.raw));
            }
            return;
        };
        if by == By::Perhaps && program.contains(char::is_whitespace) {
            return;
        }
        let is_function = by == By::Shell && self.functions.contains(&program);
        let is_builtin = by == By::Shell && listed(BUILTINS, &program);
        if is_function {
            return;
        }
        if !is_builtin {
            self.note_program(&program, by == By::Perhaps);
        }
        let name = base_name(&program).to_owned();
        if by == By::Shell {
            self.change_state(&name, argv);
        }
        let by_shell = is_builtin && matches!(name.as_str(), "command" | "builtin" | "time");
        let next = match by {
            By::Perhaps => By::Perhaps,
            By::Shell if by_shell => By::Shell,
            By::Shell | By::Program => By::Program,
        };
        if listed(ELSEWHERE, &name) {
            if by != By::Perhaps && !matches!(name.as_str(), "scp" | "rsync") {
                self.unknown(format!("what {name} runs elsewhere"));
            }
            return;
        }
        if let Some(at) = arguments::wraps(&name, argv) {
            return self.wrapped(&name, &argv[at..], next, input, wrapped);
        }
        if is_shell(&name) || arguments::family(&name).is_some() {
            return self.interpreter(&name, argv, by, input);
        }
        // The words of the program itself are literal to whoever unwraps it.
        let mut literal = argv.to_vec();
        literal[0] = Word { raw: program.clone(), value: program, ..Word::default() };
        match unwrap::runs(&literal) {
            Runs::Itself => {}
            Runs::Other { assignments, argv: inner } => {
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
                self.invoke(&inner, next, input, wrapped + 1);
                self.state.path = before;
            }
            Runs::Beside(all) => {
                all.iter().for_each(|inner| self.invoke(inner, By::Program, &Input::Nothing, wrapped + 1))
            }
            Runs::Text(text) => self.aside(&text),
            Runs::Anything { perhaps, texts, .. } => {
                if matches!(name.as_str(), "eval") {
                    texts.iter().for_each(|text| self.text(text));
                    return;
                }
                texts.iter().for_each(|text| self.aside(text));
                perhaps.iter().for_each(|inner| self.invoke(inner, By::Perhaps, &Input::Nothing, wrapped + 1));
            }
        }
    }

    /// A program that another runs as it stands, such as behind `sudo`.
    fn wrapped(&mut self, name: &str, inner: &[Word], next: By, input: &Input, wrapped: usize) {
        let before = self.state.path.clone();
        if arguments::has_own_path(name) {
            self.state.path = None;
        }
        self.invoke(inner, next, input, wrapped + 1);
        self.state.path = before;
    }

    /// A program by its path, or by its name.
    fn note_program(&mut self, program: &str, is_perhaps: bool) {
        if program.contains('/') {
            let word = Word { raw: program.to_owned(), value: program.to_owned(), ..Word::default() };
            return self.note_path(&word, Role::Program, is_perhaps);
        }
        if is_perhaps {
            return;
        }
        let path = self.state.path.clone();
        match self.searched(program, path.as_deref()) {
            Some(tried) => self.note(Named {
                name: program.to_owned(),
                role: Role::Program,
                tried,
                is_searched: true,
                is_perhaps: false,
                may_be_made: self.may_have_made,
                path,
            }),
            None => self.unknown(format!("{program}: where it is looked for is only known when it runs")),
        }
    }

    /// A file that an interpreter runs.
    fn interpreter(&mut self, name: &str, argv: &[Word], by: By, input: &Input) {
        let is_perhaps = by == By::Perhaps;
        let found = if is_shell(name) { arguments::of_shell(argv) } else { arguments::of_interpreter(name, argv) };
        found.files.iter().for_each(|word| self.note_path(word, Role::Script, is_perhaps));
        match found.reads {
            Reads::Nothing => {}
            Reads::Text(text) if is_shell(name) => match Self::known(&text).map(str::to_owned) {
                Some(text) => self.aside(&text),
                None => self.unknown(format!("the text that {name} runs is only known when it runs")),
            },
            Reads::Text(_) => {}
            Reads::Module(module) => self.unknown(format!("{module}: a module, which {name} looks for itself")),
            Reads::File(word) => {
                if Self::known(&word).is_some_and(is_stream) {
                    return self.input(name, input);
                }
                self.script(name, &word, is_perhaps);
            }
            Reads::Input => self.input(name, input),
            Reads::Unclear(word) if !is_perhaps => self.unknown(format!("what {name} makes of {word}")),
            Reads::Unclear(_) => {}
        }
    }

    /// A script by its name: a shell looks for one without a slash in its folder first, and then among the programs.
    fn script(&mut self, shell: &str, word: &Word, is_perhaps: bool) {
        let Some(name) = Self::known(word).map(str::to_owned) else {
            return self.note_path(word, Role::Script, is_perhaps);
        };
        if !is_shell(shell) || name.contains('/') {
            return self.note_path(word, Role::Script, is_perhaps);
        }
        let path = self.state.path.clone();
        let (Some(places), searched) = (self.places(&name), self.searched(&name, path.as_deref())) else {
            return self.note_path(word, Role::Script, is_perhaps);
        };
        for place in places {
            let mut tried = vec![place];
            tried.extend(searched.clone().unwrap_or_default());
            self.note(Named {
                name: name.clone(),
                role: Role::Script,
                tried,
                is_searched: false,
                is_perhaps,
                may_be_made: self.may_have_made,
                path: path.clone(),
            });
        }
    }

    /// What an interpreter reads on its input.
    fn input(&mut self, name: &str, input: &Input) {
        match input {
            Input::Nothing => {}
            Input::Files(words) => {
                for word in words.clone() {
                    if Self::known(&word).is_some_and(is_stream) {
                        self.unknown(format!("what {name} reads on its input"));
                    } else {
                        self.note_path(&word, Role::Script, false);
                    }
                }
            }
            Input::Text(text) if is_shell(name) => self.aside(&text.clone()),
            Input::Text(_) => {}
            Input::Unknown => self.unknown(format!("what {name} reads on its input")),
        }
    }

    /// What a builtin changes for the commands behind it.
    fn change_state(&mut self, name: &str, argv: &[Word]) {
        match name {
            "cd" | "pushd" => self.change_folder(name, argv),
            "popd" => self.state.folders = None,
            "." | "source" => self.source(argv),
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                argv[1..].iter().filter(|word| word.value.contains('=')).for_each(|word| self.set(word));
            }
            "read" | "mapfile" | "readarray" | "getopts" => self.state.variables.clear(),
            "unset" if argv.iter().any(|word| word.value == "PATH") => self.state.path = None,
            "unset" => self.state.variables.clear(),
            "hash" if argv.iter().any(|word| word.value.starts_with("-p")) => self.state.path = None,
            "alias" | "enable" => self.unknown(format!("what {name} makes of names behind it")),
            _ => {}
        }
    }

    fn change_folder(&mut self, name: &str, argv: &[Word]) {
        let is_option = |word: &&Word| matches!(word.value.as_str(), "-P" | "-L" | "-e" | "-@" | "--");
        let to = argv[1..].iter().find(|word| !is_option(word)).cloned();
        let to = match to {
            None if name == "cd" => self.home(),
            None => None,
            Some(word) => Self::known(&word).filter(|to| *to != "-" && !to.starts_with('+')).map(str::to_owned),
        };
        let (Some(to), Some(before), false) = (to, self.state.folders.clone(), self.sets_folder()) else {
            self.state.folders = None;
            return;
        };
        let reached: Vec<String> = before.iter().map(|folder| path::resolve(folder, &to)).collect();
        for folder in &reached {
            self.note(Named {
                name: to.clone(),
                role: Role::Folder,
                tried: vec![folder.clone()],
                is_searched: false,
                is_perhaps: false,
                may_be_made: self.may_have_made,
                path: None,
            });
        }
        self.state.folders = Some(reached);
        self.bound_folders();
    }

    fn source(&mut self, argv: &[Word]) {
        let Some(word) = argv.get(1).cloned() else { return };
        let known = Self::known(&word).map(str::to_owned);
        match known {
            Some(name) if is_stream(&name) => self.unknown("what . reads on its input"),
            Some(name) if !name.contains('/') => {
                let path = self.state.path.clone();
                match (self.searched(&name, path.as_deref()), self.places(&name)) {
                    (Some(mut tried), Some(places)) => {
                        tried.extend(places);
                        self.note(Named {
                            name: name.clone(),
                            role: Role::Script,
                            tried,
                            is_searched: false,
                            is_perhaps: false,
                            may_be_made: self.may_have_made,
                            path,
                        });
                    }
                    (None, _) | (_, None) => {
                        self.unknown(format!("{name}: where it is looked for is only known when it runs"));
                    }
                }
            }
            Some(_) | None => self.note_path(&word, Role::Script, false),
        }
        // It may set what it likes.
        self.state.path = None;
        self.state.variables.clear();
        self.unknown(format!("what {} changes for the commands behind it", word.raw));
    }
}
