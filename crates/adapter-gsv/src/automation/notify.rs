//! Receivers of a job's outcome.

use std::sync::Arc;

use countersign_core::{
    channel::{AddressKind, ChatAddress},
    id::SessionId,
};
use countersign_protocol::gsv::{
    channel::{ChatPeer, PeerKind},
    cron::{CronSpec, CronTask},
    heartbeat::LastActive,
};

use super::super::{
    GsvAdapter,
    delivery::{self, DeliveryError, DeliveryRequest, DeliveryTarget},
    registry::key_of,
};

/// Receiver of a report in a chat network. Clients get every run through the events of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotifyTarget {
    /// Network. Absent: the one through which a user last spoke with the agent.
    pub(super) channel: Option<String>,
    /// Chat. Absent: the user who last spoke with the agent there.
    pub(super) to: Option<String>,
    /// True if a missing receiver is an error.
    pub(super) is_required: bool,
}

/// Returns the receiver of a job's report. `None` if it has none.
pub(super) fn spec_target(spec: &CronSpec) -> Option<NotifyTarget> {
    match spec {
        CronSpec::SystemEvent { .. } => Some(last_chat()),
        CronSpec::Task(task) => task_target(task),
    }
}

/// Returns the chat that spoke last, if one has.
pub(super) const fn last_chat() -> NotifyTarget {
    NotifyTarget { channel: None, to: None, is_required: false }
}

/// Returns the receiver of a task's report. `None` if it has none.
pub(super) fn task_target(task: &CronTask) -> Option<NotifyTarget> {
    let is_named = task.channel.is_some() || task.to.is_some();
    let telling = NotifyTarget {
        channel: task.channel.clone(),
        to: task.to.clone(),
        is_required: is_named || task.deliver == Some(true),
    };
    (task.deliver != Some(false)).then_some(telling)
}

impl NotifyTarget {
    /// Returns the target, if one is named or has spoken with the agent; `last` is the chat that did so last.
    fn delivery_target(&self, agent: &str, last: Option<&ChatAddress>) -> Result<DeliveryTarget, String> {
        let nobody = || match &self.channel {
            Some(channel) => format!("nobody has spoken with {agent} in {channel} yet"),
            None => DeliveryError::Nobody(agent.to_owned()).to_string(),
        };
        let last = last.filter(|last| self.channel.as_ref().is_none_or(|channel| *channel == last.account.network));
        let Some(to) = &self.to else { return last.map(|_| DeliveryTarget::Last).ok_or_else(nobody) };
        let channel = self.channel.clone().or_else(|| last.map(|last| last.account.network.clone()));
        let channel = channel.ok_or_else(nobody)?;
        let known = last.filter(|last| last.chat == *to);
        Ok(DeliveryTarget::Chat {
            channel,
            to: to.clone(),
            kind: known.map_or(AddressKind::Dm, |last| last.kind),
            account: last.map(|last| last.account.name.clone()),
        })
    }

    async fn find_target(&self, door: &Arc<GsvAdapter>, agent: &str) -> Result<DeliveryTarget, String> {
        let last = delivery::last_active(door, agent).await.map(|(address, _)| address);
        self.delivery_target(agent, last.as_ref())
    }

    /// Reports whether it reaches anybody.
    pub(super) async fn reaches_anybody(&self, door: &Arc<GsvAdapter>, agent: &str) -> bool {
        self.find_target(door, agent).await.is_ok()
    }

    /// Sends a text. Returns false if there is no receiver and none is required. The same key sends it once.
    ///
    /// # Errors
    /// The reason why a required receiver could not be reached.
    pub(super) async fn send_text(
        &self,
        door: &Arc<GsvAdapter>,
        agent: &str,
        session: &SessionId,
        text: &str,
        key: String,
    ) -> Result<bool, String> {
        let to = match self.find_target(door, agent).await {
            Ok(to) => to,
            Err(_) if !self.is_required => return Ok(false),
            Err(problem) => return Err(problem),
        };
        let delivery =
            DeliveryRequest { agent, to, text, session: key_of(session), reply_to: None, key: Some(key), media: None };
        match delivery::deliver_text(door, delivery).await {
            Ok(_) => Ok(true),
            Err(DeliveryError::Nobody(_) | DeliveryError::Blank) if !self.is_required => Ok(false),
            Err(problem) => Err(problem.to_string()),
        }
    }
}

/// Returns the chat in which a user last spoke with an agent.
pub(super) async fn last_active(door: &Arc<GsvAdapter>, agent: &str) -> Option<LastActive> {
    let (address, at) = delivery::last_active(door, agent).await?;
    let kind = match address.kind {
        AddressKind::Dm => PeerKind::Dm,
        AddressKind::Group => PeerKind::Group,
        AddressKind::Channel => PeerKind::Channel,
        AddressKind::Thread => PeerKind::Thread,
    };
    Some(LastActive {
        channel: address.account.network,
        account_id: address.account.name,
        peer: ChatPeer { kind, id: address.chat, name: None, handle: None },
        timestamp: at.0,
    })
}

#[cfg(test)]
mod tests {
    use countersign_core::channel::{AddressKind, ChannelAccount, ChatAddress};

    use super::{DeliveryTarget, NotifyTarget};

    #[test]
    fn the_named_recipient_is_notified_and_else_the_last_sender() {
        let account = ChannelAccount { network: "wx".to_owned(), name: "a".to_owned() };
        let last = ChatAddress { account, kind: AddressKind::Group, chat: "g1".to_owned() };
        let chat = |channel: &str, to: &str, kind, account: Option<&str>| DeliveryTarget::Chat {
            channel: channel.to_owned(),
            to: to.to_owned(),
            kind,
            account: account.map(str::to_owned),
        };
        for (case, channel, to, last, want) in [
            ("last", None, None, Some(&last), Ok(DeliveryTarget::Last)),
            ("nobody", None, None, None, Err("nobody has spoken with main in a chat network yet")),
            ("last there", Some("wx"), None, Some(&last), Ok(DeliveryTarget::Last)),
            ("nobody there", Some("tg"), None, Some(&last), Err("nobody has spoken with main in tg yet")),
            ("known", None, Some("g1"), Some(&last), Ok(chat("wx", "g1", AddressKind::Group, Some("a")))),
            ("there", Some("wx"), Some("p"), Some(&last), Ok(chat("wx", "p", AddressKind::Dm, Some("a")))),
            ("elsewhere", Some("tg"), Some("p"), Some(&last), Ok(chat("tg", "p", AddressKind::Dm, None))),
            ("nowhere", None, Some("p"), None, Err("nobody has spoken with main in a chat network yet")),
        ] {
            let (channel, to) = (channel.map(str::to_owned), to.map(str::to_owned));
            let telling = NotifyTarget { channel, to, is_required: true };
            assert_eq!(telling.delivery_target("main", last), want.map_err(str::to_owned), "{case}");
        }
    }
}
