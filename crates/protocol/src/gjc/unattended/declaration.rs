//! Reads a declaration, in the order in which the original checks it, and reports what a later one would widen.
//!
//! It must not know which run it is for.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Action, CommandScope};
use crate::json::{JsNumber, wire_values};

/// Limits that an unattended run declares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnattendedDeclaration {
    /// Actor that is responsible for the run; not blank.
    pub actor: String,
    /// Budget of the run.
    pub budget: DeclaredBudget,
    /// Scopes of allowed commands, in the order of the declaration; `prompt` is always among them.
    pub scopes: Vec<CommandScope>,
    /// Allowed actions, in the order of the declaration; `command.prompt` is always among them.
    pub action_allowlist: Vec<Action>,
    /// Consequence of a breach of the budget. Ours; absent means [`BreachAction::Abort`].
    #[serde(skip_serializing_if = "BreachAction::is_abort")]
    pub on_breach: BreachAction,
    /// True if a later declaration may widen it with a person's consent. Ours; absent means no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub renegotiable: bool,
}

/// Budget of a run. Each limit is finite, and at least one token, call, millisecond or millionth of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredBudget {
    /// Tokens of all requests to models.
    pub max_tokens: JsNumber,
    /// Calls of tools, and commands that cause work.
    pub max_tool_calls: JsNumber,
    /// Milliseconds from the declaration on.
    pub max_wall_time_ms: JsNumber,
    /// Dollars.
    pub max_cost_usd: JsNumber,
}

/// Consequence of a breach of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BreachAction {
    /// The run ends, and what runs is cancelled.
    #[default]
    Abort,
    /// Nothing new begins until a person decides whether there is more.
    Gate,
}

impl BreachAction {
    fn is_abort(&self) -> bool {
        *self == Self::Abort
    }
}

/// Availability of the model's usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMetering {
    /// The provider reports usage.
    Reported,
    /// The provider does not report usage.
    Unreported,
    /// There is no model.
    NoModel,
}

/// Why a declaration, or a command that needs one, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The declaration is wrong, or widens an earlier one.
    InvalidUnattendedDeclaration,
    /// A part of the budget is missing or wrong.
    IncompleteBudget,
    /// A part of the budget cannot be metered.
    UnsupportedBudgetMetric,
    /// Nothing was declared yet.
    UnattendedNotNegotiated,
    /// The run was ended.
    UnattendedAborted,
}

/// The `error` of a refused declaration: `{code, message}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct DeclarationRefusal {
    /// Code for programs.
    pub code: RefusalCode,
    /// Text for people.
    pub message: String,
}

/// Data of `negotiate_unattended`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeclarationAccepted {
    /// The session's id.
    pub run_id: String,
    /// The declaration as it was sent.
    #[serde(flatten)]
    pub declaration: UnattendedDeclaration,
    /// ISO 8601 with milliseconds and `Z`.
    pub accepted_at: String,
}

impl UnattendedDeclaration {
    /// Reads `declaration`; null counts as absent.
    ///
    /// # Errors
    /// The first error in this order: a missing declaration, its actor, the form of its scopes and actions, unknown ones of
    /// these, its budget, unknown members, our own members, and at last whether the budget can be metered.
    pub fn from_json(declaration: Option<&Value>, metering: UsageMetering) -> Result<Self, DeclarationRefusal> {
        let Some(members) = declaration.and_then(Value::as_object) else {
            return Err(invalid_declaration("declaration is required"));
        };
        let strange = unknown_members(members, &MEMBERS);
        let actor = members.get("actor").and_then(Value::as_str).filter(|actor| !actor.trim().is_empty());
        let actor = actor.ok_or_else(|| invalid_declaration("declaration.actor is required"))?.to_owned();
        let scopes = string_list(members, "scopes")?;
        let actions = string_list(members, "action_allowlist")?;
        let scopes =
            parse_known(&scopes, CommandScope::from_name, "scopes contains unknown scope(s)", CommandScope::Prompt)?;
        let unknown = "action_allowlist contains unknown action class(es)";
        let action_allowlist = parse_known(&actions, Action::from_name, unknown, Action::CommandPrompt)?;
        let budget = DeclaredBudget::from_json(members.get("budget"))?;
        if !strange.is_empty() {
            let known = MEMBERS.join(", ");
            return Err(invalid_declaration(format!(
                "declaration contains unknown member(s): {strange} (known: {known})"
            )));
        }
        let on_breach = match members.get("on_breach") {
            None | Some(Value::Null) => BreachAction::Abort,
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|_| invalid_declaration("declaration.on_breach must be \"abort\" or \"gate\""))?,
        };
        let renegotiable = match members.get("renegotiable") {
            None | Some(Value::Null) => false,
            Some(value) => {
                value.as_bool().ok_or_else(|| invalid_declaration("declaration.renegotiable must be true or false"))?
            }
        };
        match metering {
            UsageMetering::Reported => Ok(Self { actor, budget, scopes, action_allowlist, on_breach, renegotiable }),
            UsageMetering::Unreported => Err(unsupported_metering("the model does not tell what it uses")),
            UsageMetering::NoModel => Err(unsupported_metering("no model is chosen")),
        }
    }

    /// Names everything in which this declaration allows more than `before`; nothing if it only narrows.
    pub fn widened_parts(&self, before: &Self) -> Vec<String> {
        let scopes = self.scopes.iter().filter(|scope| !before.scopes.contains(scope)).map(|scope| scope.name());
        let actions = self.action_allowlist.iter().filter(|action| !before.action_allowlist.contains(action));
        let budget = self.budget.named_limits().into_iter().zip(before.budget.named_limits());
        let more = budget.filter(|((_, now), (_, before))| now > before).map(|((name, _), _)| name);
        let gate =
            (self.on_breach == BreachAction::Gate && before.on_breach == BreachAction::Abort).then_some("on_breach");
        let again = (self.renegotiable && !before.renegotiable).then_some("renegotiable");
        let all = scopes.chain(actions.map(|action| action.name())).chain(more).chain(gate).chain(again);
        all.map(str::to_owned).collect()
    }
}

