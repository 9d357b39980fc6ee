//! Service calls that may affect more than the signature names. It must not decide: it lists the signatures that a call may stand for.
//!
//! A service call has a `domain`, a `service` and targets. A target is an entity, or a selector that stands for entities that
//! only the service knows: an area, a device, a floor, a label, a group, or the word `all`. A call of the domain `homeassistant`
//! reaches entities of every domain. A service that sets states of others (a scene, a group) has names of entities in arguments of
//! its own, so every text and every key of the form of such a name counts, at any depth. Source: the targets of service
//! calls in Home Assistant's documentation (`entity_id`, `device_id`, `area_id`, `floor_id`, `label_id`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::policy::{signature, subject::PolicySubject};

/// Placeholder in a [`PossibleCall`] for a name that only the service knows.
pub(crate) const UNKNOWN: char = '\u{10ffff}';

/// Reports whether a name for which [`UNKNOWN`] stands may contain `letter`.
pub(crate) fn is_in_names(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The domain whose services reach entities of every domain.
const EVERY_DOMAIN: &str = "homeassistant";
/// The domains that have entities of their own, which alone their services reach. Source: the entity platforms of Home Assistant.
const OF_ENTITIES: &str = "ai_task air_quality alarm_control_panel assist_satellite binary_sensor button calendar camera climate conversation \
    counter cover date datetime device_tracker event fan geo_location humidifier image image_processing input_boolean input_button \
    input_datetime input_number input_select input_text lawn_mower light lock media_player notify number remote schedule select sensor \
    siren stt switch text time timer todo tts update vacuum valve wake_word water_heater weather";
const ENTITY: &str = "entity_id";
const DOMAIN: &str = "domain";
const SERVICE: &str = "service";
const SELECTORS: [&str; 4] = ["area_id", "device_id", "floor_id", "label_id"];
/// Maximum depth of targets: below the call, below `target` or `data`, and once more.
const DEPTH: u8 = 4;
/// Maximum number of entities outside of the targets that are checked one by one. A call that names more may affect any.
const MOST_NAMED: usize = 256;

/// A possible expansion of a service call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PossibleCall {
    /// Its domain; [`UNKNOWN`] if it may be any.
    pub(crate) domain: String,
    /// Its entity, with [`UNKNOWN`] for its unknown parts.
    pub(crate) entity: String,
    /// Its service as in the argument, perhaps with its domain; [`UNKNOWN`] if it may be any.
    pub(crate) service: String,
    /// Its signature, if the form of the signature is known.
    pub(crate) signature: Option<String>,
    /// The part of the call that makes it possible, for display.
    pub(crate) through: String,
}

/// Returns the calls that `subject` may stand for beyond its signatures. Empty for anything but a service call.
pub(crate) fn possible_calls(subject: &PolicySubject) -> Vec<PossibleCall> {
    let text = |name: &str| subject.arguments.get(name).and_then(Value::as_str);
    let (domain, service) = match (text(DOMAIN), text(SERVICE)) {
        (Some(domain), Some(service)) => (domain, service),
        (None, Some(both)) => match both.split_once('.') {
            Some(parts) => parts,
            None => return Vec::new(),
        },
        (_, None) => return Vec::new(),
    };
    let (domain, service) = (normalise_name(domain), normalise_name(service));
    let mut targets = ServiceTargets::default();
    targets.collect_targets(&subject.arguments, DEPTH);
    let reaches_every_domain = domain == EVERY_DOMAIN;
    let possible = |own_domain: &str, own_service: &str, entity: &str, through: &str| {
        possible_call(subject, own_domain, own_service, entity, through)
    };
    let (any, any_entity) = (UNKNOWN.to_string(), format!("{UNKNOWN}.{UNKNOWN}"));
    let mut found = Vec::new();
    for entity in &targets.entities {
        let own = entity.split_once('.').map_or(domain.as_str(), |(own, _)| own);
        let through = format!("{domain}.{service} of {entity}");
        found.push(possible(&domain, &service, entity, &through));
        if own != domain {
            found.push(possible(own, &service, entity, &through));
        }
    }
    let named = named_entities(&subject.arguments);
    if named.len() > MOST_NAMED {
        let through = format!("{domain}.{service} of {} names", named.len());
        found.push(possible(&any, &any, &any_entity, &through));
    }
    for entity in named.iter().filter(|entity| !targets.has_entity(entity)).take(MOST_NAMED) {
        let own = entity.split_once('.').map_or(domain.as_str(), |(own, _)| own);
        let through = format!("{domain}.{service} of {entity}");
        found.push(possible(&domain, &service, entity, &through));
        if is_group(entity) {
            found.push(possible(&any, &any, &any_entity, &through));
        } else if own != domain {
            // The effect of a service on entities of another domain is only known to the service.
            let service = if reaches_every_domain { &service } else { &any };
            found.push(possible(own, service, entity, &through));
        }
    }
    let is_untargeted = targets.entities.is_empty() && targets.selectors.is_empty();
    let through = match targets.selectors.first() {
        Some(selector) => selector.clone(),
        None if is_untargeted => format!("{domain}.{service} without an {ENTITY}"),
        None => return found,
    };
    if reaches_every_domain {
        found.push(possible(&domain, &service, &any_entity, &through));
        found.push(possible(&any, &service, &any_entity, &through));
    } else {
        found.push(possible(&domain, &service, &format!("{domain}.{UNKNOWN}"), &through));
        // The services of an integration affect any entities of a device.
        if !is_untargeted && !OF_ENTITIES.split_ascii_whitespace().any(|known| known == domain) {
            found.push(possible(&domain, &service, &any_entity, &through));
            found.push(possible(&any, &any, &any_entity, &through));
        }
    }
    found
}

