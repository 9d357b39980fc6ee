//! Text of a card, before and after its answer.
//!
//! It must not know how cards are sent. Everything that an agent can choose is escaped, and a card that cannot show all
//! of it offers nothing that allows before all of it was sent.

use countersign_core::{
    call,
    digest::{Digest, canonical_json},
    gate::{ApprovalScope, Gate, GateResolution, Kind},
    id::GateId,
    time::Millis,
};
use countersign_view::{
    GateRequest, LineMode, escape,
    gate_request::{CallRequest, GoOnRequest, QuestionRequest, RequestKind},
    gate_summary::{Approvals, plain_text, unshown_arguments},
};
use serde_json::Value;

use super::{
    refs::{ButtonAction, ButtonCodec},
    wire::{InlineButton, InlineKeyboard},
};

/// Longest message. Telegram counts units of UTF-16.
const LIMIT: usize = 4096;
/// Longest text of one part, without the line that numbers it.
const PART: usize = 3900;
/// Most parts that a person gets. A longer text can only be denied here.
const MOST_PARTS: usize = 16;
/// Most rules that are offered; the next limits one to be read on a button.
const MOST_RULES: usize = 3;
const LONGEST_RULE: usize = 48;

/// Reason for a gate after denials.
const DENIED: &str = "because several of its requests in a row were denied; until then nothing else is asked";

/// Content of a card: the request that it shows, and the offered answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CardContent {
    gate: GateId,
    tool: String,
    /// The signature and every argument that is not in it.
    what: String,
    digest: Digest,
    agent: String,
    why: String,
    intent: Option<String>,
    scopes: Vec<ApprovalScope>,
    /// Rules that may be allowed permanently in its place.
    rules: Vec<String>,
    /// Its offer, if a choice or a text is the answer.
    offer: Option<CardOffer>,
    /// Line about the approvals, if they are more than any one person's.
    approvals: Option<String>,
    deadline: Option<Millis>,
}

/// Offer of a question, a plan or an execution.
#[derive(Clone, Debug, PartialEq)]
struct CardOffer {
    kind: Kind,
    choices: Vec<String>,
    several: bool,
}

/// Stage of a pending card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardStage {
    /// New card.
    First,
    /// All of its text was sent in further messages.
    ShownWhole,
}

/// Outcome of the allowed call, if it is worth a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardOutcome {
    /// The call was done, and the agent was not there to receive the result.
    DoneWhileAway,
    /// The service says that it failed.
    Failed,
    /// The call was not run after all.
    NotRun,
    /// The outcome is unknown.
    Unknown,
}

/// End of a gate, as text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CardEnding {
    pub(super) resolution: GateResolution,
    /// Name of the person.
    pub(super) by: Option<String>,
    /// True if the gateway itself did it, because it ends.
    pub(super) shutdown: bool,
    /// The time of day.
    pub(super) at: String,
    pub(super) reason: Option<String>,
    pub(super) outcome: Option<CardOutcome>,
}

impl CardContent {
    /// Creates the request of a gate. Without `call` every argument counts as one that the signature does not show. `rules`
    /// are those that are proposed for it, `folder` is where it would run.
    pub(super) fn new(
        gate: &Gate,
        request: &GateRequest,
        call: Option<&call::CallDetails>,
        rules: Vec<String>,
        folder: Option<&str>,
    ) -> Self {
        let card = match request.kind() {
            RequestKind::Call(call_request) => Self::from_call(gate, call_request, call, rules, folder),
            RequestKind::GoOn(go_on_request) => Self::from_go_on(gate, go_on_request),
            RequestKind::Question(question_request) => Self::from_question(gate, question_request, request.headline()),
        };
        card.updated_for(gate)
    }

