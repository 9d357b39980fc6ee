//! The peer of a simulation: its line comes, breaks and comes again.

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
    /// The peer comes or goes, now and then.
    pub(super) fn peer_moves(&mut self) {
        // What is on its way when a line breaks is the case to look at.
        let often = if self.is_at_a_peer() { 50 } else { 12 };
        if self.rng.chance(often) {
            let command = self.peer_command();
            self.line.push_back(SimCommand { command, from: ReplyTarget::Work });
        }
    }

    /// Whether a peer has done something and not told of it.
    fn is_at_a_peer(&self) -> bool {
        let is_peers = |work: &OwedWork| match work {
            OwedWork::Call { call, .. } => {
                self.audit.calls.get(call).is_some_and(|seen| matches!(seen.executor, call::Executor::Peer(_)))
            }
            _ => false,
        };
        self.jobs.iter().any(|(work, job)| job.doing == WorkProgress::Effected && is_peers(work))
    }

    /// The peer comes, over a line that nobody ever had, or goes.
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

    /// The mistake of a door that says of what it sent that it did not.
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
