//! Sessions as a whole: new ones, others, branches, compaction, names, pages.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    engine::{Command as EngineCommand, EngineReply},
    id::EntryId,
    session::{Command, ImportedEntry, MessageContent, SessionEntry, SessionEntryKind, Settings},
};
use countersign_files::{
    paths,
    replace::{FileAccess, replace_file},
};
use countersign_protocol::{
    RawJson,
    omp::{
        OmpRequestId, OmpResponse,
        state::{BranchResult, ExportedHtml, SessionSwitchResult},
        ui::NotifyType,
    },
};
use countersign_runtime::tools::AllowedRoots;
use countersign_view::{LineMode, escape, export};

use super::{conversation::user_text, exported_page::export_page, not_sent, stop_run, write_ack};
use crate::{
    adapter::{ActiveOperation, AdapterCallback, OmpAdapter, SessionSwitch},
    contract_transfer::transfer_contract,
    host,
    open_session::{OpenSession, SessionStart, first_entries, separate_copy_of},
    open_session_error::OpenSessionError,
    refusal_text::{CANCELLED, refusal_message},
    select_session,
    session_file_writer::SessionFileWriter,
};

/// Maximum wait for a name to reach the session's file before it is acknowledged without: it is recorded.
const NAMED: Duration = Duration::from_secs(5);

/// Answer if the session is gone.
const CLOSED: &str = "the session is closed";

/// Summarises old entries. A run is stopped first, and is no longer reported.
pub(super) async fn start_compaction(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, instructions: Option<String>) {
    if std::mem::take(&mut adapter.is_given_up) {
        return adapter.write_frame(&adapter.dialect.hooks.broken_off(id, "compact", CANCELLED.to_owned()));
    }
    adapter.encoder.detach();
    adapter.operation = ActiveOperation::ToCompact { is_given_up: false };
    stop_run(
        adapter,
        Box::new(move |adapter, stopped| {
            let operation = std::mem::replace(&mut adapter.operation, ActiveOperation::Free);
            if let Err(refused) = stopped {
                adapter.encoder.attach();
                return adapter.write_frame(&adapter.dialect.hooks.broken_off(
                    id,
                    "compact",
                    refusal_message(&refused),
                ));
            }
            if matches!(operation, ActiveOperation::ToCompact { is_given_up: true }) {
                return adapter.write_frame(&adapter.dialect.hooks.broken_off(id, "compact", CANCELLED.to_owned()));
            }
            let Some(seat) = adapter.current_session() else { return };
            seat.environment.release_halt();
            let compact = Command::Compact { instructions: instructions.map(Into::into) };
            let Some(replied) = seat.requests.try_submit_command(EngineCommand::Session(seat.id.clone(), compact))
            else {
                return adapter.write_frame(&OmpResponse::failure(id, "compact", not_sent(adapter)));
            };
            adapter.operation = ActiveOperation::ToCompact { is_given_up: false };
            adapter.reply_in_order(async move {
                let replied = replied.await.unwrap_or(Err(countersign_runtime::OwnerError::Closed));
                let position = replied.as_ref().map_or(0, |reply| reply.position);
                let then: AdapterCallback = Box::new(move |adapter| match replied.map(|reply| reply.outcome) {
                    Ok(EngineReply::Compacting { .. }) => adapter.operation = ActiveOperation::Compaction(id),
                    Ok(_) => {
                        adapter.operation = ActiveOperation::Free;
                        adapter.write_frame(&OmpResponse::failure(id, "compact", "the compaction was not begun"));
                    }
                    Err(refused) => {
                        adapter.operation = ActiveOperation::Free;
                        adapter.write_frame(&adapter.dialect.hooks.broken_off(
                            id,
                            "compact",
                            refusal_message(&refused),
                        ));
                    }
                });
                (position, then)
            });
        }),
    )
    .await;
}

pub(super) async fn new_session(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, parent: Option<String>) {
    let settings = current_settings(adapter).await;
    let beginning = SessionStart { path: None, parent, name: None, settings, entries: Vec::new() };
    let opened = begin_session(adapter, beginning).await;
    leave_silently(adapter, id, "new_session", opened).await;
}

