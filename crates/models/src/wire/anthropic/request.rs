//! Writes requests for Anthropic.

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use super::is_given;
use crate::{
    Failure, Request, ThinkingMode,
    wire::{
        Prepared, below,
        conversation::{Block, Ids, Piece, Turn, turns},
        effort, goes_to, kept, write,
    },
};

/// The least that Anthropic takes as a budget to think with.
const LEAST_BUDGET: u64 = 1024;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Content<'a>; 1]>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(flatten)]
    kind: Kind<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Kind<'a> {
    Text {
        text: &'a str,
        /// As they came with this text.
        #[serde(flatten)]
        given: Map<String, Value>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: String,
        name: &'a str,
        input: &'a RawValue,
        /// As they came with this call.
        #[serde(flatten)]
        given: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: Vec<Content<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct Source<'a> {
    media_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
struct CacheControl {}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Disabled,
    Enabled { budget_tokens: u64 },
    Adaptive,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

/// Builds `POST {base}/v1/messages`. A base that already ends in `/v1` is not given another.
///
/// An OAuth token (`sk-ant-oat…`) travels as a bearer, any other key as `x-api-key`.
pub(crate) fn prepare(request: &Request) -> Result<Prepared, Failure> {
    Ok(Prepared { url: below(request, "/v1/messages"), headers: headers(request), body: write(&body(request))? })
}

fn headers(request: &Request) -> Vec<(String, String)> {
    use secrecy::ExposeSecret;
    let mut betas = Vec::new();
    let mut headers = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
    if let Some(key) = &request.key {
        let key = key.expose_secret();
        if key.starts_with("sk-ant-oat") {
            betas.push("oauth-2025-04-20");
            headers.push(("authorization".to_owned(), format!("Bearer {key}")));
        } else {
            headers.push(("x-api-key".to_owned(), key.to_owned()));
        }
    }
    if goes_to(request, "anthropic.com") {
        betas.push("fine-grained-tool-streaming-2025-05-14");
        if matches!(thinking(request), Some(Thinking::Enabled { .. })) {
            betas.push("interleaved-thinking-2025-05-14");
        }
        if mode(request) == ThinkingMode::AnthropicBudgetEffort {
            betas.push("effort-2025-11-24");
        }
    }
    if !betas.is_empty() {
        headers.push(("anthropic-beta".to_owned(), betas.join(",")));
    }
    headers
}

fn mode(request: &Request) -> ThinkingMode {
    request.entry.thinking.map_or(ThinkingMode::Budget, |thinking| thinking.mode)
}

/// How the model is told to think; `None` says nothing about it.
///
/// A budget has to leave room for an answer below the output cap; where it cannot, it shrinks, and below Anthropic's
/// least it is left out. It is left out too while tools are being used after an answer without its thinking (of another
/// model, say), which Anthropic refuses.
fn thinking(request: &Request) -> Option<Thinking> {
    let level = request.thinking()?;
    let Some(budget) = effort::anthropic_budget(level) else { return Some(Thinking::Disabled) };
    match mode(request) {
        ThinkingMode::AnthropicAdaptive | ThinkingMode::Effort | ThinkingMode::GoogleLevel => Some(Thinking::Adaptive),
        ThinkingMode::Budget | ThinkingMode::AnthropicBudgetEffort => {
            let budget_tokens = budget.min(request.output_cap().saturating_sub(LEAST_BUDGET));
            if budget_tokens < LEAST_BUDGET || lacks_thinking(request) {
                Some(Thinking::Disabled)
            } else {
                Some(Thinking::Enabled { budget_tokens })
            }
        }
    }
}

/// Whether the conversation ends in results of calls that were made without thinking that can be sent back.
fn lacks_thinking(request: &Request) -> bool {
    let turns = turns(request, Ids::Words64);
    let last = turns.iter().rposition(|turn| !matches!(turn, Turn::Result { .. }));
    match last.map(|at| (&turns[at], at + 1 < turns.len())) {
        Some((Turn::Assistant { pieces, .. }, true)) => {
            let first = pieces.first().cloned();
            !matches!(
                first.and_then(|first| piece(first, takes_unsigned(request))),
                Some(Content { kind: Kind::Thinking { .. } | Kind::RedactedThinking { .. }, .. })
            )
        }
        Some((Turn::Assistant { .. } | Turn::User(_) | Turn::Developer(_) | Turn::Result { .. }, _)) | None => false,
    }
}

fn body(request: &Request) -> Body<'_> {
    let effort = request.thinking().and_then(|level| match mode(request) {
        ThinkingMode::Budget => None,
        ThinkingMode::AnthropicAdaptive
        | ThinkingMode::AnthropicBudgetEffort
        | ThinkingMode::Effort
        | ThinkingMode::GoogleLevel => effort::anthropic_effort(level),
    });
    let mut messages = messages(request);
    if let Some(Message { role: "user", content }) = messages.last_mut()
        && let Some(last) = content.last_mut()
    {
        last.cache_control = Some(CacheControl {});
    }
    Body {
        model: &request.entry.id,
        max_tokens: request.output_cap(),
        stream: true,
        system: request
            .system
            .as_deref()
            .filter(|text| !text.trim().is_empty())
            .map(|text| [Content { kind: text_of(text), cache_control: Some(CacheControl {}) }]),
        messages,
        tools: request
            .tools
            .iter()
            .map(|tool| Tool { name: &tool.name, description: &tool.description, input_schema: &tool.schema })
            .collect(),
        thinking: thinking(request),
        output_config: effort.map(|effort| OutputConfig { effort }),
    }
}

