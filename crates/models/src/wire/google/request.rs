//! Writes requests for Google.

use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::GIVEN;
use crate::{
    FailureKind, ModelFailure, ModelRequest, ThinkingLevel, ThinkingParameter,
    wire::{
        WireRequest, base_address,
        conversation::{AnswerPiece, CallIdStyle, WireBlock, WireTurn, prepare_turns, split_images},
        effort, kept_members, serialise_body,
    },
};

/// Stands for the signature of a call that another model made: Gemini 3 refuses a call without one.
/// Source: <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The least that Gemini 2.5 Pro can think; it cannot be turned off.
const LEAST_OF_PRO: u64 = 128;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GoogleBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<GoogleContent<'a>>,
    contents: Vec<GoogleContent<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<GoogleTools<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
struct GoogleContent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<GoogleContentPart<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct GoogleContentPart<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<InlineData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<SentFunctionCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct SentFunctionCall<'a> {
    /// As the provider gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    /// Id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    response: FunctionOutcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum FunctionOutcome {
    Output(String),
    Error(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GoogleTools<'a> {
    function_declarations: Vec<FunctionDeclaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    include_thoughts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

/// Builds `POST {base}/models/{id}:streamGenerateContent?alt=sse`. The key travels in a header: a URL may be logged on
/// its way.
pub(crate) fn prepare_request(request: &ModelRequest) -> Result<WireRequest, ModelFailure> {
    let refused = || ModelFailure::new(FailureKind::Refused, "the base address of the provider is not a URL");
    let mut url = reqwest::Url::parse(base_address(request)).map_err(|_| refused())?;
    let id = request.entry.id.strip_prefix("models/").unwrap_or(&request.entry.id);
    url.path_segments_mut()
        .map_err(|()| refused())?
        .pop_if_empty()
        .extend(["models", &format!("{id}:streamGenerateContent")]);
    url.query_pairs_mut().append_pair("alt", "sse");
    let key = |key: &secrecy::SecretString| ("x-goog-api-key".to_owned(), key.expose_secret().to_owned());
    Ok(WireRequest {
        url: url.into(),
        headers: request.key.iter().map(key).collect(),
        body: serialise_body(&request_body(request))?,
    })
}

fn request_body(request: &ModelRequest) -> GoogleBody<'_> {
    let tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| FunctionDeclaration {
            name: &tool.name,
            description: &tool.description,
            parameters_json_schema: &tool.schema,
        })
        .collect();
    let system = request.system.as_deref().filter(|text| !text.trim().is_empty());
    GoogleBody {
        system_instruction: system.map(|text| GoogleContent { role: None, parts: vec![text_part(text)] }),
        contents: request_contents(request),
        tools: if tools.is_empty() { Vec::new() } else { vec![GoogleTools { function_declarations: tools }] },
        generation_config: GenerationConfig {
            max_output_tokens: request.output_cap(),
            thinking_config: request.thinking_level().map(|level| thinking_config(request, level)),
        },
    }
}

fn by_level(request: &ModelRequest) -> bool {
    request.entry.thinking.is_some_and(|thinking| thinking.mode == ThinkingParameter::GoogleLevel)
}

fn thinking_config(request: &ModelRequest, level: ThinkingLevel) -> ThinkingConfig {
    let include_thoughts = (level != ThinkingLevel::Off).then_some(true);
    if by_level(request) {
        // Thinking that cannot be turned off gets its lowest level.
        let least = request.entry.thinking.map_or(level, |thinking| thinking.min_level);
        let thinking_level = Some(effort::google_level(level.max(least)));
        return ThinkingConfig { include_thoughts, thinking_level, thinking_budget: None };
    }
    let least = if request.entry.id.contains("2.5-pro") { LEAST_OF_PRO } else { 0 };
    let thinking_budget = Some(effort::google_budget(level).max(least));
    ThinkingConfig { include_thoughts, thinking_budget, thinking_level: None }
}

