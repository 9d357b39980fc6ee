//! A model as a catalogue lists it: its address, its abilities and its price.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The wire that a model's provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelApi {
    /// Anthropic's Messages: `{base}/v1/messages`.
    AnthropicMessages,
    /// OpenAI's Chat Completions: `{base}/chat/completions`.
    OpenaiCompletions,
    /// OpenAI's Responses: `{base}/responses`.
    OpenaiResponses,
    /// Google's Generative Language: `{base}/models/{id}:streamGenerateContent`.
    GoogleGenerativeAi,
    /// The built-in scripted model. It needs no provider and says that it is scripted.
    Demo,
}

impl ModelApi {
    /// Returns the name in settings files and on the wire of the adapters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::GoogleGenerativeAi => "google-generative-ai",
            Self::Demo => "demo",
        }
    }
}

impl fmt::Display for ModelApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name is not one of the wires that are spoken here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown api {0:?}: one of anthropic-messages, openai-completions, openai-responses, google-generative-ai")]
pub struct UnknownApi(pub String);

impl FromStr for ModelApi {
    type Err = UnknownApi;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "anthropic-messages" => Ok(Self::AnthropicMessages),
            "openai-completions" => Ok(Self::OpenaiCompletions),
            "openai-responses" => Ok(Self::OpenaiResponses),
            "google-generative-ai" => Ok(Self::GoogleGenerativeAi),
            other => Err(UnknownApi(other.to_owned())),
        }
    }
}

/// Kind of input that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputModality {
    /// Text.
    Text,
    /// Images.
    Image,
}

/// Dollars for a million tokens of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenPrice {
    /// Uncached input.
    #[serde(default)]
    pub input: f64,
    /// Output, thinking included.
    #[serde(default)]
    pub output: f64,
    /// Cached input.
    #[serde(default)]
    pub cache_read: f64,
    /// Input written to the cache.
    #[serde(default)]
    pub cache_write: f64,
}

/// Amount of thinking of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// No thinking.
    Off,
    /// As little as the model can.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as the model can.
    Xhigh,
}

impl ThinkingLevel {
    /// All of them, from the least.
    pub const ALL: [Self; 6] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh];

    /// Returns the name in settings and on the wire of the adapters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// Reads a name. `max`, which newer versions of hosts have above `xhigh`, is the highest.
    pub fn parse(name: &str) -> Option<Self> {
        if name == "max" {
            return Some(Self::Xhigh);
        }
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// Request parameter for the amount of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThinkingParameter {
    /// Name of a level.
    Effort,
    /// Number of tokens.
    Budget,
    /// Google's name of a level.
    GoogleLevel,
    /// Anthropic's adaptive thinking with an effort.
    AnthropicAdaptive,
    /// Anthropic's budget with an effort.
    AnthropicBudgetEffort,
}

/// Thinking of a model: the parameter, and the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingSupport {
    /// Parameter in the request.
    pub mode: ThinkingParameter,
    /// The lowest level.
    pub min_level: ThinkingLevel,
    /// The highest level.
    pub max_level: ThinkingLevel,
}

/// A model: the key is `provider` and `id`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEntry {
    /// The model's id at its provider.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// The wire.
    pub api: ModelApi,
    /// The provider's name in the settings.
    pub provider: String,
    /// Base address of requests; paths are appended to it.
    pub base_url: String,
    /// True if it can think.
    pub reasoning: bool,
    /// Kinds of input that it takes.
    pub input: Vec<InputModality>,
    /// Price of its tokens.
    pub cost: TokenPrice,
    /// Tokens that fit into one request, its answer included.
    pub context_window: u64,
    /// Tokens that it can write at most.
    pub max_tokens: u64,
    /// Absent: the wire's usual parameter, all levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingSupport>,
    /// Sent with every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// True if it reports the usage of the answer at the end of a stream.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub tells_usage: bool,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_yes(value: &bool) -> bool {
    *value
}

/// Shows the names of headers only: their values may be credentials.
impl fmt::Debug for ModelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelEntry")
            .field("provider", &self.provider)
            .field("id", &self.id)
            .field("api", &self.api)
            .field("base_url", &self.base_url)
            .field("reasoning", &self.reasoning)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::ThinkingLevel;

    #[test]
    fn max_is_the_highest_level() {
        for level in ThinkingLevel::ALL {
            assert_eq!(ThinkingLevel::parse(level.as_str()), Some(level));
        }
        assert_eq!(ThinkingLevel::parse("max"), ThinkingLevel::ALL.last().copied());
        assert_eq!(ThinkingLevel::parse("ultra"), None);
    }
}
