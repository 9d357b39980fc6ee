//! Lease of a realm: it is taken when it is free, renewed while it is held, and given up before its end if it cannot be renewed.
//!
//! It must not know what a node does with the realm.

use std::{net::IpAddr, sync::Arc, time::Duration};

use countersign_runtime::store::{ClusterRows, DatabaseError, NodeIdentity, NodeRow};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout_at},
};

use super::{REALM, held_lease::HeldLease, lease_book::LeaseBook};

/// Part of a lease after which it is renewed.
const RENEWAL: u32 = 3;
/// Part of a lease before its end in which it counts as lost: another clock may be faster.
const MARGIN: u32 = 10;
/// Longest pause after the database did not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a lease was not to be had.
const TAKE_PAUSE: Duration = Duration::from_millis(200);
/// Wait beyond the end of another node's lease.
const AFTER_END: Duration = Duration::from_millis(10);

/// Role of a node for its realm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeRole {
    /// Another node serves the realm, or none.
    #[default]
    Standby,
    /// It holds the lease.
    Owner,
    /// It holds the lease, and is to give it up in order.
    Leaving,
}

/// Node that serves the realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerNode {
    pub(crate) name: String,
    /// Id of its process.
    pub(crate) process: String,
    /// URL at which other nodes reach it.
    pub(crate) url: String,
}

impl From<&NodeRow> for OwnerNode {
    fn from(row: &NodeRow) -> Self {
        Self { name: row.name.clone(), process: row.process.clone(), url: row.advertise.clone() }
    }
}

/// View of a node of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) role: NodeRole,
    /// Number of the lease that the node holds, or held last.
    pub(crate) term: u64,
    /// Owner of the realm, if one is known.
    pub(crate) owner: Option<OwnerNode>,
    /// Addresses of the machines of other nodes, where commands of agents may run.
    pub(crate) others: Vec<IpAddr>,
}

/// Work of a node with the realm of its leases, for the keeper: which of them it is to keep, and when it may take another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealmProgress {
    /// The last lease that the node needs no more: it is not renewed.
    pub(crate) abandoned: u64,
    /// The last lease whose realm is closed and given up. No other lease is taken before.
    pub(crate) ended: u64,
    /// Time before which the node takes no lease: the realm did not open here.
    pub(crate) not_before: Instant,
}

impl RealmProgress {
    /// Returns the progress of a node that did nothing yet.
    pub(crate) fn new() -> Self {
        Self { abandoned: 0, ended: 0, not_before: Instant::now() }
    }
}

/// Lease that a node took.
#[derive(Clone, Copy, Debug)]
struct TakenLease {
    term: u64,
    /// True once it must not be used any more, even if the database would extend it.
    is_lost: bool,
}

/// Action that follows from the state of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStep {
    /// The node holds the lease.
    Keep,
    /// It holds the lease, and another is to have it.
    GiveUp,
    /// The lease is free for it.
    Take,
    /// Another holds the lease, or is to take it.
    Wait,
}

/// Keeper of the lease of one node.
pub(crate) struct LeaseKeeper<B> {
    book: Arc<B>,
    node: NodeIdentity,
    state: watch::Sender<NodeState>,
    progress: watch::Receiver<RealmProgress>,
    /// The lease whose realm this node serves or has to close.
    taken: Option<TakenLease>,
    /// Rings when a lease was given up.
    changed: Arc<Notify>,
    held: HeldLease,
    was_reachable: bool,
}

impl<B: LeaseBook> LeaseKeeper<B> {
    pub(crate) fn new(
        book: Arc<B>,
        node: NodeIdentity,
        state: watch::Sender<NodeState>,
        progress: watch::Receiver<RealmProgress>,
        changed: Arc<Notify>,
        held: HeldLease,
    ) -> Self {
        Self { book, node, state, progress, taken: None, changed, held, was_reachable: true }
    }

    /// Keeps the lease until it is dropped. Returns if another process has the name of the node now.
    pub(crate) async fn run(mut self) -> DatabaseError {
        loop {
            let sent_at = Instant::now();
            let pause = match self.renew(sent_at).await {
                Ok(rows) => {
                    if !std::mem::replace(&mut self.was_reachable, true) {
                        tracing::info!("the database of the cluster answers again");
                    }
                    self.apply(sent_at, &rows).await
                }
                Err(error @ DatabaseError::NodeExists { .. }) => {
                    self.held.lose();
                    self.set_role(NodeRole::Standby);
                    return error;
                }
                Err(error) => {
                    if std::mem::replace(&mut self.was_reachable, false) {
                        tracing::warn!(%error, "the lease was not renewed");
                    }
                    (self.node.lease / RENEWAL).min(LONGEST_PAUSE) / 2
                }
            };
            let changed = Arc::clone(&self.changed);
            tokio::select! {
                () = sleep_until(sent_at + pause) => {}
                () = changed.notified() => {}
                () = self.lost() => self.lose(),
            }
        }
    }

