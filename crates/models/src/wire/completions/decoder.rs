//! Reads the stream of Chat Completions. Its end is a `finish_reason`, or `[DONE]` where a server gives none; what was
//! used may follow the reason.

use serde_json::{Map, Value};

use super::{
    content,
    frame::{Choice, Chunk, Content, ContentPart, Delta, Function, ToolCall, usage},
    given,
};
use crate::{
    Event, Failure, FailureKind, PartKind, Stop, Usage,
    failure::{Ending, ending, in_stream, known_ending},
    wire::{
        Decode, Progress, cut_call, is_same_json,
        kept::{Kept, Late},
        misplaced,
        parts::Parts,
        read, unfinished,
        unplaced::{Rule, check_placed, unplaced},
        unread,
    },
};

#[derive(Default)]
pub(crate) struct Decoder {
    parts: Parts,
    response: Option<String>,
    /// The part that text or thinking goes to.
    prose: Option<(Prose, usize)>,
    calls: Vec<Call>,
    finish: Option<String>,
    /// The reason in the words of the provider behind a gateway.
    native: Option<String>,
    usage: Option<Usage>,
    /// How many chunks came.
    chunks: u64,
    /// All text so far, for servers that repeat it at the end.
    text: String,
    /// All thinking so far, for the same.
    thoughts: String,
    /// The part of the content that is open, if that is a thought.
    thought: Kept,
    /// Whether the provider ran tools itself, for which an answer may end too.
    ran_tools: bool,
}

/// Members of a chunk that are read.
const EVENT: [&str; 8] = ["id", "object", "choices", "usage", "error", "text", "content", "output_text"];

#[derive(Clone, Copy, PartialEq)]
enum Prose {
    Text,
    /// With the name of the member in which it comes.
    Thinking(&'static str),
    /// Thinking that is a part of the content.
    Part,
}

/// A call by the wire's index. Servers that give none tell calls apart by their ids.
struct Call {
    at: Option<u64>,
    id: Option<String>,
    name: String,
    /// The id with which it is told.
    told: String,
    part: usize,
    /// What came with it that is not read.
    kept: Kept,
    /// What its part is signed with.
    given: Option<String>,
    /// The arguments so far.
    arguments: String,
    /// The number of the chunk that it began in.
    chunk: u64,
}

impl Call {
    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    fn is_blank(&self) -> bool {
        self.arguments.trim().is_empty()
    }
}

impl Decode for Decoder {
    fn event(&mut self, data: &str) -> Result<Progress, Failure> {
        if data.trim() == "[DONE]" {
            // Some servers give no reason. Their word for the end counts, if what they sent is whole.
            if self.finish.is_none() {
                if !self.parts.has_whole_calls() || self.parts.has_blank_calls() {
                    return Err(cut_call());
                }
                self.finish = Some("stop".to_owned());
            }
            self.end()?;
            return Ok(Progress::Ended);
        }
        let chunk: Chunk = read(data)?;
        self.chunks += 1;
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            return Err(in_stream(data));
        }
        if self.response.is_none() {
            self.response = chunk.id;
        }
        self.parts.begin(self.response.clone());
        self.usage = chunk.usage.map(usage).or(self.usage);
        let beside = [("text", chunk.text), ("content", chunk.content), ("output_text", chunk.output_text)];
        for choice in chunk.choices.unwrap_or_default() {
            // One choice is asked for.
            if choice.index.unwrap_or(0) == 0 {
                self.choice(choice, data)?;
            } else if choice.has_content() {
                return Err(unread("more than one choice"));
            }
        }
        beside.into_iter().try_for_each(|(name, value)| self.check_repeated(name, value.unwrap_or_default()))?;
        Ok(if self.finish.is_some() { Progress::Whole } else { Progress::Open })
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.finish.is_some() {
            self.close_prose();
            for at in 0..self.calls.len() {
                self.close(at);
            }
        }
        let Some(reason) = self.finish.as_deref() else { return Err(unfinished()) };
        let native = self.native.as_deref();
        let stop = match ending(reason, native) {
            Ending::Failed(failure) => return Err(failure),
            Ending::Stopped(stop) => stop,
        };
        // A gateway may call an end regular that its provider calls a failure or the cap. Other words say nothing.
        let word = native.filter(|native| !native.eq_ignore_ascii_case(reason));
        let stop = match word.filter(|_| stop != Stop::Length).and_then(|word| known_ending(word, None)) {
            Some(Ending::Failed(failure)) => return Err(failure),
            Some(Ending::Stopped(Stop::Length)) => Stop::Length,
            Some(Ending::Stopped(Stop::Stop | Stop::ToolUse)) | None => stop,
        };
        let stop = if stop == Stop::ToolUse && self.ran_tools { Stop::Stop } else { stop };
        self.parts.finish(self.usage, stop, word)
    }