impl DeclarationRefusal {
    /// Refuses a declaration that allows more than the one before it, by the parts from [`UnattendedDeclaration::widened_parts`].
    pub fn for_widening(more: &[String]) -> Self {
        invalid_declaration(format!("declaration widens what was negotiated: {}", more.join(", ")))
    }
}

impl DeclaredBudget {
    /// Returns its parts under their names, in the order in which they are looked at.
    pub const fn named_limits(&self) -> [(&'static str, JsNumber); 4] {
        [
            ("max_tokens", self.max_tokens),
            ("max_tool_calls", self.max_tool_calls),
            ("max_wall_time_ms", self.max_wall_time_ms),
            ("max_cost_usd", self.max_cost_usd),
        ]
    }

    fn from_json(budget: Option<&Value>) -> Result<Self, DeclarationRefusal> {
        let refused = |message: String| DeclarationRefusal { code: RefusalCode::IncompleteBudget, message };
        let members = budget
            .filter(|budget| budget.is_object() || budget.is_array())
            .ok_or_else(|| refused("budget declaration is required for unattended mode".to_owned()))?;
        // Less than one unit would be enforced as nothing at all.
        let part = |name: &str, least: f64| {
            let value = members.get(name).and_then(Value::as_f64).filter(|value| value.is_finite() && *value > 0.0);
            let value = value.ok_or_else(|| refused(format!("budget.{name} must be a positive finite number")))?;
            if value < least {
                return Err(refused(format!("budget.{name} must be a positive finite number of at least {least}")));
            }
            Ok(JsNumber(value))
        };
        let read = Self {
            max_tokens: part("max_tokens", 1.0)?,
            max_tool_calls: part("max_tool_calls", 1.0)?,
            max_wall_time_ms: part("max_wall_time_ms", 1.0)?,
            max_cost_usd: part("max_cost_usd", LEAST_COST)?,
        };
        // A further limit would be one that nothing keeps.
        let names = read.named_limits().map(|(name, _)| name);
        let strange = members.as_object().map(|members| unknown_members(members, &names)).unwrap_or_default();
        if strange.is_empty() {
            return Ok(read);
        }
        let (names, strange) = (names.join(", "), strange.replace(", ", ", budget."));
        Err(refused(format!("budget.{strange} is not a limit that is kept here (known: {names})")))
    }
}

/// The members of a declaration.
const MEMBERS: [&str; 6] = ["actor", "budget", "scopes", "action_allowlist", "on_breach", "renegotiable"];

/// Returns the names of `members` that are none of `known`.
fn unknown_members(members: &Map<String, Value>, known: &[&str]) -> String {
    let strange = members.keys().map(String::as_str).filter(|name| !known.contains(name));
    strange.collect::<Vec<_>>().join(", ")
}

/// A millionth of a dollar: what costs are counted in.
const LEAST_COST: f64 = 0.000_001;

fn invalid_declaration(message: impl Into<String>) -> DeclarationRefusal {
    DeclarationRefusal { code: RefusalCode::InvalidUnattendedDeclaration, message: message.into() }
}

fn unsupported_metering(why: &str) -> DeclarationRefusal {
    let message = format!("unattended mode requires that tokens and cost are accounted for: {why}");
    DeclarationRefusal { code: RefusalCode::UnsupportedBudgetMetric, message }
}

fn string_list(members: &Map<String, Value>, name: &str) -> Result<Vec<String>, DeclarationRefusal> {
    let string = |item: &Value| item.as_str().map(str::to_owned);
    let read = members.get(name).and_then(Value::as_array).and_then(|items| items.iter().map(string).collect());
    read.ok_or_else(|| invalid_declaration(format!("declaration.{name} must be string[]")))
}

/// Reads names, each once, and adds the one that is always there.
fn parse_known<T: Copy + PartialEq>(
    names: &[String],
    read: fn(&str) -> Option<T>,
    unknown: &str,
    always: T,
) -> Result<Vec<T>, DeclarationRefusal> {
    let strange: Vec<&str> = names.iter().map(String::as_str).filter(|name| read(name).is_none()).collect();
    if !strange.is_empty() {
        return Err(invalid_declaration(format!("declaration.{unknown}: {}", strange.join(", "))));
    }
    let mut all = Vec::new();
    for one in names.iter().filter_map(|name| read(name)).chain([always]) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Ok(all)
}

wire_values! { UnattendedDeclaration, DeclarationRefusal, DeclarationAccepted }

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared() -> Value {
        json!({
            "actor": "openclaw/hermes",
            "budget": {"max_tokens": 2_000_000, "max_tool_calls": 5000, "max_wall_time_ms": 3_600_000, "max_cost_usd": 20},
            "scopes": ["prompt", "control", "bash"],
            "action_allowlist": ["bash.readonly", "file.write"],
        })
    }

