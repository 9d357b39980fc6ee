//! Why a connection ends: while the agent shows who it is, and behind that.

use countersign_protocol::agent_gate::close;
use tokio::sync::watch;

/// Why a connection ends.
pub(super) enum ConnectionEnd {
    /// The client went.
    Gone,
    /// We close it, with this code.
    Close(u16, &'static str),
}

/// Waits until the door closes.
pub(super) async fn wait_for_close(closing: &mut watch::Receiver<bool>) {
    // An error means that the door is gone.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// The end of a connection that could not be read.
pub(super) fn end_for_error(error: &axum::Error) -> ConnectionEnd {
    // The library has no other way to tell a frame that is too large from a line that broke.
    let is_too_large = error.to_string().contains("too long") || error.to_string().contains("too large");
    if is_too_large {
        ConnectionEnd::Close(close::TOO_LARGE, "a frame is larger than 1 MiB")
    } else {
        ConnectionEnd::Gone
    }
}
