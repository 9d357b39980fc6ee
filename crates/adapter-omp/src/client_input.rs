//! Input of an adapter: the lines of its one host, or those of clients that come and go.
//!
//! It must not know what a line says.

use countersign_protocol::lines::DecodedLine;
use tokio::sync::mpsc;

/// Source of the lines of one host. Its end is the end of the host.
pub type LineReceiver = mpsc::Receiver<DecodedLine>;

/// Input where clients come and go and the session stays.
#[derive(Debug)]
pub enum ClientInput {
    /// A line of the current client.
    Line(DecodedLine),
    /// The client with this number is connected from here on, and no earlier one.
    Arrived(u64),
    /// It was there before, and takes up what it lent then.
    Resumed,
    /// No client is connected any more.
    Left,
}

/// Source of an adapter's input.
pub enum InputSource {
    /// One host, for as long as the adapter is open.
    Host(LineReceiver),
    /// Clients that come and go.
    Clients(mpsc::Receiver<ClientInput>),
}

impl InputSource {
    /// Returns the next of it; none at the end.
    ///
    /// *Cancellation*: a future that is dropped loses nothing.
    pub(super) async fn next(&mut self) -> Option<ClientInput> {
        match self {
            Self::Host(input) => input.recv().await.map(ClientInput::Line),
            Self::Clients(input) => input.recv().await,
        }
    }

    /// Reports whether no more input comes, whatever still waits.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Host(input) => input.is_closed(),
            Self::Clients(input) => input.is_closed(),
        }
    }
}
