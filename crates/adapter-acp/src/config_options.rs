//! Modes and options of a session: how much is asked, the model, and how long it thinks.

use countersign_acp_protocol::{ConfigOption, ConfigSelectOption, SessionMode, SessionModes};
use countersign_conversations::chats::GatewayModels;
use countersign_core::policy::ApprovalMode;
use countersign_runtime::models::{InputModality, ModelEntry, ThinkingLevel, demo};

use crate::{prompt_blocks::ImageInput, session_snapshot::SessionChoices};

/// Option of the approval mode.
pub(crate) const MODE: &str = "mode";
/// Option of the model.
pub(crate) const MODEL: &str = "model";
/// Option of the thinking level.
pub(crate) const THINKING: &str = "thought_level";
/// Value of the thinking level that leaves it to the model.
pub(crate) const USUAL: &str = "default";

/// Returns the id of a mode on this wire. No mode has a looser name than what it does: rules decide, and may ask.
pub(crate) const fn mode_id(mode: ApprovalMode) -> &'static str {
    match mode {
        ApprovalMode::AlwaysAsk => "always-ask",
        ApprovalMode::Write => "write",
        ApprovalMode::Yolo => "rules",
    }
}

/// Returns the mode with this id, if it is as strict as `floor`.
///
/// # Errors
/// The accepted ids.
pub(crate) fn parse_mode(id: &str, floor: ApprovalMode) -> Result<ApprovalMode, String> {
    let accepted: Vec<&str> = offered_modes(floor).map(mode_id).collect();
    let found = offered_modes(floor).find(|mode| mode_id(*mode) == id);
    found.ok_or_else(|| match floor {
        ApprovalMode::Yolo => format!("expected one of {}", accepted.join(", ")),
        ApprovalMode::Write | ApprovalMode::AlwaysAsk => {
            format!("expected one of {}, as --approval-mode is {}", accepted.join(", "), floor.name())
        }
    })
}

fn offered_modes(floor: ApprovalMode) -> impl Iterator<Item = ApprovalMode> {
    ApprovalMode::ALL.into_iter().filter(move |mode| *mode >= floor)
}

const fn mode_name(mode: ApprovalMode) -> &'static str {
    match mode {
        ApprovalMode::AlwaysAsk => "Always ask",
        ApprovalMode::Write => "Ask before changes",
        ApprovalMode::Yolo => "By the rules",
    }
}

const fn mode_description(mode: ApprovalMode) -> &'static str {
    match mode {
        ApprovalMode::AlwaysAsk => {
            "A person approves each call that does more than read, regardless of rules that allow it"
        }
        ApprovalMode::Write => {
            "A person approves writes, commands and calls with an unknown effect, regardless of rules that allow them"
        }
        ApprovalMode::Yolo => "The operator's rules decide, and ask where they say so",
    }
}

/// Returns the modes of a session.
pub(crate) fn session_modes(choices: &SessionChoices, floor: ApprovalMode) -> SessionModes {
    let mode = |mode: ApprovalMode| SessionMode {
        id: mode_id(mode).to_owned(),
        name: mode_name(mode).to_owned(),
        description: mode_description(mode).to_owned(),
    };
    SessionModes {
        current_mode_id: mode_id(choices.approval).to_owned(),
        available_modes: offered_modes(floor).map(mode).collect(),
    }
}

/// Returns the options of a session. Editors that show options do not show modes, so they include the mode.
pub(crate) fn config_options(
    choices: &SessionChoices,
    floor: ApprovalMode,
    models: &GatewayModels,
) -> Vec<ConfigOption> {
    let option = |id: &str, name: &str, category, current_value: String, options| ConfigOption {
        id: id.to_owned(),
        name: name.to_owned(),
        category,
        kind: "select",
        current_value,
        options,
    };
    let modes = offered_modes(floor).map(|mode| ConfigSelectOption {
        value: mode_id(mode).to_owned(),
        name: mode_name(mode).to_owned(),
        description: Some(mode_description(mode).to_owned()),
    });
    let mode = mode_id(choices.approval).to_owned();
    let mut listed = vec![option(MODE, "Approvals", "mode", mode, modes.collect())];
    let Some(model) = &choices.model else { return listed };
    let current = format!("{}/{}", model.provider, model.id);
    let mut offered: Vec<ConfigSelectOption> = models
        .entries()
        .filter(|entry| entry.provider != demo::PROVIDER || entry.provider == model.provider)
        .map(|entry| ConfigSelectOption {
            value: model_value(entry),
            name: entry.name.clone(),
            description: Some(entry.provider.clone()),
        })
        .collect();
    if offered.iter().all(|choice| choice.value != current) {
        offered.push(ConfigSelectOption { value: current.clone(), name: model.id.clone(), description: None });
    }
    listed.push(option(MODEL, "Model", "model", current, offered));
    if find_entry(choices, models).is_some_and(|entry| entry.reasoning) {
        let levels = std::iter::once(USUAL).chain(ThinkingLevel::ALL.map(ThinkingLevel::as_str));
        let levels = levels.map(|level| ConfigSelectOption {
            value: level.to_owned(),
            name: level.to_owned(),
            description: None,
        });
        let level = choices.thinking.clone().unwrap_or_else(|| USUAL.to_owned());
        listed.push(option(THINKING, "Thinking", "thought_level", level, levels.collect()));
    }
    listed
}

fn model_value(entry: &ModelEntry) -> String {
    format!("{}/{}", entry.provider, entry.id)
}

/// Returns the model of a session.
fn find_entry<'a>(choices: &SessionChoices, models: &'a GatewayModels) -> Option<&'a ModelEntry> {
    let model = choices.model.as_ref()?;
    models.entries().find(|entry| entry.provider == model.provider && entry.id == model.id)
}

/// Reports whether the model of a session sees images.
pub(crate) fn image_input(choices: &SessionChoices, models: &GatewayModels) -> ImageInput {
    let sees = find_entry(choices, models).is_some_and(|entry| entry.input.contains(&InputModality::Image));
    if sees { ImageInput::Taken } else { ImageInput::NotTaken }
}

/// Returns the number of tokens that the model of a session takes.
pub(crate) fn context_window(choices: &SessionChoices) -> Option<u64> {
    choices.model.as_ref().map(|model| model.context_window).filter(|window| *window > 0)
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::ApprovalMode;

    use super::{mode_id, parse_mode, session_modes};
    use crate::session_snapshot::SessionChoices;

    #[test]
    fn a_mode_is_never_looser_than_the_command_line_says() {
        for (id, floor, want) in [
            ("rules", ApprovalMode::Yolo, Ok(ApprovalMode::Yolo)),
            ("always-ask", ApprovalMode::Write, Ok(ApprovalMode::AlwaysAsk)),
            ("rules", ApprovalMode::Write, Err("expected one of always-ask, write, as --approval-mode is write")),
            ("write", ApprovalMode::AlwaysAsk, Err("expected one of always-ask, as --approval-mode is always-ask")),
            ("yolo", ApprovalMode::Yolo, Err("expected one of always-ask, write, rules")),
        ] {
            assert_eq!(parse_mode(id, floor), want.map_err(str::to_owned), "{id} with {floor:?}");
        }
    }

    #[test]
    fn only_modes_that_can_be_chosen_are_offered() {
        for floor in ApprovalMode::ALL {
            let modes = session_modes(&SessionChoices { approval: floor, ..SessionChoices::default() }, floor);
            assert_eq!(modes.current_mode_id, mode_id(floor));
            assert!(modes.available_modes.iter().all(|mode| parse_mode(&mode.id, floor).is_ok()), "{floor:?}");
        }
    }
}
