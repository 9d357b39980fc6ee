//! Life cycle of sessions: opening, renewal, and removal of old messages.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    channel::{self, InboundMessage},
    digest::Digest,
    engine::{Command, CommandError, Event, RecordedFact},
    id::{PrincipalId, SessionId},
    run,
    session::{self, SessionProfile, SessionSetting},
};
use countersign_files::objects::ObjectStore;
use countersign_protocol::gsv::{
    GsvError,
    chat::{CANCELLED, ChatEventState},
    code, key, session as wire,
};
use countersign_runtime::{InboxLane, OwnerError};
use countersign_view::Protocol;

use super::{
    super::{GsvAdapter, registry::session_of},
    archive, memory,
    session_snapshot::{QueuedMessage, SessionDetail, SessionSnapshot, read_error, read_session, read_session_detail},
    trimming,
};

/// Name of this adapter in the record and in rules.
pub(crate) const ADAPTER_NAME: &str = Protocol::Gsv.name();
/// Longest wait for running work to end after it was stopped.
const ENDING: Duration = Duration::from_secs(30);
/// Longest key, in bytes.
const LONGEST_KEY: usize = 512;

/// Returns the canonical key for a text.
///
/// # Errors
/// 400 for an invalid key.
pub(crate) fn canonical_key(door: &GsvAdapter, raw: &str) -> Result<String, GsvError> {
    if raw.len() > LONGEST_KEY {
        return Err(GsvError::bad_request(format!(
            "sessionKey has {} bytes, at most {LONGEST_KEY} are taken",
            raw.len()
        )));
    }
    let key = door.settings.key_scheme().canonical_key(raw);
    if key.is_empty() || key.contains(|c: char| c.is_control()) {
        return Err(GsvError::bad_request("sessionKey required"));
    }
    Ok(key)
}

/// Principal and cause of an action. If a message of a chat network causes it, the receipt of the message is recorded together with
/// the action: the message may come again, and must not act twice.
pub(super) struct Initiator {
    /// Principal in the record.
    pub(super) by: PrincipalId,
    /// Message.
    pub(super) inbound: Option<InboundMessage<Command>>,
}

impl Initiator {
    /// Returns an initiator without a message.
    pub(super) fn for_principal(by: PrincipalId) -> Self {
        Self { by, inbound: None }
    }

    /// Wraps a command with the message that asks for it.
    pub(super) fn wrap_command(self, command: Command) -> Command {
        match self.inbound {
            Some(inbound) => {
                let inbound = InboundMessage { then: Some(Box::new(command)), ..inbound };
                Command::Channel(channel::Command::Hear(Box::new(inbound)))
            }
            None => command,
        }
    }
}

/// Sends a command about a session.
///
/// # Errors
/// 500 with the reason of the refusal.
pub(super) async fn send_command(
    door: &GsvAdapter,
    command: Command,
) -> Result<countersign_core::engine::EngineReply, GsvError> {
    let result = door.context.handle.source(InboxLane::Request).send_command(command).await;
    result.map(|reply| reply.outcome).map_err(|refused| refusal_error(&refused))
}

/// Converts a refusal to an error of the wire.
pub(super) fn refusal_error(refused: &OwnerError) -> GsvError {
    let is_flood = matches!(refused, OwnerError::Refusal(CommandError::Channel(channel::ChannelError::Flooded)));
    let may_pass =
        matches!(refused, OwnerError::NotRecorded(_) | OwnerError::Unsure(_) | OwnerError::Closed) || is_flood;
    let code = if is_flood { code::UNAVAILABLE } else { code::FAILED };
    GsvError { retryable: may_pass.then_some(true), ..GsvError::new(code, refused.to_string()) }
}

