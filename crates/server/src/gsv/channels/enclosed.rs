//! Files that go with what is said to chats: in the store from before the letter is owed until it has ended.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::channel::Media;
use countersign_runtime::Lane;

use super::{super::Door, media};
use countersign_files::objects::Store;

/// Where they lie in the store.
pub(crate) const LETTERS: &str = "letters";
/// How long one may lie there without its letter: it is put there first.
const UNNAMED: Duration = Duration::from_secs(600);

/// A file with its content.
#[derive(Clone)]
pub(crate) struct Enclosed {
    /// What it is called.
    pub(crate) name: String,
    /// Its type.
    pub(crate) mime_type: String,
    /// Its content.
    pub(crate) bytes: Vec<u8>,
}

impl std::fmt::Debug for Enclosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Enclosed({}, {} bytes)", self.name, self.bytes.len())
    }
}

impl Enclosed {
    /// The whole of it as a URL, for networks that want one: nothing else has to be fetched from the gateway.
    pub(super) fn url(&self) -> String {
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

/// Puts a file into the store for a letter.
///
/// # Errors
/// What the system says.
pub(in crate::gsv) async fn put(door: &Door, name: &str, bytes: Vec<u8>) -> std::io::Result<Media> {
    let object = format!("{LETTERS}/{}", uuid::Uuid::new_v4());
    Store::of(&door.site.config.storage.folder).put(object.clone(), bytes).await?;
    Ok(Media { object, name: name.to_owned(), mime_type: media::type_of(name).to_owned() })
}

/// The file that goes with a letter.
///
/// # Errors
/// In words, why it is not to be had.
pub(super) async fn open(door: &Door, media: &Media) -> Result<Enclosed, String> {
    let bytes = Store::of(&door.site.config.storage.folder).bytes(&media.object).await;
    let bytes = bytes.map_err(|error| format!("{} cannot be read any more: {error}", media.name))?;
    Ok(Enclosed { name: media.name.clone(), mime_type: media.mime_type.clone(), bytes })
}

/// Takes a file out of the store whose letter has ended.
pub(in crate::gsv) async fn release(door: &Door, object: String) {
    Store::of(&door.site.config.storage.folder).discard(vec![object]).await;
}

/// Takes out what no letter names: those that a crash left, and those of letters that were dropped. `None` if the gateway
/// closes.
pub(super) async fn sweep(door: &Arc<Door>) -> Option<()> {
    let source = door.site.handle.source(Lane::Request);
    let read = source.read(|engine| {
        let letters = engine.state().channels().letters();
        letters.filter_map(|letter| Some(letter.media.as_ref()?.object.clone())).collect::<BTreeSet<_>>()
    });
    let (named, _) = read.await?;
    let before = SystemTime::now().checked_sub(UNNAMED)?;
    if let Err(problem) = Store::of(&door.site.config.storage.folder).clear_but(LETTERS, named, before).await {
        tracing::warn!(%problem, "files of messages that ended could not be taken out of the store");
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::Enclosed;

    #[test]
    fn a_file_is_a_url_with_its_type_its_name_and_all_of_it() {
        let file = |name: &str, bytes: &[u8]| Enclosed {
            name: name.to_owned(),
            mime_type: super::media::type_of(name).to_owned(),
            bytes: bytes.to_vec(),
        };
        assert_eq!(file("chart.PNG", b"one").url(), "data:image/png;name=chart.PNG;base64,b25l");
        assert_eq!(file("a;b, \u{fc}", b"").url(), "data:application/octet-stream;name=a%3Bb%2C%20%C3%BC;base64,");
    }
}