fn possible_call(subject: &PolicySubject, domain: &str, service: &str, entity: &str, through: &str) -> PossibleCall {
    let service = match subject.arguments.get(DOMAIN) {
        Some(Value::String(_)) => service.to_owned(),
        Some(_) | None => format!("{domain}.{service}"),
    };
    let signature = signature_with(subject, domain, &service, entity);
    let (domain, entity) = (domain.to_owned(), entity.to_owned());
    PossibleCall { domain, entity, service, signature, through: through.to_owned() }
}

/// Returns the entities that any text or key in `arguments` names, except the names of the domain and the service that are called.
fn named_entities(arguments: &Map<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_argument = |(name, _): &(&String, &Value)| !matches!(name.as_str(), DOMAIN | SERVICE);
    let mut open: Vec<&Value> = Vec::new();
    for (name, value) in arguments.iter().filter(is_argument) {
        found.extend(entities_in(name));
        open.push(value);
    }
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => found.extend(entities_in(text)),
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                found.extend(members.keys().flat_map(|name| entities_in(name)));
                open.extend(members.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

/// Returns the entities that `text` names, alone or in a list with commas between; none for any other text.
fn entities_in(text: &str) -> Vec<String> {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_lowercase() || c.is_numeric());
    let is_entity = |one: &String| one.split_once('.').is_some_and(|(domain, name)| is_name(domain) && is_name(name));
    let all: Vec<String> = text.split(',').map(normalise_name).filter(|one| !one.is_empty()).collect();
    if all.iter().all(is_entity) { all } else { Vec::new() }
}

fn is_group(entity: &str) -> bool {
    entity.starts_with("group.")
}

/// Returns names of domains, services and entities as the service reads them.
fn normalise_name(text: &str) -> String {
    text.trim().to_lowercase()
}

#[derive(Debug, Default)]
struct ServiceTargets {
    entities: Vec<String>,
    /// Each selector that stands for unnamed entities, for display.
    selectors: Vec<String>,
}

impl ServiceTargets {
    /// Reports whether `entity` is a target, or a group that is one.
    fn has_entity(&self, entity: &str) -> bool {
        let selector = format!("{ENTITY} {entity}");
        self.entities.iter().any(|one| one == entity) || self.selectors.contains(&selector)
    }

    fn collect_targets(&mut self, members: &Map<String, Value>, depth: u8) {
        let Some(depth) = depth.checked_sub(1) else { return };
        for (name, value) in members {
            match (normalise_name(name).as_str(), value) {
                (ENTITY, value) => self.add_entities(value),
                (name, value) if SELECTORS.contains(&name) && !is_nothing(value) => {
                    self.selectors.push(format!("{name} {}", signature::text_of(value)));
                }
                (_, Value::Object(members)) => self.collect_targets(members, depth),
                (_, Value::Array(items)) => {
                    items.iter().filter_map(Value::as_object).for_each(|members| self.collect_targets(members, depth));
                }
                (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {}
            }
        }
    }

    fn add_entities(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                for one in text.split(',').map(normalise_name).filter(|one| !one.is_empty() && one != "none") {
                    // A name without a domain is an id of the service's own registry, or a word that stands for several.
                    if one == "all" || is_group(&one) || !one.contains('.') {
                        self.selectors.push(format!("{ENTITY} {one}"));
                    } else {
                        self.entities.push(one);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_entities(item)),
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

/// Returns the signature of the call with this domain, service and entity. `None` if the form of its signature is not known.
fn signature_with(subject: &PolicySubject, domain: &str, service: &str, entity: &str) -> Option<String> {
    let arguments = &subject.arguments;
    if subject.named.is_empty() {
        // The tool is not defined: its signature is made of all its arguments, sorted by name.
        let mut other = arguments.clone();
        if arguments.contains_key(DOMAIN) {
            other.insert(DOMAIN.to_owned(), domain.into());
        }
        other.insert(SERVICE.to_owned(), service.into());
        other.insert(ENTITY.to_owned(), entity.into());
        SELECTORS.iter().for_each(|selector| drop(other.remove(*selector)));
        return signature::undeclared_signatures(&subject.tool, &other).ok()?.into_iter().next();
    }
    let inside = subject.signature.strip_prefix(&subject.tool)?.strip_prefix('(')?;
    let mut text = format!("{}(", subject.tool);
    let mut rest = inside;
    for name in &subject.named {
        let value = match arguments.get(name.as_str()) {
            Some(Value::Array(items)) if !items.is_empty() => items.first().map(signature::text_of).unwrap_or_default(),
            Some(value) => signature::text_of(value),
            None => String::new(),
        };
        // An argument that is absent has its place before the parenthesis or the comma that ends its part.
        let at = if value.is_empty() { place_of_nothing(rest) } else { rest.find(&value)? };
        text.push_str(&rest[..at]);
        rest = &rest[at + value.len()..];
        text.push_str(match name.as_str() {
            DOMAIN => domain,
            SERVICE => service,
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
        let mut signatures = signature::declared_signatures("ha", Some(template), &call.arguments).unwrap();
        call.signature = signatures.remove(0);
        call.further_signatures = signatures;
        call.named = signature::template_names(template).into_iter().map(str::to_owned).collect();
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
            (json!({"entity_id": []}), vec![(any, "switch.turn_off without an entity_id")]),
            (
                json!({"area_id": "", "device_id": null, "label_id": []}),
                vec![(any, "switch.turn_off without an entity_id")],
            ),
        ] {
            let want: Vec<_> = want.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            assert_eq!(call(more.clone()), want, "{more}");
        }
        // Here the signature names the selector.
        let all = call(json!({"entity_id": "all"}));
        assert_eq!(all, [(any.to_owned(), "entity_id all".to_owned())]);
        let group = call(json!({"entity_id": ["switch.lamp", "group.cellar"]}));
        assert_eq!(group.last().unwrap(), &(any.to_owned(), "entity_id group.cellar".to_owned()));
    }

    #[test]
    fn a_device_of_an_integration_may_have_any_entity() {
        for selector in ["device_id", "area_id", "floor_id", "label_id"] {
            let mut arguments = json!({"domain": "zwave_js", "service": "set_value"});
            arguments[selector] = json!("x");
            let texts: Vec<String> = calls(arguments).into_iter().map(|(text, _)| text).collect();
            let want = ["ha(zwave_js.set_value, zwave_js.…)", "ha(zwave_js.set_value, ….…)", "ha(….…, ….…)"];
            assert_eq!(texts, want, "{selector}");
        }
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
    fn an_entity_is_found_wherever_the_call_names_it() {
        let through = |more: Value| {
            let mut arguments = json!({"domain": "scene", "service": "apply", "entity_id": "scene.evening"});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            calls(arguments).into_iter().skip(1).map(|(text, _)| text).collect::<Vec<_>>()
        };
        for more in [
            json!({"entities": {"switch.boiler": "off"}}),
            json!({"entities": {" Switch.Boiler ": {"state": "off"}}}),
            json!({"data": {"entities": {"switch.boiler": "off"}}}),
            json!({"snapshot_entities": ["switch.boiler"]}),
            json!({"whatever": "switch.boiler"}),
            json!({"data": {"a": [{"b": {"c": {"d": {"e": "switch.boiler"}}}}]}}),
            json!({"switch.boiler": "off"}),
        ] {
            let want = ["ha(scene.apply, switch.boiler)", "ha(switch.…, switch.boiler)"];
            assert_eq!(through(more.clone()), want, "{more}");
        }
        let any = "ha(….…, ….…)".to_owned();
        assert!(through(json!({"entities": {"group.cellar": "off"}})).contains(&any));
        let many: Vec<String> = (0..=super::MOST_NAMED).map(|at| format!("light.l{at}")).collect();
        assert!(through(json!({"data": {"entities": many}})).contains(&any));
        for more in [
            json!({"message": "see you at 5.30"}),
            json!({"message": "switch.boiler is on"}),
            json!({"url": "http://ha.local/switch.boiler"}),
            json!({"at": 5.30, "file": "a.b.c", "end": "off.", "begin": ".off"}),
        ] {
            assert_eq!(through(more.clone()), [""; 0], "{more}");
        }
    }

    #[test]
    fn a_service_that_is_written_with_its_domain_is_found_under_the_others() {
        let call = subject("svc", json!({"service": "homeassistant.turn_off", "entity_id": "switch.boiler"}));
        let texts: Vec<_> = possible_calls(&call).into_iter().filter_map(|call| call.signature).collect();
        assert_eq!(texts, ["svc(switch.boiler, homeassistant.turn_off)", "svc(switch.boiler, switch.turn_off)"]);
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
