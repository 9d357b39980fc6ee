//! A realm has one owner at a time, by the clock of the database.

use std::time::Duration;

use countersign_core::id::Lsn;
use countersign_store::{
    AppendError, ClusterTables, DatabaseError, LeaseClaim, Log, NodeIdentity, Partition, PostgresLog, PostgresOptions,
    suite::text_batch,
};

use crate::database::Database;

const ZERO: Partition = Partition::ZERO;
const REALM: &str = "default";
/// A lease that outlasts each test.
const LONG: Duration = Duration::from_secs(600);

fn node(name: &str, process: &str) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        process: process.to_owned(),
        advertise: format!("https://{name}.example.org:8443"),
        program: "1.0".to_owned(),
        addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        lease: LONG,
    }
}

/// Returns the tables with the nodes in them.
async fn cluster(database: &Database, nodes: &[&NodeIdentity]) -> ClusterTables {
    let tables = ClusterTables::new(&database.options()).unwrap();
    tables.prepare().await.unwrap();
    for node in nodes {
        tables.join(node, &[REALM.to_owned()]).await.unwrap();
    }
    tables
}

/// Ends all leases, as time would.
async fn end_leases(database: &Database) {
    database
        .admin()
        .await
        .batch_execute("UPDATE countersign.leases SET until = clock_timestamp() - interval '1 ms'")
        .await
        .unwrap();
}

/// Opens the log with the lease of this number.
fn open_as(database: &Database, node: &NodeIdentity, term: u64) -> Result<PostgresLog, DatabaseError> {
    let lease = LeaseClaim { realm: REALM.to_owned(), process: node.process.clone(), term };
    PostgresLog::open(PostgresOptions { lease: Some(lease), ..database.options() })
}

#[tokio::test]
async fn one_node_has_a_lease_until_it_ends_or_is_given_up() {
    let Some(database) = Database::new() else { return };
    let (a, b) = (node("a", "p1"), node("b", "p2"));
    let tables = cluster(&database, &[&a, &b]).await;
    assert!(tables.read().await.unwrap().owner_of(REALM).is_none());

    assert!(tables.take(&a, REALM).await.unwrap().is_some());
    assert!(tables.take(&b, REALM).await.unwrap().is_none());
    assert!(tables.take(&a, REALM).await.unwrap().is_none(), "a lease in force is renewed, not taken");
    let rows = tables.renew(&a, true).await.unwrap();
    assert_eq!(rows.owner_of(REALM).map(|node| node.name.as_str()), Some("a"));
    assert_eq!(rows.nodes[0].addresses, a.addresses);
    assert!(rows.leases[0].is_held_by("p1") && rows.leases[0].remaining > LONG / 2, "{rows:?}");
    tables.release(&b, REALM).await.unwrap();
    assert!(tables.read().await.unwrap().owner_of(REALM).is_some(), "only its owner gives it up");

    let left = tables.read().await.unwrap().leases[0].remaining;
    let rows = tables.renew(&a, false).await.unwrap();
    assert!(rows.leases[0].remaining <= left, "it was not to be extended");
    end_leases(&database).await;
    let rows = tables.renew(&a, true).await.unwrap();
    assert!(rows.owner_of(REALM).is_none(), "a lease that has ended is not extended: {rows:?}");
    assert!(tables.take(&b, REALM).await.unwrap().is_some());
    tables.release(&b, REALM).await.unwrap();
    assert!(tables.take(&a, REALM).await.unwrap().is_some());
    assert_eq!(tables.read().await.unwrap().leases[0].term, 3);
}

#[tokio::test]
async fn nodes_that_take_a_lease_at_once_do_not_both_have_it() {
    let Some(database) = Database::new() else { return };
    let nodes: Vec<NodeIdentity> = (0..8).map(|index| node(&format!("n{index}"), &format!("p{index}"))).collect();
    let first = cluster(&database, &nodes.iter().collect::<Vec<_>>()).await;
    for _ in 0..5 {
        let takers = nodes.iter().map(async |node| {
            let tables = ClusterTables::new(&database.options()).unwrap();
            tables.take(node, REALM).await.unwrap().is_some()
        });
        let taken = futures_util::future::join_all(takers).await;
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
        end_leases(&database).await;
    }
    assert_eq!(first.read().await.unwrap().leases[0].term, 5);
}

#[tokio::test]
async fn a_name_belongs_to_one_process_that_is_alive() {
    let Some(database) = Database::new() else { return };
    let first = node("a", "p1");
    let tables = cluster(&database, &[&first]).await;
    let second = NodeIdentity { lease: Duration::from_secs(1), ..node("a", "p2") };
    let realms = [REALM.to_owned()];
    let refused = tables.join(&second, &realms).await;
    assert!(matches!(&refused, Err(DatabaseError::NodeExists { node, .. }) if node == "a"), "{refused:?}");
    tables.join(&first, &realms).await.unwrap();

    let admin = database.admin().await;
    admin.batch_execute("UPDATE countersign.nodes SET seen = seen - interval '1 hour'").await.unwrap();
    assert!(!tables.read().await.unwrap().nodes[0].is_alive);
    tables.join(&second, &realms).await.unwrap();
    let refused = tables.renew(&first, true).await;
    assert!(matches!(refused, Err(DatabaseError::NodeExists { .. })), "{refused:?}");
    tables.leave(&second).await.unwrap();
    assert!(tables.read().await.unwrap().nodes.is_empty());
}

