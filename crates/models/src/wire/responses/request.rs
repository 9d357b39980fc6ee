//! Writes requests for Responses.

use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::items::{members, unwritten};

use crate::{
    Failure, Level, Request,
    wire::{
        Prepared, below,
        conversation::{Block, Ids, Piece, Turn, apart, turns},
        effort,
        kept::{self, Late},
        write,
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
    /// As it came, behind what it led to.
    Late(Value),
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
            Turn::User(blocks) => items.push(message("user", contents(&blocks))),
            Turn::Developer(blocks) => items.push(message("developer", contents(&blocks))),
            Turn::Assistant { pieces, payload } => assistant(&mut items, pieces, kept::late(payload)),
            Turn::Result { id, blocks, .. } => {
                let (text, images) = apart(&blocks);
                let output = if images.is_empty() { Outcome::Text(text) } else { Outcome::Contents(contents(&blocks)) };
                items.push(Item::Output(Output { call_id: id, output }));
            }
        }
    }
    items
}

/// Reasoning goes back only in front of what it led to: OpenAI refuses it alone. What came late stands in for what came of
/// the same item before.
fn assistant<'a>(items: &mut Vec<Item<'a>>, pieces: Vec<Piece<'a>>, mut late: Vec<Late>) {
    let id = |item: &Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
    let replaced: Vec<String> = late.iter().flat_map(|late| &late.before).filter_map(id).collect();
    let is_replaced = |raw: &&RawValue| {
        let item: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        id(&item).is_some_and(|id| replaced.contains(&id))
    };
    let mut take = |is_it: &dyn Fn(&Late) -> bool| {
        let at = late.iter().position(is_it);
        at.map(|at| late.remove(at)).unwrap_or_default()
    };
    let mut thoughts = Vec::new();
    let mut texts = 0;
    for piece in pieces {
        match piece {
            Piece::Thinking { signature, .. } => {
                let thought = signature.and_then(reasoning).filter(|raw| !is_replaced(raw));
                thoughts.extend(thought.map(Item::Reasoning));
            }
            Piece::Redacted(_) => {}
            Piece::Text { text, .. } if text.trim().is_empty() => {}
            Piece::Text { text, signature } => {
                let late = take(&|late| late.text == Some(texts));
                texts += 1;
                items.append(&mut thoughts);
                items.extend(late.before.into_iter().map(Item::Late));
                let given = with_late(signature, late.members);
                items.push(Item::Message { role: "assistant", content: vec![Content::OutputText { text }], given });
            }
            Piece::Call { id, name, arguments, signature } => {
                let late = take(&|late| late.call.as_ref() == Some(&id));
                items.append(&mut thoughts);
                items.extend(late.before.into_iter().map(Item::Late));
                let given = with_late(signature, late.members);
                items.push(Item::Call(Call { call_id: id, name, arguments: arguments.get(), given }));
            }
        }
    }
}

/// The members that go back with a part: those that it is signed with, and those that came late.
fn with_late(signature: Option<&str>, late: Map<String, Value>) -> Map<String, Value> {
    let mut given = members(signature);
    given.extend(unwritten(late));
    given
}

fn message<'a>(role: &'static str, content: Vec<Content<'a>>) -> Item<'a> {
    Item::Message { role, content, given: Map::new() }
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
