//! Console pages about this adapter.

use countersign_testkit::process::{GatewayFixture, GatewayServer, eventually, gsv::GsvPeer, http::HttpClient};

use crate::nodes::connect_journaling_node;

fn page(gateway: &GatewayServer) -> String {
    let reply = HttpClient::new(&gateway.address).get("/console/agents");
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

/// Waits until the page has all of this.
fn wait_for_page(gateway: &GatewayServer, expected: &[&str]) {
    eventually("the page", || {
        let page = page(gateway);
        expected.iter().all(|text| page.contains(text)).then_some(())
    });
}

#[test]
fn nodes_and_accounts_are_shown_while_they_are_here_and_when_they_are_away() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let none = page(&gateway);
    assert!(none.contains("No node has connected yet"), "{none}");
    let node = connect_journaling_node(&gateway, "attic", &["Echo", "Other"]);
    let plain = GsvPeer::connect_node(&gateway, "shed", &["Echo"]);
    let account = GsvPeer::connect_channel(&gateway, "pigeon", "roof");
    let here = "<span class=\"badge good\">connected</span>";
    let away = "<span class=\"badge still\">disconnected</span>";
    let no_journal = "<p class=\"note\">No journal";
    let row = |name: &str, state: &str| format!("<td>{name}</td><td>{state}");
    let pigeon = |state: &str| format!("<td>pigeon <code>roof</code></td><td>{state}");
    wait_for_page(
        &gateway,
        &[
            &format!("{}</td>", row("attic", here)),
            &format!("{}{no_journal}", row("shed", here)),
            "data-label=\"Tools\">2</td>",
            &pigeon(here),
        ],
    );
    drop((node, account));
    wait_for_page(&gateway, &[&row("attic", away), &row("shed", here), &pigeon(away)]);
    drop(plain);
    gateway.kill();
    let gateway = scene.start();
    wait_for_page(&gateway, &[&row("attic", away), &row("shed", away), &pigeon(away)]);
}