    fn with(path: &str, value: Value) -> Value {
        let mut declaration = declared();
        *declaration.pointer_mut(path).unwrap() = value;
        declaration
    }

    #[test]
    fn a_declaration_is_echoed_with_what_it_always_has() {
        let declaration = UnattendedDeclaration::from_json(Some(&declared()), UsageMetering::Reported).unwrap();
        let accepted = DeclarationAccepted {
            run_id: "s".to_owned(),
            declaration,
            accepted_at: "2026-06-05T05:00:00.000Z".to_owned(),
        };
        let want = json!({
            "run_id": "s",
            "actor": "openclaw/hermes",
            "budget": {"max_tokens": 2_000_000, "max_tool_calls": 5000, "max_wall_time_ms": 3_600_000, "max_cost_usd": 20},
            "scopes": ["prompt", "control", "bash"],
            "action_allowlist": ["bash.readonly", "file.write", "command.prompt"],
            "accepted_at": "2026-06-05T05:00:00.000Z",
        });
        assert_eq!(serde_json::to_value(accepted).unwrap(), want);
    }

    #[test]
    fn the_first_error_is_reported() {
        let invalid = RefusalCode::InvalidUnattendedDeclaration;
        let budget = RefusalCode::IncompleteBudget;
        for (declaration, code, message) in [
            (Value::Null, invalid, "declaration is required"),
            (json!("yes"), invalid, "declaration is required"),
            (json!({}), invalid, "declaration.actor is required"),
            (with("/actor", json!("  ")), invalid, "declaration.actor is required"),
            (json!({"actor": "a", "scopes": ["nonsense", 1]}), invalid, "declaration.scopes must be string[]"),
            (with("/action_allowlist", json!("all")), invalid, "declaration.action_allowlist must be string[]"),
            (
                with("/scopes", json!(["prompt", "a", "bash", "b"])),
                invalid,
                "declaration.scopes contains unknown scope(s): a, b",
            ),
            (
                with("/action_allowlist", json!(["file.write", "a"])),
                invalid,
                "declaration.action_allowlist contains unknown action class(es): a",
            ),
            (with("/budget", Value::Null), budget, "budget declaration is required for unattended mode"),
            (with("/budget/max_tokens", json!("1")), budget, "budget.max_tokens must be a positive finite number"),
            (
                with("/budget/max_tool_calls", json!(0)),
                budget,
                "budget.max_tool_calls must be a positive finite number",
            ),
            (
                with("/budget/max_wall_time_ms", json!(-1)),
                budget,
                "budget.max_wall_time_ms must be a positive finite number",
            ),
            (with("/budget/max_cost_usd", Value::Null), budget, "budget.max_cost_usd must be a positive finite number"),
            (
                json!({"actor": "a", "scopes": ["x"], "action_allowlist": ["y"], "budget": null}),
                invalid,
                "declaration.scopes contains unknown scope(s): x",
            ),
        ] {
            let refused = UnattendedDeclaration::from_json(Some(&declaration), UsageMetering::NoModel).unwrap_err();
            assert_eq!(refused, DeclarationRefusal { code, message: message.to_owned() }, "{declaration}");
        }
        let mut ours = declared();
        ours["on_breach"] = json!("ignore");
        let refused = UnattendedDeclaration::from_json(Some(&ours), UsageMetering::Reported).unwrap_err();
        assert_eq!(refused.message, "declaration.on_breach must be \"abort\" or \"gate\"");
        for metering in [UsageMetering::Unreported, UsageMetering::NoModel] {
            let refused = UnattendedDeclaration::from_json(Some(&declared()), metering).unwrap_err();
            assert_eq!(refused.code, RefusalCode::UnsupportedBudgetMetric);
        }
        assert_eq!(
            UnattendedDeclaration::from_json(None, UsageMetering::Reported).unwrap_err().message,
            "declaration is required"
        );
    }

