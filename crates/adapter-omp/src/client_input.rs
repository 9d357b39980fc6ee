//! What a door hears: the lines of its one host, or those of clients that come and go.
//!
//! It must not know what a line says.

use countersign_protocol::lines::DecodedLine;
use tokio::sync::mpsc;

/// Where the lines of one host come from. Its end is the end of the host.
pub type LineReceiver = mpsc::Receiver<DecodedLine>;

/// What is heard where clients come and go and the session stays.
#[derive(Debug)]
pub enum ClientInput {
    /// A line of whoever is there.
    Line(DecodedLine),
    /// The client with this number is there from here on, and nobody who was there before.
    Arrived(u64),
    /// It was there before, and takes up what it lent then.
    Resumed,
    /// Nobody is there any more.
    Left,
}

/// What a door hears.
pub enum InputSource {
    /// One host, for as long as the door is open.
    Host(LineReceiver),
    /// Clients that come and go.
    Clients(mpsc::Receiver<ClientInput>),
}

impl InputSource {
    /// The next of it; none at the end.
    ///
    /// *Cancellation*: a future that is dropped loses nothing.
    pub(super) async fn next(&mut self) -> Option<ClientInput> {
        match self {
            Self::Host(input) => input.recv().await.map(ClientInput::Line),
            Self::Clients(input) => input.recv().await,
        }
    }

    /// Whether nothing more comes, whatever still waits.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Host(input) => input.is_closed(),
            Self::Clients(input) => input.is_closed(),
        }
    }
}
