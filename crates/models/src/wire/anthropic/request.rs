//! Writes requests for Anthropic.

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use super::is_given;
use crate::{
    ModelFailure, ModelRequest, ThinkingParameter,
    wire::{
        WireRequest,
        conversation::{AnswerPiece, CallIdStyle, WireBlock, WireTurn, prepare_turns},
        effort, endpoint_url, goes_to, kept_members, serialise_body,
    },
};

/// The least that Anthropic takes as a budget to think with.
const LEAST_BUDGET: u64 = 1024;

#[derive(Serialize)]
struct AnthropicBody<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[AnthropicContent<'a>; 1]>,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<AnthropicThinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: &'static str,
    content: Vec<AnthropicContent<'a>>,
}

#[derive(Serialize)]
struct AnthropicContent<'a> {
    #[serde(flatten)]
    kind: AnthropicContentKind<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicContentKind<'a> {
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
        source: ImageSource<'a>,
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
        content: Vec<AnthropicContent<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct ImageSource<'a> {
    media_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
struct CacheControl {}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicThinking {
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
pub(crate) fn prepare_request(request: &ModelRequest) -> Result<WireRequest, ModelFailure> {
    Ok(WireRequest {
        url: endpoint_url(request, "/v1/messages"),
        headers: request_headers(request),
        body: serialise_body(&request_body(request))?,
    })
}

fn request_headers(request: &ModelRequest) -> Vec<(String, String)> {
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
        if matches!(thinking_config(request), Some(AnthropicThinking::Enabled { .. })) {
            betas.push("interleaved-thinking-2025-05-14");
        }
        if thinking_mode(request) == ThinkingParameter::AnthropicBudgetEffort {
            betas.push("effort-2025-11-24");
        }
    }
    if !betas.is_empty() {
        headers.push(("anthropic-beta".to_owned(), betas.join(",")));
    }
    headers
}

fn thinking_mode(request: &ModelRequest) -> ThinkingParameter {
    request.entry.thinking.map_or(ThinkingParameter::Budget, |thinking| thinking.mode)
}

/// Returns the thinking setting for the model; `None` leaves it out.
///
/// A budget has to leave room for an answer below the output cap; if it cannot, it shrinks, and below Anthropic's
/// least it is left out. It is left out too while tools are being used after an answer without its thinking (of another
/// model, say), which Anthropic refuses.
fn thinking_config(request: &ModelRequest) -> Option<AnthropicThinking> {
    let level = request.thinking_level()?;
    let Some(budget) = effort::anthropic_budget(level) else { return Some(AnthropicThinking::Disabled) };
    match thinking_mode(request) {
        ThinkingParameter::AnthropicAdaptive | ThinkingParameter::Effort | ThinkingParameter::GoogleLevel => {
            Some(AnthropicThinking::Adaptive)
        }
        ThinkingParameter::Budget | ThinkingParameter::AnthropicBudgetEffort => {
            let budget_tokens = budget.min(request.output_cap().saturating_sub(LEAST_BUDGET));
            if budget_tokens < LEAST_BUDGET || lacks_thinking(request) {
                Some(AnthropicThinking::Disabled)
            } else {
                Some(AnthropicThinking::Enabled { budget_tokens })
            }
        }
    }
}

/// Reports whether the conversation ends in results of calls that were made without thinking that can be sent back.
fn lacks_thinking(request: &ModelRequest) -> bool {
    let turns = prepare_turns(request, CallIdStyle::Words64);
    let last = turns.iter().rposition(|turn| !matches!(turn, WireTurn::Result { .. }));
    match last.map(|at| (&turns[at], at + 1 < turns.len())) {
        Some((WireTurn::Assistant { pieces, .. }, true)) => {
            let first = pieces.first().cloned();
            !matches!(
                first.and_then(|first| encode_piece(first, takes_unsigned(request))),
                Some(AnthropicContent {
                    kind: AnthropicContentKind::Thinking { .. } | AnthropicContentKind::RedactedThinking { .. },
                    ..
                })
            )
        }
        Some((
            WireTurn::Assistant { .. } | WireTurn::User(_) | WireTurn::Developer(_) | WireTurn::Result { .. },
            _,
        ))
        | None => false,
    }
}

