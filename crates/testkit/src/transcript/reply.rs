//! Parses lines of a transcript as replies of the scripted model.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use countersign_models::{
    FailureKind, FinishReason, MessagePart, ModelEvent, ModelFailure, ModelUsage, PartKind,
    scripted::{ReplyStep, ScriptedReply},
};
use serde_json::Value;
use tokio::sync::Notify;

/// Parser of replies; it numbers their calls and remembers their pauses across them.
#[derive(Default)]
pub(super) struct ScriptedReplies {
    calls: usize,
    pauses: VecDeque<Arc<Notify>>,
}

impl ScriptedReplies {
    /// Ends the first pause that was not ended yet. Returns false if there is none.
    pub(super) fn go_on(&mut self) -> bool {
        let pause = self.pauses.pop_front();
        pause.inspect(|pause| pause.notify_one()).is_some()
    }

    /// Parses the reply that `text` describes: the part after `model`.
    pub(super) fn parse_reply(&mut self, text: &str) -> Result<ScriptedReply, String> {
        let mut words = WordReader(text.trim());
        let mut made = ReplyBuilder {
            reply: ScriptedReply::new(),
            parts: 0,
            is_untouched: true,
            is_called: false,
            is_short: false,
            is_over: false,
        };
        loop {
            let verb = words.next_word();
            if made.is_over {
                return Err(format!("no clause may follow here: {verb}"));
            }
            self.parse_clause(verb, &mut words, &mut made)?;
            match words.next_word() {
                "" => break,
                "and" => {}
                other => return Err(format!("expected \"and\" or the end of the line, got {other:?}")),
            }
        }
        let ReplyBuilder { reply, is_called, is_short, is_over, .. } = made;
        let stop = match (is_called, is_short) {
            (_, true) => FinishReason::Length,
            (true, false) => FinishReason::ToolUse,
            (false, false) => FinishReason::Stop,
        };
        Ok(if is_over { reply } else { reply.end_with(stop) })
    }

    fn parse_clause(&mut self, verb: &str, words: &mut WordReader<'_>, made: &mut ReplyBuilder) -> Result<(), String> {
        match verb {
            "says" => self.parse_text(words, made, PartKind::Text, |text| MessagePart::Text { text, signature: None }),
            "thinks" => {
                self.parse_text(words, made, PartKind::Thinking, |text| MessagePart::Thinking { text, signature: None })
            }
            "wants" => {
                let name = words.next_word().to_owned();
                let arguments = match words.next_value()? {
                    // Arguments as they are on the wire, which need not be JSON.
                    Value::String(raw) => raw,
                    value => value.to_string(),
                };
                self.calls += 1;
                let id = format!("call-{}", self.calls);
                made.is_called = true;
                let kind = PartKind::ToolCall { id: id.clone(), name: name.clone() };
                let characters: Vec<char> = arguments.chars().collect();
                let pieces = characters
                    .chunks(7)
                    .map(|piece| ReplyStep::Say(made.delta_event(piece.iter().collect())))
                    .collect();
                made.add_part(kind, pieces, MessagePart::ToolCall { id, name, arguments, signature: None });
                Ok(())
            }
            "pauses" => {
                made.add_step(self.new_pause());
                Ok(())
            }
            "hangs" => {
                made.add_step(ReplyStep::Hang);
                made.is_over = true;
                Ok(())
            }
            "breaks" => {
                made.is_over = true;
                if words.next_word() == "off" { Ok(()) } else { Err("expected \"breaks off\"".to_owned()) }
            }
            "stops" => {
                made.is_short = true;
                if words.next_word() == "short" { Ok(()) } else { Err("expected \"stops short\"".to_owned()) }
            }
            "used" => {
                let (input, output) = (words.next_count()?, words.next_count()?);
                made.reply =
                    std::mem::take(&mut made.reply).with_usage(ModelUsage { input, output, ..ModelUsage::default() });
                Ok(())
            }
            "fails" => {
                let kind = failure_kind(words.next_word())?;
                let message = words.next_text()?;
                let retry_after = (words.0.starts_with("after")).then(|| words.next_word()).map(|_| words.next_count());
                let retry_after = retry_after.transpose()?.map(Duration::from_secs);
                let failure = ModelFailure { retry_after, ..ModelFailure::new(kind, message) };
                // A reply that failed before its first part never began.
                made.reply = if made.is_untouched {
                    ScriptedReply::from_failure(failure)
                } else {
                    std::mem::take(&mut made.reply).add_step(ReplyStep::Fail(failure))
                };
                made.is_over = true;
                Ok(())
            }
            other => Err(format!("unknown verb of the model: {other:?}")),
        }
    }

