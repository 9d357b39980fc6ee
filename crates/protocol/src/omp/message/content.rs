//! Reads and writes the blocks that messages are made of.
//!
//! It must not know which message a block is in.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::json::{ExtraMembers, RawJson, wire_values};

/// Reads an enum by a discriminator. Written values already hold it: every variant writes its own.
///
/// Serde's own tagged enums read through a buffer that cannot hold raw JSON. An object without a known discriminator
/// becomes `Other`.
macro_rules! tagged {
    ($name:ident, $tag:literal, { $($value:literal => $variant:ident),+ $(,)? }) => {
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(::serde::Deserialize)]
                struct Discriminator<'a> {
                    #[serde(borrow, default, rename = $tag)]
                    value: Option<::std::borrow::Cow<'a, str>>,
                }
                let raw = Box::<::serde_json::value::RawValue>::deserialize(deserializer)?;
                let discriminator = ::serde_json::from_str::<Discriminator<'_>>(raw.get());
                match discriminator.ok().and_then(|read| read.value).as_deref() {
                    $(Some($value) => ::serde_json::from_str(raw.get()).map(Self::$variant),)+
                    Some(_) | None => Ok(Self::Other($crate::json::RawJson::from(raw.clone()))),
                }
                .map_err(::serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use tagged;

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OmpContent {
    /// One text.
    Text(String),
    /// Texts and images in order.
    Blocks(Vec<OmpContentBlock>),
}

impl<'de> Deserialize<'de> for OmpContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('"') {
            serde_json::from_str(raw.get()).map(Self::Text)
        } else {
            serde_json::from_str(raw.get()).map(Self::Blocks)
        }
        .map_err(serde::de::Error::custom)
    }
}

/// A block of any message but the assistant's, distinguished by its `type`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OmpContentBlock {
    /// `text`
    Text(TextContent),
    /// `image`
    Image(ImageContent),
    /// Any other type.
    Other(RawJson),
}

tagged!(OmpContentBlock, "type", { "text" => Text, "image" => Image });

/// A block of an assistant message, distinguished by its `type`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AssistantBlock {
    /// `text`
    Text(TextContent),
    /// `thinking`
    Thinking(ThinkingContent),
    /// `redactedThinking`
    RedactedThinking(RedactedThinking),
    /// `toolCall`
    ToolCall(ToolCallContent),
    /// Any other type.
    Other(RawJson),
}

tagged!(AssistantBlock, "type", {
    "text" => Text,
    "thinking" => Thinking,
    "redactedThinking" => RedactedThinking,
    "toolCall" => ToolCall,
});

/// A block of type `text`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text", rename_all = "camelCase")]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Opaque, for the same provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

impl From<String> for TextContent {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// A block of type `image`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "image", rename_all = "camelCase")]
pub struct ImageContent {
    /// Base64, or in a session file the name of a blob: `blob:sha256:` and its hash.
    pub data: String,
    /// Such as `image/png`.
    pub mime_type: String,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A block of type `thinking`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "thinking", rename_all = "camelCase")]
pub struct ThinkingContent {
    /// The text.
    pub thinking: String,
    /// Opaque, for the same provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A block of type `redactedThinking`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "redactedThinking", rename_all = "camelCase")]
pub struct RedactedThinking {
    /// Opaque, for the same provider.
    pub data: String,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A block of type `toolCall`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "toolCall", rename_all = "camelCase")]
pub struct ToolCallContent {
    /// Names the call; its result carries the same id.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// An object, with the intent if the model gave one.
    pub arguments: RawJson,
    /// Opaque, for the same provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// Purpose of the call, as the model gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Output of a call, in the events about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Content that the model sees.
    pub content: Vec<OmpContentBlock>,
    /// Additional details for hosts. Null counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
}

wire_values! {
    OmpContent, OmpContentBlock, AssistantBlock, TextContent, ImageContent, ThinkingContent, RedactedThinking,
    ToolCallContent, ToolOutput,
}
