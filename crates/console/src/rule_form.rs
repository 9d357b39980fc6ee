//! Form of a rule: a rule to be added, changed or removed. This module must not know the file.

use countersign_core::policy::{Rule, RuleAction};
use countersign_http::web::BodyFields;
use countersign_policy_admin::rules_file::{NewRule, RuleEdit};
use serde::Deserialize;

pub(super) const ACTIONS: [(RuleAction, &str, &str); 3] =
    [(RuleAction::Allow, "allow", "Allow"), (RuleAction::Ask, "ask", "Ask"), (RuleAction::Deny, "deny", "Deny")];
/// Action of a form that removes a rule.
pub(super) const REMOVE: &str = "remove";
/// Form in which a rule is written as it stands in the file.
pub(super) const YAML: &str = "yaml";
/// Longest text of a rule, in characters.
const LONGEST: usize = 2000;
/// Longest rule that is written as it stands in the file, in characters.
const LONGEST_WRITTEN: usize = 8000;

/// Rule, as the form has it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct RuleForm {
    #[serde(default)]
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) action: String,
    #[serde(default)]
    pub(super) principal: String,
    #[serde(default)]
    pub(super) description: String,
    /// First line of the rule to be replaced.
    #[serde(default)]
    pub(super) line: String,
    /// Gate or call that the rule is made from.
    #[serde(default)]
    pub(super) of: String,
    /// Kind of form: in fields, or as [`YAML`].
    #[serde(default)]
    pub(super) form: String,
    /// Text for the file, if it is written so.
    #[serde(default)]
    pub(super) text: String,
}

impl RuleForm {
    /// Reads the fields of a form.
    pub(super) fn from_body(body: &BodyFields) -> Self {
        let text = |name: &str| body.text_field(name).unwrap_or_default().to_owned();
        Self {
            pattern: text("pattern"),
            action: text("action"),
            principal: text("principal"),
            description: text("description"),
            line: text("line"),
            of: text("of"),
            form: text("form"),
            // Text at its end may belong to it.
            text: body.0.get("text").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned(),
        }
    }