/// Opens the session with this key if it is not there.
///
/// # Errors
/// 500 if it cannot be.
pub(crate) async fn open_session(door: &Arc<GsvAdapter>, key: &str) -> Result<SessionId, GsvError> {
    let id = session_of(key);
    let agent = key::agent_of(key).map_or_else(|| door.settings.default_agent(), key::agent_id);
    let cwd = door.context.chats.workspace_folder(Some(&agent)).await.map_err(read_error)?;
    let open = session::Command::Open {
        cwd: cwd.display().to_string(),
        name: Some(key.to_owned()),
        parent: None,
        door: Some(ADAPTER_NAME.to_owned()),
        settings: Box::new(door.settings.session_settings(&door.context, &agent)),
    };
    let result = door.context.handle.source(InboxLane::Request).send_command(Command::Session(id.clone(), open)).await;
    match result {
        Ok(_) | Err(OwnerError::Refusal(CommandError::SessionExists(_))) => Ok(id),
        Err(refused) => Err(refusal_error(&refused)),
    }
}

/// Applies the current default settings to a session that was opened before. Settings of the session itself stay.
///
/// # Errors
/// 500 if it was not recorded.
pub(super) async fn catch_up(door: &GsvAdapter, id: &SessionId, seen: &SessionSnapshot) -> Result<(), GsvError> {
    let Some(settings) = &seen.settings else { return Ok(()) };
    let usual = door.settings.session_settings(&door.context, &session_agent(door, seen));
    let mut now = settings.clone();
    now.thresholds = usual.thresholds;
    (now.approval_timeout, now.clarify_timeout) = (usual.approval_timeout, usual.clarify_timeout);
    now.retry = usual.retry;
    now.denials = usual.denials;
    if now.profile.model.is_none() {
        now.model = usual.model;
    }
    if now == *settings { Ok(()) } else { set_setting(door, id, SessionSetting::All(now)).await }
}

/// Opens the session with this key, and renews it if that is due, for a message that begins a run there.
///
/// # Errors
/// 500 if that could not be done.
pub(crate) async fn prepare_session(door: &Arc<GsvAdapter>, key: &str) -> Result<SessionId, GsvError> {
    let _turn = door.session_locks.lock_session(key).await;
    let id = open_session(door, key).await?;
    let mut seen = read_session(door, key).await?;
    if renew_if_due(door, &seen).await? {
        seen = read_session(door, key).await?;
    }
    catch_up(door, &id, &seen).await?;
    Ok(id)
}

/// Changes the profile of a session.
///
/// # Errors
/// 500 if it was not recorded.
pub(super) async fn set_profile(door: &GsvAdapter, id: &SessionId, profile: SessionProfile) -> Result<(), GsvError> {
    set_setting(door, id, SessionSetting::Profile(Box::new(profile))).await
}

/// Changes a setting of a session.
///
/// # Errors
/// 500 if it was not recorded.
pub(super) async fn set_setting(door: &GsvAdapter, id: &SessionId, setting: SessionSetting) -> Result<(), GsvError> {
    let set = session::Command::Set { setting, entry: None };
    send_command(door, Command::Session(id.clone(), set)).await.map(drop)
}

/// Result of a renewal.
pub(super) struct RenewedSession {
    /// Id before.
    pub(super) before: String,
    /// Id now.
    pub(super) id: String,
    /// Number of archived messages.
    pub(super) archived: usize,
    /// Name of the archive, if there are any.
    pub(super) archived_to: Option<String>,
    /// Number of attachments that were deleted.
    pub(super) media_deleted: usize,
}

/// Longest readable part of a folder's name.
const LONGEST_NAME: usize = 160;

/// Returns the folder of a session's attachments in the store.
pub(crate) fn media_folder(key: &str) -> String {
    let plain = |c: char| {
        let is_plain = c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-' | '@' | '+');
        if is_plain { c } else { '_' }
    };
    let name: String = key.chars().map(plain).take(LONGEST_NAME).collect();
    // No two sessions share a folder: the attachments removed with one must not be those of another.
    let is_whole = name == key;
    let rest =
        if is_whole { String::new() } else { format!(".{:.16}", Digest::hash_bytes(key.as_bytes()).to_string()) };
    format!("media/{name}{rest}")
}

