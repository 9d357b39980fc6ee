//! Commands that wait for their turn, and what an abort makes of them.

use std::collections::VecDeque;

use countersign_protocol::{
    gjc::GjcCommand,
    omp::{AdoptedCommand, OmpCommand as Shared, OmpRequestId},
};

use super::{ActiveOperation, OmpAdapter};
use crate::command_kind;

/// A command that came, and waits.
pub struct QueuedCommand {
    pub id: Option<OmpRequestId>,
    pub command: GjcCommand,
    pub turn: CommandTurn,
}

/// Action on a command when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTurn {
    /// Its own action.
    Own,
    /// Nothing: it was stopped before, and is answered with that.
    GivenUp,
    /// It has stopped the work, and stops the work that began since: it was requested before.
    Again,
}

impl QueuedCommand {
    pub(crate) const fn new(id: Option<OmpRequestId>, command: GjcCommand) -> Self {
        Self { id, command, turn: CommandTurn::Own }
    }

    /// Reports whether the agent works once its turn has come.
    pub(crate) const fn begins_run(&self) -> bool {
        matches!(self.turn, CommandTurn::Own)
            && matches!(self.command, GjcCommand::Shared(Shared::Prompt { .. } | Shared::AbortAndPrompt { .. }))
    }
}

/// Gives up commands for which an abort need not wait: those that are only answered, and, if a user's command has to end first, those that
/// would begin after it. `behind_command` says whether one works.
fn give_up(waiting: &mut VecDeque<QueuedCommand>, behind_command: bool) {
    let (mut behind_command, mut is_stuck) = (behind_command, false);
    for waiting in waiting {
        behind_command |= command_kind::is_bash(&waiting.command);
        is_stuck |= behind_command && command_kind::leaves_session(&waiting.command);
        let is_answered = matches!(
            waiting.command,
            GjcCommand::Shared(Shared::Compact { .. }) | GjcCommand::Adopted(AdoptedCommand::Handoff { .. })
        );
        if is_answered && waiting.turn == CommandTurn::Own || is_stuck && waiting.begins_run() {
            waiting.turn = CommandTurn::GivenUp;
        }
    }
}

impl OmpAdapter {
    /// Has a command that could not be done at its turn be the next that is done.
    pub fn comes_next(&mut self, id: Option<OmpRequestId>, command: GjcCommand) {
        self.waiting.push_front(QueuedCommand::new(id, command));
    }

    /// Gives up requests that have not begun, as far as an abort need not wait for them.
    pub(crate) fn give_up(&mut self) {
        let behind_command = matches!(self.operation, ActiveOperation::Command(..) | ActiveOperation::ToCommand);
        give_up(&mut self.waiting, behind_command);
    }

    /// Moves an abort after the last command that begins before it, and after no command of the user that comes later.
    pub(crate) fn stop_again(&mut self, id: Option<OmpRequestId>) {
        let is_before = |waiting: &QueuedCommand| waiting.begins_run() || waiting.turn == CommandTurn::Again;
        let at = self.waiting.iter().rposition(is_before).map_or(0, |last| last + 1);
        self.waiting
            .insert(at, QueuedCommand { id, command: GjcCommand::Shared(Shared::Abort), turn: CommandTurn::Again });
    }

    /// Reports whether an earlier request begins later, or replaces the session.
    pub(crate) fn begins_later(&self) -> bool {
        let is_handing_over = match &self.operation {
            ActiveOperation::HandOff => true,
            ActiveOperation::Session(switch) => switch.command_name() == "handoff",
            _ => false,
        };
        self.is_replacing || is_handing_over || self.waiting.iter().any(QueuedCommand::begins_run)
    }
}
