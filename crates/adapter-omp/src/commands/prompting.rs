//! Messages of a user: prompts, steering, follow-ups.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_conversations::prompt::{self, slash_commands};
use countersign_core::{
    engine::{Command as EngineCommand, EngineReply},
    message::{self, FileMentionMessage, ImageBlock, MessageBlock, StoredMessage},
    session::{Command, MessageContent, MessageQueue, SessionEntryKind, WhenBusy},
};
use countersign_protocol::omp::{
    OmpEvent, OmpRequestId, OmpResponse, command::StreamingBehavior, message::ImageContent,
};
use countersign_runtime::{
    OwnerError,
    models::InputModality,
    tools::{TodoList, disk, read, roots::PathBoundary, todo},
};
use serde_json::{Value, json};

use super::{not_sent, settings::current_model, stop_all, write_ack};
use crate::{
    adapter::{AdapterCallback, OmpAdapter},
    image,
    refusal_text::{ABORTED, refusal_message},
};

/// Maximum part of a mentioned file that is shown, in bytes.
const MENTIONED: usize = 50 * 1024;
/// Maximum size of all mentioned files of one text that is shown, in bytes.
const MENTIONED_IN_ALL: usize = 1 << 20;
/// Maximum size of a mentioned image, and of all that one text mentions, in bytes.
const MENTIONED_IMAGES: usize = image::LARGEST;

/// Number of bytes of a file from which its kind is determined.
const SAMPLE: u64 = 512;
/// Number of tokens of an image, whatever its bytes.
const IMAGE_TOKENS: u64 = 1200;

/// Maximum length of the text of one message, in bytes.
const TEXT: usize = 16 << 20;
/// Maximum number of images of one message.
const IMAGES: usize = 64;

pub(super) async fn submit_prompt(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    text: String,
    images: Vec<ImageContent>,
    behavior: Option<StreamingBehavior>,
) {
    if std::mem::take(&mut adapter.is_given_up) {
        return adapter.write_frame(&OmpResponse::failure(id, "prompt", ABORTED));
    }
    let when_busy = match behavior {
        None => WhenBusy::Refuse,
        Some(StreamingBehavior::Steer) => WhenBusy::Steer,
        Some(StreamingBehavior::FollowUp) => WhenBusy::FollowUp,
    };
    send_prompt(adapter, id, "prompt", text, images, when_busy).await;
}

pub(super) async fn abort_and_prompt(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    text: String,
    images: Vec<ImageContent>,
) {
    if std::mem::take(&mut adapter.is_given_up) {
        return adapter.write_frame(&OmpResponse::failure(id, "abort_and_prompt", ABORTED));
    }
    if let Err(problem) = check_limits(&text, &images) {
        return adapter.write_frame(&OmpResponse::failure(id, "abort_and_prompt", problem));
    }
    let text = expand_message(text, adapter).await;
    let message = user_message(&text, &images);
    let with = read_mentions(&text, adapter).await;
    adapter.is_replacing = true;
    stop_all(
        adapter,
        Box::new(move |adapter, stopped| {
            adapter.is_replacing = false;
            if let Err(refused) = stopped {
                return adapter.write_frame(&OmpResponse::failure(id, "abort_and_prompt", refusal_message(&refused)));
            }
            let Some(seat) = adapter.current_session() else { return };
            seat.environment.release_halt();
            let command = Command::Prompt { message, with, when_busy: WhenBusy::Refuse };
            let Some(replied) = seat.requests.try_submit_command(EngineCommand::Session(seat.id.clone(), command))
            else {
                return adapter.write_frame(&OmpResponse::failure(id, "abort_and_prompt", not_sent(adapter)));
            };
            adapter.is_replacing = true;
            adapter.reply_in_order(async move {
                let replied = replied.await.unwrap_or(Err(OwnerError::Closed));
                let position = replied.as_ref().map_or(0, |reply| reply.position);
                let then: AdapterCallback = Box::new(move |adapter| {
                    adapter.is_replacing = false;
                    write_ack(adapter, id, "abort_and_prompt", replied.map(|reply| reply.outcome));
                });
                (position, then)
            });
        }),
    )
    .await;
}

