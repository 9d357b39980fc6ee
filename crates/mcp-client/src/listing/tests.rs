use serde_json::{Value, json};

use super::{ServerListing, offered_name};

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Reads.", "inputSchema": {"type": "object"}})
}

fn with(mut entry: Value, member: &str, value: Value) -> Value {
    entry[member] = value;
    entry
}

#[test]
fn a_tool_that_cannot_be_offered_is_left_out_with_its_reason() {
    for (case, entry, want) in [
        ("control", tool("re\u{1b}ad"), "its name has control characters"),
        ("hidden", tool("re\u{200b}ad"), "its name has control characters"),
        ("empty", tool(""), "its name is empty"),
        ("character", tool("a.b"), "its name has characters other than a-z, A-Z, 0-9, _ and -"),
        ("length", tool(&"x".repeat(57)), "its name with that of the server has 65 characters, of 64"),
        ("no name", json!({"inputSchema": {}}), "it has no name"),
        ("no schema", json!({"name": "a"}), "it has no inputSchema"),
        ("schema", with(tool("a"), "inputSchema", json!("object")), "its inputSchema cannot be used: it is no object"),
        ("description", with(tool("a"), "description", json!(["x"])), "its description is no text"),
    ] {
        let listing = ServerListing::from_entries("s", &[entry, tool("fits")]);
        assert_eq!(listing.tools.len(), 1, "{case}");
        assert_eq!(listing.problems[0].problem, want, "{case}");
    }
    assert_eq!(offered_name("s", &"x".repeat(56)).unwrap().len(), 64);
}

#[test]
fn tools_of_one_name_are_all_left_out() {
    let other = with(tool("read"), "description", json!("Writes."));
    let listing = ServerListing::from_entries("s", &[tool("read"), tool("list"), other]);
    assert_eq!(listing.tools.iter().map(|tool| tool.offered_name.as_str()).collect::<Vec<_>>(), ["mcp__s__list"]);
    assert_eq!(listing.problems.len(), 2);
}

#[test]
fn a_digest_changes_with_everything_that_a_person_approved() {
    let digest = |entry: Value| ServerListing::from_entries("s", &[entry]).tools[0].digest;
    let plain = digest(tool("a"));
    for (member, value, is_same) in [
        ("description", json!("Reads. "), false),
        ("inputSchema", json!({"type": "object", "properties": {"path": {}}}), false),
        ("outputSchema", json!({"type": "object"}), false),
        ("annotations", json!({"readOnlyHint": true}), false),
        ("annotations", json!({"unknown": true}), true),
        ("annotations", Value::Null, true),
        ("_meta", json!({"at": 1}), true),
    ] {
        assert_eq!(digest(with(tool("a"), member, value)) == plain, is_same, "{member}");
    }
    let reordered = json!({"inputSchema": {"type": "object"}, "description": "Reads.", "name": "a"});
    assert_eq!(digest(reordered), plain);
}

#[test]
fn hidden_characters_of_a_description_are_shown() {
    let entry = with(tool("a"), "description", json!("Reads.\n\u{e0041}\u{202e}x"));
    let listing = ServerListing::from_entries("s", &[entry]);
    assert_eq!(listing.tools[0].description, "Reads.\n\\u{e0041}\\u{202e}x");
}
