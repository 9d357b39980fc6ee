//! Images outside of session files: each in a file named by the digest of its bytes, and a reference in its place.
//!
//! It must not know messages beyond where images are in them. Source: docs/protocol/omp.md, Session files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::{
    digest::Digest,
    message::{MessageBlock, StoredMessage},
};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::regular;
use serde_json::Value;

use super::open::LARGEST;

/// Number of base64 characters from which on an image is stored outside.
const LEAST: usize = 1024;
/// The longest text that a session file holds, in characters.
const LONGEST: usize = 500_000;
const PREFIX: &str = "blob:sha256:";
const NOTICE: &str = "\n\n[The rest of this text was too long for the session file]";

/// The folder of blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobStore(PathBuf);

impl BlobStore {
    /// Uses `folder`, which is made when the first blob is.
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Returns the base64 of a reference. `None` if `data` is none, or the blob is missing or differs from its name.
    pub fn resolve_data(&self, data: &str) -> Option<String> {
        let digest: Digest = data.strip_prefix(PREFIX)?.parse().ok()?;
        let bytes = regular::read_bytes(&self.0.join(digest.to_string()), LARGEST).ok()?;
        (Digest::hash_bytes(&bytes) == digest).then(|| STANDARD.encode(bytes))
    }

    /// Puts the images of `message` back in place of their references, and returns how many cannot be read: those whose blob is lost, and
    /// those whose data is no base64. A text that says so stands in the place of each.
    pub fn inline_images(&self, message: &mut StoredMessage) -> usize {
        let content = match message {
            StoredMessage::User(user_message) | StoredMessage::Developer(user_message) => &mut user_message.content,
            StoredMessage::Assistant(assistant) => &mut assistant.content,
            StoredMessage::ToolResult(result) => &mut result.content,
            StoredMessage::Custom(custom) => &mut custom.content,
            StoredMessage::FileMention(mention) => {
                return mention.files.iter_mut().map(|file| self.inline_json(file)).sum();
            }
            StoredMessage::BashExecution(_) | StoredMessage::CompactionSummary(_) | StoredMessage::BranchSummary(_) => {
                return 0;
            }
        };
        let mut lost = 0;
        for block in content {
            if let MessageBlock::Image(image) = block {
                match self.image_data(&image.data) {
                    Ok(Some(data)) => image.data = data,
                    Ok(None) => {}
                    Err(notice) => {
                        *block = MessageBlock::from_text(notice);
                        lost += 1;
                    }
                }
            }
        }
        lost
    }

    fn inline_json(&self, value: &mut Value) -> usize {
        let mut lost = 0;
        walk_images(value, &mut |object| match object
            .get("data")
            .and_then(Value::as_str)
            .map(|data| self.image_data(data))
        {
            Some(Ok(Some(data))) => drop(object.insert("data".to_owned(), data.into())),
            Some(Err(_)) => {
                object.shift_remove("data");
                lost += 1;
            }
            Some(Ok(None)) | None => {}
        });
        lost
    }

    /// Returns the base64 of an image if it differs from the data in the file. The error is a text for its place.
    fn image_data(&self, data: &str) -> Result<Option<String>, &'static str> {
        if data.starts_with(PREFIX) {
            let read = self.resolve_data(data).filter(|data| !data.is_empty());
            return read.map(Some).ok_or("[An image that is no longer there]");
        }
        if !data.is_empty() && is_base64(data) { Ok(None) } else { Err("[An image that cannot be read]") }
    }

    /// Makes `line`, an entry as JSON, fit for a session file: long images go into blobs, which are there when this
    /// returns, and texts that are too long are cut with a notice.
    ///
    /// # Errors
    /// Any error of the file system; `line` is then not to be written.
    pub fn externalise_images(&self, line: &mut Value) -> io::Result<()> {
        let mut failed = Ok(());
        walk_images(line, &mut |object| {
            let bytes = object
                .get("data")
                .and_then(Value::as_str)
                .filter(|data| data.len() >= LEAST && !data.starts_with(PREFIX))
                .and_then(|data| STANDARD.decode(data).ok());
            if let Some(bytes) = bytes.filter(|_| failed.is_ok()) {
                match self.put_blob(&bytes) {
                    Ok(digest) => drop(object.insert("data".to_owned(), format!("{PREFIX}{digest}").into())),
                    Err(error) => failed = Err(error),
                }
            }
        });
        cut_texts(line);
        failed
    }

    fn put_blob(&self, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::hash_bytes(bytes);
        let path = self.0.join(digest.to_string());
        if !is_whole(&path, bytes.len()) {
            replace_file(&path, bytes, FileAccess::Private)?;
        }
        Ok(digest)
    }
}

