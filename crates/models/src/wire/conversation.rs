//! A conversation made fit for the model that is asked now: other models' private parts left out, ids in the wire's
//! alphabet, every call with exactly one result.
//!
//! It must not know how a wire writes any of it.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::object;
use crate::{Message, Modality, Part, Request};

/// Said where a call has no result in the conversation: providers refuse a call without one.
pub(crate) const NO_RESULT: &str = "No result was recorded for this call";

/// Said where a result is empty: some providers refuse an empty one.
const EMPTY: &str = "(no output)";

/// Said instead of an image to a model that takes none.
const NO_IMAGE: &str = "(an image was here; this model takes no images)";

/// One turn of the conversation as it is sent.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    User(Vec<Block<'a>>),
    Developer(Vec<Block<'a>>),
    Assistant {
        pieces: Vec<Piece<'a>>,
        /// What belongs to the whole answer; only of the model that is asked.
        payload: Option<&'a str>,
    },
    /// Follows the turn with its call, in the order of the calls.
    Result {
        id: String,
        name: &'a str,
        blocks: Vec<Block<'a>>,
        is_error: bool,
    },
}

/// What can be shown to a model. Text is never blank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Block<'a> {
    Text(&'a str),
    Image { mime_type: &'a str, data: &'a str },
}

/// What a model said. Thinking and signatures are only those of the model that is asked.
#[derive(Clone, Debug)]
pub(crate) enum Piece<'a> {
    Text { text: &'a str, signature: Option<&'a str> },
    Thinking { text: &'a str, signature: Option<&'a str> },
    Redacted(&'a str),
    Call { id: String, name: &'a str, arguments: &'a RawValue, signature: Option<&'a str> },
}

/// Which ids of calls a wire takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    /// `[a-zA-Z0-9_-]{1,64}`, of all calls.
    Words64,
    /// `[a-zA-Z0-9_-]{1,40}`, of other models' calls; a model's own ids came from its provider and fit.
    Foreign40,
    /// Exactly nine letters and digits, of other models' calls.
    Foreign9,
}

/// The conversation of `request`, ready to be written.
///
/// - Thinking and signatures of another model are left out, and with them a message that held nothing else.
/// - A result follows its call at once, wherever it was found before another call has its id. A call without one gets [`NO_RESULT`]; a result without a call is left out.
/// - Ids of other models' calls are made unique, since models number them anew.
pub(crate) fn turns(request: &Request, ids: Ids) -> Vec<Turn<'_>> {
    let mut used = vec![false; request.messages.len()];
    let mut names = Names { ids, taken: HashSet::new() };
    let mut turns = Vec::new();
    for (at, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(parts) => {
                push(&mut turns, blocks(request, parts), Turn::User);
            }
            Message::Developer(parts) => {
                push(&mut turns, blocks(request, parts), Turn::Developer);
            }
            Message::ToolResult { .. } => {}
            Message::Assistant(said) => {
                let entry = &request.entry;
                let own = said.api == entry.api && said.provider == entry.provider && said.model == entry.id;
                let mut calls = Vec::new();
                let pieces: Vec<_> = said
                    .parts
                    .iter()
                    .filter_map(|part| {
                        let piece = piece(part, own, &mut names)?;
                        if let (Part::ToolCall { id, name, .. }, Piece::Call { id: sent, .. }) = (part, &piece) {
                            calls.push((id, name, sent.clone()));
                        }
                        Some(piece)
                    })
                    .collect();
                if pieces.iter().any(|piece| !matches!(piece, Piece::Thinking { .. } | Piece::Redacted(_))) {
                    turns.push(Turn::Assistant { pieces, payload: said.payload.as_deref().filter(|_| own) });
                }
                for (id, name, sent) in calls {
                    turns.push(result(request, at + 1, &mut used, id, sent, name));
                }
            }
        }
    }
    turns
}

fn push<'a>(turns: &mut Vec<Turn<'a>>, blocks: Vec<Block<'a>>, turn: fn(Vec<Block<'a>>) -> Turn<'a>) {
    if !blocks.is_empty() {
        turns.push(turn(blocks));
    }
}

