//! Runs a decoder on mutated input for minutes and stops at the first panic or hang.
//!
//! Works on stable Rust: no coverage steers it, so the corpus beside it holds one input for each thing a decoder knows, and
//! the dictionaries hold the words that decide. Started by `cargo xtask fuzz`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use countersign_models::Api;

type Outcome<T> = Result<T, String>;

/// Longest input that mutations make.
const LONGEST: usize = 64 * 1024;

/// An input that takes longer than this is a finding.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A decoder with the words that it knows.
struct Target {
    name: &'static str,
    decode: fn(&[u8]),
    words: &'static [&'static str],
}

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "true",
    "-0",
    "1e999",
    "18446744073709551616",
    "\"\"",
    "\\u0000",
    "\\ud800",
];

const TARGETS: &[Target] = &[
    Target {
        name: "lines",
        decode: countersign_protocol::lines::fuzz,
        words: &["\n", "\r\n", "\r", "\n\n", "\u{2028}", "\u{feff}", "{}", "\0"],
    },
    Target {
        name: "commands",
        decode: countersign_protocol::omp::command::fuzz,
        words: &[
            "\"type\":",
            "\"id\":null",
            "\"prompt\"",
            "\"steer\"",
            "\"images\":[]",
            "\"message\":",
            "\"mode\":\"all\"",
        ],
    },
    Target {
        name: "gjc-commands",
        decode: countersign_protocol::gjc::command::fuzz,
        words: &[
            "\"type\":",
            "\"id\":\"c\"",
            "\"set_host_tools\"",
            "\"host_tool_result\"",
            "\"content\":[{\"type\":\"text\"}]",
            "\"workflow_gate_response\"",
            "\"answer\":",
            "\"protocol_version_range\":{\"min\":2,\"max\":2}",
            "\"status\":\"value\"",
        ],
    },
    Target {
        name: "session-file",
        decode: countersign_protocol::omp::session_file::fuzz,
        words: &[
            "\n",
            "\"version\":1",
            "\"parentId\":null",
            "\"type\":\"compaction\"",
            "\"firstKeptEntryIndex\":",
            "\"id\":",
        ],
    },
    Target {
        name: "gsv",
        decode: countersign_protocol::gsv::frame::fuzz,
        words: &[
            "\"type\":\"req\"",
            "\"id\":\"1\"",
            "\"method\":\"chat.send\"",
            "\"channel.inbound\"",
            "\"session.patch\"",
            "\"cron.add\"",
            "\"config.set\"",
            "\"workspace.read\"",
            "\"params\":",
            "\"path\":\"../\"",
            "\"ok\":false",
            "\"error\":",
        ],
    },
    Target {
        name: "openai-completions",
        decode: |bytes| countersign_models::fuzz(Api::OpenaiCompletions, bytes),
        words: &[
            "data: ",
            "[DONE]",
            "\n\n",
            "\r\n\r\n",
            "\"delta\":",
            "\"tool_calls\":",
            "\"index\":",
            "\"error\":",
            "\"usage\":",
        ],
    },
    Target {
        name: "openai-responses",
        decode: |bytes| countersign_models::fuzz(Api::OpenaiResponses, bytes),
        words: &[
            "data: ",
            "event: ",
            "\n\n",
            "response.completed",
            "response.failed",
            "\"output_index\":",
            "\"item\":",
        ],
    },
    Target {
        name: "anthropic-messages",
        decode: |bytes| countersign_models::fuzz(Api::AnthropicMessages, bytes),
        words: &[
            "data: ",
            "event: ",
            "\n\n",
            "content_block_start",
            "content_block_stop",
            "\"index\":",
            "message_stop",
        ],
    },
    Target {
        name: "google-generative-ai",
        decode: |bytes| countersign_models::fuzz(Api::GoogleGenerativeAi, bytes),
        words: &[
            "data: ",
            "\n\n",
            "\"parts\":",
            "\"functionCall\":",
            "\"finishReason\":",
            "\"thought\":true",
            "\"candidates\":[]",
        ],
    },
    Target {
        name: "shell",
        decode: countersign_core::policy::fuzz,
        words: &[
            "$(", ")", "`", "${", "}", "$((", "<<EOF\n", "EOF\n", "&&", "||", ";", "|", ">", "2>&1", "\\\n", "'", "\"",
            "<(", "!", "sudo ", "env ",
        ],
    },
];

