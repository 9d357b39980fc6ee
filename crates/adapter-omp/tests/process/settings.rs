//! Settings of `config.yml` that change what tools and models get.

use countersign_testkit::process::{
    HostFixture,
    provider::{ProviderReply, bash_part, call_part, text_reply},
};
use serde_json::json;

#[test]
fn commands_without_a_time_out_end_after_that_of_the_settings() {
    let place = HostFixture::with_config("countersign: { bash_timeout: 0.3 }\n");
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", "sleep 300")]), text_reply("done")]);
    host.run_turn("go");
    let call_result = place.provider.last_request().call_result("k").unwrap();
    assert!(call_result.contains("Command timed out after 0.3 seconds"), "{call_result}");
    let result = host.command_data(json!({ "type": "bash", "command": "sleep 300" }));
    assert_eq!((result.get("exitCode"), &result["cancelled"]), (None, &json!(false)));
    host.close_cleanly();
}

#[test]
fn images_are_kept_from_the_model_where_the_settings_say_so() {
    let image = json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" });
    for (config, is_sent) in [("", true), ("images: { blockImages: true }\n", false)] {
        let place = HostFixture::with_config(config);
        for model in ["fake/fake-1", "claude/claude-1"] {
            let mut host = place.start(&["--model", model]);
            let from = host.frame_position();
            host.command_data(json!({ "type": "prompt", "message": "look", "images": [image] }));
            host.wait_settled(from);
            let request_text = place.provider.last_request().messages_text();
            assert_eq!(request_text.contains("iVBORw0KGgo="), is_sent, "{model} {config}");
            let words = "an image was here; the setting images.blockImages keeps images from models";
            assert_eq!(request_text.contains(words), !is_sent, "{model} {config}");
            // The host still sees what it sent.
            assert_eq!(host.session_messages()[0]["content"][1], image);
            host.close_cleanly();
        }
    }
}

#[test]
fn read_shows_the_anchors_that_the_form_of_edit_wants() {
    let place = HostFixture::with_config("edit: { mode: hashline }\n");
    place.write_file("a.txt", "one\ntwo\n");
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![call_part("k", "read", &json!({ "path": "a.txt" }))])]);
    host.run_turn("go");
    let shown = place.provider.last_request().call_result("k").unwrap();
    let anchor = shown.lines().nth(1).and_then(|line| line.strip_suffix(":two")).unwrap().to_owned();
    assert!(anchor.starts_with("2#"), "{shown}");
    let edits = json!([{ "loc": { "range": { "pos": anchor, "end": anchor } }, "content": ["2"] }]);
    place.provider.script_replies([ProviderReply::new(vec![call_part(
        "e",
        "edit",
        &json!({ "path": "a.txt", "edits": edits }),
    )])]);
    host.run_turn("change it");
    assert_eq!(place.read_file("a.txt").as_deref(), Some("one\n2\n"));
}

#[test]
fn a_name_is_one_line_and_a_page_may_lie_in_the_home_folder() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.command_data(json!({ "type": "set_session_name", "name": " a\nb\u{1b}[31m " }));
    assert_eq!(host.session_state()["sessionName"], "a\\u{a}b\\u{1b}[31m");
    host.command_data(json!({ "type": "export_html", "outputPath": "~/x.html" }));
    assert!(place.home.join("x.html").is_file() && !place.work.join("~").exists());
}
