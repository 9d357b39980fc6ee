//! What people tap and write becomes answers to gates.
//!
//! An update is confirmed only once what it decided is durable. Whoever may not answer is not even told so.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    engine::{Command, CommandError, Engine, EngineReply, ResidencyScope as At},
    gate::{self, AnswerError, ApprovalScope, GateReply, GateResolution},
    id::{GateId, PrincipalId},
};
use countersign_runtime::{CommandSource, OwnerError};
use countersign_view::{GateRequest, gate_summary::proposals, principals};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::TaskTracker;

use super::{
    SURFACE, Shared,
    bot::{Backoff, Failure, Said},
    files,
    refs::{Action, Place},
    talk::{ChatType, Flow, Written},
    wire::{CallbackQuery, Message, Update, User},
};

const EXPIRED: Said = Said { text: "This button has expired", alert: false };
const ALREADY: Said = Said { text: "Already resolved", alert: false };
const NOT_ALLOWED: Said = Said { text: "You may not answer this one", alert: true };
const COUNTED: Said = Said { text: "Counted. More people have to allow it.", alert: false };
const NOT_AMONG: Said =
    Said { text: "Its rule names who has to allow it, and you are not among them. You can deny it.", alert: true };
const NOBODY: Said = Said {
    text: "Several people have to allow it, and it is not known whose account this is. You can deny it.",
    alert: true,
};
const NOT_RECORDED: Said =
    Said { text: "This could not be recorded, so nothing was decided. Try again in a while.", alert: true };
const HOW: Said = Said {
    text: "Reply to the card and write why. Your reply refuses it, and the agent reads the reason.",
    alert: true,
};
const WORDS: Said = Said { text: "Reply to the card and write what is to change.", alert: true };
const COMES: Said = Said { text: "The whole text follows", alert: false };
const TOO_MUCH: Said = Said { text: "Other texts are being sent. Try again in a while.", alert: false };

/// How often the end of a tap's wait is tried.
const TRIES: u32 = 3;
/// A poll that ends sooner with nothing is not repeated at once.
const TOO_SOON: Duration = Duration::from_millis(200);

/// The task that polls.
pub(super) struct Poll {
    shared: Arc<Shared>,
    source: CommandSource,
    /// Gates whose whole text somebody wants.
    orders: mpsc::Sender<GateId>,
    wait: Duration,
    saying: TaskTracker,
}

