//! Deciders for peers: their lines come and go.

use crate::{
    decision::{Decision, Event, Fact, Reply, View},
    peer::{Command, Event as Happened},
};

/// A line that comes takes the place of the one before; one that goes and is not the peer's changes nothing. What a peer
/// says of itself is recorded as it is.
pub(super) fn decide(view: View<'_>, command: Command) -> Decision {
    let event = match command {
        Command::Came { peer, line, memory } if view.state.line_of(&peer) != Some(line) => {
            Happened::Came { peer, line, memory }
        }
        Command::Registered { peer, said } => {
            let event = Event::Peer(Happened::Registered { peer });
            return Decision { facts: vec![Fact { event, session: None, content: Some(said) }], reply: Reply::Done };
        }
        Command::Gone { peer, line } if view.state.line_of(&peer) == Some(line) => Happened::Gone { peer },
        Command::Came { .. } | Command::Gone { .. } => {
            return Decision { facts: Vec::new(), reply: Reply::Idle };
        }
    };
    Decision { facts: vec![Fact::plain(Event::Peer(event), None)], reply: Reply::Done }
}