/// Renews a session: its work is stopped, its queue is dropped, and its messages are archived first.
///
/// # Errors
/// 500 if that could not be done. The conversation is as it was then.
pub(super) async fn renew_session(
    door: &Arc<GsvAdapter>,
    seen: SessionSnapshot,
    word: Initiator,
) -> Result<RenewedSession, GsvError> {
    let id = open_session(door, &seen.key).await?;
    let seen = bring_to_rest(door, &id, seen).await?;
    let (archived, archived_to) = put_away(door, &seen).await?;
    let renew = session::Command::Renew { by: word.by.clone(), owed: memory::owed_memory(door, &seen) };
    if let Err(refused) = send_command(door, word.wrap_command(Command::Session(id, renew))).await {
        discard_archive(door, archived_to.as_deref(), &refused).await;
        return Err(refused);
    }
    // No later message refers to it. Files that a crash leaves are removed the next time.
    let media_deleted = match ObjectStore::for_data_dir(&door.context.config.storage.folder)
        .clear_folder(&media_folder(&seen.key))
        .await
    {
        Ok(count) => count,
        Err(problem) => {
            tracing::warn!(%problem, "failed to delete the attachments of a session");
            0
        }
    };
    let now = read_session(door, &seen.key).await?;
    Ok(RenewedSession { before: seen.seen.id, id: now.id, archived, archived_to, media_deleted })
}

/// Archives all messages of a session. Returns their number, and the name of the archive.
async fn put_away(door: &Arc<GsvAdapter>, seen: &SessionDetail) -> Result<(usize, Option<String>), GsvError> {
    let messages = archive::read_messages(door, &seen.lines).await?;
    let archived = messages.len();
    let archived_to = (archived > 0).then(|| wire::archive_path(&session_agent(door, seen), &seen.id));
    if let Some(name) = &archived_to {
        archive::store_archive(door, name.clone(), messages, archive_note(door, seen, archived)).await?;
        trimming::look_after(door, seen);
    }
    Ok((archived, archived_to))
}

/// Deletes an archive whose messages stay in the conversation. It is kept if that is not known.
async fn discard_archive(door: &Arc<GsvAdapter>, archived_to: Option<&str>, refused: &GsvError) {
    if let Some(name) = archived_to.filter(|_| refused.retryable != Some(true)) {
        archive::discard_archive(door, name).await;
    }
}

/// Opens the session of a job, which is renewed for each firing. Messages of the last firing are archived.
///
/// # Errors
/// 500 if that could not be done.
pub(crate) async fn open_for_job(door: &Arc<GsvAdapter>, key: &str) -> Result<SessionId, GsvError> {
    let _turn = door.session_locks.lock_session(key).await;
    let id = open_session(door, key).await?;
    let seen = read_session_detail(door, key).await?;
    // If the session has work, the message is queued, and the session is not renewed.
    if seen.is_at_rest && seen.queued == 0 {
        put_away(door, &seen).await?;
    }
    Ok(id)
}

/// Archives all but the last `keep` messages. Returns the numbers that stay and that were archived, and the archive.
///
/// # Errors
/// 500 if that could not be done.
pub(super) async fn trim_session(
    door: &Arc<GsvAdapter>,
    seen: &SessionDetail,
    keep: usize,
    word: Initiator,
) -> Result<(usize, usize, Option<String>), GsvError> {
    let mut from = seen.lines.len().saturating_sub(keep);
    // A model cannot be shown a result without its call.
    while from > 0 && !seen.lines[from].may_begin {
        from -= 1;
    }
    if from == 0 {
        return Ok((seen.lines.len(), 0, None));
    }
    let (head, tail) = seen.lines.split_at(from);
    let messages = archive::read_messages(door, head).await?;
    let name = wire::archive_part(&session_agent(door, seen), &seen.id, door.context.clock.now().0);
    archive::store_archive(door, name.clone(), messages, archive_note(door, seen, head.len())).await?;
    let first_kept = tail[0].id.clone();
    let trim = Command::Session(session_of(&seen.key), session::Command::Trim { first_kept });
    if let Err(refused) = send_command(door, word.wrap_command(trim)).await {
        discard_archive(door, Some(&name), &refused).await;
        return Err(refused);
    }
    Ok((tail.len(), head.len(), Some(name)))
}

