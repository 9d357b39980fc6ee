//! The events of one answer in the making: gives parts their indices and collects what their ends must hold.
//!
//! It must not know any wire.

use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Drain,
};

use serde_json::{Map, Value};

use super::{
    is_same_json,
    kept_members::{self, KeptMembers, LateMembers},
};
use crate::{
    FinishReason, MessagePart, ModelEvent, ModelFailure, ModelUsage, PartKind,
    failure::{empty_answer, without_calls},
};

/// Events that are ready, and the parts that are still open.
#[derive(Debug, Default)]
pub(crate) struct PartAssembler {
    ready: Vec<ModelEvent>,
    begun: bool,
    /// The index of the next part in events.
    next: usize,
    /// Number of parts that were opened: the handle of the next one.
    handles: usize,
    open: BTreeMap<usize, OpenPart>,
    /// Calls that are over, as the wire named them.
    over: Vec<EndedCall>,
    /// Calls that are over and whose arguments did not come. Only the end of the answer says whether there are none.
    blank: Vec<OpenPart>,
    /// Ended calls that may repeat an earlier one.
    held: Vec<OpenPart>,
    response: Option<String>,
    /// Number of calls that were opened.
    calls: usize,
    /// True if some text came that is not blank.
    has_text: bool,
    /// True if the arguments of a call that was closed are not JSON.
    cut: bool,
    /// The ids of calls that were opened.
    ids: BTreeSet<String>,
    /// Data that the provider needs back with the whole answer.
    kept: KeptMembers,
    /// Data that it needs back with parts that had ended.
    late: Vec<LateMembers>,
    /// Bytes of signatures so far.
    signed: usize,
}

#[derive(Debug)]
struct OpenPart {
    handle: usize,
    /// Kind in events.
    kind: PartKind,
    /// The index in events. None of a call that has the id of an earlier one: its event comes at the end of the answer, if it
    /// is not that call again.
    index: Option<usize>,
    /// The id of a call on the wire.
    id: String,
    text: String,
    signature: Option<String>,
    /// True if the provider reported that it is incomplete.
    is_cut: bool,
}

impl OpenPart {
    fn is_blank_call(&self) -> bool {
        matches!(self.kind, PartKind::ToolCall { .. }) && self.text.trim().is_empty()
    }

    fn call_name(&self) -> &str {
        match &self.kind {
            PartKind::ToolCall { name, .. } => name,
            PartKind::Text | PartKind::Thinking | PartKind::Redacted => "",
        }
    }
}

#[derive(Debug)]
struct EndedCall {
    id: String,
    name: String,
    arguments: String,
}

/// Stands for arguments that were cut off before they came. It is no JSON, so that it cannot be taken for no arguments.
const CUT: &str = "{";

