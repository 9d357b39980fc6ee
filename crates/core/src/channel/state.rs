//! State of chat networks: accounts, pending outbound messages, and the last active chat of each agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{ChannelAccount, ChatAddress, Event, OutboundMedia, recent_names::RecentNames};
use crate::{
    id::{Lsn, OutboundId},
    time::Millis,
};

/// Maximum number of accounts.
pub(crate) const MOST_ACCOUNTS: usize = 1000;
/// Maximum number of pending messages for one account.
pub(crate) const MOST_LETTERS: usize = 1000;
/// Number of received messages of an account that are remembered to detect duplicates.
const MOST_HEARD: usize = 4096;
/// Minimum time for which a received message is remembered.
const HEARD_FOR: Duration = Duration::from_secs(600);
/// Number of messages that are remembered by their key.
const MOST_KEYS: usize = 4096;
/// Maximum number of agents with a last active chat.
const MOST_ACTIVE: usize = 1000;

/// An account that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownAccount {
    /// The account.
    pub account: ChannelAccount,
    /// Time at which it was registered.
    pub since: Millis,
    /// Time of the last message through it.
    pub last_heard: Option<Millis>,
    #[serde(rename = "heard")]
    received: RecentNames,
}

/// A pending outbound message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingMessage {
    /// Its id.
    pub id: OutboundId,
    /// The chat.
    pub to: ChatAddress,
    /// Position of its text.
    pub content: Lsn,
    /// Time at which it was queued.
    pub at: Millis,
    /// The session that it belongs to, under its adapter's name for it.
    pub session: Option<String>,
    /// The network's id of the message that it answers.
    pub reply_to: Option<String>,
    /// Idempotency key that it was queued under.
    pub key: Option<String>,
    /// File that goes with it.
    pub media: Option<OutboundMedia>,
}

/// Chat in which an agent was last active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveChat {
    /// The chat.
    pub at: ChatAddress,
    /// Time of the last message.
    pub time: Millis,
}

/// Stored form of the state.
#[derive(Serialize, Deserialize)]
struct ChannelStateForm {
    accounts: Vec<KnownAccount>,
    letters: Vec<PendingMessage>,
    keys: RecentNames,
    active: BTreeMap<String, ActiveChat>,
    left: Vec<(ChannelAccount, RecentNames)>,
}

/// State of all chat networks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ChannelStateForm", into = "ChannelStateForm")]
pub struct State {
    accounts: BTreeMap<ChannelAccount, KnownAccount>,
    /// Pending messages in the order in which they were queued.
    letters: BTreeMap<Lsn, PendingMessage>,
    by_id: BTreeMap<OutboundId, Lsn>,
    by_account: BTreeMap<ChannelAccount, BTreeSet<Lsn>>,
    keys: RecentNames,
    active: BTreeMap<String, ActiveChat>,
    /// Messages of removed accounts, as long as duplicates may come: the accounts may be registered again by then.
    left: BTreeMap<ChannelAccount, RecentNames>,
}

impl From<ChannelStateForm> for State {
    fn from(form: ChannelStateForm) -> Self {
        let mut by_account = BTreeMap::<ChannelAccount, BTreeSet<Lsn>>::new();
        for letter in &form.letters {
            by_account.entry(letter.to.account.clone()).or_default().insert(letter.content);
        }
        Self {
            accounts: form.accounts.into_iter().map(|known| (known.account.clone(), known)).collect(),
            by_account,
            by_id: form.letters.iter().map(|letter| (letter.id, letter.content)).collect(),
            letters: form.letters.into_iter().map(|letter| (letter.content, letter)).collect(),
            keys: form.keys,
            active: form.active,
            left: form.left.into_iter().collect(),
        }
    }
}

impl From<State> for ChannelStateForm {
    fn from(state: State) -> Self {
        Self {
            accounts: state.accounts.into_values().collect(),
            letters: state.letters.into_values().collect(),
            keys: state.keys,
            active: state.active,
            left: state.left.into_iter().collect(),
        }
    }
}

impl State {
    /// Returns all accounts, ordered by network and name.
    pub fn accounts(&self) -> impl Iterator<Item = &KnownAccount> {
        self.accounts.values()
    }

