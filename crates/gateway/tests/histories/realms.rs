//! Two realms in one process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use countersign_config::{self as config, ConfigFlags, logging::LogLevels};
use countersign_gateway::{
    GatewayRealm, NoticeLevel, Platform, PortAddress, PreparedRealm, RealmOptions, TraceDestination, control::FILE,
};
use countersign_http::listen::{BoundPort, ConnectionQuota};
use countersign_runtime::{
    Clock, InboxLane,
    store::{Log as _, MemoryLog, Partition},
    system_entropy,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    http,
    lifetime::{block_on_paused, wait_for, write},
};

const SETTINGS: &str = "
gateway: { host: 127.0.0.1, port: 0 }
storage: { type: sqlite, path: data/countersign.db }
sandbox: { mode: off }
agents_dir: agents
model: { provider: local, id: small }
providers:
  local:
    api: openai-completions
    base_url: http://127.0.0.1:9/v1
    api_key: key
    models: [ { id: small, context_window: 1000000, max_tokens: 4096 } ]
";

/// Realm that is served.
struct ServedRealm {
    realm: GatewayRealm,
    serving: JoinSet<()>,
    address: SocketAddr,
    folder: TempDir,
}

impl ServedRealm {
    /// Serves a realm whose rules apply `action` to every shell command.
    async fn new(action: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("config.yaml"), SETTINGS);
        write_rules(&folder, action);
        let loaded =
            config::load_config(Some(&folder.path().join("config.yaml")), &ConfigFlags::default(), &|_| None).unwrap();
        let prepared = PreparedRealm::new(loaded.config, Arc::new(|_: NoticeLevel, _: &str| {})).unwrap();
        let port = BoundPort::bind(SocketAddr::from(([127, 0, 0, 1], 0)), prepared.tls()).unwrap();
        let address = PortAddress::of_port(&port).unwrap();
        let platform = Platform {
            program: PathBuf::from("/bin/false"),
            record: Box::new(|_, views| Ok(MemoryLog::new().restart_with(views).into())),
            clock: Clock::system(),
            entropy: system_entropy(),
        };
        let levels = Arc::new(LogLevels::new(|_| Ok("info".to_owned())));
        let options = RealmOptions {
            platform,
            address,
            levels,
            collector: TraceDestination::default(),
            name: None,
            local_node_auth: None,
            node: None,
        };
        let realm = GatewayRealm::open(prepared, options).await.unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(port.serve(realm.doors(), ConnectionQuota::of_this_process(64), realm.closing()));
        Self { realm, serving, address: address.bound, folder }
    }

    async fn get(&self, path: &str) -> Value {
        let (status, reply) = wait_for(http::get(self.address, path)).await.unwrap().unwrap();
        assert_eq!(status, 200, "{path}: {reply}");
        reply
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, reply) = wait_for(http::post(self.address, path, &body, None)).await.unwrap().unwrap();
        assert!(status < 300, "{path}: {status} {reply}");
        reply
    }

    /// Opens a session and returns its id.
    async fn open_session(&self) -> String {
        self.post("/api/v1/sessions", json!({})).await["id"].as_str().unwrap().to_owned()
    }

    /// Returns the ids of the sessions that its owner holds, and the position of its newest record.
    async fn sessions(&self) -> (Vec<String>, u64) {
        let source = self.realm.handle().source(InboxLane::Request);
        let read =
            source.read_state(|engine| engine.state().sessions().map(|one| one.id().to_string()).collect::<Vec<_>>());
        let (sessions, _) = wait_for(read).await.unwrap().unwrap();
        (sessions, self.realm.handle().log().head(Partition::ZERO).await.unwrap().lsn.0)
    }

    /// Returns the metrics that only grow and are not zero.
    async fn figures(&self) -> Vec<String> {
        let (status, text) = wait_for(http::get_text(self.address, "/metrics")).await.unwrap().unwrap();
        assert_eq!(status, 200, "{text}");
        let is_counted = |line: &&str| !line.starts_with('#') && line.contains("_total") && !line.ends_with(" 0");
        text.lines().filter(is_counted).map(str::to_owned).collect()
    }

    /// Returns the verdict on a command of a shell.
    async fn verdict(&self) -> Value {
        let request = json!({ "tool": "bash", "arguments": { "command": "git push" } });
        self.post("/api/v1/policy/explain", request).await["verdict"].clone()
    }

    /// Closes it with every connection to its port, and returns its folder.
    async fn close(self) -> TempDir {
        let Self { realm, mut serving, folder, .. } = self;
        wait_for(realm.close(async { while serving.join_next().await.is_some() {} })).await.unwrap();
        assert!(serving.is_empty());
        folder
    }
}

