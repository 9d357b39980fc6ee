//! Page of a conversation, as `export_html` writes it.

use countersign_core::{message::StoredMessage, session::SessionEntry, time::Millis};
use countersign_view::export::{self, ExportHeader};

/// Reads the messages of `entries`, and passes the page with them to `write`.
///
/// # Errors
/// The contents cannot be read, or the error of `write`.
pub(super) async fn export_page(
    contents: &countersign_runtime::ContentCache,
    header: ExportHeader,
    entries: Vec<SessionEntry>,
    write: impl FnOnce(&str) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let lsns: Vec<_> = entries.iter().map(|entry| entry.content).collect();
    let texts = contents.get(&lsns).await.map_err(|error| error.to_string())?;
    let messages: Vec<(StoredMessage, Millis)> = entries
        .iter()
        .zip(texts)
        .filter_map(|(entry, text)| Some((serde_json::from_str(&text?).ok()?, entry.at)))
        .collect();
    let html = export::export_html(&header, &messages);
    tokio::task::spawn_blocking(move || write(&html)).await.map_err(|error| error.to_string())?
}
