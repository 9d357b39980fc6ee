//! Variables of the environment in texts of a file.
//!
//! It must not know what a text is for. `${NAME}` and `${NAME:-text}` are replaced as in the original; a variable that is not set
//! leaves its place as it is. What comes from a variable is never looked at again.

use countersign_config::{McpServerOrigin, credential_names::is_credential_name, yaml::YamlField};

use super::entry_error::McpEntryError;
use crate::{ProcessEnvironment, keys};

/// Reader of the variables that the texts of one entry name.
pub(super) struct VariableExpander<'a> {
    environment: &'a ProcessEnvironment,
    origin: McpServerOrigin,
    notices: Vec<String>,
}

impl<'a> VariableExpander<'a> {
    pub(super) const fn new(environment: &'a ProcessEnvironment, origin: McpServerOrigin) -> Self {
        Self { environment, origin, notices: Vec::new() }
    }

    /// Returns one line for each variable that is not set.
    pub(super) fn into_notices(self) -> Vec<String> {
        self.notices
    }

    /// Returns `text` with its variables replaced.
    ///
    /// # Errors
    /// [`McpEntryError::Credential`] if a project's file names a variable that may hold one.
    pub(super) fn expand(&mut self, place: &YamlField<'_>, text: &str) -> Result<String, McpEntryError> {
        let mut result = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            result.push_str(before);
            let Some(reference) = VariableReference::parse(behind) else {
                result.push_str("${");
                rest = behind;
                continue;
            };
            let value = self.environment.value(reference.name);
            self.check_variable(place, reference.name, value)?;
            match value.or(reference.default) {
                Some(value) => result.push_str(value),
                None => {
                    self.note_unset(place, reference.name);
                    result.push_str("${");
                    result.push_str(&behind[..reference.length]);
                }
            }
            rest = &behind[reference.length..];
        }
        Ok(result + rest)
    }

    /// Returns a value of `env` or `headers`: that of the variable which the whole text names, else the text with its variables
    /// replaced.
    ///
    /// # Errors
    /// As [`Self::expand`], and [`McpEntryError::Command`] for a text that the original would run.
    pub(super) fn expand_value(&mut self, place: &YamlField<'_>, text: &str) -> Result<String, McpEntryError> {
        if text.starts_with('!') {
            return Err(McpEntryError::Command(place.shown_place()));
        }
        if let Some(value) = self.environment.get(text) {
            self.check_variable(place, text, Some(value))?;
            return Ok(value.to_owned());
        }
        self.expand(place, text)
    }

    /// Refuses variables that may hold a credential to a project: its author could send it anywhere.
    fn check_variable(&self, place: &YamlField<'_>, name: &str, value: Option<&str>) -> Result<(), McpEntryError> {
        // An address may hold a user and a password.
        let has_user = value.is_some_and(|value| value.contains("://") && value.contains('@'));
        let is_key = is_credential_name(name) || keys::key_variables().any(|variable| variable == name);
        if self.origin.is_trusted() || !(is_key || has_user) {
            return Ok(());
        }
        Err(McpEntryError::Credential { place: place.shown_place(), variable: name.to_owned() })
    }

    fn note_unset(&mut self, place: &YamlField<'_>, name: &str) {
        let place = place.shown_place();
        self.notices
            .push(format!("{place}the environment variable {name} is not set, so ${{{name}}} stays in the text"));
    }
}

/// One variable in a text.
struct VariableReference<'a> {
    name: &'a str,
    /// Text in place of a variable that is not set.
    default: Option<&'a str>,
    /// Number of bytes after the opening brace, the closing one included.
    length: usize,
}

impl<'a> VariableReference<'a> {
    /// Reads the variable whose name begins `text`; none if it has no such form.
    fn parse(text: &'a str) -> Option<Self> {
        let (inside, _) = text.split_once('}')?;
        let (name, default) = match inside.split_once(':') {
            Some((name, rest)) => (name, Some(rest.strip_prefix('-')?)),
            None => (inside, None),
        };
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let is_name = !name.is_empty() && name.chars().all(is_word);
        is_name.then_some(Self { name, default, length: inside.len() + 1 })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_config::{McpServerOrigin, yaml::YamlField};

    use super::VariableExpander;
    use crate::ProcessEnvironment;

    #[test]
    fn a_variable_is_replaced_in_its_forms_only() {
        let environment: ProcessEnvironment = [
            ("A", "x"),
            ("EMPTY", ""),
            ("NESTED", "${A}"),
            ("API_TOKEN", "t"),
            ("BANG", "!x"),
            ("BASE", "https://h/"),
            ("DATABASE", "postgres://u:p@h/d"),
        ]
        .into_iter()
        .collect();
        let place = YamlField::root(Path::new("mcp.json"), None);
        let unset = "mcp.json: the environment variable NONE is not set, so ${NONE} stays in the text";
        for (text, want, notices) in [
            ("plain", "plain", vec![]),
            ("${A}", "x", vec![]),
            ("a${A}b${A}", "axbx", vec![]),
            ("${A:-y}", "x", vec![]),
            ("${NONE:-y}", "y", vec![]),
            ("${NONE:-}", "", vec![]),
            ("${EMPTY}", "", vec![]),
            ("${EMPTY:-y}", "", vec![]),
            ("${NESTED}", "${A}", vec![]),
            ("${NONE}-${A}", "${NONE}-x", vec![unset.to_owned()]),
            ("${API_TOKEN}", "t", vec![]),
            ("$A ${ A} ${A:+y} ${} ${A", "$A ${ A} ${A:+y} ${} ${A", vec![]),
            ("${NONE:-${A}}", "${A}", vec![]),
        ] {
            let mut expander = VariableExpander::new(&environment, McpServerOrigin::User);
            assert_eq!(expander.expand(&place, text).unwrap(), want, "{text}");
            assert_eq!(expander.into_notices(), notices, "{text}");
        }
        let whole = |text: &str, origin| {
            let mut expander = VariableExpander::new(&environment, origin);
            expander.expand_value(&place, text).map_err(|error| error.to_string())
        };
        let refused = "mcp.json: API_TOKEN may hold a credential, and a project's file cannot use it: define the server in mcp.json of the agent directory";
        let command = "mcp.json: a value that starts with ! is a command, which is not run here; expected the value, or the name of an environment variable";
        for (text, origin, want) in [
            ("A", McpServerOrigin::Project, Ok("x")),
            ("${BASE}mcp", McpServerOrigin::Project, Ok("https://h/mcp")),
            ("${DATABASE}", McpServerOrigin::User, Ok("postgres://u:p@h/d")),
            ("API_TOKEN", McpServerOrigin::User, Ok("t")),
            ("API_TOKEN", McpServerOrigin::Project, Err(refused)),
            ("Bearer ${API_TOKEN}", McpServerOrigin::Project, Err(refused)),
            ("Bearer ${API_TOKEN:-x}", McpServerOrigin::Project, Err(refused)),
            ("${BANG}", McpServerOrigin::User, Ok("!x")),
            ("!pass show x", McpServerOrigin::User, Err(command)),
            ("EMPTY", McpServerOrigin::User, Ok("EMPTY")),
            ("NOT_SET", McpServerOrigin::Project, Ok("NOT_SET")),
        ] {
            assert_eq!(whole(text, origin), want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        for name in ["GH_TOKEN", "HF_TOKEN", "DATABASE", "pgpassword"] {
            assert!(whole(&format!("${{{name}}}"), McpServerOrigin::Project).is_err(), "{name}");
        }
    }
}
