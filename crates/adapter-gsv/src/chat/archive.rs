//! Archives of messages that leave a conversation: compressed JSON lines in the store of the data directory, one message a line.

use std::{io::Write as _, path::Path, sync::Arc};

use countersign_files::objects::ObjectStore;
use countersign_protocol::{
    RawJson,
    gsv::{GsvError, message::GsvMessage, session::ArchiveNote},
};
use flate2::{Compression, write::GzEncoder};

use super::{
    super::GsvAdapter,
    messages,
    session_snapshot::{MessageRef, read_error},
};

/// Reads the messages at these positions, in order. Redacted ones are left out.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn read_messages(door: &Arc<GsvAdapter>, lines: &[MessageRef]) -> Result<Vec<GsvMessage>, GsvError> {
    let contents: Vec<_> = lines.iter().map(|line| line.content).collect();
    let texts = door.context.handle.contents().get(&contents).await.map_err(read_error)?;
    let wire_messages =
        texts.iter().zip(lines).filter_map(|(text, line)| messages::to_wire_message(text.as_deref()?, line.at));
    Ok(messages::in_order(wire_messages.collect()))
}

/// Deletes an archive whose operation failed.
pub(super) async fn discard_archive(door: &Arc<GsvAdapter>, name: &str) {
    ObjectStore::for_data_dir(&door.context.config.storage.folder)
        .discard_objects(vec![name.to_owned(), note_name(name)])
        .await;
}

fn note_name(name: &str) -> String {
    Path::new(name).with_extension("json").display().to_string()
}

/// Writes messages to the store under `name`, with a description next to them. They are stored when this returns.
///
/// # Errors
/// 500 if they could not be written.
pub(super) async fn store_archive(
    door: &Arc<GsvAdapter>,
    name: String,
    messages: Vec<GsvMessage>,
    note: ArchiveNote,
) -> Result<(), GsvError> {
    let pack = move || {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        for message in &messages {
            writeln!(packed, "{}", RawJson::from_wire(message).as_text())?;
        }
        packed.finish()
    };
    let failed = |error: std::io::Error| read_error(format!("{name}: {error}"));
    let packed = tokio::task::spawn_blocking(pack).await.map_err(read_error)?.map_err(failed)?;
    let store = ObjectStore::for_data_dir(&door.context.config.storage.folder);
    store.put_object(name.clone(), packed).await.map_err(failed)?;
    store.put_object(note_name(&name), RawJson::from_wire(&note).as_text().as_bytes().to_vec()).await.map_err(failed)
}
