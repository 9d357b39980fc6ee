//! Connections of peers, as the record has them.

use countersign_core::peer;

use super::{LogAudit, ensure};

impl LogAudit {
    pub(super) fn read_peer_event(&mut self, event: &peer::Event) -> Result<(), String> {
        match event {
            peer::Event::Registered { .. } => Ok(()),
            peer::Event::Came { peer, line, memory } => {
                self.memories.insert(peer.clone(), *memory);
                let before = self.lines.insert(peer.clone(), *line);
                ensure(before.is_none_or(|before| before < *line), "an ended connection of a peer is used again")
            }
            peer::Event::Gone { peer } => ensure(self.lines.remove(peer).is_some(), "a disconnected peer disconnects"),
        }
    }
}
