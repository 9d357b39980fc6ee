//! Gates as dialogs of the host, and a host's answers as answers to gates.
//!
//! It must not know how gates are resolved: what a host answers becomes an answer, and the engine decides whether it counts.

use std::collections::BTreeMap;

use countersign_core::{
    gate::{self, Answer, Choice, Content, Gate, Scope},
    id::GateId,
    time::Millis,
};
use countersign_protocol::omp::{UiAnswer, UiMethod, UiRequest};

use crate::view::{GateCard, Lines, escape, gate_card::Asked};

const ONCE: &str = "Allow once";
const SESSION: &str = "Allow for this session";
const ALWAYS: &str = "Always allow exactly this";
const DENY: &str = "Deny";

/// What a question begins with that could pass for an approval: one of several lines, or one that offers an approval's words.
const ASKS: &str = "The agent asks: ";

/// The dialogs that a host has open: which gate each of them shows.
///
/// A dialog's id is made of random bits for every showing and is nowhere but here and on the host's wire. A gate's own id can be read from the log by whatever runs as the
/// same user, also by a command of the agent, which could then write an answer into the host's pipe. Nothing needs to find a dialog again: it lives no longer than its
/// connection, and a gate that is shown again has a new one.
#[derive(Debug, Default)]
pub(crate) struct Dialogs {
    open: BTreeMap<String, GateId>,
}

impl Dialogs {
    /// Opens a dialog for `gate`, in place of one that it has. `None` if the system has no randomness: the gate then waits for its deadline.
    pub(crate) fn open(&mut self, gate: GateId) -> Option<String> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).ok()?;
        self.forget(gate);
        let id = hex::encode(seed);
        self.open.insert(id.clone(), gate);
        Some(id)
    }

    /// The gate that the dialog shows. An answer closes a dialog, so each is taken once.
    pub(crate) fn take(&mut self, id: &str) -> Option<GateId> {
        self.open.remove(id)
    }

    /// Forgets the dialog of a gate that is resolved.
    pub(crate) fn forget(&mut self, gate: GateId) {
        self.open.retain(|_, shown| *shown != gate);
    }

    /// Forgets every dialog: another session is open.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }
}

/// The dialog `id` of a gate that waits.
pub(crate) fn request(id: String, gate: &Gate, content: &Content, cwd: &str, now: Millis) -> UiRequest {
    let timeout = gate.deadline().map(|deadline| u64::try_from(deadline.since(now).as_millis()).unwrap_or(u64::MAX));
    let method = match content {
        Content::Approval { tool, arguments, signature, why, intent } => {
            let labels: Vec<&str> = gate.scopes().iter().map(|scope| label(*scope)).chain([DENY]).collect();
            let card = GateCard::new(&Asked {
                tool,
                arguments,
                signature,
                asker: "The agent",
                reason: why,
                cwd: Some(cwd),
                choices: &labels,
            });
            let mut text = card.text();
            if let Some(intent) = intent {
                text.push_str(&format!("the agent says: {}\n", escape(intent, Lines::One)));
            }
            if gate.scopes() == [Scope::Once] {
                UiMethod::Confirm { title: card.title, message: text, timeout }
            } else {
                let options = labels.iter().map(|label| (*label).to_owned()).collect();
                UiMethod::Select { title: format!("{}\n\n{text}", card.title), options, timeout }
            }
        }
        Content::Question { question, choices, multi, .. } => {
            let words = [ONCE, SESSION, ALWAYS, DENY];
            let is_plain = !question.contains('\n')
                && !question.starts_with("The agent")
                && !choices.iter().any(|choice| words.contains(&choice.label.trim()));
            let asks = if is_plain { "" } else { ASKS };
            let title = format!("{asks}{}", escape(question, Lines::Many));
            if choices.is_empty() {
                UiMethod::Input { title, placeholder: None, timeout }
            } else if *multi {
                let listed: Vec<String> =
                    choices.iter().map(|choice| format!("- {}", escape(&choice.label, Lines::One))).collect();
                let title = format!("{title}\n\n{}", listed.join("\n"));
                UiMethod::Input { title, placeholder: Some("several, separated by commas".to_owned()), timeout }
            } else {
                let options = choices.iter().map(|choice| escape(&choice.label, Lines::One).into_owned()).collect();
                UiMethod::Select { title, options, timeout }
            }
        }
    };
    UiRequest { id, method }
}

const fn label(scope: Scope) -> &'static str {
    match scope {
        Scope::Once => ONCE,
        Scope::Session => SESSION,
        Scope::Always => ALWAYS,
    }
}