/// Reloads the open session from its beginning: its work is stopped, no message is queued, and later commands see the session as it
/// is then.
async fn reload_session(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    const NAME: &str = "switch_session";
    adapter.encoder.detach();
    adapter.operation = ActiveOperation::Short;
    stop_run(
        adapter,
        Box::new(move |adapter, stopped| {
            adapter.operation = ActiveOperation::Free;
            if let Err(refused) = stopped {
                adapter.encoder.attach();
                return adapter.write_frame(&OmpResponse::failure(id, NAME, refusal_message(&refused)));
            }
            let Some(seat) = adapter.current_session() else { return };
            let clear = EngineCommand::Session(seat.id.clone(), Command::Clear);
            let Some(replied) = seat.requests.try_submit_command(clear) else {
                return adapter.write_frame(&OmpResponse::failure(id, NAME, not_sent(adapter)));
            };
            adapter.operation = ActiveOperation::Short;
            adapter.reply_in_order(async move {
                let replied = replied.await.unwrap_or(Err(countersign_runtime::OwnerError::Closed));
                let position = replied.as_ref().map_or(0, |reply| reply.position);
                let answer = match replied {
                    Ok(_) => OmpResponse::success(id, NAME, &SessionSwitchResult { cancelled: false }),
                    Err(refused) => OmpResponse::failure(id, NAME, refusal_message(&refused)),
                };
                let then: AdapterCallback = Box::new(move |adapter| {
                    adapter.operation = ActiveOperation::Free;
                    adapter.write_frame(&answer);
                });
                (position, then)
            });
        }),
    )
    .await;
}

pub(super) async fn switch_session(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, path: String) {
    let path = adapter.store.cwd.join(paths::expand_home(&path, adapter.store.common.folder.home()));
    if adapter.current_session().and_then(OpenSession::path).is_some_and(|own| is_same_file(own, &path)) {
        return reload_session(adapter, id).await;
    }
    let opened = match may_open(adapter, &path) {
        Ok(()) => open_file(adapter, path).await,
        Err(problem) => Err(problem),
    };
    leave_silently(adapter, id, "switch_session", opened).await;
}

/// Goes on in a new session from before a message. `name` is the command that asks for it.
pub(super) async fn branch_session(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    name: &'static str,
    entry: String,
) {
    let Some(seat) = adapter.current_session() else { return };
    let (session, entry) = (seat.id.clone(), EntryId::new(entry));
    let target = entry.clone();
    let read = seat.requests.read_state(move |engine| {
        let entry = engine.state().session(&session)?.entry(&target)?;
        (entry.kind == SessionEntryKind::User).then_some(())
    });
    let opened = match read.await {
        Some((Some(()), _)) => branch_from(adapter, &entry).await,
        _ => Err("Invalid entry ID for branching".to_owned()),
    };
    match opened {
        // A host expects all events of the run it branches from.
        Ok((seat, text)) => {
            let data = RawJson::from_wire(&BranchResult { text, cancelled: false });
            leave_session(adapter, SessionSwitch::new(id, name, seat, data)).await;
        }
        Err(problem) => adapter.write_frame(&adapter.dialect.hooks.broken_off(id, name, problem)),
    }
}

/// Goes on in a new session with the whole conversation of this one.
pub(super) async fn clone_session(adapter: &mut OmpAdapter, id: Option<OmpRequestId>) {
    const NAME: &str = "clone";
    match open_clone(adapter).await {
        Ok(seat) => {
            leave_session(
                adapter,
                SessionSwitch::new(id, NAME, seat, RawJson::from_wire(&SessionSwitchResult { cancelled: false })),
            )
            .await
        }
        Err(problem) => adapter.write_frame(&OmpResponse::failure(id, NAME, problem)),
    }
}

async fn open_clone(adapter: &mut OmpAdapter) -> Result<OpenSession, String> {
    let settings = current_settings(adapter).await;
    let Some(old) = adapter.current_session() else { return Err(CLOSED.to_owned()) };
    let session = old.id.clone();
    let read = old.requests.read_state(move |engine| {
        let session = engine.state().session(&session)?;
        let path: Vec<SessionEntry> = session.path_entries().into_iter().cloned().collect();
        Some((path, session.name().map(str::to_owned)))
    });
    let Some((Some((path, name)), _)) = read.await else { return Err(CLOSED.to_owned()) };
    let lsns: Vec<_> = path.iter().map(|entry| entry.content).collect();
    let texts = old.handle.contents().get(&lsns).await.map_err(|error| error.to_string())?;
    let parent = old.path().map(|path| path.display().to_string());
    let entries = imported_entries(path, texts);
    begin_session(adapter, SessionStart { path: None, parent, name, settings, entries }).await
}

