//! A question as dialogs: one after another under one gate, until the user has answered all.
//!
//! It must not record anything: choices so far are kept by the open dialog, and a question that is shown again starts from the beginning.

use std::collections::BTreeSet;

use countersign_core::gate::{self, GateChoice, GateReply, Kind};
use countersign_protocol::omp::{UiAnswer, UiMethod};
use countersign_view::{GateRequest, LineMode, escape};

use super::APPROVAL_WORDS;

/// Prefix of a question that could pass for an approval: one of several lines, or one that offers an approval's words.
const ASKS: &str = "The agent asks: ";
const RECOMMENDED: &str = " (Recommended)";
const OTHER: &str = "Other (type your own)";
const DONE: &str = "Done selecting";
const CHOSEN: &str = "☑ ";
const OPEN: &str = "☐ ";
const WORDS: &str = "Enter your response:";

/// A question with what can be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionDialog<'a> {
    text: &'a str,
    choices: &'a [GateChoice],
    is_multi: bool,
    recommended: Option<usize>,
    takes_own_words: bool,
    kind: Kind,
}

/// Progress of a user with a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerDraft {
    /// The choices so far, as indices.
    chosen: BTreeSet<usize>,
    /// True if the user is asked for words of their own.
    is_in_words: bool,
}

impl AnswerDraft {
    /// Reports whether its dialog has no time-out of its own and must be closed when the question is over.
    pub(super) const fn is_in_words(&self) -> bool {
        self.is_in_words
    }
}

/// Next step after an answer to a dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DialogStep {
    /// The gate is answered.
    Answer(GateReply),
    /// The same gate is shown again.
    Ask(AnswerDraft),
}

/// Meaning of a line of a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialogOption {
    Choice(usize),
    Done,
    Other,
}

impl<'a> QuestionDialog<'a> {
    /// Returns the question of a gate of this kind; `None` for an approval.
    pub(super) fn for_gate(kind: Kind, request: &'a GateRequest) -> Option<Self> {
        request.question().map(|question| Self {
            text: question.text,
            choices: question.choices,
            is_multi: question.is_multi,
            recommended: question.recommended,
            takes_own_words: question.takes_own_words,
            kind,
        })
    }

    /// Returns the dialog that follows `draft`.
    pub(super) fn dialog_method(&self, draft: &AnswerDraft, timeout: Option<u64>) -> UiMethod {
        if draft.is_in_words {
            return UiMethod::Editor { title: WORDS.to_owned(), prefill: None, prompt_style: Some(true) };
        }
        let title = self.dialog_title();
        if self.choices.is_empty() {
            return UiMethod::Input { title, placeholder: None, timeout };
        }
        let options = self.dialog_options(draft).into_iter().map(|(shown, _)| shown).collect();
        UiMethod::Select { title, options, timeout }
    }

    /// Returns the step that an answer to the dialog of `draft` means.
    pub(super) fn next_step(&self, draft: &AnswerDraft, answer: &UiAnswer) -> DialogStep {
        let value = match answer {
            UiAnswer::Value(value) => value,
            // No question is a yes or no: such an answer has no value.
            UiAnswer::Confirmed(_) | UiAnswer::Cancelled { .. } => return DialogStep::Answer(GateReply::Decline),
        };
        let is_from_list = !draft.is_in_words && !self.choices.is_empty();
        match is_from_list.then(|| self.find_option(draft, value)).flatten() {
            Some(DialogOption::Choice(index)) if self.is_multi => {
                let mut chosen = draft.chosen.clone();
                if !chosen.remove(&index) {
                    chosen.insert(index);
                }
                DialogStep::Ask(AnswerDraft { chosen, is_in_words: false })
            }
            // The user has to describe the wanted changes.
            Some(DialogOption::Choice(index))
                if self.kind == Kind::Plan && self.choices[index].label == gate::CHANGE =>
            {
                DialogStep::Ask(AnswerDraft { chosen: BTreeSet::from([index]), is_in_words: true })
            }
            Some(DialogOption::Choice(index)) => DialogStep::Answer(self.chosen_answer(&BTreeSet::from([index]), None)),
            Some(DialogOption::Done) => DialogStep::Answer(self.chosen_answer(&draft.chosen, None)),
            Some(DialogOption::Other) => {
                DialogStep::Ask(AnswerDraft { chosen: draft.chosen.clone(), is_in_words: true })
            }
            // An empty answer, or no choice to be done with: the same question again, with the choices so far.
            None if value.trim().is_empty() || value == DONE => {
                DialogStep::Ask(AnswerDraft { chosen: draft.chosen.clone(), is_in_words: false })
            }
            None => DialogStep::Answer(self.chosen_answer(&draft.chosen, Some(value))),
        }
    }