async fn send_prompt(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    text: String,
    images: Vec<ImageContent>,
    when_busy: WhenBusy,
) {
    if let Err(problem) = check_limits(&text, &images) {
        return adapter.write_frame(&OmpResponse::failure(id, name, problem));
    }
    let text = expand_message(text, adapter).await;
    let finished = finished_tasks(adapter);
    let with = read_mentions(&text, adapter).await;
    let Some(seat) = adapter.current_session() else { return };
    if !adapter.encoder.is_running() {
        seat.environment.release_halt();
    }
    let command = Command::Prompt { message: user_message(&text, &images), with, when_busy };
    let command = EngineCommand::Session(seat.id.clone(), command);
    adapter
        .send_command(command, move |adapter, replied| match replied {
            Ok(outcome) => {
                adapter.write_frame(&OmpResponse::ack(id, name));
                if matches!(outcome, EngineReply::Started(_))
                    && let Some((todos, list)) = finished
                    && todos.get() == list
                {
                    todos.set(Vec::new());
                    if let Some(seat) = adapter.current_session() {
                        seat.sent_tasks.set(Vec::new());
                    }
                    adapter.write_frame(&OmpEvent::TodoAutoClear);
                }
            }
            Err(refused) => adapter.write_frame(&OmpResponse::failure(id, name, refusal_message(&refused))),
        })
        .await;
}

/// Returns the list of tasks, if all of them are done: it goes when the next prompt starts.
fn finished_tasks(adapter: &OmpAdapter) -> Option<(TodoList, Vec<todo::TaskPhase>)> {
    let todos = adapter.current_session().filter(|_| !adapter.encoder.is_running())?.environment.todo_list().clone();
    let list = todos.get();
    (!list.is_empty() && todos.open_count() == 0).then_some((todos, list))
}

pub(super) async fn queue_steering(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    text: String,
    images: Vec<ImageContent>,
) {
    queue_message(adapter, id, "steer", MessageQueue::Steering, text, &images).await;
}

pub(super) async fn follow_up(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    text: String,
    images: Vec<ImageContent>,
) {
    queue_message(adapter, id, "follow_up", MessageQueue::FollowUp, text, &images).await;
}

async fn queue_message(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    queue: MessageQueue,
    text: String,
    images: &[ImageContent],
) {
    if let Err(problem) = check_limits(&text, images) {
        return adapter.write_frame(&OmpResponse::failure(id, name, problem));
    }
    let text = expand_message(text, adapter).await;
    let Some(seat) = adapter.current_session() else { return };
    let command = Command::Queue { queue, message: user_message(&text, images) };
    let command = EngineCommand::Session(seat.id.clone(), command);
    adapter.send_command(command, move |adapter, replied| write_ack(adapter, id, name, replied)).await;
}

/// Returns the text that a message stands for: a file's content, if it names one as `/name`, or the expansion of the dialect.
async fn expand_message(text: String, adapter: &mut OmpAdapter) -> String {
    let hooks = adapter.dialect.hooks;
    let text = hooks.on_prompt(adapter, text);
    if !text.starts_with('/') {
        return text;
    }
    let (common, cwd) = (Arc::clone(&adapter.store.common), adapter.store.cwd.clone());
    let expanded = if common.reads_templates {
        let prompt_text = text.clone();
        let expand = move || slash_commands::expand_command(&prompt_text, &common.folder, &cwd, &prompt::DiskFiles);
        tokio::task::spawn_blocking(expand).await.ok().flatten()
    } else {
        None
    };
    match expanded {
        Some(expanded) => expanded,
        None => hooks.expand_prompt(text),
    }
}

/// Checks that a message is small enough to be kept, shown and sent again with every turn.
fn check_limits(text: &str, images: &[ImageContent]) -> Result<(), String> {
    if text.len() > TEXT {
        return Err(format!("Message too long: {} bytes of text (limit {TEXT})", text.len()));
    }
    if images.len() > IMAGES {
        return Err(format!("Too many images: {} (limit {IMAGES})", images.len()));
    }
    let most = image::LARGEST;
    match images.iter().map(|image| image::decoded_len(&image.data)).enumerate().find(|(_, size)| *size > most) {
        Some((index, size)) => Err(format!("Image too large: images[{index}] has {size} bytes (limit {most})")),
        None => images.iter().enumerate().try_for_each(|(index, image)| {
            image::check_image(image).map_err(|problem| format!("Invalid image: images[{index}].{problem}"))
        }),
    }
}

/// Returns a message as content: the text, then the images.
fn user_message(text: &str, images: &[ImageContent]) -> MessageContent {
    let images = images
        .iter()
        .map(|image| MessageBlock::Image(ImageBlock { data: image.data.clone(), mime_type: image.mime_type.clone() }));
    let content: Vec<MessageBlock> = std::iter::once(MessageBlock::from_text(text)).chain(images).collect();
    let tokens = message::estimate_tokens(text.len()) + IMAGE_TOKENS * (content.len() as u64 - 1);
    let attribution = Some("user".to_owned());
    let message =
        StoredMessage::User(message::InputMessage { content, attribution, ..message::InputMessage::default() });
    MessageContent { content: serde_json::to_string(&message).unwrap_or_default().into(), tokens }
}

