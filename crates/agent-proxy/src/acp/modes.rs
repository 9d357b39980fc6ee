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

/// Change that makes an agent ask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ModeChange {
    /// Mode of the session.
    Mode(String),
    /// Value of an option.
    Option { id: String, value: OptionValue },
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

    /// Reports whether the agent would act without asking after a change.
    pub(super) fn is_open(&self, change: &ModeChange) -> bool {
        match change {
            ModeChange::Mode(mode) => is_open_mode(mode, mode_name(&self.modes, mode)),
            ModeChange::Option { id, value } => {
                let value = value.to_json();
                match self.options.as_array().into_iter().flatten().find(|option| text(option, "id") == Some(id)) {
                    Some(option) => is_open_value(option, &value),
                    // Of an unknown option its words count.
                    None => is_open_value(&json!({ "id": id, "category": "mode" }), &value),
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

    use super::{ModeChange, OpenMode, OptionValue, SessionModes, is_open_mode};

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
