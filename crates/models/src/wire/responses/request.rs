//! Writes requests for Responses.

use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::items::{signed_members, unwritten_members};

use crate::{
    ModelFailure, ModelRequest, ThinkingLevel,
    wire::{
        WireRequest,
        conversation::{AnswerPiece, CallIdStyle, WireBlock, WireTurn, prepare_turns, split_images},
        effort, endpoint_url,
        kept_members::{self, LateMembers},
        serialise_body,
    },
};

#[derive(Serialize)]
struct ResponsesBody<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<InputItem<'a>>,
    stream: bool,
    store: bool,
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ResponsesTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningConfig>,
    /// Without the encrypted reasoning a later request could not send it back, as nothing is stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct ReasoningConfig {
    effort: &'static str,
    summary: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: Vec<ResponsesContent<'a>>,
        /// As they came with this text.
        #[serde(flatten)]
        given: Map<String, Value>,
    },
    Call(FunctionCallItem<'a>),
    Output(FunctionOutputItem<'a>),
    /// As it came.
    Reasoning(&'a RawValue),
    /// As it came, after the items that it led to.
    Late(Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesContent<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
    InputImage { detail: &'static str, image_url: String },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function_call")]
struct FunctionCallItem<'a> {
    call_id: String,
    name: &'a str,
    /// JSON in a string.
    arguments: &'a str,
    /// As they came with this call.
    #[serde(flatten)]
    given: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function_call_output")]
struct FunctionOutputItem<'a> {
    call_id: String,
    output: OutputValue<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutputValue<'a> {
    Text(String),
    Contents(Vec<ResponsesContent<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct ResponsesTool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// Always false: the wire's default is true, which refuses schemas with optional fields.
    strict: bool,
}

/// Builds `POST {base}/responses`.
pub(crate) fn prepare_request(request: &ModelRequest) -> Result<WireRequest, ModelFailure> {
    let bearer = |key: &secrecy::SecretString| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret()));
    Ok(WireRequest {
        url: endpoint_url(request, "/responses"),
        headers: request.key.iter().map(bearer).collect(),
        body: serialise_body(&request_body(request))?,
    })
}

fn request_body(request: &ModelRequest) -> ResponsesBody<'_> {
    let effort = request.thinking_level().filter(|level| *level != ThinkingLevel::Off).and_then(effort::openai_effort);
    ResponsesBody {
        model: &request.entry.id,
        instructions: request.system.as_deref().filter(|text| !text.trim().is_empty()),
        input: input_items(request),
        stream: true,
        store: false,
        max_output_tokens: request.output_cap(),
        tools: request
            .tools
            .iter()
            .map(|tool| ResponsesTool {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.schema,
                strict: false,
            })
            .collect(),
        reasoning: effort.map(|effort| ReasoningConfig { effort, summary: "auto" }),
        include: if request.entry.reasoning { vec!["reasoning.encrypted_content"] } else { Vec::new() },
        prompt_cache_key: request.session.as_deref(),
    }
}

fn input_items(request: &ModelRequest) -> Vec<InputItem<'_>> {
    let mut items = Vec::new();
    for turn in prepare_turns(request, CallIdStyle::Foreign40) {
        match turn {
            WireTurn::User(blocks) => items.push(message_item("user", encode_blocks(&blocks))),
            WireTurn::Developer(blocks) => items.push(message_item("developer", encode_blocks(&blocks))),
            WireTurn::Assistant { pieces, payload } => {
                push_assistant(&mut items, pieces, kept_members::late_members(payload))
            }
            WireTurn::Result { id, blocks, .. } => {
                let (text, images) = split_images(&blocks);
                let output = if images.is_empty() {
                    OutputValue::Text(text)
                } else {
                    OutputValue::Contents(encode_blocks(&blocks))
                };
                items.push(InputItem::Output(FunctionOutputItem { call_id: id, output }));
            }
        }
    }
    items
}

/// Adds the answer. Reasoning goes back only in front of the item that it led to: OpenAI refuses it alone. A late member replaces the
/// earlier one of the same item.
fn push_assistant<'a>(items: &mut Vec<InputItem<'a>>, pieces: Vec<AnswerPiece<'a>>, mut late: Vec<LateMembers>) {
    let id = |item: &Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
    let replaced: Vec<String> = late.iter().flat_map(|late| &late.before).filter_map(id).collect();
    let is_replaced = |raw: &&RawValue| {
        let item: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        id(&item).is_some_and(|id| replaced.contains(&id))
    };
    let mut take = |is_it: &dyn Fn(&LateMembers) -> bool| {
        let at = late.iter().position(is_it);
        at.map(|at| late.remove(at)).unwrap_or_default()
    };
    let mut thoughts = Vec::new();
    let mut texts = 0;
    for piece in pieces {
        match piece {
            AnswerPiece::Thinking { signature, .. } => {
                let thought = signature.and_then(reasoning_item).filter(|raw| !is_replaced(raw));
                thoughts.extend(thought.map(InputItem::Reasoning));
            }
            AnswerPiece::Redacted(_) => {}
            AnswerPiece::Text { text, .. } if text.trim().is_empty() => {}
            AnswerPiece::Text { text, signature } => {
                let late = take(&|late| late.text == Some(texts));
                texts += 1;
                items.append(&mut thoughts);
                items.extend(late.before.into_iter().map(InputItem::Late));
                let given = with_late(signature, late.members);
                items.push(InputItem::Message {
                    role: "assistant",
                    content: vec![ResponsesContent::OutputText { text }],
                    given,
                });
            }
            AnswerPiece::Call { id, name, arguments, signature } => {
                let late = take(&|late| late.call.as_ref() == Some(&id));
                items.append(&mut thoughts);
                items.extend(late.before.into_iter().map(InputItem::Late));
                let given = with_late(signature, late.members);
                items.push(InputItem::Call(FunctionCallItem { call_id: id, name, arguments: arguments.get(), given }));
            }
        }
    }
}

/// Returns the members that go back with a part: those that it is signed with, and those that came late.
fn with_late(signature: Option<&str>, late: Map<String, Value>) -> Map<String, Value> {
    let mut given = signed_members(signature);
    given.extend(unwritten_members(late));
    given
}

fn message_item<'a>(role: &'static str, content: Vec<ResponsesContent<'a>>) -> InputItem<'a> {
    InputItem::Message { role, content, given: Map::new() }
}

/// Returns the reasoning item that signed a thought, if it is one.
fn reasoning_item(signature: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct ItemType {
        r#type: String,
    }
    let kind: ItemType = serde_json::from_str(signature).ok()?;
    (kind.r#type == "reasoning").then(|| serde_json::from_str(signature).ok()).flatten()
}

fn encode_blocks<'a>(blocks: &[WireBlock<'a>]) -> Vec<ResponsesContent<'a>> {
    blocks
        .iter()
        .map(|block| match block {
            WireBlock::Text(text) => ResponsesContent::InputText { text },
            WireBlock::Image { mime_type, data } => {
                ResponsesContent::InputImage { detail: "auto", image_url: format!("data:{mime_type};base64,{data}") }
            }
        })
        .collect()
}
