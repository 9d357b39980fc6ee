//! Telegram as a chat network: messages to the bot that shows cards, and messages from it.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::{
    channel::{Command as Network, OutboundRequest},
    engine::Command,
};
use countersign_protocol::gsv::channel::{
    ChannelAccountParams, ChannelInboundParams, ChatPeer, MediaAttachment, MediaKind, MessageSender, PeerKind,
    SenderAccess,
};
use countersign_runtime::InboxLane;
use countersign_telegram::{
    AttachedFile, ChatSender, ChatType, FileKind, InboundHandler, InboundHook, IncomingChatMessage, UpdateFlow,
    transport::ChannelTransport,
};
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    super::{GsvAdapter, delivery},
    access,
    addresses::{self, TELEGRAM},
    inbound,
};

/// Joins a messenger and the adapter: its messages are handled from now on, and outbound messages for it are sent.
pub(crate) async fn join_messenger(door: &Arc<GsvAdapter>, talk: Arc<ChatSender>, ear: &InboundHook) {
    let account = addresses::channel_account(TELEGRAM, ChannelAccountParams::DEFAULT);
    let met = Command::Channel(Network::Meet(account.clone()));
    if let Err(problem) = door.context.handle.source(InboxLane::Request).send_command(met).await {
        // It becomes known with the first message.
        tracing::warn!(%problem, "failed to record telegram as a chat network");
    }
    // A gateway has one messenger.
    let _ = door.networks.telegram.set(Arc::clone(&talk) as Arc<dyn ChannelTransport>);
    door.networks.wake_account(account);
    ear.open(Arc::new(TelegramListener { door: Arc::clone(door), talk }));
}

struct TelegramListener {
    door: Arc<GsvAdapter>,
    talk: Arc<ChatSender>,
}

impl InboundHandler for TelegramListener {
    fn handle_message(&self, written: IncomingChatMessage) -> BoxFuture<'_, UpdateFlow> {
        self.process_message(written).boxed()
    }
}

impl TelegramListener {
    async fn process_message(&self, written: IncomingChatMessage) -> UpdateFlow {
        let kind = match written.chat_type {
            ChatType::Private => PeerKind::Dm,
            ChatType::Group => PeerKind::Group,
            ChatType::Channel => PeerKind::Channel,
        };
        let (files, other, reply) = (written.files, written.other, written.reply);
        let mut inbound = ChannelInboundParams {
            channel: TELEGRAM.to_owned(),
            account: ChannelAccountParams::DEFAULT.to_owned(),
            peer: ChatPeer { kind, id: written.place.to_string(), name: written.title, handle: None },
            sender: Some(MessageSender { id: written.from.to_string(), name: written.name, handle: written.username }),
            // Ids of messages are a chat's own.
            message_id: Some(format!("{}:{}", written.place.chat, written.message)),
            text: written.text,
            reply_to: None,
            media: Vec::new(),
            was_mentioned: None,
        };
        let came = self.door.cards.current_moment();
        let may_speak = access::check_sender(&self.door, &inbound) == SenderAccess::Allowed;
        if may_speak {
            match self.fetch_media(&files).await {
                Ok(media) => inbound.media = media,
                Err(why) => return self.send_refusal(&inbound, &why).await,
            }
        }
        let says_nothing = inbound.text.trim().is_empty();
        if let Some(other) = other.filter(|_| may_speak && says_nothing) {
            let why = format!(
                "A {other} is nothing that can be taken here. Words, pictures, recordings, videos and files are."
            );
            return self.send_refusal(&inbound, &why).await;
        }
        if says_nothing && !may_speak {
            // No file is fetched for a sender who may not speak; the pairing request is made all the same.
            let what = files.first().map(|file| file.kind.display_name()).or(other).unwrap_or("message");
            inbound.text = format!("(a {what})");
        }
        let there = ChannelInboundParams { media: Vec::new(), ..inbound.clone() };
        match inbound::handle_inbound(&self.door, inbound, Some(&reply), came).await {
            Ok(_) => UpdateFlow::Next,
            // An invalid message stays invalid however often it comes; a message that was not recorded can be repeated.
            Err(fault) => {
                tracing::warn!(problem = fault.message, "failed to process a Telegram message");
                if fault.retryable == Some(true) {
                    return UpdateFlow::Again;
                }
                self.send_refusal(&there, &format!("This message was not taken: {}", fault.message)).await
            }
        }
    }

    /// Fetches the attachments of a message, with their content.
    ///
    /// # Errors
    /// The reason, as text for the sender.
    async fn fetch_media(&self, files: &[AttachedFile]) -> Result<Vec<MediaAttachment>, String> {
        let mut media = Vec::with_capacity(files.len());
        for file in files {
            let bytes = self.talk.fetch_file(file).await;
            let bytes = bytes.map_err(|why| format!("This {} was not taken: {why}.", file.kind.display_name()))?;
            media.push(MediaAttachment {
                kind: match file.kind {
                    FileKind::Picture => MediaKind::Image,
                    FileKind::Sound => MediaKind::Audio,
                    FileKind::Film => MediaKind::Video,
                    FileKind::Document => MediaKind::Document,
                },
                mime_type: file.mime_type.clone(),
                data: Some(STANDARD.encode(bytes)),
                r2_key: None,
                url: None,
                filename: file.name.clone(),
                duration: file.duration.map(|seconds| Duration::from_secs(seconds).as_secs_f64()),
                transcription: None,
            });
        }
        Ok(media)
    }

    /// Tells the sender why a message is not taken, once for each message.
    async fn send_refusal(&self, inbound: &ChannelInboundParams, why: &str) -> UpdateFlow {
        let (to, reply_to) = (addresses::chat_address(inbound), inbound.message_id.clone());
        let key = reply_to.as_ref().map(|id| format!("untaken:{TELEGRAM}:{id}"));
        let message = OutboundRequest { to, text: why.into(), session: None, reply_to, key, media: None };
        if let Err(problem) = delivery::enqueue_message(&self.door, message).await {
            tracing::warn!(%problem, "failed to notify the sender of a rejected message");
        }
        UpdateFlow::Next
    }
}
