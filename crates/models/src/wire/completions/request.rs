//! Writes requests for Chat Completions.

use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::provider_extensions::{self, ReturnedMembers};

use crate::{
    ModelFailure, ModelRequest,
    wire::{
        WireRequest,
        conversation::{AnswerPiece, CallIdStyle, WireBlock, WireTurn, prepare_turns, split_images},
        effort, endpoint_url, goes_to, serialise_body,
    },
};

/// Features of an endpoint beyond those of every copy of OpenAI's. Decided by the host of its address:
///
/// - OpenAI's own (also on Azure): role `developer` for models that think, `store`, `prompt_cache_key`;
/// - `max_completion_tokens` there and at the few who took the new name over, else `max_tokens`, which all of them know;
/// - call ids of nine letters and digits at Mistral;
/// - a thought with every call at DeepSeek and Moonshot, and wherever one came in the member that those two use: they
///   refuse a conversation with a call that has none, also one of another model. An empty one will do.
#[derive(Clone, Copy)]
struct EndpointDialect {
    openai: bool,
    new_cap: bool,
    ids: CallIdStyle,
    /// The member in which a thought is owed with every call.
    owed: Option<&'static str>,
}

/// DeepSeek's name for a thought, which most who ask for thoughts took over.
const THOUGHT: &str = "reasoning_content";

impl EndpointDialect {
    fn from_request(request: &ModelRequest) -> Self {
        let any = |hosts: &[&str]| hosts.iter().any(|host| goes_to(request, host));
        let openai = any(&["api.openai.com", "openai.azure.com"]);
        Self {
            openai,
            new_cap: openai || any(&["api.groq.com", "api.cerebras.ai", "api.x.ai"]),
            ids: if any(&["mistral.ai"]) { CallIdStyle::Foreign9 } else { CallIdStyle::Foreign40 },
            owed: (any(&["deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com"]) || gave_thoughts(request))
                .then_some(THOUGHT),
        }
    }
}

/// Reports whether the model of the request gave a thought under that name with a call of this conversation.
fn gave_thoughts(request: &ModelRequest) -> bool {
    prepare_turns(request, CallIdStyle::Foreign40).into_iter().any(|turn| match turn {
        WireTurn::Assistant { pieces, payload } => {
            let mut back = ReturnedMembers::new(payload);
            for piece in &pieces {
                if let AnswerPiece::Thinking { text, signature } = piece {
                    back.add_thought(text, *signature);
                }
            }
            back.has_member(THOUGHT) && pieces.iter().any(|piece| matches!(piece, AnswerPiece::Call { .. }))
        }
        WireTurn::User(_) | WireTurn::Developer(_) | WireTurn::Result { .. } => false,
    })
}

#[derive(Serialize)]
struct CompletionsBody<'a> {
    model: &'a str,
    messages: Vec<CompletionsMessage<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<CompletionsTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum CompletionsMessage<'a> {
    System {
        content: &'a str,
    },
    Developer {
        content: Vec<CompletionsContent<'a>>,
    },
    User {
        content: Vec<CompletionsContent<'a>>,
    },
    Assistant {
        /// Null if there are calls only.
        content: Option<AssistantContent>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<SentToolCall<'a>>,
        /// As they came from this provider.
        #[serde(flatten)]
        given: Map<String, Value>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum AssistantContent {
    Text(String),
    /// Of a provider that thinks in parts of the content.
    Parts(Vec<Value>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CompletionsContent<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct SentToolCall<'a> {
    id: String,
    function: SentFunction<'a>,
    /// As they came with this call.
    #[serde(flatten)]
    given: Map<String, Value>,
}

#[derive(Serialize)]
struct SentFunction<'a> {
    name: &'a str,
    /// JSON in a string.
    arguments: &'a str,
    /// As they came from this provider.
    #[serde(flatten)]
    given: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct CompletionsTool<'a> {
    function: FunctionDefinition<'a>,
}

#[derive(Serialize)]
struct FunctionDefinition<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// Builds `POST {base}/chat/completions`.
pub(crate) fn prepare_request(request: &ModelRequest) -> Result<WireRequest, ModelFailure> {
    let bearer = |key: &secrecy::SecretString| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret()));
    Ok(WireRequest {
        url: endpoint_url(request, "/chat/completions"),
        headers: request.key.iter().map(bearer).collect(),
        body: serialise_body(&request_body(request))?,
    })
}

