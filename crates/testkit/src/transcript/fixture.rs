//! Adapters in process: on real files, with a scripted model, and a time that only the transcript moves.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc as threads},
    thread,
    time::Duration,
};

use bytes::Bytes;
use countersign_adapter_gjc as gjc;
use countersign_adapter_omp as omp;
use countersign_adapter_omp::{ProcessContext, StartError};
use countersign_agent_dir::AgentProduct;
use countersign_core::time::Millis;
use countersign_models::scripted::ScriptedModel;
use countersign_protocol::lines::DecodedLine;
use countersign_runtime::Clock;
use countersign_tools::exec::ExecLauncher;
use tempfile::TempDir;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, mpsc},
    task::{JoinHandle, LocalSet},
};

/// Start time of a transcript: 2027-01-15 08:00:00 UTC, in milliseconds since 1970.
pub(super) const START: u64 = 1_800_000_000_000;
/// Interval at which a wait checks its length: real time, which is what threads and children need.
const BEAT: Duration = Duration::from_millis(50);
/// Number of beats that an expected event is waited for.
const MAX_BEATS: u32 = 400;
/// Number of beats without a frame that count as quiet, if the next frame is not known.
pub(super) const QUIET: u32 = 20;
/// Number of beats that an ending has before time moves for it.
const GRACE: u32 = 10;
/// Suffix of the ids of the fixture's own questions.
const OWN: &str = "<stage>";

const MODELS: &str = "providers:
  local:
    baseUrl: http://127.0.0.1:1/v1
    apiKey: sk-local
    api: openai-completions
    models:
      - { id: small, name: Small, reasoning: true, input: [text, image], cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 0.2 }, contextWindow: 128000, maxTokens: 8192 }
      - { id: plain, name: Plain, reasoning: false, input: [text], cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 0.2 }, contextWindow: 64000, maxTokens: 4096 }
";

/// Files, a model, and the process image that works with them, while there is one.
pub(super) struct PlaybackFixture {
    _folder: TempDir,
    root: PathBuf,
    launcher: ExecLauncher,
    pub(super) model: ScriptedModel,
    pub(super) keeps_sessions: bool,
    /// Product whose hosts the adapters are for.
    pub(super) product: AgentProduct,
    pub(super) flags: BTreeMap<String, Vec<String>>,
    elapsed: Duration,
    beat: Arc<Notify>,
    image: Option<ProcessImage>,
}

/// State that dies with a process.
struct ProcessImage {
    adapters: BTreeMap<String, RunningAdapter>,
    local: LocalSet,
    runtime: Runtime,
    /// Guard of the paused clock: while it exists time stands still though all tasks are idle.
    still: threads::Sender<()>,
}

struct RunningAdapter {
    input: Option<mpsc::Sender<DecodedLine>>,
    output: mpsc::Receiver<Bytes>,
    seen: VecDeque<String>,
    task: JoinHandle<Result<(), StartError>>,
}

