//! The events of one answer in the making: gives parts their indices and collects what their ends must hold.
//!
//! It must not know any wire.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::kept::Kept;
use crate::{Event, Failure, Part, PartKind, Stop, Usage, failure::empty};

/// Events that are ready, and the parts that are still open.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    ready: Vec<Event>,
    begun: bool,
    next: usize,
    open: BTreeMap<usize, Open>,
    response: Option<String>,
    /// How many calls were opened.
    calls: usize,
    /// Whether some text was that is not blank.
    said: bool,
    /// Whether the arguments of a call that was closed are not JSON.
    cut: bool,
    /// The ids of calls that were opened.
    ids: BTreeSet<String>,
    /// What the provider wants back with the whole answer.
    kept: Kept,
    /// Bytes of signatures so far.
    signed: usize,
}

#[derive(Debug)]
struct Open {
    kind: PartKind,
    text: String,
    signature: Option<String>,
}

impl Parts {
    /// Takes the events that are ready.
    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.ready)
    }

    /// Begins the answer, unless it has begun.
    pub(crate) fn begin(&mut self, response_id: Option<String>) {
        if !self.begun {
            self.begun = true;
            self.response = response_id.filter(|id| !id.is_empty());
            self.ready.push(Event::Start { response_id: self.response.clone() });
        }
    }

    /// Opens a part and says its index. A call without an id, or with one that another of this answer has, is given one
    /// of its own.
    pub(crate) fn start(&mut self, mut kind: PartKind) -> usize {
        self.begin(None);
        if let PartKind::ToolCall { id, .. } = &mut kind {
            if id.is_empty() {
                *id = format!("call_{}_{}", self.response.as_deref().unwrap_or_default(), self.calls);
            }
            self.calls += 1;
            let given = id.clone();
            let mut number = 1;
            // Its result is told by its id, and a provider takes no history in which two calls share one.
            while !self.ids.insert(id.clone()) {
                number += 1;
                *id = format!("{given}_{number}");
            }
        }
        let index = self.next;
        self.next += 1;
        self.ready.push(Event::PartStart { index, kind: kind.clone() });
        self.open.insert(index, Open { kind, text: String::new(), signature: None });
        index
    }

    /// Adds to an open part. Nothing is not worth an event.
    pub(crate) fn delta(&mut self, index: usize, text: &str) {
        let Some(open) = self.open.get_mut(&index).filter(|_| !text.is_empty()) else { return };
        open.text.push_str(text);
        self.said |= matches!(open.kind, PartKind::Text) && !text.trim().is_empty();
        // What a redacted part holds is for the provider only: it comes with the end of the part.
        if !matches!(open.kind, PartKind::Redacted) {
            self.ready.push(Event::Delta { index, text: text.to_owned() });
        }
    }

    /// Adds what is missing of `whole`, if what came so far is its beginning.
    pub(crate) fn complete(&mut self, index: usize, whole: &str) {
        if let Some(rest) = self.open.get(&index).and_then(|open| whole.strip_prefix(open.text.as_str())) {
            let rest = rest.to_owned();
            self.delta(index, &rest);
        }
    }

    /// Adds to the signature of an open part.
    pub(crate) fn sign(&mut self, index: usize, signature: &str) {
        if let Some(open) = self.open.get_mut(&index).filter(|_| !signature.is_empty()) {
            open.signature.get_or_insert_default().push_str(signature);
            self.signed += signature.len();
        }
    }

    /// Says of an open part that nobody signed that it came whole and unsigned.
    pub(crate) fn leave_unsigned(&mut self, index: usize) {
        if let Some(open) = self.open.get_mut(&index) {
            open.signature.get_or_insert_default();
        }
    }

    /// What an open part is.
    pub(crate) fn kind(&self, index: usize) -> Option<&PartKind> {
        self.open.get(&index).map(|open| &open.kind)
    }

    /// Whether an open part is signed.
    pub(crate) fn is_signed(&self, index: usize) -> bool {
        self.open.get(&index).is_some_and(|open| open.signature.is_some())
    }

    /// Keeps members that came with the whole answer, to be sent back with it.
    pub(crate) fn keep(&mut self, members: Map<String, Value>) {
        self.kept.add(members);
    }

    /// How many bytes are held of which no event has told.
    pub(crate) fn held(&self) -> usize {
        self.kept.size() + self.signed
    }

    /// Whether the arguments of every call so far are JSON, or none.
    pub(crate) fn has_whole_calls(&self) -> bool {
        let is_whole = |open: &Open| !matches!(open.kind, PartKind::ToolCall { .. }) || is_json_or_blank(&open.text);
        !self.cut && self.open.values().all(is_whole)
    }

    /// Whether any text or call came.
    pub(crate) fn has_answer(&self) -> bool {
        self.said || self.calls > 0
    }

    /// What an open part holds so far.
    pub(crate) fn text(&self, index: usize) -> Option<&str> {
        self.open.get(&index).map(|open| open.text.as_str())
    }

    /// Whether a part is open.
    pub(crate) fn is_open(&self, index: usize) -> bool {
        self.open.contains_key(&index)
    }

    /// Closes a part. A call without arguments is a call with none: `{}`.
    pub(crate) fn end(&mut self, index: usize) {
        if self
            .open
            .get(&index)
            .is_some_and(|open| matches!(open.kind, PartKind::ToolCall { .. }) && open.text.trim().is_empty())
        {
            self.delta(index, "{}");
        }
        let Some(Open { kind, text, signature }) = self.open.remove(&index) else { return };
        self.cut |= matches!(kind, PartKind::ToolCall { .. }) && !is_json_or_blank(&text);
        let part = match kind {
            PartKind::Text => Part::Text { text, signature },
            PartKind::Thinking => Part::Thinking { text, signature },
            PartKind::Redacted => Part::Redacted { data: text },
            PartKind::ToolCall { id, name } => Part::ToolCall { id, name, arguments: text, signature },
        };
        self.ready.push(Event::PartEnd { index, part });
    }

    /// Closes every part that is open.
    pub(crate) fn end_all(&mut self) {
        while let Some(index) = self.open.keys().next().copied() {
            self.end(index);
        }
    }

    /// Says what was used so far.
    pub(crate) fn usage(&mut self, usage: Usage) {
        self.begin(None);
        self.ready.push(Event::Usage(usage));
    }

    /// Closes every part that is open, says what was used where that is known, and ends the answer as [`Parts::stop`]
    /// does.
    pub(crate) fn finish(&mut self, usage: Option<Usage>, stop: Stop, word: Option<&str>) -> Result<(), Failure> {
        self.end_all();
        if let Some(usage) = usage {
            self.usage(usage);
        }
        self.stop(stop, word)
    }

    /// Ends the answer. Calls turn an ordinary end into a wish for their results, whatever the provider called it.
    ///
    /// # Errors
    /// The model gave neither text nor calls and did not reach its cap either; the failure holds the provider's own
    /// `word` for the end.
    pub(crate) fn stop(&mut self, stop: Stop, word: Option<&str>) -> Result<(), Failure> {
        self.begin(None);
        self.end_all();
        let stop = match stop {
            Stop::Length => Stop::Length,
            Stop::Stop | Stop::ToolUse if self.calls > 0 => Stop::ToolUse,
            Stop::Stop | Stop::ToolUse if self.said => Stop::Stop,
            Stop::Stop | Stop::ToolUse => return Err(empty(word)),
        };
        self.ready.extend(self.kept.take().map(Event::Payload));
        self.ready.push(Event::Stop(stop));
        Ok(())
    }
}

fn is_json_or_blank(arguments: &str) -> bool {
    arguments.trim().is_empty() || serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::Parts;
    use crate::{Event, PartKind};

    #[test]
    fn calls_of_one_answer_have_ids_of_their_own() {
        let mut parts = Parts::default();
        for id in ["a", "a", "b", "a_2", "a"] {
            parts.start(PartKind::ToolCall { id: id.to_owned(), name: "t".to_owned() });
        }
        let ids: Vec<String> = parts
            .take()
            .into_iter()
            .filter_map(|event| match event {
                Event::PartStart { kind: PartKind::ToolCall { id, .. }, .. } => Some(id),
                _ => None,
            })
            .collect();
        assert_eq!(ids, ["a", "a_2", "b", "a_2_2", "a_3"]);
    }
}
