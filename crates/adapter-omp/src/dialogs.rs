//! Gates as dialogs of the host, and a host's answers as answers to gates.
//!
//! It must not know how gates are resolved: what a host answers becomes an answer, and the engine decides whether it counts.

mod question;

use std::collections::BTreeMap;

use countersign_core::{
    gate::{ApprovalScope, Gate, GateReply, Kind},
    id::GateId,
    time::Millis,
};
use countersign_protocol::omp::{UiAnswer, UiMethod, UiRequest};

use self::question::QuestionDialog;
pub(crate) use self::question::{AnswerDraft, DialogStep};
use countersign_view::{GateCard, GateRequest, gate_card::GateCardInput};

const ONCE: &str = "Allow once";
const SESSION: &str = "Allow for this session";
const ALWAYS: &str = "Always allow exactly this";
const DENY: &str = "Deny";

/// Words that answer an approval.
const APPROVAL_WORDS: [&str; 4] = [ONCE, SESSION, ALWAYS, DENY];

/// The dialogs that a host has open: which gate each of them shows.
///
/// A dialog's id is made of random bits for every showing and is nowhere but here and on the host's wire. A gate's own id can be read from
/// the log by any process of the same user, also by a command of the agent, which could then write an answer into the host's pipe. No
/// later lookup needs a dialog: it lives no longer than its connection, and a gate that is shown again has a new one.
#[derive(Debug, Default)]
pub struct OpenDialogs {
    open: BTreeMap<String, OpenDialog>,
}

/// Dialog that a host has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDialog {
    pub gate: GateId,
    /// Answers to the dialogs before it, if the gate is a question.
    pub(crate) draft: AnswerDraft,
    /// True if the requester may end by itself before it is answered, and the run continues.
    pub(crate) may_pass: bool,
}

impl OpenDialogs {
    /// Opens a dialog in place of one that the gate has. `None` if the system has no randomness: the gate then waits for its deadline.
    pub fn open(&mut self, shown: OpenDialog) -> Option<String> {
        let id = fresh_id()?;
        self.forget_gate(shown.gate, false);
        self.open.insert(id.clone(), shown);
        Some(id)
    }

    /// Takes an open dialog. An answer closes a dialog, so each is taken once.
    pub fn take_dialog(&mut self, id: &str) -> Option<OpenDialog> {
        self.open.remove(id)
    }

    /// Forgets the dialog of a gate that is resolved. Returns the request that closes it at the host, where it would stay open otherwise:
    /// one for words, any that may have been answered `elsewhere`, and any whose requester may end by itself.
    pub fn forget_gate(&mut self, gate: GateId, elsewhere: bool) -> Option<UiRequest> {
        let (id, shown) = self.open.iter().find(|(_, shown)| shown.gate == gate)?;
        let (id, is_left) = (id.clone(), shown.draft.is_in_words() || shown.may_pass);
        self.open.remove(&id);
        let method = UiMethod::Cancel { target_id: id.clone() };
        (is_left || elsewhere).then_some(UiRequest { id, method })
    }

    /// Forgets every dialog: another session is open.
    pub fn clear(&mut self) {
        self.open.clear();
    }
}

/// Returns a random id; `None` if the system has no randomness.
pub(crate) fn fresh_id() -> Option<String> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).ok()?;
    Some(hex::encode(seed))
}

/// Returns the dialog of a pending gate: a question follows `draft`, an approval is as it was requested.
pub(crate) fn dialog_method(
    gate: &Gate,
    request: &GateRequest,
    draft: &AnswerDraft,
    cwd: &str,
    now: Millis,
) -> Option<UiMethod> {
    let timeout = gate.deadline().map(|deadline| u64::try_from(deadline.since(now).as_millis()).unwrap_or(u64::MAX));
    if let Some(question) = QuestionDialog::for_gate(gate.kind(), request) {
        return Some(question.dialog_method(draft, timeout));
    }
    if let Some(go_on) = request.go_on() {
        let title = "The agent asks for more than it was given".to_owned();
        return Some(UiMethod::Confirm { title, message: go_on.prompt_text(), timeout });
    }
    let labels: Vec<&str> = gate.scopes().iter().map(|scope| scope_label(*scope)).chain([DENY]).collect();
    let call = request.call()?;
    let card = GateCard::new(&GateCardInput::of_agent(call, cwd, &labels));
    let message = card.text();
    Some(if is_confirm(gate.scopes()) {
        UiMethod::Confirm { title: card.title, message, timeout }
    } else {
        UiMethod::Select { title: format!("{}\n\n{message}", card.title), options: card.choices, timeout }
    })
}

/// Reports whether an approval with this offer is a plain yes or no.
fn is_confirm(offered: &[ApprovalScope]) -> bool {
    offered == [ApprovalScope::Once]
}

