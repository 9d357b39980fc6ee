//! One entry of a file: a server with its transport.
//!
//! It must not know which file it comes from. The names, addresses and headers that it accepts are those of the gateway's own
//! configuration. Source: docs/mcp-config.md of oh-my-pi.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use countersign_config::{
    McpServerConfig, McpServerOrigin, McpTransportConfig,
    mcp_checks::{self, McpValueError},
    yaml::{WrongType, YamlField},
};
use secrecy::SecretString;

use super::{entry_error::McpEntryError, expansion::VariableExpander};
use crate::{
    names::RestrictionKind,
    setting_names::{self, SwitchSense},
};

/// Milliseconds below which a time limit is meant as seconds, as other programs write it.
const SECONDS_BELOW: f64 = 1000.0;

/// Members that the original has.
const MEMBERS: [&str; 11] =
    ["type", "command", "args", "env", "cwd", "url", "headers", "auth", "oauth", "timeout", "enabled"];

/// An entry, and whether it is switched on.
pub(super) struct McpEntry {
    /// False also for a faulty entry that switches itself off.
    pub(super) is_enabled: bool,
    pub(super) config: Result<McpServerConfig, McpEntryError>,
}

/// Reads the entry at `place`. Relative folders start at `cwd`, as in the original.
pub(super) fn read_entry(
    name: &str,
    place: &YamlField<'_>,
    cwd: &Path,
    origin: McpServerOrigin,
    variables: &mut VariableExpander<'_>,
) -> McpEntry {
    let flag = place.at("enabled").and_then(|place| place.flag());
    McpEntry { is_enabled: !matches!(flag, Ok(Some(false))), config: read_server(name, place, cwd, origin, variables) }
}

fn read_server(
    name: &str,
    place: &YamlField<'_>,
    cwd: &Path,
    origin: McpServerOrigin,
    variables: &mut VariableExpander<'_>,
) -> Result<McpServerConfig, McpEntryError> {
    checked(place, mcp_checks::check_server_name(name))?;
    refuse_restrictions(place)?;
    let enabled = place.at("enabled")?.flag()?.unwrap_or(true);
    let timeout = read_timeout(&place.at("timeout")?)?;
    let kind = place.at("type")?;
    let (has_command, has_url) = (!place.at("command")?.is_absent(), !place.at("url")?.is_absent());
    let no_transport = |expected| Err(McpEntryError::NoTransport { place: place.shown_place(), expected });
    let transport = match (kind.text()?, has_command, has_url) {
        (_, true, true) => return Err(McpEntryError::BothTransports(place.shown_place())),
        (Some("sse"), _, _) => return Err(McpEntryError::Sse(kind.shown_place())),
        (None | Some("stdio"), true, false) => read_stdio(place, cwd, variables)?,
        (None | Some("http"), false, true) => read_http(place, variables)?,
        (None, false, false) => return no_transport("command for a program, or url for an address"),
        (Some("stdio"), false, _) => return no_transport("command, which a server of the type stdio needs"),
        (Some("http"), _, false) => return no_transport("url, which a server of the type http needs"),
        (Some(_), _, _) => return Err(kind.type_error("stdio or http").into()),
    };
    let args = place.at("args")?.items()?.unwrap_or_default().into_iter().enumerate();
    let hidden = args.filter(|(_, arg)| arg.text().is_ok_and(|text| text.is_some_and(|text| text.contains("${"))));
    let hidden_args = hidden.map(|(at, _)| at).collect();
    Ok(McpServerConfig { name: name.to_owned(), transport, timeout, enabled, origin, hidden_args })
}

/// Refuses members that take something away by their name and value, such as a list of available tools.
fn refuse_restrictions(place: &YamlField<'_>) -> Result<(), McpEntryError> {
    for (key, member) in place.members()?.into_iter().filter(|(key, _)| !MEMBERS.contains(key)) {
        let restricts = if key == "tools" {
            restricts_tools(&member)
        } else {
            let claim = setting_names::setting_claim(key).or_else(|| setting_names::switch_claim(key, &[]));
            // Calls that need no approval elsewhere are judged by rules here.
            let claim =
                claim.filter(|claim| claim.what != RestrictionKind::Approvals || claim.sense == SwitchSense::Takes);
            claim.is_some_and(|claim| setting_names::value_restricts(&member, claim.sense))
        };
        if restricts {
            return Err(McpEntryError::Restricts(member.shown_place()));
        }
    }
    Ok(())
}