fn has_socket(folder: &TempDir) -> bool {
    folder.path().join("data").join(FILE).exists()
}

fn write_rules(folder: &TempDir, action: &str) {
    let rules = format!("rules: [ {{ pattern: 'bash(git push*)', action: {action} }} ]\n");
    write(&folder.path().join("permissions.yaml"), &rules);
}

#[test]
fn two_realms_of_one_process_know_nothing_of_each_other() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    block_on_paused(async {
        let (one, other) = (ServedRealm::new("allow").await, ServedRealm::new("deny").await);

        let (_, other_head) = other.sessions().await;
        let session = one.open_session().await;
        assert_eq!(one.sessions().await.0, std::slice::from_ref(&session));
        assert_eq!(other.sessions().await, (Vec::new(), other_head));
        one.get(&format!("/api/v1/sessions/{session}")).await;
        let strange =
            wait_for(http::get(other.address, &format!("/api/v1/sessions/{session}"))).await.unwrap().unwrap();
        assert_eq!(strange.0, 404);

        let stream = wait_for(http::open(one.address, "/api/v1/events")).await.unwrap().unwrap();
        assert!(stream.is_some());
        let open_streams = |served: &ServedRealm| served.realm.doors().open_connections.stream.get();
        assert_eq!((open_streams(&one), open_streams(&other)), (1, 0));

        assert_eq!((one.verdict().await, other.verdict().await), (json!("allow"), json!("deny")));
        write_rules(&one.folder, "ask");
        write_rules(&other.folder, "allow");
        wait_for(one.realm.reload()).await.unwrap();
        assert_eq!((one.verdict().await, other.verdict().await), (json!("ask"), json!("deny")));
    });
}

#[test]
fn what_one_realm_does_is_in_no_figure_of_another() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    block_on_paused(async {
        let (one, other) = (ServedRealm::new("allow").await, ServedRealm::new("deny").await);
        let before = other.figures().await;
        one.post("/api/v1/sessions", json!({ "message": "hello" })).await;
        let started = "countersign_runs_started_total 1".to_owned();
        assert!(one.figures().await.contains(&started));
        assert_eq!(other.figures().await, before);
        let (one, other) = (one.realm.handle().metrics(), other.realm.handle().metrics());
        assert_eq!((one.runs_started.get(), other.runs_started.get()), (1, 0));
        assert_eq!(other.model_requests.get(), 0);
        assert_eq!(other.in_flight.get(), 0);
    });
}

#[test]
fn a_realm_that_closes_leaves_the_others_of_its_process_at_work() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    block_on_paused(async {
        let (one, other) = (ServedRealm::new("allow").await, ServedRealm::new("deny").await);
        let address = one.address;
        assert!(has_socket(&one.folder));
        let closed = one.close().await;
        assert!(!has_socket(&closed));
        assert!(wait_for(http::get(address, "/livez")).await.unwrap().is_none());

        assert!(has_socket(&other.folder));
        assert_eq!(other.verdict().await, "deny");
        let session = other.open_session().await;
        assert_eq!(other.sessions().await.0, [session]);
        other.close().await;
    });
}
