//! Commands whose end was not observed.

use countersign_testkit::process::{
    HostFixture, of_type,
    provider::{ProviderReply, bash_part, text_reply},
};
use serde_json::json;

/// Command that takes effect, and kills the process that would report its end.
const BREAKS_OFF: &str = "echo ran >> count; kill -9 $PPID";

#[test]
fn a_command_that_breaks_off_is_not_called_a_failure_and_not_run_again() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", BREAKS_OFF)]), text_reply("done")]);
    let frames = host.run_turn("go");
    let result = place.provider.last_request().call_result("k").unwrap();
    assert!(result.starts_with("Outcome unknown: "), "{result}");
    assert!(result.contains("; the outcome of the command is unknown. It may or may not"), "{result}");
    assert_eq!(of_type(&frames, "tool_execution_end")[0]["isError"], true);
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
    host.close();
    let mut again = place.resume_host();
    again.run_turn("next");
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
}

#[test]
fn a_persons_command_that_breaks_off_says_so() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let result = host.command_data(json!({ "type": "bash", "command": BREAKS_OFF }));
    assert!(result["output"].as_str().unwrap().contains("Outcome unknown"), "{result}");
    assert_eq!(result.get("exitCode"), None);
    assert_eq!(host.command_data(json!({ "type": "bash", "command": "cat count" }))["output"], "ran\n");
}