    fn take(&mut self) -> Vec<Event> {
        self.parts.take()
    }

    fn held(&self) -> usize {
        self.parts.held() + self.thought.size() + self.calls.iter().map(|call| call.kept.size()).sum::<usize>()
    }

    fn members(&self) -> &'static [&'static str] {
        &EVENT
    }
}

impl Decoder {
    /// Refuses a text beside the choices, unless it repeats what they said so far.
    fn check_repeated(&self, name: &str, value: Value) -> Result<(), Failure> {
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let is_repeated = match &value {
            Value::String(text) => self.text.contains(text.trim()) || dense(&self.text).contains(&dense(text)),
            _ => unplaced(&Map::from_iter([(name.to_owned(), value)]), Rule::NamedText).is_none(),
        };
        if is_repeated { Ok(()) } else { Err(unread(&format!("an event with {name}"))) }
    }

    fn choice(&mut self, choice: Choice, data: &str) -> Result<(), Failure> {
        if let Some(error) = choice.error {
            return Err(in_stream(&error.to_string()));
        }
        self.usage = choice.usage.map(usage).or(self.usage);
        check_placed(&choice.rest, Rule::NamedText)?;
        let before = self.text.len();
        if let Some(delta) = choice.delta {
            self.delta(delta, data)?;
        }
        // Some servers say the same in both places.
        let text = choice.text.unwrap_or_default();
        match self.text.get(before..).unwrap_or_default() {
            "" => self.say(Prose::Text, &text),
            said if said.contains(text.trim()) => {}
            _ => return Err(misplaced("the text of a choice is not what its delta says")),
        }
        if let Some(message) = choice.message {
            self.message(message, data)?;
        }
        if let Some(Value::String(word)) = choice.native_finish_reason {
            self.native = Some(word);
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !["", "null"].contains(&reason.as_str())) {
            self.finish = Some(reason);
            self.close_prose();
            for at in 0..self.calls.len() {
                self.close(at);
            }
            self.parts.end_all();
        }
        Ok(())
    }

