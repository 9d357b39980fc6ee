//! A second process on the same session, and disks that take nothing.

use countersign_testkit::process::{HostFixture, RpcHost, lines_with};
use serde_json::json;

#[test]
fn a_second_process_on_a_session_is_refused_with_the_first_ones_id() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    lines_with(&file, "\"ok\"");
    let end = RpcHost::spawn(RpcHost::omp_command(&place, &["--continue"])).wait_end();
    assert_eq!((end.code, end.frames.len()), (Some(1), 0));
    assert!(end.stderr.contains(&host.process_id().to_string()), "{end:?}");
    let mut other = place.start(&[]);
    let error = other.command_error(json!({ "type": "switch_session", "sessionPath": file }));
    assert!(error.contains(&host.process_id().to_string()), "{error}");
    assert_eq!(error.matches(".db").count(), 1, "the log is named once: {error}");
    other.run_turn("still here");
    host.run_turn("two");
    host.kill();
    other.command_data(json!({ "type": "switch_session", "sessionPath": file }));
    assert_eq!(other.message_texts(), ["one", "ok", "two", "ok"]);
}

#[test]
fn a_folder_that_cannot_be_written_refuses_the_prompt_and_the_process_lives() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    // A file stands where the folder of the logs would be.
    std::fs::write(place.agent.join("countersign"), "").unwrap();
    let error = host.command_error(json!({ "type": "prompt", "message": "go" }));
    assert!(error.contains("not recorded"), "{error}");
    assert_eq!((place.provider.request_count(), &host.session_state()["isStreaming"]), (0, &json!(false)));
    std::fs::remove_file(place.agent.join("countersign")).unwrap();
    let mut again = place.start(&[]);
    again.run_turn("go");
    assert_eq!(again.message_texts(), ["go", "ok"]);
}
