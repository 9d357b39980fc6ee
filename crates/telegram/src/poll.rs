//! Taps and replies of people become answers to gates.
//!
//! An update is confirmed only once its decision is durable. A user who may not answer does not even get a refusal.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    engine::{Command, CommandError, Engine, EngineReply, ResidencyScope as At},
    gate::{self, AnswerError, ApprovalScope, GateReply, GateResolution},
    id::{GateId, PrincipalId},
};
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::{GateRequest, gate_summary::proposal_patterns, principals};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::TaskTracker;

use super::{
    MessengerContext, SURFACE,
    bot::{BotCallFailure, CallbackNotice, RetryBackoff},
    chat_sender::{ChatType, IncomingChatMessage, UpdateFlow},
    files, mentions,
    refs::{ButtonAction, CardLocation},
    wire::{CallbackQuery, TelegramMessage, TelegramUpdate, TelegramUser},
};

const EXPIRED: CallbackNotice = CallbackNotice { text: "This button has expired", alert: false };
const ALREADY: CallbackNotice = CallbackNotice { text: "Already resolved", alert: false };
const NOT_ALLOWED: CallbackNotice = CallbackNotice { text: "You may not answer this one", alert: true };
const COUNTED: CallbackNotice = CallbackNotice { text: "Counted. More people have to allow it.", alert: false };
const NOT_AMONG: CallbackNotice = CallbackNotice {
    text: "Its rule names who has to allow it, and you are not among them. You can deny it.",
    alert: true,
};
const NOBODY: CallbackNotice = CallbackNotice {
    text: "Several people have to allow it, and it is not known whose account this is. You can deny it.",
    alert: true,
};
const NOT_RECORDED: CallbackNotice =
    CallbackNotice { text: "This could not be recorded, so nothing was decided. Try again in a while.", alert: true };
const HOW: CallbackNotice = CallbackNotice {
    text: "Reply to the card and write why. Your reply refuses it, and the agent reads the reason.",
    alert: true,
};
const WORDS: CallbackNotice = CallbackNotice { text: "Reply to the card and write what is to change.", alert: true };
const COMES: CallbackNotice = CallbackNotice { text: "The whole text follows", alert: false };
const TOO_MUCH: CallbackNotice =
    CallbackNotice { text: "Other texts are being sent. Try again in a while.", alert: false };

/// Attempts at ending the wait of a tap.
const TRIES: u32 = 3;
/// A poll that ends sooner with nothing is not repeated at once.
const TOO_SOON: Duration = Duration::from_millis(200);

/// The task that polls.
pub(super) struct UpdatePoller {
    shared: Arc<MessengerContext>,
    source: CommandSource,
    /// Gates whose whole text was requested.
    orders: mpsc::Sender<GateId>,
    wait: Duration,
    saying: TaskTracker,
}

impl UpdatePoller {
    pub(super) fn new(
        shared: Arc<MessengerContext>,
        source: CommandSource,
        orders: mpsc::Sender<GateId>,
        wait: Duration,
    ) -> Self {
        Self { shared, source, orders, wait, saying: TaskTracker::new() }
    }

