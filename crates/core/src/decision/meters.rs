//! Budget use of runs, calls and compactions in their session, derived from their own facts: nothing can start or
//! end without its meter.

use crate::{
    call::{self, Call, CallEnd, Executor},
    ledger::{BudgetAmount, ReservationId},
    run,
    session::{self, Session},
};

/// Meters a run. A request to a model reserves, and its end settles; an interrupted request uses its whole reserve.
pub(super) fn meter_run(session: &mut Session, event: &run::Event) {
    let Some(unattended) = session.unattended.as_deref_mut() else { return };
    match event {
        run::Event::ModelRequested { run, reserved: Some(amount), .. } => {
            unattended.note_reserved((*run).into(), *amount)
        }
        run::Event::Answered { run, spent, .. } => unattended.note_settled((*run).into(), *spent),
        run::Event::Interrupted { run } | run::Event::Ended { run, .. } => unattended.note_settled((*run).into(), None),
        run::Event::ModelRequested { reserved: None, .. }
        | run::Event::Started { .. }
        | run::Event::TurnOpened { .. }
        | run::Event::TurnClosed { .. }
        | run::Event::BackedOff { .. }
        | run::Event::Resumed { .. }
        | run::Event::Marked { .. }
        | run::Event::Denied { .. }
        | run::Event::DenialsForgiven { .. }
        | run::Event::Aborting { .. }
        | run::Event::ResultDropped { .. } => {}
    }
}

/// Meters a call. Its start reserves, and its end settles. A host's own command was counted before.
pub(super) fn meter_call(session: &mut Session, call: &Call, event: &call::Event) {
    let Some(unattended) = session.unattended.as_deref_mut().filter(|_| *call.executor() != Executor::Shell) else {
        return;
    };
    match event {
        call::Event::Started { call, .. } => unattended.note_reserved((*call).into(), BudgetAmount::CALL),
        // The call had no effect.
        call::Event::Ended { call, end: CallEnd::Failed, .. } => {
            unattended.note_settled((*call).into(), Some(BudgetAmount::default()));
        }
        call::Event::Ended { call, .. } => unattended.note_settled((*call).into(), None),
        call::Event::Proposed { .. }
        | call::Event::Requested { .. }
        | call::Event::Received { .. }
        | call::Event::Allowed { .. }
        | call::Event::Gated { .. }
        | call::Event::Aborting { .. }
        | call::Event::Waits { .. }
        | call::Event::InDoubt { .. }
        | call::Event::AskedAgain { .. }
        | call::Event::LeftBehind { .. }
        | call::Event::Again { .. }
        | call::Event::ResultDropped { .. } => {}
    }
}

/// Meters a compaction, which requests an answer of the model too.
pub(super) fn meter_session(session: &mut Session, event: &session::Event) {
    let Some(unattended) = session.unattended.as_deref_mut() else { return };
    match event {
        session::Event::CompactionStarted { .. } => {
            if let Some(compaction) = &session.compaction {
                let (epoch, tokens) = (compaction.epoch, compaction.tokens_before);
                unattended.note_compacting(epoch, tokens, session.settings.model.as_ref());
            }
        }
        session::Event::CompactionEnded { epoch, spent, .. } => {
            unattended.note_settled(ReservationId::of_compaction(*epoch), *spent);
        }
        _ => {}
    }
}
