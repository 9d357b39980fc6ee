//! Card of one gate: the exact call, its caller, its reason, the time left, and the possible answers.

mod change;
mod form;

use std::sync::Arc;

use countersign_core::{
    engine::Engine,
    gate::{self, ApprovalScope, Gate, GatePhase, IdentityMap, Kind, Vote},
    id::{GateId, Lsn, PrincipalId, SessionId},
    time::Millis,
};
use countersign_view::{
    GateCard, GateRequest, GateSummary, gate_card,
    gate_request::{CallRequest, RequestKind},
    gate_summary::Approvals,
};
use maud::{Markup, html};

use super::labels::{
    self, Severity, escape_line, escape_lines, plain_text, time_ago, time_element, time_left, url_path,
};

pub(super) use change::edit_diff as change;

/// Longest card in a list, in characters. A longer one is shown whole on its own page, and allowed there.
const LONGEST: usize = 16_000;

/// Gate with all that a card shows.
#[derive(Clone, Debug)]
pub(super) struct ConsoleGate {
    pub(super) id: GateId,
    pub(super) kind: Kind,
    pub(super) session: Option<SessionId>,
    pub(super) request: GateRequest,
    pub(super) scopes: Vec<ApprovalScope>,
    pub(super) opened_at: Millis,
    pub(super) deadline: Option<Millis>,
    pub(super) phase: GatePhase,
    door: String,
    /// Id of an agent, or the name of the session.
    asker: String,
    is_agents: bool,
    /// The principal that makes the call, if it is not the session itself.
    requester: Option<PrincipalId>,
    /// True if rules of its session's host decide, and not those of the gateway.
    is_hosted: bool,
    cwd: Option<String>,
    approvals: Option<Approvals>,
    votes: Vec<Vote>,
    people: IdentityMap,
}

/// Place of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardPlace {
    /// In a list: a very long one is cut, and can only be denied.
    List,
    /// Alone and whole.
    Page,
}

/// Context of a card for its reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardContext<'a> {
    pub(super) now: Millis,
    /// Token that forms send back; empty in frames that the script completes.
    pub(super) csrf: &'a str,
    /// Key of the window, so that a repeated form gets the same answer.
    pub(super) key: &'a str,
    pub(super) place: CardPlace,
    /// Notice above the card.
    pub(super) notice: Option<&'a str>,
}

/// Text of a resolved gate's answer, and its author.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerText {
    pub(super) text: Option<Arc<str>>,
}

impl ConsoleGate {
    /// Returns every pending gate, the most urgent first.
    pub(super) fn all_pending(engine: &Engine) -> Vec<Self> {
        let gates = engine.state().pending_gates();
        let summaries = gates.filter_map(|gate| GateSummary::at_hand(engine, gate));
        let mut all: Vec<Self> = summaries.map(|summary| Self::from_summary(engine, summary)).collect();
        all.sort_by_key(|console_gate| (console_gate.deadline.unwrap_or(Millis(u64::MAX)), console_gate.opened_at));
        all
    }

    /// Creates one for a gate with `request`.
    pub(super) fn new(engine: &Engine, gate: &Gate, request: GateRequest) -> Self {
        Self::from_summary(engine, GateSummary::new(engine, gate, request))
    }

    fn from_summary(engine: &Engine, summary: GateSummary) -> Self {
        let approvals = summary.approvals();
        let GateSummary { gate, request, door, session_name, requester, is_hosted, folder } = summary;
        let id = gate.session().map(|id| id.as_str().to_owned()).unwrap_or_default();
        let agent = id.strip_prefix("agent:").map(str::to_owned);
        Self {
            id: gate.id(),
            kind: gate.kind(),
            session: gate.session().cloned(),
            request,
            scopes: gate.scopes().to_vec(),
            opened_at: gate.opened_at(),
            deadline: gate.deadline(),
            phase: gate.phase().clone(),
            door,
            is_agents: agent.is_some(),
            is_hosted,
            requester,
            asker: agent.or(session_name).unwrap_or(id),
            cwd: folder,
            approvals,
            votes: gate.votes().to_vec(),
            people: engine.rules().people.clone(),
        }
    }

