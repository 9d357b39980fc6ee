//! A YAML file as a tree that remembers its lines, and typed reading with errors that name file, line and key.
//!
//! It must not know any setting. Keys without a reader are never looked at: the files belong to other programs too.

pub mod edit;

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use countersign_runtime::tools::regular;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

/// The largest file of settings that is read, in bytes.
pub const LARGEST: u64 = 16 << 20;
/// Deepest nesting of a file: no file that means something here comes near, and reading one takes the stack of a thread.
const DEEPEST: usize = 32;

/// One value of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlNode {
    /// Counted from 1; 0 where it is not known.
    pub line: u64,
    /// The value itself.
    pub kind: YamlKind,
}

/// Kind of a value. Maps keep their order.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlKind {
    /// Nothing, which counts as absent.
    Null,
    /// `true` or `false`. YAML 1.1's other words (`on`, `yes`) are text.
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<YamlNode>),
    /// A mapping.
    Map(Vec<(String, YamlNode)>),
}

/// Why a file could not be read as YAML.
#[derive(Debug, thiserror::Error)]
pub enum YamlReadError {
    /// The file is there, but cannot be read.
    #[error("{file}: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not well-formed.
    #[error("{file}:{line}: {message}", file = file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Counted from 1; 0 where it is not known.
        line: u64,
        /// The problem.
        message: String,
    },
}

/// A value is not of the kind that its key needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}expected {expected}, found {found}", shown_field(file, *line, key))]
pub struct WrongType {
    /// The file.
    pub file: PathBuf,
    /// Counted from 1; 0 where it is not known.
    pub line: u64,
    /// The whole key, its levels joined by dots.
    pub key: String,
    /// Expected value.
    pub expected: &'static str,
    /// Kind of the value found, never its text: it may be secret.
    pub found: &'static str,
}

/// Returns the start of a message about a value: its file, its line unless that is not known, and its key.
fn shown_field(file: &Path, line: u64, key: &str) -> String {
    let line = if line == 0 { String::new() } else { format!(":{line}") };
    let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
    format!("{}{line}: {key}", file.display())
}