    /// Returns an account, if it is known.
    pub fn account(&self, account: &ChannelAccount) -> Option<&KnownAccount> {
        self.accounts.get(account)
    }

    /// Returns the pending messages, the oldest first.
    pub fn pending_messages(&self) -> impl Iterator<Item = &PendingMessage> {
        self.letters.values()
    }

    /// Returns the pending messages of one account, the oldest first.
    pub fn pending_for(&self, account: &ChannelAccount) -> impl ExactSizeIterator<Item = &PendingMessage> {
        static NONE: BTreeSet<Lsn> = BTreeSet::new();
        self.by_account.get(account).unwrap_or(&NONE).iter().map(|lsn| &self.letters[lsn])
    }

    /// Returns a message, until it ends.
    pub fn pending_message(&self, id: OutboundId) -> Option<&PendingMessage> {
        self.letters.get(self.by_id.get(&id)?)
    }

    /// Returns the chat in which an agent was last active.
    pub fn active_chat(&self, agent: &str) -> Option<&ActiveChat> {
        self.active.get(agent)
    }

    /// Reports whether a message was queued under this key, as far back as keys are remembered.
    pub fn is_written(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    fn recent_ids(&self, account: &ChannelAccount) -> Option<&RecentNames> {
        self.accounts.get(account).map(|known| &known.received).or_else(|| self.left.get(account))
    }

    /// Reports whether a message came through an account before.
    pub fn was_received(&self, account: &ChannelAccount, id: &str) -> bool {
        self.recent_ids(account).is_some_and(|recent| recent.contains(id))
    }

    /// Reports whether one more message of an account would displace one whose duplicate may still come.
    pub(crate) fn is_flooded(&self, account: &ChannelAccount, now: Millis) -> bool {
        let oldest = self.recent_ids(account).and_then(|recent| recent.oldest_of(MOST_HEARD));
        oldest.is_some_and(|oldest| oldest + HEARD_FOR > now)
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event, lsn: Lsn, now: Millis) {
        match event {
            Event::Met { account } => {
                let received = self.left.remove(account).unwrap_or_default();
                let known = KnownAccount { account: account.clone(), since: now, last_heard: None, received };
                self.accounts.entry(account.clone()).or_insert(known);
            }
            Event::Forgotten { account } => {
                if let Some(known) = self.accounts.remove(account) {
                    self.left.insert(account.clone(), known.received);
                }
                self.left.retain(|_, recent| recent.newest_at().is_some_and(|newest| newest + HEARD_FOR > now));
                // A message to the account can no longer be delivered.
                self.active.retain(|_, active| active.at.account != *account);
            }
            Event::Received { from, agent, id } => {
                if let Some(known) = self.accounts.get_mut(&from.account) {
                    known.last_heard = Some(now);
                    if let Some(id) = id {
                        known.received.record_name(id, now, MOST_HEARD);
                    }
                }
                if self.active.len() < MOST_ACTIVE || self.active.contains_key(agent) {
                    self.active.insert(agent.clone(), ActiveChat { at: from.clone(), time: now });
                }
            }
            Event::Owed { letter, to, session, reply_to, key, media } => {
                let (to, session, reply_to) = (to.clone(), session.clone(), reply_to.clone());
                let (key, media) = (key.clone(), media.as_deref().cloned());
                self.by_id.insert(*letter, lsn);
                self.by_account.entry(to.account.clone()).or_default().insert(lsn);
                if let Some(key) = &key {
                    self.keys.record_name(key, now, MOST_KEYS);
                }
                self.letters.insert(
                    lsn,
                    PendingMessage { id: *letter, to, content: lsn, at: now, session, reply_to, key, media },
                );
            }
            Event::Ended { letter, .. } => {
                let ended = self.by_id.remove(letter).and_then(|lsn| self.letters.remove(&lsn));
                if let Some(ended) = ended
                    && let Some(waiting) = self.by_account.get_mut(&ended.to.account)
                {
                    waiting.remove(&ended.content);
                    if waiting.is_empty() {
                        self.by_account.remove(&ended.to.account);
                    }
                }
            }
        }
    }
}
