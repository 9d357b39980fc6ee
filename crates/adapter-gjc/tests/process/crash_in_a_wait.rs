//! kill -9 while a run waits for its next attempt at the model.

use countersign_testkit::process::{
    HostFixture, RpcHost,
    provider::{error_reply, text_reply},
};
use serde_json::json;

use crate::rpc::{event, start};

const UI: [&str; 2] = ["--mode", "rpc-ui"];

fn notice(host: &RpcHost, from: usize) -> String {
    let notification = host.wait_frame(from, "when the wait ends", |frame| frame["method"] == "notify");
    notification["message"].as_str().unwrap().to_owned()
}

#[test]
fn the_next_process_sends_a_wait_with_its_end_and_continues_it() {
    for (case, ask_after) in [("told", 0), ("answered", 60)] {
        let config =
            format!("retry: {{ provider: {{ maxRetries: 0 }} }}\ncountersign: {{ retry_ask_after: {ask_after} }}\n");
        let place = HostFixture::with_config(&config);
        place.provider.script_replies([error_reply(429, "slow down").with_header("retry-after", "100")]);
        let mut host = start(&place, &UI);
        let from = host.send_prompt("hi");
        let dialog = host.wait_dialog(from);
        if case == "answered" {
            host.answer_dialog(&dialog, json!({ "value": dialog["options"][0] }));
        }
        assert_eq!(host.session_state()["isStreaming"], true, "{case}");
        host.kill();
        let mut again = start(&place, &[&UI[..], &["--continue"]].concat());
        let paused = event(&again, 0, "agent_end");
        assert_eq!(
            (&paused["stopReason"], paused["messages"].as_array().unwrap().len()),
            (&json!("paused"), 2),
            "{case}"
        );
        let started = event(&again, 0, "auto_retry_start");
        assert_eq!(started["attempt"], 1, "{case}");
        assert!((1..=100_000).contains(&started["delayMs"].as_u64().unwrap()), "{case}: {started}");
        let message = notice(&again, 0);
        assert!(message.starts_with("The model did not answer; the next attempt is at 20"), "{case}: {message}");
        assert_eq!(again.session_state()["isStreaming"], true, "{case}");
        place.provider.script_replies([text_reply("fine")]);
        let from = again.frame_position();
        again.command_data(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-2" }));
        assert_eq!(event(&again, from, "agent_end")["stopReason"], "completed", "{case}");
        assert_eq!(event(&again, from, "auto_retry_end")["success"], true, "{case}");
        assert_eq!(
            (again.message_texts(), place.provider.request_count()),
            (vec!["hi".to_owned(), "fine".to_owned()], 2),
            "{case}"
        );
        again.close_cleanly();
    }
}
