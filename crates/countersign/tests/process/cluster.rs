//! Two nodes and one database, which the test starts itself. Skipped, and said so, where PostgreSQL is not installed.

mod signals;

use std::path::{Path, PathBuf};

use countersign_testkit::process::{
    AGENT_TOKEN, Latch,
    agent_gate::AgentClient,
    api::{ApiEvent, ApiEvents},
    service::ServiceBehavior,
};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::{
    cluster_fixture::{ClusterFixture, is_gate, log_in, look, take_missed},
    postgres_proxy::StallingProxy,
    postgres_server::PostgresServer,
};

#[test]
fn any_node_answers_and_the_other_takes_over_from_one_that_is_killed() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    // Agents, people at the command line and browsers come to either node.
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    look(&mut agent, 0, "a");
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    assert_eq!(cluster.wait_gate_at("a"), gate);
    let browser = second.http_client().with_header("cookie", &log_in(&second));
    assert_eq!(browser.get("/console/").status, 200);

    // Its paths and processes are those of one machine.
    let blocked = cluster.run_hook_at("b");
    let reason = String::from_utf8_lossy(&blocked.stderr).into_owned() + &String::from_utf8_lossy(&blocked.stdout);
    assert!(reason.contains("does not serve the realm"), "{blocked:?}");
    let alive = second.http_client().get("/livez");
    assert_eq!((alive.status, alive.body.as_str()), (200, "alive\n"));
    // A log is that of one process.
    let level = cluster.run_at("b", &["log-level", "error,countersign=warn"])["level"].clone();
    assert_ne!(cluster.run_at("a", &["log-level"])["level"], level);
    assert_eq!(cluster.run_at("b", &["log-level", "info"])["level"], "info");

    let refused = cluster.place.run(&["serve", "--config", "a.yaml", "--data", "data-c"]);
    assert!(refused.code == Some(1) && refused.err.contains("another process is node a"), "{refused:?}");

    first.kill();
    second.wait_for_log("node b serves the realm");
    assert_eq!(cluster.owner(), "b");
    assert_eq!(cluster.wait_gate_at("b"), gate);
    assert_eq!(browser.get("/console/").status, 200, "a login outlives the node");
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    take_missed(&mut agent, 3);

    // The one that was killed comes back and relays.
    drop(agent);
    let first = cluster.start("a");
    first.wait_for_log("node b serves the realm");
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    look(&mut agent, 4, "b");
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn an_owner_that_was_stopped_beyond_its_lease_does_nothing_when_it_goes_on() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");

    first.send_signal(Signal::SIGSTOP);
    second.wait_for_log("node b serves the realm");
    assert_eq!(cluster.wait_gate_at("b"), gate);
    first.send_signal(Signal::SIGCONT);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    first.wait_for_log("node b serves the realm");
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    take_missed(&mut agent, 2);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn a_realm_moves_in_order_and_nothing_is_lost_on_the_way() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (mut first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");

    let moved = cluster.run_at("a", &["cluster", "move", "b"]);
    assert_eq!(moved["realms"][0]["owner"], "b", "{moved}");
    second.wait_for_log("node b serves the realm");
    assert_eq!(cluster.wait_gate_at("a"), gate);
    let moved = cluster.run_at("b", &["cluster", "drain", "b"]);
    assert_eq!(moved["realms"][0]["owner"], "a", "{moved}");
    let unknown = cluster.place.run(&["cluster", "move", "c", "--config", "a.yaml"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("there is no node c"), "{unknown:?}");
    let refused = cluster.place.run(&["cluster", "drain", "a", "--config", "a.yaml"]);
    assert!(refused.code == Some(1) && refused.err.contains("no other node is alive"), "{refused:?}");
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);

    // A node that is ended in order leaves the realm to the other at once; a drained one stays out of it.
    assert_eq!(first.stop().code, Some(0));
    second.wait_for_log("no node serves the realm");
    drop((agent, second));
    let second = cluster.start("b");
    second.wait_for_log("node b serves the realm");
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    look(&mut agent, 2, "a");
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn nodes_go_on_after_the_database_was_killed() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    cluster.server.kill();
    first.wait_for_log("this node gives the realm up");
    cluster.server.restart();
    cluster.server.run_sql(&cluster.database, "SELECT 1");
    loop {
        if !cluster.owner().is_null() {
            break;
        }
    }
    assert_eq!(cluster.wait_gate_at("a"), gate);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    drop((first, second));
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn a_stream_resumes_at_the_other_node_without_a_gap_and_a_running_call_is_not_repeated() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let latch = Latch::default();
    cluster.place.service.set_behavior("/turn/door", ServiceBehavior::Late(latch.clone()));
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");
    let is_fact = |event: &ApiEvent| event.name != "ready";
    let mut stream = ApiEvents::open(&second.address, "?after=start", &[("cookie", &cookie)]).unwrap();
    let mut seen: Vec<ApiEvent> = stream.read_until(is_gate).into_iter().filter(is_fact).collect();
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);

    first.kill();
    second.wait_for_log("node b serves the realm");
    latch.open();
    let last = seen.last().unwrap().id.clone().unwrap();
    let resume = [("cookie", cookie.as_str()), ("last-event-id", last.as_str())];
    let mut stream = ApiEvents::open(&second.address, "?after=start", &resume).unwrap();
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    let listed = agent.pending_results(2);
    assert_eq!(listed["queued"], json!([{ "request_id": "1", "status": "error", "data": "Outcome unknown" }]));
    look(&mut agent, 3, "end");
    let end = cluster.run_at("b", &["audit", "verify"])["records"].as_u64();
    let is_end = |event: &ApiEvent| event.data["lsn"].as_u64() >= end;
    seen.extend(stream.read_until(is_end).into_iter().filter(is_fact));
    let mut whole = ApiEvents::open(&second.address, "?after=start", &[("cookie", &cookie)]).unwrap();
    let whole: Vec<ApiEvent> = whole.read_until(is_end).into_iter().filter(is_fact).collect();
    let ids = |events: &[ApiEvent]| events.iter().map(|event| event.id.clone().unwrap()).collect::<Vec<_>>();
    assert_eq!(ids(&seen), ids(&whole));
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