/// Turns of one role in a row are one content; the results of an answer come in the order of its calls, which is how
/// Google distinguishes them.
fn request_contents(request: &ModelRequest) -> Vec<GoogleContent<'_>> {
    let mut contents: Vec<GoogleContent<'_>> = Vec::new();
    let mut images = Vec::new();
    let mut given = Vec::new();
    for turn in prepare_turns(request, CallIdStyle::Foreign40) {
        // Images of results come after all results of their answer.
        if !matches!(turn, WireTurn::Result { .. }) && !images.is_empty() {
            append_parts(&mut contents, "user", std::mem::take(&mut images));
        }
        let (role, parts) = match turn {
            WireTurn::User(blocks) | WireTurn::Developer(blocks) => {
                ("user", blocks.into_iter().map(block_part).collect())
            }
            WireTurn::Assistant { pieces, payload } => {
                given = given_ids(payload);
                ("model", answer_parts(request, pieces, &given))
            }
            WireTurn::Result { id, name, blocks, is_error } => {
                let (text, more) = split_images(&blocks);
                images.extend(more.into_iter().map(block_part));
                let response = if is_error { FunctionOutcome::Error(text) } else { FunctionOutcome::Output(text) };
                let function_response =
                    Some(FunctionResponse { id: Some(id).filter(|id| given.contains(id)), name, response });
                ("user", vec![GoogleContentPart { function_response, ..GoogleContentPart::default() }])
            }
        };
        append_parts(&mut contents, role, parts);
    }
    if !images.is_empty() {
        append_parts(&mut contents, "user", images);
    }
    contents
}

fn append_parts<'a>(contents: &mut Vec<GoogleContent<'a>>, role: &'static str, parts: Vec<GoogleContentPart<'a>>) {
    match contents.last_mut() {
        Some(last) if last.role == Some(role) => last.parts.extend(parts),
        Some(_) | None if parts.is_empty() => {}
        Some(_) | None => contents.push(GoogleContent { role: Some(role), parts }),
    }
}

/// Returns the ids of calls of an answer with this payload that the provider gave.
fn given_ids(payload: Option<&str>) -> Vec<String> {
    let given = kept_members::payload_members(payload).shift_remove(GIVEN);
    given.and_then(|ids| serde_json::from_value(ids).ok()).unwrap_or_default()
}

fn answer_parts<'a>(
    request: &ModelRequest,
    pieces: Vec<AnswerPiece<'a>>,
    given: &[String],
) -> Vec<GoogleContentPart<'a>> {
    let mut first = by_level(request);
    pieces
        .into_iter()
        .filter_map(|piece| match piece {
            AnswerPiece::Text { text, signature } => Some(GoogleContentPart {
                text: Some(text),
                thought_signature: signature,
                ..GoogleContentPart::default()
            }),
            // Thoughts are summaries: only their signature is worth sending back.
            AnswerPiece::Thinking { text, signature: Some(signature) } => Some(GoogleContentPart {
                thought: Some(true),
                text: Some(text),
                thought_signature: Some(signature),
                ..GoogleContentPart::default()
            }),
            AnswerPiece::Thinking { signature: None, .. } | AnswerPiece::Redacted(_) => None,
            AnswerPiece::Call { id, name, arguments, signature } => {
                // Only the first call of an answer is signed.
                let signature = signature.or_else(|| std::mem::take(&mut first).then_some(NO_SIGNATURE));
                first = false;
                Some(GoogleContentPart {
                    function_call: Some(SentFunctionCall {
                        id: Some(id).filter(|id| given.contains(id)),
                        name,
                        args: arguments,
                    }),
                    thought_signature: signature,
                    ..GoogleContentPart::default()
                })
            }
        })
        .collect()
}

fn text_part(text: &str) -> GoogleContentPart<'_> {
    GoogleContentPart { text: Some(text), ..GoogleContentPart::default() }
}

fn block_part(block: WireBlock<'_>) -> GoogleContentPart<'_> {
    match block {
        WireBlock::Text(text) => text_part(text),
        WireBlock::Image { mime_type, data } => {
            GoogleContentPart { inline_data: Some(InlineData { mime_type, data }), ..GoogleContentPart::default() }
        }
    }
}
