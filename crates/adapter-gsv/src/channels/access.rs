//! Access control of chat networks, as the settings have it.

use std::sync::Arc;

use countersign_protocol::gsv::channel::{ChannelInboundParams, ChatPeer, SenderAccess, SenderPolicy, sender_access};
use serde_json::Value;

use super::{
    super::GsvAdapter,
    addresses::{self, TELEGRAM},
};

/// Returns the key of a network in the settings. A network that connects as `WhatsApp` has the settings of `whatsapp`: otherwise a capital
/// letter would open a closed network.
pub(super) fn configured_name<'a>(tree: &'a Value, network: &'a str) -> &'a str {
    let networks = tree["channels"].as_object();
    if networks.is_some_and(|networks| networks.contains_key(network)) {
        return network;
    }
    let other = networks.and_then(|networks| networks.keys().find(|set| set.eq_ignore_ascii_case(network)));
    other.map_or(network, String::as_str)
}

/// Decides whether the sender of a message may speak.
///
/// A network without settings is open: it connected with a token, or signed its request. In Telegram anybody can write to a
/// bot, so only approvers may speak there until the settings say otherwise.
pub(super) fn check_sender(door: &Arc<GsvAdapter>, inbound: &ChannelInboundParams) -> SenderAccess {
    let tree = door.settings.tree();
    let network = &tree["channels"][configured_name(&tree, &inbound.channel)];
    let is_telegram = inbound.channel == TELEGRAM;
    let otherwise = if is_telegram { SenderPolicy::Allowlist } else { SenderPolicy::Open };
    let policy = match network["dmPolicy"].as_str() {
        // An unknown policy admits nobody.
        Some(named) => SenderPolicy::from_name(named).unwrap_or(SenderPolicy::Allowlist),
        None => otherwise,
    };
    let listed = network["allowFrom"].as_array().into_iter().flatten();
    let mut allowed: Vec<String> = listed.filter_map(|entry| entry.as_str().map(str::to_owned)).collect();
    if is_telegram {
        let may_decide = door.context.config.telegram.iter().flat_map(|telegram| &telegram.allowed_users);
        allowed.extend(may_decide.filter(|user| user.to_string() == addresses::sender_id(inbound)).map(i64::to_string));
    }
    let decide = |peer: &ChatPeer| sender_access(policy, &allowed, peer, inbound.sender.as_ref());
    match addresses::chat_of_topic(inbound) {
        Some(chat) if decide(&chat) == SenderAccess::Allowed => SenderAccess::Allowed,
        Some(_) | None => decide(&inbound.peer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::configured_name;

    #[test]
    fn a_network_is_found_however_it_spells_itself() {
        let tree = json!({ "channels": { "whatsapp": {}, "Wx": {}, "wx": {} } });
        let table =
            [("whatsapp", "whatsapp"), ("WhatsApp", "whatsapp"), ("wx", "wx"), ("Wx", "Wx"), ("other", "other")];
        for (connects, is_set_as) in table {
            assert_eq!(configured_name(&tree, connects), is_set_as, "{connects}");
        }
        assert_eq!(configured_name(&json!({}), "wx"), "wx");
    }
}
