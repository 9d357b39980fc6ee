//! The variables that commands of tools start with.
//!
//! It must not know which keys a provider uses: they are handed in.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
};

/// Variables that keep programs from waiting for a person, a pager or an editor, and from colouring.
const QUIET: &[(&str, &str)] = &[
    ("CI", "1"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GH_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("BAT_PAGER", "cat"),
    ("DELTA_PAGER", "cat"),
    ("AWS_PAGER", ""),
    ("LESS", "FRX"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GCM_INTERACTIVE", "never"),
    ("SSH_ASKPASS", "/bin/false"),
    ("GIT_ASKPASS", "/bin/false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
    ("NPM_CONFIG_YES", "true"),
    ("PYTHONUNBUFFERED", "1"),
];

/// Variables that [`CommandEnvironment::clean_with`] takes over from the gateway, in addition to every `LC_*`.
const PLAIN: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL"];

/// Variables that decide what code a shell runs at its start, which no shell of ours gets.
const NEVER: &[&str] = &["BASH_ENV", "ENV", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PS4"];

/// Prefix of the variables for the export of traces: their headers carry keys, and no command needs them.
const TRACES: &str = "OTEL_EXPORTER_OTLP_";

/// The variables that commands start with. Printing it shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CommandEnvironment(BTreeMap<OsString, OsString>);

impl CommandEnvironment {
    /// Creates an environment of the gateway's own variables less those that `withheld` names, made quiet: for adapters whose
    /// host starts us.
    pub fn inherit_less(withheld: impl Fn(&str) -> bool) -> Self {
        Self::inherit_from(std::env::vars_os(), withheld)
    }

    /// Does the same, from `variables`. A name that is not UTF-8 is judged by its readable part.
    pub fn inherit_from(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        withheld: impl Fn(&str) -> bool,
    ) -> Self {
        let kept = variables.into_iter().filter(|(name, _)| !withheld(&name.to_string_lossy()));
        Self::make_quiet(kept.collect())
    }

    /// Creates an environment of `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `TMPDIR`, `USER` and `SHELL`, and the variables in
    /// `extra`: for the server.
    pub fn clean_with(extra: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::clean_from(std::env::vars_os(), extra)
    }

    /// Does the same, from `variables`.
    pub fn clean_from(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        extra: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let plain = |name: &OsStr| name.to_str().is_some_and(|name| PLAIN.contains(&name) || name.starts_with("LC_"));
        let mut made = Self::make_quiet(variables.into_iter().filter(|(name, _)| plain(name)).collect());
        made.0.extend(extra.into_iter().map(|(name, value)| (name.into(), value.into())));
        made
    }

    fn make_quiet(mut variables: BTreeMap<OsString, OsString>) -> Self {
        variables.retain(|name, _| {
            !NEVER.iter().any(|never| name == never) && !name.as_encoded_bytes().starts_with(TRACES.as_bytes())
        });
        variables.extend(QUIET.iter().map(|(name, value)| (name.into(), value.into())));
        Self(variables)
    }

    /// Gives a variable another value.
    pub fn set_variable(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    /// Returns the value of one variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Returns all variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl fmt::Debug for CommandEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::CommandEnvironment;

    fn given() -> Vec<(OsString, OsString)> {
        [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("MODEL_KEY", "secret"),
            ("EDITOR", "vi"),
            ("BASH_ENV", "/evil"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=secret"),
            ("OTEL_SERVICE_NAME", "mine"),
            ("X", "1"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec()
    }

    #[test]
    fn a_host_hands_on_everything_but_the_withheld_keys() {
        let made = CommandEnvironment::inherit_from(given(), |name| name.ends_with("_KEY"));
        let seen = |name| made.get(name).and_then(std::ffi::OsStr::to_str);
        for (name, want) in [
            ("PATH", Some("/bin")),
            ("X", Some("1")),
            ("MODEL_KEY", None),
            ("BASH_ENV", None),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", None),
            ("OTEL_EXPORTER_OTLP_HEADERS", None),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", None),
            ("OTEL_SERVICE_NAME", Some("mine")),
            ("EDITOR", Some("true")),
            ("CI", Some("1")),
            ("GIT_TERMINAL_PROMPT", Some("0")),
        ] {
            assert_eq!(seen(name), want, "{name}");
        }
    }

    #[test]
    fn the_server_hands_on_the_named_variables_only() {
        let made = CommandEnvironment::clean_from(given(), [("MINE".to_owned(), "2".to_owned())]);
        let seen = |name| made.get(name).and_then(std::ffi::OsStr::to_str);
        for (name, want) in [
            ("PATH", Some("/bin")),
            ("LC_ALL", Some("C")),
            ("X", None),
            ("OTEL_EXPORTER_OTLP_HEADERS", None),
            ("MODEL_KEY", None),
            ("MINE", Some("2")),
            ("PAGER", Some("cat")),
        ] {
            assert_eq!(seen(name), want, "{name}");
        }
    }

    #[test]
    fn printing_an_environment_shows_no_value() {
        let made = CommandEnvironment::inherit_from(given(), |_| false);
        assert!(!format!("{made:?}").contains("secret"));
    }
}
