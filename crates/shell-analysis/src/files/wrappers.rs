//! Programs that run others, and what is said of those of which the words do not tell all.

use super::{
    arguments,
    commands::{By, is_shell},
    walk::{Input, Walk},
};
use crate::{files::Role, options, programs::is_interpreter, word::Word};

/// Programs that run another that their words name, in ways of their own.
const OTHERS: &str = "bundle bunx caffeinate conda cross-env dotenv gdb hyperfine lldb mpiexec mpirun nix nix-shell nodemon npx perf \
    pipenv pipx pnpx poetry rr uv uvx valgrind";

impl Walk<'_> {
    /// A program that another runs as it stands, such as behind `sudo`; `words` are those before it, and its own.
    pub(super) fn wrapped(
        &mut self,
        name: &str,
        (options, inner): (&[Word], &[Word]),
        next: By,
        input: &Input,
        wrapped: usize,
    ) {
        let before = self.state.clone();
        if arguments::has_own_path(name) {
            self.state.path = None;
            // It can be told to run elsewhere, in another root, or as from a login.
            let moves = |word: &Word| {
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
            let text: Vec<String> = words.map(Word::approximate).collect();
            self.fed(input, |walk| walk.aside(&text.join(" ")));
        } else {
            self.invoke(inner, next, input, wrapped + 1);
        }
        self.state = before;
    }

    /// What a wrapper runs of which nobody can tell: what it may be is noted, and that it is not known is said.
    pub(super) fn anything(
        &mut self,
        name: &str,
        argv: &[Word],
        (perhaps, texts): (&[Vec<Word>], &[String]),
        (by, input): (By, &Input),
        wrapped: usize,
    ) {
        match name {
            "eval" => {
                self.fed(input, |walk| texts.iter().for_each(|text| walk.text(text)));
                if argv[1..].iter().any(|word| Self::known(word).is_none()) {
                    self.unknown("what eval changes for the commands behind it");
                    self.forget();
                }
                return;
            }
            "alias" => {}
            "trap" if argv.get(1).is_none_or(|word| matches!(word.value.as_str(), "" | "-" | "-p" | "-l")) => {}
            "trap" => self.unknown("what trap runs later, and where"),
            _ if by == By::Perhaps => {}
            _ => self.unknown(format!("what {name} runs")),
        }
        self.fed(input, |walk| {
            texts.iter().for_each(|text| walk.aside(text));
            perhaps.iter().for_each(|inner| walk.invoke(inner, By::Perhaps, input, wrapped + 1));
        });
    }

    /// What a program runs because of its words, where no more is known of them.
    pub(super) fn note_options(&mut self, name: &str, argv: &[Word], by: By) {
        if by == By::Perhaps {
            return;
        }
        let words: Vec<&str> = argv[1..].iter().map(|word| word.value.as_str()).collect();
        if name == "find" && words.iter().any(|word| matches!(*word, "-execdir" | "-okdir")) {
            self.unknown("what find runs in other folders");
        }
        let is_read = is_shell(name) || arguments::family(name).is_some();
        let is_read = is_read || matches!(name, "." | "source");
        let is_strange = is_interpreter(name) && !is_read && !crate::unwrap::is_known(name);
        if is_strange || OTHERS.split_ascii_whitespace().any(|known| known == name) {
            self.unknown(format!("what {name} runs"));
            for word in argv[1..].iter().filter(|word| !word.value.starts_with('-')) {
                self.note_path(word, Role::Script, true);
            }
        } else if options::run_something(name, &argv[1..]) {
            self.unknown(format!("what {name} is told to run"));
        }
    }
}
