//! Takes secrets out of texts, and out of outputs that come in pieces.

use std::{borrow::Cow, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

/// Finds every form of some secrets, and puts `[secret NAME]` in its place.
#[derive(Clone, Default)]
pub struct Veil {
    finder: Option<AhoCorasick>,
    /// The forms, and what stands in the place of each.
    forms: Vec<(String, String)>,
    /// The bytes of the longest form.
    longest: usize,
}

impl fmt::Debug for Veil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Veil").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}

impl Veil {
    /// Over forms, each with the name of its secret.
    ///
    /// # Errors
    /// If there is too much to look for: nothing may be released then.
    pub(super) fn over(forms: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let forms: Vec<(String, String)> =
            forms.into_iter().map(|(form, name)| (form, format!("[secret {name}]"))).collect();
        if forms.is_empty() {
            return Ok(Self::default());
        }
        let finder =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(forms.iter().map(|(form, _)| form));
        let finder = finder.map_err(|error| format!("the secrets are too many to be kept out of outputs: {error}"))?;
        let longest = forms.iter().map(|(form, _)| form.len()).max().unwrap_or_default();
        Ok(Self { finder: Some(finder), forms, longest })
    }

    /// Whether `text` tells a secret.
    pub fn is_told(&self, text: &str) -> bool {
        self.finder.as_ref().is_some_and(|finder| finder.is_match(text))
    }

    /// `text` without secrets.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(finder) = self.finder.as_ref().filter(|finder| finder.is_match(text)) else {
            return Cow::Borrowed(text);
        };
        let (mut hidden, mut from) = (String::with_capacity(text.len()), 0);
        for found in finder.find_iter(text) {
            hidden.push_str(&text[from..found.start()]);
            hidden.push_str(&self.forms[found.pattern().as_usize()].1);
            from = found.end();
        }
        hidden.push_str(&text[from..]);
        Cow::Owned(hidden)
    }

    /// Hides in every text of `value`, names of members included.
    pub fn hide_in(&self, value: &mut Value) {
        if self.finder.is_none() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(hidden) = self.hide(text) {
                    *text = hidden;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.hide_in(member));
                if members.keys().any(|name| self.is_told(name)) {
                    let told = std::mem::take(members).into_iter();
                    *members = told.map(|(name, member)| (self.hide(&name).into_owned(), member)).collect();
                }
            }
            // A secret of digits may come back as a number.
            Value::Number(number) => {
                if let Cow::Owned(hidden) = self.hide(&number.to_string()) {
                    *value = Value::String(hidden);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Something that hides in an output which comes in pieces.
    pub fn stream(self: &Arc<Self>) -> Stream {
        Stream { veil: Arc::clone(self), held: Vec::new() }
    }

    /// Whether `end` could be the beginning of a form.
    fn may_begin(&self, end: &[u8]) -> bool {
        self.forms.iter().any(|(form, _)| form.len() > end.len() && form.as_bytes().starts_with(end))
    }
}

/// An output on its way. What could be the beginning of a secret is held until it is known.
pub struct Stream {
    veil: Arc<Veil>,
    held: Vec<u8>,
}

impl Stream {
    /// Takes the next piece, and gives what may be shown by now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        if self.veil.finder.is_none() {
            return piece.to_vec();
        }
        self.held.extend_from_slice(piece);
        // Where less than a longest form follows, more could come that makes a longer match of it.
        let certain = (self.held.len() + 1).saturating_sub(self.veil.longest);
        let until = (certain..self.held.len()).find(|at| self.veil.may_begin(&self.held[*at..]));
        self.release(until.unwrap_or(self.held.len()))
    }

    /// Gives what was held: nothing more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        self.release(self.held.len())
    }

    /// Gives what begins before `until`, hidden.
    fn release(&mut self, until: usize) -> Vec<u8> {
        let Some(finder) = &self.veil.finder else { return std::mem::take(&mut self.held) };
        let (mut shown, mut from) = (Vec::with_capacity(until), 0);
        for found in finder.find_iter(&self.held) {
            if found.start() >= until {
                break;
            }
            shown.extend_from_slice(&self.held[from..found.start()]);
            shown.extend_from_slice(self.veil.forms[found.pattern().as_usize()].1.as_bytes());
            from = found.end();
        }
        let end = from.max(until);
        shown.extend_from_slice(&self.held[from..end]);
        self.held.drain(..end);
        shown
    }
}
