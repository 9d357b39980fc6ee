//! What each command that only this dialect has asks for, and how it is answered.

use countersign_adapter_omp::{Door, commands};
use countersign_protocol::{
    gjc::{
        Command,
        state::{Capabilities, DefaultModel},
    },
    omp::{self, Id, Response},
};

use super::{choosing, dialect_state::state_mut, state, unattended, workflow};

/// Does a command. This is the one place that all commands of this dialect come through, those of omp among them.
pub(crate) async fn handle(door: &mut Door, id: Option<Id>, command: Command) {
    if !unattended::admit(door, id.as_ref(), &command).await {
        return;
    }
    match command {
        Command::Shared(omp::Command::SetThinkingLevel { level }) => {
            let level = choosing::level(door, level);
            commands::handle(door, id, omp::Command::SetThinkingLevel { level }).await;
        }
        Command::Shared(command) => commands::handle(door, id, command).await,
        Command::GetState { include } => state::get(door, id, include).await,
        Command::SetCapabilities { capabilities } => set_capabilities(door, id, capabilities),
        Command::WorkflowGateResponse { gate_id, answer, idempotency_key } => {
            workflow::answer(door, id, gate_id, answer, idempotency_key).await;
        }
        Command::GetPendingWorkflowGates => workflow::pending(door, id).await,
        Command::NegotiateUnattended { declaration } => unattended::negotiate(door, id, declaration).await,
        Command::SetDefaultModelSelection { provider, model_id, thinking_level } => {
            choosing::set_default(door, id, DefaultModel { provider, model_id, thinking_level }).await;
        }
        Command::Adopted(command) => commands::handle_adopted(door, id, command).await,
    }
}

/// Answers a command that nobody knows.
pub(crate) async fn unknown(door: &mut Door, id: Option<Id>, name: Option<String>) {
    if unattended::admit_unknown(door, id.as_ref(), name.as_deref()).await {
        door.write(&Response::unknown_with(id, name));
    }
}

fn set_capabilities(door: &mut Door, id: Option<Id>, wanted: Vec<String>) {
    let capabilities = Capabilities::of(wanted);
    if let Some(gjc) = state_mut(door) {
        gjc.voice.adopt(&capabilities);
    }
    door.write(&Response::success(id, "set_capabilities", &capabilities));
}
