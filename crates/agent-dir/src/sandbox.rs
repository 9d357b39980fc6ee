//! Reads `countersign.sandbox`: what commands of the agent may touch.
//!
//! Hosts expect an agent that works as their user does, so that without this key nothing holds it. Unknown keys were refused before.

use std::path::PathBuf;

use countersign_config::yaml::{WrongType, YamlField};
use countersign_runtime::tools::sandbox::{
    HostPattern, NetworkAccess, OnMissingKernel, SandboxMode, SandboxSettings, UnlistedHosts,
};

pub(super) fn read_sandbox(settings: &mut SandboxSettings, place: &YamlField<'_>) -> Result<(), WrongType> {
    if place.is_absent() {
        return Ok(());
    }
    // A user who writes the section means one.
    settings.mode = read_word(&place.at("mode")?, SandboxMode::from_name, "off, guard or workspace")?
        .unwrap_or(SandboxMode::Workspace);
    let of_network = place.at("network")?;
    settings.network = read_network(&of_network)?.unwrap_or_default();
    if let NetworkAccess::Hosts(_) = settings.network {
        let unlisted = of_network.at("unlisted")?;
        settings.unlisted = read_word(&unlisted, UnlistedHosts::from_name, "ask or refuse")?.unwrap_or_default();
    }
    settings.on_missing =
        read_word(&place.at("on_missing")?, OnMissingKernel::from_name, "refuse or warn")?.unwrap_or_default();
    settings.write = read_paths(&place.at("write")?)?.unwrap_or_default();
    settings.temporary = read_paths(&place.at("temporary")?)?;
    settings.read = read_paths(&place.at("read")?)?;
    Ok(())
}

/// Reads `on`, `off`, or hosts.
fn read_network(place: &YamlField<'_>) -> Result<Option<NetworkAccess>, WrongType> {
    if place.members().is_err() {
        return read_word(place, NetworkAccess::from_name, "on, off or a mapping with hosts");
    }
    if place.is_absent() {
        return Ok(None);
    }
    let hosts = place.at("hosts")?;
    let items = hosts.items()?.ok_or_else(|| hosts.type_error("a list of hosts"))?;
    let host = |item: &YamlField<'_>| match item.text()?.map(str::parse::<HostPattern>) {
        Some(Ok(host)) => Ok(host),
        Some(Err(_)) | None => Err(item.type_error(HostPattern::EXPECTED)),
    };
    items.iter().map(host).collect::<Result<_, _>>().map(|hosts| Some(NetworkAccess::Hosts(hosts)))
}

/// Reads one of a few words. YAML reads two of them as flags.
fn read_word<T>(
    place: &YamlField<'_>,
    named: impl Fn(&str) -> Option<T>,
    expected: &'static str,
) -> Result<Option<T>, WrongType> {
    let text = match place.flag() {
        Ok(Some(true)) => Some("on"),
        Ok(Some(false)) => Some("off"),
        Ok(None) => None,
        Err(_) => place.text()?,
    };
    text.map(|text| named(text).ok_or_else(|| place.type_error(expected))).transpose()
}

fn read_paths(place: &YamlField<'_>) -> Result<Option<Vec<PathBuf>>, WrongType> {
    let Some(items) = place.items()? else { return Ok(None) };
    let path = |item: &YamlField<'_>| match item.text()? {
        Some(text) if text.starts_with('/') || text.starts_with("~/") => Ok(PathBuf::from(text)),
        Some(_) | None => Err(item.type_error("a path that begins with / or ~/")),
    };
    items.iter().map(path).collect::<Result<Vec<_>, _>>().map(Some)
}