    /// Says that the node is alive, and renews its lease unless the realm is being closed. The node has lost the lease if the database does
    /// not answer before its end.
    async fn renew(&mut self, sent_at: Instant) -> Result<ClusterRows, DatabaseError> {
        let progress = *self.progress.borrow();
        let extends = self.taken.is_some_and(|taken| !taken.is_lost && taken.term > progress.abandoned);
        let deadline = self.held.deadline().unwrap_or(sent_at + self.node.lease);
        if let Ok(rows) = timeout_at(deadline, self.book.renew(&self.node, extends)).await {
            return rows;
        }
        if self.held.deadline().is_some() {
            self.lose();
        }
        Err(DatabaseError::Unreachable {
            server: self.book.server().to_owned(),
            problem: "no answer within the lease".to_owned(),
        })
    }

    /// Does what follows from the state of the cluster, and returns the time until the next look.
    async fn apply(&mut self, sent_at: Instant, rows: &ClusterRows) -> Duration {
        let renewal = self.node.lease / RENEWAL;
        let progress = *self.progress.borrow();
        let step = next_step(rows, &self.node, Instant::now() < progress.not_before);
        if let Some(taken) = &mut self.taken {
            let lease = rows.leases.iter().find(|lease| lease.realm == REALM);
            let is_held = lease.is_some_and(|lease| lease.is_held_by(&self.node.process) && lease.term == taken.term);
            taken.is_lost |= !is_held || taken.term <= progress.abandoned;
            let (term, is_lost) = (taken.term, taken.is_lost);
            if !is_lost {
                self.hold_from(sent_at, term);
                let is_leaving = step == LeaseStep::GiveUp;
                self.publish(if is_leaving { NodeRole::Leaving } else { NodeRole::Owner }, term, rows);
                return renewal;
            }
            self.held.lose();
            self.publish(NodeRole::Standby, term, rows);
            if term > progress.ended {
                return renewal;
            }
            self.taken = None;
        }
        match step {
            LeaseStep::Take => self.take(renewal).await,
            // A lease of before that this node does not use: it ends.
            LeaseStep::Keep | LeaseStep::GiveUp | LeaseStep::Wait => {
                let term = self.state.borrow().term;
                self.publish(NodeRole::Standby, term, rows);
                let ends = rows.leases.iter().find(|lease| lease.realm == REALM).map(|lease| lease.remaining);
                ends.filter(|left| !left.is_zero()).map_or(renewal, |left| renewal.min(left + AFTER_END))
            }
        }
    }