impl Poll {
    pub(super) fn new(
        shared: Arc<Shared>,
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
            () = self.poll() => {}
        }
        self.saying.close();
        self.saying.wait().await;
    }

    async fn poll(&self) {
        let bot = &self.shared.bot;
        let mut backoff = Backoff::default();
        let own = loop {
            match bot.username().await {
                Ok(own) => break own,
                Err(failure) => {
                    if !pause(&failure, &mut backoff).await {
                        return;
                    }
                }
            }
        };
        while let Err(failure) = bot.delete_webhook().await {
            if !pause(&failure, &mut backoff).await {
                return;
            }
        }
        let mut offset = 0;
        loop {
            let asked = Instant::now();
            match bot.updates(offset, self.wait).await {
                Ok(updates) => {
                    backoff = Backoff::default();
                    if updates.is_empty() && asked.elapsed() < TOO_SOON {
                        tokio::time::sleep(backoff.next()).await;
                    }
                    for update in updates {
                        let id = update.update_id;
                        match self.take(update, &own).await {
                            Flow::Next => offset = offset.max(id + 1),
                            Flow::Again => {
                                tokio::time::sleep(backoff.next()).await;
                                break;
                            }
                            Flow::Over => return,
                        }
                    }
                }
                Err(failure) => {
                    if !pause(&failure, &mut backoff).await {
                        return;
                    }
                }
            }
        }
    }

    async fn take(&self, update: Update, own: &str) -> Flow {
        match (update.callback_query, update.message) {
            (Some(query), _) => self.tapped(query).await,
            (None, Some(message)) => match self.reply(&message).await {
                Some(flow) => flow,
                None => self.spoken(message, own).await,
            },
            (None, None) => Flow::Next,
        }
    }

    /// Whether a user's word counts. Remembers the name, for people to read.
    fn may_answer(&self, user: &User) -> bool {
        let may = self.shared.allowed_users.contains(&user.id);
        if let Some(name) = user.username.as_ref().filter(|_| may) {
            self.shared.names.lock().insert(user.id, name.clone());
        }
        may
    }

    async fn tapped(&self, query: CallbackQuery) -> Flow {
        let is_elsewhere = query.message.as_ref().is_some_and(|message| !self.shared.is_ours(message.chat.id));
        if is_elsewhere || !self.may_answer(&query.from) {
            return Flow::Next;
        }
        let known = query.data.as_deref().and_then(|data| self.shared.refs.read(data));
        let Some(((gate, action), message)) = known.zip(query.message) else {
            self.say(query.id, EXPIRED);
            return Flow::Next;
        };
        // A card whose sending was not heard of again is known from here on. One that is known is not recorded twice.
        let place = Place { chat: message.chat.id, message: message.message_id };
        let shown = gate::Command::Shown { gate, surface: SURFACE.to_owned(), reference: place.to_string() };
        self.source.post_command(Command::Gate(shown)).await;
        let answer = match action {
            Action::Once => GateReply::Allow(ApprovalScope::Once),
            Action::Session => GateReply::Allow(ApprovalScope::Session),
            Action::Always => GateReply::Allow(ApprovalScope::Always),
            Action::Rule(at) => {
                let read = self.source.read_state(move |engine| {
                    engine.state().gate(gate).map(|gate| proposals(engine, gate)).unwrap_or_default()
                });
                let Some((rules, _)) = read.await else { return Flow::Again };
                // Where it does not wait any more nothing is proposed. No rule is never proposed, and the answer is told so.
                let pattern = rules.into_iter().nth(usize::from(at)).unwrap_or_default();
                GateReply::Grant(gate::GrantTerms { scope: ApprovalScope::Always, pattern: Some(pattern), lasts: None })
            }
            Action::Deny => GateReply::Deny { reason: None },
            Action::Choice(at) => {
                let Some((said, _)) = self.source.read_state(move |engine| choice(engine, gate, at)).await else {
                    return Flow::Again;
                };
                // Where it does not wait any more there is none, and the answer is told so.
                GateReply::Say(said)
            }
            Action::Reason | Action::Whole => {
                self.explained(query.id, gate, action).await;
                return Flow::Next;
            }
        };
        let key = format!("telegram:{}", query.id);
        match self.decide(gate, answer, principals::of_telegram(query.from.id), key).await {
            // A choice of a plan may want words.
            Some(EXPIRED) if matches!(action, Action::Choice(_)) && self.waits(gate).await => {
                self.say(query.id, WORDS);
                Flow::Next
            }
            Some(said) => {
                self.say(query.id, said);
                Flow::Next
            }
            None => Flow::Over,
        }
    }

    /// Whether a gate still waits.
    async fn waits(&self, gate: GateId) -> bool {
        let read = self.source.read_state(move |engine| engine.state().gate(gate).is_some_and(gate::Gate::is_pending));
        read.await.is_some_and(|(waits, _)| waits)
    }

    /// A tap that decides nothing.
    async fn explained(&self, query: String, gate: GateId, action: Action) {
        let read = self
            .source
            .read_of(At::Gate(gate), move |engine| engine.state().gate(gate).map(|gate| gate.resolution().cloned()));
        let said = match read.await {
            Some((Some(None), _)) if action == Action::Reason => HOW,
            Some((Some(None), _)) if self.orders.try_send(gate).is_ok() => COMES,
            Some((Some(None), _)) => TOO_MUCH,
            Some((Some(Some(GateResolution::Expired)) | None, _)) => EXPIRED,
            Some((Some(Some(_)), _)) => ALREADY,
            None => NOT_RECORDED,
        };
        self.say(query, said);
    }

    /// What a person wrote: a reply to a card that waits answers its question, or denies it, with the reply as its reason.
    /// `None` if it is no such reply.
    async fn reply(&self, message: &Message) -> Option<Flow> {
        let (from, to) = message.from.as_ref().zip(message.reply_to_message.as_ref())?;
        let text = message.text.clone().filter(|text| !text.trim().is_empty())?;
        if !self.shared.is_ours(message.chat.id) || !self.may_answer(from) {
            return None;
        }
        let place = Place { chat: message.chat.id, message: to.message_id }.to_string();
        let read = self.source.read_state(move |engine| {
            let shows = |gate: &&gate::Gate| {
                gate.shown_surfaces().iter().any(|showing| showing.surface == SURFACE && showing.reference == place)
            };
            let gate = engine.state().all_gates().find(shows)?;
            Some(gate.is_pending().then(|| (gate.id(), answer_in_words(engine, gate, &text))))
        });
        // Nothing can be read while nothing can be recorded. It comes again, until the owner has ended.
        let Some((found, _)) = read.await else { return Some(Flow::Again) };
        // What is said to a card that is over is for nobody.
        let Some((gate, answer)) = found? else { return Some(Flow::Next) };
        let key = format!("telegram:{}:{}", message.chat.id, message.message_id);
        Some(match self.decide(gate, answer, principals::of_telegram(from.id), key).await {
            Some(NOT_RECORDED) => Flow::Again,
            Some(_) => Flow::Next,
            None => Flow::Over,
        })
    }

    /// What a person has to say to an agent. In a group that is what names the bot, is a command, or replies to it.
    async fn spoken(&self, message: Message, own: &str) -> Flow {
        let Some(ear) = &self.shared.ear else { return Flow::Next };
        let (files, other) = (files::attached(&message), files::other(&message));
        let Some(from) = message.from else { return Flow::Next };
        let text = message.text.or(message.caption).unwrap_or_default();
        let chat_type = match message.chat.kind.as_deref() {
            Some("private") | None => ChatType::Private,
            Some("channel") => ChatType::Channel,
            Some(_) => ChatType::Group,
        };
        let named = format!("@{own}");
        let replied = message.reply_to_message.and_then(|to| to.from?.username);
        let is_meant = chat_type == ChatType::Private
            || text.starts_with('/')
            || text.to_lowercase().contains(&named.to_lowercase())
            || replied.is_some_and(|name| name.eq_ignore_ascii_case(own));
        let is_something = !text.trim().is_empty() || !files.is_empty() || other.is_some();
        if !is_meant || !is_something {
            return Flow::Next;
        }
        let Some(hear) = ear.listener().await else { return Flow::Over };
        let written = Written {
            chat: message.chat.id,
            chat_type,
            title: message.chat.title,
            message: message.message_id,
            from: from.id,
            name: from.first_name,
            username: from.username,
            text: command(&text, &named),
            files,
            other,
        };
        hear.hear(written).await
    }

    /// Gives an answer, and what whoever gave it is told; `None` if nothing is decided here any more.
    async fn decide(&self, gate: GateId, answer: GateReply, by: PrincipalId, key: String) -> Option<Said> {
        let answer = gate::Command::Answer { gate, answer, by, key: Some(key) };
        let refused = match self.source.send_command(Command::Gate(answer)).await {
            Ok(reply) if matches!(reply.outcome, EngineReply::Voted { .. }) => return Some(COUNTED),
            Ok(_) => return Some(Said::default()),
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
                tracing::warn!(%gate, %refused, "a tap could not be taken");
                NOT_RECORDED
            }
        })
    }

    /// Ends the wait of whoever tapped, beside everything else.
    fn say(&self, query: String, said: Said) {
        let bot = self.shared.bot.clone();
        self.saying.spawn(async move {
            let mut backoff = Backoff::default();
            for _ in 0..TRIES {
                match bot.answer(&query, &said).await {
                    Err(Failure::Wait(wait)) => tokio::time::sleep(wait).await,
                    Err(Failure::Unreachable(_)) => tokio::time::sleep(backoff.next()).await,
                    Ok(()) | Err(_) => return,
                }
            }
        });
    }
}

