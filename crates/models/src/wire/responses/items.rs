//! The items of one answer of Responses, put together from deltas, from the values when they are done, and from the
//! whole output at the end: servers leave out any of the three, and the numbers and ids that distinguish items.
//!
//! It must not know events: the decoder reads those.

use std::{collections::BTreeMap, vec::Drain};

use serde_json::{Map, Value, value::RawValue};

use super::decoder::{OutputContent, OutputItem};
use crate::{
    ModelEvent, ModelFailure, PartKind,
    wire::{
        is_same_json, malformed_stream, parse_json,
        parts::PartAssembler,
        unplaced::{ContentRule, find_unplaced},
        unreadable_content,
    },
};

mod output;

/// Place that an event names: the index and the id of its item.
type ItemPlace<'a> = (Option<u64>, Option<&'a str>);

/// Members of items that are written again from their parts, or that mean nothing in a request.
const WRITTEN: [&str; 11] = [
    "type",
    "id",
    "call_id",
    "name",
    "arguments",
    "role",
    "content",
    "summary",
    "status",
    "encrypted_content",
    "logprobs",
];

/// The items so far.
#[derive(Default)]
pub(super) struct ItemAssembler {
    parts: PartAssembler,
    items: Vec<KnownItem>,
    /// Arguments that came before their call, by the place that they named.
    orphans: BTreeMap<(Option<u64>, Option<String>), String>,
}

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Text,
    Thinking,
    Call,
}

struct KnownItem {
    kind: ItemKind,
    at: Option<u64>,
    id: Option<String>,
    /// The id of a call, which is not that of its item.
    call_id: Option<String>,
    part: usize,
    /// The tool of a call.
    name: String,
    /// The id of a call in events.
    reported_id: String,
    /// Reasoning as it began, if it was sealed then.
    begun: Option<String>,
    /// True if the part is signed with sealed reasoning.
    is_sealed: bool,
    /// Signature of the part.
    signed: Option<String>,
    /// Its content so far: the arguments, or texts by their index.
    texts: BTreeMap<u64, String>,
    /// True if the server reported that it is done.
    is_done: bool,
    /// True if the whole output at the end was compared with it.
    is_matched: bool,
}

