//! Files of outbound messages: in the store from before the message is recorded until its delivery has ended.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use countersign_core::channel::OutboundMedia;
use countersign_files::objects::ObjectStore;
use countersign_runtime::InboxLane;
use countersign_telegram::transport::Attachment;

use super::{super::GsvAdapter, media};

/// Folder of these files in the store.
pub const LETTERS: &str = "letters";
/// Longest time that a file may exist without its message: it is stored first.
const UNNAMED: Duration = Duration::from_secs(600);

/// Stores a file for an outbound message.
///
/// # Errors
/// An error of the file system.
pub(crate) async fn store_file(door: &GsvAdapter, name: &str, bytes: Vec<u8>) -> std::io::Result<OutboundMedia> {
    let object = format!("{LETTERS}/{}", uuid::Uuid::new_v4());
    ObjectStore::for_data_dir(&door.context.config.storage.folder).put_object(object.clone(), bytes).await?;
    Ok(OutboundMedia { object, name: name.to_owned(), mime_type: media::type_of(name).to_owned() })
}

/// Loads the file of an outbound message.
///
/// # Errors
/// The reason as text.
pub(super) async fn load_file(door: &GsvAdapter, media: &OutboundMedia) -> Result<Attachment, String> {
    let bytes = ObjectStore::for_data_dir(&door.context.config.storage.folder).read_bytes(&media.object).await;
    let bytes = bytes.map_err(|error| format!("{} cannot be read any more: {error}", media.name))?;
    Ok(Attachment { name: media.name.clone(), mime_type: media.mime_type.clone(), bytes })
}

/// Removes the file of an outbound message whose delivery has ended.
pub(crate) async fn release_file(door: &GsvAdapter, object: String) {
    ObjectStore::for_data_dir(&door.context.config.storage.folder).discard_objects(vec![object]).await;
}

/// Removes files without a message: those that a crash left, and those of messages that were dropped. `None` if the gateway
/// closes.
pub(super) async fn sweep_files(door: &Arc<GsvAdapter>) -> Option<()> {
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        let letters = engine.state().channels().pending_messages();
        letters.filter_map(|letter| Some(letter.media.as_ref()?.object.clone())).collect::<BTreeSet<_>>()
    });
    let (named, _) = read.await?;
    let before = SystemTime::now().checked_sub(UNNAMED)?;
    if let Err(problem) =
        ObjectStore::for_data_dir(&door.context.config.storage.folder).clear_but(LETTERS, named, before).await
    {
        tracing::warn!(%problem, "failed to delete the files of old messages");
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use countersign_telegram::transport::Attachment;

    #[test]
    fn a_file_is_a_url_with_its_type_its_name_and_all_of_it() {
        let file = |name: &str, bytes: &[u8]| Attachment {
            name: name.to_owned(),
            mime_type: super::media::type_of(name).to_owned(),
            bytes: bytes.to_vec(),
        };
        assert_eq!(file("chart.PNG", b"one").data_url(), "data:image/png;name=chart.PNG;base64,b25l");
        assert_eq!(file("a;b, \u{fc}", b"").data_url(), "data:application/octet-stream;name=a%3Bb%2C%20%C3%BC;base64,");
    }
}