    fn delta(&mut self, mut delta: Delta, data: &str) -> Result<(), Failure> {
        content::place(&mut delta)?;
        if let Some((name, thought)) = given::thought(&mut delta.rest) {
            self.say(Prose::Thinking(name), &thought);
        }
        match delta.content {
            Some(Content::Text(text)) => self.say(Prose::Text, &text),
            Some(Content::Parts(parts)) => self.mixed(&parts)?,
            None => {}
        }
        self.say(Prose::Text, delta.refusal.as_deref().unwrap_or_default());
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call, data)?;
        }
        if let Some(function) = delta.function_call {
            self.call(ToolCall::only(function), data)?;
        }
        if let Some(name) = given::content(&delta.rest) {
            return Err(unread(name));
        }
        self.ran_tools |= delta.rest.contains_key(given::RAN_TOOLS);
        let rest = given::with_answer(delta.rest);
        check_placed(&rest, Rule::Content)?;
        self.parts.keep(rest);
        Ok(())
    }

    /// Reads a whole answer: all of it if nothing of it came before, else what is missing.
    fn message(&mut self, mut message: Delta, data: &str) -> Result<(), Failure> {
        content::place(&mut message)?;
        if let Some(name) = given::content(&message.rest) {
            return Err(unread(name));
        }
        let thought = given::thought(&mut message.rest);
        let rest = given::with_answer(std::mem::take(&mut message.rest));
        check_placed(&rest, Rule::Content)?;
        self.parts.keep_whole(rest);
        if let Some(Content::Parts(parts)) = &mut message.content {
            let said = self.thoughts.clone();
            parts.retain(|part| said.is_empty() || part.thought().is_none_or(|thought| !said.contains(thought.trim())));
        }
        if !self.parts.has_answer() && self.text.is_empty() {
            self.whole_thought(thought);
            return self.delta(message, data);
        }
        let mut thoughts = Vec::new();
        let mut whole = match message.content.take() {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                parts.iter().try_for_each(content::check_part)?;
                let whole = parts.iter().flat_map(ContentPart::said).collect();
                let parts = parts.into_iter().filter(|part| part.thought().is_some());
                thoughts.extend(parts.map(ContentPart::without_said));
                whole
            }
            None => String::new(),
        };
        whole.push_str(message.refusal.as_deref().unwrap_or_default());
        match whole.strip_prefix(self.text.as_str()) {
            Some(rest) => self.say(Prose::Text, rest),
            None if self.text.contains(whole.trim()) => {}
            None => return Err(misplaced("the text of the message is not what its deltas say")),
        }
        let single = message.function_call.map(ToolCall::only);
        // Each call that came is one of the message: of two that are the same none is left out.
        let mut open: Vec<usize> = (0..self.calls.len()).collect();
        for call in message.tool_calls.into_iter().flatten().chain(single) {
            let function = call.function.as_ref();
            let name = function.and_then(|function| function.name.clone()).unwrap_or_default();
            let whole = function.and_then(Function::text).unwrap_or_default();
            let is_there = |at: &usize| {
                let known = &self.calls[*at];
                known.name == name && (call.id.is_none() || known.id == call.id)
            };
            let is_said = |at: &usize| whole.trim().is_empty() || is_same_json(&self.calls[*at].arguments, &whole);
            match open.iter().position(|at| is_there(at) && is_said(at)) {
                Some(at) => {
                    let at = open.remove(at);
                    self.keep_with_call(at, call);
                }
                None if open.iter().any(is_there) => {
                    return Err(misplaced("the arguments of a call are not what its deltas say"));
                }
                None => self.call(call, data)?,
            }
        }
        // Behind the calls, which end where a thought begins.
        self.whole_thought(thought);
        self.mixed(&thoughts)
    }

    /// Reads the thought of a whole answer, or what is missing of it.
    fn whole_thought(&mut self, thought: Option<(&'static str, String)>) {
        let Some((name, whole)) = thought else { return };
        if !self.thoughts.contains(whole.trim()) {
            let rest = whole.strip_prefix(self.thoughts.as_str()).unwrap_or(&whole).to_owned();
            self.say(Prose::Thinking(name), &rest);
        }
    }

    /// Keeps what the whole answer says of a call, which may be over.
    fn keep_with_call(&mut self, at: usize, piece: ToolCall) {
        let mut rest = piece.rest;
        let mut function = piece.function.unwrap_or_default();
        given::drop_echo(&mut function.rest);
        rest.insert("function".to_owned(), function.rest.into());
        let rest = given::with_call(rest);
        let call = &mut self.calls[at];
        if self.parts.is_open(call.part) {
            call.kept.complete(rest);
        } else if call.given.as_deref() != given::signature_of(rest.clone()).as_deref() {
            self.parts.keep_late(Late { call: Some(call.told.clone()), members: rest, ..Late::default() });
        }
    }

    fn mixed<'a>(&mut self, parts: impl IntoIterator<Item = &'a ContentPart>) -> Result<(), Failure> {
        for part in parts {
            content::check_part(part)?;
            if let Some(thought) = part.thought() {
                self.think(part, &thought);
            }
            part.said().for_each(|text| self.say(Prose::Text, text));
        }
        Ok(())
    }

    /// Reads a thought that is a part of the content, or a piece of one. A sealed one has ended, and so has one of
    /// another type.
    fn think(&mut self, part: &ContentPart, thought: &str) {
        if self.thought.is_sealed() || self.thought.is_other_type(part.r#type.as_deref()) {
            self.close_prose();
        }
        if let Ok(Value::Object(members)) = serde_json::to_value(part) {
            let index = self.continue_prose(Prose::Part);
            self.thought.go_on(members);
            self.thoughts.push_str(thought);
            self.parts.delta(index, thought);
        }
    }

    fn say(&mut self, prose: Prose, text: &str) {
        if text.is_empty() {
            return;
        }
        match prose {
            Prose::Text => self.text.push_str(text),
            Prose::Thinking(_) | Prose::Part => self.thoughts.push_str(text),
        }
        let index = self.continue_prose(prose);
        self.parts.delta(index, text);
    }

    /// The part that such prose goes to: the one that is open, or a new one.
    fn continue_prose(&mut self, prose: Prose) -> usize {
        if let Some((_, index)) = self.prose.filter(|(open, _)| *open == prose) {
            return index;
        }
        self.close_prose();
        for at in 0..self.calls.len() {
            self.close(at);
        }
        self.parts.end_all();
        let index = self.parts.start(match prose {
            Prose::Text => PartKind::Text,
            Prose::Thinking(_) | Prose::Part => PartKind::Thinking,
        });
        if let Prose::Thinking(name) = prose {
            self.parts.sign(index, name);
        }
        self.prose = Some((prose, index));
        index
    }

    /// Closes what is open of text or thinking. A part of the content is signed with all of it.
    fn close_prose(&mut self) {
        if let Some((_, index)) = self.prose.take() {
            self.parts.sign(index, &self.thought.take_object().unwrap_or_default());
            self.parts.end(index);
        }
    }

    /// Gives a piece to its call: by index, else by id, else to the last one. A piece with a name begins another call if
    /// the name is another, or as [`Decoder::is_another`] says.
    fn call(&mut self, piece: ToolCall, data: &str) -> Result<(), Failure> {
        let mut rest = piece.rest;
        let mut function = piece.function.unwrap_or_default();
        given::drop_echo(&mut function.rest);
        check_placed(&rest, Rule::Content)?;
        check_placed(&function.rest, Rule::Content)?;
        let more = function.text();
        let name = function.name.filter(|name| !name.is_empty());
        let id = piece.id.filter(|id| !id.is_empty());
        let known = match (piece.index, &id) {
            // Some servers number all their calls 0: another id with a name is another call.
            (Some(at), Some(id)) => {
                let is_it = |call: &Call| call.at == Some(at) && call.id.as_ref() == Some(id);
                let may_be = |call: &Call| call.at == Some(at) && (name.is_none() || call.id.is_none());
                self.calls.iter().rposition(is_it).or_else(|| self.calls.iter().rposition(may_be))
            }
            (Some(at), None) => self.calls.iter().rposition(|call| call.at == Some(at)),
            (None, Some(id)) => self.calls.iter().rposition(|call| call.id.as_ref() == Some(id)),
            (None, None) => self.calls.len().checked_sub(1),
        };
        let is_again = |at: &usize| {
            let (call, more) = (&self.calls[*at], more.as_deref().unwrap_or_default());
            id.is_some() && call.id == id && call.is_whole() && is_same_json(&call.arguments, more)
        };
        if name.is_none() && known.as_ref().is_some_and(is_again) {
            return Ok(());
        }
        let known = known.filter(|at| {
            let call = &self.calls[*at];
            let is_another = || self.is_another(call, id.as_deref(), more.as_deref().unwrap_or_default());
            name.as_ref().is_none_or(|name| *name == call.name && !is_another())
        });
        let at = match (known, name) {
            (Some(at), _) => at,
            (None, Some(name)) => self.open(piece.index, id, name),
            (None, None) => {
                let excerpt = crate::failure::excerpt(data);
                return Err(broken(format!("a tool call without a name (terminated): {excerpt}")));
            }
        };
        rest.insert("function".to_owned(), function.rest.into());
        self.calls[at].kept.add(given::with_call(rest));
        let part = self.calls[at].part;
        let Some(more) = more else { return Ok(()) };
        if !self.parts.is_open(part) && !more.trim().is_empty() {
            return Err(broken("arguments of a tool call after its end (terminated)".to_owned()));
        }
        self.calls[at].arguments.push_str(&more);
        self.parts.delta(part, &more);
        Ok(())
    }

    /// Whether a piece that says the name of this call once more begins another one. Some servers say the name with every
    /// piece, and some give all their calls one index and no id.
    ///
    /// In one chunk there is no reason to say a name again within a call, so it is another unless the arguments have begun
    /// and are not whole. Behind that chunk it is another if the arguments are whole and more of them come.
    fn is_another(&self, call: &Call, id: Option<&str>, more: &str) -> bool {
        let is_it = id.is_some() && call.id.as_deref() == id;
        if !is_it && call.chunk == self.chunks {
            return call.is_whole() || call.is_blank();
        }
        call.is_whole() && (id.is_some() || !more.trim().is_empty())
    }

    /// Closes a call, signed with what came with it.
    fn close(&mut self, at: usize) {
        let call = &mut self.calls[at];
        if self.parts.is_open(call.part) {
            call.given = given::signature_of(call.kept.take());
            self.parts.sign(call.part, call.given.as_deref().unwrap_or_default());
            self.parts.end(call.part);
        }
    }

    /// Opens a call and closes what is complete: prose, and calls whose arguments are a whole JSON value. A call that
    /// is not complete stays open beside this one, since some servers mix the pieces of several.
    fn open(&mut self, at: Option<u64>, id: Option<String>, name: String) -> usize {
        self.close_prose();
        for known in 0..self.calls.len() {
            // Without ids to tell them apart another call with the same index ends the one before it.
            let call = &self.calls[known];
            let is_replaced = at.is_some() && call.at == at && (id.is_none() || call.id.is_none());
            if is_replaced || call.is_whole() {
                self.close(known);
            }
        }
        let kind = PartKind::ToolCall { id: id.clone().unwrap_or_default(), name: name.clone() };
        let part = self.parts.start(kind);
        let told = match self.parts.kind(part) {
            Some(PartKind::ToolCall { id, .. }) => id.clone(),
            Some(PartKind::Text | PartKind::Thinking | PartKind::Redacted) | None => String::new(),
        };
        let (kept, given, arguments, chunk) = (Kept::default(), None, String::new(), self.chunks);
        self.calls.push(Call { at, id, name, told, part, kept, given, arguments, chunk });
        self.calls.len() - 1
    }
}

