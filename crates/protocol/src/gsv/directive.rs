//! Directives within a message (`/think:high`, `/model:p/id`, `/status`), levels of thinking, and names of models.

use serde::{Deserialize, Serialize};

use super::chat::Directives;

/// Thinking level of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkLevel {
    /// Not at all.
    None,
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As hard as it can.
    XHigh,
}

/// The levels, as text for people.
pub const LEVELS: &str = "Levels: off, minimal, low, medium, high, xhigh";

/// The words of a level as settings have it; that of people for none at all too.
pub(super) const WORDS: [(&str, ThinkLevel); 7] = [
    ("none", ThinkLevel::None),
    ("off", ThinkLevel::None),
    ("minimal", ThinkLevel::Minimal),
    ("low", ThinkLevel::Low),
    ("medium", ThinkLevel::Medium),
    ("high", ThinkLevel::High),
    ("xhigh", ThinkLevel::XHigh),
];

impl ThinkLevel {
    /// Reads a level as people write it.
    pub fn from_text(text: &str) -> Option<Self> {
        Some(match text.trim().to_ascii_lowercase().as_str() {
            "off" | "none" | "0" => Self::None,
            "minimal" | "min" | "1" => Self::Minimal,
            "low" | "2" => Self::Low,
            "medium" | "med" | "3" => Self::Medium,
            "high" | "4" => Self::High,
            "xhigh" | "max" | "5" => Self::XHigh,
            _ => return None,
        })
    }

    /// Returns the word of the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
        }
    }

    /// Returns the word that people are shown.
    pub const fn display_name(self) -> &'static str {
        match self {
            Self::None => "off",
            Self::Minimal | Self::Low | Self::Medium | Self::High | Self::XHigh => self.name(),
        }
    }

    /// Returns the error text for an unknown level.
    pub fn invalid_message(text: &str) -> String {
        format!("Invalid level: {text}\n{LEVELS}")
    }
}

/// A model by its provider and its id there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSelector {
    /// The provider.
    pub provider: String,
    /// The id, which may hold `/` too.
    pub id: String,
}

/// Hint for people on how to name a model.
pub const MODEL_HINT: &str = "Use provider/id, or an id of the current provider.";

/// Longest name of a model, in bytes.
const LONGEST_MODEL: usize = 1024;

impl ModelSelector {
    /// Reads `provider/id`, or an id of the session's provider.
    pub fn from_text(text: &str, provider: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > LONGEST_MODEL || text.contains(char::is_whitespace) {
            return None;
        }
        let (provider, id) = text.split_once('/').unwrap_or((provider, text));
        let found = Self { provider: provider.to_lowercase(), id: id.to_owned() };
        (!found.provider.is_empty() && !found.id.is_empty()).then_some(found)
    }

    /// Returns the error text for an unreadable model name.
    pub fn invalid_message(text: &str) -> String {
        format!("Invalid model selector: {text}\n{MODEL_HINT}")
    }
}

impl std::fmt::Display for ModelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.id)
    }
}

/// Directives of a message for its own run, and the rest of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedDirectives {
    /// Directives that were understood.
    pub directives: Directives,
    /// A model that was named and is none.
    pub invalid_model: Option<String>,
    /// True if the state of the session is requested.
    pub status: bool,
    /// True if there was any directive, understood or not.
    pub any: bool,
    /// The message without them. Its line breaks stay.
    pub text: String,
}

impl ParsedDirectives {
    /// Returns true if there was nothing else in the message.
    pub fn is_all(&self) -> bool {
        self.any && self.text.trim().is_empty()
    }

    /// Returns the reply to directives that came alone. None if there is nothing to reply.
    pub fn acknowledgement(&self) -> Option<String> {
        if let Some(model) = &self.invalid_model {
            return Some(ModelSelector::invalid_message(model));
        }
        let level = self.directives.think_level.map(|level| format!("Thinking: {}", level.display_name()));
        let model = self.directives.model.as_ref().map(|model| format!("Model: {model}"));
        let parts: Vec<String> = level.into_iter().chain(model).collect();
        (!parts.is_empty()).then(|| format!("_{}_", parts.join(" | ")))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectiveKind {
    Think,
    Model,
    Status,
}

fn directive_kind(word: &str) -> Option<(DirectiveKind, &str)> {
    if word.eq_ignore_ascii_case("/status") {
        return Some((DirectiveKind::Status, ""));
    }
    let (name, value) = word.split_once(':')?;
    match name.to_ascii_lowercase().as_str() {
        "/think" | "/thinking" | "/t" => Some((DirectiveKind::Think, value)),
        "/model" | "/m" => Some((DirectiveKind::Model, value)),
        _ => None,
    }
}

/// Takes the first directive of each kind out of a message. `provider` is the session's.
pub fn parse_directives(message: &str, provider: &str) -> ParsedDirectives {
    let mut parsed = ParsedDirectives::default();
    let mut seen: Vec<DirectiveKind> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for line in message.split('\n') {
        let mut kept = String::with_capacity(line.len());
        let mut rest = line;
        let mut is_cut = false;
        while let Some(begin) = rest.find(|c: char| !c.is_whitespace()) {
            let end = rest[begin..].find(char::is_whitespace).map_or(rest.len(), |length| begin + length);
            let directive = directive_kind(&rest[begin..end]).filter(|(kind, _)| !seen.contains(kind));
            if let Some((kind, value)) = directive {
                seen.push(kind);
                is_cut = true;
                apply_directive(&mut parsed, kind, value, provider);
                // The space before the directive stays, the space after it is removed.
                kept.push_str(&rest[..begin]);
                rest = rest[end..].trim_start();
            } else {
                kept.push_str(&rest[..end]);
                rest = &rest[end..];
            }
        }
        kept.push_str(rest);
        match (is_cut, kept.trim_end()) {
            // A line of nothing but directives goes as a whole.
            (true, "") => {}
            (true, kept) => lines.push(kept.to_owned()),
            (false, _) => lines.push(kept),
        }
    }
    parsed.any = !seen.is_empty();
    parsed.text = lines.join("\n");
    parsed
}

fn apply_directive(parsed: &mut ParsedDirectives, kind: DirectiveKind, value: &str, provider: &str) {
    match kind {
        DirectiveKind::Status => parsed.status = true,
        DirectiveKind::Think => parsed.directives.think_level = ThinkLevel::from_text(value),
        DirectiveKind::Model => match ModelSelector::from_text(value, provider) {
            Some(model) => parsed.directives.model = Some(model),
            None => parsed.invalid_model = Some(value.to_owned()),
        },
    }
}