impl ItemAssembler {
    pub(super) fn take_events(&mut self) -> Drain<'_, ModelEvent> {
        self.parts.take_events()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.parts.held_bytes() + self.orphans.values().map(String::len).sum::<usize>()
    }

    /// Returns all text so far.
    pub(super) fn all_text(&self) -> String {
        let texts = self.items.iter().filter(|known| known.kind == ItemKind::Text);
        texts.flat_map(|known| known.texts.values().map(String::as_str)).collect()
    }

    pub(super) fn begin_answer(&mut self, response_id: Option<String>) {
        self.parts.begin_answer(response_id);
    }

    /// Reports whether the arguments of every call so far are JSON.
    pub(super) fn has_whole_calls(&self) -> bool {
        self.parts.has_whole_calls() && !self.parts.has_blank_calls()
    }

    /// Reports whether the item there is thinking, whose texts come in events of its own.
    pub(super) fn is_thinking(&self, place: ItemPlace<'_>) -> bool {
        self.find_item(ItemKind::Thinking, place).is_some() && self.find_item(ItemKind::Text, place).is_none()
    }

    /// Begins an item.
    pub(super) fn start_item(
        &mut self,
        at: Option<u64>,
        item: &OutputItem,
        raw: &RawValue,
    ) -> Result<usize, ModelFailure> {
        let kind = match item.r#type.as_str() {
            "message" => ItemKind::Text,
            "reasoning" => ItemKind::Thinking,
            "function_call" => ItemKind::Call,
            other => return Err(unreadable_content(&format!("an item of type {other:?}"))),
        };
        check_item(kind, item)?;
        let id = item.id.as_deref().filter(|id| !id.is_empty());
        let is_again = |known: &KnownItem| known.kind == kind && id.is_some() && known.id.as_deref() == id;
        if let Some(again) = self.items.iter().position(is_again) {
            return Ok(again);
        }
        // Another item with the same number ends the one before it.
        self.end_where(|known| at.is_some() && known.at == at);
        let call = || {
            let id = [&item.call_id, &item.id].into_iter().flatten().find(|id| !id.is_empty());
            (id.cloned().unwrap_or_default(), item.name.clone().unwrap_or_default())
        };
        let begun = self.open_item(kind, at, item.id.clone(), call);
        self.items[begun].call_id = item.call_id.clone().filter(|id| kind == ItemKind::Call && !id.is_empty());
        self.items[begun].begun = Some(raw.get().to_owned()).filter(|_| kind == ItemKind::Thinking && item.is_sealed());
        Ok(begun)
    }

    fn open_item(
        &mut self,
        kind: ItemKind,
        at: Option<u64>,
        id: Option<String>,
        call: impl FnOnce() -> (String, String),
    ) -> usize {
        // An item that nothing names ends with the next one.
        self.end_where(|known| known.at.is_none() && known.id.is_none());
        let mut name = String::new();
        let part = self.parts.start_part(match kind {
            ItemKind::Text => PartKind::Text,
            ItemKind::Thinking => PartKind::Thinking,
            ItemKind::Call => {
                let (id, called) = call();
                name.clone_from(&called);
                PartKind::ToolCall { id, name: called }
            }
        });
        let reported_id = match self.parts.part_kind(part) {
            Some(PartKind::ToolCall { id, .. }) => id.clone(),
            Some(PartKind::Text | PartKind::Thinking | PartKind::Redacted) | None => String::new(),
        };
        let id = id.filter(|id| !id.is_empty());
        self.items.push(KnownItem {
            kind,
            at,
            id,
            call_id: None,
            part,
            name,
            reported_id,
            begun: None,
            is_sealed: false,
            signed: None,
            texts: BTreeMap::new(),
            is_done: false,
            is_matched: false,
        });
        self.items.len() - 1
    }

    /// Ends the items that fit. Reasoning that was sealed when it began is signed as it began.
    fn end_where(&mut self, fits: impl Fn(&KnownItem) -> bool) {
        for at in 0..self.items.len() {
            if fits(&self.items[at]) {
                if let Some(begun) = self.items[at].begun.take() {
                    self.sign_item(at, &begun, true);
                }
                self.parts.end_part(self.items[at].part);
            }
        }
    }

    /// Signs the part of an item, unless that is over or signed.
    fn sign_item(&mut self, at: usize, signature: &str, is_sealed: bool) {
        let known = &mut self.items[at];
        if self.parts.is_open(known.part) && !self.parts.is_signed(known.part) && !signature.is_empty() {
            self.parts.add_signature(known.part, signature);
            known.signed = Some(signature.to_owned());
            known.is_sealed = is_sealed;
        }
    }

    /// Finds the item of this kind at that place: by its id, else by its number, else the last one that is open. Some servers
    /// give one item several ids.
    fn find_item(&self, kind: ItemKind, (at, id): ItemPlace<'_>) -> Option<usize> {
        let by =
            |fits: &dyn Fn(&KnownItem) -> bool| self.items.iter().rposition(|known| known.kind == kind && fits(known));
        let id = id.filter(|id| !id.is_empty());
        id.and_then(|id| by(&|known| known.id.as_deref() == Some(id))).or_else(|| match at {
            Some(_) => by(&|known| known.at == at && self.parts.is_open(known.part))
                .or_else(|| by(&|known| known.at == at && (id.is_none() || known.id.is_none()))),
            None => by(&|known| self.parts.is_open(known.part) && (id.is_none() || known.id.is_none())),
        })
    }

    /// Adds a delta. An item that was never begun begins with it.
    pub(super) fn add_delta(
        &mut self,
        kind: ItemKind,
        place: ItemPlace<'_>,
        index: u64,
        delta: &str,
    ) -> Result<(), ModelFailure> {
        if delta.is_empty() {
            return Ok(());
        }
        let found = self.find_item(kind, place);
        let item = match found {
            Some(item) if self.parts.is_open(self.items[item].part) => item,
            Some(_) if kind == ItemKind::Text => return Err(malformed_stream("text after the end of its item")),
            Some(_) => return Ok(()),
            None => self.open_item(kind, place.0, place.1.map(str::to_owned), Default::default),
        };
        self.parts.push_delta(self.items[item].part, delta);
        self.items[item].texts.entry(index).or_default().push_str(delta);
        Ok(())
    }

    /// Adds a delta of the arguments of a call, or keeps it until the call comes.
    pub(super) fn add_arguments(&mut self, place: ItemPlace<'_>, delta: &str) {
        match self.find_item(ItemKind::Call, place).filter(|item| self.parts.is_open(self.items[*item].part)) {
            Some(item) => self.say_arguments(item, delta),
            None if delta.is_empty() => {}
            None => self.orphans.entry((place.0, place.1.map(str::to_owned))).or_default().push_str(delta),
        }
    }

    fn say_arguments(&mut self, item: usize, more: &str) {
        self.parts.push_delta(self.items[item].part, more);
        self.items[item].texts.entry(0).or_default().push_str(more);
    }

    /// Learns the whole arguments of a call.
    pub(super) fn whole_arguments(
        &mut self,
        place: ItemPlace<'_>,
        name: Option<String>,
        whole: &str,
    ) -> Result<(), ModelFailure> {
        let item = match (self.find_item(ItemKind::Call, place), name.filter(|name| !name.is_empty())) {
            (Some(item), _) => item,
            (None, Some(name)) => {
                let id = place.1.unwrap_or_default().to_owned();
                self.open_item(ItemKind::Call, place.0, place.1.map(str::to_owned), || (id, name))
            }
            (None, None) => {
                let orphan = self.orphans.entry((place.0, place.1.map(str::to_owned))).or_default();
                if !whole.starts_with(orphan.as_str()) {
                    return Err(malformed_stream("the arguments of a call do not match its deltas"));
                }
                whole.clone_into(orphan);
                return Ok(());
            }
        };
        self.complete_call(item, whole)
    }

    fn complete_call(&mut self, item: usize, whole: &str) -> Result<(), ModelFailure> {
        let known_arguments = self.items[item].texts.get(&0).cloned().unwrap_or_default();
        if whole.trim().is_empty() || is_same_json(&known_arguments, whole) {
            self.drop_orphans(&known_arguments);
            return Ok(());
        }
        match whole.strip_prefix(known_arguments.as_str()) {
            Some(rest) if self.parts.is_open(self.items[item].part) => {
                let rest = rest.to_owned();
                self.say_arguments(item, &rest);
            }
            Some(_) | None => return Err(malformed_stream("the arguments of a call do not match its deltas")),
        }
        self.drop_orphans(whole);
        Ok(())
    }

    /// Forgets arguments without a call that a call has after all.
    fn drop_orphans(&mut self, whole: &str) {
        self.orphans.retain(|_, orphan| !orphan.is_empty() && !whole.contains(orphan.as_str()));
    }

    /// Learns the whole of a text with this index.
    pub(super) fn whole_text(&mut self, place: ItemPlace<'_>, index: u64, whole: &str) -> Result<(), ModelFailure> {
        if whole.is_empty() {
            return Ok(());
        }
        let item = match self.find_item(ItemKind::Text, place) {
            Some(item) => item,
            None => self.open_item(ItemKind::Text, place.0, place.1.map(str::to_owned), Default::default),
        };
        self.complete_text(item, index, whole)
    }

    fn complete_text(&mut self, item: usize, index: u64, whole: &str) -> Result<(), ModelFailure> {
        let known = &mut self.items[item];
        let known_text = known.texts.entry(index).or_default();
        if known_text.contains(whole.trim()) {
            return Ok(());
        }
        match whole.strip_prefix(known_text.as_str()) {
            Some(rest) if self.parts.is_open(known.part) => {
                self.parts.push_delta(known.part, rest);
                known_text.push_str(rest);
                Ok(())
            }
            Some(_) | None => Err(malformed_stream("the text of an item does not match its deltas")),
        }
    }

    /// Ends an item, completed with the values that no delta brought.
    pub(super) fn finish_item(&mut self, at: Option<u64>, raw: &RawValue) -> Result<(), ModelFailure> {
        let item: OutputItem = parse_json(raw.get())?;
        let kind = kind_of(&item);
        let known =
            kind.and_then(|kind| self.find_item(kind, (at, item.id.as_deref())).or_else(|| self.find_nameless(kind)));
        let known = match known {
            Some(known) => known,
            None => self.start_item(at, &item, raw)?,
        };
        self.items[known].is_done = true;
        self.complete_item(known, &item, &self.with_seal(known, &item, raw))?;
        self.parts.end_part(self.items[known].part);
        Ok(())
    }

    /// Finds an item that came without a number and an id, and that is not done yet. Its part may be over: the next item ended it.
    fn find_nameless(&self, kind: ItemKind) -> Option<usize> {
        let is_it =
            |known: &KnownItem| known.kind == kind && known.at.is_none() && known.id.is_none() && !known.is_done;
        self.items.iter().position(is_it)
    }

    /// Returns the item as it is at its end, with the seal that it may have had at its beginning only.
    fn with_seal(&self, at: usize, item: &OutputItem, raw: &RawValue) -> String {
        let begun = self.items[at].begun.as_deref().filter(|_| !item.is_sealed());
        let members = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
        match begun.and_then(|begun| members(begun).shift_remove("encrypted_content")) {
            Some(seal) => {
                let mut whole = members(raw.get());
                whole.insert("encrypted_content".to_owned(), seal);
                Value::from(whole).to_string()
            }
            None => raw.get().to_owned(),
        }
    }

    /// Completes an item with its missing values, and signs it with `whole`, the complete item.
    fn complete_item(&mut self, at: usize, item: &OutputItem, whole: &str) -> Result<(), ModelFailure> {
        check_item(self.items[at].kind, item)?;
        let part = self.items[at].part;
        match self.items[at].kind {
            ItemKind::Thinking => {
                let summary = joined_texts(&item.summary);
                let text = if summary.is_empty() { joined_texts(&item.content) } else { summary };
                self.parts.complete_text(part, &text);
                // The whole item is what goes back. Without its content it is known to a server that stores it only.
                let is_sealed = item.is_sealed() || self.items[at].begun.is_some();
                if is_sealed || has_content(item) {
                    self.sign_item(at, whole, is_sealed);
                }
            }
            ItemKind::Call
                if item.name.as_ref().is_some_and(|name| !name.is_empty() && *name != self.items[at].name) =>
            {
                return Err(malformed_stream("the name of a call changed within the stream"));
            }
            ItemKind::Call => {
                self.complete_call(at, item.arguments.as_deref().unwrap_or_default())?;
                let status = item.rest.get("status").and_then(Value::as_str);
                if status.is_some_and(|status| !["completed", "in_progress"].contains(&status)) {
                    self.parts.mark_cut(part);
                }
            }
            ItemKind::Text => {
                // Not every delta names the text that it belongs to.
                let whole: String = item.content.iter().flatten().filter_map(OutputContent::content_text).collect();
                let known_text: String = self.items[at].texts.values().map(String::as_str).collect();
                if !known_text.contains(whole.trim()) {
                    for (index, text) in item.content.iter().flatten().enumerate() {
                        self.complete_text(at, index as u64, &text.content_text().unwrap_or_default())?;
                    }
                }
            }
        }
        if self.items[at].kind != ItemKind::Thinking {
            self.sign_item(at, &item_signature(item).unwrap_or_default(), false);
        }
        Ok(())
    }
}

