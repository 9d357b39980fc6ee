//! Texts for gates in chats: the exact call, the ways to answer, and the approver.

use countersign_core::{
    gate::{ApprovalScope, Gate, GateResolution},
    id::{GateId, PrincipalId},
};
use countersign_protocol::gsv::tool::{MCP_SERVERS, NATIVE};
use countersign_view::{
    GateRequest, LineMode, escape,
    gate_card::{CardSection, GateCard, GateCardInput},
    gate_request::RequestKind,
};

/// Returns the token of a gate: `#` and the end of its id, which is its random part.
pub(super) fn gate_token(gate: GateId) -> String {
    let id = gate.to_string();
    format!("#{}", id.get(id.len().saturating_sub(6)..).unwrap_or_default())
}

/// Returns the node that has this tool, if one has.
fn machine_of(tool: &str) -> Option<&str> {
    tool.split_once("__").map(|(node, _)| node).filter(|node| ![NATIVE, MCP_SERVERS].contains(node))
}

/// Returns the text for a pending gate. `more` is the number of gates that wait after it.
pub(crate) fn prompt_text(
    gate: GateId,
    request: &GateRequest,
    scopes: &[ApprovalScope],
    cwd: &str,
    more: usize,
) -> String {
    let token = gate_token(gate);
    let mut text = match request.kind() {
        RequestKind::Call(call) => {
            let prompt = GateCardInput::of_agent(call, cwd, &[]);
            let card = match machine_of(prompt.tool) {
                // A command on another machine begins in a folder there, which the gateway does not know.
                Some(node) => {
                    let mut card = GateCard::new(&GateCardInput { cwd: None, ..prompt });
                    card.sections.push(CardSection {
                        label: "on node".to_owned(),
                        text: escape(node, LineMode::One).into_owned(),
                    });
                    card
                }
                None => GateCard::new(&prompt),
            };
            let shown = format!("{}:\n{}", card.title, card.text());
            let longer = scopes.iter().filter_map(|scope| match scope {
                ApprovalScope::Once => None,
                ApprovalScope::Session => Some("session"),
                ApprovalScope::Always => Some("always"),
            });
            let longer: Vec<&str> = longer.collect();
            let longer = if longer.is_empty() {
                String::new()
            } else {
                format!(", `/approve {token} {}` for longer", longer.join("|"))
            };
            format!(
                "Approval needed {token}\n{shown}\nAnswer `yes` (or `/approve {token}`){longer}, or `no` (or `/deny {token} reason`)."
            )
        }
        RequestKind::Question(question) => {
            let mut text = format!("Question {token}\n{}", escape(question.text, LineMode::Many));
            for choice in question.choices {
                text.push_str(&format!("\n- {}", escape(&choice.label, LineMode::One)));
            }
            text.push_str(match question.takes_own_words {
                true => "\nYour next message is the answer.",
                false => "\nAnswer with one of these.",
            });
            text
        }
        RequestKind::GoOn(go_on) => {
            let prompt = go_on.prompt_text();
            format!("Approval needed {token}\n{prompt}\nAnswer `yes` or `no`.")
        }
    };
    if more > 0 {
        text.push_str(&format!("\n{more} more will be asked about after it."));
    }
    text
}

/// Describes the decision of a gate, for late answers.
pub(super) fn decision_text(gate: &Gate) -> String {
    match gate.resolution() {
        Some(resolution) => resolution_text(gate.id(), resolution, gate.resolved_by()),
        None => format!("{} is not decided yet.", gate_token(gate.id())),
    }
}

/// Does the same for a gate that was just decided.
pub(crate) fn resolution_text(gate: GateId, resolution: &GateResolution, by: Option<&PrincipalId>) -> String {
    let token = gate_token(gate);
    let by = by.map_or_else(String::new, |by| format!(" by {}", escape(by.as_str(), LineMode::One)));
    match resolution {
        GateResolution::Allowed { scope: ApprovalScope::Once } => format!("{token} was allowed{by}."),
        GateResolution::Allowed { scope: ApprovalScope::Session } => {
            format!("{token} was allowed for this session{by}.")
        }
        GateResolution::Allowed { scope: ApprovalScope::Always } => format!("{token} was allowed for good{by}."),
        GateResolution::Denied => format!("{token} was denied{by}."),
        GateResolution::Answered => format!("{token} was answered{by}."),
        GateResolution::Declined => format!("{token} was declined{by}."),
        GateResolution::Granted => format!("{token} is covered by what was allowed before."),
        GateResolution::Expired => format!("Nobody answered {token} in time."),
        GateResolution::Withdrawn => format!("{token} was withdrawn."),
    }
}
