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

    /// Puts the images of `message` back in place of their references. One that is lost becomes a text that says so.
    pub fn inline_images(&self, message: &mut StoredMessage) {
        let content = match message {
            StoredMessage::User(user_message) | StoredMessage::Developer(user_message) => &mut user_message.content,
            StoredMessage::Assistant(assistant) => &mut assistant.content,
            StoredMessage::ToolResult(result) => &mut result.content,
            StoredMessage::Custom(custom) => &mut custom.content,
            StoredMessage::FileMention(mention) => {
                mention.files.iter_mut().for_each(|file| self.inline_json(file));
                return;
            }
            StoredMessage::BashExecution(_) | StoredMessage::CompactionSummary(_) | StoredMessage::BranchSummary(_) => {
                return;
            }
        };
        for block in content {
            if let MessageBlock::Image(image) = block
                && image.data.starts_with(PREFIX)
            {
                match self.resolve_data(&image.data) {
                    Some(data) => image.data = data,
                    None => *block = MessageBlock::from_text("[An image that is no longer there]"),
                }
            }
        }
    }

    fn inline_json(&self, value: &mut Value) {
        walk_images(value, &mut |object| {
            if let Some(data) = object.get("data").and_then(Value::as_str).and_then(|data| self.resolve_data(data)) {
                object.insert("data".to_owned(), data.into());
            }
        });
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
        message::{ImageBlock, InputMessage, MessageBlock, StoredMessage},
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
        blobs.inline_images(&mut message);
        let want = vec![image(&long), MessageBlock::from_text("[An image that is no longer there]")];
        assert_eq!(message, StoredMessage::User(InputMessage { content: want, ..InputMessage::default() }));
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