/// Returns entries of one session as another begins with them; none if there is no message among them.
fn imported_entries(path: Vec<SessionEntry>, texts: Vec<Option<Arc<str>>>) -> Vec<ImportedEntry> {
    if !path.iter().any(|entry| entry.kind.is_message()) {
        return Vec::new();
    }
    let entries = path.into_iter().zip(texts).filter_map(|(entry, text)| {
        let message = MessageContent { content: text?, tokens: entry.tokens };
        Some(ImportedEntry { id: entry.id, parent: entry.parent, kind: entry.kind, message, made_at: Some(entry.at) })
    });
    entries.collect()
}

/// Leaves for a session, telling nothing more of what works in the one before. If it could not be opened nothing is stopped.
async fn leave_silently(
    adapter: &mut OmpAdapter,
    id: Option<OmpRequestId>,
    command: &'static str,
    opened: Result<OpenSession, String>,
) {
    match opened {
        Ok(seat) => {
            adapter.encoder.detach();
            let answer = RawJson::from_wire(&SessionSwitchResult { cancelled: false });
            leave_session(adapter, SessionSwitch::new(id, command, seat, answer)).await;
        }
        Err(problem) => adapter.write_frame(&OmpResponse::failure(id, command, problem)),
    }
}

/// Stops what works in the session and has the other one take its place.
async fn leave_session(adapter: &mut OmpAdapter, switch: SessionSwitch) {
    let switch = Box::new(switch);
    adapter.operation = ActiveOperation::Short;
    // Work that the log could not be informed of is stopped when the session is closed.
    stop_run(adapter, Box::new(move |adapter, _| adapter.operation = ActiveOperation::Session(switch))).await;
}

/// Puts the other session in the place of the old one.
pub(crate) async fn finish_switch(adapter: &mut OmpAdapter) {
    let ActiveOperation::Session(switch) = std::mem::replace(&mut adapter.operation, ActiveOperation::Free) else {
        return;
    };
    let SessionSwitch { id, command, seat, data } = *switch;
    let carried = match adapter.current_session() {
        Some(old) => transfer_contract(old, &seat).await,
        None => Ok(()),
    };
    if let Err(problem) = carried {
        // There was no message in it.
        let _ = seat.close().await;
        adapter.encoder.attach();
        return adapter.write_frame(&OmpResponse::failure(id, command, problem));
    }
    if let Some(old) = adapter.seat.replace(seat)
        && let Err(unwritten) = old.close().await
    {
        adapter.notify_host(unwritten.to_string(), NotifyType::Warning);
    }
    adapter.encoder = adapter.encoder.successor_encoder();
    adapter.write_frame(&OmpResponse::success(id, command, &data));
    adapter.run_waiters();
    adapter.resume_session().await;
    host::serve_calls(adapter).await;
}

/// Checks that a session may be open at `path`: an existing one, or a new one in a folder of sessions.
fn may_open(adapter: &OmpAdapter, path: &Path) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    let refused = || Err(format!("{}: there is no session, and none can begin there", path.display()));
    let is_link = path.symlink_metadata().is_ok();
    let Some(folder) = path.parent().and_then(paths::resolve_path) else { return refused() };
    if is_link || path.extension().is_none_or(|extension| extension != "jsonl") {
        return refused();
    }
    let is = |ours: &Path| paths::resolve_path(ours).is_some_and(|ours| ours == folder);
    let sessions = paths::resolve_path(&adapter.store.common.folder.sessions_dir());
    let is_below = sessions.is_some() && folder.parent() == sessions.as_deref();
    let is_ours = adapter.store.folder.as_deref().is_some_and(is) || is_below || is(&adapter.store.cwd);
    if is_ours { Ok(()) } else { refused() }
}

async fn current_settings(adapter: &mut OmpAdapter) -> Settings {
    match adapter.current_session() {
        Some(seat) => settings_of(seat).await.unwrap_or_default(),
        None => Settings::default(),
    }
}

async fn settings_of(seat: &OpenSession) -> Option<Settings> {
    let session = seat.id.clone();
    let read =
        seat.requests.read_state(move |engine| engine.state().session(&session).map(|one| one.settings().clone()));
    read.await?.0
}

async fn begin_session(adapter: &mut OmpAdapter, mut beginning: SessionStart) -> Result<OpenSession, String> {
    adapter.grants_written().await;
    if beginning.entries.is_empty() {
        beginning.entries = first_entries(&beginning.settings);
    }
    OpenSession::begin_new(&adapter.store, beginning).await.map_err(|error| error.to_string())
}