    /// Parses pieces of text, and pauses between them. One at the end keeps the part open; a hang does so without end.
    fn parse_text(
        &mut self,
        words: &mut WordReader<'_>,
        made: &mut ReplyBuilder,
        kind: PartKind,
        part: impl FnOnce(String) -> MessagePart,
    ) -> Result<(), String> {
        let (mut steps, mut whole) = (Vec::new(), String::new());
        loop {
            if words.0.starts_with('"') {
                let piece = words.next_text()?;
                whole.push_str(&piece);
                steps.push(ReplyStep::Say(made.delta_event(piece)));
                continue;
            }
            match words.0.split_whitespace().next() {
                Some("pause") => steps.push(self.new_pause()),
                Some("hang") => {
                    steps.push(ReplyStep::Hang);
                    made.is_over = true;
                }
                _ => break,
            }
            words.next_word();
        }
        made.add_part(kind, steps, part(whole));
        Ok(())
    }

    fn new_pause(&mut self) -> ReplyStep {
        let pause = Arc::new(Notify::new());
        self.pauses.push_back(Arc::clone(&pause));
        ReplyStep::Wait(pause)
    }
}

fn failure_kind(word: &str) -> Result<FailureKind, String> {
    Ok(match word {
        "overloaded" => FailureKind::Overloaded,
        "overflow" => FailureKind::Overflow,
        "refused" => FailureKind::Refused,
        "limited" => FailureKind::RateLimit,
        "broken" => FailureKind::Broken,
        other => return Err(format!("unknown kind of failure: {other:?}")),
    })
}

/// Reply that is being built.
struct ReplyBuilder {
    reply: ScriptedReply,
    parts: usize,
    is_untouched: bool,
    is_called: bool,
    is_short: bool,
    is_over: bool,
}

impl ReplyBuilder {
    fn add_step(&mut self, step: ReplyStep) {
        self.is_untouched = false;
        self.reply = std::mem::take(&mut self.reply).add_step(step);
    }

    const fn delta_event(&self, text: String) -> ModelEvent {
        ModelEvent::Delta { index: self.parts, text }
    }

    fn add_part(&mut self, kind: PartKind, steps: Vec<ReplyStep>, part: MessagePart) {
        let index = self.parts;
        self.add_step(ReplyStep::Say(ModelEvent::PartStart { index, kind }));
        for step in steps {
            self.add_step(step);
        }
        self.add_step(ReplyStep::Say(ModelEvent::PartEnd { index, part }));
        self.parts += 1;
    }
}

/// Rest of a line.
struct WordReader<'a>(&'a str);

impl<'a> WordReader<'a> {
    fn next_word(&mut self) -> &'a str {
        let end = self.0.find(char::is_whitespace).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        word
    }

    fn next_count(&mut self) -> Result<u64, String> {
        let word = self.next_word();
        word.trim_end_matches('s').parse().map_err(|_| format!("{word:?} is not a number"))
    }

    fn next_value(&mut self) -> Result<Value, String> {
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter::<Value>();
        let value = values.next().ok_or("a JSON value is missing")?.map_err(|error| format!("{}: {error}", self.0))?;
        self.0 = self.0[values.byte_offset()..].trim_start();
        Ok(value)
    }

    fn next_text(&mut self) -> Result<String, String> {
        match self.next_value()? {
            Value::String(text) => Ok(text),
            other => Err(format!("expected a text, got {other}")),
        }
    }
}
