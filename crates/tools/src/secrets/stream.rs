//! Takes secrets out of an output that comes in pieces.

use std::sync::Arc;

use super::{
    redactor::{RedactionMatch, Redactor},
    view::MoreInput,
};

/// Part of itself by which held text must grow before it is searched again. A search for each single byte would take time that
/// grows with the square of a secret's length.
const GROWN: usize = 64;

/// An output on its way. A possible beginning of a secret is held until more is known.
pub struct RedactingStream {
    redactor: Arc<Redactor>,
    held: Vec<u8>,
    /// Number of held bytes that were not searched yet.
    new: usize,
}

impl RedactingStream {
    pub(super) const fn with_redactor(veil: Arc<Redactor>) -> Self {
        Self { redactor: veil, held: Vec::new(), new: 0 }
    }

    /// Takes the next piece, and gives what may be shown by now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        if self.redactor.is_empty() {
            return piece.to_vec();
        }
        self.held.extend_from_slice(piece);
        self.new += piece.len();
        if self.new < self.held.len() / GROWN {
            return Vec::new();
        }
        self.release_held(MoreInput::Perhaps)
    }

    /// Gives what was held: nothing more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        self.release_held(MoreInput::Nothing)
    }

    fn release_held(&mut self, then: MoreInput) -> Vec<u8> {
        self.new = 0;
        let (mut shown, mut from) = (Vec::with_capacity(self.held.len()), 0);
        loop {
            match self.redactor.next(&self.held, from, then) {
                Some(RedactionMatch::Whole { start, end, shown: instead }) => {
                    shown.extend_from_slice(&self.held[from..start]);
                    shown.extend_from_slice(instead.as_bytes());
                    from = end;
                }
                Some(RedactionMatch::Begun { start }) => {
                    shown.extend_from_slice(&self.held[from..start]);
                    self.held.drain(..start);
                    return shown;
                }
                None => {
                    shown.extend_from_slice(&self.held[from..]);
                    self.held.clear();
                    return shown;
                }
            }
        }
    }
}
