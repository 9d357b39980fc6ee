//! Ways in which a process ends.

use std::{
    io::Read as _,
    process::Stdio,
    time::{Duration, Instant},
};

use countersign_testkit::process::{
    HostFixture, RpcHost, eventually, lines_with,
    provider::{ProviderReply, bash_part},
    wait_dead,
};
use nix::sys::signal::Signal;
use serde_json::json;

/// Longer than an end takes, and far shorter than what is ended would have.
const MOST: Duration = Duration::from_secs(100);

#[test]
fn a_signal_ends_the_run_its_commands_and_the_process_with_0() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        host.run_turn("one");
        let file = host.session_file();
        place.provider.script_replies([ProviderReply::new(vec![bash_part(
            "k",
            "(setsid sh -c 'echo $$ > pid; exec sleep 300') & wait",
        )])]);
        host.send_prompt("go");
        let pid = place.wait_for("pid");
        let began = Instant::now();
        host.send_signal(signal);
        let end = host.wait_end();
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{signal}");
        assert!(began.elapsed() < MOST, "{signal}");
        wait_dead(&pid);
        lines_with(&file, "\"go\"");
        place.resume_host().run_turn("next");
        assert!(place.provider.last_request().is_paired());
    }
}

#[test]
fn an_end_of_input_ends_a_command_with_its_children_and_the_process_with_0() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.send_command(json!({ "type": "bash", "command": "(sh -c 'echo $$ > pid; exec sleep 300') & wait" }));
    let pid = place.wait_for("pid");
    let began = Instant::now();
    let end = host.close();
    assert_eq!((end.code, end.stderr.as_str(), end.junk.len()), (Some(0), "", 0));
    assert!(began.elapsed() < MOST);
    wait_dead(&pid);
}

#[test]
fn what_a_command_left_behind_ends_with_the_process() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![bash_part(
        "k",
        "nohup sh -c 'echo $$ > pid; exec sleep 300' > /dev/null 2>&1 & echo on",
    )])]);
    host.run_turn("go");
    let pid = place.wait_for("pid");
    host.close_cleanly();
    wait_dead(&pid);
}

#[test]
fn messages_before_the_end_of_input_are_answered() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let due: Vec<&str> = vec!["get_state", "get_messages", "get_session_stats", "get_branch_messages"];
    let lines: String = due.iter().map(|kind| format!("{}\n", json!({ "type": kind, "id": kind }))).collect();
    host.write_input(lines);
    let end = host.close();
    for kind in due {
        assert!(end.frames.iter().any(|frame| frame["id"] == kind && frame["success"] == true), "{kind}");
    }
}

#[test]
fn a_host_that_closes_its_end_of_the_output_ends_the_process() {
    let place = HostFixture::new();
    let mut command = RpcHost::omp_command(&place, &["--model", "fake/fake-1"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 5]).unwrap();
    drop(output);
    let mut input = child.stdin.take().unwrap();
    let code = eventually("the end of the process", || {
        // The pipe is closed as soon as the process is gone.
        let _ = std::io::Write::write_all(&mut input, b"{\"type\":\"get_state\"}\n");
        child.try_wait().unwrap()
    });
    assert!(code.code().is_some(), "{code}");
}