/// Turns of one role in a row are one message: Anthropic wants the roles to take turns, and all results in the message
/// after their calls.
fn messages(request: &Request) -> Vec<Message<'_>> {
    let unsigned = takes_unsigned(request);
    let mut messages: Vec<Message<'_>> = Vec::new();
    for turn in turns(request, Ids::Words64) {
        let (role, content) = match turn {
            Turn::User(blocks) | Turn::Developer(blocks) => ("user", blocks.into_iter().map(block).collect()),
            Turn::Result { id, blocks, is_error, .. } => {
                let content = blocks.into_iter().map(block).collect();
                ("user", vec![plain(Kind::ToolResult { tool_use_id: id, content, is_error })])
            }
            Turn::Assistant { pieces, payload: _ } => {
                let content = pieces.into_iter().filter_map(|said| piece(said, unsigned));
                ("assistant", content.collect())
            }
        };
        match messages.last_mut() {
            Some(last) if last.role == role => last.content.extend::<Vec<_>>(content),
            Some(_) | None => messages.push(Message { role, content }),
        }
    }
    messages
}

fn block(block: Block<'_>) -> Content<'_> {
    plain(match block {
        Block::Text(text) => text_of(text),
        Block::Image { mime_type, data } => Kind::Image { source: Source { media_type: mime_type, data } },
    })
}

/// What an endpoint does with thinking that nobody signed.
#[derive(Clone, Copy)]
enum Unsigned {
    /// Takes it back, and may refuse calls without it.
    Taken,
    /// Refuses it.
    Refused,
}

fn takes_unsigned(request: &Request) -> Unsigned {
    if goes_to(request, "anthropic.com") { Unsigned::Refused } else { Unsigned::Taken }
}

/// Thinking of an answer that was broken off has no signature at all and is not sent; that of a provider that signs
/// nothing has an empty one.
fn piece(piece: Piece<'_>, unsigned: Unsigned) -> Option<Content<'_>> {
    Some(plain(match piece {
        Piece::Text { text, .. } if text.trim().is_empty() => return None,
        Piece::Text { text, signature } => Kind::Text { text, given: given(signature) },
        Piece::Thinking { signature: Some(""), .. } if matches!(unsigned, Unsigned::Refused) => return None,
        Piece::Thinking { text, signature } => Kind::Thinking { thinking: text, signature: signature? },
        Piece::Redacted(data) => Kind::RedactedThinking { data },
        Piece::Call { id, name, arguments, signature } => {
            Kind::ToolUse { id, name, input: arguments, given: given(signature) }
        }
    }))
}

fn text_of(text: &str) -> Kind<'_> {
    Kind::Text { text, given: Map::new() }
}

/// The members that go back with a block whose part is signed so.
fn given(signature: Option<&str>) -> Map<String, Value> {
    let mut members = kept::object(signature);
    members.retain(|name, _| is_given(name));
    members
}

fn plain(kind: Kind<'_>) -> Content<'_> {
    Content { kind, cache_control: None }
}
