//! Connecting, and connecting again, until a signal ends the node.
//!
//! It must not know the messages on a connection.

use std::time::Duration;

use countersign_protocol::gsv::{close, code, tool::ToolResultParams};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    address::GatewayAddress,
    backoff::ReconnectBackoff,
    connection::{self, ConnectionOutcome, NodeServices},
    data_dir::NodeTokenSource,
    handshake::NodeHandshake,
    socket::{self, ConnectionLost, NodeConnectError, NodeSocket},
};

/// Everything that a node needs to connect.
pub(crate) struct ReconnectLoop<R> {
    pub(crate) id: String,
    pub(crate) address: GatewayAddress,
    pub(crate) hello: NodeHandshake,
    pub(crate) token: NodeTokenSource,
    pub(crate) services: NodeServices,
    pub(crate) outcomes: mpsc::UnboundedReceiver<ToolResultParams>,
    /// Says that the node ends.
    pub(crate) stop: CancellationToken,
    /// Called at the first connection.
    pub(crate) ready: R,
}

/// Next step of the loop.
enum ReconnectStep {
    Connected(Box<NodeSocket>),
    Wait(Duration),
}

impl<R: Fn(&str, &str)> ReconnectLoop<R> {
    /// Connects again and again.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let over = CancellationToken::new();
        let ending = self.end_when_stopped(&over);
        let mut backoff = ReconnectBackoff::default();
        let mut is_first = true;
        while !self.stop.is_cancelled() {
            let next = tokio::select! {
                next = self.try_connect(is_first, &mut backoff) => next?,
                () = self.stop.cancelled() => break,
            };
            let pause = match next {
                ReconnectStep::Wait(pause) => pause,
                ReconnectStep::Connected(socket) => {
                    info!(id = self.id, url = self.address.url, "connected");
                    if std::mem::take(&mut is_first) {
                        (self.ready)(&self.id, &self.address.url);
                    }
                    // Calls that ended without a connection are in the journal, and the gateway asks for them.
                    while self.outcomes.try_recv().is_ok() {}
                    let began = Instant::now();
                    match connection::serve_connection(&self.services, *socket, &mut self.outcomes, &over).await {
                        ConnectionOutcome::Stopped => break,
                        ConnectionOutcome::Gone(gone) => pause_after_loss(&gone, began.elapsed(), &mut backoff),
                    }
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => break,
            }
        }
        // Reports that the gateway has not taken are in the journal.
        ending.await?;
        Ok(())
    }

    /// Ends all calls once the node ends, and says when that is over.
    fn end_when_stopped(&self, over: &CancellationToken) -> tokio::task::JoinHandle<()> {
        let (calls, stop, over) = (self.services.calls.clone(), self.stop.clone(), over.clone());
        tokio::spawn(async move {
            stop.cancelled().await;
            calls.end_all().await;
            over.cancel();
        })
    }

    /// Tries to connect. What will not change by itself ends a node that was never connected; later it may have been changed by
    /// mistake, and is tried again.
    async fn try_connect(&self, is_first: bool, backoff: &mut ReconnectBackoff) -> anyhow::Result<ReconnectStep> {
        let token = match self.token.read_token() {
            Ok(token) => token,
            Err(error) if is_first => return Err(error),
            Err(error) => {
                warn!("{error:#}");
                return Ok(ReconnectStep::Wait(backoff.next_pause(random_fraction())));
            }
        };
        match socket::connect_node(&self.address, &self.hello, token.as_deref()).await {
            Ok(socket) => Ok(ReconnectStep::Connected(Box::new(socket))),
            Err(NodeConnectError::Rejected(fault))
                if is_first && token.is_none() && fault.code == code::UNAUTHORIZED =>
            {
                Err(anyhow::anyhow!(
                    "the gateway requires a token: write its `clients.token` to a file that only you can read, and start the node \
                     with --token-file FILE or --token-env NAME"
                ))
            }
            Err(refused @ NodeConnectError::Rejected(_)) if is_first => Err(anyhow::anyhow!("{refused}")),
            Err(refused) => {
                let pause = backoff.next_pause(random_fraction());
                warn!("not connected: {refused}; retrying in {} s", format_seconds(pause));
                Ok(ReconnectStep::Wait(pause))
            }
        }
    }
}

/// Returns the pause after a connection that ended.
fn pause_after_loss(gone: &ConnectionLost, lived: Duration, backoff: &mut ReconnectBackoff) -> Duration {
    if let ConnectionLost::Closed(close::NORMAL, reason) = gone
        && reason.starts_with("Replaced")
    {
        let pause = ReconnectBackoff::replaced_pause();
        warn!(
            "another node with this id has connected; retrying in {} s. Give each node its own --id",
            format_seconds(pause)
        );
        return pause;
    }
    let pause = backoff.pause_after(lived, random_fraction());
    warn!("{gone}; retrying in {} s", format_seconds(pause));
    pause
}

fn format_seconds(pause: Duration) -> String {
    format!("{:.1}", pause.as_secs_f64())
}

/// Returns a number between 0 and 1.
fn random_fraction() -> f64 {
    let mut byte = [0; 1];
    // Without random numbers all wait alike.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
