//! Programs that run others, and reports about those whose words are not enough.

use super::{
    arguments,
    commands::{InvokedBy, is_shell},
    walk::{FileWalk, StdinSource},
};
use crate::{files::FileRole, options, programs::is_interpreter, word::ShellWord};

/// Programs that run another that their words name, in ways of their own.
const OTHERS: &str = "bundle bunx caffeinate conda cross-env dotenv gdb hyperfine lldb mpiexec mpirun nix nix-shell nodemon npx perf \
    pipenv pipx pnpx poetry rr uv uvx valgrind";

impl FileWalk<'_> {
    /// Notes a program that another runs as it stands, such as after `sudo`; `words` are those before it, and its own.
    pub(super) fn invoke_wrapped(
        &mut self,
        name: &str,
        (options, inner): (&[ShellWord], &[ShellWord]),
        next: InvokedBy,
        input: &StdinSource,
        wrapped: usize,
    ) {
        let before = self.state.clone();
        if arguments::has_own_path(name) {
            self.state.path = None;
            // Options may have it run elsewhere, in another root, or as from a login.
            let moves = |word: &ShellWord| {
                ["-D", "-R", "-i", "--chdir", "--chroot", "--login"].iter().any(|option| word.value.starts_with(option))
            };
            if options.iter().any(moves) {
                self.state.folders = None;
            }
            options.iter().for_each(|word| self.note_variable(word));
        }
        let is_text =
            name == "watch" || inner.first().is_some_and(|word| matches!(word.value.as_str(), "-c" | "--command"));
        if is_text && matches!(name, "watch" | "flock") {
            let words = inner.iter().skip(usize::from(name == "flock"));
            let text: Vec<String> = words.map(ShellWord::approximate_text).collect();
            self.with_input(input, |walk| walk.walk_aside(&text.join(" ")));
        } else {
            self.invoke_command(inner, next, input, wrapped + 1);
        }
        self.state = before;
    }

    /// Notes the possible programs of a wrapper whose target is unknown, and reports that it is unknown.
    pub(super) fn invoke_anything(
        &mut self,
        name: &str,
        argv: &[ShellWord],
        (perhaps, texts): (&[Vec<ShellWord>], &[String]),
        (by, input): (InvokedBy, &StdinSource),
        wrapped: usize,
    ) {
        match name {
            "eval" => {
                self.with_input(input, |walk| texts.iter().for_each(|text| walk.walk_text(text)));
                if argv[1..].iter().any(|word| Self::known_text(word).is_none()) {
                    self.note_unknown("what eval changes for the commands behind it");
                    self.forget_state();
                }
                return;
            }
            "alias" => {}
            "trap" if argv.get(1).is_none_or(|word| matches!(word.value.as_str(), "" | "-" | "-p" | "-l")) => {}
            "trap" => self.note_unknown("what trap runs later, and where"),
            _ if by == InvokedBy::Perhaps => {}
            _ => self.note_unknown(format!("what {name} runs")),
        }
        self.with_input(input, |walk| {
            texts.iter().for_each(|text| walk.walk_aside(text));
            perhaps.iter().for_each(|inner| walk.invoke_command(inner, InvokedBy::Perhaps, input, wrapped + 1));
        });
    }

    /// Notes the programs that a program runs because of its words, if nothing more is known of them.
    pub(super) fn note_options(&mut self, name: &str, argv: &[ShellWord], by: InvokedBy) {
        if by == InvokedBy::Perhaps {
            return;
        }
        let words: Vec<&str> = argv[1..].iter().map(|word| word.value.as_str()).collect();
        if name == "find" && words.iter().any(|word| matches!(*word, "-execdir" | "-okdir")) {
            self.note_unknown("what find runs in other folders");
        }
        let is_read = is_shell(name) || arguments::option_style(name).is_some();
        let is_read = is_read || matches!(name, "." | "source");
        let is_strange = is_interpreter(name) && !is_read && !crate::unwrap::is_known(name);
        if is_strange || OTHERS.split_ascii_whitespace().any(|known| known == name) {
            self.note_unknown(format!("what {name} runs"));
            for word in argv[1..].iter().filter(|word| !word.value.starts_with('-')) {
                self.note_path(word, FileRole::Script, true);
            }
        } else if options::run_something(name, &argv[1..]) {
            self.note_unknown(format!("what {name} is told to run"));
        }
    }
}
