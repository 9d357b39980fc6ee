//! `gsv__EditFile`: replaces a part of a file of the agent.

use countersign_core::tool::ToolEffect;
use serde::Deserialize;
use serde_json::json;

use super::{
    BuiltinCall, BuiltinResult, BuiltinTool,
    files::{in_folder, path_form, path_schema},
};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "EditFile",
    description: "Replaces text in a file of your workspace. oldString must be there exactly once, or replaceAll must be true.",
    schema: || {
        json!({"type": "object", "required": ["path", "oldString", "newString"], "properties": {
            "path": path_schema("File"),
            "oldString": {"type": "string", "description": "The text that is there"},
            "newString": {"type": "string", "description": "The text in its place"},
            "replaceAll": {"type": "boolean", "description": "Replace it wherever it is (default: false)"},
        }})
    },
    signature: &["path"],
    effect: ToolEffect::Changes,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditFileArguments {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let arguments: EditFileArguments = call.read_arguments()?;
    let path = arguments.path.clone();
    let edit = move |text: &str| edit_text(text, &arguments);
    let count = in_folder(&call, &path, move |folder, path| folder.edit_text(&path, edit)).await?;
    Ok(json!({"path": path, "replacements": count}).to_string())
}

fn edit_text(text: &str, arguments: &EditFileArguments) -> Result<(String, usize), String> {
    let EditFileArguments { path, old_string, new_string, replace_all } = arguments;
    if old_string.is_empty() {
        return Err("oldString must not be empty".to_owned());
    }
    match text.matches(old_string.as_str()).count() {
        0 => Err(format!("oldString is not in {path}")),
        count if count > 1 && !replace_all => {
            Err(format!("oldString is in {path} {count} times: give more of the text around it, or set replaceAll"))
        }
        count => Ok((text.replace(old_string.as_str(), new_string), count)),
    }
}

#[cfg(test)]
mod tests {
    use super::{EditFileArguments, edit_text};

    #[test]
    fn only_what_is_there_once_is_replaced_unless_all_of_it_is_meant() {
        for (text, old, all, want) in [
            ("a b", "a", false, Ok(("x b".to_owned(), 1))),
            ("a b a", "a", true, Ok(("x b x".to_owned(), 2))),
            (
                "a b a",
                "a",
                false,
                Err("oldString is in f 2 times: give more of the text around it, or set replaceAll".to_owned()),
            ),
            ("a", "z", true, Err("oldString is not in f".to_owned())),
            ("a", "", true, Err("oldString must not be empty".to_owned())),
        ] {
            let arguments = EditFileArguments {
                path: "f".to_owned(),
                old_string: old.to_owned(),
                new_string: "x".to_owned(),
                replace_all: all,
            };
            assert_eq!(edit_text(text, &arguments), want, "{text} {old}");
        }
    }
}