/// Reports whether a list of tools holds less than all.
fn restricts_tools(place: &YamlField<'_>) -> bool {
    let is_all = |item: &YamlField<'_>| item.text() == Ok(Some("*"));
    !place.is_absent() && place.items().map_or(true, |items| !items.unwrap_or_default().iter().any(is_all))
}

/// Reads milliseconds, or a small number of seconds.
fn read_timeout(place: &YamlField<'_>) -> Result<Duration, WrongType> {
    let Some(number) = place.non_negative()? else { return Ok(McpServerConfig::DEFAULT_TIMEOUT) };
    Ok(limit_from_milliseconds(if number < SECONDS_BELOW { number * 1000.0 } else { number }))
}

/// Returns the time limit of `number` milliseconds; 0 and more than the longest are the longest.
pub(super) fn limit_from_milliseconds(number: f64) -> Duration {
    let longest = McpServerConfig::LONGEST_TIMEOUT;
    let limit = Duration::try_from_secs_f64(number / 1000.0).unwrap_or(longest);
    if limit.is_zero() { longest } else { limit.min(longest) }
}

fn read_stdio(
    place: &YamlField<'_>,
    cwd: &Path,
    variables: &mut VariableExpander<'_>,
) -> Result<McpTransportConfig, McpEntryError> {
    let command = place.at("command")?;
    let text = read_text(&command, variables)?.filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| command.type_error("the program of the server"))?;
    let mut args = Vec::new();
    for item in place.at("args")?.items()?.unwrap_or_default() {
        args.push(read_text(&item, variables)?.ok_or_else(|| item.type_error("text"))?);
    }
    let mut env = BTreeMap::new();
    for (name, place) in place.at("env")?.members()? {
        checked(&place, mcp_checks::check_variable_name(name))?;
        let value = variables.expand_value(&place, place.text()?.ok_or_else(|| place.type_error("text"))?)?;
        checked(&place, mcp_checks::check_variable_value(&value))?;
        env.insert(name.to_owned(), SecretString::from(value));
    }
    let folder = read_text(&place.at("cwd")?, variables)?.filter(|text| !text.is_empty());
    Ok(McpTransportConfig::Stdio { command: text, args, env, cwd: folder.map(|folder| cwd.join(folder)) })
}

fn read_http(place: &YamlField<'_>, variables: &mut VariableExpander<'_>) -> Result<McpTransportConfig, McpEntryError> {
    let url = place.at("url")?;
    let text = read_text(&url, variables)?.unwrap_or_default();
    checked(&url, mcp_checks::check_address(&text))?;
    let mut headers = Vec::new();
    let mut names = BTreeSet::new();
    for (name, place) in place.at("headers")?.members()? {
        checked(&place, mcp_checks::check_header_name(name))?;
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(McpEntryError::HeaderTwice(place.shown_place()));
        }
        let value = variables.expand_value(&place, place.text()?.ok_or_else(|| place.type_error("text"))?)?;
        checked(&place, mcp_checks::check_header_value(&value))?;
        headers.push((name.to_owned(), SecretString::from(value)));
    }
    // In the original a header of this name replaces the token of a user who signed in.
    if !names.contains("authorization") {
        refuse_sign_in(place)?;
    }
    Ok(McpTransportConfig::Http { url: text, headers, auth: None })
}

/// Refuses a server that needs the token of a user who signed in. The type `apikey` does nothing in the original.
fn refuse_sign_in(place: &YamlField<'_>) -> Result<(), McpEntryError> {
    let auth = place.at("auth")?;
    let kind = auth.at("type")?;
    match kind.text()? {
        None | Some("apikey") => {}
        Some("oauth") => return Err(McpEntryError::SignIn(auth.shown_place())),
        Some(_) => return Err(kind.type_error("oauth or apikey").into()),
    }
    let oauth = place.at("oauth")?;
    if oauth.members()?.is_empty() { Ok(()) } else { Err(McpEntryError::SignIn(oauth.shown_place())) }
}

/// Reads text with its variables replaced and without control characters.
fn read_text(place: &YamlField<'_>, variables: &mut VariableExpander<'_>) -> Result<Option<String>, McpEntryError> {
    let Some(text) = place.text()? else { return Ok(None) };
    let text = variables.expand(place, text)?;
    checked(place, mcp_checks::check_text(&text))?;
    Ok(Some(text))
}

fn checked(place: &YamlField<'_>, outcome: Result<(), McpValueError>) -> Result<(), McpEntryError> {
    outcome.map_err(|error| McpEntryError::Value { place: place.shown_place(), error })
}
