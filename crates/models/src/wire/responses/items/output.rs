//! The whole output at the end of an answer, compared with the items that came before: what is missing of them, what is
//! said of them only there, and where reasoning belongs that came behind what it led to.
//!
//! It must not know how items are put together from deltas.

use serde_json::{Value, value::RawValue};

use super::{Items, Kind, Known, has_content, kind_of, members, signature, texts};
use crate::{
    Failure, Stop, Usage,
    wire::{kept::Late, misplaced, read, responses::decoder::Item},
};

impl Items {
    /// Ends the answer, compared with its whole `output` where the server says that.
    pub(in crate::wire::responses) fn finish(
        &mut self,
        output: &[&RawValue],
        usage: Option<Usage>,
        stop: Stop,
    ) -> Result<(), Failure> {
        let items =
            output.iter().map(|raw| Ok((read::<Item>(raw.get())?, *raw))).collect::<Result<Vec<_>, Failure>>()?;
        let known = self.matched(&items);
        let mut thoughts = Vec::new();
        for (place, (item, raw)) in items.iter().enumerate() {
            let at = match known[place] {
                Some(at) => at,
                None => self.start(None, item, raw)?,
            };
            self.items[at].is_matched = true;
            let was_open = known[place].is_none() || self.parts.is_open(self.items[at].part);
            // What it led to may have come before it.
            let is_behind = known[place].is_none() && known[place..].iter().any(Option::is_some);
            let whole = self.with_seal(at, item, raw);
            if self.items[at].kind == Kind::Thinking && (is_behind || !was_open) {
                if self.is_more(at, item) {
                    thoughts.extend(serde_json::from_str::<Value>(&whole));
                }
                let text = [&item.summary, &item.content].into_iter().map(texts).find(|text| !text.is_empty());
                self.parts.complete(self.items[at].part, &text.unwrap_or_default());
            } else {
                self.complete(at, item, &whole)?;
                self.keep_late(at, item, &mut thoughts);
            }
            self.parts.end(self.items[at].part);
        }
        if let Some(orphan) = self.orphans.values().find(|orphan| !orphan.trim().is_empty()) {
            return Err(misplaced(&format!("arguments of a call that never came: {orphan}")));
        }
        self.end_where(|_| true);
        self.parts.finish(usage, stop, None)
    }

    /// Whether an item of reasoning says more than what its part is signed with.
    fn is_more(&self, at: usize, item: &Item) -> bool {
        let known = &self.items[at];
        (item.is_sealed() && !known.is_sealed) || (has_content(item) && known.signed.is_none())
    }

    /// Keeps what the whole output says of a text or a call that is over, and the reasoning that belongs in front of it.
    fn keep_late(&mut self, at: usize, item: &Item, thoughts: &mut Vec<Value>) {
        let known = &self.items[at];
        let is_blank = |known: &Known| known.said.values().all(|text| text.trim().is_empty());
        let mut late = Late::default();
        match known.kind {
            Kind::Call => late.call = Some(known.told.clone()),
            Kind::Text if !is_blank(known) => {
                let texts = self.items[..at].iter().filter(|known| known.kind == Kind::Text && !is_blank(known));
                late.text = Some(texts.count());
            }
            Kind::Text | Kind::Thinking => return,
        }
        let signature = signature(item).filter(|signature| known.signed.as_ref() != Some(signature));
        late.members = members(signature.as_deref());
        late.before = std::mem::take(thoughts);
        self.parts.keep_late(late);
    }

    /// The items that those of the whole output are: by their ids, else by those of their calls, else the first ones of
    /// their kind that are none yet.
    fn matched(&mut self, output: &[(Item, &RawValue)]) -> Vec<Option<usize>> {
        let mut found = vec![None; output.len()];
        let fits: [fn(&Known, &Item) -> bool; 3] = [
            |known, item| known.id.is_some() && known.id == item.id,
            |known, item| known.call_id.is_some() && known.call_id == item.call_id,
            |_, _| true,
        ];
        for fits in fits {
            for (place, (item, _)) in output.iter().enumerate() {
                if found[place].is_some() {
                    continue;
                }
                let is_it = |known: &Known| Some(known.kind) == kind_of(item) && !known.is_matched && fits(known, item);
                found[place] = self.items.iter().position(is_it);
                if let Some(at) = found[place] {
                    self.items[at].is_matched = true;
                }
            }
        }
        found
    }
}
