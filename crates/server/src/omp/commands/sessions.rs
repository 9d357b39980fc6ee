//! Sessions as a whole: new ones, others, branches, compaction, names, pages.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::{Command as EngineCommand, Reply},
    id::EntryId,
    message::Message,
    session::{Command, Entry, Imported, Kind, Said, Settings},
    time::Millis,
};
use countersign_protocol::omp::{
    Id, Response,
    state::{Branched, Cancelled, ExportedHtml},
};

use super::{acknowledge, conversation::user_text, problem, stop_run};
use crate::{
    agent_dir::replace::{Access, replace},
    omp::{
        door::{Door, Lane, Then},
        seat::{Beginning, Seat, SeatError, first_entries},
        start,
    },
    view::export,
};

/// Another session that is to be open instead.
pub(crate) struct Switch {
    id: Option<Id>,
    command: &'static str,
    to: To,
}

enum To {
    New { parent: Option<String> },
    File(PathBuf),
    Branch(EntryId),
}

/// Summarises what is old. A run is stopped first, and no more is told of it.
pub(super) async fn compact(door: &mut Door, id: Option<Id>, instructions: Option<String>) {
    door.teller.detach();
    door.lane = Lane::Short;
    stop_run(
        door,
        Box::new(move |door| {
            let Some(seat) = door.seat() else { return };
            let compact = Command::Compact { instructions: instructions.map(Into::into) };
            let Some(replied) = seat.requests.try_send(EngineCommand::Session(seat.id.clone(), compact)) else {
                door.lane = Lane::Free;
                return door.write(&Response::failure(id, "compact", "too many commands are waiting"));
            };
            door.lane = Lane::Short;
            door.later(async move {
                let replied = replied.await.unwrap_or(Err(countersign_runtime::Refused::Closed));
                let position = replied.as_ref().map_or(0, |reply| reply.position);
                let then: Then = Box::new(move |door| match replied.map(|reply| reply.outcome) {
                    Ok(Reply::Compacting { .. }) => door.lane = Lane::Compaction(id),
                    Ok(_) => {
                        door.lane = Lane::Free;
                        door.write(&Response::failure(id, "compact", "the compaction was not begun"));
                    }
                    Err(refused) => {
                        door.lane = Lane::Free;
                        door.write(&Response::failure(id, "compact", problem(&refused)));
                    }
                });
                (position, then)
            });
        }),
    )
    .await;
}

pub(super) async fn new_session(door: &mut Door, id: Option<Id>, parent: Option<String>) {
    leave(door, Switch { id, command: "new_session", to: To::New { parent } }).await;
}

pub(super) async fn switch_session(door: &mut Door, id: Option<Id>, path: String) {
    let path = door.shelf.cwd.join(path);
    if !path.exists() {
        let parent = path.parent().map(Path::to_owned).unwrap_or_default();
        let folders = [door.shelf.folder.clone(), Some(door.shelf.cwd.clone())];
        let is_ours = path.extension().is_some_and(|extension| extension == "jsonl")
            && folders.into_iter().flatten().any(|folder| folder == parent)
            || parent.starts_with(door.shelf.common.folder.sessions());
        if !is_ours {
            let problem = format!("{}: there is no session, and none can begin there", path.display());
            return door.write(&Response::failure(id, "switch_session", problem));
        }
    }
    leave(door, Switch { id, command: "switch_session", to: To::File(path) }).await;
}

pub(super) async fn branch(door: &mut Door, id: Option<Id>, entry: String) {
    let Some(seat) = door.seat() else { return };
    let (session, entry) = (seat.id.clone(), EntryId::new(entry));
    let wanted = entry.clone();
    let read = seat.requests.read(move |engine| {
        let entry = engine.state().session(&session)?.entry(&wanted)?;
        (entry.kind == Kind::User).then_some(())
    });
    if !matches!(read.await, Some((Some(()), _))) {
        return door.write(&Response::failure(id, "branch", "Invalid entry ID for branching"));
    }
    leave(door, Switch { id, command: "branch", to: To::Branch(entry) }).await;
}

