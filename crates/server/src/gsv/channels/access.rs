//! Who may speak with an agent in a network, as the settings have it.

use std::sync::Arc;

use countersign_protocol::gsv::channel::{Access, Inbound, Policy, access};

use super::{
    super::Door,
    places::{self, TELEGRAM},
};

/// Whether whoever sent a message may speak.
///
/// A network without settings is open: what connects to it showed a token, or signed. In Telegram anybody can write to a
/// bot, so there only those may who may decide, until the settings say otherwise.
pub(super) fn of(door: &Arc<Door>, inbound: &Inbound) -> Access {
    let tree = door.settings.tree();
    let network = &tree["channels"][inbound.channel.as_str()];
    let is_telegram = inbound.channel == TELEGRAM;
    let otherwise = if is_telegram { Policy::Allowlist } else { Policy::Open };
    let policy = match network["dmPolicy"].as_str() {
        // A word that nobody knows lets nobody in.
        Some(named) => Policy::named(named).unwrap_or(Policy::Allowlist),
        None => otherwise,
    };
    let listed = network["allowFrom"].as_array().into_iter().flatten();
    let mut allowed: Vec<String> = listed.filter_map(|entry| entry.as_str().map(str::to_owned)).collect();
    if is_telegram {
        let may_decide = door.site.config.telegram.iter().flat_map(|telegram| &telegram.allowed_users);
        allowed.extend(may_decide.filter(|user| user.to_string() == places::sender(inbound)).map(i64::to_string));
    }
    access(policy, &allowed, &inbound.peer, inbound.sender.as_ref())
}