    fn from_call(
        gate: &Gate,
        call_request: CallRequest<'_>,
        call: Option<&call::CallDetails>,
        rules: Vec<String>,
        folder: Option<&str>,
    ) -> Self {
        let CallRequest { tool, arguments, signature, .. } = call_request;
        let request = call.and_then(|call| call.request.as_ref());
        let mut what = escape(signature, LineMode::One).into_owned();
        if let Some(consequence) = call_request.consequence() {
            what.push_str(&argument_line("if allowed", consequence, false));
        }
        for key in unshown_arguments((tool, signature), arguments, call) {
            let is_undeclared = request.is_some_and(|request| request.undeclared.iter().any(|name| name == key));
            what.push_str(&argument_line(key, &plain_text(&arguments[key]), is_undeclared));
        }
        let runs = call_request.run_lines();
        if !runs.is_empty() {
            what.push_str(&argument_line("runs", &runs.join("\n"), false));
        }
        if let Some(folder) = folder {
            what.push_str(&argument_line("in folder", folder, false));
        }
        let session = || gate.session().map_or_else(|| "an agent".to_owned(), ToString::to_string);
        let agent = request.map_or_else(session, |request| request.principal.to_string());
        Self {
            gate: gate.id(),
            tool: escape(call_request.server_title().as_deref().unwrap_or(tool), LineMode::One).into_owned(),
            what,
            digest: Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes()),
            agent: brief_text(&agent, 200),
            why: brief_text(call_request.reason, 500),
            intent: call_request.intent.map(|intent| brief_text(intent, 300)),
            scopes: gate.scopes().to_vec(),
            rules,
            offer: None,
            approvals: None,
            deadline: None,
        }
    }

    fn from_go_on(gate: &Gate, request: GoOnRequest<'_>) -> Self {
        let what = escape(request.text, LineMode::One).into_owned();
        Self {
            gate: gate.id(),
            tool: match (gate.kind(), gate.call()) {
                (Kind::Pairing, _) => "May they speak?",
                (_, Some(_)) => "May its command reach a host?",
                (_, None) => "May it go on?",
            }
            .to_owned(),
            digest: Digest::hash_bytes(what.as_bytes()),
            what,
            agent: brief_text(request.asker, 200),
            why: request.reason.map_or_else(|| DENIED.to_owned(), |why| brief_text(why, 500)),
            intent: None,
            scopes: gate.scopes().to_vec(),
            rules: Vec::new(),
            offer: None,
            approvals: None,
            deadline: None,
        }
    }

    fn from_question(gate: &Gate, question: QuestionRequest<'_>, headline: &str) -> Self {
        let mut what = escape(question.text, LineMode::Many).into_owned();
        for (at, choice) in question.choices.iter().enumerate() {
            let note = if question.recommended == Some(at) { " (recommended)" } else { "" };
            what.push_str(&format!("\n{}. {}{note}", at + 1, escape(&choice.label, LineMode::One)));
        }
        let kind = match gate.kind() {
            Kind::Plan => "Plan",
            Kind::Execution => "Execution",
            Kind::Question | Kind::Approval | Kind::Budget | Kind::Pairing => "Question",
        };
        let tool =
            if headline == question.text { kind.to_owned() } else { format!("{kind}: {}", brief_text(headline, 200)) };
        let agent = gate.session().map_or_else(|| "an agent".to_owned(), ToString::to_string);
        Self {
            gate: gate.id(),
            tool,
            digest: Digest::hash_bytes(what.as_bytes()),
            what,
            agent: brief_text(&agent, 200),
            why: "by a run that waits for the answer".to_owned(),
            intent: None,
            scopes: Vec::new(),
            rules: Vec::new(),
            offer: Some(CardOffer { kind: gate.kind(), choices: question.choice_labels(), several: question.is_multi }),
            approvals: None,
            deadline: None,
        }
    }

    /// Returns the same for the gate's current state.
    pub(super) fn updated_for(self, gate: &Gate) -> Self {
        let approvals = Approvals::from_gate(gate).map(|approvals| brief_text(&approvals.to_string(), 500));
        Self { approvals, deadline: gate.deadline(), ..self }
    }

    /// Returns the rules that fit on a button: those of which a person sees everything.
    fn offered_rules(&self) -> impl Iterator<Item = (u8, &str)> {
        let fits = |rule: &str| {
            let shown = escape(rule, LineMode::One);
            shown == rule && rule.chars().count() <= LONGEST_RULE
        };
        (0..).zip(self.rules.iter().map(String::as_str)).take(MOST_RULES).filter(move |(_, rule)| fits(rule))
    }

    /// Returns the text of a pending card.
    pub(super) fn waiting_text(&self, stage: CardStage, now: Millis, time: impl Fn(Millis) -> String) -> String {
        let mut foot = format!("\n\nAgent: {}\nAsked {}", self.agent, self.why);
        if let Some(intent) = &self.intent {
            foot.push_str(&format!("\nThe agent says: {intent}"));
        }
        if let Some(offer) = &self.offer {
            foot.push_str(offer.how_to_answer());
        }
        if let Some(approvals) = &self.approvals {
            foot.push_str(&format!("\nAllowed by {approvals}"));
        }
        if self.scopes.len() > 1 {
            foot.push_str("\nFor the session or always: exactly this call, by this agent.");
        }
        if self.offered_rules().next().is_some() {
            foot.push_str("\nA rule with * covers whatever stands there, by this agent.");
        }
        if let Some(deadline) = self.deadline {
            foot.push_str(&format!("\nWaits until {} ({})", time(deadline), span_text(deadline.since(now).as_secs())));
        }
        let text = self.whole_text();
        let room = LIMIT - utf16_units(&foot);
        if utf16_units(&text) <= room {
            return text + &foot;
        }
        let more = match stage {
            CardStage::First if self.text_parts().is_none() => {
                "Too long for this chat: it can only be refused here, or answered elsewhere."
            }
            CardStage::First => "Tap “Show all”: the other buttons come behind the whole text.",
            CardStage::ShownWhole => "The whole text was sent below.",
        };
        self.cut_text(&text, more, room) + &foot
    }

    /// Reports whether a card shows all of it.
    pub(super) fn fits_card(&self, now: Millis, time: impl Fn(Millis) -> String) -> bool {
        let text = self.waiting_text(CardStage::First, now, time);
        text.starts_with(&self.whole_text())
    }

    /// Returns the buttons of a pending card. `whole` is whether everything was shown.
    pub(super) fn answer_keyboard(&self, refs: &ButtonCodec, whole: bool) -> InlineKeyboard {
        let button = |text: &str, action| InlineButton {
            text: text.to_owned(),
            callback_data: refs.encode_button(self.gate, action),
        };
        let mut rows = Vec::new();
        if let Some(offer) = &self.offer {
            if whole {
                let choices = (0..ButtonAction::CHOICES).zip(&offer.choices);
                rows.extend(choices.map(|(at, label)| vec![button(&on_button(at, label), ButtonAction::Choice(at))]));
            } else if self.text_parts().is_some() {
                rows.push(vec![button("Show all", ButtonAction::Whole)]);
            }
            if offer.kind == Kind::Question {
                rows.push(vec![button("Do not answer", ButtonAction::Deny)]);
            }
            return InlineKeyboard { inline_keyboard: rows };
        }
        if whole {
            let mut first = Vec::new();
            if self.scopes.contains(&ApprovalScope::Once) {
                first.push(button("Allow", ButtonAction::Once));
            }
            first.push(button("Deny", ButtonAction::Deny));
            rows.push(first);
            for (scope, text, action) in [
                (ApprovalScope::Session, "Allow for this session", ButtonAction::Session),
                (ApprovalScope::Always, "Allow always, exactly this", ButtonAction::Always),
            ] {
                if self.scopes.contains(&scope) {
                    rows.push(vec![button(text, action)]);
                }
            }
            rows.extend(
                self.offered_rules().map(|(at, rule)| vec![button(&format!("Always: {rule}"), ButtonAction::Rule(at))]),
            );
        } else {
            if self.text_parts().is_some() {
                rows.push(vec![button("Show all", ButtonAction::Whole)]);
            }
            rows.push(vec![button("Deny", ButtonAction::Deny)]);
        }
        // It only says how, so it does not hold the word of the buttons that do it.
        rows.push(vec![button("Refuse with a reason…", ButtonAction::Reason)]);
        InlineKeyboard { inline_keyboard: rows }
    }

    /// Returns the whole text in messages, or `None` if it would be too many.
    pub(super) fn text_parts(&self) -> Option<Vec<String>> {
        let text = self.whole_text();
        let mut chunks = vec![String::new()];
        let mut room = PART;
        for letter in text.chars() {
            let size = letter.len_utf16();
            if size > room {
                if chunks.len() == MOST_PARTS {
                    return None;
                }
                chunks.push(String::new());
                room = PART;
            }
            room -= size;
            if let Some(chunk) = chunks.last_mut() {
                chunk.push(letter);
            }
        }
        let count = chunks.len();
        // The last line keeps white space at the end of a part from being cut off.
        let part = |(at, chunk)| format!("Part {} of {count}\n{chunk}\n— end of part {}", at + 1, at + 1);
        Some(chunks.into_iter().enumerate().map(part).collect())
    }

    /// Returns the text of a card that another one replaces.
    pub(super) fn moved_text(&self) -> String {
        let foot = "\n\nAsked again below.";
        let text = self.whole_text();
        let room = LIMIT - utf16_units(foot);
        if utf16_units(&text) <= room { text + foot } else { self.cut_text(&text, "", room) + foot }
    }

    /// Returns the text of a card that is over: the request stays on it.
    pub(super) fn ended_text(&self, ending: &CardEnding) -> String {
        let foot = ending.foot_text();
        let head = ending.head_text();
        let text = format!("{head}\n{}", self.what);
        let room = LIMIT - utf16_units(&foot);
        if utf16_units(&text) <= room { text + &foot } else { self.cut_text(&text, "", room) + &foot }
    }

    fn whole_text(&self) -> String {
        let sign = if self.offer.is_some() { '\u{2753}' } else { '\u{1f6a8}' };
        format!("{sign} {}\n{}", self.tool, self.what)
    }

    /// Returns the beginning and the end of `text`, its length and its digest, in `room` units.
    fn cut_text(&self, text: &str, more: &str, room: usize) -> String {
        let length = text.chars().count();
        let notice = format!("\n[… not shown whole: {length} characters, sha256 {}. {more} …]\n", self.digest);
        let left = room.saturating_sub(utf16_units(&notice));
        let tail = left / 3;
        let head = take_units(text.chars(), left - tail);
        let tail: String = take_units(text.chars().rev(), tail).chars().rev().collect();
        format!("{head}{notice}{tail}")
    }
}