/// The owner is cut off from the database, without an error, and comes back.
#[test]
fn an_owner_that_is_cut_off_from_the_database_gives_the_realm_up_before_another_has_it() {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let database = server.make_database();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(StallingProxy::start(server.folder.join(".s.PGSQL.5432")));
    let urls = [proxy.url(&database), server.url("postgres", &database)];
    let cluster = ClusterFixture::with_urls(server, database, [&urls[0], &urls[1]]);
    let (first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    proxy.stall();
    second.wait_for_log("node b serves the realm");
    assert!(first.log_text().contains("this node gives the realm up"), "{}", first.log_text());
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    proxy.resume();
    first.wait_for_log("node b serves the realm");
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    take_missed(&mut agent, 2);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

/// The only node loses its lease, and takes it again as soon as the database answers.
#[test]
fn a_node_serves_again_after_each_time_that_the_database_was_silent() {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let database = server.make_database();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(StallingProxy::start(server.folder.join(".s.PGSQL.5432")));
    let url = proxy.url(&database);
    let cluster = ClusterFixture::with_urls(server, database, [&url, &url]);
    let node = cluster.start("a");
    node.wait_for_log("node a serves the realm");
    for (round, times) in (1..=3).zip([1, 2, 3]) {
        proxy.stall();
        while node.log_text().matches("this node gives the realm up").count() < times {
            std::thread::yield_now();
        }
        proxy.resume();
        // A request that comes before the old realm is closed gets 503, and may be repeated.
        let mut agent = loop {
            match AgentClient::connect_with(&node, &[]) {
                Ok(agent) => break agent,
                Err(status) => assert_eq!(status, 503),
            }
        };
        agent.authenticate(AGENT_TOKEN);
        look(&mut agent, round, "again");
    }
    cluster.verify_record();
}

/// Load balancer before two nodes, as docs/operations.md configures it. It ends with this value.
struct LoadBalancer {
    child: std::process::Child,
    address: String,
}

impl LoadBalancer {
    /// Starts nginx before the nodes at `addresses`; none where it is not installed.
    fn start_nginx(folder: &Path, addresses: [&str; 2]) -> Option<Self> {
        let program = installed_program("nginx")?;
        let address = free_address();
        let servers = guide_example(
            "nginx",
            [
                ("10.0.0.5:8443", addresses[0]),
                ("10.0.0.6:8443", addresses[1]),
                ("https://countersign", "http://countersign"),
                ("listen 443 ssl;", &format!("listen {address};")),
            ],
        );
        let file = folder.join("nginx.conf");
        let head = format!(
            "daemon off;\nmaster_process off;\npid {0}/nginx.pid;\nerror_log {0}/nginx.log;\nevents {{}}\n",
            folder.display()
        );
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/nginx-{name};\n", folder.display()))
            .concat();
        std::fs::write(&file, format!("{head}http {{\naccess_log off;\n{temporary}{servers}}}\n")).unwrap();
        let child = std::process::Command::new(program).arg("-c").arg(&file).arg("-p").arg(folder).spawn().unwrap();
        Some(Self { child, address }.wait_until_open())
    }

    /// Starts HAProxy before the nodes at `addresses`; none where it is not installed.
    fn start_haproxy(folder: &Path, addresses: [&str; 2]) -> Option<Self> {
        let program = installed_program("haproxy")?;
        let address = free_address();
        let backend = guide_example(
            "haproxy",
            [
                ("10.0.0.5:8443", addresses[0]),
                ("10.0.0.6:8443", addresses[1]),
                (" ssl verify required ca-file /etc/countersign/nodes-ca.pem", ""),
            ],
        );
        let file = folder.join("haproxy.cfg");
        let head = format!(
            "global\n    maxconn 256\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 1h\n\
             frontend port\n    bind {address}\n    default_backend countersign\n"
        );
        std::fs::write(&file, head + &backend).unwrap();
        let child = std::process::Command::new(program).args(["-db", "-q", "-f"]).arg(&file).spawn().unwrap();
        Some(Self { child, address }.wait_until_open())
    }

    fn wait_until_open(self) -> Self {
        while std::net::TcpStream::connect(&self.address).is_err() {}
        self
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of a program, if it is installed.
#[allow(clippy::print_stderr, reason = "it says why the test does nothing")]
fn installed_program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var("PATH").unwrap_or_default();
    let mut found = paths.split(':').chain(["/usr/sbin"]).map(|path| Path::new(path).join(name));
    let program = found.find(|path| path.exists());
    if program.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    program
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Returns the example of the guide in this language, with other texts in its place.
fn guide_example<const COUNT: usize>(language: &str, changes: [(&str, &str); COUNT]) -> String {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let (_, rest) = guide.split_once(&format!("```{language}\n")).unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    changes.into_iter().fold(example.to_owned(), |example, (from, to)| {
        assert!(example.contains(from), "{example}");
        example.replace(from, to)
    })
}

#[test]
fn clients_behind_nginx_go_on_at_the_other_node() {
    check_load_balancer(LoadBalancer::start_nginx);
}

#[test]
fn clients_behind_haproxy_go_on_at_the_other_node() {
    check_load_balancer(LoadBalancer::start_haproxy);
}

fn check_load_balancer(start: impl FnOnce(&Path, [&str; 2]) -> Option<LoadBalancer>) {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let Some(proxy) = start(&cluster.place.folder, [&first.address, &second.address]) else { return };
    let connect = || {
        let mut agent = AgentClient::connect_at(&proxy.address, &[]).unwrap();
        assert_eq!(agent.authenticate(AGENT_TOKEN)["result"]["status"], "authenticated");
        agent
    };
    let mut agent = connect();
    look(&mut agent, 0, "a");
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    let cookie = log_in(&second);
    let mut stream = ApiEvents::open(&proxy.address, "?after=start", &[("cookie", &cookie)]).unwrap();
    stream.read_until(is_gate);
    first.kill();
    second.wait_for_log("node b serves the realm");
    cluster.allow_at("b", &gate);
    drop(agent);
    take_missed(&mut connect(), 2);
    let mut stream = ApiEvents::open(&proxy.address, "?after=start", &[("cookie", &cookie)]).unwrap();
    stream.read_until(is_gate);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}
