//! Runs a target on mutated input for minutes and stops at the first panic or hang. Started by `cargo xtask fuzz`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use countersign_testkit::fuzz::{FuzzTarget, TARGETS};

type FuzzResult<T> = Result<T, String>;

/// Longest time for one input; a longer one is a finding.
const HANG_LIMIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match FuzzOptions::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

struct FuzzOptions {
    target: &'static FuzzTarget,
    minutes: f64,
    seed: u64,
    findings: PathBuf,
    replay: Option<PathBuf>,
}

impl FuzzOptions {
    fn parse(mut arguments: impl Iterator<Item = String>) -> FuzzResult<Self> {
        let name = arguments.next().ok_or("name a target")?;
        let target = TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("no target {name:?}"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let mut options = Self { target, minutes: 5.0, seed: now, findings: PathBuf::from("."), replay: None };
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            let wrong = || format!("invalid value of {argument}: {value:?}");
            match argument.as_str() {
                "--minutes" => options.minutes = value.parse().map_err(|_| wrong())?,
                "--seed" => options.seed = value.parse().map_err(|_| wrong())?,
                "--findings" => options.findings = value.into(),
                "--replay" => options.replay = Some(value.into()),
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        Ok(options)
    }
}

fn run(options: &FuzzOptions) -> FuzzResult<()> {
    let FuzzOptions { target, seed, .. } = options;
    if let Some(file) = &options.replay {
        (target.decode)(&fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?);
        println!("{}: {} holds", target.name, file.display());
        return Ok(());
    }
    let corpus = target.load_corpus().map_err(|error| format!("the corpus of {}: {error}", target.name))?;
    println!("{}: seed {seed}, {} inputs to begin with, {} minutes", target.name, corpus.len(), options.minutes);
    let watch = HangDetector::start(options);
    let panic_message = silence_panics();
    let begun = Instant::now();
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let mut reported = begun;
    let mut tried = 0_u64;
    while begun.elapsed() < length {
        let input = target.make_input(&corpus, *seed, tried);
        watch.begin_input(&input);
        if panic::catch_unwind(AssertUnwindSafe(|| (target.decode)(&input))).is_err() {
            let message = panic_message.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(report_finding(options, tried, &input, &message));
        }
        tried += 1;
        if reported.elapsed() > Duration::from_secs(30) {
            reported = Instant::now();
            println!("{}: {tried} inputs, {:.1} minutes", target.name, begun.elapsed().as_secs_f64() / 60.0);
        }
    }
    println!("{}: {tried} inputs, {:.1} minutes, no finding", target.name, begun.elapsed().as_secs_f64() / 60.0);
    Ok(())
}

/// Stores the input and returns the command that repeats its failure.
fn report_finding(options: &FuzzOptions, tried: u64, input: &[u8], what: &str) -> String {
    let FuzzOptions { target: FuzzTarget { name, .. }, seed, findings, .. } = options;
    let file = findings.join(format!("{name}-{seed}-{tried}"));
    let kept = fs::create_dir_all(findings).and_then(|()| fs::write(&file, input));
    let again = match kept {
        Ok(()) => format!("again: cargo xtask fuzz {name} --replay {}", file.display()),
        Err(error) => format!("not kept ({error}): {:?}", String::from_utf8_lossy(input)),
    };
    format!("{name}: {what}\nseed {seed}, input {tried}, {} bytes\n{again}", input.len())
}

/// Takes the messages of panics, of which only the last matters.
fn silence_panics() -> Arc<Mutex<String>> {
    let message = Arc::new(Mutex::new(String::new()));
    let hook_message = Arc::clone(&message);
    panic::set_hook(Box::new(move |panic| {
        *hook_message.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    message
}

/// Watchdog that ends the process if one input takes too long.
struct HangDetector {
    begun: Arc<AtomicU64>,
    input: Arc<Mutex<Vec<u8>>>,
}

impl HangDetector {
    fn start(options: &FuzzOptions) -> Self {
        let watch = Self { begun: Arc::default(), input: Arc::default() };
        let (begun, input) = (Arc::clone(&watch.begun), Arc::clone(&watch.input));
        let options = FuzzOptions { replay: None, findings: options.findings.clone(), ..*options };
        thread::spawn(move || {
            loop {
                let before = begun.load(Ordering::Relaxed);
                thread::sleep(HANG_LIMIT);
                if begun.load(Ordering::Relaxed) == before {
                    let input = input.lock().unwrap_or_else(PoisonError::into_inner);
                    eprintln!("fuzz: {}", report_finding(&options, before, &input, "took over ten seconds"));
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    fn begin_input(&self, input: &[u8]) {
        let mut kept = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
        kept.extend_from_slice(input);
        drop(kept);
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}