    /// Reports whether rules of its session's host decide about it, and not those of the gateway.
    pub(super) const fn is_hosted(&self) -> bool {
        self.is_hosted
    }

    /// Reports whether it is pending.
    pub(super) fn is_pending(&self) -> bool {
        self.phase == GatePhase::Pending
    }

    /// Returns the position of the text of its answer.
    pub(super) fn answer_at(&self) -> Option<Lsn> {
        match &self.phase {
            GatePhase::Pending => None,
            GatePhase::Resolved { lsn, .. } => Some(*lsn),
        }
    }

    /// Returns the call, as every surface shows it.
    fn call_card(&self) -> Option<(GateCard, CallRequest<'_>)> {
        let call = self.request.call()?;
        let card = GateCard::new(&gate_card::GateCardInput::new(call, &self.caller_name(), self.cwd.as_deref(), &[]));
        Some((card, call))
    }

    /// Returns the digest of the content that an approver must have seen.
    pub(super) fn digest(&self) -> String {
        match self.call_card() {
            Some((card, ..)) => card.digest.to_string(),
            None => countersign_core::digest::Digest::hash_bytes(self.prompt_text().as_bytes()).to_string(),
        }
    }

    /// Returns the whole text of a gate without a call.
    fn prompt_text(&self) -> String {
        match self.request.kind() {
            RequestKind::Call(_) => self.title(),
            RequestKind::Question(question) => plain_text(question.text),
            RequestKind::GoOn(go_on) => plain_text(go_on.text),
        }
    }

    /// Describes the caller in a sentence.
    fn caller_name(&self) -> String {
        match &self.requester {
            Some(requester) => requester.to_string(),
            None if self.is_agents => self.asker.clone(),
            None => format!("Session “{}”", self.asker),
        }
    }

    /// Returns one line for titles and notifications.
    pub(super) fn title(&self) -> String {
        match self.request.kind() {
            RequestKind::Call(call) => match call.server_title() {
                Some(title) => plain_text(&title),
                None => format!("{} wants to use {}", plain_text(&self.caller_name()), plain_text(call.tool)),
            },
            RequestKind::Question(_) => plain_text(self.request.headline()),
            RequestKind::GoOn(go_on) => plain_text(go_on.text),
        }
    }

    /// Reports whether all of it fits into a list.
    pub(super) fn is_whole(&self, place: CardPlace) -> bool {
        place == CardPlace::Page || self.call_card().is_none_or(|(card, ..)| card.char_count() <= LONGEST)
    }

    /// Renders the card, pending or resolved.
    pub(super) fn render_card(&self, reader: &CardContext<'_>, answered: &AnswerText) -> Markup {
        let (id, waits) = (self.id.to_string(), self.is_pending());
        let page = url_path("/console/gates/", &id);
        let is_whole = self.is_whole(reader.place);
        html! {
            article.card.over[!waits] #(id) tabindex="-1" aria-labelledby={ "t-" (id) }
                data-state=(if waits { "waiting" } else { "over" }) data-page=(page)
                data-deadline=(self.deadline.unwrap_or(Millis(u64::MAX >> 12)).0) data-opened=(self.opened_at.0) {
                header {
                    @if waits && reader.place == CardPlace::List && is_whole && !self.kind.takes_words() {
                        input.choose type="checkbox" form="several" name={ "gate." (id) } value=(self.digest()) aria-label={ "Select: " (self.title()) };
                    }
                    h2 #{ "t-" (id) } { (self.render_heading()) }
                    @if waits {
                        @if let Some(deadline) = self.deadline { p.time { (time_left(deadline, reader.now)) } }
                    } @else if reader.place == CardPlace::List {
                        a.button.quiet.dismiss href="/console/" { "Dismiss" }
                    }
                }
                p.meta {
                    span { "via " (plain_text(&self.door)) }
                    @if let Some(session) = &self.session { a href=(url_path("/console/sessions/", session.as_str())) { (plain_text(&self.asker)) } }
                    span { "requested " (time_ago(self.opened_at, reader.now)) }
                    @if reader.place == CardPlace::List { a href=(page) { "Details" } } @else { span.id { (id) } }
                }
                @if let Some(notice) = reader.notice { p.problem role="alert" { (notice) } }
                @if let GatePhase::Resolved { .. } = &self.phase { (self.render_outcome(answered)) }
                (self.render_request(is_whole, &page))
                @if waits { (self.answer_form(reader, is_whole, &page)) }
            }
        }
    }

