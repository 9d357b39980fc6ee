//! Methods about sessions.

use std::sync::Arc;

use countersign_core::session::{RenewalMode, RenewalSettings, SessionSetting};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError,
        directive::{ModelSelector, ThinkLevel},
        message::GsvMessage,
        session::{
            FieldPatch, GsvSessionSettings, OkResult, ResetMode, ResetPolicy, SessionCompactParams,
            SessionCompactResult, SessionGetResult, SessionHistoryResult, SessionListEntry, SessionParams,
            SessionPatchParams, SessionPreviewParams, SessionPreviewResult, SessionResetResult, SessionStatsResult,
            SessionsListParams, SessionsListResult,
        },
    },
};
use countersign_view::GateRequest;

use super::{
    super::{GsvAdapter, method_result::MethodResult, peer::ConnectedPeer, registry},
    archive, chat_card,
    session_lifecycle::{self, Initiator},
    session_snapshot::{SessionDetail, SessionSnapshot, read_error, read_session, read_session_detail},
};

/// Reads the session that a peer names, and notes how the peer writes its key.
async fn session_for_peer(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    raw: &str,
) -> Result<SessionSnapshot, GsvError> {
    let key = session_lifecycle::canonical_key(door, raw)?;
    peer.note_spelling(&key, raw);
    read_session(door, &key).await
}

/// Does the same, with its messages.
async fn detail_for_peer(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, raw: &str) -> Result<SessionDetail, GsvError> {
    let key = session_lifecycle::canonical_key(door, raw)?;
    peer.note_spelling(&key, raw);
    read_session_detail(door, &key).await
}

pub(super) async fn list_sessions(door: &Arc<GsvAdapter>, list: SessionsListParams) -> MethodResult {
    let rows = registry::list_sessions(door.context.handle.log()).await.map_err(read_error)?;
    let count = rows.len();
    let sessions = list.page.select_rows(rows).into_iter().map(|row| SessionListEntry {
        session_key: row.key,
        created_at: row.created_at.unwrap_or_default(),
        last_active_at: row.last_at,
        label: row.label,
    });
    Ok(RawJson::from_wire(&SessionsListResult { sessions: sessions.collect(), count }))
}

/// Converts a renewal rule to the wire.
pub(super) fn to_reset_policy(renewal: RenewalSettings) -> ResetPolicy {
    let mode = match renewal.mode {
        RenewalMode::Manual => ResetMode::Manual,
        RenewalMode::Daily => ResetMode::Daily,
        RenewalMode::Idle => ResetMode::Idle,
    };
    ResetPolicy { mode, at_hour: renewal.hour, idle_minutes: renewal.minutes }
}

/// Does the same with the fields of the active rule only.
fn shown_policy(renewal: RenewalSettings) -> ResetPolicy {
    let policy = to_reset_policy(renewal);
    ResetPolicy {
        at_hour: policy.at_hour.filter(|_| policy.mode == ResetMode::Daily),
        idle_minutes: policy.idle_minutes.filter(|_| policy.mode == ResetMode::Idle),
        ..policy
    }
}

fn to_renewal(policy: ResetPolicy) -> RenewalSettings {
    let mode = match policy.mode {
        ResetMode::Manual => RenewalMode::Manual,
        ResetMode::Daily => RenewalMode::Daily,
        ResetMode::Idle => RenewalMode::Idle,
    };
    RenewalSettings { mode, hour: policy.at_hour, minutes: policy.idle_minutes }
}

pub(super) async fn get_session(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, of: SessionParams) -> MethodResult {
    let SessionDetail { seen, lines } = detail_for_peer(door, peer, &of.session_key).await?;
    let (profile, previous) = (&seen.profile, seen.previous_ids(0..seen.renewals));
    let model =
        profile.model.as_ref().map(|(provider, id)| ModelSelector { provider: provider.clone(), id: id.clone() });
    Ok(RawJson::from_wire(&SessionGetResult {
        session_id: seen.id,
        session_key: of.session_key,
        created_at: seen.opened_at.0,
        updated_at: seen.last_at.0,
        message_count: lines.len(),
        tokens: seen.row.token_counts(),
        settings: GsvSessionSettings {
            model,
            thinking_level: seen.thinking.as_deref().and_then(ThinkLevel::from_text),
            system_prompt: profile.system_prompt.clone(),
            max_tokens: profile.max_tokens,
        },
        reset_policy: profile.renewal.map(shown_policy),
        last_reset_at: seen.renewed_at.map(|at| at.0),
        previous_session_ids: previous,
        label: profile.label.clone(),
    }))
}

pub(super) async fn session_stats(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, of: SessionParams) -> MethodResult {
    let SessionDetail { seen, lines } = detail_for_peer(door, peer, &of.session_key).await?;
    Ok(RawJson::from_wire(&SessionStatsResult {
        session_key: of.session_key,
        session_id: seen.id,
        message_count: lines.len(),
        tokens: seen.row.token_counts(),
        created_at: seen.opened_at.0,
        updated_at: seen.last_at.0,
        uptime: door.context.clock.now().0.saturating_sub(seen.opened_at.0),
        is_processing: !seen.is_at_rest,
        queue_size: seen.queued,
    }))
}

pub(super) async fn session_history(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, of: SessionParams) -> MethodResult {
    let seen = session_for_peer(door, peer, &of.session_key).await?;
    Ok(RawJson::from_wire(&SessionHistoryResult {
        session_key: of.session_key,
        previous_session_ids: seen.previous_ids(0..seen.renewals),
        current_session_id: seen.id,
    }))
}