fn has_content(item: &OutputItem) -> bool {
    item.content.as_ref().is_some_and(|content| !content.is_empty())
}

fn kind_of(item: &OutputItem) -> Option<ItemKind> {
    match item.r#type.as_str() {
        "message" => Some(ItemKind::Text),
        "reasoning" => Some(ItemKind::Thinking),
        "function_call" => Some(ItemKind::Call),
        _ => None,
    }
}

/// Refuses content of an item that is read nowhere: that of another kind of item, and that in other members.
fn check_item(kind: ItemKind, item: &OutputItem) -> Result<(), ModelFailure> {
    let has_text = |contents: &Option<Vec<OutputContent>>| {
        contents.iter().flatten().any(|content| content.content_text().is_some())
    };
    let has_arguments = item.arguments.as_ref().is_some_and(|arguments| !arguments.trim().is_empty());
    let is_stray = match kind {
        ItemKind::Text => has_arguments || has_text(&item.summary),
        ItemKind::Thinking => has_arguments,
        ItemKind::Call => has_text(&item.content) || has_text(&item.summary),
    };
    if is_stray {
        return Err(malformed_stream(&format!("an item of type {:?} with content of another type", item.r#type)));
    }
    item.content.iter().chain(&item.summary).flatten().try_for_each(OutputContent::check_readable)?;
    find_unplaced(&item.rest, ContentRule::Content)
        .map_or(Ok(()), |name| Err(unreadable_content(&format!("an item of type {:?} with {name}", item.r#type))))
}

fn joined_texts(contents: &Option<Vec<OutputContent>>) -> String {
    contents.iter().flatten().filter_map(OutputContent::content_text).collect::<Vec<_>>().join("\n\n")
}

/// Returns the data of an item that goes back with its part, such as `phase`. Hosts of omp read the same form.
fn item_signature(item: &OutputItem) -> Option<String> {
    let rest = item.rest.iter().filter(|(name, value)| !WRITTEN.contains(&name.as_str()) && !value.is_null());
    let rest: Map<String, Value> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    if rest.is_empty() {
        return None;
    }
    let head = [("v".to_owned(), 1.into()), ("id".to_owned(), item.id.clone().unwrap_or_default().into())];
    Some(Value::from(head.into_iter().chain(rest).collect::<Map<_, _>>()).to_string())
}

/// Returns the members that go back with an item whose part is signed so.
pub(super) fn signed_members(signature: Option<&str>) -> Map<String, Value> {
    unwritten_members(crate::wire::kept_members::parse_object(signature))
}

/// Returns the members of an item that are not written from its part.
pub(super) fn unwritten_members(mut members: Map<String, Value>) -> Map<String, Value> {
    members.retain(|name, _| name != "v" && !WRITTEN.contains(&name.as_str()));
    members
}