/// Stops what works in the session, telling nothing more of it, and has the other one opened.
async fn leave(door: &mut Door, to: Switch) {
    door.teller.detach();
    door.lane = Lane::Short;
    stop_run(door, Box::new(move |door| door.lane = Lane::Session(Box::new(to)))).await;
}

/// Opens the other session. If that fails the old one stays.
pub(crate) async fn switch(door: &mut Door) {
    let Lane::Session(switch) = std::mem::replace(&mut door.lane, Lane::Free) else { return };
    let Switch { id, command, to } = *switch;
    let Some(old) = door.seat.take() else { return };
    let settings = settings_of(&old).await.unwrap_or_default();
    let opened: Result<(Seat, Option<String>), String> = match to {
        To::New { parent } => begin(door, None, parent, settings, Vec::new()).await.map(|seat| (seat, None)),
        To::Branch(entry) => branch_from(door, &old, &entry, settings).await,
        To::File(path) => open_file(door, &old, path, settings).await.map(|seat| (seat, None)),
    };
    match opened {
        Ok((seat, text)) => {
            door.seat = Some(seat);
            old.close().await;
            door.teller = crate::omp::teller::Teller::default();
            match text {
                Some(text) => door.write(&Response::success(id, command, &Branched { text, cancelled: false })),
                None => door.write(&Response::success(id, command, &Cancelled { cancelled: false })),
            }
            door.take_up().await;
        }
        Err(problem) => {
            door.seat = Some(old);
            door.write(&Response::failure(id, command, problem));
        }
    }
}

async fn settings_of(seat: &Seat) -> Option<Settings> {
    let session = seat.id.clone();
    let read = seat.requests.read(move |engine| engine.state().session(&session).map(|one| one.settings().clone()));
    read.await?.0
}

async fn begin(
    door: &Door,
    path: Option<PathBuf>,
    parent: Option<String>,
    settings: Settings,
    entries: Vec<Imported>,
) -> Result<Seat, String> {
    let entries = if entries.is_empty() { first_entries(&settings) } else { entries };
    let beginning = Beginning { path, parent, settings, entries };
    Seat::begin(&door.shelf, beginning).await.map_err(|error| error.to_string())
}

async fn open_file(door: &mut Door, old: &Seat, path: PathBuf, settings: Settings) -> Result<Seat, String> {
    if old.path().is_some_and(|own| same(own, &path)) {
        return Err("this session is open already".to_owned());
    }
    let shelf = door.shelf.clone();
    let fallback = settings.clone();
    let opened = Seat::reopen(&door.shelf, &path, |_, notes| start::restored(&shelf, settings, notes)).await;
    let opened = match opened {
        Err(SeatError::Copy(copy)) => return start::fork_of(&door.shelf, &copy, fallback).await,
        opened => opened.map_err(|error| error.to_string())?,
    };
    match opened {
        Some(seat) => Ok(seat),
        None => begin(door, Some(path), None, fallback, Vec::new()).await,
    }
}

fn same(left: &Path, right: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole(left) == whole(right)
}