fn broken(message: String) -> Failure {
    Failure::new(FailureKind::Broken, message)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use crate::{Api, Event, Part, decode};

    /// A piece of a call: its index, its id, its name, its arguments.
    type Piece = (Option<u64>, &'static str, &'static str, &'static str);

    fn calls(chunks: &[&[Piece]]) -> Vec<(String, String)> {
        let piece = |(index, id, name, arguments): &Piece| {
            let mut function = json!({"arguments": arguments});
            if !name.is_empty() {
                function["name"] = (*name).into();
            }
            let mut piece = json!({"id": id, "function": function});
            if let Some(index) = index {
                piece["index"] = (*index).into();
            }
            piece
        };
        let deltas = chunks.iter().map(|chunk| json!({"tool_calls": chunk.iter().map(piece).collect::<Vec<Value>>()}));
        let chunk = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n".to_owned();
        let stream: String = deltas.map(chunk).chain([end]).collect();
        let events = decode(Api::OpenaiCompletions, [Bytes::from(stream)]);
        assert!(matches!(events.last(), Some(Ok(Event::Stop(_)))), "{events:?}");
        let mut calls: Vec<_> = events
            .into_iter()
            .filter_map(|event| match event {
                Ok(Event::PartEnd { index, part: Part::ToolCall { name, arguments, .. } }) => {
                    Some((index, (name, arguments)))
                }
                _ => None,
            })
            .collect();
        calls.sort();
        calls.into_iter().map(|(_, call)| call).collect()
    }

    /// A case, its pieces, and the calls that they make: names with arguments.
    type Row<'a> = (&'a str, &'a [&'a [Piece]], &'a [(&'a str, &'a str)]);

    #[test]
    fn calls_without_ids_of_one_index_are_told_apart_and_a_name_that_is_said_again_begins_none() {
        const ARGUMENTS: &str = r#"{"p":1}"#;
        for index in [Some(0), None] {
            let named = |name, arguments| (index, "", name, arguments);
            let more = |arguments| (index, "", "", arguments);
            let rows: [Row<'_>; 15] = [
                ("one chunk, no arguments", &[&[named("ls", ""), named("ls", "")]], &[("ls", "{}"), ("ls", "{}")]),
                ("one chunk, {}", &[&[named("ls", "{}"), named("ls", "{}")]], &[("ls", "{}"), ("ls", "{}")]),
                ("one chunk, mixed", &[&[named("ls", ""), named("ls", "{}")]], &[("ls", "{}"), ("ls", "{}")]),
                ("one chunk, mixed back", &[&[named("ls", "{}"), named("ls", "")]], &[("ls", "{}"), ("ls", "{}")]),
                ("one chunk, two names", &[&[named("ls", ""), named("cat", "")]], &[("ls", "{}"), ("cat", "{}")]),
                (
                    "one chunk, three whole",
                    &[&[named("ls", ARGUMENTS), named("ls", ARGUMENTS), named("ls", "{}")]],
                    &[("ls", ARGUMENTS), ("ls", ARGUMENTS), ("ls", "{}")],
                ),
                ("one chunk, in pieces", &[&[named("ls", ""), more(ARGUMENTS)]], &[("ls", ARGUMENTS)]),
                ("one chunk, in named pieces", &[&[named("ls", r#"{"p""#), named("ls", ":1}")]], &[("ls", ARGUMENTS)]),
                (
                    "a name with every piece",
                    &[&[named("ls", "")], &[named("ls", r#"{"p""#)], &[named("ls", ":1}")], &[named("ls", "")]],
                    &[("ls", ARGUMENTS)],
                ),
                ("a name with every piece of nothing", &[&[named("ls", "")], &[named("ls", "")]], &[("ls", "{}")]),
                ("a name with {} and nothing more", &[&[named("ls", "{}")], &[named("ls", "")]], &[("ls", "{}")]),
                (
                    "whole ones in two chunks",
                    &[&[named("ls", "{}")], &[named("ls", "{}")]],
                    &[("ls", "{}"), ("ls", "{}")],
                ),
                (
                    "two chunks of another name",
                    &[&[named("ls", "")], &[named("cat", ARGUMENTS)]],
                    &[("ls", "{}"), ("cat", ARGUMENTS)],
                ),
                (
                    "two in one chunk behind one",
                    &[&[named("ls", ARGUMENTS)], &[named("ls", "{}"), named("ls", "{}")]],
                    &[("ls", ARGUMENTS), ("ls", "{}"), ("ls", "{}")],
                ),
                ("an id for the second", &[&[named("ls", ""), (index, "b", "ls", "")]], &[("ls", "{}"), ("ls", "{}")]),
            ];
            for (case, chunks, want) in rows {
                let want: Vec<_> = want.iter().map(|(name, arguments)| (*name, *arguments)).collect();
                let got = calls(chunks);
                let got: Vec<_> = got.iter().map(|(name, arguments)| (name.as_str(), arguments.as_str())).collect();
                assert_eq!(got, want, "{case}, index {index:?}");
            }
        }
    }
}
