//! Question of a gate, read from the content that the record keeps of it.
//!
//! It must not know any wire: adapters match on [`RequestKind`] and put the content into their own frames.

use std::sync::Arc;

use countersign_core::{
    call::Pins,
    engine::Engine,
    gate::{GateChoice, GateContent},
    id::GateId,
};
use serde_json::{Map, Value};

use crate::{LineMode, escape, server_request};

/// Question of a gate, whole and as it was recorded. Nothing in it is escaped.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRequest(Arc<GateContent>);

/// Question of a gate, by the kind of its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestKind<'a> {
    /// A call, which is allowed or denied.
    Call(CallRequest<'a>),
    /// A question, a plan or an execution: answered by a choice or in words.
    Question(QuestionRequest<'a>),
    /// A paused asker, which may continue or not: allowed or denied.
    GoOn(GoOnRequest<'a>),
}

/// A call that waits for a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallRequest<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments that would be used, all of them.
    pub arguments: &'a Map<String, Value>,
    /// Signature that rules were matched against.
    pub signature: &'a str,
    /// Purpose of the call, as the asker gives it.
    pub intent: Option<&'a str>,
    /// Reason that a person is asked.
    pub reason: &'a str,
    /// Files that it would run from disk, as they were when it was judged.
    pub pins: Option<&'a Pins>,
}

/// A question with the answers that it offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuestionRequest<'a> {
    /// Names it among the questions of its call.
    pub id: &'a str,
    /// Text of the question.
    pub text: &'a str,
    /// Offered choices; may be empty.
    pub choices: &'a [GateChoice],
    /// True if several choices count.
    pub is_multi: bool,
    /// Index of the choice that the asker recommends, from 0.
    pub recommended: Option<usize>,
    /// True if a person's own words answer it too.
    pub takes_own_words: bool,
    /// Named parts of the question.
    pub about: &'a Map<String, Value>,
}

/// Question whether a paused asker may continue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoOnRequest<'a> {
    /// Name of the asker.
    pub asker: &'a str,
    /// Text of the question.
    pub text: &'a str,
    /// Reason, in words; absent after denials.
    pub reason: Option<&'a str>,
    /// Named facts about the asker.
    pub about: &'a Map<String, Value>,
}

impl GateRequest {
    /// Returns what a gate asks whose content is at hand.
    pub fn at_hand(engine: &Engine, gate: GateId) -> Option<Self> {
        engine.admitted().gate_content(gate).map(|content| Self(Arc::clone(content)))
    }

    /// Reads what a gate asks from its content in the record. `None` for a text that is no such content.
    pub fn from_record(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(|content| Self(Arc::new(content)))
    }

    /// Returns the question, by the kind of its answer.
    pub fn kind(&self) -> RequestKind<'_> {
        match &*self.0 {
            GateContent::Approval { tool, arguments, signature, intent, why, pins } => RequestKind::Call(CallRequest {
                tool,
                arguments,
                signature,
                intent: intent.as_deref(),
                reason: why,
                pins: pins.as_deref(),
            }),
            GateContent::Question { id, question, choices, multi, recommended, about } => {
                RequestKind::Question(QuestionRequest {
                    id,
                    text: question,
                    choices,
                    is_multi: *multi,
                    recommended: *recommended,
                    takes_own_words: self.0.takes_own_words(),
                    about,
                })
            }
            GateContent::GoOn { asker, question, why, about } => {
                RequestKind::GoOn(GoOnRequest { asker, text: question, reason: why.as_deref(), about })
            }
        }
    }

    /// Returns the call that waits, if the gate asks about one.
    pub fn call(&self) -> Option<CallRequest<'_>> {
        match self.kind() {
            RequestKind::Call(call) => Some(call),
            RequestKind::Question(_) | RequestKind::GoOn(_) => None,
        }
    }

    /// Returns the question, if the gate is answered by a choice or in words.
    pub fn question(&self) -> Option<QuestionRequest<'_>> {
        match self.kind() {
            RequestKind::Question(question) => Some(question),
            RequestKind::Call(_) | RequestKind::GoOn(_) => None,
        }
    }

    /// Returns the paused asker and the reason, if the gate asks whether it may continue.
    pub fn go_on(&self) -> Option<GoOnRequest<'_>> {
        match self.kind() {
            RequestKind::GoOn(go_on) => Some(go_on),
            RequestKind::Call(_) | RequestKind::Question(_) => None,
        }
    }

    /// Returns the subject in a line: the title from the asker, or the shown content.
    pub fn headline(&self) -> &str {
        self.0.headline()
    }
}

