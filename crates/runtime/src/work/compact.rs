//! Summarises the messages that a compaction cuts off.

mod summary_request;

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    engine::Command,
    id::{EntryId, Lsn, SessionId},
    ledger::BudgetAmount,
    message::{MessageBlock, StoredMessage, SummaryMessage, estimate_tokens},
    session::{Command as SessionCommand, CompactionOutcome, ContextPiece, ModelRef, RetryPolicy, Session},
    time::Millis,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::summary_request::{SpendTracker, SummaryError, request_with_retries};
use super::{
    MemoryRequest, ResolvedModel, RunEnvironment,
    conversation::{self, OutlineEntry},
    wait::Stopwatch,
};
use crate::{deliver::ContentCache, message_content::encode_message, metrics::RuntimeMetrics};

/// The member of a summary that holds the data of extensions and providers in addition to its text, by their names.
const PRESERVED: &str = "preserveData";

/// The members of [`PRESERVED`] that hold a conversation in place of the text: the history of a provider that has compacted it
/// itself, or an archive of pictures. They stand for that conversation and for no later one.
const CONVERSATION_DATA: [&str; 3] = ["openaiRemoteCompaction", "anthropicCompaction", "snapcompact"];

/// Returns the data that the next summary keeps from the last one.
fn kept_data(previous: &SummaryMessage) -> Option<Value> {
    let mut kept = previous.extra.get(PRESERVED)?.as_object()?.clone();
    kept.retain(|name, _| !CONVERSATION_DATA.contains(&name.as_str()));
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// Input of a summary.
pub(super) struct CompactWork {
    session: SessionId,
    epoch: u32,
    model: Option<ModelRef>,
    previous: Option<Lsn>,
    history: Vec<OutlineEntry>,
    turn: Vec<OutlineEntry>,
    instructions: Lsn,
    first_kept: EntryId,
    tokens_before: u64,
    retry: RetryPolicy,
    time: Stopwatch,
    meters: Arc<RuntimeMetrics>,
}

impl CompactWork {
    pub(super) fn for_session(session: &Session, epoch: u32, now: Millis, meters: Arc<RuntimeMetrics>) -> Option<Self> {
        let compaction = session.active_compaction().filter(|compaction| compaction.epoch == epoch)?;
        let context = session.model_context();
        let path = session.path_entries();
        let places: BTreeMap<_, _> = path.iter().enumerate().map(|(at, entry)| (&entry.id, at)).collect();
        let place = |id: &EntryId| places.get(id).copied();
        let kept = place(&compaction.first_kept)?;
        let split = compaction.split_from.as_ref().and_then(place).filter(|split| *split < kept).unwrap_or(kept);
        let mut previous = None;
        let (mut history, mut turn) = (Vec::new(), Vec::new());
        let outline = conversation::session_outline(session);
        for (piece, outline) in context.iter().zip(outline) {
            match piece {
                ContextPiece::Summary(entry) => previous = Some(entry.content),
                ContextPiece::Entry(entry) => match place(&entry.id) {
                    Some(at) if at < split => history.push(outline),
                    Some(at) if at < kept => turn.push(outline),
                    _ => {}
                },
            }
        }
        Some(Self {
            session: session.id().clone(),
            epoch,
            model: session.settings().model.clone(),
            previous,
            history,
            turn,
            instructions: compaction.instructions,
            first_kept: compaction.first_kept.clone(),
            tokens_before: compaction.tokens_before,
            retry: session.settings().retry,
            time: Stopwatch::start_at(now),
            meters,
        })
    }

    pub(super) async fn run_compaction(
        self,
        host: &dyn RunEnvironment,
        contents: &ContentCache,
        cancel: CancellationToken,
    ) -> Command {
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => CompactionOutcome::Aborted,
            outcome = self.summarise(host, contents) => outcome.unwrap_or_else(|message| CompactionOutcome::Failed { message: message.into() }),
        };
        Command::Session(self.session.clone(), SessionCommand::Compacted { epoch: self.epoch, outcome })
    }

    async fn summarise(&self, host: &dyn RunEnvironment, contents: &ContentCache) -> Result<CompactionOutcome, String> {
        let model = self.model.as_ref().ok_or_else(|| "No model selected".to_owned())?;
        let chosen = host.resolve_model(model)?;
        let read = |error: countersign_store::LogReadError| format!("the conversation cannot be read: {error}");
        let history = conversation::read_messages(&self.history, contents).await.map_err(read)?;
        let turn = conversation::read_messages(&self.turn, contents).await.map_err(read)?;
        let lsns: Vec<Lsn> = self.previous.into_iter().chain([self.instructions]).collect();
        let mut texts = contents.get(&lsns).await.map_err(read)?;
        let instructions = texts.pop().flatten();
        let previous = texts.pop().flatten().and_then(|text| match serde_json::from_str(&text) {
            Ok(StoredMessage::CompactionSummary(summary)) => Some(summary),
            _ => None,
        });
        let kept = previous.as_ref().and_then(kept_data);
        let summaries =
            host.summary_prompts().build_requests(&history, &turn, previous.as_ref(), instructions.as_deref());
        let generator = SummaryGenerator {
            chosen: &chosen,
            host,
            instructions: instructions.as_deref(),
            retry: self.retry,
            time: self.time,
        };
        let history_parts = split_parts(&history, model.context_window, &|message| generator.request_tokens(message));
        let turn_parts = split_parts(&turn, model.context_window, &|message| generator.request_tokens(message));
        let memories = to_remember(&history_parts, &turn, host);
        let mut spent = SpendTracker { amount: Some(BudgetAmount::default()), meters: &self.meters };
        let history = match &summaries.history {
            Some(_) => generator.sum_up(SummaryTarget::History, &history_parts, previous, &mut spent).await?,
            None => previous.map(|previous| previous.summary).unwrap_or_default(),
        };
        let turn = match &summaries.turn {
            Some(_) => Some(generator.sum_up(SummaryTarget::Turn, &turn_parts, None, &mut spent).await?),
            None => None,
        };
        let summary = host.summary_prompts().join_summaries(&history, turn.as_deref(), &summaries.details);
        let mut message = SummaryMessage {
            short_summary: first_line(&history).or_else(|| first_line(turn.as_deref()?)),
            summary,
            tokens_before: Some(self.tokens_before),
            ..SummaryMessage::default()
        };
        message.extra.insert("details".to_owned(), summaries.details);
        message.extra.extend(kept.map(|kept| (PRESERVED.to_owned(), kept)));
        let mut noted = Vec::new();
        for memory_request in &memories {
            // Messages that are not remembered are still in the archive.
            match generator.request_summary(&memory_request.system, &memory_request.request, &mut spent).await {
                Ok(text) => noted.push(text),
                Err(error) => tracing::warn!(session = %self.session, %error, "cannot write memory notes"),
            }
        }
        if !noted.is_empty() {
            host.save_memories(&self.first_kept, join_notes(&noted)).await;
        }
        host.put_away(&self.session, &self.first_kept).await?;
        Ok(CompactionOutcome::Done {
            summary: encode_message(&StoredMessage::CompactionSummary(message)),
            spent: spent.amount,
        })
    }
}

