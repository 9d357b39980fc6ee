//! What the model says, from a line of a transcript to a reply of the scripted model.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use countersign_models::{
    FailureKind, FinishReason, MessagePart, ModelEvent, ModelFailure, ModelUsage, PartKind,
    scripted::{ReplyStep, ScriptedReply},
};
use serde_json::Value;
use tokio::sync::Notify;

/// Reads replies; it numbers their calls and remembers their pauses across them.
#[derive(Default)]
pub(super) struct Replies {
    calls: usize,
    pauses: VecDeque<Arc<Notify>>,
}

impl Replies {
    /// Ends the first pause that was not ended yet. False if there is none.
    pub(super) fn go_on(&mut self) -> bool {
        let pause = self.pauses.pop_front();
        pause.inspect(|pause| pause.notify_one()).is_some()
    }

    /// The reply that `text` describes: what stands behind `model`.
    pub(super) fn read(&mut self, text: &str) -> Result<ScriptedReply, String> {
        let mut words = Words(text.trim());
        let mut made = Making {
            reply: ScriptedReply::new(),
            parts: 0,
            is_untouched: true,
            is_called: false,
            is_short: false,
            is_over: false,
        };
        loop {
            let verb = words.word();
            if made.is_over {
                return Err(format!("nothing can follow: {verb}"));
            }
            self.clause(verb, &mut words, &mut made)?;
            match words.word() {
                "" => break,
                "and" => {}
                other => return Err(format!("{other:?} where \"and\" or the end should be")),
            }
        }
        let Making { reply, is_called, is_short, is_over, .. } = made;
        let stop = match (is_called, is_short) {
            (_, true) => FinishReason::Length,
            (true, false) => FinishReason::ToolUse,
            (false, false) => FinishReason::Stop,
        };
        Ok(if is_over { reply } else { reply.end_with(stop) })
    }

    fn clause(&mut self, verb: &str, words: &mut Words<'_>, made: &mut Making) -> Result<(), String> {
        match verb {
            "says" => self.text(words, made, PartKind::Text, |text| MessagePart::Text { text, signature: None }),
            "thinks" => {
                self.text(words, made, PartKind::Thinking, |text| MessagePart::Thinking { text, signature: None })
            }
            "wants" => {
                let name = words.word().to_owned();
                let arguments = match words.value()? {
                    // Arguments as they are on the wire, which need not be JSON.
                    Value::String(raw) => raw,
                    value => value.to_string(),
                };
                self.calls += 1;
                let id = format!("call-{}", self.calls);
                made.is_called = true;
                let kind = PartKind::ToolCall { id: id.clone(), name: name.clone() };
                let characters: Vec<char> = arguments.chars().collect();
                let pieces =
                    characters.chunks(7).map(|piece| ReplyStep::Say(made.delta(piece.iter().collect()))).collect();
                made.part(kind, pieces, MessagePart::ToolCall { id, name, arguments, signature: None });
                Ok(())
            }
            "pauses" => {
                made.step(self.pause());
                Ok(())
            }
            "hangs" => {
                made.step(ReplyStep::Hang);
                made.is_over = true;
                Ok(())
            }
            "breaks" => {
                made.is_over = true;
                if words.word() == "off" { Ok(()) } else { Err("breaks off".to_owned()) }
            }
            "stops" => {
                made.is_short = true;
                if words.word() == "short" { Ok(()) } else { Err("stops short".to_owned()) }
            }
            "used" => {
                let (input, output) = (words.count()?, words.count()?);
                made.reply =
                    std::mem::take(&mut made.reply).with_usage(ModelUsage { input, output, ..ModelUsage::default() });
                Ok(())
            }
            "fails" => {
                let kind = kind(words.word())?;
                let message = words.text()?;
                let retry_after = (words.0.starts_with("after")).then(|| words.word()).map(|_| words.count());
                let retry_after = retry_after.transpose()?.map(Duration::from_secs);
                let failure = ModelFailure { retry_after, ..ModelFailure::new(kind, message) };
                // What failed before it said anything never began.
                made.reply = if made.is_untouched {
                    ScriptedReply::from_failure(failure)
                } else {
                    std::mem::take(&mut made.reply).add_step(ReplyStep::Fail(failure))
                };
                made.is_over = true;
                Ok(())
            }
            other => Err(format!("the model cannot {other:?}")),
        }
    }

    /// Pieces of text, and pauses between them. One at the end keeps the part open; a hang does so for good.
    fn text(
        &mut self,
        words: &mut Words<'_>,
        made: &mut Making,
        kind: PartKind,
        part: impl FnOnce(String) -> MessagePart,
    ) -> Result<(), String> {
        let (mut steps, mut whole) = (Vec::new(), String::new());
        loop {
            if words.0.starts_with('"') {
                let piece = words.text()?;
                whole.push_str(&piece);
                steps.push(ReplyStep::Say(made.delta(piece)));
                continue;
            }
            match words.0.split_whitespace().next() {
                Some("pause") => steps.push(self.pause()),
                Some("hang") => {
                    steps.push(ReplyStep::Hang);
                    made.is_over = true;
                }
                _ => break,
            }
            words.word();
        }
        made.part(kind, steps, part(whole));
        Ok(())
    }

    fn pause(&mut self) -> ReplyStep {
        let pause = Arc::new(Notify::new());
        self.pauses.push_back(Arc::clone(&pause));
        ReplyStep::Wait(pause)
    }
}

fn kind(word: &str) -> Result<FailureKind, String> {
    Ok(match word {
        "overloaded" => FailureKind::Overloaded,
        "overflow" => FailureKind::Overflow,
        "refused" => FailureKind::Refused,
        "limited" => FailureKind::RateLimit,
        "broken" => FailureKind::Broken,
        other => return Err(format!("{other:?} is no kind of failure")),
    })
}

/// A reply that is being made.
struct Making {
    reply: ScriptedReply,
    parts: usize,
    is_untouched: bool,
    is_called: bool,
    is_short: bool,
    is_over: bool,
}

impl Making {
    fn step(&mut self, step: ReplyStep) {
        self.is_untouched = false;
        self.reply = std::mem::take(&mut self.reply).add_step(step);
    }

    const fn delta(&self, text: String) -> ModelEvent {
        ModelEvent::Delta { index: self.parts, text }
    }

    fn part(&mut self, kind: PartKind, steps: Vec<ReplyStep>, part: MessagePart) {
        let index = self.parts;
        self.step(ReplyStep::Say(ModelEvent::PartStart { index, kind }));
        for step in steps {
            self.step(step);
        }
        self.step(ReplyStep::Say(ModelEvent::PartEnd { index, part }));
        self.parts += 1;
    }
}

/// What is left of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn word(&mut self) -> &'a str {
        let end = self.0.find(char::is_whitespace).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        word
    }

    fn count(&mut self) -> Result<u64, String> {
        let word = self.word();
        word.trim_end_matches('s').parse().map_err(|_| format!("{word:?} is no number"))
    }

    fn value(&mut self) -> Result<Value, String> {
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter::<Value>();
        let value = values.next().ok_or("a JSON value is missing")?.map_err(|error| format!("{}: {error}", self.0))?;
        self.0 = self.0[values.byte_offset()..].trim_start();
        Ok(value)
    }

    fn text(&mut self) -> Result<String, String> {
        match self.value()? {
            Value::String(text) => Ok(text),
            other => Err(format!("{other} where a text should be")),
        }
    }
}
