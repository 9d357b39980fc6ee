//! Delivers letters: those of each account one after the other, of different accounts side by side, and again until the
//! network has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    channel::{ChannelAccount, Command as Network, DeliveryEnd, Event as Told, PendingMessage as Owed},
    engine::{Command, Event, RecordedFact},
};
use countersign_runtime::{FactFollower, InboxLane, OwnerError};
use countersign_telegram::transport::{DeliveryOutcome, OutboundDelivery};
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};

use super::{super::Door, asks, carrier, enclosed};

/// How long to wait after the first failure; twice as long after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// How long to wait at most.
const LONGEST: Duration = Duration::from_secs(300);

/// How the work for one account ended.
enum Step {
    /// Nothing waits, or nothing can be carried until somebody says so.
    Rests,
    /// A letter could not be carried now.
    Failed(Option<Duration>),
    /// The record is closed.
    Over,
}

type Work = BoxFuture<'static, (ChannelAccount, Step)>;

/// Begins to deliver. `None` if the gateway closes.
pub(super) async fn follow(door: &Arc<Door>) -> Option<()> {
    let owed = door.context.handle.follow_facts(account_owed).await?;
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        engine.state().channels().pending_messages().map(|letter| letter.to.account.clone()).collect::<BTreeSet<_>>()
    });
    let (waiting, _) = read.await?;
    let mut post = Post {
        door: Arc::clone(door),
        working: FuturesUnordered::new(),
        busy: BTreeSet::new(),
        again: BTreeSet::new(),
        failures: BTreeMap::new(),
    };
    for account in waiting {
        post.look_at(account);
    }
    tokio::spawn(post.run(owed));
    Some(())
}

/// Returns the account at which a letter is owed, if the fact says so.
fn account_owed(recorded: &Arc<RecordedFact>) -> Option<ChannelAccount> {
    match &recorded.fact.event {
        Event::Channel(Told::Owed { to, .. }) => Some(to.account.clone()),
        _ => None,
    }
}

struct Post {
    door: Arc<Door>,
    working: FuturesUnordered<Work>,
    busy: BTreeSet<ChannelAccount>,
    /// Accounts of which something was heard while they were busy.
    again: BTreeSet<ChannelAccount>,
    failures: BTreeMap<ChannelAccount, u32>,
}

impl Post {
    async fn run(mut self, mut owed: FactFollower<ChannelAccount>) {
        let door = Arc::clone(&self.door);
        loop {
            tokio::select! {
                account = owed.next() => match account {
                    Some(account) => self.look_at(account),
                    None => return,
                },
                kicked = door.networks.kicked() => {
                    for account in kicked {
                        self.failures.remove(&account);
                        self.look_at(account);
                    }
                }
                Some((account, step)) = self.working.next() => {
                    if matches!(step, Step::Over) {
                        return;
                    }
                    self.done(account, &step);
                }
            }
        }
    }

    fn look_at(&mut self, account: ChannelAccount) {
        if !self.busy.insert(account.clone()) {
            self.again.insert(account);
            return;
        }
        self.working.push(work(Arc::clone(&self.door), account, Duration::ZERO).boxed());
    }

    fn done(&mut self, account: ChannelAccount, step: &Step) {
        let has_news = self.again.remove(&account);
        let wait = match step {
            Step::Failed(after) => {
                let failures = self.failures.entry(account.clone()).or_default();
                *failures = failures.saturating_add(1);
                let grown = FIRST.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST);
                // A network that wants no wait at all would be asked all the time.
                after.map_or(grown, |after| after.clamp(FIRST, LONGEST))
            }
            Step::Rests | Step::Over => {
                self.failures.remove(&account);
                if !has_news {
                    self.busy.remove(&account);
                    return;
                }
                Duration::ZERO
            }
        };
        self.working.push(work(Arc::clone(&self.door), account, wait).boxed());
    }
}

/// Delivers what waits for one account, after `wait`.
async fn work(door: Arc<Door>, account: ChannelAccount, wait: Duration) -> (ChannelAccount, Step) {
    tokio::time::sleep(wait).await;
    let step = deliver(&door, &account).await;
    (account, step)
}

async fn deliver(door: &Arc<Door>, account: &ChannelAccount) -> Step {
    loop {
        let owed = match first(door, account).await {
            Ok(Some(owed)) => owed,
            Ok(None) => return Step::Rests,
            Err(()) => return Step::Over,
        };
        let (id, object) = (owed.id, owed.media.as_ref().map(|media| media.object.clone()));
        let texts = match door.context.handle.contents().get(&[owed.content]).await {
            Ok(texts) => texts,
            Err(_) => return Step::Failed(None),
        };
        let carried = match texts.into_iter().next().flatten() {
            Some(text) => {
                let enclosed = match &owed.media {
                    Some(media) => enclosed::open(door, media).await.map(Some),
                    None => Ok(None),
                };
                match enclosed {
                    Ok(media) => {
                        let letter = OutboundDelivery { owed, text: text.to_string(), media };
                        asks::is_told(door, &letter.owed);
                        carrier::carry(door, &letter, door.context.clock.now()).await
                    }
                    Err(why) => DeliveryOutcome::Refused(why),
                }
            }
            None => DeliveryOutcome::Refused("its text was taken out of the record".to_owned()),
        };
        let (end, why) = match carried {
            DeliveryOutcome::Delivered => (DeliveryEnd::Delivered, None),
            DeliveryOutcome::Refused(why) => {
                tracing::warn!(letter = %id, network = %account.network, %why, "a message to a chat was not taken");
                (DeliveryEnd::Refused, Some(why.into()))
            }
            DeliveryOutcome::Later(after) => return Step::Failed(after),
            DeliveryOutcome::Away => return Step::Rests,
        };
        if !record(door, Command::Channel(Network::Ended { letter: id, end, why })).await {
            return Step::Over;
        }
        if let Some(object) = object {
            enclosed::release(door, object).await;
        }
    }
}

/// The letter that is next.
async fn first(door: &Arc<Door>, account: &ChannelAccount) -> Result<Option<Owed>, ()> {
    let of = account.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| engine.state().channels().pending_for(&of).next().cloned()).await;
    read.map(|(owed, _)| owed).ok_or(())
}

/// Records how a letter ended, however long that takes: it must not go out again for a full disk. False if nothing is
/// recorded any more.
async fn record(door: &Arc<Door>, command: Command) -> bool {
    let source = door.context.handle.source(InboxLane::Result);
    let mut wait = FIRST;
    loop {
        match source.send_command(command.clone()).await {
            Ok(_) | Err(OwnerError::Refusal(_)) => return true,
            Err(OwnerError::Closed) => return false,
            Err(_) => tokio::time::sleep(wait).await,
        }
        wait = (wait * 2).min(LONGEST);
    }
}
