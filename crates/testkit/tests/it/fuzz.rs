//! The first inputs of one seed for every target: the corpus as it is kept, then changed. `cargo xtask fuzz` continues from there.

use countersign_testkit::fuzz::TARGETS;

/// Seed of the inputs. Those of the corpus come first with any seed.
const SEED: u64 = 7;

fn first_inputs(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let corpus = target.load_corpus().expect("a corpus that can be read");
    assert!(corpus.len() > 1, "{name} has an empty corpus");
    for number in 0..target.short.max(corpus.len() as u64) {
        let input = target.make_input(&corpus, SEED, number);
        let outcome = std::panic::catch_unwind(|| (target.decode)(&input));
        assert!(outcome.is_ok(), "{name}, seed {SEED}, input {number}: {:?}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn lines() {
    first_inputs("lines");
}

#[test]
fn commands() {
    first_inputs("commands");
}

#[test]
fn gjc_commands() {
    first_inputs("gjc-commands");
}

#[test]
fn session_file() {
    first_inputs("session-file");
}

#[test]
fn gsv() {
    first_inputs("gsv");
}

#[test]
fn openai_completions() {
    first_inputs("openai-completions");
}

#[test]
fn acp() {
    first_inputs("acp");
}

#[test]
fn openai_responses() {
    first_inputs("openai-responses");
}

#[test]
fn anthropic_messages() {
    first_inputs("anthropic-messages");
}

#[test]
fn google_generative_ai() {
    first_inputs("google-generative-ai");
}

#[test]
fn shell() {
    first_inputs("shell");
}

#[test]
fn shell_in_bash() {
    first_inputs("shell-in-bash");
}

#[test]
fn gjc_schema() {
    first_inputs("gjc-schema");
}

#[test]
fn agent_gate() {
    first_inputs("agent-gate");
}

#[test]
fn gsv_settings() {
    first_inputs("gsv-settings");
}

#[test]
fn log_record() {
    first_inputs("log-record");
}

#[test]
fn settings() {
    first_inputs("settings");
}

#[test]
fn rules() {
    first_inputs("rules");
}

#[test]
fn telegram() {
    first_inputs("telegram");
}

#[test]
fn webhook() {
    first_inputs("webhook");
}

#[test]
fn body() {
    first_inputs("body");
}

#[test]
fn every_target_is_in_this_file() {
    let here = include_str!("fuzz.rs");
    for target in TARGETS {
        assert!(here.contains(&format!("first_inputs(\"{}\")", target.name)), "{}", target.name);
    }
}
