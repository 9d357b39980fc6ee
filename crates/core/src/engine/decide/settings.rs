//! Deciders for settings: changes are recorded, within bounds.

use serde_json::Value;

use crate::{
    decision::{CommandError, DecisionResult, DecisionView, EngineReply, Event, Fact},
    settings::{Command, Event as Happened, SettingsPath},
};

/// Maximum length of one value, as JSON, in bytes. A fact has twice the room.
const LONGEST: usize = 32 << 10;
/// Maximum length of all settings, in bytes.
const LONGEST_TREE: usize = 512 << 10;
/// Maximum length of a text in a list, in bytes.
const LONGEST_ITEM: usize = 1024;
/// Maximum number of names in a path, and of bytes in all.
const DEEPEST: usize = 16;
const LONGEST_PATH: usize = 1024;
/// Maximum number of secrets.
const MOST_SECRETS: usize = 1024;

pub(super) fn decide_settings(view: DecisionView<'_>, command: Command) -> Result<DecisionResult, CommandError> {
    let settings = view.state.settings();
    let event = match command {
        Command::Set { by, path, value, secrets } => {
            if secrets.iter().any(|(at, _)| !at.is_within(&path)) {
                return Err(CommandError::OutOfPlace("a secret lies elsewhere than what is set"));
            }
            let grows = value.as_ref().map_or(0, json_length);
            too_long("a setting", grows, LONGEST)?;
            too_long("the secrets", settings.secrets().count() + secrets.len(), MOST_SECRETS)?;
            let had_secrets = settings.secrets_within(&path).next().is_some();
            if secrets.is_empty() && !had_secrets && settings.get(&path) == value.as_ref() {
                return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle });
            }
            Happened::Set { by, path, value, secrets }
        }
        Command::Add { by, path, item } => {
            too_long("a text of a list", item.len(), LONGEST_ITEM)?;
            match settings.get(&path) {
                Some(Value::Array(list)) if list.iter().any(|known| *known == item.as_str()) => {
                    return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle });
                }
                Some(Value::Array(_)) | None => {}
                Some(_) => return Err(CommandError::OutOfPlace("there is no list at this path")),
            }
            Happened::Added { by, path, item }
        }
    };
    check_path(event.path())?;
    let more = match &event {
        Happened::Set { path, value, .. } => json_length(path) + value.as_ref().map_or(0, json_length),
        Happened::Added { path, item, .. } => json_length(path) + json_length(item),
    };
    let takes_out = matches!(&event, Happened::Set { value: None, secrets, .. } if secrets.is_empty());
    if !takes_out {
        too_long("all settings", json_length(settings.tree()).saturating_add(more), LONGEST_TREE)?;
    }
    Ok(DecisionResult { facts: vec![Fact::without_content(Event::Settings(event), None)], reply: EngineReply::Done })
}

fn check_path(path: &SettingsPath) -> Result<(), CommandError> {
    too_long("a path of settings", path.names().len(), DEEPEST)?;
    too_long("a path of settings", json_length(path), LONGEST_PATH)
}

fn too_long(what: &'static str, length: usize, limit: usize) -> Result<(), CommandError> {
    if length > limit { Err(CommandError::TooLong { what, limit }) } else { Ok(()) }
}

fn json_length(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}
