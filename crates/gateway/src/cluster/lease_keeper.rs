//! Lease of a realm: it is taken when it is free, renewed while it is held, and given up before its end if it cannot be renewed.
//!
//! It must not know what a node does with the realm.

use std::{sync::Arc, time::Duration};

use countersign_runtime::store::{ClusterRows, ClusterTables, DatabaseError, NodeIdentity, NodeRow};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout_at},
};

use super::{REALM, held_lease::HeldLease};

/// Part of a lease after which it is renewed.
const RENEWAL: u32 = 3;
/// Part of a lease before its end in which it counts as lost: another clock may be faster.
const MARGIN: u32 = 10;
/// Longest pause after the database did not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
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
    /// Owner of the realm, if one is known.
    pub(crate) owner: Option<OwnerNode>,
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
pub(crate) struct LeaseKeeper {
    tables: Arc<ClusterTables>,
    node: NodeIdentity,
    state: watch::Sender<NodeState>,
    /// Time before which it takes no lease: the realm did not open here.
    not_before: watch::Receiver<Instant>,
    /// Rings when a lease was given up.
    changed: Arc<Notify>,
    held: HeldLease,
    was_reachable: bool,
}

impl LeaseKeeper {
    pub(crate) fn new(
        tables: Arc<ClusterTables>,
        node: NodeIdentity,
        state: watch::Sender<NodeState>,
        not_before: watch::Receiver<Instant>,
        changed: Arc<Notify>,
        held: HeldLease,
    ) -> Self {
        Self { tables, node, state, not_before, changed, held, was_reachable: true }
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

    /// Renews the lease. The node has lost it if the database does not answer before its end.
    async fn renew(&mut self, sent_at: Instant) -> Result<ClusterRows, DatabaseError> {
        let deadline = self.held.deadline().unwrap_or(sent_at + self.node.lease);
        if let Ok(rows) = timeout_at(deadline, self.tables.renew(&self.node)).await {
            return rows;
        }
        if self.held.deadline().is_some() {
            self.lose();
        }
        Err(DatabaseError::Unreachable {
            server: self.tables.server().to_owned(),
            problem: "no answer within the lease".to_owned(),
        })
    }

    /// Does what follows from the state of the cluster, and returns the time until the next look.
    async fn apply(&mut self, sent_at: Instant, rows: &ClusterRows) -> Duration {
        let renewal = self.node.lease / RENEWAL;
        let step = next_step(rows, &self.node, Instant::now() < *self.not_before.borrow());
        match step {
            LeaseStep::Keep | LeaseStep::GiveUp => {
                self.hold_from(
                    sent_at,
                    rows.leases.iter().find(|lease| lease.realm == REALM).map_or(0, |lease| lease.term),
                );
                let role = if step == LeaseStep::Keep { NodeRole::Owner } else { NodeRole::Leaving };
                self.publish(role, rows);
                renewal
            }
            LeaseStep::Take => {
                let sent_at = Instant::now();
                match timeout_at(sent_at + self.node.lease, self.tables.take(&self.node, REALM)).await {
                    Ok(Ok(Some(number))) => {
                        self.hold_from(sent_at, number);
                        self.set_role(NodeRole::Owner);
                        // The state in which it is the owner is published by the next renewal.
                        Duration::ZERO
                    }
                    Ok(Ok(None)) => Duration::ZERO,
                    Ok(Err(_)) | Err(_) => renewal,
                }
            }
            LeaseStep::Wait => {
                self.held.lose();
                self.publish(NodeRole::Standby, rows);
                let ends = rows.leases.iter().find(|lease| lease.realm == REALM).map(|lease| lease.remaining);
                ends.filter(|left| !left.is_zero()).map_or(renewal, |left| renewal.min(left + AFTER_END))
            }
        }
    }

    fn publish(&self, role: NodeRole, rows: &ClusterRows) {
        let state = NodeState { role, owner: rows.owner_of(REALM).map(OwnerNode::from) };
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

    fn lose(&self) {
        self.held.lose();
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