async fn open_file(adapter: &mut OmpAdapter, path: PathBuf) -> Result<OpenSession, String> {
    adapter.grants_written().await;
    let settings = current_settings(adapter).await;
    let session_store = adapter.store.clone();
    let fallback = settings.clone();
    let current = adapter.current_session().and_then(|seat| Some((seat.id.clone(), seat.path()?.to_owned())));
    let separated = match &current {
        Some((id, own)) => separate_copy_of(&session_store, (id, own), &path).await,
        None => Ok(()),
    };
    let opened = match separated {
        Ok(()) => {
            let restore = |notes: &[_]| select_session::restored_settings(&session_store, settings, notes);
            OpenSession::reopen_file(&adapter.store, &path, restore).await
        }
        Err(error) => Err(error),
    };
    let opened = match opened {
        Err(OpenSessionError::Copy(copy)) => {
            let restore = |notes: &[_]| select_session::restored_settings(&session_store, fallback, notes);
            return select_session::fork_opened(&adapter.store, copy, restore).await.map_err(|error| error.to_string());
        }
        opened => opened.map_err(|error| error.to_string())?,
    };
    match opened {
        Some(seat) => Ok(seat),
        None => {
            let (path, entries) = (Some(path), Vec::new());
            begin_session(adapter, SessionStart { path, parent: None, name: None, settings: fallback, entries }).await
        }
    }
}

fn is_same_file(left: &Path, right: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole(left) == whole(right)
}

/// Returns a new session with everything before a message of a person, whose text the host gets to edit.
async fn branch_from(adapter: &mut OmpAdapter, entry: &EntryId) -> Result<(OpenSession, String), String> {
    let settings = current_settings(adapter).await;
    let Some(old) = adapter.current_session() else { return Err(CLOSED.to_owned()) };
    let (session, target) = (old.id.clone(), entry.clone());
    let read = old.requests.read_state(move |engine| {
        let session = engine.state().session(&session)?;
        let chosen = session.entry(&target)?.clone();
        let mut path: Vec<SessionEntry> = Vec::new();
        let mut at = chosen.parent.as_ref().and_then(|parent| session.entry(parent));
        while let Some(entry) = at {
            path.push(entry.clone());
            if path.len() > session.entries().len() {
                break;
            }
            at = entry.parent.as_ref().and_then(|parent| session.entry(parent));
        }
        path.reverse();
        Some((chosen, path, session.name().map(str::to_owned)))
    });
    let Some((Some((chosen, path, name)), _)) = read.await else {
        return Err("Invalid entry ID for branching".to_owned());
    };
    let lsns: Vec<_> = path.iter().map(|entry| entry.content).chain([chosen.content]).collect();
    let mut texts = old.handle.contents().get(&lsns).await.map_err(|error| error.to_string())?;
    let text = texts.pop().flatten().and_then(|text| user_text(&text)).unwrap_or_default();
    let parent = old.path().map(|path| path.display().to_string());
    let entries = imported_entries(path, texts);
    let seat = begin_session(adapter, SessionStart { path: None, parent, name, settings, entries }).await?;
    Ok((seat, text))
}

pub(super) async fn set_name(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, name: String) {
    let Some(seat) = adapter.current_session() else { return };
    // A name is one line, and shown in terminals.
    let name = escape(name.trim(), LineMode::One).into_owned();
    let (names, requests) = (seat.file_writer.as_ref().map(SessionFileWriter::name_positions), seat.requests.clone());
    let command = EngineCommand::Session(seat.id.clone(), Command::Name { name });
    adapter
        .send_command(command, move |adapter, replied| {
            let Some(mut names) = names.filter(|_| replied.is_ok()) else {
                return write_ack(adapter, id, "set_session_name", replied);
            };
            adapter.reply_unordered(async move {
                // The next process that opens the file takes the name in it for the newest. A writer that has ended, or gets no more events,
                // writes nothing any more.
                let written = async {
                    let ((), behind) = requests.read_state(|_| ()).await?;
                    names.wait_for(|before| *before >= behind).await.ok().map(|_| behind)
                };
                let position = tokio::time::timeout(NAMED, written).await.ok().flatten().unwrap_or(0);
                let then: AdapterCallback =
                    Box::new(move |adapter| write_ack(adapter, id, "set_session_name", replied));
                (position, then)
            });
        })
        .await;
}

