//! A conversation made fit for the model of the request: other models' private parts left out, ids in the wire's
//! alphabet, every call with exactly one result.
//!
//! It must not know how a wire writes any of it.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::object_or_empty;
use crate::{InputModality, MessagePart, ModelRequest, RequestMessage};

/// Text for a call without a result in the conversation: providers refuse a call without one.
pub(crate) const NO_RESULT: &str = "No result was recorded for this call";

/// Text for an empty result: some providers refuse an empty one.
const EMPTY: &str = "(no output)";

/// Text instead of an image for a model that takes none.
const NO_IMAGE: &str = "(an image was here; this model takes no images)";

/// One turn of the conversation as it is sent.
#[derive(Debug)]
pub(crate) enum WireTurn<'a> {
    User(Vec<WireBlock<'a>>),
    Developer(Vec<WireBlock<'a>>),
    Assistant {
        pieces: Vec<AnswerPiece<'a>>,
        /// Data of the whole answer; only of the model of the request.
        payload: Option<&'a str>,
    },
    /// Follows the turn with its call, in the order of the calls.
    Result {
        id: String,
        name: &'a str,
        blocks: Vec<WireBlock<'a>>,
        is_error: bool,
    },
}

/// Content for a model. Text is never blank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireBlock<'a> {
    Text(&'a str),
    Image { mime_type: &'a str, data: &'a str },
}

/// Piece of a model's answer. Thinking and signatures are only those of the model of the request.
#[derive(Clone, Debug)]
pub(crate) enum AnswerPiece<'a> {
    Text { text: &'a str, signature: Option<&'a str> },
    Thinking { text: &'a str, signature: Option<&'a str> },
    Redacted(&'a str),
    Call { id: String, name: &'a str, arguments: &'a RawValue, signature: Option<&'a str> },
}

/// Ids of calls that a wire takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallIdStyle {
    /// `[a-zA-Z0-9_-]{1,64}`, of all calls.
    Words64,
    /// `[a-zA-Z0-9_-]{1,40}`, of other models' calls; a model's own ids came from its provider and fit.
    Foreign40,
    /// Exactly nine letters and digits, of other models' calls.
    Foreign9,
}

/// Returns the conversation of `request`, ready to be written.
///
/// - Thinking and signatures of another model are left out, and with them a message that held nothing else.
/// - A result follows its call at once, wherever it was found before another call has its id. A call without one gets [`NO_RESULT`];
///   a result without a call is left out.
/// - Ids of other models' calls are made unique, since models number them again for each answer.
pub(crate) fn prepare_turns(request: &ModelRequest, ids: CallIdStyle) -> Vec<WireTurn<'_>> {
    let mut used = vec![false; request.messages.len()];
    let mut names = CallIdAssigner { ids, taken: HashSet::new() };
    let mut turns = Vec::new();
    for (at, message) in request.messages.iter().enumerate() {
        match message {
            RequestMessage::User(parts) => {
                push_turn(&mut turns, visible_blocks(request, parts), WireTurn::User);
            }
            RequestMessage::Developer(parts) => {
                push_turn(&mut turns, visible_blocks(request, parts), WireTurn::Developer);
            }
            RequestMessage::ToolResult { .. } => {}
            RequestMessage::Assistant(answer) => {
                let entry = &request.entry;
                let own = answer.api == entry.api && answer.provider == entry.provider && answer.model == entry.id;
                let mut calls = Vec::new();
                let pieces: Vec<_> = answer
                    .parts
                    .iter()
                    .filter_map(|part| {
                        let piece = answer_piece(part, own, &mut names)?;
                        if let (MessagePart::ToolCall { id, name, .. }, AnswerPiece::Call { id: sent, .. }) =
                            (part, &piece)
                        {
                            calls.push((id, name, sent.clone()));
                        }
                        Some(piece)
                    })
                    .collect();
                if pieces.iter().any(|piece| !matches!(piece, AnswerPiece::Thinking { .. } | AnswerPiece::Redacted(_)))
                {
                    turns.push(WireTurn::Assistant { pieces, payload: answer.payload.as_deref().filter(|_| own) });
                }
                for (id, name, sent) in calls {
                    turns.push(result_turn(request, at + 1, &mut used, id, sent, name));
                }
            }
        }
    }
    turns
}

fn push_turn<'a>(
    turns: &mut Vec<WireTurn<'a>>,
    blocks: Vec<WireBlock<'a>>,
    turn: fn(Vec<WireBlock<'a>>) -> WireTurn<'a>,
) {
    if !blocks.is_empty() {
        turns.push(turn(blocks));
    }
}