/// Messages to summarise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SummaryTarget {
    /// Earlier messages: each part with the summary of those before it.
    History,
    /// The beginning of a turn that is cut in two: each part for itself.
    Turn,
}

/// Asks a model for summaries.
struct SummaryGenerator<'a> {
    chosen: &'a ResolvedModel,
    host: &'a dyn RunEnvironment,
    instructions: Option<&'a str>,
    retry: RetryPolicy,
    time: Stopwatch,
}

impl SummaryGenerator<'_> {
    /// Estimates the tokens of a message in a request for a summary.
    fn request_tokens(&self, message: &StoredMessage) -> u64 {
        estimate_tokens(self.host.summary_prompts().request_size(message))
    }

    /// Sums up part by part. A part too long for the model is halved, and of a single message that is too long, beginning and end
    /// are sent. A part that a model will not sum up is left out and named, unless that is all of it: its text is in the
    /// archive.
    async fn sum_up(
        &self,
        of: SummaryTarget,
        parts: &[&[StoredMessage]],
        mut previous: Option<SummaryMessage>,
        spent: &mut SpendTracker<'_>,
    ) -> Result<String, String> {
        let mut left: VecDeque<Cow<'_, [StoredMessage]>> = parts.iter().map(|part| Cow::Borrowed(*part)).collect();
        let (mut written, mut left_out, mut refused) = (Vec::new(), String::new(), None);
        let most = self.chosen.entry.context_window / 2;
        while let Some(part) = left.pop_front() {
            let part = match &*part {
                [message] if self.request_tokens(message) > most => Cow::Owned(vec![shorten_message(message, most)]),
                _ => part,
            };
            let (history, turn) = match of {
                SummaryTarget::History => (&*part, &[][..]),
                SummaryTarget::Turn => (&[][..], &*part),
            };
            let requests =
                self.host.summary_prompts().build_requests(history, turn, previous.as_ref(), self.instructions);
            let Some(request) = requests.history.or(requests.turn) else { continue };
            let unsaid = match self.request_summary(&requests.system, &request, spent).await {
                Ok(summary) => {
                    if of == SummaryTarget::History {
                        previous = Some(SummaryMessage { summary: summary.clone(), ..SummaryMessage::default() });
                        written.clear();
                    }
                    written.push(summary);
                    continue;
                }
                Err(unsaid) => unsaid,
            };
            // A provider that is away will be there again, and then everything is summed up.
            if unsaid.may_pass {
                return Err(unsaid.message);
            }
            if unsaid.is_too_long
                && let Some(smaller) = self.split_smaller(&part)
            {
                smaller.into_iter().rev().for_each(|part| left.push_front(Cow::Owned(part)));
                continue;
            }
            if unsaid.is_too_long && written.is_empty() && self.is_short(&part) {
                // A short part is too long, too: its length is not the problem, and no other part would be taken.
                return Err(unsaid.message);
            }
            let why = short_line(&unsaid.message);
            left_out.push_str(&match part.len() {
                1 => format!("\n\n[A message could not be summed up: {why}]"),
                count => format!("\n\n[{count} messages could not be summed up: {why}]"),
            });
            refused = Some(unsaid.message);
        }
        match refused.filter(|_| written.is_empty()) {
            Some(why) => Err(why),
            None if written.is_empty() => Ok(previous.map(|previous| previous.summary).unwrap_or_default()),
            None => Ok(written.join("\n\n") + &left_out),
        }
    }

    /// Reports whether the length of a part cannot be why a model does not take it.
    fn is_short(&self, part: &[StoredMessage]) -> bool {
        part.iter().map(|message| self.request_tokens(message)).sum::<u64>() < self.chosen.entry.context_window / 16
    }

    /// Returns the requests in the place of a part that was too long; none if nothing shorter can be made of it, or it is so
    /// short that its length cannot be the problem.
    fn split_smaller(&self, part: &[StoredMessage]) -> Option<Vec<Vec<StoredMessage>>> {
        let all: u64 = part.iter().map(|message| self.request_tokens(message)).sum();
        if self.is_short(part) {
            return None;
        }
        if let [message] = part {
            let shorter = shorten_message(message, all / 2);
            return (self.request_tokens(&shorter) < all).then(|| vec![vec![shorter]]);
        }
        let (one, other) = part.split_at(part.len() / 2);
        (!one.is_empty()).then(|| vec![one.to_vec(), other.to_vec()])
    }

    /// Requests one text, again if that may help. The text that replaces a part of the conversation is not empty, and is complete.
    async fn request_summary(
        &self,
        system: &str,
        request: &str,
        spent: &mut SpendTracker<'_>,
    ) -> Result<String, SummaryError> {
        request_with_retries(
            self.chosen,
            (system, request),
            self.retry,
            self.host.silence_timeout(),
            Some(self.time),
            spent,
        )
        .await
    }
}

