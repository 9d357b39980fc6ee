//! What waits for people, as events of the stream of its turn.
use countersign_core::{gate::Content, id::GateId};
use countersign_protocol::hermes::Event;
use countersign_runtime::{Handle, Lane};
use serde_json::json;

pub(super) async fn bare(handle: &Handle, gate: GateId) -> Option<Event> {
    let source = handle.source(Lane::Request);
    let read = source.read(move |engine| {
        let found = engine.state().gate(gate).filter(|gate| gate.is_pending())?;
        let content = engine.admitted().gate(gate)?;
        Some(match &**content {
            Content::Question { question, .. } => {
                Event::new("clarify", json!({ "clarify_id": gate.to_string(), "question": question }))
            }
            Content::Approval { signature, .. } => Event::new(
                "approval",
                json!({ "approval_id": gate.to_string(), "command": signature, "n": found.ordinal() }),
            ),
            Content::GoOn { question, .. } => {
                Event::new("approval", json!({ "approval_id": gate.to_string(), "command": question }))
            }
        })
    });
    read.await?.0
}
