//! What a person says: prompts, steering, follow-ups.

use std::path::Path;

use countersign_core::{
    engine::{Command as EngineCommand, Reply},
    message::{self, Block, FileMention, Image, Message},
    session::{Command, Kind, Queue, Said, WhenBusy},
};
use countersign_protocol::omp::{Event, Id, Response, command::StreamingBehavior, message::ImageContent};
use countersign_runtime::Refused;
use serde_json::json;

use super::{acknowledge, problem, stop_run};
use crate::omp::door::Door;

/// How much of a file that is mentioned is shown, in bytes.
const MENTIONED: usize = 50 * 1024;

pub(super) async fn prompt(
    door: &mut Door,
    id: Option<Id>,
    text: String,
    images: Vec<ImageContent>,
    behavior: Option<StreamingBehavior>,
) {
    let when_busy = match behavior {
        None => WhenBusy::Refuse,
        Some(StreamingBehavior::Steer) => WhenBusy::Steer,
        Some(StreamingBehavior::FollowUp) => WhenBusy::FollowUp,
    };
    submit(door, id, "prompt", text, images, when_busy).await;
}

pub(super) async fn abort_and_prompt(door: &mut Door, id: Option<Id>, text: String, images: Vec<ImageContent>) {
    let said = said(&text, &images);
    let with = door.seat().map_or_else(Vec::new, |_| mentions(&text, door));
    stop_run(
        door,
        Box::new(move |door| {
            let Some(seat) = door.seat() else { return };
            let command = Command::Prompt { said, with, when_busy: WhenBusy::Refuse };
            let Some(replied) = seat.requests.try_send(EngineCommand::Session(seat.id.clone(), command)) else {
                return door.write(&Response::failure(id, "abort_and_prompt", "too many commands are waiting"));
            };
            door.later(async move {
                let replied = replied.await.unwrap_or(Err(Refused::Closed));
                let position = replied.as_ref().map_or(0, |reply| reply.position);
                let then: crate::omp::door::Then = Box::new(move |door| {
                    acknowledge(door, id, "abort_and_prompt", replied.map(|reply| reply.outcome));
                });
                (position, then)
            });
        }),
    )
    .await;
}

async fn submit(
    door: &mut Door,
    id: Option<Id>,
    name: &'static str,
    text: String,
    images: Vec<ImageContent>,
    when_busy: WhenBusy,
) {
    let cleared = clear_finished_tasks(door);
    let with = mentions(&text, door);
    let Some(seat) = door.seat() else { return };
    let command = Command::Prompt { said: said(&text, &images), with, when_busy };
    let command = EngineCommand::Session(seat.id.clone(), command);
    door.ask(command, move |door, replied| match replied {
        Ok(outcome) => {
            door.write(&Response::ack(id, name));
            if cleared && matches!(outcome, Reply::Started(_)) {
                door.write(&Event::TodoAutoClear);
            }
        }
        Err(refused) => door.write(&Response::failure(id, name, problem(&refused))),
    })
    .await;
}

/// A list of which all tasks are done goes when the next prompt starts.
fn clear_finished_tasks(door: &Door) -> bool {
    let Some(seat) = door.seat().filter(|_| !door.teller.is_running()) else { return false };
    let todos = seat.workshop.todos();
    let is_finished = !todos.get().is_empty() && todos.open_count() == 0;
    if is_finished {
        todos.set(Vec::new());
    }
    is_finished
}

pub(super) async fn steer(door: &mut Door, id: Option<Id>, text: String, images: Vec<ImageContent>) {
    queue(door, id, "steer", Queue::Steering, &text, &images).await;
}

pub(super) async fn follow_up(door: &mut Door, id: Option<Id>, text: String, images: Vec<ImageContent>) {
    queue(door, id, "follow_up", Queue::FollowUp, &text, &images).await;
}

async fn queue(door: &mut Door, id: Option<Id>, name: &'static str, queue: Queue, text: &str, images: &[ImageContent]) {
    let Some(seat) = door.seat() else { return };
    let command = Command::Queue { queue, said: said(text, images) };
    let command = EngineCommand::Session(seat.id.clone(), command);
    door.ask(command, move |door, replied| acknowledge(door, id, name, replied)).await;
}

/// A message as content: the text, then the images.
fn said(text: &str, images: &[ImageContent]) -> Said {
    let images =
        images.iter().map(|image| Block::Image(Image { data: image.data.clone(), mime_type: image.mime_type.clone() }));
    let content: Vec<Block> = std::iter::once(Block::text(text)).chain(images).collect();
    let tokens = message::estimate_tokens(text.len()) + 1200 * (content.len() as u64 - 1);
    let message = Message::User(message::Said { content, ..message::Said::default() });
    Said { content: serde_json::to_string(&message).unwrap_or_default().into(), tokens }
}

/// The files that a text mentions as `@path`, with what they hold.
fn mentions(text: &str, door: &Door) -> Vec<(Kind, Said)> {
    let roots = &door.shelf.common.roots;
    let mut files = Vec::new();
    for word in text.split_whitespace().filter_map(|word| word.strip_prefix('@')) {
        let name = word.trim_end_matches([',', '.', ';', ':', '!', '?', ')', '"', '\'']);
        // What tools may not read is not read for a mention either.
        let Ok(place) = roots.resolve(&door.shelf.cwd, Path::new(name)) else { continue };
        let path = place.path();
        let Ok(meta) = std::fs::metadata(path) else { continue };
        if name.is_empty() || !meta.is_file() {
            continue;
        }
        let size = meta.len();
        if size > MENTIONED as u64 {
            files.push(json!({ "path": name, "content": "", "byteSize": size, "skippedReason": "tooLarge" }));
            continue;
        }
        let Ok(bytes) = std::fs::read(path) else { continue };
        match String::from_utf8(bytes) {
            Ok(content) => {
                let lines = content.lines().count();
                files.push(json!({ "path": name, "content": content, "lineCount": lines, "byteSize": size }));
            }
            Err(_) => files.push(json!({ "path": name, "content": "", "byteSize": size, "skippedReason": "binary" })),
        }
    }
    if files.is_empty() {
        return Vec::new();
    }
    let message = Message::FileMention(FileMention { files, ..FileMention::default() });
    let content = serde_json::to_string(&message).unwrap_or_default();
    let tokens = message::estimate_tokens(content.len());
    vec![(Kind::Custom, Said { content: content.into(), tokens })]
}