#[tokio::test]
async fn a_realm_moves_to_the_node_that_is_wanted_and_to_another_if_that_does_not_come() {
    let Some(database) = Database::new() else { return };
    let (a, b) = (node("a", "p1"), node("b", "p2"));
    let tables = cluster(&database, &[&a, &b]).await;
    assert!(tables.take(&a, REALM).await.unwrap().is_some());
    assert!(!tables.move_realm("other", "b", LONG).await.unwrap());
    assert!(tables.move_realm(REALM, "b", LONG).await.unwrap());
    assert_eq!(tables.renew(&a, true).await.unwrap().leases[0].next_owner.as_deref(), Some("b"));
    tables.release(&a, REALM).await.unwrap();
    assert!(tables.take(&a, REALM).await.unwrap().is_none());
    assert!(tables.take(&b, REALM).await.unwrap().is_some());
    assert_eq!(tables.read().await.unwrap().leases[0].next_owner, None);

    assert!(tables.move_realm(REALM, "b", LONG).await.unwrap());
    assert_eq!(tables.read().await.unwrap().leases[0].next_owner, None, "it has the realm");
    // A node that is not there keeps the realm from no other.
    assert!(tables.move_realm(REALM, "gone", LONG).await.unwrap());
    tables.release(&b, REALM).await.unwrap();
    assert!(tables.take(&a, REALM).await.unwrap().is_some());

    assert!(!tables.drain("c").await.unwrap());
    assert!(tables.drain("a").await.unwrap());
    assert!(tables.renew(&a, true).await.unwrap().nodes[0].is_draining);
    tables.join(&a, &[REALM.to_owned()]).await.unwrap();
    assert!(!tables.read().await.unwrap().nodes[0].is_draining);
}

/// The owner is stopped beyond its lease, another takes the realm, and the first comes back.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_lease_went_to_another_writes_nothing_any_more() {
    let Some(database) = Database::new() else { return };
    let (a, b) = (node("a", "p1"), node("b", "p2"));
    let tables = cluster(&database, &[&a, &b]).await;
    let refused = open_as(&database, &a, 1);
    assert!(matches!(refused, Err(DatabaseError::NoLease { .. })), "{refused:?}");

    assert!(tables.take(&a, REALM).await.unwrap().is_some());
    let refused = open_as(&database, &a, 7);
    assert!(matches!(refused, Err(DatabaseError::NoLease { .. })), "another term: {refused:?}");
    let first = open_as(&database, &a, 1).unwrap();
    let epoch = first.take_over(ZERO).await.unwrap();
    first.append(ZERO, epoch, Lsn(0), text_batch(&["a"])).await.unwrap();
    end_leases(&database).await;
    // Without another owner it does no harm, and it is not to start anew.
    assert!(first.take_over(ZERO).await.is_err());
    first.append(ZERO, epoch, Lsn(1), text_batch(&["b"])).await.unwrap();

    assert!(tables.take(&b, REALM).await.unwrap().is_some());
    let second = open_as(&database, &b, 2).unwrap();
    let next = second.take_over(ZERO).await.unwrap();
    assert!(next > epoch, "{next}");
    second.append(ZERO, next, Lsn(2), text_batch(&["c"])).await.unwrap();
    // Its connection was ended, so the outcome of the first append after that is not known at once.
    let mut result = first.append(ZERO, epoch, Lsn(2), text_batch(&["late"])).await;
    if matches!(result, Err(AppendError::Uncertain(_))) {
        assert_eq!(first.head(ZERO).await.unwrap().lsn, Lsn(3));
        result = first.append(ZERO, epoch, Lsn(3), text_batch(&["late"])).await;
    }
    assert!(matches!(result, Err(AppendError::Fenced { .. })), "{result:?}");
    assert!(first.take_over(ZERO).await.is_err());
    second.append(ZERO, next, Lsn(3), text_batch(&["d"])).await.unwrap();
    assert_eq!(second.verify_chain(ZERO, None).await.unwrap().records, 4);
}

#[tokio::test]
async fn the_tables_are_made_by_several_nodes_at_once() {
    let Some(database) = Database::new() else { return };
    let made = (0..6).map(async |_| ClusterTables::new(&database.options()).unwrap().prepare().await);
    for made in futures_util::future::join_all(made).await {
        made.unwrap();
    }
    let log = database.open();
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(0));
    let none = ClusterTables::new(&database.options()).unwrap().read().await.unwrap();
    assert!(none.nodes.is_empty() && none.leases.is_empty(), "{none:?}");
}