    #[test]
    fn a_limit_below_one_unit_is_an_incomplete_budget() {
        let names = ["max_tokens", "max_tool_calls", "max_wall_time_ms", "max_cost_usd"];
        let part = |name: &str, value: &Value| {
            UnattendedDeclaration::from_json(
                Some(&with(&format!("/budget/{name}"), value.clone())),
                UsageMetering::Reported,
            )
        };
        for name in names {
            let least = if name == "max_cost_usd" { "0.000001" } else { "1" };
            let positive = format!("budget.{name} must be a positive finite number");
            for value in [
                json!(0),
                json!(0.0),
                json!(-0.0),
                json!(-1),
                json!(-0.5),
                json!("1"),
                json!([1]),
                json!(true),
                json!({}),
            ] {
                let refused = part(name, &value).unwrap_err();
                assert_eq!(
                    (refused.code, refused.message),
                    (RefusalCode::IncompleteBudget, positive.clone()),
                    "{value}"
                );
            }
            for value in [json!(0.000_000_5), json!(5e-324)] {
                let refused = part(name, &value).unwrap_err();
                let message = format!("{positive} of at least {least}");
                assert_eq!((refused.code, refused.message), (RefusalCode::IncompleteBudget, message), "{value}");
            }
            for value in [json!(1), json!(1.5), json!(1e300)] {
                assert!(part(name, &value).is_ok(), "{name} {value}");
            }
            assert_eq!(
                part(name, &json!(0.5)).is_ok(),
                name == "max_cost_usd",
                "half a dollar is a limit, half a call is none"
            );
        }
    }

    #[test]
    fn a_member_that_nobody_knows_is_refused_behind_what_the_original_looks_at() {
        let more = |pointer: &str, name: &str| {
            let mut declaration = declared();
            declaration.pointer_mut(pointer).unwrap()[name] = json!(1);
            UnattendedDeclaration::from_json(Some(&declaration), UsageMetering::Reported).unwrap_err()
        };
        let limits = "max_tokens, max_tool_calls, max_wall_time_ms, max_cost_usd";
        let of_budget = format!("budget.max_files is not a limit that is kept here (known: {limits})");
        let got = more("/budget", "max_files");
        assert_eq!((got.code, got.message), (RefusalCode::IncompleteBudget, of_budget));
        let got = more("", "max_files");
        let members = "actor, budget, scopes, action_allowlist, on_breach, renegotiable";
        let of_declaration = format!("declaration contains unknown member(s): max_files (known: {members})");
        assert_eq!((got.code, got.message), (RefusalCode::InvalidUnattendedDeclaration, of_declaration));
        let mut declaration = with("/budget/max_tokens", json!(0));
        declaration["foo"] = json!(1);
        let refused = UnattendedDeclaration::from_json(Some(&declaration), UsageMetering::Reported).unwrap_err();
        assert_eq!(refused.code, RefusalCode::IncompleteBudget, "what the original refuses goes before");
    }

    #[test]
    fn negotiating_again_names_what_it_would_widen() {
        let before = UnattendedDeclaration::from_json(Some(&declared()), UsageMetering::Reported).unwrap();
        let mut ours = declared();
        ours["on_breach"] = json!("gate");
        ours["renegotiable"] = json!(true);
        for (declaration, want) in [
            (declared(), &[][..]),
            (with("/scopes", json!([])), &[]),
            (with("/budget/max_tokens", json!(1)), &[]),
            (with("/scopes", json!(["admin", "bash"])), &["admin"]),
            (with("/action_allowlist", json!(["bash.mutating"])), &["bash.mutating"]),
            (with("/budget/max_cost_usd", json!(20.01)), &["max_cost_usd"]),
            (ours, &["on_breach", "renegotiable"]),
        ] {
            let now = UnattendedDeclaration::from_json(Some(&declaration), UsageMetering::Reported).unwrap();
            assert_eq!(now.widened_parts(&before), want, "{declaration}");
        }
        let refused = DeclarationRefusal::for_widening(&["admin".to_owned(), "max_tokens".to_owned()]);
        assert_eq!(refused.message, "declaration widens what was negotiated: admin, max_tokens");
    }
}