impl CardOffer {
    /// Returns the line about how to answer.
    const fn how_to_answer(&self) -> &'static str {
        match (self.kind, self.several) {
            (Kind::Plan, _) => "\nReply to this card to say what is to change.",
            (Kind::Execution, _) => "\nReply to this card to decline with a reason.",
            (_, true) => "\nFor several, reply with their numbers, such as 1, 3; or reply in your own words.",
            (_, false) => "\nReply to this card to answer in your own words.",
        }
    }
}

/// Returns the text on the button of a choice: all of it if that can be read there, else its number.
fn on_button(at: u8, label: &str) -> String {
    let shown = escape(label, LineMode::One);
    let is_readable = shown == label && label.chars().count() <= LONGEST_RULE;
    if is_readable { label.to_owned() } else { format!("{}.", u32::from(at) + 1) }
}

impl CardEnding {
    fn head_text(&self) -> &'static str {
        match &self.resolution {
            GateResolution::Denied if self.shutdown => "\u{274c} Gateway shutting down",
            GateResolution::Allowed { .. } | GateResolution::Granted => "\u{2705} Approved",
            GateResolution::Denied | GateResolution::Declined => "\u{274c} Denied",
            GateResolution::Expired => "\u{23f0} Expired",
            GateResolution::Answered => "\u{2705} Answered",
            GateResolution::Withdrawn => "\u{21a9} Withdrawn",
        }
    }

    fn foot_text(&self) -> String {
        let at = &self.at;
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" by {}", brief_text(by, 100)));
        let mut foot = match &self.resolution {
            GateResolution::Denied if self.shutdown => format!("\n\nThe gateway ended at {at}; nothing was run."),
            GateResolution::Allowed { scope: ApprovalScope::Once } => format!("\n\nApproved{by} at {at}"),
            GateResolution::Allowed { scope: ApprovalScope::Session } => {
                format!("\n\nApproved for the session{by} at {at}")
            }
            GateResolution::Allowed { scope: ApprovalScope::Always } => format!("\n\nApproved always{by} at {at}"),
            GateResolution::Granted => format!("\n\nCovered by an earlier approval at {at}"),
            GateResolution::Denied | GateResolution::Declined => format!("\n\nDenied{by} at {at}"),
            GateResolution::Expired => format!("\n\nNobody answered until {at}; nothing was run."),
            GateResolution::Answered => format!("\n\nAnswered{by} at {at}"),
            GateResolution::Withdrawn => format!("\n\nNobody needs an answer any more ({at})."),
        };
        if let Some(reason) = self.reason.as_ref().filter(|_| !self.shutdown) {
            foot.push_str(&format!(": {}", brief_text(reason, 500)));
        }
        foot.push_str(match self.outcome {
            None => "",
            Some(CardOutcome::DoneWhileAway) => "\nExecuted while the agent was away.",
            Some(CardOutcome::Failed) => "\nThe service answered with an error.",
            Some(CardOutcome::NotRun) => "\nIt was not run.",
            Some(CardOutcome::Unknown) => "\nOutcome unknown: it may have been executed. It was not repeated.",
        });
        foot
    }
}