fn piece<'a>(part: &'a Part, own: bool, names: &mut Names) -> Option<Piece<'a>> {
    let kept = |signature: &'a Option<String>| signature.as_deref().filter(|_| own);
    match part {
        Part::Text { text, signature } => {
            let signature = kept(signature);
            (!text.trim().is_empty() || signature.is_some()).then_some(Piece::Text { text, signature })
        }
        Part::Thinking { text, signature } => own.then_some(Piece::Thinking { text, signature: kept(signature) }),
        Part::Redacted { data } => own.then_some(Piece::Redacted(data)),
        Part::Image { .. } => None,
        Part::ToolCall { id, name, arguments, signature } => Some(Piece::Call {
            id: names.name(id, own),
            name,
            arguments: object(arguments),
            signature: kept(signature),
        }),
    }
}

/// The result of the call `id`, looked for from `from` up to another call under it. Others may have gone on with the conversation
/// before it was there.
fn result<'a>(
    request: &'a Request,
    from: usize,
    used: &mut [bool],
    id: &str,
    sent: String,
    called: &'a str,
) -> Turn<'a> {
    let calls = |part: &Part| matches!(part, Part::ToolCall { id: of, .. } if of == id);
    let is_other = |message: &Message| matches!(message, Message::Assistant(said) if said.parts.iter().any(calls));
    let later = request.messages.iter().enumerate().skip(from);
    for (at, message) in later.take_while(|(_, message)| !is_other(message)) {
        match message {
            Message::ToolResult { id: of, name: _, parts, is_error } if of == id && !used[at] => {
                used[at] = true;
                let mut blocks = blocks(request, parts);
                if blocks.is_empty() {
                    blocks.push(Block::Text(EMPTY));
                }
                return Turn::Result { id: sent, name: called, blocks, is_error: *is_error };
            }
            Message::ToolResult { .. } | Message::User(_) | Message::Developer(_) | Message::Assistant(_) => {}
        }
    }
    Turn::Result { id: sent, name: called, blocks: vec![Block::Text(NO_RESULT)], is_error: true }
}

fn blocks<'a>(request: &Request, parts: &'a [Part]) -> Vec<Block<'a>> {
    let sees = request.entry.input.contains(&Modality::Image);
    parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } => (!text.trim().is_empty()).then_some(Block::Text(text)),
            Part::Image { mime_type, data } if sees => Some(Block::Image { mime_type, data }),
            Part::Image { .. } => Some(Block::Text(NO_IMAGE)),
            Part::Thinking { .. } | Part::Redacted { .. } | Part::ToolCall { .. } => None,
        })
        .collect()
}

/// The text of `blocks`, and their images apart from it.
pub(crate) fn apart<'a>(blocks: &[Block<'a>]) -> (String, Vec<Block<'a>>) {
    let mut text = String::new();
    let mut images = Vec::new();
    for block in blocks {
        match block {
            Block::Text(more) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(more);
            }
            Block::Image { .. } => images.push(*block),
        }
    }
    (text, images)
}

/// Gives calls the ids that they are sent with.
struct Names {
    ids: Ids,
    taken: HashSet<String>,
}

impl Names {
    fn name(&mut self, id: &str, own: bool) -> String {
        let mut name = match self.ids {
            Ids::Words64 => words(id, 64),
            Ids::Foreign40 | Ids::Foreign9 if own => id.to_owned(),
            Ids::Foreign40 => words(id, 40),
            Ids::Foreign9 => nine(id),
        };
        let mut again = 1;
        while !own && self.taken.contains(&name) {
            again += 1;
            name = match self.ids {
                Ids::Words64 => words(&format!("{id}_{again}"), 64),
                Ids::Foreign40 => words(&format!("{id}_{again}"), 40),
                Ids::Foreign9 => nine(&format!("{id}_{again}")),
            };
        }
        self.taken.insert(name.clone());
        name
    }
}

/// `id` in letters, digits, `_` and `-`. One that is too long keeps its beginning and gets a digest of all of it.
fn words(id: &str, longest: usize) -> String {
    let name: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    match name.len() {
        0 => "call".to_owned(),
        length if length <= longest => name,
        _ => format!("{}_{:016x}", &name[..longest - 17], digest(id)),
    }
}

fn nine(id: &str) -> String {
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let mut rest = digest(id);
    (0..9)
        .map(|_| {
            let digit = char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize]);
            rest /= 36;
            digit
        })
        .collect()
}

/// FNV-1a: the same on every machine and in every version, which a cached prompt needs.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
