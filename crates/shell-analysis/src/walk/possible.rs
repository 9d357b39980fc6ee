//! Commands that a line may run although nothing says so: in the arguments and the input of a program that is not known, and in values
//! that the shell computes. A denial of one of them asks.

use super::{LineWalk, MOST_TEXTS_DEEP, MOST_WRAPPED, MOST_WRAPPERS};
use crate::{
    line::{CommandAnalysis, LineAnalysis},
    programs::{SHELLS, base_name},
    run_target::{MOST_TAILS, PossibleCommands, argument_commands},
    runners, simple_command, unwrap,
    word::ShellWord,
};

/// The most bytes of texts with expansions that are judged as values which the shell computes. Beyond them it may run any command.
const MOST_KEPT: usize = 1 << 16;

impl LineWalk<'_> {
    /// Notes the commands in the arguments of a program that is not known, since it may be a wrapper.
    pub(super) fn note_wrapped(&mut self, argv: &[ShellWord], wrapped: usize) {
        self.note_possible_commands(runners::possible_commands(argv), wrapped);
    }

    /// Notes the commands in the arguments of a wrapper, if it has more words than those that were judged as what it runs.
    pub(super) fn note_further_words(&mut self, argv: &[ShellWord], wrapped: usize) {
        if argv.len() > MOST_TAILS {
            self.note_possible_commands(argument_commands(argv), wrapped);
        }
    }

    fn note_possible_commands(&mut self, may_run: PossibleCommands<'_>, wrapped: usize) {
        if may_run.is_empty() {
            return;
        }
        let found = simple_command::wrapped_analysis(&self.place.tool, &may_run.tails);
        if may_run.is_cut || self.is_wrapped_out(&found) {
            return self.any_command();
        }
        // What is a wrapper itself, and the lines, are judged in full, and count as no more than possible.
        let runs = |argv: &&&[ShellWord]| argv.len() > 1 && is_wrapper(&argv[0]);
        let possible = self.judge_aside(|walk| {
            for argv in may_run.tails.iter().filter(runs).take(MOST_WRAPPERS) {
                walk.judge_wrapped(argv, wrapped + 1);
            }
            may_run.lines.iter().for_each(|line| walk.suppose_commands(line));
        });
        self.note_possible(found, possible);
        may_run.prose.iter().for_each(|text| self.note_pieces(text, 1));
    }

    /// Notes the commands in the texts that reach the input of a program, if it may obey them. A text is noted once. There a word may
    /// stand before a command, such as a target.
    pub(super) fn note_inputs(&mut self, argv: &[ShellWord]) {
        if self.noted_inputs == self.inputs.len() || !runners::may_obey_input(argv) {
            return;
        }
        let inputs = std::mem::take(&mut self.inputs);
        inputs[self.noted_inputs..].iter().for_each(|text| self.note_pieces(text, 2));
        self.noted_inputs = inputs.len();
        self.inputs = inputs;
    }

    /// Notes the commands in a text that may be no line of the shell: at the beginnings of lines, and of what stands in quotes and
    /// brackets. A command begins with one of the first `starts` words there, or with any behind a wrapper.
    fn note_pieces(&mut self, text: &str, starts: usize) {
        let is_end = |c: char| "\n;|&(){}[]`'\"".contains(c);
        let is_sign = |c: char| "@-+!$:%".contains(c);
        // One command for all of them: the number of those is bounded.
        let mut all = CommandAnalysis::default();
        for piece in text.split(is_end) {
            let words = piece.split_whitespace().map(|word| ShellWord::from_text(word.trim_start_matches(is_sign)));
            let words: Vec<ShellWord> = words.filter(|word| !word.value.is_empty()).take(MOST_INPUT_WORDS).collect();
            let starts = if words.first().is_some_and(is_wrapper) { words.len() } else { words.len().min(starts) };
            let commands: Vec<&[ShellWord]> = (0..starts).map(|at| &words[at..]).collect();
            let found = simple_command::wrapped_analysis(&self.place.tool, &commands);
            if self.is_wrapped_out(&found) {
                return self.any_command();
            }
            all.wrapped.extend(found.wrapped);
            all.begun.extend(found.begun);
        }
        self.note_possible(all, LineAnalysis::default());
    }

    /// Takes note of a text whose expansions quotes keep: the shell runs them if it computes a value that holds the text.
    pub(super) fn keep_text(&mut self, text: &str) {
        if text.contains("$(") || text.contains('`') {
            self.kept.insert(text.to_owned());
        }
    }

    /// Notes the commands in such texts, if the line computes anything: how the values come there is not followed.
    pub(super) fn note_computed(&mut self) {
        if !self.computes || self.kept.is_empty() {
            return;
        }
        let kept = std::mem::take(&mut self.kept);
        if kept.iter().map(String::len).sum::<usize>() > MOST_KEPT {
            return self.any_command();
        }
        let possible = self.judge_aside(|walk| kept.iter().for_each(|text| walk.run_live(text)));
        self.note_possible(CommandAnalysis::default(), possible);
    }

    /// Takes note of the size of what may run. True if there is too much of it.
    fn is_wrapped_out(&mut self, found: &CommandAnalysis) -> bool {
        self.wrapped += found.wrapped.iter().chain(&found.begun).map(String::len).sum::<usize>();
        self.wrapped > MOST_WRAPPED
    }

    /// Returns what `judge` notes, in place of taking note of it.
    fn judge_aside(&mut self, judge: impl FnOnce(&mut Self)) -> LineAnalysis {
        let (line, here) = (std::mem::take(&mut self.line), self.here.clone());
        judge(self);
        self.here = here;
        std::mem::replace(&mut self.line, line)
    }

    fn note_possible(&mut self, mut found: CommandAnalysis, possible: LineAnalysis) {
        // What is too involved to be judged may be any command, and so may what destroys something.
        if possible.floor.is_some() {
            return self.any_command();
        }
        for command in possible.commands {
            found.wrapped.extend(command.forms.into_iter().chain(command.wrapped));
            found.begun.extend(command.begun);
        }
        if !found.wrapped.is_empty() || !found.begun.is_empty() {
            self.line.commands.push(found);
        }
    }
}

/// The most words of a piece of an input that count. They may be wrappers around a command.
const MOST_INPUT_WORDS: usize = 2 * MOST_TEXTS_DEEP;

/// Reports whether a word names a shell or a wrapper that is known.
fn is_wrapper(word: &ShellWord) -> bool {
    word.as_literal().map(base_name).is_some_and(|name| SHELLS.contains(&name) || unwrap::is_known(name))
}
