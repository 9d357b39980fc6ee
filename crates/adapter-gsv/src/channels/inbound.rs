//! Inbound messages of chat networks: access check, agent and session.

use std::{borrow::Cow, sync::Arc};

use countersign_core::{
    channel::{ChatAddress, MessageOrigin, OutboundRequest},
    digest::Digest,
};
use countersign_protocol::gsv::{
    GsvError,
    channel::{ChannelInboundParams, ChannelInboundResult, ChatPeer, PeerKind, SenderAccess},
    chat::{ChatSendResult, Directives},
    command::{ChatCommand, ReplyStyle},
    directive,
};
use countersign_runtime::InboxLane;
use serde_json::Value;

use super::{
    super::{
        GsvAdapter,
        chat::{CardMoment, MessageAuthor, MessageInput, has_answered, send_input},
        delivery,
    },
    access, addresses, pairing,
};

/// Reply to a command that a process did before it died, without a reply.
const DONE_BEFORE: &str = "This was done, and the gateway was restarted before it could say more.";

/// Handles a message that came at this moment. Commands and answers are read from `reply`, or else from its text.
///
/// # Errors
/// 400 for an invalid message, 500 if it was not recorded: then it may come again.
pub(super) async fn handle_inbound(
    door: &Arc<GsvAdapter>,
    inbound: ChannelInboundParams,
    reply: Option<&str>,
    came: CardMoment,
) -> Result<ChannelInboundResult, GsvError> {
    if inbound.text.trim().is_empty() && inbound.media.is_empty() {
        return Err(GsvError::bad_request("message.text or message.media required"));
    }
    let reply = reply.unwrap_or(&inbound.text);
    let from = addresses::chat_address(&inbound);
    match access::check_sender(door, &inbound) {
        SenderAccess::Allowed => {}
        SenderAccess::Blocked => {
            return Ok(ChannelInboundResult::Blocked { reason: "Sender is not on the allowlist".to_owned() });
        }
        SenderAccess::Pairing => return pairing::request_pairing(door, &inbound, from).await,
    }
    let tree = door.settings.tree();
    let agent = bound_agent(&tree, &inbound).unwrap_or_else(|| door.settings.default_agent());
    let peer = session_peer(&inbound);
    let key = door.settings.key_scheme().chat_session_key(&agent, &inbound.channel, &inbound.account, &peer);
    let run = inbound.message_id.as_ref().map(|id| run_name(&from, id));
    let origin = MessageOrigin {
        by: addresses::sender_principal(&inbound.channel, addresses::sender_id(&inbound)),
        from: from.clone(),
        message: inbound.message_id.clone(),
    };
    let by = origin.by.clone();
    let speaker = MessageAuthor { by, origin: Some(Box::new(origin)), style: ReplyStyle::Marked, came };
    if let Some(run) = &run
        && is_received(door, &from, inbound.message_id.as_deref()).await?
    {
        let is_answer = has_answered(door, &key, &speaker).await?;
        let begun = || ChannelInboundResult::Started {
            session_key: key.clone(),
            run_id: run.clone(),
            directives: Directives::default(),
        };
        let taken =
            if is_answer { begun() } else { repeated_result(door, &inbound, reply, &key).unwrap_or_else(begun) };
        // The chat has the outcome, unless the process died in between.
        match &taken {
            ChannelInboundResult::Command { .. } => send_reply(door, &inbound, from, DONE_BEFORE).await?,
            ChannelInboundResult::DirectiveOnly { response: Some(reply_text), .. } => {
                send_reply(door, &inbound, from, reply_text).await?
            }
            _ => {}
        }
        return Ok(taken);
    }
    let before = message_prefix(door, &inbound);
    let spoken = MessageInput { text: &inbound.text, reply, before, media: &inbound.media };
    let sent = send_input(door, &key, spoken, run, &speaker).await?;
    let (taken, reply_text) = match sent {
        ChatSendResult::Started { run_id, directives, .. } => {
            (ChannelInboundResult::Started { session_key: key, run_id, directives }, None)
        }
        ChatSendResult::Command { command, response, error } => {
            let response = response.or(error).unwrap_or_default();
            (ChannelInboundResult::Command { session_key: key, command, response: response.clone() }, Some(response))
        }
        ChatSendResult::DirectiveOnly { response, .. } => {
            (ChannelInboundResult::DirectiveOnly { session_key: key, response: response.clone() }, response)
        }
    };
    if let Some(text) = reply_text {
        send_reply(door, &inbound, from, &text).await?;
    }
    Ok(taken)
}