impl PartAssembler {
    /// Takes the events that are ready.
    pub(crate) fn take_events(&mut self) -> Drain<'_, ModelEvent> {
        self.ready.drain(..)
    }

    /// Begins the answer, unless it has begun.
    pub(crate) fn begin_answer(&mut self, response_id: Option<String>) {
        if !self.begun {
            self.begun = true;
            self.response = response_id.filter(|id| !id.is_empty());
            self.ready.push(ModelEvent::Start { response_id: self.response.clone() });
        }
    }

    /// Opens a part and returns its handle. The event of a call with the id of an earlier one comes at the end of the answer: only then
    /// it is known whether it is that call again.
    pub(crate) fn start_part(&mut self, mut kind: PartKind) -> usize {
        self.begin_answer(None);
        let id = match &kind {
            PartKind::ToolCall { id, .. } => id.clone(),
            PartKind::Text | PartKind::Thinking | PartKind::Redacted => String::new(),
        };
        let is_again = !id.is_empty() && self.ids.contains(&id);
        let index = (!is_again).then(|| self.announce_part(&mut kind));
        let handle = self.handles;
        self.handles += 1;
        self.open
            .insert(handle, OpenPart { handle, kind, index, id, text: String::new(), signature: None, is_cut: false });
        handle
    }

    /// Tells that a part begins and says its index. A call without an id, or with one that another of this answer has, is
    /// given one of its own.
    fn announce_part(&mut self, kind: &mut PartKind) -> usize {
        if let PartKind::ToolCall { id, .. } = kind {
            if id.is_empty() {
                *id = format!("call_{}_{}", self.response.as_deref().unwrap_or_default(), self.calls);
            }
            self.calls += 1;
            let given = id.clone();
            let mut number = 1;
            // Its result has its id, and a provider takes no history in which two calls share one.
            while !self.ids.insert(id.clone()) {
                number += 1;
                *id = format!("{given}_{number}");
            }
        }
        let index = self.next;
        self.next += 1;
        self.ready.push(ModelEvent::PartStart { index, kind: kind.clone() });
        index
    }

    /// Adds to an open part. Nothing is not worth an event.
    pub(crate) fn push_delta(&mut self, handle: usize, text: &str) {
        let Some(open) = self.open.get_mut(&handle).filter(|_| !text.is_empty()) else { return };
        open.text.push_str(text);
        self.has_text = self.has_text || matches!(open.kind, PartKind::Text) && !text.trim().is_empty();
        // The content of a redacted part is for the provider only: it comes with the end of the part.
        if let Some(index) = open.index
            && !matches!(open.kind, PartKind::Redacted)
        {
            self.ready.push(ModelEvent::Delta { index, text: text.to_owned() });
        }
    }

    /// Adds the missing rest of `whole`, if the text so far is its beginning.
    pub(crate) fn complete_text(&mut self, handle: usize, whole: &str) {
        if let Some(rest) = self.open.get(&handle).and_then(|open| whole.strip_prefix(open.text.as_str())) {
            let rest = rest.to_owned();
            self.push_delta(handle, &rest);
        }
    }

    /// Adds to the signature of an open part.
    pub(crate) fn add_signature(&mut self, handle: usize, signature: &str) {
        if let Some(open) = self.open.get_mut(&handle).filter(|_| !signature.is_empty()) {
            open.signature.get_or_insert_default().push_str(signature);
            self.signed += signature.len();
        }
    }

    /// Marks an open part without a signature as complete and unsigned.
    pub(crate) fn leave_unsigned(&mut self, handle: usize) {
        if let Some(open) = self.open.get_mut(&handle) {
            open.signature.get_or_insert_default();
        }
    }

    /// Says of a part that the provider broke it off. A call may be over already.
    pub(crate) fn mark_cut(&mut self, handle: usize) {
        let over = self.blank.iter_mut().find(|open| open.handle == handle);
        if let Some(open) = self.open.get_mut(&handle).or(over) {
            open.is_cut = true;
        }
    }

    /// Returns the kind of an open part.
    pub(crate) fn part_kind(&self, handle: usize) -> Option<&PartKind> {
        self.open.get(&handle).map(|open| &open.kind)
    }

    /// Reports whether an open part is signed.
    pub(crate) fn is_signed(&self, handle: usize) -> bool {
        self.open.get(&handle).is_some_and(|open| open.signature.is_some())
    }

    /// Keeps members that came with the whole answer, to be sent back with it.
    pub(crate) fn keep_members(&mut self, members: Map<String, Value>) {
        self.kept.add_piece(members);
    }

    /// Keeps members that came with the whole answer after its pieces.
    pub(crate) fn keep_whole(&mut self, members: Map<String, Value>) {
        self.kept.add_whole(members);
    }

    /// Keeps members for a part that is over, to be sent back with it.
    pub(crate) fn keep_late(&mut self, late: LateMembers) {
        if !late.members.is_empty() || !late.before.is_empty() {
            self.late.push(late);
        }
    }

    /// Returns the bytes that are held and in no event yet.
    pub(crate) fn held_bytes(&self) -> usize {
        let again = self.open.values().filter(|open| open.index.is_none()).chain(&self.held);
        self.kept.size() + self.signed + again.map(|open| open.text.len()).sum::<usize>()
    }

    /// Reports whether the arguments of every call so far are JSON, or none.
    pub(crate) fn has_whole_calls(&self) -> bool {
        let is_whole =
            |open: &OpenPart| !matches!(open.kind, PartKind::ToolCall { .. }) || is_json_or_blank(&open.text);
        !self.cut && self.open.values().all(is_whole)
    }

    /// Reports whether a call came without any of its arguments.
    pub(crate) fn has_blank_calls(&self) -> bool {
        !self.blank.is_empty() || self.open.values().any(|open| open.index.is_some() && open.is_blank_call())
    }

    /// Reports whether any text or call came.
    pub(crate) fn has_answer(&self) -> bool {
        self.has_text || self.calls > 0
    }

    /// Returns the content of an open part so far.
    pub(crate) fn part_text(&self, handle: usize) -> Option<&str> {
        self.open.get(&handle).map(|open| open.text.as_str())
    }

    /// Reports whether a part is open.
    pub(crate) fn is_open(&self, handle: usize) -> bool {
        self.open.contains_key(&handle)
    }

    /// Closes a part. A call without arguments ends with the answer: only then it is known whether it has none.
    pub(crate) fn end_part(&mut self, handle: usize) {
        let Some(open) = self.open.remove(&handle) else { return };
        self.cut |= matches!(open.kind, PartKind::ToolCall { .. }) && !is_json_or_blank(&open.text);
        match open.index {
            None => self.held.push(open),
            Some(_) if open.is_blank_call() => self.blank.push(open),
            Some(index) => self.close_part(index, open),
        }
    }

    /// Tells that a part ends.
    fn close_part(&mut self, index: usize, OpenPart { kind, id, text, signature, .. }: OpenPart) {
        let part = match kind {
            PartKind::Text => MessagePart::Text { text, signature },
            PartKind::Thinking => MessagePart::Thinking { text, signature },
            PartKind::Redacted => MessagePart::Redacted { data: text },
            PartKind::ToolCall { id: reported_id, name } => {
                self.over.push(EndedCall { id, name: name.clone(), arguments: text.clone() });
                MessagePart::ToolCall { id: reported_id, name, arguments: text, signature }
            }
        };
        self.ready.push(ModelEvent::PartEnd { index, part });
    }

    /// Emits the missing events of a part, and its end.
    fn close_late(&mut self, mut open: OpenPart, text: &str) {
        let index = match open.index {
            Some(index) => index,
            None => self.announce_part(&mut open.kind),
        };
        if !text.is_empty() {
            open.text.push_str(text);
            self.ready.push(ModelEvent::Delta { index, text: text.to_owned() });
        }
        self.close_part(index, open);
    }

    /// Closes the calls that wait for the end of the answer. A repeated one is one call; one whose arguments did
    /// not come has none, `{}`, unless the answer was cut off.
    fn settle_calls(&mut self, stop: FinishReason) {
        for mut again in std::mem::take(&mut self.held) {
            let is_it = |id: &str, name: &str| id == again.id && name == again.call_name();
            let waits = self.blank.iter().position(|open| is_it(&open.id, open.call_name()));
            let is_said = self.over.iter().any(|over| {
                is_it(&over.id, &over.name) && (again.is_blank_call() || is_same_json(&over.arguments, &again.text))
            });
            match waits {
                _ if is_said => {}
                Some(_) if again.is_blank_call() => {}
                // Its first mention was without the arguments.
                Some(at) => {
                    let open = self.blank.remove(at);
                    self.close_late(open, &again.text);
                }
                None if again.is_blank_call() => {
                    again.index = Some(self.announce_part(&mut again.kind));
                    self.blank.push(again);
                }
                None => {
                    let text = std::mem::take(&mut again.text);
                    self.close_late(again, &text);
                }
            }
        }
        for open in std::mem::take(&mut self.blank) {
            let arguments = if open.is_cut || stop == FinishReason::Length { CUT } else { "{}" };
            self.close_late(open, arguments);
        }
    }

    /// Closes every part that is open.
    pub(crate) fn end_all(&mut self) {
        while let Some(handle) = self.open.keys().next().copied() {
            self.end_part(handle);
        }
    }

    /// Reports the usage so far.
    pub(crate) fn report_usage(&mut self, usage: ModelUsage) {
        self.begin_answer(None);
        self.ready.push(ModelEvent::Usage(usage));
    }

    /// Closes every part that is open, reports the usage if it is known, and ends the answer as [`PartAssembler::stop`]
    /// does.
    pub(crate) fn finish_answer(
        &mut self,
        usage: Option<ModelUsage>,
        stop: FinishReason,
        word: Option<&str>,
    ) -> Result<(), ModelFailure> {
        self.end_all();
        self.settle_calls(stop);
        if let Some(usage) = usage {
            self.report_usage(usage);
        }
        self.stop_answer(stop, word)
    }

    /// Ends the answer. Calls turn an ordinary end into a wish for their results, for any reason of the provider.
    ///
    /// # Errors
    /// The model gave neither text nor calls and did not reach its cap either; the failure holds the provider's own
    /// `word` for the end. Or the answer ended for calls, and only text came.
    pub(crate) fn stop_answer(&mut self, stop: FinishReason, word: Option<&str>) -> Result<(), ModelFailure> {
        self.begin_answer(None);
        self.end_all();
        self.settle_calls(stop);
        let stop = match stop {
            FinishReason::Length => FinishReason::Length,
            FinishReason::Stop | FinishReason::ToolUse if self.calls > 0 => FinishReason::ToolUse,
            FinishReason::ToolUse if self.has_text => return Err(without_calls()),
            FinishReason::Stop if self.has_text => FinishReason::Stop,
            FinishReason::Stop | FinishReason::ToolUse => return Err(empty_answer(word)),
        };
        self.ready.extend(
            kept_members::encode_payload(self.kept.take_members(), &std::mem::take(&mut self.late))
                .map(ModelEvent::Payload),
        );
        self.ready.push(ModelEvent::Stop(stop));
        Ok(())
    }
}