const fn scope_label(scope: ApprovalScope) -> &'static str {
    match scope {
        ApprovalScope::Once => ONCE,
        ApprovalScope::Session => SESSION,
        ApprovalScope::Always => ALWAYS,
    }
}

/// Returns the meaning of a host's answer to a dialog. Any answer that does not clearly allow, as far as was offered and in the words of
/// the dialog's method, is a denial.
pub(crate) fn answer_step(
    answer: &UiAnswer,
    kind: Kind,
    request: &GateRequest,
    draft: &AnswerDraft,
    offered: &[ApprovalScope],
) -> DialogStep {
    if let Some(question) = QuestionDialog::for_gate(kind, request) {
        return question.next_step(draft, answer);
    }
    DialogStep::Answer(match answer {
        UiAnswer::Confirmed(true) if is_confirm(offered) => GateReply::Allow(ApprovalScope::Once),
        UiAnswer::Value(value) if !is_confirm(offered) => match value.as_str() {
            ONCE => allow_if_offered(ApprovalScope::Once, offered),
            SESSION => allow_if_offered(ApprovalScope::Session, offered),
            ALWAYS => allow_if_offered(ApprovalScope::Always, offered),
            _ => GateReply::Deny { reason: None },
        },
        UiAnswer::Confirmed(_) | UiAnswer::Value(_) | UiAnswer::Cancelled { .. } => GateReply::Deny { reason: None },
    })
}

fn allow_if_offered(scope: ApprovalScope, offered: &[ApprovalScope]) -> GateReply {
    if offered.contains(&scope) { GateReply::Allow(scope) } else { GateReply::Deny { reason: None } }
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::GateContent;
    use serde_json::Map;

    use super::{
        ALWAYS, AnswerDraft, ApprovalScope, DialogStep, GateId, GateReply, Kind, ONCE, OpenDialog, OpenDialogs,
        UiAnswer, answer_step,
    };

    #[test]
    fn what_was_not_offered_or_is_no_answer_of_the_method_is_a_denial() {
        let deny = GateReply::Deny { reason: None };
        let content = GateContent::Approval {
            tool: "bash".into(),
            arguments: Map::new(),
            signature: "bash(ls)".to_owned(),
            intent: None,
            why: "rule".to_owned(),
            pins: None,
        };
        let request = content.into();
        for (case, ui_answer, offered, want) in [
            ("yes", UiAnswer::Confirmed(true), &[ApprovalScope::Once][..], GateReply::Allow(ApprovalScope::Once)),
            ("no", UiAnswer::Confirmed(false), &[ApprovalScope::Once], deny.clone()),
            (
                "once",
                UiAnswer::Value(ONCE.to_owned()),
                &[ApprovalScope::Once, ApprovalScope::Session],
                GateReply::Allow(ApprovalScope::Once),
            ),
            (
                "always",
                UiAnswer::Value(ALWAYS.to_owned()),
                &[ApprovalScope::Once, ApprovalScope::Session],
                deny.clone(),
            ),
            (
                "offered",
                UiAnswer::Value(ALWAYS.to_owned()),
                &[ApprovalScope::Always],
                GateReply::Allow(ApprovalScope::Always),
            ),
            ("nothing is offered", UiAnswer::Confirmed(true), &[], deny.clone()),
            ("words", UiAnswer::Value("sure".to_owned()), &[ApprovalScope::Once, ApprovalScope::Session], deny.clone()),
            (
                "a yes to a choice",
                UiAnswer::Confirmed(true),
                &[ApprovalScope::Once, ApprovalScope::Session],
                deny.clone(),
            ),
            ("a choice to a yes or no", UiAnswer::Value(ONCE.to_owned()), &[ApprovalScope::Once], deny),
        ] {
            assert_eq!(
                answer_step(&ui_answer, Kind::Approval, &request, &AnswerDraft::default(), offered),
                DialogStep::Answer(want),
                "{case}"
            );
        }
    }

    #[test]
    fn a_dialog_is_answered_once_and_names_its_gate_by_nothing_in_the_log() {
        let mut dialogs = OpenDialogs::default();
        let gate = GateId::parse("gate_0190a5b2c3d44e5f8a6b7c8d9e0f1a2b").unwrap();
        let shown = OpenDialog { gate, draft: AnswerDraft::default(), may_pass: false };
        let first = dialogs.open(shown.clone()).unwrap();
        let second = dialogs.open(shown.clone()).unwrap();
        assert!(first != second && !gate.to_string().contains(&second));
        assert_eq!((dialogs.take_dialog(&gate.to_string()), dialogs.take_dialog(&first)), (None, None));
        assert_eq!((dialogs.take_dialog(&second), dialogs.take_dialog(&second)), (Some(shown), None));
    }
}
