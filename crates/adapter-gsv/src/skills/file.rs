//! File of a skill: its front matter, and the skill's requirements.

use countersign_protocol::gsv::{
    runtime::{HostRole, MachineCapability},
    skill::SkillRequirements,
};
use serde_json::{Map, Value};

/// Longest description that is made from the text, in characters.
const SHORT: usize = 200;
/// Blocks of the metadata that hold the requirements. The first that exists counts.
const BLOCKS: [&str; 3] = ["gsv", "openclaw", "clawdbot"];

/// Contents of a skill's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SkillHeader {
    /// Name in the file.
    pub(super) name: Option<String>,
    /// Purpose.
    pub(super) description: String,
    /// True if the skill is available whatever machines are connected.
    pub(super) always: bool,
    /// Requirements as they are written. `None` if there are none.
    pub(super) requires: Option<Map<String, Value>>,
    /// True if the requirements cannot be read.
    pub(super) is_garbled: bool,
}

impl SkillHeader {
    /// Parses a file. Missing members are made from the text.
    pub(super) fn from_text(text: &str) -> Self {
        let text = text.trim_start_matches('\u{feff}');
        let (front, body) = split_front_matter(text);
        let mut head = Self::default();
        for (name, value) in front_matter_members(front) {
            match name {
                "name" => head.name = Some(unquote_value(&value)).filter(|name| !name.is_empty()),
                "description" => head.description = unquote_value(&value),
                "always" => head.always = matches!(unquote_value(&value).to_ascii_lowercase().as_str(), "true" | "yes"),
                "metadata" => head.read_metadata(&value),
                _ => {}
            }
        }
        if head.description.is_empty() {
            head.description = first_paragraph(body);
        }
        head
    }

    fn read_metadata(&mut self, text: &str) {
        let Ok(Value::Object(metadata)) = serde_json::from_str::<Value>(&without_trailing_commas(text)) else {
            self.is_garbled = !text.trim().is_empty();
            return;
        };
        let block = BLOCKS.iter().find_map(|name| metadata.get(*name));
        let Some(Value::Object(block)) = block else { return };
        self.always |= block.get("always") == Some(&Value::Bool(true));
        match block.get("requires") {
            None | Some(Value::Null) => {}
            Some(Value::Object(requires)) => self.requires = Some(requires.clone()),
            Some(_) => self.is_garbled = true,
        }
    }
}

/// Parses the requirements of a skill. `None` if one is no list of names, or has an unknown name.
pub(super) fn read_requirements(written: &Map<String, Value>) -> Option<SkillRequirements> {
    let names = |key: &str| -> Option<Vec<String>> {
        let Some(value) = written.get(key).filter(|value| !value.is_null()) else { return Some(Vec::new()) };
        let names = value.as_array()?.iter().map(|name| name.as_str().map(str::trim).map(str::to_owned));
        names.collect::<Option<Vec<_>>>().map(|names| names.into_iter().filter(|name| !name.is_empty()).collect())
    };
    let capabilities =
        |key: &str| names(key)?.iter().map(|name| MachineCapability::from_name(name)).collect::<Option<Vec<_>>>();
    let role = |name: &String| match name.as_str() {
        "execution" => Some(HostRole::Execution),
        "specialized" => Some(HostRole::Specialized),
        _ => None,
    };
    Some(SkillRequirements {
        bins: names("bins")?,
        any_bins: names("anyBins")?,
        env: names("env")?,
        config: names("config")?,
        os: names("os")?,
        host_roles: names("hostRoles")?.iter().map(role).collect::<Option<Vec<_>>>()?,
        capabilities: capabilities("capabilities")?,
        any_capabilities: capabilities("anyCapabilities")?,
    })
}

/// Splits a file into the text between the first two lines of dashes, and the rest.
fn split_front_matter(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix("---") else { return ("", text) };
    let Some((blank, rest)) = rest.split_once('\n') else { return ("", text) };
    if !blank.trim().is_empty() {
        return ("", text);
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return (&rest[..at], &rest[at + line.len()..]);
        }
        at += line.len();
    }
    ("", text)
}