    pub(super) async fn run(self) {
        let stop = self.shared.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.poll_updates() => {}
        }
        self.saying.close();
        self.saying.wait().await;
    }

    async fn poll_updates(&self) {
        let bot = &self.shared.bot;
        let mut backoff = RetryBackoff::default();
        let own = loop {
            match bot.username().await {
                Ok(own) => break own,
                Err(failure) => {
                    if !pause_after(&failure, &mut backoff).await {
                        return;
                    }
                }
            }
        };
        while let Err(failure) = bot.delete_webhook().await {
            if !pause_after(&failure, &mut backoff).await {
                return;
            }
        }
        let mut offset = 0;
        loop {
            let started = Instant::now();
            match bot.get_updates(offset, self.wait).await {
                Ok(updates) => {
                    backoff = RetryBackoff::default();
                    if updates.is_empty() && started.elapsed() < TOO_SOON {
                        tokio::time::sleep(backoff.next_wait()).await;
                    }
                    for update in updates {
                        let id = update.update_id;
                        match self.take_update(update, &own).await {
                            UpdateFlow::Next => offset = offset.max(id + 1),
                            UpdateFlow::Again => {
                                tokio::time::sleep(backoff.next_wait()).await;
                                break;
                            }
                            UpdateFlow::Over => return,
                        }
                    }
                }
                Err(failure) => {
                    if !pause_after(&failure, &mut backoff).await {
                        return;
                    }
                }
            }
        }
    }

    async fn take_update(&self, update: TelegramUpdate, own: &str) -> UpdateFlow {
        match (update.callback_query, update.message) {
            (Some(query), _) => self.on_tap(query).await,
            (None, Some(message)) => match self.on_reply(&message).await {
                Some(flow) => flow,
                None => self.on_message(message, own).await,
            },
            (None, None) => UpdateFlow::Next,
        }
    }

    /// Reports whether a user may answer. Remembers the name, for people to read.
    fn may_answer(&self, user: &TelegramUser) -> bool {
        let may = self.shared.allowed_users.contains(&user.id);
        if let Some(name) = user.username.as_ref().filter(|_| may) {
            self.shared.names.lock().insert(user.id, name.clone());
        }
        may
    }

    async fn on_tap(&self, query: CallbackQuery) -> UpdateFlow {
        let is_elsewhere = query.message.as_ref().is_some_and(|message| !self.shared.is_ours(message.chat.id));
        if is_elsewhere || !self.may_answer(&query.from) {
            return UpdateFlow::Next;
        }
        let known = query.data.as_deref().and_then(|data| self.shared.refs.decode_button(data));
        let Some(((gate, action), message)) = known.zip(query.message) else {
            self.answer_tap(query.id, EXPIRED);
            return UpdateFlow::Next;
        };
        // A card whose sending had no answer is known from here on. A known one is not recorded twice.
        let place = CardLocation { chat: message.chat.id, message: message.message_id };
        let shown = gate::Command::Shown { gate, surface: SURFACE.to_owned(), reference: place.to_string() };
        self.source.post_command(Command::Gate(shown)).await;
        let answer = match action {
            ButtonAction::Once => GateReply::Allow(ApprovalScope::Once),
            ButtonAction::Session => GateReply::Allow(ApprovalScope::Session),
            ButtonAction::Always => GateReply::Allow(ApprovalScope::Always),
            ButtonAction::Rule(at) => {
                let read = self.source.read_state(move |engine| {
                    engine.state().gate(gate).map(|gate| proposal_patterns(engine, gate)).unwrap_or_default()
                });
                let Some((rules, _)) = read.await else { return UpdateFlow::Again };
                // If it is not pending any more nothing is proposed. No rule is never proposed, and the reply says so.
                let pattern = rules.into_iter().nth(usize::from(at)).unwrap_or_default();
                GateReply::Grant(gate::GrantTerms { scope: ApprovalScope::Always, pattern: Some(pattern), lasts: None })
            }
            ButtonAction::Deny => GateReply::Deny { reason: None },
            ButtonAction::Choice(at) => {
                let Some((labels, _)) = self.source.read_state(move |engine| choice_label(engine, gate, at)).await
                else {
                    return UpdateFlow::Again;
                };
                // If it is not pending any more there is none, and the reply says so.
                GateReply::Say(labels)
            }
            ButtonAction::Reason | ButtonAction::Whole => {
                self.explain_tap(query.id, gate, action).await;
                return UpdateFlow::Next;
            }
        };
        let key = format!("telegram:{}", query.id);
        match self.decide_gate(gate, answer, principals::of_telegram(query.from.id), key).await {
            // A choice of a plan may want words.
            Some(EXPIRED) if matches!(action, ButtonAction::Choice(_)) && self.is_waiting(gate).await => {
                self.answer_tap(query.id, WORDS);
                UpdateFlow::Next
            }
            Some(notice) => {
                self.answer_tap(query.id, notice);
                UpdateFlow::Next
            }
            None => UpdateFlow::Over,
        }
    }

    /// Reports whether a gate is still pending.
    async fn is_waiting(&self, gate: GateId) -> bool {
        let read = self.source.read_state(move |engine| engine.state().gate(gate).is_some_and(gate::Gate::is_pending));
        read.await.is_some_and(|(waits, _)| waits)
    }

    /// Answers a tap that decides nothing.
    async fn explain_tap(&self, query: String, gate: GateId, action: ButtonAction) {
        let read = self
            .source
            .read_of(At::Gate(gate), move |engine| engine.state().gate(gate).map(|gate| gate.resolution().cloned()));
        let notice = match read.await {
            Some((Some(None), _)) if action == ButtonAction::Reason => HOW,
            Some((Some(None), _)) if self.orders.try_send(gate).is_ok() => COMES,
            Some((Some(None), _)) => TOO_MUCH,
            Some((Some(Some(GateResolution::Expired)) | None, _)) => EXPIRED,
            Some((Some(Some(_)), _)) => ALREADY,
            None => NOT_RECORDED,
        };
        self.answer_tap(query, notice);
    }

    /// Handles a text of a person: a reply to a pending card answers its question, or denies it, with the reply as its reason.
    /// `None` if it is no such reply.
    async fn on_reply(&self, message: &TelegramMessage) -> Option<UpdateFlow> {
        let (from, to) = message.from.as_ref().zip(message.reply_to_message.as_ref())?;
        let text = message.text.clone().filter(|text| !text.trim().is_empty())?;
        if !self.shared.is_ours(message.chat.id) || !self.may_answer(from) {
            return None;
        }
        let place = CardLocation { chat: message.chat.id, message: to.message_id }.to_string();
        let read = self.source.read_state(move |engine| {
            let shows = |gate: &&gate::Gate| {
                gate.shown_surfaces().iter().any(|showing| showing.surface == SURFACE && showing.reference == place)
            };
            let gate = engine.state().all_gates().find(shows)?;
            Some(gate.is_pending().then(|| (gate.id(), answer_in_words(engine, gate, &text))))
        });
        // Nothing can be read while nothing can be recorded. It comes again, until the owner has ended.
        let Some((found, _)) = read.await else { return Some(UpdateFlow::Again) };
        // A reply to a card that is over is ignored.
        let Some((gate, answer)) = found? else { return Some(UpdateFlow::Next) };
        let key = format!("telegram:{}:{}", message.chat.id, message.message_id);
        Some(match self.decide_gate(gate, answer, principals::of_telegram(from.id), key).await {
            Some(NOT_RECORDED) => UpdateFlow::Again,
            Some(_) => UpdateFlow::Next,
            None => UpdateFlow::Over,
        })
    }

    /// Handles a message of a person to an agent. In a group that is one that names the bot, is a command, or replies to it.
    async fn on_message(&self, message: TelegramMessage, own: &str) -> UpdateFlow {
        let Some(ear) = &self.shared.ear else { return UpdateFlow::Next };
        let (files, other) = (files::attached_files(&message), files::other_kind(&message));
        let place = message.place();
        let Some(from) = message.from else { return UpdateFlow::Next };
        let text = message.text.or(message.caption).unwrap_or_default();
        let chat_type = match message.chat.kind.as_deref() {
            Some("private") | None => ChatType::Private,
            Some("channel") => ChatType::Channel,
            Some(_) => ChatType::Group,
        };
        let named = format!("@{own}");
        // Messages in a topic reply to the one that created it, if to no other: that says nothing of whom they are for.
        let replied = message.reply_to_message.filter(|to| Some(to.message_id) != place.topic);
        let replied = replied.and_then(|to| to.from?.username);
        let is_meant = chat_type == ChatType::Private
            || text.starts_with('/')
            || mentions::names_bot(&text, &named)
            || replied.is_some_and(|name| name.eq_ignore_ascii_case(own));
        let is_something = !text.trim().is_empty() || !files.is_empty() || other.is_some();
        if !is_meant || !is_something {
            return UpdateFlow::Next;
        }
        let Some(hear) = ear.listener().await else { return UpdateFlow::Over };
        let written = IncomingChatMessage {
            place,
            chat_type,
            title: message.chat.title,
            message: message.message_id,
            from: from.id,
            name: from.first_name,
            username: from.username,
            reply: mentions::reply_text(&text, &named),
            text: mentions::plain_command(&text, &named),
            files,
            other,
        };
        hear.handle_message(written).await
    }

    /// Gives an answer, and returns the notice for the person; `None` if nothing is decided here any more.
    async fn decide_gate(
        &self,
        gate: GateId,
        answer: GateReply,
        by: PrincipalId,
        key: String,
    ) -> Option<CallbackNotice> {
        let answer = gate::Command::Answer { gate, answer, by, key: Some(key) };
        let refused = match self.source.send_command(Command::Gate(answer)).await {
            Ok(reply) if matches!(reply.outcome, EngineReply::Voted { .. }) => return Some(COUNTED),
            Ok(_) => return Some(CallbackNotice::default()),
            Err(refused) => refused,
        };
        Some(match refused {
            OwnerError::Closed => return None,
            OwnerError::Refusal(CommandError::Answer(refusal)) => match refusal {
                AnswerError::AlreadyResolved { resolution: GateResolution::Expired, .. }
                | AnswerError::Unknown(_)
                | AnswerError::NotOffered { .. } => EXPIRED,
                AnswerError::AlreadyResolved { .. } | AnswerError::KeyTaken(_) => ALREADY,
                AnswerError::NotAmong { .. } => NOT_AMONG,
                AnswerError::Nobody { .. } => NOBODY,
                AnswerError::NotAllowed { .. } => NOT_ALLOWED,
            },
            OwnerError::Refusal(_)
            | OwnerError::NotRecorded(_)
            | OwnerError::Unsure(_)
            | OwnerError::TooLarge
            | OwnerError::Unreadable(_)
            | OwnerError::Panicked => {
                tracing::warn!(%gate, %refused, "failed to process a button press");
                NOT_RECORDED
            }
        })
    }

    /// Ends the wait of the person who tapped, in the background.
    fn answer_tap(&self, query: String, notice: CallbackNotice) {
        let bot = self.shared.bot.clone();
        self.saying.spawn(async move {
            let mut backoff = RetryBackoff::default();
            for _ in 0..TRIES {
                match bot.answer_callback(&query, &notice).await {
                    Err(BotCallFailure::Wait(wait)) => tokio::time::sleep(wait).await,
                    Err(BotCallFailure::Unreachable(_)) => tokio::time::sleep(backoff.next_wait()).await,
                    Ok(()) | Err(_) => return,
                }
            }
        });
    }
}

