//! Keys of sessions: how clients write them, and the canonical form under which a session is kept.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::channel::{ChatPeer, PeerKind};

/// Division of one person's messages into sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DmScope {
    /// All into the agent's main session.
    #[default]
    Main,
    /// One a person.
    PerPeer,
    /// One a person and network.
    PerChannelPeer,
    /// One a person, network and account.
    PerAccountChannelPeer,
}

impl DmScope {
    /// Returns the scope of this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "main" => Some(Self::Main),
            "per-peer" => Some(Self::PerPeer),
            "per-channel-peer" => Some(Self::PerChannelPeer),
            "per-account-channel-peer" => Some(Self::PerAccountChannelPeer),
            _ => None,
        }
    }
}

/// Scheme of session keys: settings under `session`, and the default agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKeyScheme {
    /// The agent that is meant if none is named.
    pub agent: String,
    /// Key of the main session.
    pub main_key: String,
    /// Division of people's messages into sessions.
    pub scope: DmScope,
    /// One name for the ids that a person has in several networks, each optionally with `network:` in front.
    pub identities: BTreeMap<String, Vec<String>>,
}

impl Default for SessionKeyScheme {
    fn default() -> Self {
        Self {
            agent: "main".to_owned(),
            main_key: "main".to_owned(),
            scope: DmScope::Main,
            identities: BTreeMap::new(),
        }
    }
}

/// The channel of keys that name none.
const NO_CHANNEL: &str = "unknown";
const DEFAULT_ACCOUNT: &str = "default";
/// Number of digits that distinguish ids of which a token keeps too little.
const DIGEST_DIGITS: usize = 12;

impl SessionKeyScheme {
    /// Returns the main session of an agent.
    pub fn main_session_key(&self, agent: &str) -> String {
        format!("agent:{}:{}", agent_id(agent), self.main_key)
    }

    /// Returns the session of a chat.
    pub fn chat_session_key(&self, agent: &str, channel: &str, account: &str, peer: &ChatPeer) -> String {
        match peer.kind {
            PeerKind::Dm => self.dm_session_key(agent, Some(channel), Some(account), &peer.id),
            PeerKind::Group | PeerKind::Channel | PeerKind::Thread => {
                let (agent, channel, peer_id) = (agent_id(agent), key_token(channel), name_of(&peer.id));
                format!("agent:{agent}:{channel}:{}:{peer_id}", peer.kind.name())
            }
        }
    }

    /// Returns the session of a job.
    pub fn job_session_key(agent: &str, job: &str) -> String {
        format!("agent:{}:cron:{job}", agent_id(agent))
    }

    /// Returns the session of an agent's heartbeat.
    pub fn heartbeat_session_key(agent: &str) -> String {
        format!("agent:{}:heartbeat:system:internal", agent_id(agent))
    }

    fn dm_session_key(&self, agent: &str, channel: Option<&str>, account: Option<&str>, peer: &str) -> String {
        let identity = self.identity_name(channel, peer);
        let peer = name_of(identity.unwrap_or(peer));
        let channel = key_token(channel.unwrap_or(NO_CHANNEL));
        let account = account_id(account.unwrap_or(DEFAULT_ACCOUNT));
        match self.scope {
            DmScope::Main => self.main_session_key(agent),
            DmScope::PerPeer => format!("agent:{}:dm:{peer}", agent_id(agent)),
            DmScope::PerChannelPeer => format!("agent:{}:{channel}:dm:{peer}", agent_id(agent)),
            DmScope::PerAccountChannelPeer => format!("agent:{}:{channel}:{account}:dm:{peer}", agent_id(agent)),
        }
    }

    /// Returns the name of the person who has this id.
    pub fn identity_name(&self, channel: Option<&str>, id: &str) -> Option<&str> {
        let id = phone_number(id);
        let is_same = |link: &String| match (link.split_once(':'), channel) {
            // A number of a device, such as 49…:12, is no network.
            (Some((network, linked)), Some(channel)) if network.eq_ignore_ascii_case(channel) => {
                phone_number(linked) == id
            }
            _ => phone_number(link) == id,
        };
        self.identities.iter().find(|(_, links)| links.iter().any(is_same)).map(|(name, _)| name.as_str())
    }

    /// Returns the key under which the session `raw` is kept. A canonical key stays as it is.
    pub fn canonical_key(&self, raw: &str) -> String {
        let raw = raw.trim();
        let is_main = |key: &str| key.eq_ignore_ascii_case("main") || key.eq_ignore_ascii_case(&self.main_key);
        let parts: Vec<&str> = raw.split(':').collect();
        match parts[..] {
            // Free keys are as good as any.
            [first, ..] if first != "agent" => {
                if is_main(raw) {
                    self.main_session_key(&self.agent)
                } else {
                    raw.to_owned()
                }
            }
            [_, agent, key] if is_main(key) => self.main_session_key(agent),
            [_, _, "cron", ..] => raw.to_owned(),
            [_, agent, ref rest @ ..] if rest.len() >= 2 => {
                self.canonical_of(agent, rest).unwrap_or_else(|| raw.to_owned())
            }
            _ => raw.to_owned(),
        }
    }