fn request_body(request: &ModelRequest) -> CompletionsBody<'_> {
    let dialect = EndpointDialect::from_request(request);
    let cap = request.output_cap();
    CompletionsBody {
        model: &request.entry.id,
        messages: request_messages(request, dialect),
        stream: true,
        // A server that does not report it may not know the word either.
        stream_options: request.entry.tells_usage.then_some(StreamOptions { include_usage: true }),
        store: dialect.openai.then_some(false),
        max_completion_tokens: dialect.new_cap.then_some(cap),
        max_tokens: (!dialect.new_cap).then_some(cap),
        tools: request
            .tools
            .iter()
            .map(|tool| CompletionsTool {
                function: FunctionDefinition {
                    name: &tool.name,
                    description: &tool.description,
                    parameters: &tool.schema,
                },
            })
            .collect(),
        reasoning_effort: request.thinking_level().and_then(effort::openai_effort),
        prompt_cache_key: request.session.as_deref().filter(|_| dialect.openai),
    }
}

fn request_messages(request: &ModelRequest, dialect: EndpointDialect) -> Vec<CompletionsMessage<'_>> {
    let developer = dialect.openai && request.entry.reasoning;
    let mut messages = Vec::new();
    if let Some(text) = request.system.as_deref().filter(|text| !text.trim().is_empty()) {
        messages.push(if developer {
            CompletionsMessage::Developer { content: vec![CompletionsContent::Text { text }] }
        } else {
            CompletionsMessage::System { content: text }
        });
    }
    let turns = prepare_turns(request, dialect.ids);
    let mut images = Vec::new();
    for turn in turns {
        // Images of results wait until all results of their answer are out: only a user may show one.
        if !matches!(turn, WireTurn::Result { .. }) {
            flush_images(&mut messages, &mut images);
        }
        match turn {
            WireTurn::User(blocks) => messages.push(CompletionsMessage::User { content: encode_blocks(&blocks) }),
            WireTurn::Developer(blocks) if developer => {
                messages.push(CompletionsMessage::Developer { content: encode_blocks(&blocks) })
            }
            WireTurn::Developer(blocks) => messages.push(CompletionsMessage::User { content: encode_blocks(&blocks) }),
            WireTurn::Assistant { pieces, payload } => messages.push(assistant_message(pieces, payload, dialect.owed)),
            WireTurn::Result { id, blocks, .. } => {
                let (mut text, shown) = split_images(&blocks);
                if text.is_empty() {
                    text.push_str("(see the image)");
                }
                images.extend(shown);
                messages.push(CompletionsMessage::Tool { tool_call_id: id, content: text });
            }
        }
    }
    flush_images(&mut messages, &mut images);
    messages
}

fn flush_images<'a>(messages: &mut Vec<CompletionsMessage<'a>>, images: &mut Vec<WireBlock<'a>>) {
    if !images.is_empty() {
        let mut content = vec![CompletionsContent::Text { text: "Images of the tool results above:" }];
        content.extend(encode_blocks(images));
        images.clear();
        messages.push(CompletionsMessage::User { content });
    }
}

fn encode_blocks<'a>(blocks: &[WireBlock<'a>]) -> Vec<CompletionsContent<'a>> {
    blocks
        .iter()
        .map(|block| match block {
            WireBlock::Text(text) => CompletionsContent::Text { text },
            WireBlock::Image { mime_type, data } => {
                CompletionsContent::ImageUrl { image_url: ImageUrl { url: format!("data:{mime_type};base64,{data}") } }
            }
        })
        .collect()
}

/// Writes a message of the model. Thinking goes back in the member that it came in: most of these endpoints have no place for any other.
fn assistant_message<'a>(
    pieces: Vec<AnswerPiece<'a>>,
    payload: Option<&str>,
    owed: Option<&'static str>,
) -> CompletionsMessage<'a> {
    let mut back = ReturnedMembers::new(payload);
    let mut content = String::new();
    let mut parts = Vec::new();
    let mut tool_calls = Vec::new();
    let is_mixed = pieces
        .iter()
        .any(|piece| matches!(piece, AnswerPiece::Thinking { signature, .. } if provider_extensions::content_part(*signature).is_some()));
    for piece in pieces {
        match piece {
            AnswerPiece::Text { text, .. } if is_mixed => parts.push(json!({"type": "text", "text": text})),
            AnswerPiece::Text { text, .. } => content.push_str(text),
            AnswerPiece::Thinking { text, signature } => match provider_extensions::content_part(signature) {
                Some(part) => parts.push(part),
                None => back.add_thought(text, signature),
            },
            AnswerPiece::Redacted(_) => {}
            AnswerPiece::Call { id, name, arguments, signature } => {
                let arguments: &RawValue = arguments;
                let mut given = back.call_members(&id, signature);
                let function = SentFunction {
                    name,
                    arguments: arguments.get(),
                    given: provider_extensions::take_function_members(&mut given),
                };
                tool_calls.push(SentToolCall { id, function, given });
            }
        }
    }
    let given = back.into_members(tool_calls.len(), owed);
    let content = match is_mixed {
        true => Some(AssistantContent::Parts(parts)),
        false => (!content.is_empty()).then_some(AssistantContent::Text(content)),
    };
    CompletionsMessage::Assistant { content, tool_calls, given }
}
