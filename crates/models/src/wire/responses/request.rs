//! Writes requests for Responses.

use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::items::members;

use crate::{
    Failure, Level, Request,
    wire::{
        Prepared, below,
        conversation::{Block, Ids, Piece, Turn, apart, turns},
        effort, write,
    },
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Item<'a>>,
    stream: bool,
    store: bool,
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    /// Without the encrypted reasoning a later request could not send it back, as nothing is stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
    summary: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Content<'a>>,
        /// As they came with this text.
        #[serde(flatten)]
        given: Map<String, Value>,
    },
    Call(Call<'a>),
    Output(Output<'a>),
    /// As it came.
    Reasoning(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
    InputImage { detail: &'static str, image_url: String },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function_call")]
struct Call<'a> {
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
struct Output<'a> {
    call_id: String,
    output: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Text(String),
    Contents(Vec<Content<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// The wire's default is true, which refuses schemas with optional fields.
    strict: bool,
}

/// Builds `POST {base}/responses`.
pub(crate) fn prepare(request: &Request) -> Result<Prepared, Failure> {
    let bearer = |key: &secrecy::SecretString| ("authorization".to_owned(), format!("Bearer {}", key.expose_secret()));
    Ok(Prepared {
        url: below(request, "/responses"),
        headers: request.key.iter().map(bearer).collect(),
        body: write(&body(request))?,
    })
}

fn body(request: &Request) -> Body<'_> {
    let effort = request.thinking().filter(|level| *level != Level::Off).and_then(effort::openai_effort);
    Body {
        model: &request.entry.id,
        instructions: request.system.as_deref().filter(|text| !text.trim().is_empty()),
        input: input(request),
        stream: true,
        store: false,
        max_output_tokens: request.output_cap(),
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.schema,
                strict: false,
            })
            .collect(),
        reasoning: effort.map(|effort| Reasoning { effort, summary: "auto" }),
        include: if request.entry.reasoning { vec!["reasoning.encrypted_content"] } else { Vec::new() },
        prompt_cache_key: request.session.as_deref(),
    }
}

fn input(request: &Request) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for turn in turns(request, Ids::Foreign40) {
        match turn {
            Turn::User(blocks) => items.push(message("user", contents(&blocks), None)),
            Turn::Developer(blocks) => items.push(message("developer", contents(&blocks), None)),
            Turn::Assistant { pieces, payload: _ } => assistant(&mut items, pieces),
            Turn::Result { id, blocks, .. } => {
                let (text, images) = apart(&blocks);
                let output = if images.is_empty() { Outcome::Text(text) } else { Outcome::Contents(contents(&blocks)) };
                items.push(Item::Output(Output { call_id: id, output }));
            }
        }
    }
    items
}

/// Reasoning goes back only in front of what it led to: OpenAI refuses it alone.
fn assistant<'a>(items: &mut Vec<Item<'a>>, pieces: Vec<Piece<'a>>) {
    let mut thoughts = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Thinking { signature, .. } => thoughts.extend(signature.and_then(reasoning).map(Item::Reasoning)),
            Piece::Redacted(_) => {}
            Piece::Text { text, .. } if text.trim().is_empty() => {}
            Piece::Text { text, signature } => {
                items.append(&mut thoughts);
                items.push(message("assistant", vec![Content::OutputText { text }], signature));
            }
            Piece::Call { id, name, arguments, signature } => {
                items.append(&mut thoughts);
                let given = members(signature);
                items.push(Item::Call(Call { call_id: id, name, arguments: arguments.get(), given }));
            }
        }
    }
}

fn message<'a>(role: &'static str, content: Vec<Content<'a>>, signature: Option<&str>) -> Item<'a> {
    Item::Message { role, content, given: members(signature) }
}

/// The reasoning item that signed a thought, if it is one.
fn reasoning(signature: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    let kind: Kind = serde_json::from_str(signature).ok()?;
    (kind.r#type == "reasoning").then(|| serde_json::from_str(signature).ok()).flatten()
}

fn contents<'a>(blocks: &[Block<'a>]) -> Vec<Content<'a>> {
    blocks
        .iter()
        .map(|block| match block {
            Block::Text(text) => Content::InputText { text },
            Block::Image { mime_type, data } => {
                Content::InputImage { detail: "auto", image_url: format!("data:{mime_type};base64,{data}") }
            }
        })
        .collect()
}
