//! Settings of `config.yml` that change what tools and models get.

use serde_json::json;

use crate::{
    place::Place,
    provider::{Reply, bash, say},
};

#[test]
fn commands_without_a_time_out_end_after_that_of_the_settings() {
    let place = Place::with_config("countersign: { bash_timeout: 0.3 }\n");
    let mut host = place.start(&[]);
    place.provider.script([Reply::new(vec![bash("k", "sleep 300")]), say("done")]);
    host.turn("go");
    let told = place.provider.last().result("k").unwrap();
    assert!(told.contains("Command timed out after 0.3 seconds"), "{told}");
    let result = host.done(json!({ "type": "bash", "command": "sleep 300" }));
    assert_eq!((result.get("exitCode"), &result["cancelled"]), (None, &json!(false)));
    host.close_cleanly();
}

#[test]
fn images_are_kept_from_the_model_where_the_settings_say_so() {
    let image = json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" });
    for (config, is_sent) in [("", true), ("images: { blockImages: true }\n", false)] {
        let place = Place::with_config(config);
        for model in ["fake/fake-1", "claude/claude-1"] {
            let mut host = place.start(&["--model", model]);
            let from = host.mark();
            host.done(json!({ "type": "prompt", "message": "look", "images": [image] }));
            host.settled(from);
            let asked = place.provider.last().text();
            assert_eq!(asked.contains("iVBORw0KGgo="), is_sent, "{model} {config}");
            assert_eq!(asked.contains("an image was here"), !is_sent, "{model} {config}");
            // The host still sees what it sent.
            assert_eq!(host.messages()[0]["content"][1], image);
            host.close_cleanly();
        }
    }
}
