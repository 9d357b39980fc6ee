//! Differences between a tool and its approved form, for a person.

use serde_json::Value;

use super::ApprovedTool;
use crate::{listing::ServerTool, text::printable_line};

/// Returns the differences, each on one line and whole: a person approves what it shows. Never empty: two digests differ.
pub(super) fn find_differences(approved: &ApprovedTool, tool: &ServerTool) -> Vec<String> {
    let mut found = Vec::new();
    if approved.description != tool.description {
        let (was, is) = (quoted(&approved.description), quoted(&tool.description));
        found.push(format!("description: was {was}, is {is}"));
    }
    compare_values("schema", Some(&approved.schema), Some(&tool.schema), &mut found);
    compare_values("output schema", approved.output_schema.as_ref(), tool.output_schema.as_ref(), &mut found);
    compare_values("annotations", Some(&approved.annotations), Some(&tool.annotations), &mut found);
    if found.is_empty() {
        // Characters that are shown written out, for example.
        found.push("the server sends it in another form that looks the same".to_owned());
    }
    found
}

fn compare_values(path: &str, was: Option<&Value>, is: Option<&Value>, found: &mut Vec<String>) {
    match (was, is) {
        (was, is) if was == is => {}
        (None, None) => {}
        (None, Some(is)) => found.push(format!("{}: added {}", printable_line(path), brief(is))),
        (Some(was), None) => found.push(format!("{}: removed {}", printable_line(path), brief(was))),
        (Some(Value::Object(was)), Some(Value::Object(is))) => {
            for (name, value) in was {
                compare_values(&format!("{path}/{name}"), Some(value), is.get(name), found);
            }
            for (name, value) in is.iter().filter(|(name, _)| !was.contains_key(*name)) {
                compare_values(&format!("{path}/{name}"), None, Some(value), found);
            }
        }
        (Some(was), Some(is)) => {
            found.push(format!("{}: was {}, is {}", printable_line(path), brief(was), brief(is)));
        }
    }
}

fn brief(value: &Value) -> String {
    printable_line(&value.to_string())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", printable_line(text))
}
