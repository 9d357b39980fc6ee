//! Handlers of the commands that only this dialect has.

use countersign_adapter_omp::{OmpAdapter, commands};
use countersign_protocol::{
    gjc::{
        GjcCommand,
        state::{AcceptedCapabilities, DefaultModel},
    },
    omp::{self, OmpRequestId, OmpResponse},
};

use super::{dialect_state::gjc_state_mut, model_selection, state, unattended, workflow};

/// Does a command. This is the one place that all commands of this dialect come through, those of omp among them.
pub(crate) async fn handle_command(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, command: GjcCommand) {
    if !unattended::admit_command(adapter, id.as_ref(), &command).await {
        return;
    }
    match command {
        GjcCommand::Shared(omp::OmpCommand::SetThinkingLevel { level }) => {
            let level = model_selection::omp_level(adapter, level);
            commands::handle_command(adapter, id, omp::OmpCommand::SetThinkingLevel { level }).await;
        }
        GjcCommand::Shared(command) => commands::handle_command(adapter, id, command).await,
        GjcCommand::GetState { include } => state::send_state(adapter, id, include).await,
        GjcCommand::SetCapabilities { capabilities } => set_capabilities(adapter, id, capabilities),
        GjcCommand::WorkflowGateResponse { gate_id, answer, idempotency_key } => {
            workflow::answer_gate(adapter, id, gate_id, answer, idempotency_key).await;
        }
        GjcCommand::GetPendingWorkflowGates => workflow::send_pending_gates(adapter, id).await,
        GjcCommand::NegotiateUnattended { declaration } => {
            unattended::negotiate_contract(adapter, id, declaration).await
        }
        GjcCommand::SetDefaultModelSelection { provider, model_id, thinking_level } => {
            model_selection::set_default(adapter, id, DefaultModel { provider, model_id, thinking_level }).await;
        }
        GjcCommand::Adopted(command) => commands::handle_adopted(adapter, id, command).await,
    }
}

/// Answers an unknown command.
pub(crate) async fn reject_unknown(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, name: Option<String>) {
    if unattended::admit_unknown(adapter, id.as_ref(), name.as_deref()).await {
        adapter.write_frame(&OmpResponse::unknown_command_with_id(id, name));
    }
}

fn set_capabilities(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, requested: Vec<String>) {
    let capabilities = AcceptedCapabilities::for_requested(requested);
    if let Some(gjc) = gjc_state_mut(adapter) {
        gjc.writer.set_capabilities(&capabilities);
    }
    adapter.write_frame(&OmpResponse::success(id, "set_capabilities", &capabilities));
}
