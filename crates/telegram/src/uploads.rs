//! Files that are sent to a chat: as what, and in which form.

use serde_json::Value;

use super::bot::{BotCallFailure, BotClient, MessageTarget};
use crate::transport::Attachment;

/// Longest caption of a file, in units of UTF-16.
pub(super) const CAPTION: usize = 1024;
/// Largest picture that is shown as one, in bytes. Source: <https://core.telegram.org/bots/api#sendphoto>.
const LARGEST_PICTURE: usize = 10 << 20;

/// Method by which a file is sent, and the name of the file in it.
type UploadMethod = (&'static str, &'static str);

const DOCUMENT: UploadMethod = ("sendDocument", "document");

fn best_method(file: &Attachment) -> UploadMethod {
    match file.mime_type.as_str() {
        "image/png" | "image/jpeg" | "image/webp" if file.bytes.len() <= LARGEST_PICTURE => ("sendPhoto", "photo"),
        "audio/mpeg" | "audio/mp4" => ("sendAudio", "audio"),
        "video/mp4" => ("sendVideo", "video"),
        _ => DOCUMENT,
    }
}

/// Sends a file as its own kind, or as a plain file if it is not taken as that. If the topic is gone or closed it goes to the chat without
/// one.
///
/// # Errors
/// Why it was not sent.
pub(super) async fn send_file(
    bot: &BotClient,
    to: MessageTarget,
    file: &Attachment,
    caption: Option<&str>,
) -> Result<(), BotCallFailure> {
    match upload_as_best(bot, to, file, caption).await {
        Err(failure) => match to.without_topic(&failure) {
            Some(to) => upload_as_best(bot, to, file, caption).await,
            None => Err(failure),
        },
        Ok(()) => Ok(()),
    }
}

async fn upload_as_best(
    bot: &BotClient,
    to: MessageTarget,
    file: &Attachment,
    caption: Option<&str>,
) -> Result<(), BotCallFailure> {
    let best = best_method(file);
    match attempt_upload(bot, best, to, file, caption).await {
        Err(failure @ BotCallFailure::Refused(_)) if best != DOCUMENT && !failure.is_about_topic() => {
            attempt_upload(bot, DOCUMENT, to, file, caption).await
        }
        sent => sent,
    }
}

async fn attempt_upload(
    bot: &BotClient,
    (method, field): UploadMethod,
    to: MessageTarget,
    file: &Attachment,
    caption: Option<&str>,
) -> Result<(), BotCallFailure> {
    let mut form = MultipartForm::default();
    form.add_field("chat_id", &to.chat.to_string());
    if let Some(topic) = to.topic {
        form.add_field("message_thread_id", &topic.to_string());
    }
    if let Some(caption) = caption.filter(|caption| !caption.is_empty()) {
        form.add_field("caption", caption);
    }
    if let Some(message_id) = to.reply_to {
        let reply = serde_json::json!({ "message_id": message_id, "allow_sending_without_reply": true });
        form.add_field("reply_parameters", &Value::to_string(&reply));
    }
    form.add_file(field, file);
    let (kind, body) = form.into_body();
    bot.upload_form(method, kind, body).await
}

/// A form with a file, as `multipart/form-data`.
struct MultipartForm {
    boundary: String,
    body: Vec<u8>,
}

impl Default for MultipartForm {
    fn default() -> Self {
        // No sender of a message knows it.
        Self { boundary: uuid::Uuid::new_v4().simple().to_string(), body: Vec::new() }
    }
}

impl MultipartForm {
    fn add_part(&mut self, head: &str, content: &[u8]) {
        self.body.extend_from_slice(
            format!("--{}\r\nContent-Disposition: form-data; {head}\r\n\r\n", self.boundary).as_bytes(),
        );
        self.body.extend_from_slice(content);
        self.body.extend_from_slice(b"\r\n");
    }

    fn add_field(&mut self, name: &str, value: &str) {
        self.add_part(&format!("name=\"{name}\""), value.as_bytes());
    }

    fn add_file(&mut self, field: &str, file: &Attachment) {
        // As browsers write names: what would end the header is escaped.
        let name = file.name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
        let head = format!("name=\"{field}\"; filename=\"{name}\"\r\nContent-Type: {}", file.mime_type);
        self.add_part(&head, &file.bytes);
    }

    /// Returns its type, and all of it.
    fn into_body(mut self) -> (String, Vec<u8>) {
        self.body.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        (format!("multipart/form-data; boundary={}", self.boundary), self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::{DOCUMENT, LARGEST_PICTURE, MultipartForm, best_method};
    use crate::transport::Attachment;

    fn file(name: &str, mime_type: &str, length: usize) -> Attachment {
        Attachment { name: name.to_owned(), mime_type: mime_type.to_owned(), bytes: vec![b'x'; length] }
    }

    #[test]
    fn a_file_is_sent_as_what_it_is_and_else_as_a_file() {
        for (mime_type, length, want) in [
            ("image/png", 1, ("sendPhoto", "photo")),
            ("image/png", LARGEST_PICTURE + 1, DOCUMENT),
            ("image/gif", 1, DOCUMENT),
            ("audio/mpeg", 1, ("sendAudio", "audio")),
            ("video/mp4", 1, ("sendVideo", "video")),
            ("text/csv", 1, DOCUMENT),
        ] {
            assert_eq!(best_method(&file("f", mime_type, length)), want, "{mime_type} {length}");
        }
    }

    #[test]
    fn a_form_has_its_fields_and_its_file_and_no_name_ends_a_header() {
        let mut form = MultipartForm { boundary: "b".to_owned(), body: Vec::new() };
        form.add_field("chat_id", "7");
        form.add_file("document", &file("a\"\r\nb", "text/csv", 2));
        let (kind, body) = form.into_body();
        assert_eq!(kind, "multipart/form-data; boundary=b");
        let want = "--b\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n7\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"document\"; filename=\"a%22%0D%0Ab\"\r\n\
                    Content-Type: text/csv\r\n\r\nxx\r\n--b--\r\n";
        assert_eq!(String::from_utf8(body).unwrap(), want);
    }
}