/// The label of a choice, as an answer; nothing where the gate does not wait or has not so many.
fn choice(engine: &Engine, gate: GateId, at: u8) -> Vec<String> {
    let request = GateRequest::at_hand(engine, gate);
    let choices = request.as_ref().and_then(GateRequest::question).map(|question| question.choices);
    choices.and_then(|choices| choices.get(usize::from(at))).map(|choice| choice.label.clone()).into_iter().collect()
}

/// What a reply to a card says: the answer to a question, in words or by the numbers of its choices, or why something is denied.
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

/// A text in which a command is called as it is everywhere: in groups Telegram puts the bot's name behind it.
fn command(text: &str, named: &str) -> String {
    let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    let is_named = word.starts_with('/') && word.to_lowercase().ends_with(&named.to_lowercase());
    match word.len().checked_sub(named.len()).filter(|at| is_named && word.is_char_boundary(*at)) {
        Some(at) => format!("{}{rest}", &word[..at]),
        None => text.to_owned(),
    }
}

/// Waits before the next attempt. False if there is no use in one.
async fn pause(failure: &Failure, backoff: &mut Backoff) -> bool {
    let wait = match failure {
        Failure::Token(_) => return false,
        Failure::Wait(wait) => *wait,
        Failure::Conflict(_)
        | Failure::Moved(_)
        | Failure::Harmless(_)
        | Failure::Refused(_)
        | Failure::Unreachable(_) => backoff.next(),
    };
    tokio::time::sleep(wait).await;
    true
}
