//! Service calls that may reach more than the signature names. It must not decide: it says which signatures a call may stand for.
//!
//! A service call has a `domain`, a `service` and targets. A target is an entity, or a selector that stands for entities which
//! only the service knows: an area, a device, a floor, a label, a group, or the word `all`. A call of the domain `homeassistant`
//! reaches entities of every domain. Source: the targets of service calls in Home Assistant's documentation (`entity_id`,
//! `device_id`, `area_id`, `floor_id`, `label_id`).

use serde_json::{Map, Value};

use crate::policy::{signature, subject::Subject};

/// Stands in a [`PossibleCall`] for a name that only the service knows.
pub(crate) const UNKNOWN: char = '\u{10ffff}';

/// True if a name for which [`UNKNOWN`] stands may hold `letter`.
pub(crate) fn is_in_names(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The domain whose services reach entities of every domain.
const EVERY_DOMAIN: &str = "homeassistant";
const ENTITY: &str = "entity_id";
const DOMAIN: &str = "domain";
const SERVICE: &str = "service";
const SELECTORS: [&str; 4] = ["area_id", "device_id", "floor_id", "label_id"];
/// How deep targets are looked for: below the call, below `target` or `data`, and once more.
const DEPTH: u8 = 4;

/// A call that a service call may come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PossibleCall {
    /// Its domain; [`UNKNOWN`] where it may be any.
    pub(crate) domain: String,
    /// Its entity, with [`UNKNOWN`] for what is not known of it.
    pub(crate) entity: String,
    /// Its signature, if the form of the signature is known.
    pub(crate) signature: Option<String>,
    /// The part of the call that makes it possible, for people.
    pub(crate) through: String,
}

/// Returns the calls that `subject` may come to beyond what its signatures say. Empty for anything but a service call.
pub(crate) fn possible_calls(subject: &Subject) -> Vec<PossibleCall> {
    let text = |name: &str| subject.arguments.get(name).and_then(Value::as_str);
    let (domain, service) = match (text(DOMAIN), text(SERVICE)) {
        (Some(domain), Some(service)) => (domain, service),
        (None, Some(both)) => match both.split_once('.') {
            Some(parts) => parts,
            None => return Vec::new(),
        },
        (_, None) => return Vec::new(),
    };
    let (domain, service) = (normal(domain), normal(service));
    let mut targets = Targets::default();
    targets.collect(&subject.arguments, DEPTH);
    let reaches_every_domain = domain == EVERY_DOMAIN;
    let mut found = Vec::new();
    for entity in &targets.entities {
        let own = entity.split_once('.').map_or(domain.as_str(), |(own, _)| own);
        let through = format!("{domain}.{service} of {entity}");
        found.push(possible(subject, &domain, entity, &through));
        if own != domain {
            found.push(possible(subject, own, entity, &through));
        }
    }
    let is_untargeted = targets.entities.is_empty() && targets.selectors.is_empty();
    let through = match targets.selectors.first() {
        Some(selector) => selector.clone(),
        None if is_untargeted => format!("{domain}.{service} without an {ENTITY}"),
        None => return found,
    };
    if reaches_every_domain {
        let (any_domain, any_entity) = (UNKNOWN.to_string(), format!("{UNKNOWN}.{UNKNOWN}"));
        found.push(possible(subject, &domain, &any_entity, &through));
        found.push(possible(subject, &any_domain, &any_entity, &through));
    } else {
        found.push(possible(subject, &domain, &format!("{domain}.{UNKNOWN}"), &through));
    }
    found
}

fn possible(subject: &Subject, domain: &str, entity: &str, through: &str) -> PossibleCall {
    let signature = signature_with(subject, domain, entity);
    PossibleCall { domain: domain.to_owned(), entity: entity.to_owned(), signature, through: through.to_owned() }
}

/// Names of domains, services and entities as the service reads them.
fn normal(text: &str) -> String {
    text.trim().to_lowercase()
}

#[derive(Debug, Default)]
struct Targets {
    entities: Vec<String>,
    /// Each selector that stands for entities nobody named, for people.
    selectors: Vec<String>,
}