/// Returns the label of a choice, as an answer; nothing if the gate is not pending or has not so many.
fn choice_label(engine: &Engine, gate: GateId, at: u8) -> Vec<String> {
    let request = GateRequest::at_hand(engine, gate);
    let choices = request.as_ref().and_then(GateRequest::question).map(|question| question.choices);
    choices.and_then(|choices| choices.get(usize::from(at))).map(|choice| choice.label.clone()).into_iter().collect()
}

/// Returns the answer in a reply to a card: the answer to a question, as text or by the numbers of its choices, or the reason of a denial.
fn answer_in_words(engine: &Engine, gate: &gate::Gate, text: &str) -> GateReply {
    if !gate.kind().takes_words() {
        return GateReply::Deny { reason: Some(text.to_owned()) };
    }
    let request = GateRequest::at_hand(engine, gate.id());
    let question = request.as_ref().and_then(GateRequest::question).filter(|question| question.is_multi);
    let numbered = question.and_then(|question| {
        let numbers = text.split([',', ' ', '\n']).filter(|part| !part.is_empty());
        let label =
            |part: &str| question.choices.get(part.parse::<usize>().ok()?.checked_sub(1)?).map(|one| one.label.clone());
        numbers.map(label).collect::<Option<Vec<_>>>()
    });
    GateReply::Say(numbered.unwrap_or_else(|| vec![text.to_owned()]))
}

/// Waits before the next attempt. False if there is no use in one.
async fn pause_after(failure: &BotCallFailure, backoff: &mut RetryBackoff) -> bool {
    let wait = match failure {
        BotCallFailure::Token(_) => return false,
        BotCallFailure::Wait(wait) => *wait,
        BotCallFailure::Conflict(_)
        | BotCallFailure::Moved(_)
        | BotCallFailure::Harmless(_)
        | BotCallFailure::Refused(_)
        | BotCallFailure::Unreachable(_) => backoff.next_wait(),
    };
    tokio::time::sleep(wait).await;
    true
}
