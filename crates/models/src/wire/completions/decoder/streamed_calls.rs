//! The calls of an answer of Chat Completions, put together from the pieces in its chunks.
//!
//! It must not know how text, thinking or the end of an answer is read.

use super::CompletionsDecoder;
use crate::{
    FailureKind, ModelFailure, PartKind,
    wire::{
        completions::{frame::ToolCallDelta, provider_extensions},
        is_same_json,
        kept_members::{KeptMembers, LateMembers},
        unplaced::{ContentRule, check_placed},
    },
};

/// A call by the wire's index. Servers without one distinguish calls by their ids.
pub(super) struct StreamedCall {
    at: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) name: String,
    /// The id in its events.
    reported_id: String,
    part: usize,
    /// Members that came with it and are not read.
    pub(super) kept: KeptMembers,
    /// Signature of its part.
    given: Option<String>,
    /// The arguments so far.
    pub(super) arguments: String,
    /// The number of the chunk that it began in.
    chunk: u64,
}

impl StreamedCall {
    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    fn is_blank(&self) -> bool {
        self.arguments.trim().is_empty()
    }
}

impl CompletionsDecoder {
    /// Gives a piece to its call: by index, else by id, else to the last one. A piece with a name begins another call if
    /// the name is another, or as [`CompletionsDecoder::is_another`] says.
    pub(super) fn read_call(&mut self, piece: ToolCallDelta, data: &str) -> Result<(), ModelFailure> {
        let mut rest = piece.rest;
        let mut function = piece.function.unwrap_or_default();
        provider_extensions::drop_echo(&mut function.rest);
        check_placed(&rest, ContentRule::Content)?;
        check_placed(&function.rest, ContentRule::Content)?;
        let more = function.arguments_text();
        let name = function.name.filter(|name| !name.is_empty());
        let id = piece.id.filter(|id| !id.is_empty());
        let known = match (piece.index, &id) {
            // Some servers number all their calls 0: another id with a name is another call.
            (Some(at), Some(id)) => {
                let is_it = |call: &StreamedCall| call.at == Some(at) && call.id.as_ref() == Some(id);
                let may_be = |call: &StreamedCall| call.at == Some(at) && (name.is_none() || call.id.is_none());
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
            (None, Some(name)) => self.open_call(piece.index, id, name),
            (None, None) => {
                let excerpt = crate::failure::excerpt(data);
                return Err(broken_stream(format!("a tool call without a name (terminated): {excerpt}")));
            }
        };
        rest.insert("function".to_owned(), function.rest.into());
        self.calls[at].kept.add_piece(provider_extensions::with_call(rest));
        let part = self.calls[at].part;
        let Some(more) = more else { return Ok(()) };
        if !self.parts.is_open(part) && !more.trim().is_empty() {
            return Err(broken_stream("arguments of a tool call after its end (terminated)".to_owned()));
        }
        self.calls[at].arguments.push_str(&more);
        self.parts.push_delta(part, &more);
        Ok(())
    }

    /// Reports whether a piece that repeats the name of this call begins another one. Some servers send the name with every
    /// piece, and some give all their calls one index and no id.
    ///
    /// In one chunk there is no reason to repeat a name within a call, so it is another unless the arguments have begun
    /// and are incomplete. After that chunk it is another if the arguments are complete and more of them come.
    fn is_another(&self, call: &StreamedCall, id: Option<&str>, more: &str) -> bool {
        let is_it = id.is_some() && call.id.as_deref() == id;
        if !is_it && call.chunk == self.chunks {
            return call.is_whole() || call.is_blank();
        }
        call.is_whole() && (id.is_some() || !more.trim().is_empty())
    }

    /// Keeps the members that the whole answer has for a call, which may be over.
    pub(super) fn keep_with_call(&mut self, at: usize, piece: ToolCallDelta) {
        let mut rest = piece.rest;
        let mut function = piece.function.unwrap_or_default();
        provider_extensions::drop_echo(&mut function.rest);
        rest.insert("function".to_owned(), function.rest.into());
        let rest = provider_extensions::with_call(rest);
        let call = &mut self.calls[at];
        if self.parts.is_open(call.part) {
            call.kept.add_whole(rest);
        } else if call.given.as_deref() != provider_extensions::signature_of(rest.clone()).as_deref() {
            self.parts.keep_late(LateMembers {
                call: Some(call.reported_id.clone()),
                members: rest,
                ..LateMembers::default()
            });
        }
    }

    /// Closes a call, signed with the members that came with it.
    pub(super) fn close_call(&mut self, at: usize) {
        let call = &mut self.calls[at];
        if self.parts.is_open(call.part) {
            call.given = provider_extensions::signature_of(call.kept.take_members());
            self.parts.add_signature(call.part, call.given.as_deref().unwrap_or_default());
            self.parts.end_part(call.part);
        }
    }

    /// Opens a call and closes complete parts: prose, and calls whose arguments are a whole JSON value. A call that
    /// is incomplete stays open during this one, since some servers mix the pieces of several.
    fn open_call(&mut self, at: Option<u64>, id: Option<String>, name: String) -> usize {
        self.close_prose();
        for known in 0..self.calls.len() {
            // Without ids to distinguish them another call with the same index ends the one before it.
            let call = &self.calls[known];
            let is_replaced = at.is_some() && call.at == at && (id.is_none() || call.id.is_none());
            if is_replaced || call.is_whole() {
                self.close_call(known);
            }
        }
        let kind = PartKind::ToolCall { id: id.clone().unwrap_or_default(), name: name.clone() };
        let part = self.parts.start_part(kind);
        let reported_id = match self.parts.part_kind(part) {
            Some(PartKind::ToolCall { id, .. }) => id.clone(),
            Some(PartKind::Text | PartKind::Thinking | PartKind::Redacted) | None => String::new(),
        };
        let (kept, given, arguments, chunk) = (KeptMembers::default(), None, String::new(), self.chunks);
        self.calls.push(StreamedCall { at, id, name, reported_id, part, kept, given, arguments, chunk });
        self.calls.len() - 1
    }
}

fn broken_stream(message: String) -> ModelFailure {
    ModelFailure::new(FailureKind::Broken, message)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use crate::{MessagePart, ModelApi, ModelEvent, decode};

    /// A piece of a call: its index, its id, its name, its arguments.
    type CallChunk = (Option<u64>, &'static str, &'static str, &'static str);

    fn calls(chunks: &[&[CallChunk]]) -> Vec<(String, String)> {
        let piece = |(index, id, name, arguments): &CallChunk| {
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
        let events = decode(ModelApi::OpenaiCompletions, [Bytes::from(stream)]);
        assert!(matches!(events.last(), Some(Ok(ModelEvent::Stop(_)))), "{events:?}");
        let mut calls: Vec<_> = events
            .into_iter()
            .filter_map(|event| match event {
                Ok(ModelEvent::PartEnd { index, part: MessagePart::ToolCall { name, arguments, .. } }) => {
                    Some((index, (name, arguments)))
                }
                _ => None,
            })
            .collect();
        calls.sort();
        calls.into_iter().map(|(_, call)| call).collect()
    }

    /// A case, its pieces, and the calls that they make: names with arguments.
    type CallRow<'a> = (&'a str, &'a [&'a [CallChunk]], &'a [(&'a str, &'a str)]);

    #[test]
    fn calls_without_ids_of_one_index_are_distinguished_and_a_repeated_name_begins_none() {
        const ARGUMENTS: &str = r#"{"p":1}"#;
        for index in [Some(0), None] {
            let named = |name, arguments| (index, "", name, arguments);
            let more = |arguments| (index, "", "", arguments);
            let rows: [CallRow<'_>; 15] = [
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
