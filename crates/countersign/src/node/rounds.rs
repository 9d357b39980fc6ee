//! Connecting, and connecting again, until somebody ends the node.
//!
//! It must not know what is said on a connection.

use std::time::Duration;

use countersign_protocol::gsv::{close, tool::ToolResultParams};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    address::Address,
    hello::Hello,
    line::{self, Gone, Line, Refused},
    patience::Patience,
    place::TokenFrom,
    talk::{self, Desk, End},
};

/// Everything that a node needs to connect.
pub(crate) struct Rounds<R> {
    pub(crate) id: String,
    pub(crate) address: Address,
    pub(crate) hello: Hello,
    pub(crate) token: TokenFrom,
    pub(crate) desk: Desk,
    pub(crate) told: mpsc::UnboundedReceiver<ToolResultParams>,
    /// Says that the node ends.
    pub(crate) stop: CancellationToken,
    /// Told of the first connection.
    pub(crate) ready: R,
}

/// What there is to do.
enum Next {
    Talk(Box<Line>),
    Wait(Duration),
}

impl<R: Fn(&str, &str)> Rounds<R> {
    /// Connects again and again.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let over = CancellationToken::new();
        let ending = self.end_when_told(&over);
        let mut patience = Patience::default();
        let mut is_first = true;
        while !self.stop.is_cancelled() {
            let next = tokio::select! {
                next = self.reach(is_first, &mut patience) => next?,
                () = self.stop.cancelled() => break,
            };
            let pause = match next {
                Next::Wait(pause) => pause,
                Next::Talk(line) => {
                    info!(id = self.id, url = self.address.url, "connected");
                    if std::mem::take(&mut is_first) {
                        (self.ready)(&self.id, &self.address.url);
                    }
                    // What ended while nobody listened is in the journal, and is asked for.
                    while self.told.try_recv().is_ok() {}
                    let began = Instant::now();
                    match talk::serve(&self.desk, *line, &mut self.told, &over).await {
                        End::Stopped => break,
                        End::Gone(gone) => after(&gone, began.elapsed(), &mut patience),
                    }
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => break,
            }
        }
        // Whatever of it the gateway has not taken is in the journal.
        ending.await?;
        Ok(())
    }

    /// Ends all calls once the node ends, and says when that is over.
    fn end_when_told(&self, over: &CancellationToken) -> tokio::task::JoinHandle<()> {
        let (calls, stop, over) = (self.desk.calls.clone(), self.stop.clone(), over.clone());
        tokio::spawn(async move {
            stop.cancelled().await;
            calls.end().await;
            over.cancel();
        })
    }

    /// Tries to connect. What will not change by itself ends a node that was never connected; later it may have been changed by
    /// mistake, and is tried again.
    async fn reach(&self, is_first: bool, patience: &mut Patience) -> anyhow::Result<Next> {
        let token = match self.token.read() {
            Ok(token) => token,
            Err(error) if is_first => return Err(error),
            Err(error) => {
                warn!("{error:#}");
                return Ok(Next::Wait(patience.pause(chance())));
            }
        };
        match line::connect(&self.address, &self.hello, token.as_deref()).await {
            Ok(line) => Ok(Next::Talk(Box::new(line))),
            Err(refused @ Refused::Rejected(_)) if is_first => {
                let none = if token.is_some() { "" } else { "; none was given: see --token-file and --token-env" };
                Err(anyhow::anyhow!("{refused}{none}"))
            }
            Err(refused) => {
                let pause = patience.pause(chance());
                warn!("not connected: {refused}; the next try is in {} s", shown(pause));
                Ok(Next::Wait(pause))
            }
        }
    }
}

/// How long to wait behind a connection that ended.
fn after(gone: &Gone, lived: Duration, patience: &mut Patience) -> Duration {
    if let Gone::Closed(close::NORMAL, reason) = gone
        && reason.starts_with("Replaced")
    {
        let pause = Patience::replaced();
        warn!(
            "another node with this id is connected now; this one tries again in {} s. Give each its own --id",
            shown(pause)
        );
        return pause;
    }
    let pause = patience.after(lived, chance());
    warn!("{gone}; the next try is in {} s", shown(pause));
    pause
}

fn shown(pause: Duration) -> String {
    format!("{:.1}", pause.as_secs_f64())
}

/// A number between 0 and 1.
fn chance() -> f64 {
    let mut byte = [0; 1];
    // Without random numbers all wait alike.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