    fn render_heading(&self) -> Markup {
        match self.request.kind() {
            RequestKind::Call(call) => match call.server_title() {
                Some(title) => html! { (plain_text(&title)) },
                None => html! {
                    strong { (plain_text(&self.caller_name())) } " wants to use " strong.tool { (plain_text(call.tool)) }
                },
            },
            RequestKind::Question(question) => html! { (self.question_prefix()) (escape_lines(question.text)) },
            RequestKind::GoOn(go_on) => html! { (escape_lines(go_on.text)) },
        }
    }

    /// Returns the question that precedes the text of a plan or an execution.
    fn question_prefix(&self) -> &'static str {
        match self.kind {
            Kind::Plan => "Approve this plan? ",
            Kind::Execution => "Sign off this execution? ",
            Kind::Question | Kind::Approval | Kind::Pairing | Kind::Budget => "",
        }
    }

    /// Renders the call, all of it or as much as fits.
    fn render_request(&self, is_whole: bool, page: &str) -> Markup {
        let Some((card, call)) = self.call_card() else { return html! {} };
        let change = change(call.tool, call.arguments);
        html! {
            @if is_whole {
                div.what {
                    @for section in &card.sections {
                        @if change.as_ref().is_none_or(|change| !change.replaces.contains(&section.label.as_str())) {
                            (render_piece(&section.label, &labels::mark_escapes(&section.text), section.text.contains('\n') || section.text.len() > 60))
                        }
                    }
                    @if let Some(change) = &change { (change.shown) }
                }
            } @else {
                div.what.cut {
                    @let text = card.text();
                    p.note { "Too long for this list: " (text.chars().count()) " characters. Open the full card to allow it. It begins:" }
                    pre { "\n" (labels::mark_escapes(&text.chars().take(1200).collect::<String>())) }
                    p { a.button href=(page) { "Show the full card" } }
                }
            }
            dl.facts {
                @if let Some(intent) = &card.intent { div { dt { "Purpose" } dd.said { "“" (labels::mark_escapes(intent)) "”" } } }
                @if !card.reason.is_empty() { div { dt { "Reason" } dd { (labels::mark_escapes(card.reason.strip_prefix("because ").unwrap_or(&card.reason))) } } }
                @if let Some(approvals) = &self.approvals {
                    div { dt { "Approvals" } dd { (plain_text(&approvals.to_string())) } }
                }
            }
        }
    }

    /// Renders its resolution and its approver.
    fn render_outcome(&self, answered: &AnswerText) -> Markup {
        let GatePhase::Resolved { resolution, by, at, .. } = &self.phase else { return html! {} };
        let answer = answered.text.as_deref();
        let answer =
            answer.map(|text| gate::parse_words(text).map_or_else(|| text.to_owned(), |answers| answers.join(", ")));
        let others: Vec<String> =
            self.votes.iter().map(|vote| labels::principal_name(&self.people, &vote.by)).collect();
        html! {
            p.outcome.(Severity::for_resolution(resolution).css_class()) {
                strong { (labels::resolution_text(resolution)) }
                @if let Some(by) = by { " by " (labels::principal_name(&self.people, by)) }
                @if others.len() > 1 { " (with " (others.join(", ")) ")" }
                ", " (time_element(*at))
                @if let Some(answer) = &answer { ": " q { (escape_line(answer)) } }
            }
        }
    }
}

/// Renders one argument: in the line of its name if it is short, below if it is long. Browsers hide the first line end after `<pre>`.
pub(super) fn render_piece(label: &str, text: &Markup, is_long: bool) -> Markup {
    html! {
        div.piece.long[is_long] { span.label { (label) } pre { "\n" (text) } }
    }
}
