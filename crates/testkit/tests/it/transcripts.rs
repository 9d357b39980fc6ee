//! The transcripts of tests/transcripts, one test each.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use countersign_testkit::transcript;
use countersign_tools::exec::{ExecLauncher, child_main};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// Arguments that start this test binary as the exec child. The last name matches no test: it only shows the purpose.
const AS_CHILD: [&str; 3] = ["--exact", "transcripts::a_child_whose_gateway_is_gone_ends", "as-the-exec-child"];

fn launcher() -> ExecLauncher {
    let program = std::env::current_exe().expect("a test knows its own path");
    ExecLauncher { program, leading_args: AS_CHILD.map(Into::into).to_vec() }
}

#[test]
fn a_child_whose_gateway_is_gone_ends() {
    use std::{
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Command, Stdio},
    };

    if std::env::args().any(|argument| argument == AS_CHILD[2]) {
        std::process::exit(i32::from(child_main() != ExitCode::SUCCESS));
    }
    let (ours, its) = UnixStream::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(AS_CHILD).stdin(OwnedFd::from(its)).stdout(Stdio::null());
    let mut started = child.spawn().unwrap();
    // The command holds the other end of the socket too.
    drop(child);
    drop(ours);
    assert!(started.wait().unwrap().success());
}

macro_rules! transcripts {
    ($($name:ident)*) => {
        const PLAYED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let path = folder().join(concat!(stringify!($name), ".txt"));
            if let Err(problem) = transcript::check(&path, launcher()) {
                panic!("{problem}");
            }
        })*
    };
}

transcripts! {
    abort_and_prompt
    abort_at_a_gate
    abort_before_the_answer
    abort_in_a_call
    abort_in_silence
    abort_keeps_the_queue
    abort_while_streaming
    abort_while_waiting_to_retry
    abort_while_wanting_calls
    approval_denied
    approval_for_always
    approval_for_once
    approval_for_session
    approval_mode
    approval_of_what_destroys
    approval_timed_out
    bash
    bash_aborted
    bash_message
    branch
    branch_while_running
    broken_calls_are_not_run
    compact_by_hand
    compact_while_running
    compact_with_nothing_to_do
    compaction_aborted
    compaction_aborted_before_a_prompt
    compaction_after_a_second_overflow
    compaction_after_an_overflow
    compaction_at_the_threshold
    compaction_before_a_prompt
    end_of_input
    end_of_input_in_a_call
    exclusive_tools
    follow_up_all
    follow_up_one_at_a_time
    follow_up_while_idle
    gjc_answers
    gjc_dialog_timed_out
    gjc_handoff
    gjc_levels
    gjc_plain_text
    gjc_small_updates
    gjc_stages
    gjc_tasks
    gjc_wait
    ids
    images
    later_commands
    length
    lines_that_are_no_commands
    mentions
    models
    new_session_while_running
    paced_deltas
    plain_text
    prompt_that_steers
    question_answered
    question_answered_with_nothing
    question_declined
    question_with_several_answers
    queue_counts
    queued_while_compacting
    refused_by_the_provider
    restart_at_a_gate
    restart_at_a_gate_ends_its_turn
    restart_in_a_call
    restart_in_a_reported_wait
    restart_in_a_wait
    restart_in_an_answered_wait
    restart_keeps_the_queues
    restart_while_thinking
    retry_aborted
    retry_after_a_hint
    retry_after_silence
    retry_beyond_the_longest_wait
    retry_exhausted
    retry_in_silence
    retry_of_half_an_answer
    retry_switched_off
    retry_then_success
    settings
    shared_tools
    slash_commands
    stats
    steer_all
    steer_at_a_gate
    steer_beside_a_command
    steer_in_a_call
    steer_that_waits
    steer_while_idle
    steer_while_streaming
    steering_before_follow_ups
    summary_that_is_empty
    summary_that_is_retried
    switch_session_while_running
    thinking
    todo_reminder
    todo_reminder_says_what_was_open
    two_hosts
    unknown_tool_and_bad_arguments
    wait_aborted
    wait_another_model
    wait_stopped
    wait_too_long
    wait_unanswered
    wrong_types
}

#[test]
fn every_transcript_is_played() {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "txt"));
    let mut names: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    let mut played = PLAYED.to_vec();
    played.sort_unstable();
    assert_eq!(names, played);
}