/// Shortens a message to about `most` tokens: of each of its texts that is longer than its share, beginning and end.
fn shorten_message(message: &StoredMessage, most: u64) -> StoredMessage {
    let mut message = message.clone();
    let mut texts: Vec<&mut String> = match &mut message {
        StoredMessage::User(user) | StoredMessage::Developer(user) => block_texts(&mut user.content),
        StoredMessage::Assistant(answer) => block_texts(&mut answer.content),
        StoredMessage::ToolResult(result) => block_texts(&mut result.content),
        StoredMessage::Custom(custom) => block_texts(&mut custom.content),
        StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => vec![&mut summary.summary],
        StoredMessage::BashExecution(_) | StoredMessage::FileMention(_) => Vec::new(),
    };
    let share = usize::try_from(most * 4).unwrap_or(usize::MAX) / texts.len().max(1);
    for text in texts.iter_mut().filter(|text| text.len() > share) {
        let half = share / 2;
        let (head, tail) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
        **text = format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..]);
    }
    drop(texts);
    message
}

fn block_texts(blocks: &mut [MessageBlock]) -> Vec<&mut String> {
    let mut texts = Vec::new();
    for block in blocks {
        match block {
            MessageBlock::Text(text) => texts.push(&mut text.text),
            MessageBlock::Thinking(thinking) => texts.push(&mut thinking.thinking),
            MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) | MessageBlock::ToolCall(_) => {}
        }
    }
    texts
}