impl PlaybackFixture {
    pub(super) fn new(launcher: ExecLauncher) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().canonicalize()?;
        for name in ["agent", "home", "sessions", "work"] {
            fs::create_dir(root.join(name))?;
        }
        fs::write(root.join("agent/models.yml"), MODELS)?;
        let beat = Arc::new(Notify::new());
        let beating = Arc::downgrade(&beat);
        thread::spawn(move || {
            loop {
                thread::park_timeout(BEAT);
                match beating.upgrade() {
                    Some(beat) => beat.notify_one(),
                    None => break,
                }
            }
        });
        Ok(Self {
            _folder: folder,
            root,
            launcher,
            model: ScriptedModel::default(),
            keeps_sessions: false,
            product: AgentProduct::Omp,
            flags: BTreeMap::new(),
            elapsed: Duration::ZERO,
            beat,
            image: None,
        })
    }

    pub(super) fn root_path(&self) -> &Path {
        &self.root
    }

    /// Returns the adapters that are open, or were and have ended.
    pub(super) fn adapter_names(&self) -> Vec<String> {
        self.image.iter().flat_map(|image| image.adapters.keys().cloned()).collect()
    }

    /// Opens the adapter of that name, unless it is open.
    pub(super) fn open_adapter(&mut self, name: &str) -> Result<(), String> {
        let given = self.flags.get(name).cloned().unwrap_or_default();
        let mut flags: Vec<String> = ["--mode", "rpc", "--cwd"].map(str::to_owned).to_vec();
        flags.push(self.root.join("work").display().to_string());
        if !given.iter().any(|flag| ["--model", "--models", "--continue", "--resume"].contains(&flag.as_str())) {
            flags.extend(["--model", "local/small"].map(str::to_owned));
        }
        if self.keeps_sessions {
            flags.extend(["--session-dir".to_owned(), self.root.join("sessions").display().to_string()]);
        } else {
            flags.push("--no-session".to_owned());
        }
        flags.extend(given);
        let flags = omp::flags::parse_for(self.product, flags)?;
        let product = self.product;
        let (root, launcher, model) = (self.root.clone(), self.launcher.clone(), self.model.clone());
        let now = Millis(START) + self.elapsed;
        let image = self.image.get_or_insert_with(ProcessImage::new);
        if image.adapters.contains_key(name) {
            return Ok(());
        }
        let (input, lines) = mpsc::channel(256);
        let (output, frames) = mpsc::channel(65_536);
        let task = image.local.spawn_local(async move {
            let agent = match product {
                AgentProduct::Omp => "PI_CODING_AGENT_DIR",
                AgentProduct::Gjc => "GJC_CODING_AGENT_DIR",
            };
            let variables = [("HOME", root.join("home")), (agent, root.join("agent"))];
            let surroundings = ProcessContext {
                environment: variables.iter().map(|(name, path)| (*name, path.display().to_string())).collect(),
                launcher,
                clock: Clock::starting_at(now),
                models: Arc::new(model),
                process: omp::LaunchEnvironment::from_current().unwrap_or_default(),
            };
            Box::pin(omp::start_in(
                flags,
                surroundings,
                gjc::configured_dialect,
                lines,
                output,
                |_: &str| {},
                std::future::pending(),
            ))
            .await
        });
        image.adapters.insert(
            name.to_owned(),
            RunningAdapter { input: Some(input), output: frames, seen: VecDeque::new(), task },
        );
        match self.next_frame(name)? {
            Some(frame) if frame == r#"{"type":"ready"}"# => Ok(()),
            Some(frame) => Err(format!("the first frame is not ready: {frame}")),
            // A script that expects a failed start reads its error.
            None => Ok(()),
        }
    }

    /// Sends a line to an adapter.
    pub(super) fn send_line(&mut self, name: &str, line: &str) -> Result<(), String> {
        self.open_adapter(name)?;
        let (image, adapter) = self.running_adapter(name)?;
        let Some(input) = &adapter.input else { return Err("the input is closed".to_owned()) };
        let line = DecodedLine::Text(line.to_owned());
        image.block_on(input.send(line)).map_err(|_| "the adapter has closed".to_owned())
    }

    /// Returns the next frame of an adapter, `None` if it has ended.
    ///
    /// # Errors
    /// If nothing comes.
    pub(super) fn next_frame(&mut self, name: &str) -> Result<Option<String>, String> {
        let beat = Arc::clone(&self.beat);
        let (image, adapter) = self.running_adapter(name)?;
        if let Some(frame) = adapter.seen.pop_front() {
            return Ok(Some(frame));
        }
        let frame = image.block_on(within_beats(&beat, MAX_BEATS, adapter.output.recv()));
        frame.map(|frame| frame.as_ref().map(frame_text)).ok_or_else(|| "no frame came".to_owned())
    }

    /// Returns every frame that comes until none did for so many beats, adapter by adapter.
    pub(super) fn drain_frames(&mut self, quiet: u32) -> Vec<(String, String)> {
        let beat = Arc::clone(&self.beat);
        let Some(image) = &mut self.image else { return Vec::new() };
        let mut frames = Vec::new();
        loop {
            let mut is_quiet = true;
            for (name, adapter) in &mut image.adapters {
                while let Some(frame) = adapter.seen.pop_front() {
                    frames.push((name.clone(), frame));
                }
                let more = image.local.block_on(&image.runtime, within_beats(&beat, quiet, adapter.output.recv()));
                if let Some(Some(frame)) = more {
                    frames.push((name.clone(), frame_text(&frame)));
                    is_quiet = false;
                }
            }
            if is_quiet {
                frames.sort_by(|(one, _), (other, _)| one.cmp(other));
                return frames;
            }
        }
    }

    /// Moves time at once. Earlier work is under way by then.
    pub(super) fn advance_time(&mut self, by: Duration) -> Result<(), String> {
        self.wait_processed()?;
        self.elapsed += by;
        if let Some(image) = &self.image {
            image.local.block_on(&image.runtime, tokio::time::advance(by));
        }
        Ok(())
    }

    /// Waits until every adapter has processed its earlier lines: each answers a question that is not shown.
    fn wait_processed(&mut self) -> Result<(), String> {
        for name in self.adapter_names() {
            for _ in 0..3 {
                let beat = Arc::clone(&self.beat);
                let (image, adapter) = self.running_adapter(&name)?;
                let Some(input) = adapter.input.as_ref().filter(|_| !adapter.task.is_finished()) else { break };
                let line = DecodedLine::Text(format!(r#"{{"id":"{OWN}","type":"get_last_assistant_text"}}"#));
                image.block_on(input.send(line)).map_err(|_| "the adapter has closed".to_owned())?;
                loop {
                    let frame = image.block_on(within_beats(&beat, MAX_BEATS, adapter.output.recv()));
                    let frame = frame_text(&frame.flatten().ok_or("the adapter does not answer")?);
                    if frame.contains(OWN) {
                        break;
                    }
                    adapter.seen.push_back(frame);
                }
            }
        }
        Ok(())
    }

    /// Waits for a file below the root.
    pub(super) fn wait_for_file(&mut self, path: &str) -> Result<(), String> {
        let path = self.root.join(path);
        self.wait_until(|| path.exists())
    }

    /// Waits until the model got requests for all its replies.
    pub(super) fn wait_for_model(&mut self) -> Result<(), String> {
        let model = self.model.clone();
        self.wait_until(|| model.replies_left() == 0)
    }

    fn wait_until(&mut self, holds: impl Fn() -> bool) -> Result<(), String> {
        let Some(image) = &self.image else { return Err("the process does not run".to_owned()) };
        image.local.block_on(&image.runtime, async {
            for _ in 0..MAX_BEATS {
                if holds() {
                    return Ok(());
                }
                self.beat.notified().await;
            }
            Err("the awaited state was not reached".to_owned())
        })
    }

    /// Kills the process at this point, and opens its adapters again.
    pub(super) fn restart_process(&mut self) -> Result<(), String> {
        let names = self.adapter_names();
        self.kill_process()?;
        names.iter().try_for_each(|name| self.open_adapter(name))
    }

    /// Closes the input of every adapter, and lets work in flight end. Frames that came can still be read.
    pub(super) fn close_inputs(&mut self) -> Result<(), String> {
        let beat = Arc::clone(&self.beat);
        let Some(image) = &mut self.image else { return Ok(()) };
        for adapter in image.adapters.values_mut() {
            adapter.input = None;
        }
        for _ in 0..MAX_BEATS / GRACE {
            for _ in 0..GRACE {
                let mut tasks = image.adapters.values().map(|adapter| &adapter.task);
                if tasks.all(JoinHandle::is_finished) {
                    return Ok(());
                }
                image.local.block_on(&image.runtime, beat.notified());
            }
            // Some endings wait for a moment, and time stands still.
            image.local.block_on(&image.runtime, tokio::time::advance(Duration::from_millis(20)));
        }
        Err("the adapter did not end".to_owned())
    }

    /// Returns the result of an adapter, which must have ended.
    pub(super) fn adapter_outcome(&mut self, name: &str) -> Result<Result<(), String>, String> {
        let beat = Arc::clone(&self.beat);
        let (image, adapter) = self.running_adapter(name)?;
        let ended =
            image.block_on(within_beats(&beat, MAX_BEATS, &mut adapter.task)).ok_or("the adapter has not ended")?;
        let outcome = ended.map_err(|error| error.to_string())?;
        // It is read once only.
        if let Some(image) = &mut self.image {
            image.adapters.remove(name);
        }
        Ok(outcome.map_err(|error| error.to_string()))
    }

    /// Drops the state of a process, and waits until its logs can be opened by another.
    fn kill_process(&mut self) -> Result<(), String> {
        let Some(ProcessImage { adapters, local, runtime, still }) = self.image.take() else { return Ok(()) };
        drop(adapters);
        drop(local);
        drop(still);
        runtime.shutdown_timeout(BEAT * MAX_BEATS);
        let logs = fs::read_dir(self.root.join("agent/countersign")).into_iter().flatten().flatten();
        for lock in logs.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "lock")) {
            let file = fs::File::options().write(true).open(&lock).map_err(|error| error.to_string())?;
            let is_free = (0..MAX_BEATS).any(|_| {
                let is_free = file.try_lock().is_ok();
                if !is_free {
                    thread::park_timeout(BEAT / 10);
                }
                is_free
            });
            if !is_free {
                return Err(format!("{} is still locked", lock.display()));
            }
        }
        Ok(())
    }

    fn running_adapter(&mut self, name: &str) -> Result<(LocalExecutor<'_>, &mut RunningAdapter), String> {
        let Some(ProcessImage { adapters, local, runtime, .. }) = &mut self.image else {
            return Err("the process does not run".to_owned());
        };
        let adapter = adapters.get_mut(name).ok_or_else(|| format!("there is no adapter {name:?}"))?;
        Ok((LocalExecutor { local, runtime }, adapter))
    }
}

impl Drop for PlaybackFixture {
    fn drop(&mut self) {
        let _ = self.kill_process();
    }
}

impl ProcessImage {
    fn new() -> Self {
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().expect("the runtime starts");
        let (still, until) = threads::channel::<()>();
        // A paused clock moves by itself when all tasks are idle, unless something blocks.
        runtime.spawn_blocking(move || until.recv());
        Self { adapters: BTreeMap::new(), local: LocalSet::new(), runtime, still }
    }
}

/// Executor of the futures of one image.
struct LocalExecutor<'a> {
    local: &'a LocalSet,
    runtime: &'a Runtime,
}

impl LocalExecutor<'_> {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.local.block_on(self.runtime, future)
    }
}

/// Returns the result of `future`, if it completes within so many beats.
async fn within_beats<T>(beat: &Notify, beats: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..beats {
        tokio::select! {
            biased;
            value = &mut future => return Some(value),
            () = beat.notified() => {}
        }
    }
    None
}

/// Returns a frame without its line end.
fn frame_text(frame: &Bytes) -> String {
    String::from_utf8_lossy(frame).trim_end_matches('\n').to_owned()
}
