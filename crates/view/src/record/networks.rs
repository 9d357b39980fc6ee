//! What the record says of chat networks, in words.

use countersign_core::channel::{Account, Address, End, Event};

/// One entry.
pub(super) fn tell(event: &Event) -> String {
    match event {
        Event::Met { account } => format!("{} is known", name(account)),
        Event::Forgotten { account } => format!("{} is known no more", name(account)),
        Event::Heard { from, agent, .. } => format!("a message came from {} for {agent}", chat(from)),
        Event::Owed { to, .. } => format!("a message is to be sent to {}", chat(to)),
        Event::Ended { end: End::Delivered, .. } => "a message was delivered".to_owned(),
        Event::Ended { end: End::Refused, .. } => "a message was not taken by its network".to_owned(),
        Event::Ended { end: End::Dropped, .. } => "a message was dropped: too many others wait".to_owned(),
        Event::Ended { end: End::Forgotten, .. } => "a message was dropped with its account".to_owned(),
    }
}

fn name(account: &Account) -> String {
    format!("the account {} of {}", account.name, account.network)
}

fn chat(address: &Address) -> String {
    format!("{} at {}", address.chat, address.account.network)
}
