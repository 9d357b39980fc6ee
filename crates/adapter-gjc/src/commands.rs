//! What each command that only this dialect has asks for, and how it is answered.

use countersign_adapter_omp::{OmpAdapter, commands};
use countersign_protocol::{
    gjc::{
        GjcCommand,
        state::{AcceptedCapabilities, DefaultModel},
    },
    omp::{self, OmpRequestId, OmpResponse},
};

use super::{choosing, dialect_state::state_mut, state, unattended, workflow};

/// Does a command. This is the one place that all commands of this dialect come through, those of omp among them.
pub(crate) async fn handle(door: &mut OmpAdapter, id: Option<OmpRequestId>, command: GjcCommand) {
    if !unattended::admit(door, id.as_ref(), &command).await {
        return;
    }
    match command {
        GjcCommand::Shared(omp::OmpCommand::SetThinkingLevel { level }) => {
            let level = choosing::level(door, level);
            commands::handle_command(door, id, omp::OmpCommand::SetThinkingLevel { level }).await;
        }
        GjcCommand::Shared(command) => commands::handle_command(door, id, command).await,
        GjcCommand::GetState { include } => state::get(door, id, include).await,
        GjcCommand::SetCapabilities { capabilities } => set_capabilities(door, id, capabilities),
        GjcCommand::WorkflowGateResponse { gate_id, answer, idempotency_key } => {
            workflow::answer(door, id, gate_id, answer, idempotency_key).await;
        }
        GjcCommand::GetPendingWorkflowGates => workflow::pending(door, id).await,
        GjcCommand::NegotiateUnattended { declaration } => unattended::negotiate(door, id, declaration).await,
        GjcCommand::SetDefaultModelSelection { provider, model_id, thinking_level } => {
            choosing::set_default(door, id, DefaultModel { provider, model_id, thinking_level }).await;
        }
        GjcCommand::Adopted(command) => commands::handle_adopted(door, id, command).await,
    }
}

/// Answers a command that nobody knows.
pub(crate) async fn unknown(door: &mut OmpAdapter, id: Option<OmpRequestId>, name: Option<String>) {
    if unattended::admit_unknown(door, id.as_ref(), name.as_deref()).await {
        door.write_frame(&OmpResponse::unknown_command_with_id(id, name));
    }
}

fn set_capabilities(door: &mut OmpAdapter, id: Option<OmpRequestId>, wanted: Vec<String>) {
    let capabilities = AcceptedCapabilities::for_requested(wanted);
    if let Some(gjc) = state_mut(door) {
        gjc.voice.adopt(&capabilities);
    }
    door.write_frame(&OmpResponse::success(id, "set_capabilities", &capabilities));
}
