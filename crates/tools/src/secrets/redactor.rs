//! Takes secrets out of texts.

use std::{borrow::Cow, fmt, sync::Arc};

use serde_json::Value;

use super::{
    RedactingStream,
    finder::{FormFinder, FormMatch},
    forms::{SecretForm, secret_forms},
    view::MoreInput,
};

/// Finds every form of some secrets, and puts something else in its place.
#[derive(Default)]
pub struct Redactor(Vec<FormFinder>);

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms: usize = self.0.iter().map(FormFinder::len).sum();
        f.debug_struct("Redactor").field("forms", &forms).finish_non_exhaustive()
    }
}

/// The first thing in a text that has to do with secrets.
pub(super) enum RedactionMatch<'a> {
    /// A form.
    Whole {
        /// Start of the match.
        start: usize,
        /// Start of the text after it.
        end: usize,
        /// Replacement.
        shown: &'a str,
    },
    /// Possible beginning of a form, or of a longer one, if more text comes.
    Begun {
        /// Start of the match.
        start: usize,
    },
}

impl Redactor {
    /// Creates a redactor of `secrets`, which replaces them by `shown`.
    pub fn for_secrets<'a>(secrets: impl IntoIterator<Item = &'a str>, shown: &str) -> Self {
        Self::from_forms(secrets.into_iter().flat_map(|secret| secret_forms(secret, shown)).collect())
    }

    /// Creates a redactor of forms. It shares their texts.
    pub(super) fn from_forms(mut forms: Vec<SecretForm>) -> Self {
        forms.sort_unstable();
        forms.dedup_by(|a, b| (a.view, &a.text) == (b.view, &b.text));
        let views = forms.chunk_by(|a, b| a.view == b.view);
        Self(views.filter_map(|forms| Some(FormFinder::for_forms(forms, forms.first()?.view))).collect())
    }

    /// Returns true if there is nothing to hide.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first match in `text` at or after `from`.
    pub(super) fn next(&self, text: &[u8], from: usize, then: MoreInput) -> Option<RedactionMatch<'_>> {
        if self.is_empty() {
            return None;
        }
        (from..text.len()).find_map(|start| {
            let mut longest: Option<(usize, &str)> = None;
            for finder in &self.0 {
                let FormMatch { whole, open } = finder.match_at(text, start, then);
                if open {
                    return Some(RedactionMatch::Begun { start });
                }
                if let Some((end, shown)) = whole
                    && longest.is_none_or(|(longest, _)| longest < end)
                {
                    longest = Some((end, shown));
                }
            }
            longest.map(|(end, shown)| RedactionMatch::Whole { start, end, shown })
        })
    }

    /// Returns true if `text` contains a secret.
    pub fn contains_secret(&self, text: &str) -> bool {
        self.next(text.as_bytes(), 0, MoreInput::Nothing).is_some()
    }

    /// Returns `text` without secrets.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let (mut hidden, mut from) = (String::new(), 0);
        while let Some(RedactionMatch::Whole { start, end, shown }) =
            self.next(text.as_bytes(), from, MoreInput::Nothing)
        {
            hidden.push_str(&text[from..start]);
            hidden.push_str(shown);
            from = end;
        }
        if from == 0 {
            return Cow::Borrowed(text);
        }
        hidden.push_str(&text[from..]);
        Cow::Owned(hidden)
    }

    /// Hides in every text of `value`, names of members included.
    pub fn redact_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(hidden) = self.redact_text(text) {
                    *text = hidden;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.redact_value(member));
                if members.keys().any(|name| self.contains_secret(name)) {
                    let entries = std::mem::take(members).into_iter();
                    *members = entries.map(|(name, member)| (self.redact_text(&name).into_owned(), member)).collect();
                }
            }
            // A secret of digits may come back as a number.
            Value::Number(number) => {
                if let Cow::Owned(hidden) = self.redact_text(&number.to_string()) {
                    *value = Value::String(hidden);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Creates a stream that hides secrets in an output which comes in pieces.
    pub fn redacting_stream(self: &Arc<Self>) -> RedactingStream {
        RedactingStream::with_redactor(Arc::clone(self))
    }
}
