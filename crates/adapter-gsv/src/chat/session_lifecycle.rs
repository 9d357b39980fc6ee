//! How a session begins, begins anew, and gets rid of what is old.

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
    session_snapshot::{SessionDetail, SessionSnapshot, read_error, read_session, read_session_detail},
    trimming,
};

/// What the record and rules call this door.
pub(crate) const ADAPTER_NAME: &str = Protocol::Gsv.name();
/// How long what works may take to end once it was told to.
const ENDING: Duration = Duration::from_secs(30);
/// How long a key may be, in bytes.
const LONGEST_KEY: usize = 512;

/// The canonical key that a text means.
///
/// # Errors
/// 400 for one that is none.
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

/// On whose word something is done. Where a message of a chat network says so, that it was heard is recorded together with what is
/// done: it may come again, and is not to be obeyed twice.
pub(super) struct Initiator {
    /// Who, in the record.
    pub(super) by: PrincipalId,
    /// The message.
    pub(super) inbound: Option<InboundMessage<Command>>,
}

impl Initiator {
    /// Of somebody who asks once.
    pub(super) fn for_principal(by: PrincipalId) -> Self {
        Self { by, inbound: None }
    }

    /// The command, with the message that asks for it.
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
/// 500 with why it was refused.
pub(super) async fn send_command(
    door: &GsvAdapter,
    command: Command,
) -> Result<countersign_core::engine::EngineReply, GsvError> {
    let result = door.context.handle.source(InboxLane::Request).send_command(command).await;
    result.map(|reply| reply.outcome).map_err(|refused| refusal_error(&refused))
}

/// What an answer says of a refusal.
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

/// Brings what is set for all sessions by now to one that was opened before. What was set for it alone stays.
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
    if now.profile.model.is_none() {
        now.model = usual.model;
    }
    if now == *settings { Ok(()) } else { set_setting(door, id, SessionSetting::All(now)).await }
}

/// Opens the session with this key, and has it begin anew if it is due, for what is said in it by itself.
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

/// Changes what people say a session is to be like.
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

/// What became of a session that began anew.
pub(super) struct RenewedSession {
    /// Its id before.
    pub(super) before: String,
    /// Its id now.
    pub(super) id: String,
    /// How many messages were put away.
    pub(super) archived: usize,
    /// Where, if there were any.
    pub(super) archived_to: Option<String>,
    /// How many pictures and files went with them.
    pub(super) media_deleted: usize,
}

/// How long the readable part of a folder's name may be.
const LONGEST_NAME: usize = 160;

/// Where what came with messages of a session lies in the store.
pub(crate) fn media_folder(key: &str) -> String {
    let plain = |c: char| {
        let is_plain = c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-' | '@' | '+');
        if is_plain { c } else { '_' }
    };
    let name: String = key.chars().map(plain).take(LONGEST_NAME).collect();
    // No two have one folder: what goes with one session must not go with another.
    let is_whole = name == key;
    let rest =
        if is_whole { String::new() } else { format!(".{:.16}", Digest::hash_bytes(key.as_bytes()).to_string()) };
    format!("media/{name}{rest}")
}

/// Has a session begin anew: what works in it is stopped, what waits is dropped, and what was said is put away first.
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
    // Nothing that is said from now on refers to it. What a crash leaves goes the next time.
    let media_deleted = match ObjectStore::for_data_dir(&door.context.config.storage.folder)
        .clear_folder(&media_folder(&seen.key))
        .await
    {
        Ok(count) => count,
        Err(problem) => {
            tracing::warn!(%problem, "what came with the messages of a session could not be deleted");
            0
        }
    };
    let now = read_session(door, &seen.key).await?;
    Ok(RenewedSession { before: seen.seen.id, id: now.id, archived, archived_to, media_deleted })
}

/// Puts all messages of a session into the store. How many there were, and where they are.
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

/// Takes an archive away whose messages stay in the conversation. Where it is not known whether they do, it stays.
async fn discard_archive(door: &Arc<GsvAdapter>, archived_to: Option<&str>, refused: &GsvError) {
    if let Some(name) = archived_to.filter(|_| refused.retryable != Some(true)) {
        archive::discard_archive(door, name).await;
    }
}

/// Opens the session of a job, of which every firing begins anew. What the last one said is put away.
///
/// # Errors
/// 500 if that could not be done.
pub(crate) async fn open_for_job(door: &Arc<GsvAdapter>, key: &str) -> Result<SessionId, GsvError> {
    let _turn = door.session_locks.lock_session(key).await;
    let id = open_session(door, key).await?;
    let seen = read_session_detail(door, key).await?;
    // Where something goes on in it, the message goes behind that, and nothing begins anew.
    if seen.is_at_rest && seen.queued == 0 {
        put_away(door, &seen).await?;
    }
    Ok(id)
}

/// Puts all but the last `keep` messages away. How many stay, how many went, and where.
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
    // A result without its call is nothing that a model can be shown.
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

/// Has a session begin anew that is to before what is said in it now. True if it did.
///
/// # Errors
/// 500 if that could not be done.
pub(super) async fn renew_if_due(door: &Arc<GsvAdapter>, seen: &SessionSnapshot) -> Result<bool, GsvError> {
    let rule = seen.profile.renewal.unwrap_or_default().reset_rule();
    // By the clock that people live by.
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

/// Stops what works in a session, drops what waits, and looks at it once it rests.
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
    for run in &seen.behind {
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

/// Whether a run or a compaction of a session has ended.
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