/// Returns the files that a text mentions as `@path`, with what they hold; images too, if the model sees them.
async fn read_mentions(text: &str, adapter: &mut OmpAdapter) -> Vec<(SessionEntryKind, MessageContent)> {
    let names: Vec<String> = mentioned_names(text).map(str::to_owned).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let (common, cwd) = (Arc::clone(&adapter.store.common), adapter.store.cwd.clone());
    let sees = !common.block_images
        && current_model(adapter).await.is_some_and(|entry| entry.input.contains(&InputModality::Image));
    let read = move || {
        let boundary = common.roots.boundary();
        let mut left = MentionBudget { text: MENTIONED_IN_ALL, images: if sees { MENTIONED_IMAGES } else { 0 } };
        names.iter().filter_map(|name| read_mention(name, &boundary, &cwd, &mut left)).collect::<Vec<_>>()
    };
    let files = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    if files.is_empty() {
        return Vec::new();
    }
    let images: u64 = files.iter().map(|file| u64::from(file.get("image").is_some())).sum();
    let bare: usize = files.iter().map(|file| file["content"].as_str().map_or(0, str::len)).sum();
    let message = StoredMessage::FileMention(FileMentionMessage { files, ..FileMentionMessage::default() });
    let content = serde_json::to_string(&message).unwrap_or_default();
    let tokens = message::estimate_tokens(bare) + IMAGE_TOKENS * images;
    vec![(SessionEntryKind::Custom, MessageContent { content: content.into(), tokens })]
}

/// Number of bytes of mentioned files that may still be shown.
struct MentionBudget {
    text: usize,
    images: usize,
}

fn mentioned_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
    let names = words.map(|word| word.trim_end_matches([',', '.', ';', ':', '!', '?', ')', '"', '\'']));
    names.filter(|name| !name.is_empty())
}

/// Returns a file that is mentioned. What tools may not read is not read for a mention either.
fn read_mention(name: &str, boundary: &PathBoundary, cwd: &Path, left: &mut MentionBudget) -> Option<Value> {
    let place = boundary.resolve_path(cwd, Path::new(name)).ok()?;
    let mut file = disk::open_file(&place).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() {
        return None;
    }
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut sample).ok()?;
    let whole = io::Cursor::new(sample.clone()).chain(file);
    if let Some(mime_type) = read::image_type(&sample).filter(|_| found.len() <= left.images as u64) {
        let shown = read_image(name, mime_type, whole, left.images).ok()?;
        left.images -= usize::try_from(found.len()).unwrap_or(left.images).min(left.images);
        return Some(shown);
    }
    let shown = read_text(name, whole, found.len(), MENTIONED.min(left.text)).ok()?;
    left.text -= shown["content"].as_str().map_or(0, str::len);
    Some(shown)
}

/// Returns an image as it is shown.
fn read_image(name: &str, mime_type: &str, file: impl Read, most: usize) -> io::Result<Value> {
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    let image = json!({ "type": "image", "data": STANDARD.encode(&bytes), "mimeType": mime_type });
    Ok(json!({ "path": name, "content": "", "byteSize": bytes.len(), "image": image }))
}

