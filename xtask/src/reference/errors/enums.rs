//! Reads constants and enums of errors from their sources.

use std::collections::BTreeMap;

use anyhow::Context as _;

/// Returns the text between the braces after `head`.
fn block_behind<'a>(source: &'a str, head: &str) -> Option<&'a str> {
    let from = source.find(head)? + head.len();
    let from = from + source[from..].find('{')? + 1;
    let mut depth = 1;
    for (at, letter) in source[from..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&source[from..from + at]);
        }
    }
    None
}

/// Returns code and meaning of each constant of the module `code`.
pub(super) fn code_rows(source: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut meaning = String::new();
    for line in block_behind(source, "pub mod code").unwrap_or_default().lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            meaning = join_line(&meaning, text);
        } else if let Some(constant) = line.strip_prefix("pub const ") {
            let value = constant.split_once("= ").map_or("", |(_, value)| value.trim_end_matches(';'));
            rows.push(vec![format!("`{value}`"), std::mem::take(&mut meaning)]);
        }
    }
    rows
}

/// Returns the description of an enum, from the comment above it, without links of its own.
pub(super) fn enum_description(source: &str, name: &str) -> String {
    let before = source.split(&format!("enum {name} ")).next().unwrap_or_default();
    let is_between =
        |line: &&str| line.starts_with("#[") || line.is_empty() || line.trim() == "pub" || line.trim() == "pub(crate)";
    let lines: Vec<&str> = before.lines().rev().skip_while(is_between).collect();
    let comment: Vec<&str> = lines.iter().map_while(|line| line.strip_prefix("///")).map(str::trim).collect();
    comment.iter().rev().copied().collect::<Vec<_>>().join(" ").replace("[`", "`").replace("`]", "`")
}

/// Returns code, text and meaning of each variant of an enum.
pub(super) fn variant_rows(source: &str, name: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let body = block_behind(source, &format!("enum {name} ")).context("there is no such enum")?;
    let of = block_behind(source, &format!("impl {name} ")).unwrap_or_default();
    let named = |names: [&str; 2]| names.map(|name| arm_values(of, name)).into_iter().find(|values| !values.is_empty());
    let status = arm_values(of, "fn status");
    let code = named(["fn error_code", "fn code"]).unwrap_or_default();
    let told_as = named(["fn error_body", "fn body"]).unwrap_or_default();
    let is_snake = source[..source.find(&format!("enum {name} ")).unwrap_or(0)]
        .trim_end_matches("pub ")
        .ends_with("\"snake_case\")]\n");
    let (mut rows, mut meaning, mut text) = (Vec::new(), String::new(), String::new());
    let mut depth = 0_usize;
    for line in body.lines().map(str::trim) {
        if depth == 0 {
            if let Some(more) = line.strip_prefix("///") {
                meaning = join_line(&meaning, more);
            } else if let Some(error) = line.strip_prefix("#[error(\"") {
                text = blank_placeholders(
                    error.split("\")]").next().unwrap_or(error).split("\", .").next().unwrap_or(error),
                );
            } else if line.starts_with(|letter: char| letter.is_ascii_uppercase()) {
                let variant: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
                let known = [status.get(&variant), code.get(&variant).or_else(|| told_as.get(&variant))];
                let mut shown: Vec<String> = known.into_iter().flatten().map(|code| format!("`{code}`")).collect();
                if is_snake {
                    shown.push(format!("`{}`", snake_case(&variant)));
                }
                rows.push(vec![shown.join(" "), std::mem::take(&mut text), std::mem::take(&mut meaning)]);
            }
        }
        depth = (depth + line.matches('{').count()).saturating_sub(line.matches('}').count());
    }
    Ok(rows)
}

/// Returns the first number or text of each arm of the function's match, by variant.
fn arm_values(source: &str, function: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let (mut pattern, mut open): (Vec<String>, Vec<String>) = Default::default();
    for line in block_behind(source, function).unwrap_or_default().lines().map(str::trim) {
        let (before, value) = match line.split_once("=>") {
            Some((before, value)) => (before, Some(value)),
            None if line.starts_with("Self::") || line.starts_with('|') => (line, None),
            None => ("", Some(line)),
        };
        let names = before.split("Self::").skip(1);
        pattern.extend(names.map(|name| name.chars().take_while(char::is_ascii_alphanumeric).collect()));
        let Some(value) = value else { continue };
        if !pattern.is_empty() {
            open = std::mem::take(&mut pattern);
        }
        let number = value.trim().trim_end_matches(',');
        // The last string tells them apart.
        let quoted = value.rsplit('"').nth(1).map(str::to_owned);
        let reported = quoted.or_else(|| number.parse::<u16>().is_ok().then(|| number.to_owned()));
        if let Some(reported) = reported {
            for variant in open.drain(..) {
                found.insert(variant, reported.clone());
            }
        }
    }
    found
}

fn join_line(before: &str, more: &str) -> String {
    format!("{before} {}", more.trim()).trim().to_owned()
}

/// Returns a text with `…` wherever something is put in.
pub(super) fn blank_placeholders(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        shown += before;
        shown.push('…');
        rest = behind.split_once('}').map_or("", |(_, rest)| rest);
    }
    (shown + rest).replace("\\\"", "\"")
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
pub mod code {
    /// One thing
    /// or the other.
    pub const ONE: i32 = -32001;
}
/// Why.
pub enum Why {
    /// Not there.
    #[error(\"no gate {0}\")]
    Unknown(String),
    /// Too large.
    #[error(\"more than {limit} bytes\")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
}
impl Why {
    pub fn status(&self) -> u16 {
        match self {
            Self::Unknown(_) | Self::TooLarge { .. } => 400,
        }
    }
    pub fn code(&self) -> &str {
        match self {
            Self::Unknown(_) => \"unknown_gate\",
            Self::TooLarge { .. } => \"too_large\",
        }
    }
}
";

    #[test]
    fn what_errors_are_called_is_read_with_what_they_mean() {
        assert_eq!(code_rows(SOURCE), [["`-32001`", "One thing or the other."]]);
        let want = [
            ["`400` `unknown_gate`", "no gate …", "Not there."],
            ["`400` `too_large`", "more than … bytes", "Too large."],
        ];
        assert_eq!(variant_rows(SOURCE, "Why").unwrap(), want);
        assert_eq!(enum_description(SOURCE, "Why"), "Why.");
        assert!(variant_rows(SOURCE, "Other").is_err());
    }

    #[test]
    fn names_of_the_wire_are_those_of_serde() {
        let source = "#[serde(rename_all = \"snake_case\")]\npub enum Code {\n    /// It is over.\n    RunEnded,\n}\n";
        assert_eq!(variant_rows(source, "Code").unwrap(), [["`run_ended`", "", "It is over."]]);
    }
}
