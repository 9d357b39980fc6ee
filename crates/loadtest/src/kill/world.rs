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
        gateway::{self, Gateway},
        http::Client,
        provider::Provider,
        scratch::Scratch,
        web,
    },
    kill::dice::Dice,
    load::world::Done,
};

/// Of so many deaths one is asked for with SIGTERM.
const ONE_GENTLE: u64 = 3;
/// How long a gateway may take to end after SIGTERM.
const LEAVE: Duration = Duration::from_secs(30);

const RULES: &str = r#"
defaults: [ { pattern: "*", action: ask } ]
rules:
  - { pattern: "look(*", action: allow }
  - { pattern: "turn(free_*", action: allow }
"#;

/// What everybody who plays shares.
pub(crate) struct Stage {
    /// Where the gateway is now.
    pub(crate) address: watch::Receiver<SocketAddr>,
    /// What the service was told to do.
    pub(crate) done: Done,
    is_over: AtomicBool,
    /// How far who follows has to follow; 0 until that is known.
    until: AtomicU64,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    wrongs: Mutex<Vec<String>>,
}

impl Stage {
    /// Whether nobody begins anything new.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Who follows may stop behind the record at `until`.
    pub(crate) fn leave(&self, until: u64) {
        self.until.store(until, Ordering::Relaxed);
    }

    /// Whether somebody who saw this much has seen enough.
    pub(crate) fn has_seen(&self, seen: &[(u64, String)]) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until > 0 && seen.last().is_some_and(|(lsn, _)| *lsn >= until)
    }

    /// Something was done as it should be.
    pub(crate) fn did(&self, what: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    /// A promise was broken.
    pub(crate) fn wrong(&self, what: String) {
        self.wrongs.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn now_at(&self) -> SocketAddr {
        *self.address.borrow()
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::connect(self.now_at()).await
    }
}

/// The name of an agent, and what it shows.
pub(crate) fn agent(number: usize) -> (String, String) {
    (format!("a{number}"), format!("token-of-agent-{number}-to-be-killed"))
}

/// The gateway of the moment.
pub(crate) struct Mortal {
    binary: PathBuf,
    gateway: Option<Gateway>,
    tell: watch::Sender<SocketAddr>,
    dice: Dice,
    /// Deaths by SIGKILL, and by SIGTERM.
    pub(crate) deaths: [u64; 2],
    /// The longest that it took from a start to its being ready.
    pub(crate) slowest: Duration,
}

impl Mortal {
    /// Starts the first one, with everything that it talks to.
    pub(crate) fn start(binary: &Path, agents: usize, seed: u64) -> anyhow::Result<(Self, Arc<Stage>)> {
        let done = Done::default();
        let counted = done.clone();
        let pauses = Mutex::new(Dice::new(seed ^ 1));
        let service = web::serve(move |asked| {
            counted.did(&asked.path);
            // A death between what was done and its answer is what leaves a call in doubt.
            let pause = pauses.lock().unwrap_or_else(PoisonError::into_inner).below(40);
            std::thread::sleep(Duration::from_millis(pause));
            r#"{"state":"on"}"#.to_owned()
        })?;
        let model = Provider::start(["I ", "have ", "heard."].map(str::to_owned).to_vec())?;
        let config = config(service, &model.base_url(), agents);
        let gateway = Gateway::start_in(binary, Scratch::new("kill")?, &config, RULES)?;
        let (tell, address) = watch::channel(gateway.address.parse().context("an address")?);
        let stage = Stage {
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
            dice: Dice::new(seed),
            deaths: [0; 2],
            slowest: Duration::ZERO,
        };
        Ok((mortal, Arc::new(stage)))
    }

    /// Lives for a while, dies, and comes back.
    pub(crate) fn die(&mut self, longest: Duration) -> anyhow::Result<()> {
        // Most lives are short: recovery itself is to be interrupted too.
        let most = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX) >> self.dice.below(5);
        std::thread::sleep(Duration::from_millis(self.dice.below(most.max(1))));
        let gateway = self.gateway.take().context("there is no gateway")?;
        let is_gentle = self.dice.below(ONE_GENTLE) == 0;
        let begun = Instant::now();
        gateway.signal(if is_gentle { Signal::SIGTERM } else { Signal::SIGKILL })?;
        let (status, scratch) = gateway.ended()?;
        if is_gentle && (!status.success() || begun.elapsed() > LEAVE) {
            bail!("SIGTERM ended it with {status} after {:?}", begun.elapsed());
        }
        self.deaths[usize::from(is_gentle)] += 1;
        let begun = Instant::now();
        let gateway = Gateway::run(&self.binary, scratch)?;
        self.slowest = self.slowest.max(begun.elapsed());
        self.tell.send(gateway.address.parse().context("an address")?).context("nobody plays any more")?;
        self.gateway = Some(gateway);
        Ok(())
    }

    /// Ends it for good and has its record checked by the command for that. Says what the command said.
    pub(crate) fn verify(mut self) -> anyhow::Result<String> {
        let gateway = self.gateway.take().context("there is no gateway")?;
        gateway.signal(Signal::SIGTERM)?;
        let (status, scratch) = gateway.ended()?;
        if !status.success() {
            bail!("the last SIGTERM ended it with {status}");
        }
        let output = std::process::Command::new(&self.binary)
            .args(["audit", "verify", "--config", "config.yaml"])
            .current_dir(scratch.path())
            .env("HOME", scratch.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            bail!("audit verify: {said} {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(said)
    }
}

fn config(service: SocketAddr, base_url: &str, agents: usize) -> String {
    let agents: Vec<String> = (0..agents)
        .map(|number| {
            let (id, token) = agent(number);
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
        gateway::desk(service),
        agents.concat()
    )
}
