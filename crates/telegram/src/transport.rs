//! Delivery of messages to the chats of any network.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::channel::{ChatAddress, PendingMessage as Owed};
use futures_util::future::BoxFuture;

/// A file with its content.
#[derive(Clone)]
pub struct Attachment {
    /// Name of the file.
    pub name: String,
    /// Its type.
    pub mime_type: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attachment({}, {} bytes)", self.name, self.bytes.len())
    }
}

impl Attachment {
    /// Returns the whole of it as a URL, for networks that need one: nothing else has to be fetched from the gateway.
    pub fn data_url(&self) -> String {
        let mut url = format!("data:{};name=", self.mime_type);
        for byte in self.name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => url.push(char::from(byte)),
                byte => url.push_str(&format!("%{byte:02X}")),
            }
        }
        url.push_str(";base64,");
        STANDARD.encode_string(&self.bytes, &mut url);
        url
    }
}

/// A letter with its text.
#[derive(Clone, Debug)]
pub struct OutboundDelivery {
    /// Id and target of the message.
    pub owed: Owed,
    /// Text of the message.
    pub text: String,
    /// Attachment of the message.
    pub media: Option<Attachment>,
}

/// Outcome of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The network has it.
    Delivered,
    /// The network will never take it, and why.
    Refused(String),
    /// Not now: again after that long, or after one that grows.
    Later(Option<Duration>),
    /// Not before the network reports that it can be.
    Away,
}

/// Brings letters to the chats of a network.
pub trait ChannelTransport: Send + Sync + 'static {
    /// Delivers one. It may come twice; a carrier that can detect that does not show it twice.
    fn deliver_message<'a>(&'a self, letter: &'a OutboundDelivery) -> BoxFuture<'a, DeliveryOutcome>;

    /// Shows that the agent works, as far as the network can. A failure is not reported.
    fn show_typing<'a>(&'a self, at: &'a ChatAddress) -> BoxFuture<'a, ()>;
}