/// Renews a session if that is due before the next message. Returns true if it did.
///
/// # Errors
/// 500 if that could not be done.
pub(super) async fn renew_if_due(door: &Arc<GsvAdapter>, seen: &SessionSnapshot) -> Result<bool, GsvError> {
    let rule = seen.profile.renewal.unwrap_or_default().reset_rule();
    // In the user's time zone.
    let clock = &door.context.clock;
    let is_due = rule.is_due(seen.last_at.moved_by(clock.ahead_millis()), clock.wall_time(), door.settings.user_zone());
    if !(is_due && seen.is_at_rest && seen.queued == 0) || read_session_detail(door, &seen.key).await?.lines.is_empty()
    {
        return Ok(false);
    }
    renew_session(door, seen.clone(), Initiator::for_principal(PrincipalId::new("system"))).await.map(|_| true)
}

pub(super) fn session_agent(door: &GsvAdapter, seen: &SessionSnapshot) -> String {
    key::agent_of(&seen.key).map_or_else(|| door.settings.default_agent(), key::agent_id)
}

pub(super) fn archive_note(door: &GsvAdapter, seen: &SessionSnapshot, count: usize) -> wire::ArchiveNote {
    wire::ArchiveNote {
        session_key: seen.key.clone(),
        session_id: seen.id.clone(),
        agent_id: session_agent(door, seen),
        message_count: count,
        archived_at: door.context.clock.now().0,
        tokens: seen.row.token_counts(),
    }
}

/// Stops the work of a session, drops its queue, and reads it once it rests.
async fn bring_to_rest(
    door: &Arc<GsvAdapter>,
    id: &SessionId,
    seen: SessionSnapshot,
) -> Result<SessionDetail, GsvError> {
    if seen.is_at_rest && seen.queued == 0 {
        return read_session_detail(door, &seen.key).await;
    }
    let closing = || read_error("the gateway is closing");
    let session = id.clone();
    let end = move |recorded: &Arc<RecordedFact>| is_end(recorded, &session).then_some(());
    let mut ends = door.context.handle.follow_facts(end).await.ok_or_else(closing)?;
    send_command(door, Command::Session(id.clone(), session::Command::Clear)).await?;
    for QueuedMessage { run, .. } in &seen.behind {
        door.notices.forget(&seen.key, run);
        door.broadcast_state(&seen.key, Some(run), ChatEventState::Error { error: CANCELLED.to_owned() }, None);
    }
    send_command(door, Command::Session(id.clone(), session::Command::AbortCompaction)).await?;
    let abort = Command::Run(run::Command::Abort { session: id.clone() });
    let stopped = door.context.handle.source(InboxLane::Result).send_command(abort).await;
    stopped.map_err(|refused| refusal_error(&refused))?;
    let resting = async {
        loop {
            let seen = read_session_detail(door, &seen.key).await?;
            if seen.is_at_rest {
                return Ok(seen);
            }
            ends.next().await.ok_or_else(closing)?;
        }
    };
    let rested = tokio::time::timeout(ENDING, resting).await;
    rested.unwrap_or_else(|_| Err(read_error("what works in the session does not end")))
}

/// Reports whether a run or a compaction of a session has ended.
fn is_end(recorded: &RecordedFact, id: &SessionId) -> bool {
    let is_end = matches!(
        &recorded.fact.event,
        Event::Run(run::Event::Ended { .. }) | Event::Session(session::Event::CompactionEnded { .. })
    );
    is_end && recorded.meta.session.as_ref() == Some(id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::media_folder;

    #[test]
    fn no_two_sessions_keep_what_came_with_messages_in_one_folder() {
        let long = |end: &str| format!("agent:main:wx:group:{}{end}", "a".repeat(400));
        let keys = [
            "agent:main:wx:group:team.a",
            "agent:main:wx:group:team_a",
            "agent:main:wx:group:team/a",
            "a",
            "a.",
            "ä",
            "_",
        ];
        let keys: Vec<String> = keys.map(str::to_owned).into_iter().chain([long("a"), long("b")]).collect();
        let folders: BTreeSet<String> = keys.iter().map(|key| media_folder(key)).collect();
        assert_eq!(folders.len(), keys.len(), "{folders:?}");
        assert!(folders.iter().all(|folder| folder.len() < 255 && folder.matches('/').count() == 1), "{folders:?}");
        assert_eq!(media_folder("agent:main:wx:dm:+1"), "media/agent:main:wx:dm:+1");
    }
}
