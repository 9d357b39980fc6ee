//! Modes of an agent: those in which it acts without asking, and those in which it asks.
//!
//! Agents name them as they like, so the words in their ids and names count.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Words within the id or the name of a mode in which an agent acts without asking.
const OPEN_PARTS: [&str; 21] = [
    "bypass",
    "yolo",
    "acceptedit",
    "autoedit",
    "autoaccept",
    "autoapprove",
    "autoapproval",
    "autorun",
    "alwaysallow",
    "alwaysapprove",
    "dontask",
    "neverask",
    "noask",
    "fullaccess",
    "fullauto",
    "autopilot",
    "unrestricted",
    "skippermission",
    "allowall",
    "approveall",
    "danger",
];
/// Whole ids and names of such modes.
const OPEN_WORDS: [&str; 5] = ["auto", "always", "never", "none", "automatic"];
/// Modes in which an agent asks, the best first.
const ASKING_WORDS: [&str; 9] =
    ["default", "ask", "manual", "askalways", "alwaysask", "normal", "onrequest", "readonly", "plan"];
/// Words within the id, name or category of an option that says how an agent asks.
const OPTION_PARTS: [&str; 7] = ["mode", "permission", "approv", "sandbox", "yolo", "trust", "ask"];

/// Categories of options that are about the model only.
const MODEL_CATEGORIES: [&str; 3] = ["model", "model_config", "thought_level"];

/// Change that makes an agent ask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ModeChange {
    /// Mode of the session.
    Mode(String),
    /// Value of an option.
    Option { id: String, value: OptionValue },
}

/// Effect of a change that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangeEffect {
    /// The agent asks after it, or it is about something else.
    Harmless,
    /// Nothing shows that the agent asks after it.
    MayNotAsk,
    /// The agent has not announced it. The text names what it has announced.
    Unannounced(String),
}

impl ChangeEffect {
    fn unannounced(field: &str, given: &str, choices: &[&str]) -> Self {
        let expected = if choices.is_empty() {
            "nothing, because the agent has announced none".to_owned()
        } else {
            choices.join(", ")
        };
        Self::Unannounced(format!("{field}: {given:?}: expected {expected}"))
    }
}

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OptionValue {
    Text(String),
    Switch(bool),
}

impl OptionValue {
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Bool(switch) => Some(Self::Switch(*switch)),
            _ => None,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Switch(switch) => (*switch).into(),
        }
    }
}

impl std::fmt::Display for OptionValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Switch(switch) => write!(f, "{switch}"),
        }
    }
}

/// Mode in which an agent acts without asking, and no other one to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenMode(pub(super) String);

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Returns the words of an id that may be an address, such as `https://example.org/modes#agent`.
fn id_letters(id: &str) -> String {
    letters(id.rsplit(['#', '/', ':']).next().unwrap_or(id))
}

/// Reports whether an agent acts without asking in the mode with this id and name.
pub(super) fn is_open_mode(id: &str, name: Option<&str>) -> bool {
    let mut words = [id_letters(id)].into_iter().chain(name.map(letters));
    words.any(|word| OPEN_WORDS.contains(&word.as_str()) || OPEN_PARTS.iter().any(|part| word.contains(part)))
}

fn asking_rank(id: &str) -> Option<usize> {
    let word = id_letters(id);
    ASKING_WORDS.iter().position(|asking| *asking == word)
}

/// Chooses the best mode of `choices` (id and name) in which the agent asks.
fn choose_asking<'a>(choices: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Option<&'a str> {
    let asking = choices.filter(|(id, name)| !is_open_mode(id, *name));
    asking.filter_map(|(id, _)| asking_rank(id).map(|rank| (rank, id))).min().map(|(_, id)| id)
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// Returns the name of a mode in an answer with `modes`.
fn mode_name<'a>(modes: &'a Value, id: &str) -> Option<&'a str> {
    let available = modes.get("availableModes")?.as_array()?;
    text(available.iter().find(|mode| text(mode, "id") == Some(id))?, "name")
}

/// Returns the choices of an option, which may be in groups.
fn option_choices(option: &Value) -> Vec<(&str, Option<&str>)> {
    let mut choices = Vec::new();
    for choice in option.get("options").and_then(Value::as_array).into_iter().flatten() {
        let grouped = choice.get("options").and_then(Value::as_array);
        let all = grouped.map_or_else(|| vec![choice], |grouped| grouped.iter().collect());
        choices.extend(all.into_iter().filter_map(|choice| Some((text(choice, "value")?, text(choice, "name")))));
    }
    choices
}