impl YamlNode {
    /// Reads the file at `path`; a file whose name ends in `.json` as JSON. `None` if it is not there or empty.
    ///
    /// # Errors
    /// [`YamlReadError`] if it is there and cannot be used.
    pub fn read_file(path: &Path) -> Result<Option<Self>, YamlReadError> {
        let text = match regular::read_text(path, LARGEST) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(YamlReadError::Io { file: path.to_owned(), source }),
        };
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            return serde_json::from_str(text).map(|value| Some(Self::of_json(value))).map_err(|error| {
                let (file, line, message) = (path.to_owned(), error.line() as u64, error.to_string());
                YamlReadError::Syntax { file, line, message }
            });
        }
        Self::parse(&text).map_err(|(line, message)| YamlReadError::Syntax { file: path.to_owned(), line, message })
    }

    /// Reads `text`, or returns the line and the problem there. `None` if it holds nothing but comments.
    ///
    /// # Errors
    /// The line, counted from 1, and a message without the text of the file.
    pub fn parse(text: &str) -> Result<Option<Self>, (u64, String)> {
        Self::parse_with(
            text,
            serde_saphyr::options! {
                strict_booleans: true, with_snippet: false,
                budget: serde_saphyr::budget! { max_depth: DEEPEST, enforce_alias_anchor_ratio: false },
            },
        )
    }

    /// Parses as [`Self::parse`], and refuses tags that mean nothing here: a reader would pass over `!secret` in silence.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_untagged(text: &str) -> Result<Option<Self>, (u64, String)> {
        let options = serde_saphyr::options! {
            strict_booleans: true, with_snippet: false, reject_unsupported_tags: true,
            budget: serde_saphyr::budget! { max_depth: DEEPEST, enforce_alias_anchor_ratio: false },
        };
        Self::parse_with(text, options)
    }

    fn parse_with(text: &str, options: serde_saphyr::Options) -> Result<Option<Self>, (u64, String)> {
        let node = serde_saphyr::from_str_with_options::<Option<Self>>(text, options).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let error = error.without_snippet();
            // A credential that begins with an exclamation mark reads as a tag.
            if let serde_saphyr::Error::UnsupportedTag { .. } = error {
                return (line, "a value that starts with ! is a YAML tag, not text: put it in quotes".to_owned());
            }
            (line, error.to_string().lines().next().unwrap_or_default().to_owned())
        })?;
        Ok(node.filter(|node| node.kind != YamlKind::Null))
    }

    fn of_json(value: Value) -> Self {
        let kind = match value {
            Value::Null => YamlKind::Null,
            Value::Bool(flag) => YamlKind::Bool(flag),
            Value::Number(number) => YamlKind::Number(number),
            Value::String(text) => YamlKind::Text(text),
            Value::Array(items) => YamlKind::List(items.into_iter().map(Self::of_json).collect()),
            Value::Object(members) => {
                YamlKind::Map(members.into_iter().map(|(key, value)| (key, Self::of_json(value))).collect())
            }
        };
        Self { line: 0, kind }
    }

    /// Returns the value without its lines.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            YamlKind::Null => Value::Null,
            YamlKind::Bool(flag) => Value::Bool(*flag),
            YamlKind::Number(number) => Value::Number(number.clone()),
            YamlKind::Text(text) => Value::String(text.clone()),
            YamlKind::List(items) => items.iter().map(Self::to_json).collect(),
            YamlKind::Map(members) => members.iter().map(|(key, value)| (key.clone(), value.to_json())).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<YamlKind>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), kind: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KindVisitor;

        impl<'de> Visitor<'de> for KindVisitor {
            type Value = YamlKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_unit<E>(self) -> Result<YamlKind, E> {
                Ok(YamlKind::Null)
            }

            fn visit_none<E>(self) -> Result<YamlKind, E> {
                Ok(YamlKind::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlKind, D::Error> {
                YamlKind::deserialize(deserializer)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<YamlKind, E> {
                Ok(YamlKind::Bool(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<YamlKind, E> {
                Ok(YamlKind::Number(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<YamlKind, E> {
                Ok(YamlKind::Number(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<YamlKind, E> {
                Ok(Number::from_f64(number).map_or_else(|| YamlKind::Text(number.to_string()), YamlKind::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<YamlKind, E> {
                Ok(YamlKind::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlKind, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(YamlKind::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<YamlKind, A::Error> {
                let mut map = Vec::new();
                while let Some((key, mut node)) = members.next_entry::<Spanned<String>, YamlNode>()? {
                    // A person looks for a block at its key, not at its first member.
                    if matches!(node.kind, YamlKind::Map(_) | YamlKind::List(_)) {
                        node.line = key.referenced.line();
                    }
                    map.push((key.value, node));
                }
                Ok(YamlKind::Map(map))
            }
        }

        deserializer.deserialize_any(KindVisitor)
    }
}

/// A place in a file: the value under a key, or its absence.
#[derive(Clone, Debug)]
pub struct YamlField<'a> {
    file: &'a Path,
    key: String,
    line: u64,
    node: Option<&'a YamlNode>,
}

impl<'a> YamlField<'a> {
    /// Returns the whole of `file`.
    pub fn root(file: &'a Path, node: Option<&'a YamlNode>) -> Self {
        Self { file, key: String::new(), line: node.map_or(0, |node| node.line), node }
    }

    /// Returns the whole key, its levels joined by dots.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns true if there is nothing here.
    pub fn is_absent(&self) -> bool {
        self.node.is_none_or(|node| node.kind == YamlKind::Null)
    }

    fn child_field(&self, key: &str, node: Option<&'a YamlNode>) -> Self {
        let whole = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { file: self.file, key: whole, line: node.map_or(self.line, |node| node.line), node }
    }

    /// Returns the file.
    pub const fn file(&self) -> &'a Path {
        self.file
    }

    /// Returns the line, counted from 1; 0 where it is not known.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// Returns the place in a message: the file, the line unless it is not known, and the key, each with a colon.
    pub fn shown_place(&self) -> String {
        shown_field(self.file, self.line, &self.key)
    }

    /// Says that something else is needed here.
    pub fn type_error(&self, expected: &'static str) -> WrongType {
        let found = match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => "nothing",
            Some(YamlKind::Bool(_)) => "true or false",
            Some(YamlKind::Number(_)) => "a number",
            Some(YamlKind::Text(_)) => "other text",
            Some(YamlKind::List(_)) => "a list",
            Some(YamlKind::Map(_)) => "a mapping",
        };
        WrongType { file: self.file.to_owned(), line: self.line, key: self.key.clone(), expected, found }
    }

    /// Returns the value under `key`.
    ///
    /// # Errors
    /// [`WrongType`] if the value is no mapping.
    pub fn at(&self, key: &str) -> Result<Self, WrongType> {
        let member = match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => None,
            Some(YamlKind::Map(members)) => members.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            Some(YamlKind::Bool(_) | YamlKind::Number(_) | YamlKind::Text(_) | YamlKind::List(_)) => {
                return Err(self.type_error("a mapping"));
            }
        };
        Ok(self.child_field(key, member))
    }

    /// Returns all values of a mapping with their keys, in the order of the file; none if it is absent.
    ///
    /// # Errors
    /// [`WrongType`] if the value is no mapping.
    pub fn members(&self) -> Result<Vec<(&'a str, Self)>, WrongType> {
        match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => Ok(Vec::new()),
            Some(YamlKind::Map(members)) => {
                Ok(members.iter().map(|(key, node)| (key.as_str(), self.child_field(key, Some(node)))).collect())
            }
            Some(YamlKind::Bool(_) | YamlKind::Number(_) | YamlKind::Text(_) | YamlKind::List(_)) => {
                Err(self.type_error("a mapping"))
            }
        }
    }

    /// Returns all values of a list; `None` if it is absent.
    ///
    /// # Errors
    /// [`WrongType`] if the value is no list.
    pub fn items(&self) -> Result<Option<Vec<Self>>, WrongType> {
        match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => Ok(None),
            Some(YamlKind::List(items)) => Ok(Some(
                items.iter().enumerate().map(|(at, node)| self.child_field(&at.to_string(), Some(node))).collect(),
            )),
            Some(YamlKind::Bool(_) | YamlKind::Number(_) | YamlKind::Text(_) | YamlKind::Map(_)) => {
                Err(self.type_error("a list"))
            }
        }
    }

    /// Returns text; `None` if it is absent.
    ///
    /// # Errors
    /// [`WrongType`] if the value is not text.
    pub fn text(&self) -> Result<Option<&'a str>, WrongType> {
        match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => Ok(None),
            Some(YamlKind::Text(text)) => Ok(Some(text)),
            Some(YamlKind::Bool(_) | YamlKind::Number(_) | YamlKind::List(_) | YamlKind::Map(_)) => {
                Err(self.type_error("text (quote it if it looks like something else)"))
            }
        }
    }

    /// Returns `true` or `false`; `None` if it is absent.
    ///
    /// # Errors
    /// [`WrongType`] if the value is neither.
    pub fn flag(&self) -> Result<Option<bool>, WrongType> {
        match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => Ok(None),
            Some(YamlKind::Bool(flag)) => Ok(Some(*flag)),
            Some(YamlKind::Number(_) | YamlKind::Text(_) | YamlKind::List(_) | YamlKind::Map(_)) => {
                Err(self.type_error("true or false"))
            }
        }
    }

    /// Returns a number that is not negative; `None` if it is absent.
    ///
    /// # Errors
    /// [`WrongType`] if the value is none.
    pub fn non_negative(&self) -> Result<Option<f64>, WrongType> {
        match self.node.map(|node| &node.kind) {
            None | Some(YamlKind::Null) => Ok(None),
            Some(YamlKind::Number(number)) => match number.as_f64() {
                Some(number) if number >= 0.0 => Ok(Some(number)),
                Some(_) | None => Err(self.type_error("a number that is not negative")),
            },
            Some(YamlKind::Bool(_) | YamlKind::Text(_) | YamlKind::List(_) | YamlKind::Map(_)) => {
                Err(self.type_error("a number"))
            }
        }
    }

    /// Returns true for a number below zero.
    pub fn is_negative(&self) -> bool {
        matches!(self.node.map(|node| &node.kind), Some(YamlKind::Number(number)) if number.as_f64() < Some(0.0))
    }

    /// Returns a whole number that is not negative; `None` if it is absent.
    ///
    /// # Errors
    /// [`WrongType`] if the value is none.
    pub fn whole_number(&self) -> Result<Option<u64>, WrongType> {
        match self.non_negative()? {
            None => Ok(None),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: whole and in range")]
            Some(number) if number.fract() == 0.0 && number <= 9_007_199_254_740_991.0 => Ok(Some(number as u64)),
            Some(_) => Err(self.type_error("a whole number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{YamlField, YamlNode};

    #[test]
    fn a_file_that_nests_deeper_than_any_that_means_something_is_refused() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(YamlNode::parse(&nested(31)).is_ok());
        for depth in [33, 60] {
            assert_eq!(YamlNode::parse(&nested(depth)).unwrap_err().0, 1, "{depth}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("models.yml", "\u{feff}a: 1\n"), ("models.json", "\u{feff}{\"a\": 1}")] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let node = YamlNode::read_file(&path).unwrap();
            assert_eq!(
                YamlField::root(&path, node.as_ref()).at("a").unwrap().whole_number().unwrap(),
                Some(1),
                "{name}"
            );
        }
    }

    #[test]
    fn a_value_of_another_kind_names_file_line_and_key() {
        let node = YamlNode::parse("# head\nretry:\n  enabled: on\n  maxRetries: many\nlist: [1]\n").unwrap();
        let root = YamlField::root(Path::new("config.yml"), node.as_ref());
        let retry = root.at("retry").unwrap();
        for (got, want) in [
            (
                retry.at("enabled").unwrap().flag().map(|_| ()),
                "config.yml:3: retry.enabled: expected true or false, found other text",
            ),
            (
                retry.at("maxRetries").unwrap().whole_number().map(|_| ()),
                "config.yml:4: retry.maxRetries: expected a number, found other text",
            ),
            (root.at("list").unwrap().at("x").map(|_| ()), "config.yml:5: list: expected a mapping, found a list"),
            (
                root.at("list").unwrap().items().unwrap().unwrap()[0].text().map(|_| ()),
                "config.yml:5: list.0: expected text (quote it if it looks like something else), found a number",
            ),
        ] {
            assert_eq!(got.unwrap_err().to_string(), want);
        }
        let node = YamlNode::of_json(json!({"a": {"b": 1}}));
        let field = YamlField::root(Path::new("a.json"), Some(&node)).at("a").unwrap().at("b").unwrap();
        assert_eq!(field.type_error("text").to_string(), "a.json: a.b: expected text, found a number");
        let text = YamlNode::parse("just text").unwrap();
        let error = YamlField::root(Path::new("config.yml"), text.as_ref()).at("x").unwrap_err();
        assert_eq!(error.to_string(), "config.yml:1: expected a mapping, found other text");
        assert_eq!(root.at("absent").unwrap().at("deeper").unwrap().flag(), Ok(None));
    }

    #[test]
    fn a_block_is_on_the_line_of_its_key_and_keys_need_not_be_words() {
        let node = YamlNode::parse("one:\n  two: 2\n3:\n  - 4\n").unwrap().unwrap();
        assert_eq!(node.to_json(), json!({"one": {"two": 2}, "3": [4]}));
        let root = YamlField::root(Path::new("config.yml"), Some(&node));
        let lines = root.members().unwrap().into_iter().map(|(key, place)| (key, place.line())).collect::<Vec<_>>();
        assert_eq!(lines, [("one", 1), ("3", 3)]);
    }

    #[test]
    fn errors_do_not_contain_the_text_of_the_file() {
        for value in [
            "!Secret1 x",
            "!Secret1!x y",
            "!<Secret1> x",
            "!!Secret1 x",
            "!Secret1{ x",
            "*Secret1",
            "%Secret1",
            "|Secret1",
            "[Secret1",
            "\"\\Secret1\"",
            "'Secret1'Secret1",
            "Secret1: Secret1",
            "!!int Secret1",
        ] {
            let (line, why) = YamlNode::parse_untagged(&format!("agent:\n  token: {value}\n")).unwrap_err();
            assert!(line == 2 && !why.contains("Secret1"), "{value}: {why}");
        }
        let wrong = YamlNode::parse_untagged("agent:\n  token: !Secret1 x\n").unwrap_err();
        assert_eq!(wrong, (2, "a value that starts with ! is a YAML tag, not text: put it in quotes".to_owned()));
    }

    #[test]
    fn only_true_and_false_are_flags() {
        let node = YamlNode::parse("a: yes\nb: on\nc: true\nd: off\ne: ~\nf: 1.5\n").unwrap().unwrap();
        let want = json!({"a": "yes", "b": "on", "c": true, "d": "off", "e": null, "f": 1.5});
        assert_eq!(node.to_json(), want);
    }

    #[test]
    fn a_file_that_is_not_well_formed_names_the_line() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, line) in
            [("a.yml", "a: 1\nb: [\n", ":"), ("b.json", "{\n \"a\": }", ":2:"), ("c.yml", "a: 1\na: 2\n", ":2:")]
        {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            let error = YamlNode::read_file(&file).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}{line}", file.display())), "{error}");
        }
        assert!(YamlNode::read_file(&folder.path().join("absent.yml")).unwrap().is_none());
        let error = YamlNode::read_file(std::path::Path::new("/dev/null")).unwrap_err().to_string();
        assert_eq!(error, "/dev/null: it is not a regular file");
        assert_eq!(YamlNode::parse("# nothing\n"), Ok(None));
        assert_eq!(YamlNode::parse(""), Ok(None));
    }
}
