//! A pending gate as a request to the editor: a permission, or a form with a question.

use countersign_acp_protocol::{
    ClientFeatures, ElicitationRequest, PermissionOption, PermissionOptionKind, PermissionRequest, ToolCall,
    ToolCallContent, ToolCallFields, ToolCallStatus, ToolKind,
};
use countersign_core::{
    engine::Engine,
    gate::{ApprovalScope, Gate},
    id::{GateId, SessionId},
};
use countersign_view::{
    GateSummary, LineMode, escape,
    gate_request::{QuestionRequest, RequestKind},
};
use serde_json::{Map, Value, json};

use crate::call_view::CallView;

/// Option that allows this call.
pub(crate) const ALLOW_ONCE: &str = "allow_once";
/// Option that allows the same call for the rest of the session.
pub(crate) const ALLOW_SESSION: &str = "allow_session";
/// Option that allows the same call from now on.
pub(crate) const ALLOW_ALWAYS: &str = "allow_always";
/// Option that denies this call.
pub(crate) const REJECT_ONCE: &str = "reject_once";
/// Beginning of the ids of choices; the index follows.
pub(crate) const CHOICE: &str = "choice_";

/// A pending gate, taken out of the engine.
#[derive(Clone, Debug)]
pub(crate) struct PendingGate {
    pub(crate) summary: GateSummary,
    /// The model's id of its call.
    call_id: Option<String>,
}

/// Request to the editor about a gate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GateRequestFrame {
    /// A permission.
    Permission(PermissionRequest),
    /// A form.
    Form(ElicitationRequest),
    /// None: the question can only be answered elsewhere.
    Nothing,
}

/// Returns the pending gates of a session, the oldest first.
pub(crate) fn pending_gates(engine: &Engine, session: &SessionId) -> Vec<PendingGate> {
    let of_session = engine.state().pending_gates().filter(|gate| gate.session() == Some(session));
    let pending = of_session.filter_map(|gate| {
        let summary = GateSummary::at_hand(engine, gate)?;
        let details = gate.call().and_then(|call| engine.admitted().call_content(call));
        Some(PendingGate { summary, call_id: details.map(|details| details.tool_call_id.to_string()) })
    });
    pending.collect()
}

impl PendingGate {
    /// Returns its id.
    pub(crate) fn id(&self) -> GateId {
        self.gate().id()
    }

    /// Returns the gate.
    pub(crate) const fn gate(&self) -> &Gate {
        &self.summary.gate
    }

    /// Returns the model's id of its call, or one for a gate without a call.
    pub(crate) fn tool_call_id(&self) -> String {
        self.call_id.clone().unwrap_or_else(|| self.id().to_string())
    }

    /// Returns the request to an editor, in a session whose folder is `cwd`.
    pub(crate) fn request(&self, wire_id: &str, cwd: &str, features: ClientFeatures) -> GateRequestFrame {
        let permission = |fields: ToolCallFields, options: Vec<PermissionOption>| {
            let tool_call = ToolCall {
                tool_call_id: self.tool_call_id(),
                fields: ToolCallFields { status: Some(ToolCallStatus::Pending), ..fields },
            };
            GateRequestFrame::Permission(PermissionRequest { session_id: wire_id.to_owned(), tool_call, options })
        };
        match self.summary.request.kind() {
            RequestKind::Call(call) => {
                let view =
                    CallView { id: self.tool_call_id(), tool: call.tool.to_owned(), arguments: call.arguments.clone() };
                let fields = view.fields(cwd, ToolCallStatus::Pending);
                let mut content = fields.content.unwrap_or_default();
                content.push(ToolCallContent::from_text(self.reason_text(call.reason, &call.run_lines())));
                permission(ToolCallFields { content: Some(content), ..fields }, self.approval_options())
            }
            RequestKind::GoOn(go_on) => {
                let fields = ToolCallFields {
                    title: Some(escape(go_on.text, LineMode::One).into_owned()),
                    kind: Some(ToolKind::Other),
                    content: Some(vec![ToolCallContent::from_text(go_on.prompt_text())]),
                    raw_input: (!go_on.about.is_empty()).then(|| Value::Object(go_on.about.clone())),
                    ..ToolCallFields::default()
                };
                permission(fields, self.approval_options())
            }
            RequestKind::Question(question) if features.forms => GateRequestFrame::Form(self.form(wire_id, &question)),
            // Several choices, or words of one's own, are no permission.
            RequestKind::Question(question) if question.choices.is_empty() || question.is_multi => {
                GateRequestFrame::Nothing
            }
            RequestKind::Question(question) => {
                let choices = question.choices.iter().enumerate().map(|(at, choice)| {
                    let is_recommended = question.recommended == Some(at);
                    let name = escape(&choice.label, LineMode::One);
                    PermissionOption {
                        option_id: format!("{CHOICE}{at}"),
                        name: if is_recommended { format!("{name} (recommended)") } else { name.into_owned() },
                        kind: PermissionOptionKind::AllowOnce,
                    }
                });
                let skip = reject_option("Do not answer");
                let text = escape(question.text, LineMode::Many).into_owned();
                let fields = ToolCallFields {
                    title: Some(escape(question.text, LineMode::One).into_owned()),
                    kind: Some(ToolKind::Think),
                    content: Some(vec![ToolCallContent::from_text(text)]),
                    raw_input: Some(json!({ "question": question.text, "choices": question.choice_labels() })),
                    ..ToolCallFields::default()
                };
                permission(fields, choices.chain([skip]).collect())
            }
        }
    }