/// Reports whether an option says how an agent asks.
fn is_about_asking(option: &Value) -> bool {
    let words = ["id", "name", "category"].into_iter().filter_map(|member| text(option, member)).map(letters);
    let is_model = text(option, "category").is_some_and(|category| category.contains("model"));
    !is_model && words.into_iter().any(|word| OPTION_PARTS.iter().any(|part| word.contains(part)))
}

/// Returns the effect of a value of an option.
fn option_effect(option: &Value, value: &OptionValue) -> ChangeEffect {
    let is_harmless = match value {
        OptionValue::Text(value) => {
            let choices: Vec<&str> = option_choices(option).into_iter().map(|(id, _)| id).collect();
            if !choices.contains(&value.as_str()) {
                return ChangeEffect::unannounced("value", value, &choices);
            }
            asking_rank(value).is_some() && !is_open_value(option, &value.as_str().into())
        }
        // Switches a mode off in which the agent acts without asking.
        OptionValue::Switch(is_on) => !is_on && is_open_value(option, &true.into()),
    };
    let is_of_model = text(option, "category").is_some_and(|category| MODEL_CATEGORIES.contains(&category));
    let is_current = option.get("currentValue") == Some(&value.to_json());
    if is_harmless || is_of_model || is_current { ChangeEffect::Harmless } else { ChangeEffect::MayNotAsk }
}

/// Reports whether the value of an option lets an agent act without asking.
fn is_open_value(option: &Value, value: &Value) -> bool {
    match value {
        Value::String(value) => {
            let choices = option_choices(option);
            let name = choices.iter().find(|(id, _)| id == value).and_then(|(_, name)| *name);
            is_about_asking(option) && is_open_mode(value, name)
        }
        Value::Bool(true) => {
            let id = text(option, "id").unwrap_or_default();
            is_open_mode(id, text(option, "name"))
        }
        _ => false,
    }
}

/// Modes and options of a session, as the agent last described them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SessionModes {
    modes: Value,
    options: Value,
    /// Modes and values that were allowed although the agent does not ask in them.
    pub(super) allowed: BTreeSet<ModeChange>,
}

impl SessionModes {
    /// Takes in the modes and options of an answer or an update.
    pub(super) fn update(&mut self, described: &Value) {
        if let Some(modes) = described.get("modes").filter(|modes| modes.is_object()) {
            self.modes = modes.clone();
        }
        if let Some(options) = described.get("configOptions").filter(|options| options.is_array()) {
            self.options = options.clone();
        }
    }

    /// Takes in the current mode.
    pub(super) fn set_mode(&mut self, mode: &str) {
        if let Value::Object(modes) = &mut self.modes {
            modes.insert("currentModeId".to_owned(), mode.into());
        } else {
            self.modes = json!({ "currentModeId": mode });
        }
    }

    /// Returns the effect of a change that a client asks for. Of a mode whose name is not known, nothing shows that the agent asks in it.
    pub(super) fn effect(&self, change: &ModeChange) -> ChangeEffect {
        match change {
            ModeChange::Mode(mode) => {
                let available = self.modes.get("availableModes").and_then(Value::as_array).into_iter().flatten();
                let choices: Vec<&str> = available.filter_map(|mode| text(mode, "id")).collect();
                if !choices.contains(&mode.as_str()) {
                    return ChangeEffect::unannounced("modeId", mode, &choices);
                }
                let is_current = self.current() == Some(mode.as_str());
                let asks = asking_rank(mode).is_some() && !is_open_mode(mode, mode_name(&self.modes, mode));
                if is_current || asks { ChangeEffect::Harmless } else { ChangeEffect::MayNotAsk }
            }
            ModeChange::Option { id, value } => {
                let options = || self.options.as_array().into_iter().flatten();
                match options().find(|option| text(option, "id") == Some(id)) {
                    Some(option) => option_effect(option, value),
                    None => {
                        let ids: Vec<&str> = options().filter_map(|option| text(option, "id")).collect();
                        ChangeEffect::unannounced("configId", id, &ids)
                    }
                }
            }
        }
    }