/// Replies to the chat of a message, once for each message with an id.
async fn send_reply(
    door: &Arc<GsvAdapter>,
    inbound: &ChannelInboundParams,
    to: ChatAddress,
    text: &str,
) -> Result<(), GsvError> {
    if text.trim().is_empty() {
        return Ok(());
    }
    let key = inbound.message_id.as_ref().map(|id| format!("reply:{}", run_name(&to, id)));
    let reply_to = inbound.message_id.clone();
    let message = OutboundRequest { to, text: text.into(), session: None, reply_to, key, media: None };
    delivery::enqueue_message(door, message).await.map(drop).map_err(super::channel_error)
}

/// Returns the name of the run that a message begins: the same for the same message.
fn run_name(from: &ChatAddress, message: &str) -> String {
    let named = serde_json::json!([from, message]).to_string();
    let digest = Digest::hash_bytes(named.as_bytes()).to_string();
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!("{}-{}-8{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

async fn is_received(door: &Arc<GsvAdapter>, from: &ChatAddress, id: Option<&str>) -> Result<bool, GsvError> {
    let Some(id) = id.map(str::to_owned) else { return Ok(false) };
    let account = from.account.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| engine.state().channels().was_received(&account, &id)).await;
    read.map(|(received, _)| received).ok_or_else(|| super::channel_error("the gateway is closing"))
}

/// Returns the result of a repeated message that began no run and answered nothing, as far as its text shows.
fn repeated_result(
    door: &GsvAdapter,
    inbound: &ChannelInboundParams,
    reply: &str,
    session_key: &str,
) -> Option<ChannelInboundResult> {
    let text = reply.trim_start();
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    let answers = || ["approve", "deny"].into_iter().find(|name| word.strip_prefix('/') == Some(*name));
    let session_key = session_key.to_owned();
    if let Some(command) = ChatCommand::from_message(text).map(|command| command.name()).or_else(answers) {
        let response = "This message was answered before.".to_owned();
        return Some(ChannelInboundResult::Command { session_key, command, response });
    }
    let parsed = directive::parse_directives(text, &door.settings.default_model().provider);
    (parsed.is_all() && inbound.media.is_empty())
        .then(|| ChannelInboundResult::DirectiveOnly { session_key, response: parsed.acknowledgement() })
}

/// Returns the peer whose session a message belongs to. Each topic of a forum has a session of its own; a chat with one person is one
/// conversation in all its topics.
fn session_peer(inbound: &ChannelInboundParams) -> Cow<'_, ChatPeer> {
    match addresses::chat_of_topic(inbound).filter(|_| inbound.peer.kind == PeerKind::Dm) {
        Some(chat) => Cow::Owned(chat),
        None => Cow::Borrowed(&inbound.peer),
    }
}

/// Returns the agent to which a binding sends a message: the first that fits. A binding of a chat fits for its topics.
fn bound_agent(tree: &Value, inbound: &ChannelInboundParams) -> Option<String> {
    let is = |expected: &Value, given: &str| expected.is_null() || expected.as_str() == Some(given);
    // A network may spell its name with other capitals than the settings do.
    let is_network = |expected: &Value| {
        expected.is_null() || expected.as_str().is_some_and(|name| name.eq_ignore_ascii_case(&inbound.channel))
    };
    let chat = addresses::chat_of_topic(inbound);
    let is_chat =
        |expected: &Value| is(expected, &inbound.peer.id) || chat.as_ref().is_some_and(|chat| is(expected, &chat.id));
    let fits = |pattern: &Value| {
        is_network(&pattern["channel"])
            && is(&pattern["accountId"], &inbound.account)
            && is(&pattern["peer"]["kind"], inbound.peer.kind.name())
            && is_chat(&pattern["peer"]["id"])
    };
    let mut bindings = tree["agents"]["bindings"].as_array().into_iter().flatten();
    // A binding for everything is written without `match`.
    let found = bindings.find(|binding| fits(binding.get("match").unwrap_or(binding)))?;
    found["agentId"].as_str().map(countersign_protocol::gsv::key::agent_id)
}

/// Returns the prefix of a message, so that the model knows its origin, its time, and its sender in a group.
fn message_prefix(door: &GsvAdapter, inbound: &ChannelInboundParams) -> String {
    let time = clock_time(door);
    let who = match (&inbound.sender, inbound.peer.kind) {
        (_, PeerKind::Dm) | (None, _) => None,
        (Some(sender), PeerKind::Group | PeerKind::Channel | PeerKind::Thread) => {
            Some(sender.name.as_ref().or(sender.handle.as_ref()).unwrap_or(&sender.id))
        }
    };
    let who = who.map_or_else(String::new, |who| format!(" · {}", who.replace(['\n', '\r', ']'], " ")));
    format!("[{} · {time}{who}] ", inbound.channel)
}

