//! Blocks of text in TOML files: added as they stand, and cut out as they stand, so that everything else keeps its layout.
//!
//! It must not know the grammar: the program that reads the file judges the result before a person is asked to agree to it.

use serde_json::Value;

/// Trust in a hook: the program runs no other, and none that was changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookTrust {
    /// Key of the hook in the program, with the path of its file.
    pub key: String,
    /// Digest of the hook, as the program computes it.
    pub hash: String,
}

/// Comment above our tables.
const COMMENT: &str = "# Trust in the hooks of `countersign guard codex`; `countersign unguard codex` removes it\n";

/// Returns the text of a configuration with the trust in hooks at its end, and the block that was added.
///
/// # Errors
/// The key that is there already.
pub(crate) fn add_trust(text: &str, trust: &[HookTrust]) -> Result<(String, String), String> {
    let mut tables = COMMENT.to_owned();
    for hook in trust {
        // Texts of TOML have the escapes of JSON. A table may also be written with a literal key.
        let quoted = Value::from(hook.key.as_str()).to_string();
        if text.contains(&quoted) || text.contains(&format!("'{}'", hook.key)) {
            return Err(format!(
                "there is an entry for {quoted} already: remove it, or trust the hook in Codex itself"
            ));
        }
        tables.push_str(&format!("[hooks.state.{quoted}]\ntrusted_hash = {}\n", Value::from(hook.hash.as_str())));
    }
    let block = format!("{}{tables}", separator(text));
    Ok((format!("{text}{block}"), block))
}

/// Returns the text of managed requirements with a hook for `events`, and the blocks that were added: a key in front of the first table,
/// and tables at the end.
///
/// # Errors
/// The name in the way.
pub(crate) fn add_requirements(
    text: &str,
    events: &[&str],
    command: &str,
    limit: u64,
) -> Result<(String, Vec<String>), String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    if let Some(taken) = lines.flat_map(|line| NAMES.into_iter().find(|name| line.contains(name))).next() {
        return Err(format!("has {taken} already: merge the guard by hand, as `--dry-run` shows it for an empty file"));
    }
    let first = "allow_managed_hooks_only = true\n".to_owned();
    let mut tables = "[features]\nhooks = true\n".to_owned();
    for event in events {
        tables.push_str(&format!(
            "\n[[hooks.{event}]]\nmatcher = \"*\"\n\n[[hooks.{event}.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {limit}\n",
            Value::from(command)
        ));
    }
    let first = if text.is_empty() { format!("{first}\n") } else { first };
    let last = format!("{}{tables}", separator(text));
    Ok((format!("{first}{text}{last}"), vec![first, last]))
}

/// Names that one file may have once.
const NAMES: [&str; 3] = ["allow_managed_hooks_only", "hooks", "features"];

/// Returns what stands between a text and a block behind it.
fn separator(text: &str) -> &'static str {
    match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    }
}

/// Removes blocks. Returns the text, and the first lines of those that are no longer there as they were added.
pub(crate) fn remove_blocks(text: &str, blocks: &[String]) -> (String, Vec<String>) {
    let (mut left, mut gone) = (text.to_owned(), Vec::new());
    for block in blocks {
        match left.find(block.as_str()).or_else(|| left.find(block.trim_start())) {
            Some(at) => {
                let length =
                    if left[at..].starts_with(block.as_str()) { block.len() } else { block.trim_start().len() };
                // The line before may have had no end.
                let is_joined = at > 0 && at + length < left.len() && !left[..at].ends_with('\n');
                left.replace_range(at..at + length, if is_joined { "\n" } else { "" });
            }
            None => gone.extend(block.lines().find(|line| !line.trim().is_empty()).map(str::to_owned)),
        }
    }
    (left, gone)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{HookTrust, add_requirements, add_trust, remove_blocks};

    /// Configurations as people write them.
    pub(crate) const WRITTEN: [&str; 11] = [
        "",
        "\n",
        "model = \"x\"",
        "model = \"x\"\n",
        "# mine\r\nmodel = 'x'\r\n",
        "[projects.\"/a b\"]\ntrust_level = \"trusted\"\n\n\n",
        "[hooks.state]\n",
        "[[hooks.PreToolUse]]\nmatcher = \"Bash\"\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"x\"\n",
        "[hooks.state.\"/other/hooks.json:pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:00\"\n",
        "text = \"\"\"\n[not a table]\n\"\"\"\n",
        "\t[mcp_servers.x]\ncommand = \"é\" # last line without an end",
    ];

    fn trust() -> Vec<HookTrust> {
        ["pre_tool_use", "post_tool_use"]
            .map(|event| HookTrust {
                key: format!("/home/ana/.codex/hooks.json:{event}:0:0"),
                hash: "sha256:11".to_owned(),
            })
            .to_vec()
    }

    #[test]
    fn trust_is_added_at_the_end_and_cut_out_again() {
        for text in WRITTEN {
            let (added, block) = add_trust(text, &trust()).unwrap();
            assert!(added.starts_with(text) && added.ends_with('\n'), "{added}");
            assert_eq!(added.matches("[hooks.state.\"/home/ana/.codex/hooks.json:").count(), 2);
            assert_eq!(remove_blocks(&added, std::slice::from_ref(&block)), (text.to_owned(), Vec::new()), "{text:?}");
            let later = format!("{added}[projects.\"/b\"]\ntrust_level = \"trusted\"\n");
            let (left, gone) = remove_blocks(&later, &[block]);
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            let want = format!("{text}{end}[projects.\"/b\"]\ntrust_level = \"trusted\"\n");
            assert_eq!((left, gone.len()), (want, 0));
        }
    }

    #[test]
    fn an_entry_of_the_same_hook_is_refused() {
        for text in [
            "[hooks.state.\"/home/ana/.codex/hooks.json:pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:00\"\n",
            "hooks.state.'/home/ana/.codex/hooks.json:post_tool_use:0:0'.enabled = false\n",
        ] {
            assert!(add_trust(text, &trust()).unwrap_err().contains("already"), "{text}");
        }
    }

    #[test]
    fn a_block_that_was_edited_is_left_and_named() {
        let (added, block) = add_trust("", &trust()).unwrap();
        let edited = added.replace("sha256:11", "sha256:12");
        let (left, gone) = remove_blocks(&edited, &[block]);
        assert_eq!((left, gone.len()), (edited, 1));
    }

    #[test]
    fn requirements_have_their_key_before_the_first_table() {
        for text in ["", "allowed_sandbox_modes = [\"read-only\"]\n", "# mine\n[rules]\nx = 1"] {
            let (added, blocks) = add_requirements(text, &["PreToolUse"], "/bin/x hook codex || exit 2", 600).unwrap();
            assert!(added.starts_with("allow_managed_hooks_only = true\n"), "{added}");
            assert!(added.ends_with(
                "[features]\nhooks = true\n\n[[hooks.PreToolUse]]\nmatcher = \"*\"\n\n[[hooks.PreToolUse.hooks]]\n\
                 type = \"command\"\ncommand = \"/bin/x hook codex || exit 2\"\ntimeout = 600\n"
            ));
            assert_eq!(remove_blocks(&added, &blocks), (text.to_owned(), Vec::new()));
        }
        for text in ["[features]\n", "hooks = {}\n", " allow_managed_hooks_only = false\n"] {
            assert!(add_requirements(text, &["PreToolUse"], "x", 1).is_err(), "{text}");
        }
    }
}