    async fn take(&mut self, renewal: Duration) -> Duration {
        let sent_at = Instant::now();
        match timeout_at(sent_at + self.node.lease, self.book.take(&self.node, REALM)).await {
            Ok(Ok(Some(term))) => {
                self.taken = Some(TakenLease { term, is_lost: false });
                self.hold_from(sent_at, term);
                self.state.send_modify(|state| (state.role, state.term) = (NodeRole::Owner, term));
                // Who the owner is, is published by the next renewal.
                Duration::ZERO
            }
            // Another node was faster, or is to have it.
            Ok(Ok(None)) => TAKE_PAUSE,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the lease was not taken");
                renewal
            }
            Err(_) => renewal,
        }
    }

    fn publish(&self, role: NodeRole, term: u64, rows: &ClusterRows) {
        let others = rows.nodes.iter().filter(|row| row.process != self.node.process);
        let others = others.flat_map(|row| row.addresses.iter().copied());
        let others = others.filter(|address| !self.node.addresses.contains(address)).collect();
        let state = NodeState { role, term, owner: rows.owner_of(REALM).map(OwnerNode::from), others };
        self.state.send_if_modified(|current| {
            let is_new = *current != state;
            current.clone_from(&state);
            is_new
        });
    }

    fn set_role(&self, role: NodeRole) {
        self.state.send_if_modified(|current| std::mem::replace(&mut current.role, role) != role);
    }

    /// Notes that the lease of this number was taken or renewed by a request that was sent at `sent_at`.
    fn hold_from(&self, sent_at: Instant, number: u64) {
        self.held.hold(sent_at + self.node.lease - self.node.lease / MARGIN, number);
    }

    async fn lost(&self) {
        match self.held.deadline() {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    fn lose(&mut self) {
        self.held.lose();
        if let Some(taken) = &mut self.taken {
            taken.is_lost = true;
        }
        tracing::warn!(realm = REALM, "the lease ends without an answer of the database: this node gives the realm up");
        self.set_role(NodeRole::Standby);
    }
}

/// Decides what a node does with the lease. `must_wait` if it could not open the realm a moment ago.
fn next_step(rows: &ClusterRows, node: &NodeIdentity, must_wait: bool) -> LeaseStep {
    let Some(lease) = rows.leases.iter().find(|lease| lease.realm == REALM) else { return LeaseStep::Wait };
    let is_draining = rows.nodes.iter().any(|row| row.process == node.process && row.is_draining);
    let can_take = |name: &str| rows.nodes.iter().any(|row| row.name == name && row.is_alive && !row.is_draining);
    let is_others = lease.next_owner.as_deref().is_some_and(|next| next != node.name && can_take(next));
    if lease.is_held_by(&node.process) {
        return if is_draining || is_others { LeaseStep::GiveUp } else { LeaseStep::Keep };
    }
    if !lease.remaining.is_zero() || is_draining || must_wait || is_others { LeaseStep::Wait } else { LeaseStep::Take }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_runtime::store::{ClusterRows, LeaseRow, NodeIdentity, NodeRow};

    use super::{LeaseStep, REALM, next_step};

    fn node_row(name: &str, is_alive: bool, is_draining: bool) -> NodeRow {
        NodeRow {
            name: name.to_owned(),
            process: format!("process of {name}"),
            advertise: format!("https://{name}"),
            program: "1.0".to_owned(),
            addresses: Vec::new(),
            seen: Duration::ZERO,
            is_alive,
            is_draining,
        }
    }

    #[test]
    fn a_node_takes_what_is_free_and_gives_up_what_another_is_to_have() {
        let a = NodeIdentity {
            name: "a".to_owned(),
            process: "process of a".to_owned(),
            advertise: "https://a".to_owned(),
            program: "1.0".to_owned(),
            addresses: Vec::new(),
            lease: Duration::from_secs(3),
        };
        let held = Duration::from_secs(2);
        for (case, owner, remaining, next_owner, a_drains, b_alive, must_wait, want) in [
            ("never owned", None, Duration::ZERO, None, false, true, false, LeaseStep::Take),
            ("its own", Some("a"), held, None, false, true, false, LeaseStep::Keep),
            ("its own, ended", Some("a"), Duration::ZERO, None, false, true, false, LeaseStep::Take),
            ("another's", Some("b"), held, None, false, true, false, LeaseStep::Wait),
            ("another's, ended", Some("b"), Duration::ZERO, None, false, false, false, LeaseStep::Take),
            ("it drains", Some("a"), held, None, true, true, false, LeaseStep::GiveUp),
            ("it has drained", Some("a"), Duration::ZERO, None, true, true, false, LeaseStep::Wait),
            ("another is wanted", Some("a"), held, Some("b"), false, true, false, LeaseStep::GiveUp),
            ("another is wanted that is away", Some("a"), held, Some("b"), false, false, false, LeaseStep::Keep),
            ("it is wanted", Some("b"), Duration::ZERO, Some("a"), false, true, false, LeaseStep::Take),
            ("free, another is wanted", None, Duration::ZERO, Some("b"), false, true, false, LeaseStep::Wait),
            ("free, the wanted one is away", None, Duration::ZERO, Some("b"), false, false, false, LeaseStep::Take),
            ("the realm did not open here", None, Duration::ZERO, None, false, true, true, LeaseStep::Wait),
            ("its own while another opens", Some("a"), held, None, false, true, true, LeaseStep::Keep),
        ] {
            let rows = ClusterRows {
                nodes: vec![node_row("a", true, a_drains), node_row("b", b_alive, false)],
                leases: vec![LeaseRow {
                    realm: REALM.to_owned(),
                    owner: owner.map(|name| (name.to_owned(), format!("process of {name}"))),
                    term: 1,
                    age: Duration::ZERO,
                    remaining,
                    next_owner: next_owner.map(str::to_owned),
                }],
            };
            assert_eq!(next_step(&rows, &a, must_wait), want, "{case}");
        }
        assert_eq!(next_step(&ClusterRows::default(), &a, false), LeaseStep::Wait);
    }
}