/// Returns a file as it is shown if it has at most `most` bytes. One that is made on the fly says that it has none.
fn read_text(name: &str, file: impl Read, size: u64, most: usize) -> io::Result<Value> {
    let mut bytes = Vec::new();
    if size <= most as u64 {
        file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > most as u64 {
        return Ok(json!({ "path": name, "content": "", "byteSize": size, "skippedReason": "tooLarge" }));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(content) => {
            let lines = content.lines().count();
            json!({ "path": name, "content": content, "lineCount": lines, "byteSize": size })
        }
        Err(_) => json!({ "path": name, "content": "", "byteSize": size, "skippedReason": "binary" }),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path, process::Command};

    use countersign_protocol::{ExtraMembers, omp::message::ImageContent};
    use countersign_runtime::tools::AllowedRoots;
    use serde_json::{Value, json};

    use super::{
        IMAGES, MENTIONED, MentionBudget, TEXT, check_limits,
        image::{LARGEST as IMAGE, decoded_len},
        mentioned_names, read_mention, read_text,
    };

    #[test]
    fn base64_is_counted_as_the_bytes_it_stands_for() {
        for (base64, want) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3), ("YWJjZA", 4)] {
            assert_eq!(decoded_len(base64), want, "{base64}");
        }
    }

    #[test]
    fn what_is_beyond_the_limits_is_refused_with_both_numbers() {
        let image = |bytes: usize| ImageContent {
            data: "A".repeat(bytes.div_ceil(3) * 4),
            mime_type: "image/png".to_owned(),
            extra: ExtraMembers::default(),
        };
        let largest = IMAGE / 3 * 3;
        for (images, want) in [
            (vec![image(3); IMAGES], Ok(())),
            (vec![image(3); IMAGES + 1], Err("Too many images: 65 (limit 64)")),
            (vec![image(largest)], Ok(())),
            (vec![image(3), image(largest + 3)], Err("Image too large: images[1] has 20971521 bytes (limit 20971520)")),
        ] {
            assert_eq!(check_limits("", &images), want.map_err(str::to_owned));
        }
        assert_eq!(check_limits(&"x".repeat(TEXT), &[]), Ok(()));
    }

    #[test]
    fn what_is_no_image_is_refused_and_named() {
        let image = |data: &str, mime_type: &str| ImageContent {
            data: data.to_owned(),
            mime_type: mime_type.to_owned(),
            extra: ExtraMembers::default(),
        };
        for (data, mime_type, want) in [
            ("YQ==", "image/png", Ok(())),
            ("YWI", "image/svg+xml", Ok(())),
            ("", "image/png", Err("data is empty")),
            ("%%%", "image/png", Err("data is not base64")),
            ("====", "image/png", Err("data is not base64")),
            ("YQ==YQ==", "image/png", Err("data is not base64")),
            ("YWJjY", "image/png", Err("data is not base64")),
            (
                "data:image/png;base64,YQ==",
                "image/png",
                Err("data is a data URL; only the base64 behind its comma belongs there"),
            ),
            ("YQ==", "text/plain", Err("mimeType is \"text/plain\", which is no type of image")),
            ("YQ==", "", Err("mimeType is \"\", which is no type of image")),
            ("YQ==", "image/", Err("mimeType is \"image/\", which is no type of image")),
        ] {
            let good = image("YQ==", "image/png");
            let want = want.map_err(|problem| format!("Invalid image: images[1].{problem}"));
            assert_eq!(check_limits("", &[good, image(data, mime_type)]), want, "{data} {mime_type}");
        }
    }

    #[test]
    fn a_mention_is_a_word_behind_an_at_sign() {
        let names: Vec<&str> = mentioned_names("see @a.rs, (@b) @ and x@y: @\"c d\" @../e!").collect();
        assert_eq!(names, ["a.rs", "\"c", "../e"]);
    }

    #[test]
    fn only_regular_files_that_tools_may_read_are_shown_whole() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("own")).unwrap();
        fs::write(at("own/rules"), "secret").unwrap();
        fs::write(at("a"), "one\ntwo\n").unwrap();
        fs::write(at("image"), [0xff, 0xfe]).unwrap();
        fs::write(at("large"), "x".repeat(MENTIONED + 1)).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let boundary = AllowedRoots::whole_filesystem([at("own")]).boundary();
        let one = json!({ "path": "a", "content": "one\ntwo\n", "lineCount": 2, "byteSize": 8 });
        let left_out = |name: &str, size: usize, why: &str| json!({ "path": name, "content": "", "byteSize": size, "skippedReason": why });
        for (name, most, want) in [
            ("a", MENTIONED, Some(one)),
            ("a", 7, Some(left_out("a", 8, "tooLarge"))),
            ("image", MENTIONED, Some(left_out("image", 2, "binary"))),
            ("large", usize::MAX, Some(left_out("large", MENTIONED + 1, "tooLarge"))),
            ("own/rules", MENTIONED, None),
            ("pipe", MENTIONED, None),
            ("/dev/zero", MENTIONED, None),
            ("own", MENTIONED, None),
            ("absent", MENTIONED, None),
        ] {
            let mut left = MentionBudget { text: most, images: 0 };
            let got = read_mention(name, &boundary, folder.path(), &mut left);
            let content = got.as_ref().and_then(|got| got["content"].as_str()).map_or(0, str::len);
            assert_eq!((got, most - left.text), (want, content), "{name}");
        }
        let png = b"\x89PNG\r\n\x1a\n";
        fs::write(at("p.png"), png).unwrap();
        let picture = json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" });
        let seen = json!({ "path": "p.png", "content": "", "byteSize": 8, "image": picture });
        for (images, want) in [(8, &seen), (7, &left_out("p.png", 8, "binary"))] {
            let mut left = MentionBudget { text: MENTIONED, images };
            assert_eq!(read_mention("p.png", &boundary, folder.path(), &mut left).as_ref(), Some(want), "{images}");
        }
        assert_eq!(read_mention("a", &boundary, Path::new("/"), &mut MentionBudget { text: 9, images: 0 }), None);
    }

    #[test]
    fn a_file_that_says_it_is_empty_is_read_to_the_limit_at_most() {
        let got = read_text("x", io::repeat(b'x'), 0, 9).unwrap();
        assert_eq!((&got["skippedReason"], &got["content"]), (&Value::from("tooLarge"), &Value::from("")));
        assert_eq!(read_text("x", &b"made"[..], 0, 9).unwrap()["content"], "made");
    }
}