    fn canonical_of(&self, agent: &str, rest: &[&str]) -> Option<String> {
        let dm =
            rest.iter().position(|part| part.eq_ignore_ascii_case("dm")).filter(|at| *at <= 2 && at + 1 < rest.len());
        if let Some(at) = dm {
            let peer = rest[at + 1..].join(":");
            return Some(self.dm_session_key(agent, rest[..at].first().copied(), rest[..at].get(1).copied(), &peer));
        }
        let kind = rest.get(1)?.to_ascii_lowercase();
        if !matches!(kind.as_str(), "group" | "channel" | "thread") || rest.len() < 3 {
            return None;
        }
        let peer = name_of(&rest[2..].join(":"));
        Some(format!("agent:{}:{}:{kind}:{peer}", agent_id(agent), key_token(rest[0])))
    }
}

/// Returns the agent whose session a canonical key names. Absent for a free key.
pub fn agent_of(key: &str) -> Option<&str> {
    key.strip_prefix("agent:")?.split(':').next().filter(|agent| !agent.is_empty())
}

/// Returns true if the session with this key belongs to a job or a heartbeat.
pub fn is_of_automation(key: &str) -> bool {
    let kind = key.strip_prefix("agent:").and_then(|rest| rest.split(':').nth(1));
    matches!(kind, Some("cron" | "heartbeat"))
}

/// Returns the canonical id of an agent: lower case letters, digits, `_` and `-`.
pub fn agent_id(id: &str) -> String {
    plain_id(id, "main")
}

/// Returns the canonical id of an account, in the same form.
pub fn account_id(id: &str) -> String {
    plain_id(id, DEFAULT_ACCOUNT)
}

fn plain_id(id: &str, fallback: &str) -> String {
    let mut plain = String::with_capacity(id.len().min(64));
    for c in id.trim().chars().flat_map(char::to_lowercase) {
        let is_plain = c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if is_plain {
            plain.push(c);
        } else if !plain.ends_with('-') {
            plain.push('-');
        }
        if plain.len() == 64 {
            break;
        }
    }
    let plain = plain.trim_matches('-');
    if plain.is_empty() { fallback.to_owned() } else { plain.to_owned() }
}

/// Converts a part of a key that a network gave: lower case, and `_` for characters that are not allowed in a key.
pub fn key_token(text: &str) -> String {
    let plain = |c: char| {
        let is_plain = c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '_' | '@' | '.');
        if is_plain { c } else { '_' }
    };
    text.trim().chars().flat_map(char::to_lowercase).map(plain).collect()
}

/// Returns the part of a key for a person or chat. If a [`key_token`] would keep too little of the id, as for letters of most
/// alphabets and names with a case of their own, a digest follows it: no two of them share a conversation.
fn name_of(id: &str) -> String {
    let id = id.trim();
    // As Matrix names people, rooms and their aliases: another case is another room.
    let is_matrix = id.starts_with(['!', '@', '#']) && id.contains(':');
    let has_case = is_matrix && id.contains(|c: char| c.is_ascii_uppercase());
    if id.is_ascii() && !has_case {
        return key_token(id);
    }
    let digest = hex::encode(Sha256::digest(id.as_bytes()));
    format!("{}-{}", key_token(id), &digest[..DIGEST_DIGITS])
}

/// Returns the phone number in an id of a network: digits, with `+` if it was there or if there are ten or more. An id without
/// digits is itself, so that no two of them become one.
pub fn phone_number(id: &str) -> String {
    const SUFFIXES: [&str; 4] = ["@s.whatsapp.net", "@c.us", "@g.us", "@lid"];
    let id = id.trim();
    let bare = SUFFIXES.iter().find_map(|suffix| id.strip_suffix(suffix)).unwrap_or(id);
    let is_device = |device: &str| !device.is_empty() && device.bytes().all(|byte| byte.is_ascii_digit());
    let bare = match bare.rsplit_once(':') {
        Some((number, device)) if is_device(device) => number,
        Some(_) | None => bare,
    };
    // A name with a digit in it is no number.
    let is_number = bare.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | ' ' | '(' | ')' | '.' | '/'));
    let digits: String = bare.chars().filter(char::is_ascii_digit).collect();
    // Networks that count their groups below zero do not mean a phone number.
    if digits.is_empty() || !is_number || bare.starts_with('-') {
        return id.to_owned();
    }
    if bare.starts_with('+') || digits.len() >= 10 { format!("+{digits}") } else { digits }
}
