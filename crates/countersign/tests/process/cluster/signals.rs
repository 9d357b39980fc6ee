//! A node that a signal ends while its database does not answer.

use std::time::Duration;

use super::{ClusterFixture, PostgresServer, StallingProxy};

/// More than a node needs, and less than the database may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_node_that_lost_its_lease_ends_although_the_database_does_not_answer() {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let database = server.make_database();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(StallingProxy::start(server.folder.join(".s.PGSQL.5432")));
    let url = proxy.url(&database);
    let cluster = ClusterFixture::with_urls(server, database, [&url, &url]);
    let file = cluster.place.folder.join("a.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("statement_timeout: 2s"));
    cluster.place.write_file("a.yaml", &text.replace("statement_timeout: 2s", "statement_timeout: 120s"));

    let mut node = cluster.start("a");
    node.wait_for_log("node a serves the realm");
    proxy.stall();
    node.wait_for_log("this node gives the realm up");
    let exit = node.stop();
    assert!(exit.code == Some(0) && exit.took < PATIENCE, "{exit:?}\n{}", node.log_text());
}
