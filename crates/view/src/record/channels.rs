//! Texts for events of chat networks.

use countersign_core::channel::{ChannelAccount, ChatAddress, DeliveryEnd, Event};

/// Returns the text of one event.
pub(super) fn channel_text(event: &Event) -> String {
    match event {
        Event::Met { account } => format!("{} is known", account_name(account)),
        Event::Forgotten { account } => format!("{} is known no more", account_name(account)),
        Event::Received { from, agent, .. } => format!("a message came from {} for {agent}", chat_name(from)),
        Event::Owed { to, .. } => format!("a message is to be sent to {}", chat_name(to)),
        Event::Ended { end: DeliveryEnd::Delivered, .. } => "a message was delivered".to_owned(),
        Event::Ended { end: DeliveryEnd::Refused, .. } => "a message was not taken by its network".to_owned(),
        Event::Ended { end: DeliveryEnd::Dropped, .. } => "a message was dropped: too many others wait".to_owned(),
        Event::Ended { end: DeliveryEnd::Forgotten, .. } => "a message was dropped with its account".to_owned(),
    }
}

fn account_name(account: &ChannelAccount) -> String {
    format!("the account {} of {}", account.name, account.network)
}

fn chat_name(address: &ChatAddress) -> String {
    format!("{} at {}", address.chat, address.account.network)
}
