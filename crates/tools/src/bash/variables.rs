//! Variables for one command: names that may be set, and values with the secrets that they name.
//!
//! It must not know the command.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{outcome::CallFailure, secrets::GatewaySecrets};

/// Variables that decide which code runs: they belong into the command, where policy and people see them.
const REFUSED: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PATH",
    "IFS",
    "PS4",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "CDPATH",
    "PAGER",
    "MANPAGER",
    "EDITOR",
    "VISUAL",
    "LESSOPEN",
    "LESSCLOSE",
    "NODE_OPTIONS",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "JAVA_TOOL_OPTIONS",
    "SSH_ASKPASS",
];
/// Prefixes of names that are refused too.
const REFUSED_PREFIXES: &[&str] = &["LD_", "DYLD_", "GIT_", "BASH_FUNC_", "GLIBC_"];

/// Returns the variables of a command with the values that they name inserted, and whether one was a secret.
pub(super) fn resolve_variables(
    named: BTreeMap<String, String>,
    secrets: &GatewaySecrets,
) -> Result<(Vec<(String, String)>, bool), CallFailure> {
    let mut uses_secrets = false;
    let filled = named.into_iter().map(|(name, text)| {
        let mut value = Value::String(text.clone());
        secrets.fill_value(&mut value).map_err(|problem| CallFailure::NotBegun(format!("Not run: env: {problem}")))?;
        let value = value.as_str().unwrap_or_default().to_owned();
        uses_secrets |= value != text;
        Ok((name, value))
    });
    let filled = filled.collect::<Result<Vec<_>, CallFailure>>()?;
    Ok((filled, uses_secrets))
}

pub(super) fn check_variable(name: &str) -> Result<(), CallFailure> {
    let mut bytes = name.bytes();
    let valid = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !valid {
        return Err(CallFailure::Invalid(format!("env: {name:?} is not a variable's name")));
    }
    let refused = REFUSED.contains(&name)
        || name.ends_with("_PAGER")
        || REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.starts_with("__countersign");
    if refused {
        return Err(CallFailure::Invalid(format!("env: {name} may not be set here; set it in the command itself")));
    }
    Ok(())
}