/// Returns the time of day in the user's zone, such as `3:05 PM CET`.
fn clock_time(door: &GsvAdapter) -> String {
    door.settings.user_zone().time_of_day(door.context.clock.wall_time())
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gsv::{
        channel::{ChannelInboundParams, ChatPeer, PeerKind},
        key::SessionKeyScheme,
    };
    use serde_json::json;

    use super::{bound_agent, run_name, session_peer};
    use crate::channels::addresses;

    fn inbound(channel: &str, account: &str, kind: PeerKind, id: &str) -> ChannelInboundParams {
        ChannelInboundParams {
            channel: channel.to_owned(),
            account: account.to_owned(),
            peer: ChatPeer { kind, id: id.to_owned(), name: None, handle: None },
            sender: None,
            message_id: None,
            text: "hi".to_owned(),
            reply_to: None,
            media: Vec::new(),
            was_mentioned: None,
        }
    }

    #[test]
    fn the_first_binding_that_fits_names_the_agent() {
        let tree = json!({ "agents": { "bindings": [
            { "agentId": "Work", "match": { "channel": "wx", "accountId": "office" } },
            { "agentId": "club", "match": { "channel": "wx", "peer": { "kind": "group", "id": "g1" } } },
            { "agentId": "rest", "match": { "channel": "wx" } },
        ] } });
        for (case, message, want) in [
            ("an account", inbound("wx", "office", PeerKind::Group, "g1"), Some("work")),
            ("a group", inbound("wx", "a", PeerKind::Group, "g1"), Some("club")),
            ("the same in capitals", inbound("WX", "a", PeerKind::Group, "g1"), Some("club")),
            ("another kind", inbound("wx", "a", PeerKind::Dm, "g1"), Some("rest")),
            ("another network", inbound("tg", "office", PeerKind::Dm, "g1"), None),
        ] {
            assert_eq!(bound_agent(&tree, &message).as_deref(), want, "{case}");
        }
    }

    #[test]
    fn a_binding_of_a_forum_fits_for_its_topics_and_that_of_a_topic_for_no_other() {
        let of = |agent: &str, id: &str| json!({ "agentId": agent, "match": { "channel": "telegram", "peer": { "kind": "group", "id": id } } });
        let tree = json!({ "agents": { "bindings": [of("nine", "-5:topic:9"), of("forum", "-5")] } });
        for (network, id, want) in [
            ("telegram", "-5", Some("forum")),
            ("telegram", "-5:topic:9", Some("nine")),
            ("telegram", "-5:topic:12", Some("forum")),
            ("telegram", "-6:topic:9", None),
            ("wx", "-5:topic:12", None),
        ] {
            assert_eq!(
                bound_agent(&tree, &inbound(network, "a", PeerKind::Group, id)).as_deref(),
                want,
                "{network} {id}"
            );
        }
    }

    #[test]
    fn each_topic_of_a_forum_has_a_session_and_those_of_one_person_share_it() {
        let keys = SessionKeyScheme::default();
        let key = |kind, id| {
            let inbound = inbound("telegram", "default", kind, id);
            keys.chat_session_key("main", "telegram", "default", &session_peer(&inbound))
        };
        assert_eq!(key(PeerKind::Group, "-5"), "agent:main:telegram:group:-5");
        assert_eq!(key(PeerKind::Group, "-5:topic:9"), "agent:main:telegram:group:-5_topic_9");
        assert_eq!(keys.canonical_key("agent:main:telegram:group:-5:topic:9"), key(PeerKind::Group, "-5:topic:9"));
        assert_ne!(key(PeerKind::Group, "-5:topic:9"), key(PeerKind::Group, "-5:topic:12"));
        let one = session_peer(&inbound("telegram", "default", PeerKind::Dm, "7:topic:9")).into_owned();
        assert_eq!(one.id, "7");
    }

    #[test]
    fn a_run_is_named_for_its_chat_and_message() {
        let here = addresses::chat_address(&inbound("wx", "a", PeerKind::Dm, "p"));
        let there = addresses::chat_address(&inbound("wx", "b", PeerKind::Dm, "p"));
        assert_eq!(run_name(&here, "m"), run_name(&here, "m"));
        assert_ne!(run_name(&here, "m"), run_name(&there, "m"));
        assert_ne!(run_name(&here, "m"), run_name(&here, "n"));
    }
}