impl From<GateContent> for GateRequest {
    fn from(content: GateContent) -> Self {
        Self(Arc::new(content))
    }
}

impl CallRequest<'_> {
    /// Returns the question of a request about an MCP server, which the configuration makes and no agent. Not escaped.
    pub fn server_title(&self) -> Option<String> {
        server_request::title(self.tool, self.arguments)
    }

    /// Returns the consequence of an approval that the arguments do not show.
    pub fn consequence(&self) -> Option<&'static str> {
        server_request::consequence(self.tool)
    }

    /// Returns what it would run from disk, a line each, and what of that is not pinned.
    pub fn run_lines(&self) -> Vec<String> {
        self.pins.map(Pins::summary_lines).unwrap_or_default()
    }
}

impl QuestionRequest<'_> {
    /// Returns the labels of its choices.
    pub fn choice_labels(&self) -> Vec<String> {
        self.choices.iter().map(|choice| choice.label.clone()).collect()
    }
}

impl GoOnRequest<'_> {
    /// Returns the question and the reason of it, escaped, a line between them.
    pub fn prompt_text(&self) -> String {
        let texts = [Some(self.text), self.reason].into_iter().flatten();
        texts.map(|text| escape(text, LineMode::Many)).collect::<Vec<_>>().join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::gate::GateContent;
    use serde_json::{Map, json};

    use super::{GateRequest, RequestKind};

    #[test]
    fn a_request_for_more_shows_its_reason_and_hidden_characters() {
        let request = GateRequest::from(GateContent::GoOn {
            asker: "main".to_owned(),
            question: "May it run a\u{202e}b?".to_owned(),
            why: Some("because\u{200b} it tries to".to_owned()),
            about: Map::new(),
        });
        let prompt = request.go_on().map(|go_on| go_on.prompt_text());
        assert_eq!(prompt.as_deref(), Some("May it run a\\u{202e}b?\n\nbecause\\u{200b} it tries to"));
    }

    #[test]
    fn what_the_record_keeps_is_read_by_how_it_is_answered() {
        let call = json!({
            "kind": "approval", "tool": "bash", "arguments": { "command": "ls" }, "signature": "bash(ls)", "why": "by rule"
        });
        let question = json!({
            "kind": "question", "id": "q", "question": "Which?", "choices": [{ "label": "a" }], "multi": true,
            "about": { "title": "A choice", "choices_only": true }
        });
        let call = GateRequest::from_record(&call.to_string()).unwrap();
        let RequestKind::Call(read) = call.kind() else { panic!("a call") };
        assert_eq!(
            (read.tool, read.signature, read.reason, read.run_lines()),
            ("bash", "bash(ls)", "by rule", Vec::new())
        );
        assert_eq!((call.headline(), call.question(), call.go_on()), ("bash(ls)", None, None));
        let question = GateRequest::from_record(&question.to_string()).unwrap();
        let RequestKind::Question(read) = question.kind() else { panic!("a question") };
        assert_eq!((read.text, read.choice_labels(), read.is_multi), ("Which?", vec!["a".to_owned()], true));
        assert!(!read.takes_own_words);
        assert_eq!((question.headline(), question.call()), ("A choice", None));
        assert_eq!(GateRequest::from_record("[]"), None);
    }
}