/// Returns the last messages of the session with this key.
///
/// # Errors
/// 500 if the record cannot be read.
pub(crate) async fn last_messages(door: &Arc<GsvAdapter>, key: &str, most: usize) -> Result<Vec<GsvMessage>, GsvError> {
    let SessionDetail { lines, .. } = read_session_detail(door, key).await?;
    archive::read_messages(door, &lines[lines.len().saturating_sub(most)..]).await
}

pub(super) async fn preview_session(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    preview: SessionPreviewParams,
) -> MethodResult {
    let SessionDetail { seen, lines } = detail_for_peer(door, peer, &preview.session_key).await?;
    let card = waiting_card(door, &seen).await?;
    let most = preview.limit.map(|limit| limit.saturating_sub(usize::from(card.is_some())));
    let from = most.map_or(0, |most| lines.len().saturating_sub(most));
    let messages = archive::read_messages(door, &lines[from..]).await?;
    Ok(RawJson::from_wire(&SessionPreviewResult {
        session_key: preview.session_key,
        session_id: seen.id,
        message_count: lines.len(),
        messages: messages.into_iter().map(super::messages::safe_message).chain(card).collect(),
    }))
}

/// Returns the card of the pending gate. It is no message of the record, and clients that read a conversation again after each
/// `final` would lose it.
async fn waiting_card(door: &Arc<GsvAdapter>, seen: &SessionSnapshot) -> Result<Option<GsvMessage>, GsvError> {
    let Some(gate) = &seen.waiting else { return Ok(None) };
    let texts = door.context.handle.contents().get(&[gate.content]).await.map_err(read_error)?;
    let text = texts.into_iter().next().flatten();
    let Some(request) = text.and_then(|text| GateRequest::from_record(&text)) else { return Ok(None) };
    let text = chat_card::prompt_text(gate.id, &request, &gate.scopes, &seen.cwd, seen.waiting_behind);
    Ok(Some(GsvMessage::gateway_message(&text, gate.opened_at.0)))
}

/// Returns the value of a member after a patch.
fn apply_patch<T>(before: Option<T>, change: FieldPatch<T>) -> Option<T> {
    match change {
        FieldPatch::Keep => before,
        FieldPatch::Unset => None,
        FieldPatch::Set(value) => Some(value),
    }
}

pub(super) async fn patch_session(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    patch: SessionPatchParams,
) -> MethodResult {
    let key = session_lifecycle::canonical_key(door, &patch.session_key)?;
    peer.note_spelling(&key, &patch.session_key);
    let _turn = door.session_locks.lock_session(&key).await;
    let seen = read_session(door, &key).await?;
    let id = session_lifecycle::open_session(door, &key).await?;
    let mut profile = seen.profile.clone();
    profile.renewal = patch.reset_policy(profile.renewal.map(to_reset_policy)).map(to_renewal);
    profile.label = apply_patch(profile.label, patch.label);
    profile.system_prompt = apply_patch(profile.system_prompt, patch.system_prompt);
    profile.max_tokens = apply_patch(profile.max_tokens, patch.max_tokens);
    let own = profile.model.take();
    let usual = door.settings.default_model();
    profile.model = match (patch.provider, patch.model) {
        (None, None) if patch.unset_model => None,
        (None, None) => own.clone(),
        (provider, model) => {
            let (of, known) = own.clone().unwrap_or_else(|| (usual.provider.clone(), usual.id.clone()));
            Some((provider.unwrap_or(of), model.unwrap_or(known)))
        }
    };
    if profile.model != own {
        let (provider, model) = profile.model.clone().unwrap_or((usual.provider, usual.id));
        let model = door.settings.model_ref(&door.context, &ModelSelector { provider, id: model });
        session_lifecycle::set_setting(door, &id, SessionSetting::Model(model)).await?;
    }
    match patch.thinking_level {
        FieldPatch::Keep => {}
        FieldPatch::Unset => session_lifecycle::set_setting(door, &id, SessionSetting::Thinking(None)).await?,
        FieldPatch::Set(level) => {
            session_lifecycle::set_setting(door, &id, SessionSetting::Thinking(Some(level.display_name().to_owned())))
                .await?
        }
    }
    if profile != seen.profile || !seen.exists {
        session_lifecycle::set_profile(door, &id, profile).await?;
    }
    Ok(RawJson::from_wire(&OkResult::OK))
}

pub(super) async fn reset_session(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, of: SessionParams) -> MethodResult {
    let key = session_lifecycle::canonical_key(door, &of.session_key)?;
    peer.note_spelling(&key, &of.session_key);
    let _turn = door.session_locks.lock_session(&key).await;
    let seen = read_session(door, &key).await?;
    let tokens_cleared = seen.row.token_counts();
    let renewed = session_lifecycle::renew_session(door, seen, Initiator::for_principal(peer.principal_id())).await?;
    Ok(RawJson::from_wire(&SessionResetResult {
        ok: true,
        session_key: of.session_key,
        old_session_id: renewed.before,
        new_session_id: renewed.id,
        archived_messages: renewed.archived,
        archived_to: renewed.archived_to,
        tokens_cleared,
        media_deleted: renewed.media_deleted,
    }))
}

pub(super) async fn compact_session(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    compact: SessionCompactParams,
) -> MethodResult {
    let key = session_lifecycle::canonical_key(door, &compact.session_key)?;
    peer.note_spelling(&key, &compact.session_key);
    let _turn = door.session_locks.lock_session(&key).await;
    let seen = read_session_detail(door, &key).await?;
    let word = Initiator::for_principal(peer.principal_id());
    let (kept_messages, trimmed_messages, archived_to) =
        session_lifecycle::trim_session(door, &seen, compact.keep, word).await?;
    Ok(RawJson::from_wire(&SessionCompactResult { ok: true, trimmed_messages, kept_messages, archived_to }))
}