    fn chosen_answer(&self, chosen: &BTreeSet<usize>, words: Option<&str>) -> GateReply {
        let labels = chosen.iter().filter_map(|index| self.choices.get(*index)).map(|choice| choice.label.clone());
        GateReply::Say(labels.chain(words.map(str::to_owned)).collect())
    }

    fn dialog_title(&self) -> String {
        let is_plain = !self.text.contains('\n')
            && !self.text.starts_with("The agent")
            && !self.choices.iter().any(|choice| APPROVAL_WORDS.contains(&choice.label.trim()));
        let asks = if is_plain { "" } else { ASKS };
        format!("{asks}{}", escape(self.text, LineMode::Many))
    }

    /// Returns the lines of a dialog, each with what it stands for.
    fn dialog_options(&self, draft: &AnswerDraft) -> Vec<(String, DialogOption)> {
        let labels: Vec<String> =
            self.choices.iter().map(|choice| escape(&choice.label, LineMode::One).into_owned()).collect();
        let mut lines: Vec<(String, DialogOption)> = Vec::with_capacity(labels.len() + 2);
        for (index, label) in labels.iter().enumerate() {
            let mark = match (self.is_multi, draft.chosen.contains(&index)) {
                (false, _) => "",
                (true, true) => CHOSEN,
                (true, false) => OPEN,
            };
            let recommended = format!("{label}{RECOMMENDED}");
            // Two lines that look alike could not be told apart in an answer.
            let label =
                if self.recommended == Some(index) && !labels.contains(&recommended) { &recommended } else { label };
            lines.push((format!("{mark}{label}"), DialogOption::Choice(index)));
        }
        if self.is_multi && !draft.chosen.is_empty() {
            lines.push((DONE.to_owned(), DialogOption::Done));
        }
        if self.takes_own_words && (self.is_multi || !labels.iter().any(|label| label == OTHER)) {
            lines.push((OTHER.to_owned(), DialogOption::Other));
        }
        lines
    }

