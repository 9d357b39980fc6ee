//! The variables that the process was started with, and those of `.env` files.
//!
//! It must not know what any variable means.

use std::{collections::BTreeMap, fmt, path::Path};

use countersign_config::yaml::LARGEST;
use countersign_runtime::tools::regular;

/// Variables by name. Printing it shows the names only, for values may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProcessEnvironment(BTreeMap<String, String>);

impl ProcessEnvironment {
    /// Takes the variables of this process that are text.
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// Returns the value of `name`; an empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of `name`, also an empty one.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Adds the variables of the `.env` file at `path` that are not set yet. A file that cannot be read adds nothing.
    pub fn add_file(&mut self, path: &Path) {
        let Ok(bytes) = regular::read_bytes(path, LARGEST) else { return };
        for (name, value) in parse_variables(&String::from_utf8_lossy(&bytes)) {
            if self.get(&name).is_none() {
                self.0.insert(name, value);
            }
        }
    }
}

impl fmt::Debug for ProcessEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for ProcessEnvironment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Reads `NAME=value` lines: `export` in front is allowed, quotes around a value are taken off, `#` after a blank
/// starts a comment outside of quotes. A line of another form is skipped.
fn parse_variables(text: &str) -> Vec<(String, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().filter_map(parse_assignment).collect()
}

fn parse_assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let named = name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    named.then(|| (name.to_owned(), unquoted_value(value.trim())))
}

fn unquoted_value(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some((inside, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return if quote == '"' { inside.replace("\\n", "\n") } else { inside.to_owned() };
        }
    }
    let comment = value.find(" #").or_else(|| value.starts_with('#').then_some(0));
    value[..comment.unwrap_or(value.len())].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{ProcessEnvironment, parse_variables};

    #[test]
    fn an_env_file_gives_its_assignments() {
        for (line, want) in [
            ("A=1", Some(("A", "1"))),
            (" export B = two words # why", Some(("B", "two words"))),
            ("C=\"x # y\" # z", Some(("C", "x # y"))),
            ("D='a\\nb'", Some(("D", "a\\nb"))),
            ("E=\"a\\nb\"", Some(("E", "a\nb"))),
            ("F=", Some(("F", ""))),
            ("\u{feff}F=1", Some(("F", "1"))),
            ("G=a#b", Some(("G", "a#b"))),
            ("# H=1", None),
            ("1I=2", None),
            ("no assignment", None),
        ] {
            let want: Vec<_> = want.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            assert_eq!(parse_variables(line), want, "{line}");
        }
    }

    #[test]
    fn a_file_never_overrides_what_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".env");
        std::fs::write(&file, "A=file\nB=file\nC=file\n").unwrap();
        let mut environment: ProcessEnvironment = [("A", "process"), ("B", "")].into_iter().collect();
        environment.add_file(&file);
        environment.add_file(&folder.path().join("absent"));
        // It has no writer: to open it would wait for ever.
        assert!(std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
        environment.add_file(&folder.path().join("pipe"));
        assert_eq!(["A", "B", "C"].map(|name| environment.get(name)), [Some("process"), Some("file"), Some("file")]);
        assert_eq!(format!("{environment:?}"), r#"{"A", "B", "C"}"#);
    }
}