    /// Returns the changes after which the agent asks.
    ///
    /// # Errors
    /// It has no mode in which it asks.
    pub(super) fn needed_changes(&self) -> Result<Vec<ModeChange>, OpenMode> {
        let mut changes = Vec::new();
        if let Some(current) = text(&self.modes, "currentModeId") {
            let is_allowed = self.allowed.contains(&ModeChange::Mode(current.to_owned()));
            if !is_allowed && is_open_mode(current, mode_name(&self.modes, current)) {
                let available = self.modes.get("availableModes").and_then(Value::as_array).into_iter().flatten();
                let choices = available.filter_map(|mode| Some((text(mode, "id")?, text(mode, "name"))));
                let asking = choose_asking(choices).ok_or_else(|| OpenMode(current.to_owned()))?;
                changes.push(ModeChange::Mode(asking.to_owned()));
            }
        }
        for option in self.options.as_array().into_iter().flatten() {
            let (Some(id), Some(current)) = (text(option, "id"), option.get("currentValue")) else { continue };
            let Some(value) = OptionValue::from_json(current) else { continue };
            let is_allowed = self.allowed.contains(&ModeChange::Option { id: id.to_owned(), value: value.clone() })
                || matches!(&value, OptionValue::Text(mode) if self.allowed.contains(&ModeChange::Mode(mode.clone())));
            if is_allowed || !is_open_value(option, current) {
                continue;
            }
            let asking = match value {
                OptionValue::Switch(_) => OptionValue::Switch(false),
                OptionValue::Text(current) => {
                    let choices = option_choices(option);
                    let asking = choose_asking(choices.into_iter());
                    OptionValue::Text(asking.ok_or_else(|| OpenMode(format!("{id}: {current}")))?.to_owned())
                }
            };
            changes.push(ModeChange::Option { id: id.to_owned(), value: asking });
        }
        Ok(changes)
    }

    /// Takes in a change that the agent has made.
    pub(super) fn apply(&mut self, change: &ModeChange) {
        match change {
            ModeChange::Mode(mode) => self.set_mode(mode),
            ModeChange::Option { id, value } => {
                for option in self.options.as_array_mut().into_iter().flatten() {
                    if text(option, "id") == Some(id) {
                        option["currentValue"] = value.to_json();
                    }
                }
            }
        }
    }

    /// Writes the modes and options into an answer that has them.
    pub(super) fn write_into(&self, described: &mut Value) {
        for (name, ours) in [("modes", &self.modes), ("configOptions", &self.options)] {
            if let Some(theirs) = described.get_mut(name).filter(|theirs| !theirs.is_null()) {
                *theirs = ours.clone();
            }
        }
    }

    /// Returns the current mode.
    pub(super) fn current(&self) -> Option<&str> {
        text(&self.modes, "currentModeId")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ChangeEffect, ModeChange, OpenMode, OptionValue, SessionModes, is_open_mode};

    #[test]
    fn a_mode_is_known_by_its_words() {
        for open in [
            "auto",
            "bypassPermissions",
            "yolo",
            "acceptEdits",
            "dontAsk",
            "autoEdit",
            "auto_edit",
            "full-access",
            "danger-full-access",
            "https://agentclientprotocol.com/protocol/session-modes#autopilot",
        ] {
            assert!(is_open_mode(open, None), "{open}");
        }
        assert!(is_open_mode("m1", Some("Bypass Permissions")));
        for asking in ["default", "ask", "plan", "build", "read-only", "manual", "code", "https://x.org/auto#agent"] {
            assert!(!is_open_mode(asking, None), "{asking}");
        }
    }

    fn modes(current: &str, all: &[&str]) -> Value {
        let available: Vec<Value> = all.iter().map(|id| json!({"id": id, "name": id})).collect();
        json!({"modes": {"currentModeId": current, "availableModes": available}})
    }

    #[test]
    fn the_best_asking_mode_is_chosen() {
        let mode = |id: &str| Ok(vec![ModeChange::Mode(id.to_owned())]);
        let option = |id: &str, value: OptionValue| Ok(vec![ModeChange::Option { id: id.to_owned(), value }]);
        let text = |text: &str| OptionValue::Text(text.to_owned());
        for (case, described, want) in [
            ("asks", modes("default", &["default", "auto"]), Ok(vec![])),
            ("none", json!({}), Ok(vec![])),
            ("auto", modes("auto", &["plan", "acceptEdits", "default"]), mode("default")),
            ("codex", modes("auto", &["read-only", "auto", "full-access"]), mode("read-only")),
            ("no other", modes("yolo", &["yolo", "autoEdit", "code"]), Err(OpenMode("yolo".to_owned()))),
            (
                "an option in groups",
                json!({"configOptions": [{"id": "mode", "category": "mode", "type": "select", "currentValue": "auto",
                    "options": [{"group": "g", "options": [{"value": "auto"}, {"value": "ask"}]}]}]}),
                option("mode", text("ask")),
            ),
            (
                "a switch",
                json!({"configOptions": [{"id": "auto_approve", "type": "boolean", "currentValue": true}]}),
                option("auto_approve", OptionValue::Switch(false)),
            ),
            (
                "a model with such a name",
                json!({"configOptions": [{"id": "model", "category": "model", "currentValue": "auto",
                    "options": [{"value": "auto"}]}]}),
                Ok(vec![]),
            ),
            (
                "an option about something else",
                json!({"configOptions": [{"id": "theme", "currentValue": "auto", "options": [{"value": "auto"}]}]}),
                Ok(vec![]),
            ),
        ] {
            let mut session = SessionModes::default();
            session.update(&described);
            assert_eq!(session.needed_changes(), want, "{case}");
        }
    }

