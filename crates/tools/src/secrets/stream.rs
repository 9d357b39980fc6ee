//! Takes secrets out of an output that comes in pieces.

use std::sync::Arc;

use super::{
    veil::{Found, Veil},
    view::Then,
};

/// What is held is looked at again when it has grown by this part of itself, not for each byte that comes alone: as long as a
/// secret may be, that would take a time that grows with its square.
const GROWN: usize = 64;

/// An output on its way. What could be the beginning of a secret is held until it is known.
pub struct Stream {
    veil: Arc<Veil>,
    held: Vec<u8>,
    /// How many bytes of what is held nobody has looked at.
    new: usize,
}

impl Stream {
    pub(super) const fn over(veil: Arc<Veil>) -> Self {
        Self { veil, held: Vec::new(), new: 0 }
    }

    /// Takes the next piece, and gives what may be shown by now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        if self.veil.is_empty() {
            return piece.to_vec();
        }
        self.held.extend_from_slice(piece);
        self.new += piece.len();
        if self.new < self.held.len() / GROWN {
            return Vec::new();
        }
        self.release(Then::Perhaps)
    }

    /// Gives what was held: nothing more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        self.release(Then::Nothing)
    }

    fn release(&mut self, then: Then) -> Vec<u8> {
        self.new = 0;
        let (mut shown, mut from) = (Vec::with_capacity(self.held.len()), 0);
        loop {
            match self.veil.next(&self.held, from, then) {
                Some(Found::Whole { start, end, shown: instead }) => {
                    shown.extend_from_slice(&self.held[from..start]);
                    shown.extend_from_slice(instead.as_bytes());
                    from = end;
                }
                Some(Found::Begun { start }) => {
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
