//! Form with the answers to a pending gate.

use countersign_core::gate::ApprovalScope;
use countersign_view::gate_request::{QuestionRequest, RequestKind};
use maud::{Markup, html};

use super::{CardContext, CardPlace, ConsoleGate, escape_line, url_path};

impl ConsoleGate {
    /// Renders the form of the answers that the gate offers.
    pub(super) fn answer_form(&self, reader: &CardContext<'_>, is_whole: bool, page: &str) -> Markup {
        let id = self.id.to_string();
        html! {
            form.answer method="post" action=(url_path("/console/gates/", &id)) {
                input type="hidden" name="csrf" value=(reader.csrf);
                input type="hidden" name="key" value=(reader.key);
                input type="hidden" name="digest" value=(self.digest());
                input type="hidden" name="from" value=(if reader.place == CardPlace::Page { "page" } else { "list" });
                @match self.request.kind() {
                    RequestKind::Question(request) => (question_fields(request, &id)),
                    RequestKind::Call(_) | RequestKind::GoOn(_) => (self.approval_buttons(is_whole, page)),
                }
            }
        }
    }

    fn approval_buttons(&self, is_whole: bool, page: &str) -> Markup {
        let id = self.id.to_string();
        let offers = |scope| is_whole && self.scopes.contains(&scope);
        html! {
            div.act {
                @if offers(ApprovalScope::Once) { button.primary type="submit" name="answer" value="once" { "Allow once" } }
                @if offers(ApprovalScope::Session) { button type="submit" name="answer" value="session" { "For the session" } }
                @if offers(ApprovalScope::Always) { a.button href={ (page) "#longer" } { "For longer…" } }
                @if offers(ApprovalScope::Always) && !self.is_hosted { a.button.always href={ "/console/try?of=" (id) } { "Always…" } }
                span.deny {
                    label.unseen for={ "r-" (id) } { "Reason for denying" }
                    input.reason #{ "r-" (id) } type="text" name="reason" placeholder="Reason, sent to the agent" maxlength="2000" autocomplete="off";
                    button.danger type="submit" name="answer" value="deny" { "Deny" }
                }
            }
            @if is_whole && self.scopes == [ApprovalScope::Once] {
                p.note { "You can allow this call once only. Each repetition needs another approval." }
            }
        }
    }
}

/// Renders the fields that answer the question of the gate `id`.
fn question_fields(request: QuestionRequest<'_>, id: &str) -> Markup {
    let QuestionRequest { choices, is_multi: multi, recommended, takes_own_words, .. } = request;
    html! {
        @if !choices.is_empty() {
            fieldset {
                legend { @if multi { "Select all that apply" } @else { "Choose one" } }
                @for (at, choice) in choices.iter().enumerate() {
                    label.choice {
                        @if multi { input type="checkbox" name={ "choice." (at) } value="on"; }
                        @else { input type="radio" name="choice" value=(at); }
                        span { (escape_line(&choice.label)) @if recommended == Some(at) { " " em { "(recommended)" } } }
                    }
                }
            }
        }
        @if takes_own_words {
            label.own for={ "w-" (id) } { @if choices.is_empty() { "Your answer" } @else { "Or in your own words" } }
            textarea #{ "w-" (id) } name="text" rows="2" {}
        }
        div.act {
            button.primary type="submit" name="answer" value="say" { "Answer" }
            button type="submit" name="answer" value="decline" { "Decline" }
        }
    }
}
