//! Reasons for the end of a connection: during authentication, and after it.

use countersign_protocol::agent_gate::close;
use tokio::sync::watch;

/// Reason for the end of a connection.
pub(super) enum ConnectionEnd {
    /// The client disconnected.
    Gone,
    /// The gateway closes it, with this code.
    Close(u16, &'static str),
}

/// Waits until the adapter closes.
pub(super) async fn wait_for_close(closing: &mut watch::Receiver<bool>) {
    // An error means that the adapter is gone.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Returns the end of a connection that could not be read.
pub(super) fn end_for_error(error: &axum::Error) -> ConnectionEnd {
    // The library has no other way to distinguish a frame that is too large from a broken connection.
    let is_too_large = error.to_string().contains("too long") || error.to_string().contains("too large");
    if is_too_large {
        ConnectionEnd::Close(close::TOO_LARGE, "a frame is larger than 1 MiB")
    } else {
        ConnectionEnd::Gone
    }
}