/// Returns the first line of a summary that is no heading.
fn first_line(summary: &str) -> Option<String> {
    summary.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).map(short_line)
}

/// Returns the requests for memories of messages before they are summed up, as many as that takes.
fn to_remember(parts: &[&[StoredMessage]], turn: &[StoredMessage], host: &dyn RunEnvironment) -> Vec<MemoryRequest> {
    if let [history] = parts {
        return host.memory_request(history, turn).into_iter().collect();
    }
    let turn = (!turn.is_empty()).then_some(turn);
    parts.iter().copied().chain(turn).filter_map(|part| host.memory_request(part, &[])).collect()
}

fn join_notes(noted: &[String]) -> String {
    noted.iter().map(|text| text.trim()).collect::<Vec<_>>().join("\n")
}

/// Requests notes about a whole conversation from a model, part by part if it is too long for one request.
/// Its usage is added to `meters`.
///
/// # Errors
/// The reason why it wrote nothing, if it did not write about any part.
pub async fn note_down(
    chosen: &ResolvedModel,
    messages: &[StoredMessage],
    request: impl Fn(&[StoredMessage]) -> MemoryRequest + Send,
    retry: RetryPolicy,
    silence: Duration,
    meters: &RuntimeMetrics,
) -> Result<String, String> {
    let mut spent = SpendTracker { amount: None, meters };
    let (mut noted, mut refused) = (Vec::new(), None);
    let tokens = |message: &StoredMessage| encode_message(message).tokens;
    for part in split_parts(messages, chosen.entry.context_window, &tokens) {
        let MemoryRequest { system, request } = request(part);
        match request_with_retries(chosen, (&system, &request), retry, silence, None, &mut spent).await {
            Ok(text) => noted.push(text),
            Err(unsaid) => refused = Some(unsaid.message),
        }
    }
    match refused.filter(|_| noted.is_empty()) {
        Some(why) => Err(why),
        None => Ok(join_notes(&noted)),
    }
}

/// Returns the parts in which messages are summed up, in order: all at once, unless that is more than fits into a request. Then
/// each has at most a quarter of it, or one message.
fn split_parts<'a>(
    messages: &'a [StoredMessage],
    window: u64,
    tokens: &dyn Fn(&StoredMessage) -> u64,
) -> Vec<&'a [StoredMessage]> {
    if messages.iter().map(tokens).sum::<u64>() <= window / 10 * 9 {
        return vec![messages];
    }
    let (mut parts, mut from, mut length) = (Vec::new(), 0, 0);
    for (at, message) in messages.iter().enumerate() {
        let tokens = tokens(message);
        if at > from && length + tokens > window / 4 {
            parts.push(&messages[from..at]);
            (from, length) = (at, 0);
        }
        length += tokens;
    }
    parts.push(&messages[from..]);
    parts
}