fn is_json_or_blank(arguments: &str) -> bool {
    arguments.trim().is_empty() || serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::PartAssembler;
    use crate::{FinishReason, MessagePart, ModelEvent, PartKind};

    /// Returns the calls of an answer with these ids and arguments.
    fn calls(given: &[(&str, &str)], stop: FinishReason) -> Vec<(String, String)> {
        let mut parts = PartAssembler::default();
        for (id, arguments) in given {
            let call = parts.start_part(PartKind::ToolCall { id: (*id).to_owned(), name: "t".to_owned() });
            parts.push_delta(call, arguments);
            parts.end_part(call);
        }
        parts.stop_answer(stop, None).unwrap();
        let called = |event| match event {
            ModelEvent::PartEnd { part: MessagePart::ToolCall { id, arguments, .. }, .. } => Some((id, arguments)),
            _ => None,
        };
        parts.take_events().filter_map(called).collect()
    }

    #[test]
    fn calls_of_one_answer_have_ids_of_their_own() {
        let given = [("a", "1"), ("a", "2"), ("b", "3"), ("a_2", "4"), ("a", "5")];
        let ids: Vec<_> = calls(&given, FinishReason::Stop).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["a", "b", "a_2", "a_3", "a_4"]);
    }

    #[test]
    fn a_repeated_call_is_one_call() {
        for (given, want) in [
            (vec![("a", r#"{"p":1}"#), ("a", r#"{ "p": 1 }"#)], vec![("a", r#"{"p":1}"#)]),
            (vec![("a", r#"{"p":1}"#), ("a", " "), ("a", "")], vec![("a", r#"{"p":1}"#)]),
            (vec![("a", ""), ("a", r#"{"p":1}"#)], vec![("a", r#"{"p":1}"#)]),
            (vec![("a", ""), ("a", "")], vec![("a", "{}")]),
            (vec![("a", "{}"), ("a", "")], vec![("a", "{}")]),
            (vec![("a", "1"), ("a", "2"), ("a", "1"), ("a", "2")], vec![("a", "1"), ("a_2", "2")]),
            (vec![("", "1"), ("", "1")], vec![("call__0", "1"), ("call__1", "1")]),
        ] {
            let got = calls(&given, FinishReason::Stop);
            let got: Vec<_> = got.iter().map(|(id, arguments)| (id.as_str(), arguments.as_str())).collect();
            assert_eq!(got, want, "{given:?}");
        }
    }

    #[test]
    fn arguments_that_were_cut_off_before_they_came_are_not_none() {
        for (stop, want) in [(FinishReason::Stop, "{}"), (FinishReason::ToolUse, "{}"), (FinishReason::Length, "{")] {
            assert_eq!(calls(&[("a", "")], stop), [("a".to_owned(), want.to_owned())], "{stop:?}");
        }
    }
}