struct Options {
    target: &'static Target,
    minutes: f64,
    seed: u64,
    findings: PathBuf,
    replay: Option<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let name = arguments.next().ok_or("which target?")?;
        let target = TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("no target {name:?}"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let mut options = Self { target, minutes: 5.0, seed: now, findings: PathBuf::from("."), replay: None };
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
            let wrong = || format!("{argument} cannot be {value:?}");
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

fn run(options: &Options) -> Outcome<()> {
    let Options { target, seed, .. } = options;
    if let Some(file) = &options.replay {
        (target.decode)(&fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?);
        println!("{}: {} holds", target.name, file.display());
        return Ok(());
    }
    let corpus = corpus(target.name)?;
    println!("{}: seed {seed}, {} inputs to begin with, {} minutes", target.name, corpus.len(), options.minutes);
    let watch = Watch::start(options);
    let said = silence_panics();
    let begun = Instant::now();
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let mut reported = begun;
    let mut tried = 0_u64;
    while begun.elapsed() < length {
        let input = mutated(&corpus, target.words, &mut Dice::new(*seed, tried));
        watch.begin(&input);
        if panic::catch_unwind(AssertUnwindSafe(|| (target.decode)(&input))).is_err() {
            let said = said.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(found(options, tried, &input, &said));
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

/// The inputs to begin with: every file of the target's folder, in order, and the empty one.
fn corpus(target: &str) -> Outcome<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_corpus").join(target);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.sort();
    let mut corpus = vec![Vec::new()];
    for file in files {
        corpus.push(fs::read(file).map_err(failed)?);
    }
    Ok(corpus)
}

/// Keeps the input for another day and says how to see it fail again.
fn found(options: &Options, tried: u64, input: &[u8], what: &str) -> String {
    let Options { target: Target { name, .. }, seed, findings, .. } = options;
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
    let said = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&said);
    panic::set_hook(Box::new(move |panic| {
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    said
}

/// Ends the process if one input takes too long.
struct Watch {
    begun: Arc<AtomicU64>,
    input: Arc<Mutex<Vec<u8>>>,
}

impl Watch {
    fn start(options: &Options) -> Self {
        let watch = Self { begun: Arc::default(), input: Arc::default() };
        let (begun, input) = (Arc::clone(&watch.begun), Arc::clone(&watch.input));
        let options = Options { replay: None, findings: options.findings.clone(), ..*options };
        thread::spawn(move || {
            loop {
                let before = begun.load(Ordering::Relaxed);
                thread::sleep(PATIENCE);
                if begun.load(Ordering::Relaxed) == before {
                    let input = input.lock().unwrap_or_else(PoisonError::into_inner);
                    eprintln!("fuzz: {}", found(&options, before, &input, "took over ten seconds"));
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    fn begin(&self, input: &[u8]) {
        let mut kept = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
        kept.extend_from_slice(input);
        drop(kept);
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}

/// Numbers that the seed decides.
struct Dice(u64);

impl Dice {
    /// Every input has dice of its own, so that it can be made again without those before it.
    fn new(seed: u64, input: u64) -> Self {
        let mut dice = Self((seed ^ input.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        // Neighbouring states give neighbouring first numbers.
        for _ in 0..4 {
            dice.roll();
        }
        dice
    }

    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// From 0 up to and without `end`, 0 if there is nothing below it.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.roll() % end).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        self.roll().to_le_bytes()[0]
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// A piece of something that is `length` long, mostly short.
    fn piece(&mut self, length: usize) -> std::ops::Range<usize> {
        let longest = 1 << self.below(12);
        let start = self.below(length);
        start..(start + 1 + self.below(longest)).min(length)
    }
}

/// One of the corpus after some changes, at least one.
fn mutated(corpus: &[Vec<u8>], words: &[&str], dice: &mut Dice) -> Vec<u8> {
    let mut input = corpus[dice.below(corpus.len())].clone();
    let changes = 1 << dice.below(6);
    for _ in 0..changes {
        change(&mut input, corpus, words, dice);
        input.truncate(LONGEST);
    }
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str], dice: &mut Dice) {
    let at = dice.below(input.len());
    let piece = dice.piece(input.len());
    match dice.below(11) {
        0 if !input.is_empty() => input[at] ^= 1 << dice.below(8),
        1 if !input.is_empty() => input[at] = dice.byte(),
        2 => input.insert(at, dice.byte()),
        3 => drop(input.drain(piece)),
        4 => {
            let copy = input[piece].to_vec();
            input.splice(at..at, copy);
        }
        5 => {
            let copy = input[piece].to_vec();
            let times = dice.below(64);
            input.splice(at..at, copy.repeat(times));
        }
        6 => input.truncate(at),
        7 => {
            let other = &corpus[dice.below(corpus.len())];
            let from = dice.below(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        8 => {
            let other = &corpus[dice.below(corpus.len())];
            let piece_of_other = dice.piece(other.len());
            input.splice(piece, other[piece_of_other].iter().copied());
        }
        9 => drop(input.splice(at..at, dice.pick(words).bytes())),
        _ => {
            let from = if dice.below(2) == 0 { words } else { JSON };
            drop(input.splice(piece, dice.pick(from).bytes()));
        }
    }
}
