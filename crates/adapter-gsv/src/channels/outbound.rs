//! Delivers outbound messages: those of each account one after the other, accounts in parallel, and again until the
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

use super::{super::GsvAdapter, attachments, gate_prompts, transport};

/// Wait after the first failure; twice as long after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait between attempts.
const LONGEST: Duration = Duration::from_secs(300);

/// Result of the work for one account.
enum DeliveryStep {
    /// No message waits, or none can be sent until the account is woken.
    Rests,
    /// A message could not be sent now.
    Failed(Option<Duration>),
    /// The record is closed.
    Over,
}

type DeliveryFuture = BoxFuture<'static, (ChannelAccount, DeliveryStep)>;

/// Starts delivery. `None` if the gateway closes.
pub(super) async fn start_delivery(door: &Arc<GsvAdapter>) -> Option<()> {
    let owed = door.context.handle.follow_facts(account_owed).await?;
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        engine.state().channels().pending_messages().map(|letter| letter.to.account.clone()).collect::<BTreeSet<_>>()
    });
    let (waiting, _) = read.await?;
    let mut post = DeliveryLoop {
        door: Arc::clone(door),
        working: FuturesUnordered::new(),
        busy: BTreeSet::new(),
        again: BTreeSet::new(),
        failures: BTreeMap::new(),
    };
    for account in waiting {
        post.check_account(account);
    }
    tokio::spawn(post.run(owed));
    Some(())
}

/// Returns the account of an outbound message, if the fact records one.
fn account_owed(recorded: &Arc<RecordedFact>) -> Option<ChannelAccount> {
    match &recorded.fact.event {
        Event::Channel(Told::Owed { to, .. }) => Some(to.account.clone()),
        _ => None,
    }
}

struct DeliveryLoop {
    door: Arc<GsvAdapter>,
    working: FuturesUnordered<DeliveryFuture>,
    busy: BTreeSet<ChannelAccount>,
    /// Accounts that were woken while they were busy.
    again: BTreeSet<ChannelAccount>,
    failures: BTreeMap<ChannelAccount, u32>,
}

impl DeliveryLoop {
    async fn run(mut self, mut owed: FactFollower<ChannelAccount>) {
        let door = Arc::clone(&self.door);
        loop {
            tokio::select! {
                account = owed.next() => match account {
                    Some(account) => self.check_account(account),
                    None => return,
                },
                kicked = door.networks.woken_accounts() => {
                    for account in kicked {
                        self.failures.remove(&account);
                        self.check_account(account);
                    }
                }
                Some((account, step)) = self.working.next() => {
                    if matches!(step, DeliveryStep::Over) {
                        return;
                    }
                    self.finish_work(account, &step);
                }
            }
        }
    }

    fn check_account(&mut self, account: ChannelAccount) {
        if !self.busy.insert(account.clone()) {
            self.again.insert(account);
            return;
        }
        self.working.push(deliver_after(Arc::clone(&self.door), account, Duration::ZERO).boxed());
    }

    fn finish_work(&mut self, account: ChannelAccount, step: &DeliveryStep) {
        let has_news = self.again.remove(&account);
        let wait = match step {
            DeliveryStep::Failed(after) => {
                let failures = self.failures.entry(account.clone()).or_default();
                *failures = failures.saturating_add(1);
                let grown = FIRST.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST);
                // A network that asks for no wait would get requests all the time.
                after.map_or(grown, |after| after.clamp(FIRST, LONGEST))
            }
            DeliveryStep::Rests | DeliveryStep::Over => {
                self.failures.remove(&account);
                if !has_news {
                    self.busy.remove(&account);
                    return;
                }
                Duration::ZERO
            }
        };
        self.working.push(deliver_after(Arc::clone(&self.door), account, wait).boxed());
    }
}

/// Delivers the messages of one account, after `wait`.
async fn deliver_after(
    door: Arc<GsvAdapter>,
    account: ChannelAccount,
    wait: Duration,
) -> (ChannelAccount, DeliveryStep) {
    tokio::time::sleep(wait).await;
    let step = deliver_waiting(&door, &account).await;
    (account, step)
}

async fn deliver_waiting(door: &Arc<GsvAdapter>, account: &ChannelAccount) -> DeliveryStep {
    loop {
        let owed = match next_letter(door, account).await {
            Ok(Some(owed)) => owed,
            Ok(None) => return DeliveryStep::Rests,
            Err(()) => return DeliveryStep::Over,
        };
        let (id, object) = (owed.id, owed.media.as_ref().map(|media| media.object.clone()));
        let texts = match door.context.handle.contents().get(&[owed.content]).await {
            Ok(texts) => texts,
            Err(_) => return DeliveryStep::Failed(None),
        };
        let carried = match texts.into_iter().next().flatten() {
            Some(text) => {
                let enclosed = match &owed.media {
                    Some(media) => attachments::load_file(door, media).await.map(Some),
                    None => Ok(None),
                };
                match enclosed {
                    Ok(media) => {
                        let letter = OutboundDelivery { owed, text: text.to_string(), media };
                        gate_prompts::note_prompted(door, &letter.owed);
                        transport::deliver_letter(door, &letter, door.context.clock.now()).await
                    }
                    Err(why) => DeliveryOutcome::Refused(why),
                }
            }
            None => DeliveryOutcome::Refused("its text was taken out of the record".to_owned()),
        };
        let (end, why) = match carried {
            DeliveryOutcome::Delivered => (DeliveryEnd::Delivered, None),
            DeliveryOutcome::Refused(why) => {
                tracing::warn!(letter = %id, network = %account.network, %why, "a chat network refused a message");
                (DeliveryEnd::Refused, Some(why.into()))
            }
            DeliveryOutcome::Later(after) => return DeliveryStep::Failed(after),
            DeliveryOutcome::Away => return DeliveryStep::Rests,
        };
        if !record_ending(door, Command::Channel(Network::Ended { letter: id, end, why })).await {
            return DeliveryStep::Over;
        }
        if let Some(object) = object {
            attachments::release_file(door, object).await;
        }
    }
}

/// Returns the next outbound message.
async fn next_letter(door: &Arc<GsvAdapter>, account: &ChannelAccount) -> Result<Option<Owed>, ()> {
    let of = account.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| engine.state().channels().pending_for(&of).next().cloned()).await;
    read.map(|(owed, _)| owed).ok_or(())
}

/// Records the end of a delivery, with retries: a full disk must not cause a second delivery. Returns false if nothing is
/// recorded any more.
async fn record_ending(door: &Arc<GsvAdapter>, command: Command) -> bool {
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
