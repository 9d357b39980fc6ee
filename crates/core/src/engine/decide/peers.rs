//! Deciders for peers: their connections begin and end.

use crate::{
    decision::{DecisionResult, DecisionView, EngineReply, Event, Fact},
    peer::{Command, Event as Happened},
};

/// Records a connection or its end: a new one replaces the one before; the end of one that is not the peer's changes nothing.
/// The peer's description of itself is recorded as it is.
pub(super) fn decide_peer(view: DecisionView<'_>, command: Command) -> DecisionResult {
    let event = match command {
        Command::Came { peer, line, memory } if view.state.line_of(&peer) != Some(line) => {
            Happened::Came { peer, line, memory }
        }
        Command::Registered { peer, description } => {
            let event = Event::Peer(Happened::Registered { peer });
            return DecisionResult {
                facts: vec![Fact { event, session: None, content: Some(description) }],
                reply: EngineReply::Done,
            };
        }
        Command::Gone { peer, line } if view.state.line_of(&peer) == Some(line) => Happened::Gone { peer },
        Command::Came { .. } | Command::Gone { .. } => {
            return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
        }
    };
    DecisionResult { facts: vec![Fact::without_content(Event::Peer(event), None)], reply: EngineReply::Done }
}
