//! A gateway that dies again and again, and where to find it now.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use tokio::sync::watch;

use crate::{
    fixture::{
        gateway::{self, GatewayProcess},
        http::AsyncHttpClient,
        provider::ProviderStub,
        scratch::ScratchFolder,
        web,
    },
    kill::split_mix::SplitMix64,
    load::load_fixture::EffectCounts,
};

/// Number of deaths of which one is by SIGTERM.
const ONE_GENTLE: u64 = 3;
/// Time for a gateway to end after SIGTERM.
const LEAVE: Duration = Duration::from_secs(30);

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules:
  - { pattern: "look(*", action: allow }
  - { pattern: "turn(free_*", action: allow }
"#;

/// State that all clients share.
pub(crate) struct KillRunState {
    /// Current address of the gateway.
    pub(crate) address: watch::Receiver<SocketAddr>,
    /// Number of times that the service had to do each thing.
    pub(crate) done: EffectCounts,
    is_over: AtomicBool,
    /// Position up to which followers have to follow; 0 until that is known.
    until: AtomicU64,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    wrongs: Mutex<Vec<String>>,
}

impl KillRunState {
    /// Reports whether the clients must begin nothing new.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_clients(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Lets followers stop after the record at `until`.
    pub(crate) fn release_followers(&self, until: u64) {
        self.until.store(until, Ordering::Relaxed);
    }

    /// Reports whether a follower that saw these events may stop.
    pub(crate) fn has_seen(&self, seen: &[(u64, String)]) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until > 0 && seen.last().is_some_and(|(lsn, _)| *lsn >= until)
    }

    /// Records a success.
    pub(crate) fn record_success(&self, what: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    /// Records a broken promise.
    pub(crate) fn record_failure(&self, what: String) {
        self.wrongs.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn success_counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn failure_texts(&self) -> Vec<String> {
        self.wrongs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn now_at(&self) -> SocketAddr {
        *self.address.borrow()
    }

    pub(crate) async fn connect_client(&self) -> anyhow::Result<AsyncHttpClient> {
        AsyncHttpClient::connect(self.now_at()).await
    }
}

/// Returns the name of an agent, and what it shows.
pub(crate) fn agent_credentials(number: usize) -> (String, String) {
    (format!("a{number}"), format!("token-of-agent-{number}-to-be-killed"))
}

/// The gateway of the moment.
pub(crate) struct RestartingGateway {
    binary: PathBuf,
    gateway: Option<GatewayProcess>,
    tell: watch::Sender<SocketAddr>,
    dice: SplitMix64,
    /// Deaths by SIGKILL, and by SIGTERM.
    pub(crate) deaths: [u64; 2],
    /// The longest that it took from a start to its being ready.
    pub(crate) slowest: Duration,
}

impl RestartingGateway {
    /// Starts the first one, with everything that it talks to.
    pub(crate) fn start(binary: &Path, agents: usize, seed: u64) -> anyhow::Result<(Self, Arc<KillRunState>)> {
        let done = EffectCounts::default();
        let counted = done.clone();
        let pauses = Mutex::new(SplitMix64::new(seed ^ 1));
        let service = web::start_server(move |request| {
            counted.count_request(&request.path);
            // A death between what was done and its answer is what leaves a call in doubt.
            let pause = pauses.lock().unwrap_or_else(PoisonError::into_inner).next_below(40);
            std::thread::sleep(Duration::from_millis(pause));
            r#"{"state":"on"}"#.to_owned()
        })?;
        let model = ProviderStub::start(["I ", "have ", "heard."].map(str::to_owned).to_vec())?;
        let config = config_text(service, &model.base_url(), agents);
        let gateway = GatewayProcess::start_in(binary, ScratchFolder::new("kill")?, &config, RULES)?;
        let (tell, address) = watch::channel(gateway.address.parse().context("the address of the gateway is invalid")?);
        let stage = KillRunState {
            address,
            done,
            is_over: AtomicBool::new(false),
            until: AtomicU64::new(0),
            counts: Mutex::default(),
            wrongs: Mutex::default(),
        };
        let mortal = Self {
            binary: binary.to_owned(),
            gateway: Some(gateway),
            tell,
            dice: SplitMix64::new(seed),
            deaths: [0; 2],
            slowest: Duration::ZERO,
        };
        Ok((mortal, Arc::new(stage)))
    }

    /// Lives for a while, dies, and comes back.
    pub(crate) fn kill_and_restart(&mut self, longest: Duration) -> anyhow::Result<()> {
        // Most lives are short: recovery itself is to be interrupted too.
        let most = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX) >> self.dice.next_below(5);
        std::thread::sleep(Duration::from_millis(self.dice.next_below(most.max(1))));
        let gateway = self.gateway.take().context("the gateway does not run")?;
        let is_gentle = self.dice.next_below(ONE_GENTLE) == 0;
        let begun = Instant::now();
        gateway.send_signal(if is_gentle { Signal::SIGTERM } else { Signal::SIGKILL })?;
        let (status, scratch) = gateway.wait_for_exit()?;
        if is_gentle && (!status.success() || begun.elapsed() > LEAVE) {
            bail!("the gateway exited with {status} {:?} after SIGTERM", begun.elapsed());
        }
        self.deaths[usize::from(is_gentle)] += 1;
        let begun = Instant::now();
        let gateway = GatewayProcess::run(&self.binary, scratch)?;
        self.slowest = self.slowest.max(begun.elapsed());
        self.tell
            .send(gateway.address.parse().context("the address of the gateway is invalid")?)
            .context("every client has ended")?;
        self.gateway = Some(gateway);
        Ok(())
    }

    /// Stops it and has the command check its record. Returns the output of the command.
    pub(crate) fn verify_record(mut self) -> anyhow::Result<String> {
        let gateway = self.gateway.take().context("the gateway does not run")?;
        gateway.send_signal(Signal::SIGTERM)?;
        let (status, scratch) = gateway.wait_for_exit()?;
        if !status.success() {
            bail!("the gateway exited with {status} after the last SIGTERM");
        }
        let output = std::process::Command::new(&self.binary)
            .args(["audit", "verify", "--config", "config.yaml"])
            .current_dir(scratch.path())
            .env("HOME", scratch.path())
            .output()?;
        let report = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            bail!("audit verify: {report} {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(report)
    }
}

fn config_text(service: SocketAddr, base_url: &str, agents: usize) -> String {
    let agents: Vec<String> = (0..agents)
        .map(|number| {
            let (id, token) = agent_credentials(number);
            format!("  - {{ id: {id}, token: {token} }}\n")
        })
        .collect();
    format!(
        "{}storage: {{ type: sqlite, path: data/countersign.db }}
rate_limit: {{ max_requests_per_minute: 1000000000, max_pending_approvals: 64 }}
model: {{ provider: local, id: small-1 }}
providers:
  local:
    api: openai-completions
    base_url: \"{base_url}\"
    api_key: key
    models: [ {{ id: small-1, context_window: 1000000, max_tokens: 4096 }} ]
agents:
{}",
        gateway::service_config(service),
        agents.concat()
    )
}
