//! Where chat networks stand: accounts, letters on their way, and who last spoke with each agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Account, Address, Event, Media, recent::Recent};
use crate::{
    id::{LetterId, Lsn},
    time::Millis,
};

/// How many accounts are kept.
pub(crate) const MOST_ACCOUNTS: usize = 1000;
/// How many letters may wait for one account.
pub(crate) const MOST_LETTERS: usize = 1000;
/// How many messages of an account are known when they come again.
const MOST_HEARD: usize = 4096;
/// How long a message is known at least.
const HEARD_FOR: Duration = Duration::from_secs(600);
/// How many letters are known by their key.
const MOST_KEYS: usize = 4096;
/// How many agents have somebody who last spoke with them.
const MOST_ACTIVE: usize = 1000;

/// An account that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Which.
    pub account: Account,
    /// Since when.
    pub since: Millis,
    /// When something last came through it.
    pub last_heard: Option<Millis>,
    #[serde(rename = "heard")]
    heard: Recent,
}

/// A letter on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Which.
    pub id: LetterId,
    /// To which chat.
    pub to: Address,
    /// Where its text lies.
    pub content: Lsn,
    /// Since when it waits.
    pub at: Millis,
    /// The session that it belongs to, in the words of its door.
    pub session: Option<String>,
    /// The network's id of the message that it answers.
    pub reply_to: Option<String>,
    /// What it was written under, so that it was written once.
    pub key: Option<String>,
    /// What goes with it.
    pub media: Option<Media>,
}

/// Who last spoke with an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// Where.
    pub at: Address,
    /// When.
    pub time: Millis,
}

/// The form in which it is kept.
#[derive(Serialize, Deserialize)]
struct Form {
    accounts: Vec<Known>,
    letters: Vec<Letter>,
    keys: Recent,
    active: BTreeMap<String, Active>,
    left: Vec<(Account, Recent)>,
}

/// Everything about chat networks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ChannelStateForm", into = "ChannelStateForm")]
pub struct State {
    accounts: BTreeMap<Account, Known>,
    /// In the order in which they were owed.
    letters: BTreeMap<Lsn, Letter>,
    by_id: BTreeMap<LetterId, Lsn>,
    by_account: BTreeMap<Account, BTreeSet<Lsn>>,
    keys: Recent,
    active: BTreeMap<String, Active>,
    /// What came through accounts that are known no more, as long as it may come again: they may be known anew by then.
    left: BTreeMap<Account, Recent>,
}

impl From<Form> for State {
    fn from(form: Form) -> Self {
        let mut by_account = BTreeMap::<Account, BTreeSet<Lsn>>::new();
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

impl From<State> for Form {
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
    /// All accounts, by network and name.
    pub fn accounts(&self) -> impl Iterator<Item = &Known> {
        self.accounts.values()
    }

    /// One account, if it is known.
    pub fn account(&self, account: &Account) -> Option<&Known> {
        self.accounts.get(account)
    }

    /// The letters that wait, the oldest first.
    pub fn letters(&self) -> impl Iterator<Item = &Letter> {
        self.letters.values()
    }

    /// The letters that wait for one account, the oldest first.
    pub fn letters_of(&self, account: &Account) -> impl ExactSizeIterator<Item = &Letter> {
        static NONE: BTreeSet<Lsn> = BTreeSet::new();
        self.by_account.get(account).unwrap_or(&NONE).iter().map(|lsn| &self.letters[lsn])
    }

    /// One letter, until it ends.
    pub fn letter(&self, id: LetterId) -> Option<&Letter> {
        self.letters.get(self.by_id.get(&id)?)
    }

    /// Who last spoke with an agent.
    pub fn active(&self, agent: &str) -> Option<&Active> {
        self.active.get(agent)
    }

    /// Whether a letter was written under this key, as far back as that is known.
    pub fn is_written(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    fn heard(&self, account: &Account) -> Option<&Recent> {
        self.accounts.get(account).map(|known| &known.heard).or_else(|| self.left.get(account))
    }

    /// Whether a message came through an account before.
    pub fn is_heard(&self, account: &Account, id: &str) -> bool {
        self.heard(account).is_some_and(|heard| heard.contains(id))
    }

    /// Whether one more message of an account would have one forgotten that may still come again.
    pub(crate) fn is_flooded(&self, account: &Account, now: Millis) -> bool {
        let oldest = self.heard(account).and_then(|heard| heard.oldest_of(MOST_HEARD));
        oldest.is_some_and(|oldest| oldest + HEARD_FOR > now)
    }

    /// Folds a recorded event in. Cannot fail, so replay cannot fail.
    pub(crate) fn apply(&mut self, event: &Event, lsn: Lsn, now: Millis) {
        match event {
            Event::Met { account } => {
                let heard = self.left.remove(account).unwrap_or_default();
                let known = Known { account: account.clone(), since: now, last_heard: None, heard };
                self.accounts.entry(account.clone()).or_insert(known);
            }
            Event::Forgotten { account } => {
                if let Some(known) = self.accounts.remove(account) {
                    self.left.insert(account.clone(), known.heard);
                }
                self.left.retain(|_, heard| heard.newest().is_some_and(|newest| newest + HEARD_FOR > now));
                // Nothing that is said there any more would reach anybody.
                self.active.retain(|_, active| active.at.account != *account);
            }
            Event::Heard { from, agent, id } => {
                if let Some(known) = self.accounts.get_mut(&from.account) {
                    known.last_heard = Some(now);
                    if let Some(id) = id {
                        known.heard.note(id, now, MOST_HEARD);
                    }
                }
                if self.active.len() < MOST_ACTIVE || self.active.contains_key(agent) {
                    self.active.insert(agent.clone(), Active { at: from.clone(), time: now });
                }
            }
            Event::Owed { letter, to, session, reply_to, key, media } => {
                let (to, session, reply_to) = (to.clone(), session.clone(), reply_to.clone());
                let (key, media) = (key.clone(), media.as_deref().cloned());
                self.by_id.insert(*letter, lsn);
                self.by_account.entry(to.account.clone()).or_default().insert(lsn);
                if let Some(key) = &key {
                    self.keys.note(key, now, MOST_KEYS);
                }
                self.letters
                    .insert(lsn, Letter { id: *letter, to, content: lsn, at: now, session, reply_to, key, media });
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
