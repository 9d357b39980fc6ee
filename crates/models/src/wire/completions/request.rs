//! Writes requests for Chat Completions.

use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::given::{self, Back};

use crate::{
    Failure, Request,
    wire::{
        Prepared, below,
        conversation::{Block, Ids, Piece, Turn, apart, turns},
        effort, goes_to, write,
    },
};

/// What an endpoint takes beyond what everyone who copied OpenAI takes. Decided by the host of its address:
///
/// - OpenAI's own (also on Azure): role `developer` for models that think, `store`, `prompt_cache_key`;
/// - `max_completion_tokens` there and at the few who took the new name over, else `max_tokens`, which all of them know;
/// - call ids of nine letters and digits at Mistral;
/// - a thought with every call at DeepSeek and Moonshot, and wherever one came in the member that those two use: they
///   refuse a conversation with a call that has none, also one of another model. An empty one will do.
#[derive(Clone, Copy)]
struct Dialect {
    openai: bool,
    new_cap: bool,
    ids: Ids,
    /// The member in which a thought is owed with every call.
    owed: Option<&'static str>,
}

/// DeepSeek's name for a thought, which most who ask for thoughts took over.
const THOUGHT: &str = "reasoning_content";

impl Dialect {
    fn of(request: &Request) -> Self {
        let any = |hosts: &[&str]| hosts.iter().any(|host| goes_to(request, host));
        let openai = any(&["api.openai.com", "openai.azure.com"]);
        Self {
            openai,
            new_cap: openai || any(&["api.groq.com", "api.cerebras.ai", "api.x.ai"]),
            ids: if any(&["mistral.ai"]) { Ids::Foreign9 } else { Ids::Foreign40 },
            owed: (any(&["deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com"]) || gave_thoughts(request))
                .then_some(THOUGHT),
        }
    }
}

/// Whether the model that is asked gave a thought under that name with a call of this conversation.
fn gave_thoughts(request: &Request) -> bool {
    turns(request, Ids::Foreign40).into_iter().any(|turn| match turn {
        Turn::Assistant { pieces, payload } => {
            let mut back = Back::new(payload);
            for piece in &pieces {
                if let Piece::Thinking { text, signature } = piece {
                    back.thought(text, *signature);
                }
            }
            back.has(THOUGHT) && pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }))
        }
        Turn::User(_) | Turn::Developer(_) | Turn::Result { .. } => false,
    })
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
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
    tools: Vec<Tool<'a>>,
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
enum Message<'a> {
    System {
        content: &'a str,
    },
    Developer {
        content: Vec<Content<'a>>,
    },
    User {
        content: Vec<Content<'a>>,
    },
    Assistant {
        /// Null if there are calls only.
        content: Option<Answer>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
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
enum Answer {
    Text(String),
    /// Of a provider that thinks in parts of the content.
    Parts(Vec<Value>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct ToolCall<'a> {
    id: String,
    function: Called<'a>,
    /// As they came with this call.
    #[serde(flatten)]
    given: Map<String, Value>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    /// JSON in a string.
    arguments: &'a str,
    /// As they came from this provider.
    #[serde(flatten)]
    given: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Tool<'a> {
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// Builds `POST {base}/chat/completions`.
pub(crate) fn prepare(request: &Request) -> Result<Prepared, Failure> {
    let bearer = |key: &secrecy::SecretString| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret()));
    Ok(Prepared {
        url: below(request, "/chat/completions"),
        headers: request.key.iter().map(bearer).collect(),
        body: write(&body(request))?,
    })
}

fn body(request: &Request) -> Body<'_> {
    let dialect = Dialect::of(request);
    let cap = request.output_cap();
    Body {
        model: &request.entry.id,
        messages: messages(request, dialect),
        stream: true,
        // Who does not tell may not know the word either.
        stream_options: request.entry.tells_usage.then_some(StreamOptions { include_usage: true }),
        store: dialect.openai.then_some(false),
        max_completion_tokens: dialect.new_cap.then_some(cap),
        max_tokens: (!dialect.new_cap).then_some(cap),
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                function: Function { name: &tool.name, description: &tool.description, parameters: &tool.schema },
            })
            .collect(),
        reasoning_effort: request.thinking().and_then(effort::openai_effort),
        prompt_cache_key: request.session.as_deref().filter(|_| dialect.openai),
    }
}