fn request_body(request: &ModelRequest) -> AnthropicBody<'_> {
    let effort = request.thinking_level().and_then(|level| match thinking_mode(request) {
        ThinkingParameter::Budget => None,
        ThinkingParameter::AnthropicAdaptive
        | ThinkingParameter::AnthropicBudgetEffort
        | ThinkingParameter::Effort
        | ThinkingParameter::GoogleLevel => effort::anthropic_effort(level),
    });
    let mut messages = request_messages(request);
    if let Some(AnthropicMessage { role: "user", content }) = messages.last_mut()
        && let Some(last) = content.last_mut()
    {
        last.cache_control = Some(CacheControl {});
    }
    AnthropicBody {
        model: &request.entry.id,
        max_tokens: request.output_cap(),
        stream: true,
        system: request
            .system
            .as_deref()
            .filter(|text| !text.trim().is_empty())
            .map(|text| [AnthropicContent { kind: text_of(text), cache_control: Some(CacheControl {}) }]),
        messages,
        tools: request
            .tools
            .iter()
            .map(|tool| AnthropicTool { name: &tool.name, description: &tool.description, input_schema: &tool.schema })
            .collect(),
        thinking: thinking_config(request),
        output_config: effort.map(|effort| OutputConfig { effort }),
    }
}

/// Turns of one role in a row are one message: Anthropic wants the roles to take turns, and all results in the message
/// after their calls.
fn request_messages(request: &ModelRequest) -> Vec<AnthropicMessage<'_>> {
    let unsigned = takes_unsigned(request);
    let mut messages: Vec<AnthropicMessage<'_>> = Vec::new();
    for turn in prepare_turns(request, CallIdStyle::Words64) {
        let (role, content) = match turn {
            WireTurn::User(blocks) | WireTurn::Developer(blocks) => {
                ("user", blocks.into_iter().map(encode_block).collect())
            }
            WireTurn::Result { id, blocks, is_error, .. } => {
                let content = blocks.into_iter().map(encode_block).collect();
                (
                    "user",
                    vec![without_cache_control(AnthropicContentKind::ToolResult {
                        tool_use_id: id,
                        content,
                        is_error,
                    })],
                )
            }
            WireTurn::Assistant { pieces, payload: _ } => {
                let content = pieces.into_iter().filter_map(|piece| encode_piece(piece, unsigned));
                ("assistant", content.collect())
            }
        };
        match messages.last_mut() {
            Some(last) if last.role == role => last.content.extend::<Vec<_>>(content),
            Some(_) | None => messages.push(AnthropicMessage { role, content }),
        }
    }
    messages
}

fn encode_block(block: WireBlock<'_>) -> AnthropicContent<'_> {
    without_cache_control(match block {
        WireBlock::Text(text) => text_of(text),
        WireBlock::Image { mime_type, data } => {
            AnthropicContentKind::Image { source: ImageSource { media_type: mime_type, data } }
        }
    })
}

/// Handling of unsigned thinking by an endpoint.
#[derive(Clone, Copy)]
enum UnsignedThinking {
    /// Takes it back, and may refuse calls without it.
    Taken,
    /// Refuses it.
    Refused,
}

fn takes_unsigned(request: &ModelRequest) -> UnsignedThinking {
    if goes_to(request, "anthropic.com") { UnsignedThinking::Refused } else { UnsignedThinking::Taken }
}

/// Encodes a piece. Thinking of an answer that was broken off has no signature at all and is not sent; that of a provider that signs
/// nothing has an empty one.
fn encode_piece(piece: AnswerPiece<'_>, unsigned: UnsignedThinking) -> Option<AnthropicContent<'_>> {
    Some(without_cache_control(match piece {
        AnswerPiece::Text { text, .. } if text.trim().is_empty() => return None,
        AnswerPiece::Text { text, signature } => AnthropicContentKind::Text { text, given: given_members(signature) },
        AnswerPiece::Thinking { signature: Some(""), .. } if matches!(unsigned, UnsignedThinking::Refused) => {
            return None;
        }
        AnswerPiece::Thinking { text, signature } => {
            AnthropicContentKind::Thinking { thinking: text, signature: signature? }
        }
        AnswerPiece::Redacted(data) => AnthropicContentKind::RedactedThinking { data },
        AnswerPiece::Call { id, name, arguments, signature } => {
            AnthropicContentKind::ToolUse { id, name, input: arguments, given: given_members(signature) }
        }
    }))
}

fn text_of(text: &str) -> AnthropicContentKind<'_> {
    AnthropicContentKind::Text { text, given: Map::new() }
}

/// Returns the members that go back with a block whose part is signed so.
fn given_members(signature: Option<&str>) -> Map<String, Value> {
    let mut members = kept_members::parse_object(signature);
    members.retain(|name, _| is_given(name));
    members
}

fn without_cache_control(kind: AnthropicContentKind<'_>) -> AnthropicContent<'_> {
    AnthropicContent { kind, cache_control: None }
}