/// A new session with everything before a message of a person, whose text the host gets to edit.
async fn branch_from(
    door: &Door,
    old: &Seat,
    entry: &EntryId,
    settings: Settings,
) -> Result<(Seat, Option<String>), String> {
    let (session, wanted) = (old.id.clone(), entry.clone());
    let read = old.requests.read(move |engine| {
        let session = engine.state().session(&session)?;
        let chosen = session.entry(&wanted)?.clone();
        let mut path: Vec<Entry> = Vec::new();
        let mut at = chosen.parent.as_ref().and_then(|parent| session.entry(parent));
        while let Some(entry) = at {
            path.push(entry.clone());
            if path.len() > session.entries().len() {
                break;
            }
            at = entry.parent.as_ref().and_then(|parent| session.entry(parent));
        }
        path.reverse();
        Some((chosen, path))
    });
    let Some((Some((chosen, path)), _)) = read.await else { return Err("Invalid entry ID for branching".to_owned()) };
    let lsns: Vec<_> = path.iter().map(|entry| entry.content).chain([chosen.content]).collect();
    let mut texts = old.handle.contents().get(&lsns).await.map_err(|error| error.to_string())?;
    let text = texts.pop().flatten().and_then(|text| user_text(&text)).unwrap_or_default();
    let has_messages = path.iter().any(|entry| entry.kind.is_message());
    let entries: Vec<Imported> = if has_messages {
        path.into_iter()
            .zip(texts)
            .filter_map(|(entry, text)| {
                let said = Said { content: text?, tokens: entry.tokens };
                Some(Imported { id: entry.id, parent: entry.parent, kind: entry.kind, said, made_at: Some(entry.at) })
            })
            .collect()
    } else {
        Vec::new()
    };
    let parent = old.path().map(|path| path.display().to_string());
    let seat = begin(door, None, parent, settings, entries).await?;
    Ok((seat, Some(text)))
}

pub(super) async fn set_name(door: &mut Door, id: Option<Id>, name: String) {
    let Some(seat) = door.seat() else { return };
    let command = EngineCommand::Session(seat.id.clone(), Command::Name { name });
    door.ask(command, move |door, replied| acknowledge(door, id, "set_session_name", replied)).await;
}

pub(super) async fn export_html(door: &mut Door, id: Option<Id>, path: Option<String>) {
    let Some(seat) = door.seat() else { return };
    let (session, requests) = (seat.id.clone(), seat.requests.clone());
    let contents = seat.handle.contents().clone();
    let stem = seat.path().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    let shown = path.unwrap_or_else(|| format!("omp-session-{}.html", stem.unwrap_or_else(|| session.to_string())));
    let file = door.shelf.cwd.join(&shown);
    let now = door.shelf.common.clock.now();
    door.later(async move {
        let read = requests.read(move |engine| {
            let session = engine.state().session(&session)?;
            let entries: Vec<Entry> = session.path().into_iter().cloned().collect();
            let model = session.settings().model.as_ref().map(|model| format!("{}/{}", model.provider, model.id));
            let header = export::Header {
                name: session.name().map(str::to_owned),
                session: session.id().to_string(),
                cwd: session.cwd().to_owned(),
                model,
                started: Some(session.opened_at()),
                exported: now,
            };
            Some((header, entries))
        });
        let (position, answer) = match read.await {
            Some((Some((header, entries)), position)) => (position, page(&contents, header, entries, &file).await),
            _ => (0, Err("the session is closed".to_owned())),
        };
        let then: Then = Box::new(move |door| match answer {
            Ok(()) => door.write(&Response::success(id, "export_html", &ExportedHtml { path: shown })),
            Err(problem) => door.write(&Response::failure(id, "export_html", problem)),
        });
        (position, then)
    });
}

async fn page(
    contents: &countersign_runtime::Contents,
    header: export::Header,
    entries: Vec<Entry>,
    file: &Path,
) -> Result<(), String> {
    let lsns: Vec<_> = entries.iter().map(|entry| entry.content).collect();
    let texts = contents.get(&lsns).await.map_err(|error| error.to_string())?;
    let messages: Vec<(Message, Millis)> = entries
        .iter()
        .zip(texts)
        .filter_map(|(entry, text)| Some((serde_json::from_str(&text?).ok()?, entry.at)))
        .collect();
    let html = export::export_html(&header, &messages);
    let file = file.to_owned();
    let write = move || {
        replace(&file, html.as_bytes(), Access::Private).map_err(|error| format!("{}: {error}", file.display()))
    };
    tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?
}