fn short_line(line: &str) -> String {
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use countersign_core::message::{
        ImageBlock, InputMessage, MessageBlock, StoredMessage, SummaryMessage, estimate_tokens,
    };
    use serde_json::{Value, json};

    use super::{kept_data, shorten_message, split_parts};

    fn user_message(words: usize) -> StoredMessage {
        StoredMessage::User(InputMessage {
            content: vec![MessageBlock::from_text("word ".repeat(words))],
            ..InputMessage::default()
        })
    }

    #[test]
    fn what_a_summary_keeps_goes_on_into_the_next_but_for_what_stood_for_its_conversation() {
        let of_openai = json!({ "provider": "openai", "replacementHistory": [], "compactionItem": {} });
        let of_anthropic = json!({ "provider": "anthropic", "content": "in short", "encryptedContent": "x" });
        let archive = json!({ "frames": [], "totalChars": 4, "textHead": "long" });
        for (given, want) in [
            (json!({ "notes": [1], "openaiRemoteCompaction": of_openai }), Some(json!({ "notes": [1] }))),
            (json!({ "openaiRemoteCompaction": of_openai }), None),
            (json!({ "anthropicCompaction": of_anthropic, "notes": [1] }), Some(json!({ "notes": [1] }))),
            (json!({ "snapcompact": archive, "notes": [1] }), Some(json!({ "notes": [1] }))),
            (
                json!({ "snapcompact": archive, "anthropicCompaction": of_anthropic, "openaiRemoteCompaction": of_openai }),
                None,
            ),
            (json!({ "b": 1, "snapcompact": null, "a": 2 }), Some(json!({ "b": 1, "a": 2 }))),
            (json!({}), None),
            (Value::Null, None),
        ] {
            let extra = [("preserveData".to_owned(), given.clone())].into();
            assert_eq!(kept_data(&SummaryMessage { extra, ..SummaryMessage::default() }), want, "{given}");
        }
        assert_eq!(kept_data(&SummaryMessage::default()), None);
    }

    #[test]
    fn what_is_too_long_for_one_request_is_summed_up_in_parts() {
        let tokens =
            |message: &StoredMessage| serde_json::to_string(message).map_or(0, |text| estimate_tokens(text.len()));
        let sizes = |messages: &[StoredMessage], window| {
            split_parts(messages, window, &tokens).iter().map(|part| part.len()).collect::<Vec<_>>()
        };
        let all: Vec<StoredMessage> = (0..12).map(|_| user_message(116)).collect();
        assert_eq!(sizes(&all, 100_000), [12], "it fits");
        assert_eq!(sizes(&all, 1_700), [2; 6], "a quarter each");
        assert_eq!(sizes(&all, 400), [1; 12], "none is cut");
        let huge = [user_message(10), user_message(5_000), user_message(10)];
        assert_eq!(sizes(&huge, 2_000), [1, 1, 1], "a huge one stands alone");
        assert_eq!(sizes(&[], 10), [0]);
    }

    #[test]
    fn a_message_that_is_too_long_keeps_its_beginning_and_end() {
        let image = MessageBlock::Image(ImageBlock { data: "x".repeat(10_000), mime_type: "image/png".to_owned() });
        let long = format!("begins \u{e4}{} \u{fc} ends", "\u{f6}".repeat(9_001));
        let message = StoredMessage::User(InputMessage {
            content: vec![MessageBlock::from_text(long), image.clone()],
            ..InputMessage::default()
        });
        let StoredMessage::User(user) = shorten_message(&message, 100) else { panic!("it is still one of a person") };
        let text = user.content[0].as_text().unwrap();
        assert!(text.starts_with("begins \u{e4}") && text.ends_with(" \u{fc} ends") && text.len() < 500, "{text}");
        assert_eq!(user.content[1], image, "nobody is told of its bytes");
        assert_eq!(shorten_message(&message, 10_000), message);
    }
}
