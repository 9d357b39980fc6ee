//! A host that does not read for a while.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::Stdio,
};

use countersign_testkit::process::{
    HostFixture, RpcHost, eventually, lines_with, of_type,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

/// Number of calls that the model makes. Every piece of them is sent with all that came before, so that there is far more to
/// send than any queue holds.
const CALLS: usize = 200;

fn session_file(place: &HostFixture) -> PathBuf {
    eventually("a session file", || {
        let folder = fs::read_dir(place.agent.join("sessions")).ok()?.next()?.ok()?.path();
        // There may be another one that is still being written, under another name.
        let mut files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        files.find(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
    })
}

/// Returns the memory that a process has for its data, in bytes: pages of its program are not counted, which are more in a debug build.
fn data_memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Waits until a process has nothing to do any more.
fn rest(pid: u32) {
    let (mut last, mut looks) = (String::new(), 0);
    eventually("the rest of the process", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let spent = stat.rsplit(')').next()?.split_whitespace().skip(11).take(2).collect::<Vec<_>>().join(" ");
        looks = if spent == last { looks + 1 } else { 0 };
        last = spent;
        (looks > 60).then_some(())
    });
}

#[test]
fn a_host_that_does_not_read_stops_nothing_loses_nothing_and_costs_little() {
    let place = HostFixture::new();
    let calls = (0..CALLS).map(|at| call_part(&format!("k{at}"), "nobody_has_this", &json!({})));
    place.provider.script_replies([text_reply("one"), ProviderReply::new(calls.collect()), text_reply("all done")]);
    let mut command = RpcHost::omp_command(&place, &["--model", "fake/fake-1"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Files that are needed for any work exist after a first turn.
    writeln!(input, "{}", json!({ "type": "prompt", "id": "one", "message": "one" })).unwrap();
    assert!(lines.any(|line| line.contains("\"agent_settled\"")));
    let before = data_memory(child.id());
    writeln!(input, "{}", json!({ "type": "prompt", "id": "p", "message": "go" })).unwrap();

    // No byte of it was read, and the run is recorded to its end.
    lines_with(&session_file(&place), "all done");
    rest(child.id());
    let held = data_memory(child.id()) - before;

    let mut frames: Vec<Value> = Vec::new();
    let mut byte_count = 0;
    while frames.last().is_none_or(|frame| frame["type"] != "agent_settled") {
        let line = lines.next().unwrap();
        byte_count += line.len();
        frames.push(serde_json::from_str(&line).unwrap());
    }
    assert!(held < byte_count / 4 * 3, "{held} bytes were held for {byte_count}");
    let ids = |kind: &str| -> Vec<String> {
        of_type(&frames, kind).iter().map(|frame| frame["toolCallId"].as_str().unwrap().to_owned()).collect()
    };
    let want: Vec<String> = (0..CALLS).map(|at| format!("k{at}")).collect();
    assert_eq!((ids("tool_execution_start"), ids("tool_execution_end")), (want.clone(), want));
    let wished = of_type(&frames, "message_update");
    let wished = wished.iter().filter(|frame| frame["assistantMessageEvent"]["type"] == "toolcall_end").count();
    assert_eq!(wished, CALLS);
    assert_eq!(of_type(&frames, "agent_end")[0]["messages"].as_array().unwrap().len(), CALLS + 3);
    drop(input);
    assert!(child.wait().unwrap().success());
}