/// Returns an argument in one line, or set off in several, so that no value can pretend to be the next argument.
fn argument_line(key: &str, text: &str, is_undeclared: bool) -> String {
    let is_plain =
        !key.is_empty() && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
    let key = if is_plain { key.to_owned() } else { Value::from(key).to_string() };
    let key = escape(&key, LineMode::One);
    let note = if is_undeclared { " (not declared)" } else { "" };
    let text = escape(text, LineMode::Many);
    if text.contains('\n') {
        format!("\n  {key}{note}:\n    | {}", text.replace('\n', "\n    | "))
    } else {
        format!("\n  {key}: {text}{note}")
    }
}

/// Returns one escaped line of at most `limit` characters.
fn brief_text(text: &str, limit: usize) -> String {
    let mut short: String = escape(text, LineMode::One).chars().take(limit + 1).collect();
    if short.chars().count() > limit {
        short.pop();
        short.push('…');
    }
    short
}

fn utf16_units(text: &str) -> usize {
    text.encode_utf16().count()
}

fn take_units(letters: impl Iterator<Item = char>, mut room: usize) -> String {
    letters
        .take_while(|letter| {
            let fits = letter.len_utf16() <= room;
            room = room.saturating_sub(letter.len_utf16());
            fits
        })
        .collect()
}

fn span_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests;