impl Targets {
    fn collect(&mut self, members: &Map<String, Value>, depth: u8) {
        let Some(depth) = depth.checked_sub(1) else { return };
        for (name, value) in members {
            match (normal(name).as_str(), value) {
                (ENTITY, value) => self.entity(value),
                (name, value) if SELECTORS.contains(&name) && !is_nothing(value) => {
                    self.selectors.push(format!("{name} {}", signature::text_of(value)));
                }
                (_, Value::Object(members)) => self.collect(members, depth),
                (_, Value::Array(items)) => {
                    items.iter().filter_map(Value::as_object).for_each(|members| self.collect(members, depth));
                }
                (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {}
            }
        }
    }

    fn entity(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                for one in text.split(',').map(normal).filter(|one| !one.is_empty() && one != "none") {
                    // A name without a domain is an id of the service's own registry, or a word that stands for several.
                    if one == "all" || one.starts_with("group.") || !one.contains('.') {
                        self.selectors.push(format!("{ENTITY} {one}"));
                    } else {
                        self.entities.push(one);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.entity(item)),
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                self.selectors.push(format!("{ENTITY} {}", signature::text_of(value)));
            }
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The signature that the call would have with this domain and entity, if its form can be told from the one that it has.
fn signature_with(subject: &Subject, domain: &str, entity: &str) -> Option<String> {
    let arguments = &subject.arguments;
    if subject.named.is_empty() {
        // Nobody defined the tool: its signature is made of all its arguments, sorted by name.
        let mut other = arguments.clone();
        if arguments.contains_key(DOMAIN) {
            other.insert(DOMAIN.to_owned(), domain.into());
        }
        other.insert(ENTITY.to_owned(), entity.into());
        SELECTORS.iter().for_each(|selector| drop(other.remove(*selector)));
        return signature::undeclared(&subject.tool, &other).ok()?.into_iter().next();
    }
    let inside = subject.signature.strip_prefix(&subject.tool)?.strip_prefix('(')?;
    let mut text = format!("{}(", subject.tool);
    let mut rest = inside;
    for name in &subject.named {
        let value = match arguments.get(name.as_str()) {
            Some(Value::Array(items)) => items.first().map(signature::text_of).unwrap_or_default(),
            Some(value) => signature::text_of(value),
            None => String::new(),
        };
        // An argument that is not there has its place before the parenthesis or the comma that ends its part.
        let at = if value.is_empty() { place_of_nothing(rest) } else { rest.find(&value)? };
        text.push_str(&rest[..at]);
        rest = &rest[at + value.len()..];
        text.push_str(match name.as_str() {
            DOMAIN => domain,
            ENTITY => entity,
            _ => &value,
        });
    }
    Some(text + rest)
}

fn place_of_nothing(rest: &str) -> usize {
    let spaces = rest.len() - rest.trim_start_matches([',', ' ']).len();
    spaces.min(rest.rfind(')').unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{UNKNOWN, possible_calls};
    use crate::policy::{signature, testing::subject};

    fn calls(arguments: Value) -> Vec<(String, String)> {
        let template = "{domain}.{service}, {entity_id}";
        let mut call = subject("ha", arguments);
        let mut signatures = signature::declared("ha", Some(template), &call.arguments).unwrap();
        call.signature = signatures.remove(0);
        call.further_signatures = signatures;
        call.named = signature::names(template).into_iter().map(str::to_owned).collect();
        let shown = |text: &str| text.replace(UNKNOWN, "…");
        let possible = possible_calls(&call).into_iter();
        possible.map(|call| (shown(&call.signature.unwrap_or_default()), call.through)).collect()
    }

    #[test]
    fn a_call_may_come_to_whatever_its_selectors_stand_for() {
        let call = |more: Value| {
            let mut arguments = json!({"domain": "switch", "service": "turn_off"});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            calls(arguments)
        };
        let any = "ha(switch.turn_off, switch.…)";
        for (more, want) in [
            (json!({"area_id": "cellar"}), vec![(any, "area_id cellar")]),
            (json!({"target": {"label_id": ["heating"]}}), vec![(any, "label_id [\"heating\"]")]),
            (json!({"data": {"target": {"floor_id": "ground"}}}), vec![(any, "floor_id ground")]),
            (json!({}), vec![(any, "switch.turn_off without an entity_id")]),
            (
                json!({"area_id": "", "device_id": null, "label_id": []}),
                vec![(any, "switch.turn_off without an entity_id")],
            ),
        ] {
            let want: Vec<_> = want.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            assert_eq!(call(more.clone()), want, "{more}");
        }
        // Here the signature names what stands for others.
        let all = call(json!({"entity_id": "all"}));
        assert_eq!(all, [(any.to_owned(), "entity_id all".to_owned())]);
        let group = call(json!({"entity_id": ["switch.lamp", "group.cellar"]}));
        assert_eq!(group.last().unwrap(), &(any.to_owned(), "entity_id group.cellar".to_owned()));
    }

    #[test]
    fn a_call_of_every_domain_may_come_to_any_entity() {
        let only = |arguments: Value| calls(arguments).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        assert_eq!(
            only(json!({"domain": "homeassistant", "service": "turn_off", "area_id": "cellar"})),
            ["ha(homeassistant.turn_off, ….…)", "ha(….turn_off, ….…)"]
        );
        assert_eq!(
            only(json!({"domain": "homeassistant", "service": "turn_off", "entity_id": "switch.boiler"})),
            ["ha(homeassistant.turn_off, switch.boiler)", "ha(switch.turn_off, switch.boiler)"]
        );
    }

    #[test]
    fn an_entity_is_found_in_other_letters_and_deeper_in_the_call() {
        let texts = |arguments: Value| calls(arguments).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        let boiler = ["ha(switch.turn_off, switch.boiler)"];
        assert_eq!(texts(json!({"domain": "Switch", "service": "turn_off", "entity_id": " Switch.Boiler"})), boiler);
        let target = json!({"target": {"entity_id": "switch.boiler"}, "domain": "switch", "service": "turn_off"});
        assert_eq!(texts(target), boiler);
    }

    #[test]
    fn a_tool_that_nobody_defined_is_looked_at_by_its_sorted_arguments() {
        let call = subject("svc", json!({"domain": "switch", "service": "turn_off", "area_id": "cellar"}));
        let possible = possible_calls(&call);
        let text = possible[0].signature.as_deref().unwrap().replace(UNKNOWN, "…");
        assert_eq!((possible.len(), text.as_str()), (1, "svc(switch, switch.…, turn_off)"));
        assert!(possible_calls(&subject("pay", json!({"to": "acme"}))).is_empty());
    }
}