pub(super) async fn export_html(adapter: &mut OmpAdapter, id: Option<OmpRequestId>, path: Option<String>) {
    let Some(seat) = adapter.current_session() else { return };
    let (session, requests) = (seat.id.clone(), seat.requests.clone());
    let contents = seat.handle.contents().clone();
    let stem = seat.path().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    let product = adapter.store.common.product.name();
    let shown =
        path.unwrap_or_else(|| format!("{product}-session-{}.html", stem.unwrap_or_else(|| session.to_string())));
    let target = ExportTarget {
        given: paths::expand_home(&shown, adapter.store.common.folder.home()).display().to_string(),
        cwd: adapter.store.cwd.clone(),
        roots: adapter.store.common.roots.clone(),
        own: seat.path().map(Path::to_owned),
    };
    let now = adapter.store.common.clock.now();
    let turns = std::sync::Arc::clone(&adapter.pages);
    adapter.reply_unordered(async move {
        let _turn = turns.acquire().await.ok();
        let read = requests.read_state(move |engine| {
            let session = engine.state().session(&session)?;
            let entries: Vec<SessionEntry> = session.path_entries().into_iter().cloned().collect();
            let model = session.settings().model.as_ref().map(|model| format!("{}/{}", model.provider, model.id));
            let header = export::ExportHeader {
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
            Some((Some((header, entries)), position)) => {
                (position, export_page(&contents, header, entries, move |html| target.write_page(html)).await)
            }
            _ => (0, Err("the session is closed".to_owned())),
        };
        let then: AdapterCallback = Box::new(move |adapter| match answer {
            Ok(()) => adapter.write_frame(&OmpResponse::success(id, "export_html", &ExportedHtml { path: shown })),
            Err(problem) => adapter.write_frame(&OmpResponse::failure(id, "export_html", problem)),
        });
        (position, then)
    });
}

/// Target of an exported page.
struct ExportTarget {
    given: String,
    cwd: PathBuf,
    roots: AllowedRoots,
    /// The session's own file.
    own: Option<PathBuf>,
}

impl ExportTarget {
    /// Writes the page, but not over anything that tools may not touch, over a device, or over the session itself.
    fn write_page(&self, html: &str) -> Result<(), String> {
        let place = self.roots.resolve_path(&self.cwd, Path::new(&self.given)).map_err(|error| error.to_string())?;
        let real = |path: &Path| AllowedRoots::whole_filesystem([]).resolve_path(&self.cwd, path).ok();
        if self.own.as_deref().and_then(real).is_some_and(|own| own.path() == place.path()) {
            return Err(format!("{} is the file of this session", self.given));
        }
        replace_file(place.path(), html.as_bytes(), FileAccess::Private)
            .map_err(|error| format!("{}: {error}", self.given))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink},
        process::Command,
    };

    use countersign_runtime::tools::AllowedRoots;

    use super::ExportTarget;

    #[test]
    fn a_page_takes_the_place_of_nothing_but_plain_files_that_tools_may_touch() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("own")).unwrap();
        fs::write(at("own/permissions.yaml"), "rules").unwrap();
        fs::write(at("own.jsonl"), "session").unwrap();
        fs::write(at("old.html"), "old").unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("own/permissions.yaml", at("rules")).unwrap();
        symlink("own.jsonl", at("session")).unwrap();
        for (given, want) in [
            ("new.html", None),
            ("deep/new.html", None),
            ("old.html", None),
            ("pipe", Some("pipe: it is not a regular file")),
            ("deep", Some("deep: it is not a regular file")),
            ("own/permissions.yaml", Some("own/permissions.yaml is reserved")),
            ("rules", Some("rules is reserved")),
            ("own.jsonl", Some("own.jsonl is the file of this session")),
            ("./session", Some("./session is the file of this session")),
        ] {
            let target = ExportTarget {
                given: given.to_owned(),
                cwd: folder.path().to_owned(),
                roots: AllowedRoots::whole_filesystem([at("own")]),
                own: Some(at("own.jsonl")),
            };
            match (target.write_page("page"), want) {
                (Ok(()), None) => {
                    assert_eq!(fs::read_to_string(at(given)).unwrap(), "page", "{given}");
                }
                (Err(error), Some(want)) => assert!(error.starts_with(want), "{given}: {error}"),
                (got, want) => panic!("{given}: {got:?}, not {want:?}"),
            }
        }
        assert_eq!(fs::read_to_string(at("own/permissions.yaml")).unwrap(), "rules");
        assert_eq!(fs::read_to_string(at("own.jsonl")).unwrap(), "session");
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
        assert_eq!(fs::metadata(at("new.html")).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
