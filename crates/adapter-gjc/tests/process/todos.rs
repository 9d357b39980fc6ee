//! The list of tasks that a host sets.

use countersign_testkit::process::{HostFixture, lines_with, provider::text_reply};
use serde_json::json;

use crate::rpc::{start, turn};

#[test]
fn tasks_that_were_set_outlive_the_process() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("hello")]);
    let mut host = start(&place, &[]);
    turn(&mut host, "hi");
    let phases = json!([{ "name": "one", "tasks": [
        { "content": "a", "status": "in_progress", "notes": ["n"] },
        { "content": "b", "status": "abandoned" },
    ] }]);
    let want = json!([{ "id": "phase-1", "name": "one", "tasks": [
        { "id": "task-1", "content": "a", "status": "in_progress", "notes": ["n"] },
        { "id": "task-2", "content": "b", "status": "abandoned" },
    ] }]);
    assert_eq!(host.command_data(json!({ "type": "set_todos", "phases": phases }))["todoPhases"], want);
    let refused = host.command_error(json!({ "type": "set_todos", "phases": "none" }));
    assert!(refused.starts_with("set_todos: `phases`"), "{refused}");
    lines_with(&host.session_file(), "user_todo_edit");
    host.kill();
    let mut host = start(&place, &["--continue"]);
    assert_eq!(host.session_state()["todoPhases"], want);
    assert_eq!(host.command_data(json!({ "type": "set_todos", "phases": [] }))["todoPhases"], json!([]));
    host.close_cleanly();
}