    #[test]
    fn a_client_changes_only_to_what_the_agent_announced_and_freely_only_to_what_asks() {
        let option = |id: &str, category: &str, current: Value, values: &[&str]| {
            let choices: Vec<Value> = values.iter().map(|value| json!({"value": value, "name": value})).collect();
            json!({"id": id, "name": id, "category": category, "currentValue": current, "options": choices})
        };
        let mut session = SessionModes::default();
        session.update(&modes("build", &["default", "plan", "build", "trust", "yolo", "auto-high", "brave"]));
        session.update(&json!({"configOptions": [
            option("mode", "mode", json!("ask"), &["ask", "auto", "no-confirm"]),
            option("model", "model", json!("a"), &["a", "auto"]),
            option("other", "_x", json!("1"), &["1", "2"]),
            option("auto_approve", "_x", json!(true), &[]),
            option("brave", "_x", json!(false), &[]),
        ]}));
        let mode = |id: &str| ModeChange::Mode(id.to_owned());
        let text = |id: &str, value: &str| ModeChange::Option {
            id: id.to_owned(),
            value: OptionValue::Text(value.to_owned()),
        };
        let switch = |id: &str, value| ModeChange::Option { id: id.to_owned(), value: OptionValue::Switch(value) };
        for change in [
            mode("default"),
            mode("plan"),
            mode("build"),
            text("mode", "ask"),
            text("model", "auto"),
            text("other", "1"),
            switch("auto_approve", false),
            switch("brave", false),
        ] {
            assert_eq!(session.effect(&change), ChangeEffect::Harmless, "{change:?}");
        }
        for change in [
            mode("trust"),
            mode("yolo"),
            mode("auto-high"),
            mode("brave"),
            text("mode", "auto"),
            text("mode", "no-confirm"),
            text("other", "2"),
            switch("brave", true),
        ] {
            assert_eq!(session.effect(&change), ChangeEffect::MayNotAsk, "{change:?}");
        }
        for (change, problem) in [
            (mode("skip"), "modeId: \"skip\": expected default, plan, build, trust, yolo, auto-high, brave"),
            (mode("Default"), "modeId: \"Default\": expected default, plan, build, trust, yolo, auto-high, brave"),
            (text("mode", "yolo"), "value: \"yolo\": expected ask, auto, no-confirm"),
            (text("theme", "x"), "configId: \"theme\": expected mode, model, other, auto_approve, brave"),
        ] {
            assert_eq!(session.effect(&change), ChangeEffect::Unannounced(problem.to_owned()));
        }
        assert_eq!(
            SessionModes::default().effect(&mode("default")),
            ChangeEffect::Unannounced(
                "modeId: \"default\": expected nothing, because the agent has announced none".to_owned()
            )
        );
    }

    #[test]
    fn a_change_that_was_allowed_is_not_taken_back() {
        let mut session = SessionModes::default();
        session.update(&modes("auto", &["auto", "default"]));
        session.allowed.insert(ModeChange::Mode("auto".to_owned()));
        assert_eq!(session.needed_changes(), Ok(vec![]));
    }

    #[test]
    fn an_answer_is_rewritten_in_its_place() {
        let mut session = SessionModes::default();
        let mut answer = modes("auto", &["auto", "default"]);
        answer["sessionId"] = "s".into();
        session.update(&answer);
        for change in session.needed_changes().unwrap() {
            session.apply(&change);
        }
        session.write_into(&mut answer);
        assert_eq!(answer["modes"]["currentModeId"], "default");
        assert_eq!(answer["sessionId"], "s");
        assert_eq!(answer.get("configOptions"), None);
    }
}