/// Reports whether a text is base64, without holding what it stands for.
fn is_base64(text: &str) -> bool {
    let mut pieces = text.as_bytes().chunks(1 << 16).peekable();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next() {
        bytes.clear();
        let is_read = STANDARD.decode_vec(piece, &mut bytes).is_ok();
        // Only the end of the whole may be padded.
        if !is_read || pieces.peek().is_some() && piece.ends_with(b"=") {
            return false;
        }
    }
    true
}

/// Reports whether a line of so many bytes could hold something for [`BlobStore::externalise_images`].
pub(super) fn may_need_blobs(line: &[u8]) -> bool {
    line.len() > LONGEST || (line.len() >= LEAST && line.windows(7).any(|window| window == b"\"image\""))
}

fn is_whole(path: &Path, length: usize) -> bool {
    fs::metadata(path).is_ok_and(|blob| blob.is_file() && blob.len() == length as u64)
}

/// Calls `visit` with every image object in `value`.
fn walk_images(value: &mut Value, visit: &mut dyn FnMut(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            if members.get("type").is_some_and(|kind| kind == "image")
                && members.get("data").is_some_and(Value::is_string)
            {
                visit(members);
            }
            members.values_mut().for_each(|member| walk_images(member, visit));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk_images(item, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Members that are useless if they are cut: data of images and of sealed thinking, and what a provider wants back.
const UNCUT: [&str; 2] = ["data", "providerPayload"];

fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) => {
            // Characters are at most as many as bytes.
            if text.len() > LONGEST
                && let Some((end, _)) = text.char_indices().nth(LONGEST)
            {
                text.truncate(end);
                text.push_str(NOTICE);
            }
        }
        Value::Object(members) => {
            // A provider's proof of its own text is useless if it is cut; an image has its own rule.
            members
                .iter_mut()
                .filter(|(name, _)| !name.ends_with("Signature") && !UNCUT.contains(&name.as_str()))
                .for_each(|(_, member)| cut_texts(member));
        }
        Value::Array(items) => items.iter_mut().for_each(cut_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use countersign_core::{
        digest::Digest,
        message::{FileMentionMessage, ImageBlock, InputMessage, MessageBlock, StoredMessage},
    };
    use serde_json::json;

    use super::{BlobStore, LONGEST, NOTICE};

    #[test]
    fn long_images_go_into_blobs_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::new(folder.path().join("blobs"));
        let bytes = vec![7; 800];
        let long = STANDARD.encode(&bytes);
        let reference = format!("blob:sha256:{}", Digest::hash_bytes(&bytes));
        let image = |data: &str| json!({"type": "image", "data": data, "mimeType": "image/png"});
        let mut line = json!({"message": {"content": [image(&long), image("aGk="), {"type": "other", "data": long}], "details": {"deep": [image(&long)]}}});
        blobs.externalise_images(&mut line).unwrap();
        let want = json!({"message": {"content": [image(&reference), image("aGk="), {"type": "other", "data": long}], "details": {"deep": [image(&reference)]}}});
        assert_eq!(line, want);
        assert_eq!(std::fs::read(folder.path().join("blobs").join(&reference[12..])).unwrap(), bytes);

        let image =
            |data: &str| MessageBlock::Image(ImageBlock { data: data.to_owned(), mime_type: "image/png".to_owned() });
        let lost = format!("blob:sha256:{}", "0".repeat(64));
        let mut message = StoredMessage::User(InputMessage {
            content: vec![image(&reference), image(&lost)],
            ..InputMessage::default()
        });
        assert_eq!(blobs.inline_images(&mut message), 1);
        let want = vec![image(&long), MessageBlock::from_text("[An image that is no longer there]")];
        assert_eq!(message, StoredMessage::User(InputMessage { content: want, ..InputMessage::default() }));
    }

    #[test]
    fn an_image_that_cannot_be_read_is_counted_and_replaced_by_a_text() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::new(folder.path().to_owned());
        let put = |name: &[u8], bytes: &[u8]| {
            let digest = Digest::hash_bytes(name);
            std::fs::write(folder.path().join(digest.to_string()), bytes).unwrap();
            format!("blob:sha256:{digest}")
        };
        let gone = "[An image that is no longer there]";
        let unreadable = "[An image that cannot be read]";
        for (data, want) in [
            ("aGk=".to_owned(), None),
            (STANDARD.encode(vec![7; 100_000]), None),
            (put(b"whole", b"whole"), None),
            (put(b"emptied", b""), Some(gone)),
            (put(b"", b""), Some(gone)),
            (put(b"damaged", b"dam"), Some(gone)),
            ("blob:sha256:../x".to_owned(), Some(gone)),
            ("!!notbase64!!".to_owned(), Some(unreadable)),
            ("aGk".to_owned(), Some(unreadable)),
            (format!("aGk={}", STANDARD.encode(vec![7; 100_000])), Some(unreadable)),
            (String::new(), Some(unreadable)),
        ] {
            let image = ImageBlock { data: data.clone(), mime_type: "image/png".to_owned() };
            let content = vec![MessageBlock::Image(image)];
            let mut message = StoredMessage::User(InputMessage { content, ..InputMessage::default() });
            assert_eq!(blobs.inline_images(&mut message), usize::from(want.is_some()), "{data}");
            let StoredMessage::User(user_message) = message else { panic!("{data}") };
            assert_eq!(user_message.content[0].as_text(), want, "{data}");
            let file = json!({ "path": "a", "image": { "type": "image", "data": data, "mimeType": "image/png" } });
            let mut mention =
                StoredMessage::FileMention(FileMentionMessage { files: vec![file], ..Default::default() });
            assert_eq!(blobs.inline_images(&mut mention), usize::from(want.is_some()), "{data}");
            let StoredMessage::FileMention(mention) = mention else { panic!("{data}") };
            assert_eq!(mention.files[0]["image"].get("data").is_none(), want.is_some(), "{data}");
        }
    }

    #[test]
    fn a_reference_never_leads_elsewhere_and_a_changed_blob_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::new(folder.path().to_owned());
        let name = Digest::hash_bytes(b"right").to_string();
        std::fs::write(folder.path().join(&name), "wrong").unwrap();
        std::fs::write(folder.path().join("secret"), "x").unwrap();
        for data in [
            format!("blob:sha256:{name}"),
            "blob:sha256:secret".to_owned(),
            "blob:sha256:../x".to_owned(),
            "aGk=".to_owned(),
        ] {
            assert_eq!(blobs.resolve_data(&data), None, "{data}");
        }
    }

    #[test]
    fn texts_that_are_too_long_are_cut_with_a_notice() {
        let blobs = BlobStore::new("/nowhere".into());
        let mut line = json!({"a": "ß".repeat(LONGEST + 1), "b": "ß".repeat(LONGEST), "xSignature": "s".repeat(LONGEST + 9), "providerPayload": {"x": ["s".repeat(LONGEST + 9)]}});
        blobs.externalise_images(&mut line).unwrap();
        let want = json!({"a": "ß".repeat(LONGEST) + NOTICE, "b": "ß".repeat(LONGEST), "xSignature": "s".repeat(LONGEST + 9), "providerPayload": {"x": ["s".repeat(LONGEST + 9)]}});
        assert!(line == want);
    }
}
