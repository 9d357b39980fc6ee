//! Writes requests for Google.

use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::GIVEN;
use crate::{
    Failure, FailureKind, Level, Request, ThinkingMode,
    wire::{
        Prepared, base,
        conversation::{Block, Ids, Piece, Turn, apart, turns},
        effort, kept, write,
    },
};

/// Stands for the signature of a call that another model made: Gemini 3 refuses a call without one.
/// Source: <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The least that Gemini 2.5 Pro can think; it cannot be turned off.
const LEAST_OF_PRO: u64 = 128;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Said<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Said<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<InlineData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall<'a>>,
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
struct FunctionCall<'a> {
    /// As the provider gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    /// That of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: &'a str,
    response: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Output(String),
    Error(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
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
pub(crate) fn prepare(request: &Request) -> Result<Prepared, Failure> {
    let refused = || Failure::new(FailureKind::Refused, "the base address of the provider is not a URL");
    let mut url = reqwest::Url::parse(base(request)).map_err(|_| refused())?;
    let id = request.entry.id.strip_prefix("models/").unwrap_or(&request.entry.id);
    url.path_segments_mut()
        .map_err(|()| refused())?
        .pop_if_empty()
        .extend(["models", &format!("{id}:streamGenerateContent")]);
    url.query_pairs_mut().append_pair("alt", "sse");
    let key = |key: &secrecy::SecretString| ("x-goog-api-key".to_owned(), key.expose_secret().to_owned());
    Ok(Prepared { url: url.into(), headers: request.key.iter().map(key).collect(), body: write(&body(request))? })
}

fn body(request: &Request) -> Body<'_> {
    let tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| Declaration {
            name: &tool.name,
            description: &tool.description,
            parameters_json_schema: &tool.schema,
        })
        .collect();
    let system = request.system.as_deref().filter(|text| !text.trim().is_empty());
    Body {
        system_instruction: system.map(|text| Content { role: None, parts: vec![said(text)] }),
        contents: contents(request),
        tools: if tools.is_empty() { Vec::new() } else { vec![Tools { function_declarations: tools }] },
        generation_config: GenerationConfig {
            max_output_tokens: request.output_cap(),
            thinking_config: request.thinking().map(|level| thinking(request, level)),
        },
    }
}

fn by_level(request: &Request) -> bool {
    request.entry.thinking.is_some_and(|thinking| thinking.mode == ThinkingMode::GoogleLevel)
}

fn thinking(request: &Request, level: Level) -> ThinkingConfig {
    let include_thoughts = (level != Level::Off).then_some(true);
    if by_level(request) {
        // What cannot be turned off is asked for its least.
        let least = request.entry.thinking.map_or(level, |thinking| thinking.min_level);
        let thinking_level = Some(effort::google_level(level.max(least)));
        return ThinkingConfig { include_thoughts, thinking_level, thinking_budget: None };
    }
    let least = if request.entry.id.contains("2.5-pro") { LEAST_OF_PRO } else { 0 };
    let thinking_budget = Some(effort::google_budget(level).max(least));
    ThinkingConfig { include_thoughts, thinking_budget, thinking_level: None }
}

/// Turns of one role in a row are one content; the results of an answer come in the order of its calls, which is how
/// Google tells them apart.
fn contents(request: &Request) -> Vec<Content<'_>> {
    let mut contents: Vec<Content<'_>> = Vec::new();
    let mut images = Vec::new();
    let mut given = Vec::new();
    for turn in turns(request, Ids::Foreign40) {
        // Images of results come behind all results of their answer.
        if !matches!(turn, Turn::Result { .. }) && !images.is_empty() {
            add(&mut contents, "user", std::mem::take(&mut images));
        }
        let (role, parts) = match turn {
            Turn::User(blocks) | Turn::Developer(blocks) => ("user", blocks.into_iter().map(shown).collect()),
            Turn::Assistant { pieces, payload } => {
                given = given_ids(payload);
                ("model", answer(request, pieces, &given))
            }
            Turn::Result { id, name, blocks, is_error } => {
                let (text, more) = apart(&blocks);
                images.extend(more.into_iter().map(shown));
                let response = if is_error { Outcome::Error(text) } else { Outcome::Output(text) };
                let function_response =
                    Some(FunctionResponse { id: Some(id).filter(|id| given.contains(id)), name, response });
                ("user", vec![Said { function_response, ..Said::default() }])
            }
        };
        add(&mut contents, role, parts);
    }
    if !images.is_empty() {
        add(&mut contents, "user", images);
    }
    contents
}

fn add<'a>(contents: &mut Vec<Content<'a>>, role: &'static str, parts: Vec<Said<'a>>) {
    match contents.last_mut() {
        Some(last) if last.role == Some(role) => last.parts.extend(parts),
        Some(_) | None if parts.is_empty() => {}
        Some(_) | None => contents.push(Content { role: Some(role), parts }),
    }
}

/// The ids of calls of an answer with this payload that the provider gave.
fn given_ids(payload: Option<&str>) -> Vec<String> {
    let given = kept::members(payload).shift_remove(GIVEN);
    given.and_then(|ids| serde_json::from_value(ids).ok()).unwrap_or_default()
}

fn answer<'a>(request: &Request, pieces: Vec<Piece<'a>>, given: &[String]) -> Vec<Said<'a>> {
    let mut first = by_level(request);
    pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text { text, signature } => {
                Some(Said { text: Some(text), thought_signature: signature, ..Said::default() })
            }
            // Thoughts are summaries: only their signature is worth sending back.
            Piece::Thinking { text, signature: Some(signature) } => Some(Said {
                thought: Some(true),
                text: Some(text),
                thought_signature: Some(signature),
                ..Said::default()
            }),
            Piece::Thinking { signature: None, .. } | Piece::Redacted(_) => None,
            Piece::Call { id, name, arguments, signature } => {
                // Only the first call of an answer is signed.
                let signature = signature.or_else(|| std::mem::take(&mut first).then_some(NO_SIGNATURE));
                first = false;
                Some(Said {
                    function_call: Some(FunctionCall {
                        id: Some(id).filter(|id| given.contains(id)),
                        name,
                        args: arguments,
                    }),
                    thought_signature: signature,
                    ..Said::default()
                })
            }
        })
        .collect()
}

fn said(text: &str) -> Said<'_> {
    Said { text: Some(text), ..Said::default() }
}

fn shown(block: Block<'_>) -> Said<'_> {
    match block {
        Block::Text(text) => said(text),
        Block::Image { mime_type, data } => {
            Said { inline_data: Some(InlineData { mime_type, data }), ..Said::default() }
        }
    }
}