    /// Returns the form of a rule in the file, to be changed or removed.
    pub(super) fn from_rule(rule: &Rule) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let action = ACTIONS.iter().find(|(action, ..)| *action == rule.action).map_or("", |(_, word, _)| word);
        Self {
            pattern: text(&rule.pattern),
            action: action.to_owned(),
            principal: text(&rule.principal),
            description: text(&rule.description),
            line: rule.line.to_string(),
            ..Self::default()
        }
    }

    /// Returns the form of the text at a line of the file, to be changed as it stands there.
    pub(super) fn for_line(line: u32) -> Self {
        Self { form: YAML.to_owned(), line: line.to_string(), ..Self::default() }
    }

    /// Returns the form of a rule that allows the calls of a pattern, perhaps of one agent only.
    pub(super) fn for_pattern(pattern: &str, principal: Option<&str>) -> Self {
        let principal = principal.unwrap_or_default().to_owned();
        Self { pattern: pattern.to_owned(), action: "allow".to_owned(), principal, ..Self::default() }
    }

    /// Returns the gate or the call that the rule is made from.
    pub(super) fn source_id(&self) -> &str {
        self.of.trim()
    }

    /// Returns the URL of the page with its effect.
    pub(super) fn preview_url(&self) -> String {
        let all = self.form_fields().into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>();
        format!("/console/try?{}", serde_urlencoded::to_string(all).unwrap_or_default())
    }

    /// Returns the URL of the page with the effect of removing the rule at its line.
    pub(super) fn removal_url(&self) -> String {
        Self { action: REMOVE.to_owned(), line: self.line.clone(), ..Self::default() }.preview_url()
    }

    /// Reports whether it is written as it stands in the file.
    pub(super) fn is_written(&self) -> bool {
        self.form == YAML && self.action != REMOVE
    }

    /// Returns every field, by its name in a form.
    pub(super) fn form_fields(&self) -> [(&'static str, &str); 8] {
        let Self { pattern, action, principal, description, line, of, form, text } = self;
        [
            ("pattern", pattern),
            ("action", action),
            ("principal", principal),
            ("description", description),
            ("line", line),
            ("of", of),
            ("form", form),
            ("text", text),
        ]
    }

    /// Returns the change, if there is one. A rule without an action asks.
    ///
    /// # Errors
    /// The reason why it is no rule, for users.
    pub(super) fn parse_edit(&self) -> Result<Option<RuleEdit>, String> {
        let line = Some(self.line.trim()).filter(|line| !line.is_empty()).map(str::parse::<u64>).transpose();
        let instead = line.map_err(|_| format!("Invalid line number: {}.", self.line))?;
        if self.action == REMOVE {
            return match instead {
                Some(_) => Ok(Some(RuleEdit { instead, comes: None })),
                None => Err("Choose the rule to remove.".to_owned()),
            };
        }
        if self.is_written() {
            let text = self.text.trim_end().replace("\r\n", "\n");
            if text.chars().count() > LONGEST_WRITTEN {
                return Err(format!("The rule is longer than {LONGEST_WRITTEN} characters."));
            }
            let comes = Some(text).filter(|text| !text.is_empty()).map(NewRule::Written);
            return Ok(comes.map(|comes| RuleEdit { instead, comes: Some(comes) }));
        }
        // Browsers send the ends of lines as two characters.
        let text = |text: &str| Some(text.trim().replace("\r\n", "\n")).filter(|text| !text.is_empty());
        let Some(pattern) = text(&self.pattern) else { return Ok(None) };
        let named = |name: &str| ACTIONS.iter().find(|(_, word, _)| *word == name).map(|(action, ..)| *action);
        let action = match self.action.as_str() {
            "" => RuleAction::Ask,
            word => named(word).ok_or_else(|| format!("Unknown action: {word}. Use allow, ask or deny."))?,
        };
        if self.form_fields().iter().any(|(_, value)| value.chars().count() > LONGEST) {
            return Err(format!("A field is longer than {LONGEST} characters."));
        }
        let (principal, description) = (text(&self.principal), text(&self.description));
        let rule = Rule { principal, description, ..Rule::new(pattern, action) };
        Ok(Some(RuleEdit { instead, comes: Some(NewRule::Plain(rule)) }))
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::{Rule, RuleAction};

    use super::RuleForm;
    use countersign_policy_admin::rules_file::{NewRule, RuleEdit};

    fn plain(instead: Option<u64>, rule: &Rule) -> RuleEdit {
        RuleEdit { instead, comes: Some(NewRule::Plain(rule.clone())) }
    }

    #[test]
    fn what_a_form_says_is_a_rule_or_says_what_is_wrong() {
        let form = RuleForm::for_pattern(" look* ", Some("kitchen"));
        let rule = Rule { principal: Some("kitchen".to_owned()), ..Rule::new("look*", RuleAction::Allow) };
        assert_eq!(form.parse_edit(), Ok(Some(plain(None, &rule))));
        let asks = RuleForm { action: String::new(), principal: " ".to_owned(), ..form };
        assert_eq!(asks.parse_edit(), Ok(Some(plain(None, &Rule::new("look*", RuleAction::Ask)))));
        let standing = RuleForm::from_rule(&Rule { line: 7, ..rule.clone() });
        assert_eq!(standing.parse_edit(), Ok(Some(plain(Some(7), &rule))));
        assert_eq!(standing.removal_url(), "/console/try?action=remove&line=7");
        let of_lines = RuleForm::for_pattern("say(a\r\n b)", None).parse_edit();
        assert_eq!(of_lines, Ok(Some(plain(None, &Rule::new("say(a\n b)", RuleAction::Allow)))));
        let written = RuleForm { text: "tool: pay\r\naction: ask\r\n\r\n".to_owned(), ..RuleForm::for_line(3) };
        let comes = Some(NewRule::Written("tool: pay\naction: ask".to_owned()));
        assert_eq!(written.parse_edit(), Ok(Some(RuleEdit { instead: Some(3), comes })));
        assert_eq!(RuleForm::for_line(3).parse_edit(), Ok(None));
        assert_eq!(RuleForm::for_line(3).preview_url(), "/console/try?line=3&form=yaml");
        assert_eq!(RuleForm::default().parse_edit(), Ok(None));
        for (form, expected) in [
            (RuleForm { action: "alow }\n".to_owned(), ..asks.clone() }, "Unknown action: alow }"),
            (RuleForm { action: "remove".to_owned(), ..asks.clone() }, "Choose the rule"),
            (RuleForm { line: "7x".to_owned(), ..asks.clone() }, "Invalid line number: 7x."),
            (RuleForm { description: "x".repeat(2001), ..asks.clone() }, "longer than 2000"),
            (RuleForm { text: "x".repeat(8001), ..RuleForm::for_line(3) }, "longer than 8000"),
        ] {
            let problem = form.parse_edit().unwrap_err();
            assert!(problem.starts_with(expected) || problem.contains(expected), "{problem}");
        }
    }
}
