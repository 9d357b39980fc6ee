//! The events of one answer in the making: gives parts their indices and collects what their ends must hold.
//!
//! It must not know any wire.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Event, Part, PartKind, Stop, Usage};

/// Events that are ready, and the parts that are still open.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    ready: Vec<Event>,
    begun: bool,
    next: usize,
    open: BTreeMap<usize, Open>,
    called: bool,
    /// The ids of calls that were opened.
    ids: BTreeSet<String>,
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
            self.ready.push(Event::Start { response_id: response_id.filter(|id| !id.is_empty()) });
        }
    }

    /// Opens a part and says its index. A call whose id another of this answer has is given one of its own.
    pub(crate) fn start(&mut self, mut kind: PartKind) -> usize {
        self.begin(None);
        if let PartKind::ToolCall { id, .. } = &mut kind {
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
        self.called |= matches!(kind, PartKind::ToolCall { .. });
        self.ready.push(Event::PartStart { index, kind: kind.clone() });
        self.open.insert(index, Open { kind, text: String::new(), signature: None });
        index
    }

    /// Adds to an open part. Nothing is not worth an event.
    pub(crate) fn delta(&mut self, index: usize, text: &str) {
        let Some(open) = self.open.get_mut(&index).filter(|_| !text.is_empty()) else { return };
        open.text.push_str(text);
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
        }
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
    pub(crate) fn finish(&mut self, usage: Option<Usage>, stop: Stop) {
        self.end_all();
        if let Some(usage) = usage {
            self.usage(usage);
        }
        self.stop(stop);
    }

    /// Ends the answer. Calls turn an ordinary end into a wish for their results, whatever the provider called it.
    pub(crate) fn stop(&mut self, stop: Stop) {
        self.begin(None);
        self.end_all();
        let stop = match stop {
            Stop::Length => Stop::Length,
            Stop::Stop | Stop::ToolUse if self.called => Stop::ToolUse,
            Stop::Stop | Stop::ToolUse => Stop::Stop,
        };
        self.ready.push(Event::Stop(stop));
    }
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