    /// Returns the line that was chosen. Programs also answer with a bare label.
    fn find_option(&self, draft: &AnswerDraft, value: &str) -> Option<DialogOption> {
        let shown = self.dialog_options(draft).into_iter().find(|(shown, _)| shown == value).map(|(_, line)| line);
        let label = || self.choices.iter().position(|choice| escape(&choice.label, LineMode::One) == value);
        shown.or_else(|| label().map(DialogOption::Choice))
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::{GateChoice, GateContent, GateReply, Kind};
    use countersign_protocol::omp::{UiAnswer, UiMethod};
    use countersign_view::GateRequest;

    use super::{AnswerDraft, DialogStep, QuestionDialog};

    fn content(labels: &[&str], multi: bool, recommended: Option<usize>) -> GateRequest {
        let choices = labels.iter().map(|label| GateChoice { label: (*label).to_owned() }).collect();
        let about = serde_json::Map::new();
        let (id, question) = ("q".to_owned(), "Which?".to_owned());
        GateContent::Question { id, question, choices, multi, recommended, about }.into()
    }

    /// Returns the dialogs that `values` lead through, in a few words each, and the final answer.
    fn question_transcript(content: &GateRequest, values: &[&str]) -> Vec<String> {
        transcript_of(Kind::Question, content, values)
    }

    fn transcript_of(kind: Kind, content: &GateRequest, values: &[&str]) -> Vec<String> {
        let question = QuestionDialog::for_gate(kind, content).unwrap();
        let mut draft = AnswerDraft::default();
        let mut transcript = Vec::new();
        for value in values {
            transcript.push(match question.dialog_method(&draft, None) {
                UiMethod::Select { options, .. } => options.join("|"),
                UiMethod::Input { title, .. } | UiMethod::Editor { title, .. } => title,
                other => panic!("{other:?}"),
            });
            let answer = match *value {
                "cancel" => UiAnswer::Cancelled { timed_out: false },
                "confirm" => UiAnswer::Confirmed(true),
                value => UiAnswer::Value(value.to_owned()),
            };
            match question.next_step(&draft, &answer) {
                DialogStep::Ask(next) => draft = next,
                DialogStep::Answer(GateReply::Say(parts)) => transcript.push(format!("= {}", parts.join(" + "))),
                DialogStep::Answer(answer) => transcript.push(format!("= {answer:?}")),
            }
        }
        transcript
    }

    #[test]
    fn one_choice_is_a_label_or_words_of_ones_own() {
        let content = content(&["red", "b\u{202e}lue"], false, Some(1));
        let list = "red|b\\u{202e}lue (Recommended)|Other (type your own)";
        for (values, want) in [
            (&["red"][..], vec![list, "= red"]),
            (&["b\\u{202e}lue (Recommended)"], vec![list, "= b\u{202e}lue"]),
            (&["b\\u{202e}lue"], vec![list, "= b\u{202e}lue"]),
            (&["Other (type your own)", "green"], vec![list, "Enter your response:", "= green"]),
            (&["Other (type your own)", " ", "red"], vec![list, "Enter your response:", list, "= red"]),
            (&["green"], vec![list, "= green"]),
            (&["cancel"], vec![list, "= Decline"]),
            (&["confirm"], vec![list, "= Decline"]),
        ] {
            assert_eq!(question_transcript(&content, values), want, "{values:?}");
        }
    }

    #[test]
    fn several_are_chosen_one_by_one_until_done() {
        let content = content(&["a", "b, c"], true, Some(0));
        let none = "☐ a (Recommended)|☐ b, c|Other (type your own)";
        let second = "☐ a (Recommended)|☑ b, c|Done selecting|Other (type your own)";
        let both = "☑ a (Recommended)|☑ b, c|Done selecting|Other (type your own)";
        for (values, want) in [
            (&["☐ b, c", "☐ a (Recommended)", "Done selecting"][..], vec![none, second, both, "= a + b, c"]),
            (&["☐ b, c", "☑ b, c", "Done selecting"], vec![none, second, none]),
            (&["b, c", "a", "☑ a (Recommended)", "Done selecting"], vec![none, second, both, second, "= b, c"]),
            (&["☐ b, c", "Other (type your own)", "d"], vec![none, second, "Enter your response:", "= b, c + d"]),
            (&["☐ b, c", "cancel"], vec![none, second, "= Decline"]),
        ] {
            assert_eq!(question_transcript(&content, values), want, "{values:?}");
        }
    }

    #[test]
    fn labels_that_look_like_ours_keep_their_meaning() {
        let like = content(&["A", "A (Recommended)", "Other (type your own)"], false, Some(0));
        let list = "A|A (Recommended)|Other (type your own)";
        for (value, want) in [
            ("A", "= A"),
            ("A (Recommended)", "= A (Recommended)"),
            ("Other (type your own)", "= Other (type your own)"),
        ] {
            assert_eq!(question_transcript(&like, &[value]), [list, want], "{value}");
        }
    }

    #[test]
    fn changes_of_a_plan_have_to_be_named() {
        let plan = content(&["approve", "request-changes", "reject"], false, None);
        let list = "approve|request-changes|reject|Other (type your own)";
        let words = "Enter your response:";
        for (values, want) in [
            (&["approve"][..], vec![list, "= approve"]),
            (&["request-changes", "smaller"], vec![list, words, "= request-changes + smaller"]),
            (&["request-changes", " ", "reject"], vec![list, words, list, "= reject"]),
            (&["Other (type your own)", "why?"], vec![list, words, "= why?"]),
        ] {
            assert_eq!(transcript_of(Kind::Plan, &plan, values), want, "{values:?}");
        }
    }

    #[test]
    fn a_question_without_choices_is_repeated_until_it_is_answered() {
        assert_eq!(
            question_transcript(&content(&[], true, None), &["", "because, of it"]),
            ["Which?", "Which?", "= because, of it"]
        );
    }
}
