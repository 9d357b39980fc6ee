//! Simple commands of a walk: their words, what they wrap, and where they write.

use brush_parser::ast;

use super::{LineWalk, MOST_COMMANDS, MOST_TEXTS_DEEP};
use crate::{
    action_class::ActionClass as Class,
    classes, declarations, disk, find,
    line::CommandAnalysis,
    narrow_words,
    programs::base_name,
    protect,
    run_target::RunTarget,
    runners, secret,
    simple_command::{self, CoverNeed},
    unwrap,
    word::{self, GLOB, ShellWord, UNKNOWN},
};

impl LineWalk<'_> {
    pub(super) fn walk_simple(&mut self, command: &ast::SimpleCommand) {
        if let Some(name) = &command.word_or_name {
            let scanned = word::scan_word(&name.value, self.known_folders().as_known(&[]));
            // An unknown variable may be empty.
            let is_own = ["$FUNCNAME", "${FUNCNAME", "$0"].iter().any(|own| name.value.contains(own));
            self.calls.note_call(&scanned.value.replace(UNKNOWN, ""), is_own);
        }
        let (mut assignments, mut argv) = (self.environment_words(), Vec::new());
        let given = assignments.len();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            self.walk_item(item, WordPosition::Before, &mut assignments);
        }
        argv.extend(command.word_or_name.iter().flat_map(|name| self.scan_words(&name.value)));
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.walk_item(item, WordPosition::Behind, &mut argv);
        }
        // After `time`, which the grammar takes for a word of its own.
        if argv.len() > 1 && argv[0].as_literal() == Some("--") {
            argv.remove(0);
        }
        // The word is bash's own. For another shell `time` is a program, and these are its options.
        if argv.len() > 1 && argv[0].as_literal().is_some_and(|option| option.starts_with('-')) {
            argv.insert(0, ShellWord::from_text("time"));
        }
        if assignments.len() > given || !argv.is_empty() {
            assignments.iter().chain(&argv).for_each(|word| self.variables.note_assignment(word, self.place));
            self.invoke_command(&assignments, &argv, CoverNeed::Needed, 0);
        }
    }

    fn walk_item(&mut self, item: &ast::CommandPrefixOrSuffixItem, stands: WordPosition, words: &mut Vec<ShellWord>) {
        match item {
            ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.walk_redirect(redirect),
            ast::CommandPrefixOrSuffixItem::Word(word) => words.extend(self.scan_words(&word.value)),
            ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                self.computes |= matches!(assignment.name, ast::AssignmentName::ArrayElementName(..));
                if matches!(assignment.name, ast::AssignmentName::ArrayElementName(..))
                    || matches!(assignment.value, ast::AssignmentValue::Array(_))
                {
                    self.line.note_opaque("an array");
                }
                match stands {
                    WordPosition::Before => words.push(self.scan_word(&word.value)),
                    // There its braces make words as any other's.
                    WordPosition::Behind => words.extend(self.scan_words(&word.value)),
                }
            }
            ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.walk_substitution(&subshell.list);
                words.push(ShellWord { opaque: Some("process substitution"), ..ShellWord::unknown_word() });
            }
        }
    }

    fn walk_substitution(&mut self, list: &ast::CompoundList) {
        self.line.note_opaque("process substitution");
        let (here, fed) = (self.here.clone(), self.fed);
        let around = self.calls.go_within();
        self.walk_list(list);
        self.calls.leave_within(around);
        (self.here, self.fed) = (here, fed);
    }

    fn invoke_command(&mut self, assignments: &[ShellWord], argv: &[ShellWord], cover: CoverNeed, wrapped: usize) {
        let most = argv.iter().map(|word| word.perhaps.len()).max().unwrap_or(0) + 1;
        let cost = |word: &ShellWord| word.raw.len() + word.value.len() + 64 * (1 + protect::ways_to_read(&word.value));
        let bytes: usize = assignments.iter().chain(argv).map(cost).sum();
        // Each folder that the shell may be in is looked at for each of them.
        let folders = self.here.possible_dirs().count().max(1);
        let is_spent = self.is_spent_by(bytes.saturating_mul(most).saturating_mul(folders));
        if is_spent || self.line.commands.len() >= MOST_COMMANDS || wrapped > MOST_TEXTS_DEEP {
            return self.note_beyond("is too involved to be judged");
        }
        for text in assignments.iter().chain(argv).flat_map(|word| word.runs.clone()) {
            if wrapped == 0 {
                self.walk_within(&text);
            }
        }
        for name in declarations::filled_names(argv) {
            self.variables.fill_variable(name);
        }
        if declarations::may_set_any(argv) {
            self.variables.lose_track();
        }
        self.note_meanings(assignments, argv);
        let runs = if argv.is_empty() { RunTarget::Itself } else { unwrap::unwrap_command(argv) };
        if let Some((program, rest)) = argv.split_first().filter(|(program, _)| program.splits) {
            for text in program.perhaps.iter().filter(|text| text.contains(char::is_whitespace)) {
                let parts = text.split_whitespace().map(ShellWord::from_text).chain(rest.iter().cloned());
                self.invoke_command(assignments, &parts.collect::<Vec<_>>(), CoverNeed::Perhaps, wrapped + 1);
            }
        }
        let handed_on = runners::nested_commands(argv);
        handed_on
            .commands
            .iter()
            .for_each(|argv| self.invoke_command(assignments, argv, CoverNeed::Perhaps, wrapped + 1));
        handed_on.texts.iter().for_each(|text| self.suppose_commands(text));
        if handed_on.is_open {
            self.any_command();
        }
        // A file of the workspace may have any name, a wrapper's too.
        let wraps = matches!(runs, RunTarget::Other { .. } | RunTarget::Text(_)) && classes::is_by_name(argv);
        let own = if wraps && cover == CoverNeed::Needed { CoverNeed::Wrapper } else { cover };
        self.line.classes.extend(classes::classes_of_command(argv, &runs, self.fed, cover != CoverNeed::Perhaps));
        simple_command::note_command(&mut self.line, self.place, &self.here, assignments, argv, own);
        if own == CoverNeed::Needed {
            let words: Vec<String> = assignments.iter().chain(argv).map(ShellWord::normal_form).collect();
            self.line.plain.push(words.join(" "));
        }
        match runs {
            RunTarget::Itself => {
                self.note_wrapped(argv, wrapped);
                self.note_inputs(argv);
                self.change_folder(argv);
                // Another program that is called so leaves the shell where it is.
                if wrapped > 0 || cover != CoverNeed::Needed {
                    self.here.lose_list();
                }
            }
            RunTarget::Other { assignments: more, argv: inner } => {
                let all = [assignments, more.as_slice()].concat();
                self.invoke_command(&all, &inner, cover, wrapped + 1);
            }
            RunTarget::Beside(inner) => {
                let here = self.here.clone();
                let folders = find::goes_to(argv);
                folders.iter().for_each(|folder| self.here.change_dir(Some(folder)));
                self.here.lose_list();
                if !folders.is_empty() {
                    self.here.go_below();
                }
                // The depth of the match is unknown.
                if !folders.is_empty() && inner.iter().flatten().any(|word| word.value.contains("..")) {
                    self.here.lose_track();
                }
                for inner in &inner {
                    self.invoke_command(assignments, inner, cover, wrapped + 1);
                }
                self.here = here;
                let does_more = inner.iter().any(|inner| !simple_command::is_read_only(inner));
                for start in find::start_folders(&argv[1..]) {
                    protect::note_come_across(&mut self.line, self.place, &self.here, start, does_more);
                }
            }
            RunTarget::Text(text) => {
                if !assignments.is_empty() {
                    self.line.note_opaque("a shell with assignments");
                }
                self.walk_apart(&text);
            }
            RunTarget::Anything { why, perhaps, texts, is_open } => {
                if is_open {
                    self.any_command();
                }
                if cover != CoverNeed::Perhaps {
                    self.line.note_opaque(why);
                }
                let here = self.here.clone();
                if argv.iter().any(|word| word.value == "-C" || word.value.starts_with("--chdir")) {
                    self.here.lose_track();
                }
                perhaps.iter().for_each(|argv| self.invoke_command(assignments, argv, CoverNeed::Perhaps, wrapped + 1));
                self.note_further_words(argv, wrapped);
                texts.iter().for_each(|text| self.walk_apart(text));
                self.here = here;
                // These run in the shell itself, now or later.
                let is_own = matches!(argv[0].as_literal(), Some("eval" | "trap"));
                if is_own && texts.iter().any(|text| may_change_folder(text)) {
                    self.here.lose_track();
                }
            }
        }
    }

    /// Notes what a command gives a meaning, so that a denial of what it stands for holds: variables whose values programs run, settings
    /// of git in the environment, aliases and remembered places of programs.
    fn note_meanings(&mut self, assignments: &[ShellWord], argv: &[ShellWord]) {
        let program = argv.first().and_then(ShellWord::as_literal).map(base_name);
        let words = argv.get(1..).unwrap_or_default();
        for word in assignments.iter().filter(|word| word.raw.starts_with("BASH_ALIASES[")) {
            self.may_begin(word.value.split_once('=').map_or("", |(_, value)| value));
        }
        let own = assignments.iter().map(|word| word.value.as_str());
        let set: Vec<&str> = own.chain(declarations::declared_assignments(program, words)).collect();
        for (name, value) in set.into_iter().filter_map(|text| text.split_once('=')) {
            let is_run =
                ["PAGER", "EDITOR", "VISUAL", "BROWSER", "ASKPASS", "COMMAND"].iter().any(|end| name.ends_with(end));
            if gives_git_settings(name) && value != "/dev/null" {
                self.may_begin("git");
            } else if is_run && value.starts_with(UNKNOWN) {
                self.any_command();
            } else if value.contains(char::is_whitespace) && (is_run || !value.contains(UNKNOWN)) {
                // Any program may run what its environment holds.
                self.suppose_commands(&value.replace(UNKNOWN, "$unknown"));
            }
        }
        if program == Some("git") {
            for text in given_settings(words) {
                self.suppose_commands(text.trim_start_matches('!'));
            }
        }
        if program.is_some_and(|program| declarations::expands_again(program, words)) {
            self.computes = true;
            let is_expansion = |word: &&ShellWord| word.value.contains("$(") || word.value.contains('`');
            words.iter().filter(is_expansion).for_each(|word| self.run_live(&word.value));
        }
        match program {
            Some("alias") => {
                let values = words.iter().filter_map(|word| word.value.split_once('='));
                values.for_each(|(_, value)| self.may_begin(value));
            }
            Some("hash") if words.iter().any(|word| word.value.starts_with("-p")) => {
                words.iter().for_each(|word| self.may_begin(word.value.trim_start_matches("-p")));
            }
            _ => {}
        }
    }

    /// Notes that a command may be called by another name, whose words follow those of `text`.
    fn may_begin(&mut self, text: &str) {
        for part in text.replace(UNKNOWN, "$unknown").split(['\n', ';', '|', '&', '(', ')', '{', '}']) {
            let mut argv: Vec<ShellWord> = part.split_whitespace().flat_map(|raw| self.scan_words(raw)).collect();
            if argv.is_empty() {
                continue;
            }
            argv.push(ShellWord::unknown_word());
            let mut begun = simple_command::begun_forms(&self.place.tool, &argv);
            for _ in 0..MOST_TEXTS_DEEP {
                let RunTarget::Other { argv: inner, .. } = unwrap::unwrap_command(&argv) else { break };
                begun.extend(simple_command::begun_forms(&self.place.tool, &inner));
                argv = inner;
            }
            self.line.commands.push(CommandAnalysis { begun, ..CommandAnalysis::default() });
        }
    }

    /// Returns the variables that the call sets for every command of its line.
    fn environment_words(&self) -> Vec<ShellWord> {
        let assignment = |(name, value): &(String, String)| {
            let raw = format!("{name}={}", word::quote_text(value));
            if secret::is_asked_for(value) {
                return ShellWord { raw, value: format!("{name}={UNKNOWN}"), expands: true, ..ShellWord::default() };
            }
            ShellWord { raw, value: format!("{name}={value}"), ..ShellWord::default() }
        };
        self.place.environment.iter().map(assignment).collect()
    }

    /// Judges words that may be a command, for deny rules and the floor.
    pub(super) fn judge_perhaps(&mut self, argv: &[ShellWord]) {
        self.judge_wrapped(argv, 0);
    }

    /// Judges the same in the arguments of `wrapped` programs.
    pub(super) fn judge_wrapped(&mut self, argv: &[ShellWord], wrapped: usize) {
        self.invoke_command(&[], argv, CoverNeed::Perhaps, wrapped);
    }

    fn change_folder(&mut self, argv: &[ShellWord]) {
        let program = argv.first().and_then(ShellWord::as_literal).map(base_name);
        // A process in a folder that is moved is elsewhere then.
        if program == Some("mv")
            && argv[1..].iter().flat_map(ShellWord::all_texts).any(|text| self.here.is_within(text))
        {
            self.here.lose_track();
        }
        if matches!(program, Some("cd" | "pushd" | "popd")) {
            let is_option = |text: &str| {
                text.len() > 1
                    && text
                        .strip_prefix('-')
                        .is_some_and(|rest| rest.trim_start_matches(['P', 'L', 'e', '@', '-']).is_empty())
            };
            let to = argv[1..].iter().find(|word| !is_option(&word.value));
            let is_physical = argv[1..].iter().any(|word| is_option(&word.value) && word.value.contains('P'));
            // After a link a step up leads to the folder around its target.
            if is_physical && to.is_some_and(|to| to.all_texts().any(|text| self.is_up_behind_name(text))) {
                return self.here.change_dir(None);
            }
            match (program, to) {
                _ if self.sets_folders || self.sets_home => self.here.change_dir(None),
                (Some("cd"), None) => self.here.change_dir(self.place.home.as_deref()),
                (_, Some(to)) if to.settled && program != Some("popd") => return self.here.go_to_one_of(&to.perhaps),
                (_, to) => self.here.change_dir(to.map(|word| word.value.as_str()).filter(|_| program != Some("popd"))),
            }
            for to in to.iter().flat_map(|word| &word.perhaps) {
                self.here.change_dir(Some(to));
                self.here.lose_list();
            }
        }
    }

    /// Reports whether a step up in `text` may follow the name of a link, one of the current folder among them.
    fn is_up_behind_name(&self, text: &str) -> bool {
        let is_at_start = self.here.only_dir() == Some(self.place.cwd.as_str());
        let mut parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
        let ups = parts.by_ref().take_while(|part| *part == "..").count();
        ups > 0 && !is_at_start && !text.starts_with('/') || parts.any(|part| part == "..")
    }

    pub(super) fn walk_redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        redirects.iter().flat_map(|list| &list.0).for_each(|redirect| self.walk_redirect(redirect));
    }

    fn walk_redirect(&mut self, redirect: &ast::IoRedirect) {
        match redirect {
            ast::IoRedirect::File(_, kind, target) => {
                let reads = matches!(kind, ast::IoFileRedirectKind::Read | ast::IoFileRedirectKind::DuplicateInput);
                match target {
                    ast::IoFileRedirectTarget::Fd(_) => {}
                    ast::IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                        self.walk_substitution(&subshell.list)
                    }
                    ast::IoFileRedirectTarget::Duplicate(word)
                        if word.value == "-"
                            || word.value.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit()) =>
                    {
                        if !reads {
                            self.line.classes.insert(Class::BashMutating);
                        }
                    }
                    ast::IoFileRedirectTarget::Filename(word) if reads => self.redirect_from(word),
                    ast::IoFileRedirectTarget::Duplicate(word) if reads => {
                        self.line.note_opaque("a redirection to what only the running shell knows");
                        self.run_expansions(word);
                    }
                    ast::IoFileRedirectTarget::Filename(word) | ast::IoFileRedirectTarget::Duplicate(word) => {
                        self.redirect_into(word)
                    }
                }
            }
            ast::IoRedirect::OutputAndError(word, _) => self.redirect_into(word),
            ast::IoRedirect::HereString(_, word) => self.run_expansions(word),
            ast::IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    self.run_live(&document.doc.value);
                } else {
                    self.keep_text(&document.doc.value);
                }
                let document_words: Vec<ShellWord> =
                    document.doc.value.split_whitespace().map(ShellWord::from_text).collect();
                protect::note_output_words(&mut self.line, self.place, &self.here, &document_words);
            }
        }
        self.line.plain.push(redirect.to_string());
    }

    fn redirect_from(&mut self, target: &ast::Word) {
        self.run_expansions(target);
        for word in self.scan_words(&target.value) {
            if word.value.contains([UNKNOWN, GLOB]) {
                self.line.note_opaque("a redirection from what is only known when it runs");
            }
            protect::note_redirected_from(&mut self.line, self.place, &self.here, &word);
        }
    }

    fn redirect_into(&mut self, target: &ast::Word) {
        for word in self.scan_words(&target.value) {
            self.run_all(&word);
            self.line.classes.insert(Class::FileWrite);
            if word.as_literal() == Some("/dev/null") {
                continue;
            }
            self.line.note_opaque("a redirection that writes");
            self.line.redirected.extend(narrow_words::redirected_paths(self.place, &self.here, &word));
            protect::note_redirected_into(&mut self.line, self.place, &self.here, &word);
            for target in word.all_texts() {
                let target = target.replace(UNKNOWN, "");
                if disk::is_device(&self.here, &target) {
                    self.line.note_floor(format!("writes to {}", word::shown_text(&target)));
                }
            }
        }
    }
}