fn messages(request: &Request, dialect: Dialect) -> Vec<Message<'_>> {
    let developer = dialect.openai && request.entry.reasoning;
    let mut messages = Vec::new();
    if let Some(text) = request.system.as_deref().filter(|text| !text.trim().is_empty()) {
        messages.push(if developer {
            Message::Developer { content: vec![Content::Text { text }] }
        } else {
            Message::System { content: text }
        });
    }
    let turns = turns(request, dialect.ids);
    let mut images = Vec::new();
    for turn in turns {
        // Images of results wait until all results of their answer are out: only a user may show one.
        if !matches!(turn, Turn::Result { .. }) {
            show(&mut messages, &mut images);
        }
        match turn {
            Turn::User(blocks) => messages.push(Message::User { content: contents(&blocks) }),
            Turn::Developer(blocks) if developer => messages.push(Message::Developer { content: contents(&blocks) }),
            Turn::Developer(blocks) => messages.push(Message::User { content: contents(&blocks) }),
            Turn::Assistant { pieces, payload } => messages.push(assistant(pieces, payload, dialect.owed)),
            Turn::Result { id, blocks, .. } => {
                let (mut text, shown) = apart(&blocks);
                if text.is_empty() {
                    text.push_str("(see the image)");
                }
                images.extend(shown);
                messages.push(Message::Tool { tool_call_id: id, content: text });
            }
        }
    }
    show(&mut messages, &mut images);
    messages
}

fn show<'a>(messages: &mut Vec<Message<'a>>, images: &mut Vec<Block<'a>>) {
    if !images.is_empty() {
        let mut content = vec![Content::Text { text: "Images of the tool results above:" }];
        content.extend(contents(images));
        images.clear();
        messages.push(Message::User { content });
    }
}

fn contents<'a>(blocks: &[Block<'a>]) -> Vec<Content<'a>> {
    blocks
        .iter()
        .map(|block| match block {
            Block::Text(text) => Content::Text { text },
            Block::Image { mime_type, data } => {
                Content::ImageUrl { image_url: ImageUrl { url: format!("data:{mime_type};base64,{data}") } }
            }
        })
        .collect()
}

/// Thinking goes back in the member that it came in: most of these endpoints have no place for any other.
fn assistant<'a>(pieces: Vec<Piece<'a>>, payload: Option<&str>, owed: Option<&'static str>) -> Message<'a> {
    let mut back = Back::new(payload);
    let mut content = String::new();
    let mut parts = Vec::new();
    let mut tool_calls = Vec::new();
    let is_mixed = pieces
        .iter()
        .any(|piece| matches!(piece, Piece::Thinking { signature, .. } if given::content_part(*signature).is_some()));
    for piece in pieces {
        match piece {
            Piece::Text { text, .. } if is_mixed => parts.push(json!({"type": "text", "text": text})),
            Piece::Text { text, .. } => content.push_str(text),
            Piece::Thinking { text, signature } => match given::content_part(signature) {
                Some(part) => parts.push(part),
                None => back.thought(text, signature),
            },
            Piece::Redacted(_) => {}
            Piece::Call { id, name, arguments, signature } => {
                let arguments: &RawValue = arguments;
                let mut given = back.call(&id, signature);
                let function = Called { name, arguments: arguments.get(), given: given::function(&mut given) };
                tool_calls.push(ToolCall { id, function, given });
            }
        }
    }
    let given = back.end(tool_calls.len(), owed);
    let content = match is_mixed {
        true => Some(Answer::Parts(parts)),
        false => (!content.is_empty()).then_some(Answer::Text(content)),
    };
    Message::Assistant { content, tool_calls, given }
}
