//! Commands of the person.

use countersign_testkit::process::{
    HostFixture, Latch, RpcHost, message_roles,
    provider::{ProviderReply, ReplyPart, text_part},
    wait_dead,
};
use serde_json::{Value, json};

fn run(host: &mut RpcHost, command: &str) -> Value {
    host.command_data(json!({ "type": "bash", "command": command }))
}

#[test]
fn the_shell_is_the_same_for_all_commands_of_a_session() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    std::fs::create_dir(place.work.join("sub")).unwrap();
    run(&mut host, "cd sub; X=5; f() { echo called; }");
    assert_eq!(run(&mut host, "basename $PWD; echo $X; f")["output"], "sub\n5\ncalled\n");
    assert_eq!(run(&mut host, "exit 3")["exitCode"], 3);
    assert_eq!(run(&mut host, "echo \"<$X>\"")["output"], "<>\n");
}

#[test]
fn a_result_counts_lines_and_bytes_and_keeps_the_last_fifty_kibibytes() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let want = json!({ "exitCode": 0, "cancelled": false, "output": "done\n", "truncated": false,
        "totalLines": 2, "totalBytes": 5, "outputLines": 2, "outputBytes": 5 });
    assert_eq!(run(&mut host, "echo done"), want);
    assert_eq!(run(&mut host, "true")["totalLines"], 0);
    let long = run(&mut host, "seq 1 20000");
    let output = long["output"].as_str().unwrap();
    assert!(
        long["truncated"] == true && output.len() <= 51_200 && output.len() > 51_000 && output.ends_with("20000\n")
    );
    assert_eq!([&long["totalLines"], &long["totalBytes"]], [20_001, 108_894]);
}

#[test]
fn whatever_a_command_does_it_is_answered() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    for (command, output) in [
        ("", ""),
        ("cat", ""),
        ("read x; echo got=$x", "got=\n"),
        ("echo 'open", "quote"),
        ("if then", "syntax error"),
        ("kill -9 $$", ""),
        ("exec echo last", "last\n"),
        ("sleep 300 & echo behind", "behind\n"),
        ("printf '\\xff\\xfe'", "\u{fffd}\u{fffd}"),
    ] {
        let result = run(&mut host, command);
        assert!(result["output"].as_str().unwrap().contains(output) || output == "quote", "{command}: {result}");
        assert_eq!(run(&mut host, "echo alive")["output"], "alive\n", "after {command}");
    }
    host.close_cleanly();
}

#[test]
fn state_is_answered_and_abort_bash_works_while_a_command_runs() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let due =
        host.send_command(json!({ "type": "bash", "command": "echo early; sh -c 'echo $$ > pid; exec sleep 300'" }));
    let pid = place.wait_for("pid");
    let behind = host.send_command(json!({ "type": "bash", "command": "echo behind" }));
    assert_eq!(host.session_state()["isStreaming"], false);
    host.command_data(json!({ "type": "abort_bash" }));
    let data = host.wait_answer(&due)["data"].clone();
    assert_eq!((&data["cancelled"], data.get("exitCode"), &data["output"]), (&json!(true), None, &json!("early\n")));
    wait_dead(&pid);
    let data = host.wait_answer(&behind)["data"].clone();
    assert_eq!((&data["cancelled"], &data["output"]), (&json!(true), &json!("")), "what waits is ended too");
    assert_eq!(run(&mut host, "echo later")["output"], "later\n");
}

#[test]
fn a_command_during_a_run_joins_the_conversation_with_the_next_prompt() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let latch = Latch::default();
    place.provider.script_replies([ProviderReply::new(vec![text_part("one"), ReplyPart::Until(latch.clone())])]);
    let from = host.send_prompt("go");
    host.wait_event(from, "message_update");
    assert_eq!(run(&mut host, "echo meanwhile")["output"], "meanwhile\n");
    latch.open();
    host.wait_settled(from);
    assert_eq!(message_roles(&host.session_messages()), ["user", "assistant"]);
    host.run_turn("next");
    assert_eq!(message_roles(&host.session_messages()), ["user", "assistant", "bashExecution", "user", "assistant"]);
    assert!(place.provider.last_request().messages_text().contains("meanwhile"));
}

#[test]
fn no_pager_no_editor_and_no_key_reaches_a_command() {
    let place = HostFixture::new();
    let mut command = RpcHost::omp_command(&place, &["--model", "fake/fake-1"]);
    command.env("ANTHROPIC_API_KEY", "sk-hidden").env("PAGER", "less").env("OWN", "kept");
    let mut host = RpcHost::spawn(command);
    let output = run(&mut host, "echo $PAGER $EDITOR $CI $OWN; env")["output"].as_str().unwrap().to_owned();
    assert!(output.starts_with("cat true 1 kept\n") && !output.contains("sk-hidden"), "{output}");
}

#[test]
fn a_cut_output_names_the_file_that_has_it_whole_to_the_host_and_to_the_model() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let long = run(&mut host, "seq 1 20000");
    let whole: String = (1..=20_000).map(|line| format!("{line}\n")).collect();
    let path = long["artifactId"].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), whole);
    host.run_turn("next");
    let request_text = place.provider.last_request().messages_text();
    assert!(
        request_text.contains("The output was cut") && request_text.contains(path),
        "{}",
        &request_text[request_text.len() - 400..]
    );
    std::fs::remove_file(path).unwrap();
}