/// What a host's answer means. Whatever was not clearly allowed, as far as was offered, is denied.
pub(crate) fn answer(answer: &UiAnswer, kind: gate::Kind, offered: &[Scope], content: Option<&Content>) -> Answer {
    match (kind, answer) {
        (gate::Kind::Question, UiAnswer::Value(value)) => said(value, content),
        (gate::Kind::Question, UiAnswer::Confirmed(yes)) => {
            Answer::Say(vec![if *yes { "yes" } else { "no" }.to_owned()])
        }
        (gate::Kind::Question, UiAnswer::Cancelled { .. }) => Answer::Decline,
        (_, UiAnswer::Confirmed(true)) => allowed(Scope::Once, offered),
        (_, UiAnswer::Value(value)) => match value.as_str() {
            ONCE => allowed(Scope::Once, offered),
            SESSION => allowed(Scope::Session, offered),
            ALWAYS => allowed(Scope::Always, offered),
            _ => Answer::Deny { reason: None },
        },
        (_, UiAnswer::Confirmed(false) | UiAnswer::Cancelled { .. }) => Answer::Deny { reason: None },
    }
}

fn allowed(scope: Scope, offered: &[Scope]) -> Answer {
    if offered.contains(&scope) { Answer::Allow(scope) } else { Answer::Deny { reason: None } }
}

/// What a person says to a question. The host was shown labels with hidden characters made visible, and answers with those.
fn said(value: &str, content: Option<&Content>) -> Answer {
    let (choices, is_multi) = match content {
        Some(Content::Question { choices, multi, .. }) => (choices.as_slice(), *multi),
        Some(Content::Approval { .. }) | None => (&[] as &[Choice], false),
    };
    let label = |said: &str| {
        let choice = choices.iter().find(|choice| escape(&choice.label, Lines::One) == said);
        choice.map(|choice| choice.label.clone())
    };
    if let Some(label) = label(value) {
        return Answer::Say(vec![label]);
    }
    if !is_multi || choices.is_empty() {
        return Answer::Say(vec![value.to_owned()]);
    }
    let said: Vec<String> = value
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| label(part).unwrap_or_else(|| part.to_owned()))
        .collect();
    if said.is_empty() { Answer::Decline } else { Answer::Say(said) }
}

#[cfg(test)]
mod tests {
    use super::{ALWAYS, Answer, Choice, Content, Dialogs, GateId, ONCE, Scope, UiAnswer, answer, gate::Kind};

    #[test]
    fn a_scope_that_was_not_offered_is_a_denial() {
        let deny = Answer::Deny { reason: None };
        for (case, said, offered, want) in [
            ("once", UiAnswer::Value(ONCE.to_owned()), &[Scope::Once][..], Answer::Allow(Scope::Once)),
            ("always", UiAnswer::Value(ALWAYS.to_owned()), &[Scope::Once], deny.clone()),
            ("offered", UiAnswer::Value(ALWAYS.to_owned()), &[Scope::Always], Answer::Allow(Scope::Always)),
            ("yes", UiAnswer::Confirmed(true), &[], deny.clone()),
            ("words", UiAnswer::Value("sure".to_owned()), &[Scope::Once], deny),
        ] {
            assert_eq!(answer(&said, Kind::Approval, offered, None), want, "{case}");
        }
    }

    #[test]
    fn several_choices_are_said_with_commas() {
        let choices = ["red", "a, b"].map(|label| Choice { label: label.to_owned() }).to_vec();
        let question = |multi| Content::Question {
            id: "q".to_owned(),
            question: "?".to_owned(),
            choices: choices.clone(),
            multi,
            recommended: None,
        };
        let say = |said: &[&str]| Answer::Say(said.iter().map(|said| (*said).to_owned()).collect());
        for (value, multi, want) in [
            ("red", true, say(&["red"])),
            ("a, b", true, say(&["a, b"])),
            ("red, none", true, say(&["red", "none"])),
            (" , ", true, Answer::Decline),
            ("red, none", false, say(&["red, none"])),
        ] {
            let said = UiAnswer::Value(value.to_owned());
            assert_eq!(answer(&said, Kind::Question, &[], Some(&question(multi))), want, "{value} {multi}");
        }
    }

    #[test]
    fn a_dialog_is_answered_once_and_names_its_gate_by_nothing_in_the_log() {
        let mut dialogs = Dialogs::default();
        let gate = GateId::parse("gate_0190a5b2c3d44e5f8a6b7c8d9e0f1a2b").unwrap();
        let first = dialogs.open(gate).unwrap();
        let second = dialogs.open(gate).unwrap();
        assert!(first != second && !gate.to_string().contains(&second));
        assert_eq!((dialogs.take(&gate.to_string()), dialogs.take(&first)), (None, None));
        assert_eq!((dialogs.take(&second), dialogs.take(&second)), (Some(gate), None));
    }
}
