//! Texts for events of chat networks.

use countersign_core::channel::{ChannelAccount, ChatAddress, DeliveryEnd, Event};

/// Returns the text of one event.
pub(super) fn channel_text(event: &Event) -> String {
    match event {
        Event::Met { account } => format!("{} was added", account_name(account)),
        Event::Forgotten { account } => format!("{} was removed", account_name(account)),
        Event::Received { from, agent, .. } => format!("message received from {} for {agent}", chat_name(from)),
        Event::Owed { to, .. } => format!("message queued for {}", chat_name(to)),
        Event::Ended { end: DeliveryEnd::Delivered, .. } => "message delivered".to_owned(),
        Event::Ended { end: DeliveryEnd::Refused, .. } => "message rejected by its network".to_owned(),
        Event::Ended { end: DeliveryEnd::Dropped, .. } => {
            "message dropped: too many later messages were queued".to_owned()
        }
        Event::Ended { end: DeliveryEnd::Forgotten, .. } => "message dropped: its account was removed".to_owned(),
    }
}

fn account_name(account: &ChannelAccount) -> String {
    format!("the account {} of {}", account.name, account.network)
}

fn chat_name(address: &ChatAddress) -> String {
    format!("{} at {}", address.chat, address.account.network)
}
