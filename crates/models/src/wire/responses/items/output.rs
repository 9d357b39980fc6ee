//! The whole output at the end of an answer, compared with the items that came before: missing ones, data that is
//! only there, and the place of reasoning that came after the items that it led to.
//!
//! It must not know how items are put together from deltas.

use serde_json::{Value, value::RawValue};

use super::{ItemAssembler, ItemKind, KnownItem, has_content, item_signature, joined_texts, kind_of, signed_members};
use crate::{
    FinishReason, ModelFailure, ModelUsage,
    wire::{kept_members::LateMembers, malformed_stream, parse_json, responses::decoder::OutputItem},
};

impl ItemAssembler {
    /// Ends the answer, compared with its whole `output` where the server says that.
    pub(in crate::wire::responses) fn finish_answer(
        &mut self,
        output: &[&RawValue],
        usage: Option<ModelUsage>,
        stop: FinishReason,
    ) -> Result<(), ModelFailure> {
        let items = output
            .iter()
            .map(|raw| Ok((parse_json::<OutputItem>(raw.get())?, *raw)))
            .collect::<Result<Vec<_>, ModelFailure>>()?;
        let known = self.match_items(&items);
        let mut thoughts = Vec::new();
        for (place, (item, raw)) in items.iter().enumerate() {
            let at = match known[place] {
                Some(at) => at,
                None => self.start_item(None, item, raw)?,
            };
            self.items[at].is_matched = true;
            let was_open = known[place].is_none() || self.parts.is_open(self.items[at].part);
            // The item that it led to may have come before it.
            let is_behind = known[place].is_none() && known[place..].iter().any(Option::is_some);
            let whole = self.with_seal(at, item, raw);
            if self.items[at].kind == ItemKind::Thinking && (is_behind || !was_open) {
                if self.is_more(at, item) {
                    thoughts.extend(serde_json::from_str::<Value>(&whole));
                }
                let text = [&item.summary, &item.content].into_iter().map(joined_texts).find(|text| !text.is_empty());
                self.parts.complete_text(self.items[at].part, &text.unwrap_or_default());
            } else {
                self.complete_item(at, item, &whole)?;
                self.keep_late(at, item, &mut thoughts);
            }
            self.parts.end_part(self.items[at].part);
        }
        if let Some(orphan) = self.orphans.values().find(|orphan| !orphan.trim().is_empty()) {
            return Err(malformed_stream(&format!("arguments of a tool call that was never sent: {orphan}")));
        }
        self.end_where(|_| true);
        self.parts.finish_answer(usage, stop, None)
    }

    /// Reports whether an item of reasoning has more than its part's signature.
    fn is_more(&self, at: usize, item: &OutputItem) -> bool {
        let known = &self.items[at];
        (item.is_sealed() && !known.is_sealed) || (has_content(item) && known.signed.is_none())
    }

    /// Keeps the members that the whole output has for a text or a call that is over, and the reasoning that belongs in front of it.
    fn keep_late(&mut self, at: usize, item: &OutputItem, thoughts: &mut Vec<Value>) {
        let known = &self.items[at];
        let is_blank = |known: &KnownItem| known.texts.values().all(|text| text.trim().is_empty());
        let mut late = LateMembers::default();
        match known.kind {
            ItemKind::Call => late.call = Some(known.reported_id.clone()),
            ItemKind::Text if !is_blank(known) => {
                let texts = self.items[..at].iter().filter(|known| known.kind == ItemKind::Text && !is_blank(known));
                late.text = Some(texts.count());
            }
            ItemKind::Text | ItemKind::Thinking => return,
        }
        let signature = item_signature(item).filter(|signature| known.signed.as_ref() != Some(signature));
        late.members = signed_members(signature.as_deref());
        late.before = std::mem::take(thoughts);
        self.parts.keep_late(late);
    }

    /// Returns the items that those of the whole output are: by their ids, else by those of their calls, else the first ones of
    /// their kind that are none yet.
    fn match_items(&mut self, output: &[(OutputItem, &RawValue)]) -> Vec<Option<usize>> {
        let mut found = vec![None; output.len()];
        let fits: [fn(&KnownItem, &OutputItem) -> bool; 3] = [
            |known, item| known.id.is_some() && known.id == item.id,
            |known, item| known.call_id.is_some() && known.call_id == item.call_id,
            |_, _| true,
        ];
        for fits in fits {
            for (place, (item, _)) in output.iter().enumerate() {
                if found[place].is_some() {
                    continue;
                }
                let is_it =
                    |known: &KnownItem| Some(known.kind) == kind_of(item) && !known.is_matched && fits(known, item);
                found[place] = self.items.iter().position(is_it);
                if let Some(at) = found[place] {
                    self.items[at].is_matched = true;
                }
            }
        }
        found
    }
}
