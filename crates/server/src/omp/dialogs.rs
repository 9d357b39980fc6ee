//! Gates as dialogs of the host, and a host's answers as answers to gates.
//!
//! The id of a dialog is the gate's own, so that it is the same after a restart.

use countersign_core::{
    gate::{self, Answer, Content, Gate, Scope},
    id::GateId,
    time::Millis,
};
use countersign_protocol::omp::{UiAnswer, UiMethod, UiRequest};

use crate::view::{GateCard, Lines, escape, gate_card::Asked};

const ONCE: &str = "Allow once";
const SESSION: &str = "Allow for this session";
const ALWAYS: &str = "Always allow exactly this";
const DENY: &str = "Deny";

/// The dialog of a gate that waits.
pub(crate) fn request(gate: &Gate, content: &Content, cwd: &str, now: Millis) -> UiRequest {
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
        Content::Question { question, choices, .. } => {
            let title = escape(question, Lines::Many).into_owned();
            if choices.is_empty() {
                UiMethod::Input { title, placeholder: None, timeout }
            } else {
                let options = choices.iter().map(|choice| escape(&choice.label, Lines::One).into_owned()).collect();
                UiMethod::Select { title, options, timeout }
            }
        }
    };
    UiRequest { id: gate.id().to_string(), method }
}

const fn label(scope: Scope) -> &'static str {
    match scope {
        Scope::Once => ONCE,
        Scope::Session => SESSION,
        Scope::Always => ALWAYS,
    }
}

/// The gate that an answer names, if it names one.
pub(crate) fn gate_of(id: &str) -> Option<GateId> {
    id.starts_with("gate_").then(|| GateId::parse(id)).flatten()
}

/// What a host's answer means. Whatever was not clearly allowed is denied.
pub(crate) fn answer(answer: &UiAnswer, kind: gate::Kind, content: Option<&Content>) -> Answer {
    match (kind, answer) {
        (gate::Kind::Question, UiAnswer::Value(value)) => {
            // The host was shown labels with hidden characters made visible, and answers with those.
            let choices = match content {
                Some(Content::Question { choices, .. }) => choices.as_slice(),
                _ => &[],
            };
            let label = choices.iter().find(|choice| escape(&choice.label, Lines::One) == value.as_str());
            Answer::Say(vec![label.map_or_else(|| value.clone(), |choice| choice.label.clone())])
        }
        (gate::Kind::Question, UiAnswer::Confirmed(yes)) => {
            Answer::Say(vec![if *yes { "yes" } else { "no" }.to_owned()])
        }
        (gate::Kind::Question, UiAnswer::Cancelled { .. }) => Answer::Decline,
        (_, UiAnswer::Confirmed(true)) => Answer::Allow(Scope::Once),
        (_, UiAnswer::Value(value)) => match value.as_str() {
            ONCE => Answer::Allow(Scope::Once),
            SESSION => Answer::Allow(Scope::Session),
            ALWAYS => Answer::Allow(Scope::Always),
            _ => Answer::Deny { reason: None },
        },
        (_, UiAnswer::Confirmed(false) | UiAnswer::Cancelled { .. }) => Answer::Deny { reason: None },
    }
}