    /// Returns why a person is asked, and what the arguments do not show.
    fn reason_text(&self, reason: &str, runs: &[String]) -> String {
        let mut text = format!("Needs approval {}", escape(reason, LineMode::Many));
        for line in runs {
            text.push_str(&format!("\nRuns {}", escape(line, LineMode::One)));
        }
        if let Some(folder) = &self.summary.folder {
            text.push_str(&format!("\nIn folder {}", escape(folder, LineMode::One)));
        }
        if let Some(approvals) = self.summary.approvals() {
            text.push_str(&format!("\n{approvals}"));
        }
        text
    }

    fn approval_options(&self) -> Vec<PermissionOption> {
        let allow = |scope: &ApprovalScope| {
            let (id, name, kind) = match scope {
                ApprovalScope::Once => (ALLOW_ONCE, "Allow", PermissionOptionKind::AllowOnce),
                ApprovalScope::Session => {
                    (ALLOW_SESSION, "Allow exactly this for the session", PermissionOptionKind::AllowAlways)
                }
                ApprovalScope::Always => (ALLOW_ALWAYS, "Always allow exactly this", PermissionOptionKind::AllowAlways),
            };
            PermissionOption { option_id: id.to_owned(), name: name.to_owned(), kind }
        };
        self.gate().scopes().iter().map(allow).chain([reject_option("Deny")]).collect()
    }

    fn form(&self, wire_id: &str, question: &QuestionRequest<'_>) -> ElicitationRequest {
        let choices: Vec<Value> = question
            .choices
            .iter()
            .map(|choice| json!({ "const": choice.label, "title": escape(&choice.label, LineMode::One) }))
            .collect();
        let mut properties = Map::new();
        let has_choices = !choices.is_empty();
        if has_choices && question.is_multi {
            let items = json!({ "type": "array", "title": "Answers", "items": { "anyOf": choices } });
            properties.insert("answer".to_owned(), items);
        } else if has_choices {
            let mut answer = json!({ "type": "string", "title": "Answer", "oneOf": choices });
            if let Some(recommended) = question.recommended.and_then(|at| question.choices.get(at)) {
                answer["default"] = recommended.label.as_str().into();
            }
            properties.insert("answer".to_owned(), answer);
        }
        if question.takes_own_words {
            let title = if has_choices { "Another answer" } else { "Answer" };
            let name = if has_choices { "other" } else { "answer" };
            properties.insert(name.to_owned(), json!({ "type": "string", "title": title }));
        }
        let required = if question.takes_own_words && has_choices { json!([]) } else { json!(["answer"]) };
        ElicitationRequest {
            mode: "form",
            session_id: wire_id.to_owned(),
            tool_call_id: self.call_id.clone(),
            message: escape(question.text, LineMode::Many).into_owned(),
            requested_schema: json!({ "type": "object", "properties": properties, "required": required }),
        }
    }
}

fn reject_option(name: &str) -> PermissionOption {
    PermissionOption {
        option_id: REJECT_ONCE.to_owned(),
        name: name.to_owned(),
        kind: PermissionOptionKind::RejectOnce,
    }
}
