//! Attachments of messages: stored, and shown to the model as far as it can see them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::message::{ImageBlock, MessageBlock};
use countersign_files::objects;
use countersign_protocol::gsv::{
    GsvError, LARGEST_MEDIA,
    channel::{MediaAttachment, MediaKind},
};
use countersign_view::{LineMode, escape};

use super::super::{GsvAdapter, chat::media_folder};

/// Picture types that models can be shown.
const PICTURES: [(&str, &str); 4] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/gif", "gif"), ("image/webp", "webp")];
/// File name extensions of other common types.
const ENDINGS: [(&str, &str); 10] = [
    ("audio/ogg", "ogg"),
    ("audio/mpeg", "mp3"),
    ("audio/mp4", "m4a"),
    ("audio/wav", "wav"),
    ("video/mp4", "mp4"),
    ("application/pdf", "pdf"),
    ("application/zip", "zip"),
    ("application/json", "json"),
    ("text/plain", "txt"),
    ("text/csv", "csv"),
];

/// Returns the type of a file by its name.
pub(super) fn type_of(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    let ending = if ending == "jpeg" { "jpg" } else { &ending };
    let mut known = PICTURES.iter().chain(&ENDINGS);
    known.find(|(_, known)| *known == ending).map_or("application/octet-stream", |(mime, _)| mime)
}

/// Stores attachments for a session; returns the blocks that stand for them in the message.
///
/// # Errors
/// 400 for invalid base64 or too large a file, 500 if it could not be written. Files written before stay until the session
/// is renewed.
pub(crate) async fn store_media(
    door: &GsvAdapter,
    key: &str,
    media: &[MediaAttachment],
) -> Result<Vec<MessageBlock>, GsvError> {
    let mut blocks = Vec::with_capacity(media.len());
    for (place, item) in media.iter().enumerate() {
        let (picture, noted) = store_one(door, key, place, item).await?;
        blocks.push(picture.map_or_else(|| MessageBlock::from_text(noted), MessageBlock::Image));
    }
    Ok(blocks)
}

/// Does the same where only text is possible: returns the note to the model for each.
///
/// # Errors
/// As there.
pub(crate) async fn store_media_as_text(
    door: &GsvAdapter,
    key: &str,
    media: &[MediaAttachment],
) -> Result<Vec<String>, GsvError> {
    let mut words = Vec::with_capacity(media.len());
    for (place, item) in media.iter().enumerate() {
        words.push(store_one(door, key, place, item).await?.1);
    }
    Ok(words)
}

/// Stores an attachment; returns the picture, if the model can see it, and the note to the model.
async fn store_one(
    door: &GsvAdapter,
    key: &str,
    place: usize,
    item: &MediaAttachment,
) -> Result<(Option<ImageBlock>, String), GsvError> {
    let mime = item.mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let Some(data) = &item.data else { return Ok((None, media_note(item, item.url.as_deref()))) };
    let within = format!("message.media[{place}]");
    let bytes =
        STANDARD.decode(data.trim()).map_err(|_| GsvError::bad_request(format!("{within}.data is no base64")))?;
    if bytes.is_empty() {
        return Err(GsvError::bad_request(format!("{within}.data is empty")));
    }
    if bytes.len() > LARGEST_MEDIA {
        let length = bytes.len();
        return Err(GsvError::bad_request(format!("{within} has {length} bytes, at most {LARGEST_MEDIA} are taken")));
    }
    let picture = PICTURES.iter().find(|(known, _)| *known == mime).filter(|_| item.kind == MediaKind::Image);
    let ending =
        picture.or_else(|| ENDINGS.iter().find(|(known, _)| *known == mime)).map_or("bin", |(_, ending)| ending);
    let name = format!("{}/{}.{ending}", media_folder(key), uuid::Uuid::new_v4());
    let store = objects::ObjectStore::for_data_dir(&door.context.config.storage.folder);
    let put = store.put_object(name.clone(), bytes).await;
    put.map_err(|error| super::channel_error(format!("{within} could not be stored: {error}")))?;
    let picture =
        picture.map(|(mime, _)| ImageBlock { data: objects::object_reference(&name), mime_type: (*mime).to_owned() });
    Ok((picture, media_note(item, Some(&name))))
}

/// Returns the note to the model for an attachment that it cannot see.
fn media_note(item: &MediaAttachment, at: Option<&str>) -> String {
    let what = match item.kind {
        MediaKind::Image => "Image",
        MediaKind::Audio => "Audio",
        MediaKind::Video => "Video",
        MediaKind::Document => "Document",
    };
    let line = |text: &str| escape(text, LineMode::One).into_owned();
    let name = item.filename.as_deref().map_or_else(String::new, |name| format!(" {}", line(name)));
    let at = at.map_or_else(String::new, |at| format!(" at {}", line(at)));
    let mut text = format!("[{what}{name} ({}){at}]", line(&item.mime_type));
    if let Some(transcript) = item.transcription.as_deref().filter(|transcript| !transcript.trim().is_empty()) {
        text.push_str(&format!("\nTranscript: {}", escape(transcript, LineMode::Many)));
    }
    text
}