/// Returns names and values. A value continues in the following lines that are indented.
fn front_matter_members(front: &str) -> Vec<(&str, String)> {
    let mut members: Vec<(&str, String)> = Vec::new();
    for line in front.lines() {
        let is_more = line.starts_with([' ', '\t']) || line.starts_with(['{', '}']);
        match (line.split_once(':'), members.last_mut()) {
            (_, Some((_, value))) if is_more || line.trim().is_empty() => {
                value.push('\n');
                value.push_str(line.trim());
            }
            (Some((name, value)), _) if !is_more => members.push((name.trim(), value.trim().to_owned())),
            _ => {}
        }
    }
    members
}

/// Returns a value as one line, without quotes around it and without the markers of a multi-line text.
fn unquote_value(value: &str) -> String {
    let value = value.trim();
    let value = value.strip_prefix(['>', '|']).map_or(value, |rest| rest.trim_start_matches(['-', '+']));
    let joined = value.split_whitespace().collect::<Vec<_>>().join(" ");
    let inner = ['"', '\''].iter().find_map(|quote| joined.strip_prefix(*quote)?.strip_suffix(*quote));
    inner.map(str::to_owned).unwrap_or(joined)
}

/// Returns JSON without commas before a closing bracket.
fn without_trailing_commas(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut is_text, mut is_escaped) = (false, false);
    for c in text.chars() {
        if is_text {
            is_text = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
        } else if c == '"' {
            is_text = true;
        } else if matches!(c, '}' | ']') {
            let end = kept.trim_end().len();
            if kept[..end].ends_with(',') {
                kept.truncate(end - 1);
            }
        }
        kept.push(c);
    }
    kept
}

fn first_paragraph(body: &str) -> String {
    let lines = body.lines().map(str::trim).skip_while(|line| line.is_empty() || line.starts_with('#'));
    let text: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    text.join(" ").chars().take(SHORT).collect()
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gsv::{runtime::MachineCapability, skill::SkillRequirements};
    use serde_json::json;

    use super::{SkillHeader, read_requirements};

    #[test]
    fn the_head_of_a_skill_is_read_with_all_its_liberties() {
        let text = "---\nname: tea\ndescription: \"Makes tea: green, black\"\nhomepage: https://x\nalways: true\nmetadata:\n  {\n    \"openclaw\": { \"emoji\": \"t\", \"requires\": { \"bins\": [\"kettle\", \"a,]\", ], }, },\n  }\n---\n# Tea\n\nBoil.\n";
        let head = SkillHeader::from_text(text);
        assert_eq!(
            (head.name.as_deref(), head.description.as_str(), head.always),
            (Some("tea"), "Makes tea: green, black", true)
        );
        assert_eq!(serde_json::Value::from(head.requires.unwrap()), json!({"bins": ["kettle", "a,]"]}));
        for (case, text, name, description) in [
            ("no head", "# Title\n\nFirst\nparagraph.\n\nSecond.", None, "First paragraph."),
            ("an open head", "---\nname: x\n\ntext", None, "--- name: x"),
            ("of several lines", "---\nname: 'x'\ndescription: >-\n  one\n  two\n---\n", Some("x"), "one two"),
            ("windows", "---\r\nname: x\r\n---\r\nBody.\r\n", Some("x"), "Body."),
            ("nothing", "", None, ""),
        ] {
            let head = SkillHeader::from_text(text);
            assert_eq!((head.name.as_deref(), head.description.as_str()), (name, description), "{case}");
        }
        assert!(SkillHeader::from_text("---\nmetadata: {broken\n---\n").is_garbled);
        let gsv = SkillHeader::from_text(
            "---\nmetadata: {\"clawdbot\":{\"requires\":{\"os\":[\"a\"]}},\"gsv\":{\"requires\":{\"os\":[\"b\"]}}}\n---\n",
        );
        assert_eq!(serde_json::Value::from(gsv.requires.unwrap()), json!({"os": ["b"]}));
    }

    #[test]
    fn needs_that_name_what_there_is_not_cannot_be_read() {
        let read = |written: serde_json::Value| read_requirements(written.as_object().unwrap());
        assert_eq!(read(json!({})), Some(SkillRequirements::default()));
        let want =
            SkillRequirements { capabilities: vec![MachineCapability::ShellExec], ..SkillRequirements::default() };
        assert_eq!(read(json!({"capabilities": ["shell.exec"], "bins": null})), Some(want));
        for wrong in [
            json!({"capabilities": ["fly"]}),
            json!({"hostRoles": ["boss"]}),
            json!({"bins": "git"}),
            json!({"env": [1]}),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }
}