/// Reports whether a variable names settings of git, or a file of them: one of them may be an alias.
fn gives_git_settings(variable: &str) -> bool {
    let setting = variable.strip_prefix("GIT_CONFIG_").unwrap_or_default();
    ["COUNT", "KEY_", "VALUE_", "PARAMETERS", "GLOBAL", "SYSTEM"].iter().any(|name| setting.starts_with(name))
}

/// Position of a word that looks like an assignment.
#[derive(Clone, Copy)]
enum WordPosition {
    Before,
    Behind,
}

/// Reports whether a text that the shell runs may change its folder. Texts that are not spelled out may.
fn may_change_folder(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_name(c)).any(|word| matches!(word, "cd" | "pushd" | "popd" | "unknown"))
}

/// Returns the values of settings that a call of git gives it (`-c name=value`, `config name value`) and that may be commands: those of
/// several words.
fn given_settings(words: &[ShellWord]) -> Vec<String> {
    let is_config = words.iter().any(|word| word.value == "config");
    let mut values = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let text = word.approximate_text();
        let setting = match text.strip_prefix("-c") {
            Some("") => words.get(at + 1).map(ShellWord::approximate_text),
            Some(glued) => Some(glued.to_owned()),
            None if is_config && !text.starts_with('-') => Some(format!("={text}")),
            None => None,
        };
        values
            .extend(setting.as_deref().and_then(|setting| setting.split_once('=')).map(|(_, value)| value.to_owned()));
    }
    values.retain(|value| value.contains(char::is_whitespace));
    values
}
