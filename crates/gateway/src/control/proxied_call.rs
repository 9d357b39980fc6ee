//! Connection of a proxy: one call, the gate for which it waits, answers of the person at the proxy's client, and the decision.

use countersign_adapter_hooks::{HookAdapter, ProxiedCall, ProxyAnswer, SurfaceAnswer, SurfaceDecision};
use countersign_core::{
    gate::{ApprovalScope, GateReply},
    id::{GateId, PrincipalId},
};
use countersign_foreign_calls::Delivery;
use countersign_runtime::{InboxLane, OwnerHandle};
use countersign_view::decisions::{find_pending, read_engine};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{ControlReply, resolve_gate, socket::write_reply};

/// Longest answer of a client, in bytes.
const LONGEST_ANSWER: u64 = 4096;

/// Parts of a connection of a proxy.
pub(super) struct ProxiedConnection<'a> {
    pub(super) hooks: &'a HookAdapter,
    pub(super) handle: &'a OwnerHandle,
    /// The user at whose machine the proxy runs.
    pub(super) by: &'a PrincipalId,
    /// False for a command of an agent: it asks, and must not answer for a person.
    pub(super) may_answer: bool,
}

impl ProxiedConnection<'_> {
    /// Answers one call. A proxy that has gone before leaves the gate open, and the decision to the same call repeated.
    pub(super) async fn answer_call(
        &self,
        call: &ProxiedCall,
        reading: BufReader<OwnedReadHalf>,
        writing: &mut OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let (delivery, cancel) = (Delivery::default(), CancellationToken::new());
        let (sender, mut gates) = mpsc::unbounded_channel();
        let mut deciding = Box::pin(self.hooks.decide_proxied(call, sender, &delivery, &cancel));
        let (line_sender, mut lines) = mpsc::channel(1);
        let reader = tokio::spawn(read_lines(reading, line_sender));
        let mut shown = None;
        // None if the proxy has gone before the end of the decision.
        let ended = loop {
            tokio::select! {
                biased;
                decision = &mut deciding => break Some(decision),
                Some(gate) = gates.recv() => {
                    // It is reported again and again while the call waits.
                    if shown.replace(gate) != Some(gate) && self.show_gate(gate, writing).await.is_err() {
                        break None;
                    }
                }
                line = lines.recv() => match line {
                    // A wrong answer is none, and the gate stays open.
                    Some(line) => self.take_answer(&line, shown).await,
                    None => break None,
                },
            }
        };
        reader.abort();
        if ended.is_none() {
            // Before the end of the wait: a decision of this moment is kept for the same call repeated.
            delivery.abandon();
            cancel.cancel();
            drop((&mut deciding).await);
        }
        drop(deciding);
        let Some(Some(decision)) = ended else {
            delivery.abandon();
            return Ok(());
        };
        let written = write_answer(writing, &ProxyAnswer::Decided(decision)).await;
        if written.is_ok() {
            delivery.confirm();
        } else {
            delivery.abandon();
        }
        written
    }

    async fn show_gate(&self, gate: GateId, writing: &mut OwnedWriteHalf) -> std::io::Result<()> {
        let id = gate.to_string();
        let (source, owned_id) = (self.handle.source(InboxLane::Result), id.clone());
        let found = read_engine(&source, move |engine| find_pending(engine, &owned_id).map(|row| row.title));
        // A gate that is not pending any more is followed by its decision.
        let Ok(Ok(title)) = found.await else { return Ok(()) };
        write_answer(writing, &ProxyAnswer::Waiting { gate: id, title }).await
    }

    /// Answers the gate of this connection, and no other.
    async fn take_answer(&self, line: &str, shown: Option<GateId>) {
        let SurfaceDecision { gate, allow, surface } = match serde_json::from_str(line) {
            Ok(SurfaceAnswer { answer }) => answer,
            Err(error) => return tracing::warn!(%error, "invalid answer of a proxy"),
        };
        if !self.may_answer {
            return tracing::warn!(gate, surface, "answer of an agent's command in the place of a proxy");
        }
        if shown.is_none_or(|shown| shown.to_string() != gate) {
            return tracing::warn!(gate, surface, "answer of a proxy to a gate that is not its own");
        }
        let reply = if allow { GateReply::Allow(ApprovalScope::Once) } else { GateReply::Deny { reason: None } };
        // If another surface was first, its answer counts.
        if let Err(problem) = resolve_gate(&self.handle.source(InboxLane::Result), &gate, reply, self.by).await {
            tracing::info!(gate, surface, problem, "the answer at a proxy did not count");
        }
    }
}

/// Sends the lines of a proxy until its end.
async fn read_lines(mut reading: BufReader<OwnedReadHalf>, lines: mpsc::Sender<String>) {
    loop {
        let mut line = String::new();
        match (&mut reading).take(LONGEST_ANSWER).read_line(&mut line).await {
            Ok(length) if length > 0 => {}
            _ => return,
        }
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

async fn write_answer(writing: &mut OwnedWriteHalf, answer: &ProxyAnswer) -> std::io::Result<()> {
    let value = serde_json::to_value(answer).map_err(std::io::Error::other)?;
    write_reply(writing, &ControlReply::Ok(value)).await
}
