//! Peer of a simulation: its connection opens, breaks and opens again.

use countersign_core::{
    OwedWork,
    call::{self, CallProgress, DoubtCause},
    engine::Command,
    id::PeerId,
    peer::{self, PeerLine, PeerMemory},
};

use super::{ReplyTarget, SimCommand, SimOwner};
use crate::sim::{PlantedFault, messages, world::WorkProgress};

impl SimOwner {
    /// Connects or disconnects the peer, now and then.
    pub(super) fn peer_moves(&mut self) {
        // Work on its way when a connection breaks is the important case.
        let often = if self.is_at_a_peer() { 50 } else { 12 };
        if self.rng.chance(often) {
            let command = self.peer_command();
            self.line.push_back(SimCommand { command, from: ReplyTarget::Work });
        }
    }

    /// Reports whether a peer has done work that it did not report.
    fn is_at_a_peer(&self) -> bool {
        let is_peers = |work: &OwedWork| match work {
            OwedWork::Call { call, .. } => {
                self.audit.calls.get(call).is_some_and(|seen| matches!(seen.executor, call::Executor::Peer(_)))
            }
            _ => false,
        };
        self.jobs.iter().any(|(work, job)| job.doing == WorkProgress::Effected && is_peers(work))
    }

    /// Connects the peer over a new connection, or disconnects it.
    fn peer_command(&mut self) -> Command {
        let peer = PeerId::new(messages::PEER);
        Command::Peer(match self.world.line.take().filter(|_| self.rng.chance(60)) {
            Some(line) => peer::Command::Gone { peer, line },
            None => {
                self.lines += 1;
                self.world.line = Some(PeerLine(self.lines));
                let memory = self.rng.pick(&[
                    PeerMemory::Keeps,
                    PeerMemory::Journal(1),
                    PeerMemory::Journal(2),
                    PeerMemory::Forgets,
                ]);
                peer::Command::Came { peer, line: PeerLine(self.lines), memory }
            }
        })
    }

    /// Plants the fault of an adapter that reports a sent call as not sent.
    pub(super) fn denies_sending(&mut self, command: &mut Command) {
        if let Command::Call(call::Command::Ended { call, progress }) = command
            && matches!(progress, CallProgress::Left { since: DoubtCause::LineGone, .. })
            && !self.engine.state().call(*call).is_some_and(call::Call::is_asking)
            && self.plant_fault(PlantedFault::SendAgain)
        {
            *progress =
                CallProgress::Unsent { start: self.engine.state().call(*call).map_or(0, call::Call::start_count) };
        }
    }
}
