//! Files that come with messages: their identity, and their content.
//!
//! It must not know whose message it is: the caller has decided that the file is needed.

use std::time::Duration;

use super::{
    bot::{BotCallFailure, BotClient, RetryBackoff},
    wire::{TelegramFile, TelegramMessage},
};

/// Largest file that a bot gets, in bytes. Source: <https://core.telegram.org/bots/api#getfile>.
pub(crate) const LARGEST: u64 = 20 << 20;
/// Attempts at fetching a file.
const TRIES: u32 = 3;
/// Longest wait before another attempt. All other messages wait as long.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Of which kind something is that comes with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A picture.
    Picture,
    /// Sound.
    Sound,
    /// A film.
    Film,
    /// Anything else.
    Document,
}

impl FileKind {
    /// Returns its name in texts for people.
    pub const fn display_name(self) -> &'static str {
        match self {
            Self::Picture => "picture",
            Self::Sound => "recording",
            Self::Film => "video",
            Self::Document => "file",
        }
    }
}

/// Something that comes with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedFile {
    /// Of which kind.
    pub kind: FileKind,
    /// Its type, as the sender gives it.
    pub mime_type: String,
    /// Its name.
    pub name: Option<String>,
    /// Length in seconds.
    pub duration: Option<u64>,
    /// Size in bytes, if the sender gives it.
    pub(crate) size: Option<u64>,
    pub(super) id: String,
}

/// Why the content of a file is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFetchError {
    /// Telegram gives bots no such file.
    #[error("it has more than {} MB, which is the most that Telegram gives to a bot", LARGEST >> 20)]
    TooLarge,
    /// The content could not be fetched.
    #[error("it could not be fetched from Telegram")]
    Unfetched,
}

/// Returns all files that come with a message and that an agent can get.
pub(super) fn attached_files(message: &TelegramMessage) -> Vec<AttachedFile> {
    let of = |kind, file: &TelegramFile, usual: &str| AttachedFile {
        kind,
        mime_type: file.mime_type.clone().unwrap_or_else(|| usual.to_owned()),
        name: file.file_name.clone(),
        duration: file.duration,
        size: file.file_size,
        id: file.file_id.clone(),
    };
    // The same picture comes in several sizes, the largest last.
    let pictures = message.photo.last().map(|file| of(FileKind::Picture, file, "image/jpeg"));
    let document = message.document.as_ref().map(|file| {
        let is_picture = file.mime_type.as_deref().is_some_and(|mime| mime.starts_with("image/"));
        of(if is_picture { FileKind::Picture } else { FileKind::Document }, file, "application/octet-stream")
    });
    let sound = [(&message.voice, "audio/ogg"), (&message.audio, "audio/mpeg")];
    let sound = sound.into_iter().filter_map(|(file, usual)| Some(of(FileKind::Sound, file.as_ref()?, usual)));
    let films = [&message.video, &message.video_note];
    let films = films.into_iter().flatten().map(|file| of(FileKind::Film, file, "video/mp4"));
    pictures.into_iter().chain(document).chain(sound).chain(films).collect()
}

/// Returns the kind of a message that is neither a text nor a file; none if it is no message of a person.
pub(super) fn other_kind(message: &TelegramMessage) -> Option<&'static str> {
    let others = [
        (&message.sticker, "sticker"),
        (&message.location, "place"),
        (&message.venue, "place"),
        (&message.contact, "contact"),
        (&message.poll, "poll"),
        (&message.dice, "die"),
        (&message.story, "story"),
        (&message.paid_media, "paid file"),
    ];
    others.into_iter().find(|(there, _)| there.is_some()).map(|(_, word)| word)
}

/// Fetches the content of a file.
///
/// # Errors
/// [`FileFetchError`], after a few attempts.
pub(super) async fn fetch_content(bot: &BotClient, file: &AttachedFile) -> Result<Vec<u8>, FileFetchError> {
    if file.size.is_some_and(|size| size > LARGEST) {
        return Err(FileFetchError::TooLarge);
    }
    let mut backoff = RetryBackoff::default();
    for _ in 1..TRIES {
        match bot.fetch_file(&file.id, LARGEST).await {
            Ok(bytes) => return bytes.ok_or(FileFetchError::TooLarge),
            Err(BotCallFailure::Wait(wait)) => tokio::time::sleep(wait.min(LONGEST_WAIT)).await,
            Err(BotCallFailure::Refused(words)) if words.contains("file is too big") => {
                return Err(FileFetchError::TooLarge);
            }
            Err(BotCallFailure::Refused(_) | BotCallFailure::Moved(_) | BotCallFailure::Harmless(_)) => {
                return Err(FileFetchError::Unfetched);
            }
            Err(BotCallFailure::Token(_) | BotCallFailure::Conflict(_) | BotCallFailure::Unreachable(_)) => {
                tokio::time::sleep(backoff.next_wait()).await;
            }
        }
    }
    match bot.fetch_file(&file.id, LARGEST).await {
        Ok(bytes) => bytes.ok_or(FileFetchError::TooLarge),
        Err(_) => Err(FileFetchError::Unfetched),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FileKind, attached_files, other_kind};
    use crate::wire::TelegramMessage;

    fn message(more: &Value) -> TelegramMessage {
        let mut message = json!({ "message_id": 1, "chat": { "id": 7 } });
        for (name, value) in more.as_object().unwrap() {
            message[name] = value.clone();
        }
        serde_json::from_value(message).unwrap()
    }

    #[test]
    fn what_comes_with_a_message_is_a_file_or_has_a_name() {
        let file = |more: Value| {
            let mut file = json!({ "file_id": "f" });
            for (name, value) in more.as_object().unwrap() {
                file[name] = value.clone();
            }
            file
        };
        for (case, more, want) in [
            (
                "the largest size",
                json!({ "photo": [file(json!({})), { "file_id": "g" }] }),
                Some((FileKind::Picture, "image/jpeg", "g")),
            ),
            (
                "a file",
                json!({ "document": file(json!({ "mime_type": "text/csv" })) }),
                Some((FileKind::Document, "text/csv", "f")),
            ),
            (
                "a picture as a file",
                json!({ "document": file(json!({ "mime_type": "image/png" })) }),
                Some((FileKind::Picture, "image/png", "f")),
            ),
            ("a voice", json!({ "voice": file(json!({ "duration": 3 })) }), Some((FileKind::Sound, "audio/ogg", "f"))),
            ("a round film", json!({ "video_note": file(json!({})) }), Some((FileKind::Film, "video/mp4", "f"))),
            ("words", json!({ "text": "hi" }), None),
        ] {
            let got = attached_files(&message(&more));
            let got = got.first().map(|file| (file.kind, file.mime_type.as_str(), file.id.as_str()));
            assert_eq!(got, want, "{case}");
        }
        for (more, want) in [
            (json!({ "sticker": {} }), Some("sticker")),
            (json!({ "location": {}, "venue": {} }), Some("place")),
            (json!({ "pinned_message": {} }), None),
        ] {
            assert_eq!(other_kind(&message(&more)), want, "{more}");
        }
    }
}
