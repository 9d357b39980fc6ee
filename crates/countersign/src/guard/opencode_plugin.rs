//! Plugin of opencode that asks the gateway: the text of its file.

use serde_json::Value;

/// The plugin, without the command of its hook.
const PLUGIN: &str = include_str!("opencode_plugin/countersign.mjs");

/// Returns the text of the plugin, which runs the hook with these words.
pub(super) fn plugin_text(words: &[String]) -> String {
    PLUGIN.replace("@HOOK@", &Value::from(words.to_vec()).to_string())
}

#[cfg(test)]
mod tests {
    use super::plugin_text;

    #[test]
    fn the_plugin_has_the_words_of_the_hook_as_they_are() {
        let words = ["/bin/it's \"a\"".to_owned(), "hook".to_owned()];
        let text = plugin_text(&words);
        assert!(text.contains(r#"const HOOK = ["/bin/it's \"a\"","hook"]"#) && !text.contains("@HOOK@"), "{text}");
    }
}