fn answer_piece<'a>(part: &'a MessagePart, own: bool, names: &mut CallIdAssigner) -> Option<AnswerPiece<'a>> {
    let kept = |signature: &'a Option<String>| signature.as_deref().filter(|_| own);
    match part {
        MessagePart::Text { text, signature } => {
            let signature = kept(signature);
            (!text.trim().is_empty() || signature.is_some()).then_some(AnswerPiece::Text { text, signature })
        }
        MessagePart::Thinking { text, signature } => {
            own.then_some(AnswerPiece::Thinking { text, signature: kept(signature) })
        }
        MessagePart::Redacted { data } => own.then_some(AnswerPiece::Redacted(data)),
        MessagePart::Image { .. } => None,
        MessagePart::ToolCall { id, name, arguments, signature } => Some(AnswerPiece::Call {
            id: names.assign_id(id, own),
            name,
            arguments: object_or_empty(arguments),
            signature: kept(signature),
        }),
    }
}

/// Returns the result of the call `id`, looked for from `from` up to another call under it. Others may have continued the conversation
/// before it was there.
fn result_turn<'a>(
    request: &'a ModelRequest,
    from: usize,
    used: &mut [bool],
    id: &str,
    sent: String,
    called: &'a str,
) -> WireTurn<'a> {
    let calls = |part: &MessagePart| matches!(part, MessagePart::ToolCall { id: of, .. } if of == id);
    let is_other = |message: &RequestMessage| matches!(message, RequestMessage::Assistant(answer) if answer.parts.iter().any(calls));
    let later = request.messages.iter().enumerate().skip(from);
    for (at, message) in later.take_while(|(_, message)| !is_other(message)) {
        match message {
            RequestMessage::ToolResult { id: of, name: _, parts, is_error } if of == id && !used[at] => {
                used[at] = true;
                let mut blocks = visible_blocks(request, parts);
                if blocks.is_empty() {
                    blocks.push(WireBlock::Text(EMPTY));
                }
                return WireTurn::Result { id: sent, name: called, blocks, is_error: *is_error };
            }
            RequestMessage::ToolResult { .. }
            | RequestMessage::User(_)
            | RequestMessage::Developer(_)
            | RequestMessage::Assistant(_) => {}
        }
    }
    WireTurn::Result { id: sent, name: called, blocks: vec![WireBlock::Text(NO_RESULT)], is_error: true }
}

fn visible_blocks<'a>(request: &ModelRequest, parts: &'a [MessagePart]) -> Vec<WireBlock<'a>> {
    let sees = request.entry.input.contains(&InputModality::Image);
    parts
        .iter()
        .filter_map(|part| match part {
            MessagePart::Text { text, .. } => (!text.trim().is_empty()).then_some(WireBlock::Text(text)),
            MessagePart::Image { mime_type, data } if sees => Some(WireBlock::Image { mime_type, data }),
            MessagePart::Image { .. } => Some(WireBlock::Text(NO_IMAGE)),
            MessagePart::Thinking { .. } | MessagePart::Redacted { .. } | MessagePart::ToolCall { .. } => None,
        })
        .collect()
}

/// Returns the text of `blocks`, and their images apart from it.
pub(crate) fn split_images<'a>(blocks: &[WireBlock<'a>]) -> (String, Vec<WireBlock<'a>>) {
    let mut text = String::new();
    let mut images = Vec::new();
    for block in blocks {
        match block {
            WireBlock::Text(more) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(more);
            }
            WireBlock::Image { .. } => images.push(*block),
        }
    }
    (text, images)
}

/// Gives calls the ids that they are sent with.
struct CallIdAssigner {
    ids: CallIdStyle,
    taken: HashSet<String>,
}

impl CallIdAssigner {
    fn assign_id(&mut self, id: &str, own: bool) -> String {
        let mut name = match self.ids {
            CallIdStyle::Words64 => word_id(id, 64),
            CallIdStyle::Foreign40 | CallIdStyle::Foreign9 if own => id.to_owned(),
            CallIdStyle::Foreign40 => word_id(id, 40),
            CallIdStyle::Foreign9 => nine_char_id(id),
        };
        let mut again = 1;
        while !own && self.taken.contains(&name) {
            again += 1;
            name = match self.ids {
                CallIdStyle::Words64 => word_id(&format!("{id}_{again}"), 64),
                CallIdStyle::Foreign40 => word_id(&format!("{id}_{again}"), 40),
                CallIdStyle::Foreign9 => nine_char_id(&format!("{id}_{again}")),
            };
        }
        self.taken.insert(name.clone());
        name
    }
}

/// Returns `id` in letters, digits, `_` and `-`. One that is too long keeps its beginning and gets a digest of all of it.
fn word_id(id: &str, longest: usize) -> String {
    let name: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    match name.len() {
        0 => "call".to_owned(),
        length if length <= longest => name,
        _ => format!("{}_{:016x}", &name[..longest - 17], fnv_digest(id)),
    }
}

fn nine_char_id(id: &str) -> String {
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let mut rest = fnv_digest(id);
    (0..9)
        .map(|_| {
            let digit = char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize]);
            rest /= 36;
            digit
        })
        .collect()
}

/// Computes FNV-1a: the same on every machine and in every version, which a cached prompt needs.
fn fnv_digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
