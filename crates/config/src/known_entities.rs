//! Parts of a configuration that rules name: the agents, and the services with their tools.
//!
//! It needs no credential and no variable of the environment, so that rules can be checked without a gateway.

use std::path::{Path, PathBuf};

use countersign_runtime::tools::regular;

use super::{
    cases::DEFAULT_AGENT,
    config_field::ConfigField,
    diagnostics::FileDiagnostics,
    gateway_paths::GatewayPaths,
    load,
    problem::{ConfigErrors, ConfigFault, ConfigProblem},
    services::{self, ServiceConfig},
    settings::{ApproverAccounts, PersonConfig},
    value,
};
use crate::yaml::LARGEST;

/// Stands for a variable that is not set or is empty: good for an address and for a token.
const UNSET: &str = "http://unset.invalid";

/// Entities that rules name.
#[derive(Clone, Debug, Default)]
pub struct KnownEntities {
    /// The ids of agents.
    pub agents: Vec<String>,
    /// The services with their tools.
    pub services: Vec<ServiceConfig>,
    /// The people; none where there is no configuration, or where it does not say who they are without a variable that is
    /// not set.
    pub people: Option<Vec<PersonConfig>>,
    /// From where people can answer; none where this, or whose identities are whose, depends on such a variable.
    pub accounts: Option<ApproverAccounts>,
    /// Paths of the gateway's own files; none without a configuration.
    pub places: Option<GatewayPaths>,
}

/// Returns the files of tools that the configuration at `path` names, as far as they can be read. Other problems do not matter.
pub fn tool_files(path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let notes = FileDiagnostics::for_file(path);
    let value = value::read_value(&value::config_text(Some(path), &notes), &notes, Some(environment));
    services::read_services(&ConfigField::root(&notes, value.as_ref()).at("services"));
    notes.files.take()
}

/// Reads what rules are about from the configuration at `path`.
///
/// # Errors
/// The problems with the file as a whole, its services or their tools; the rest is not looked at.
pub fn known_entities(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<KnownEntities, ConfigErrors> {
    let notes = FileDiagnostics::for_file(path);
    let text = regular::read_text(path, LARGEST);
    let text = text.map_err(|error| notes.add_fault(0, "", ConfigFault::Io(error.to_string()))).unwrap_or_default();
    // Both mean that the author of the rules has not the gateway's environment.
    let environment = &|name: &str| environment(name).filter(|value| !value.trim().is_empty());
    let or_unset = |name: &str| environment(name).or_else(|| Some(UNSET.to_owned()));
    let value = value::read_value(&text, &notes, Some(&or_unset));
    let root = ConfigField::root(&notes, value.as_ref());
    let services = services::read_services(&root.at("services"));
    let mut problems = notes.take_problems();
    let (people, accounts, mut faults) = known_people(&text, path, environment);
    problems.append(&mut faults);
    if !problems.is_empty() {
        return Err(ConfigErrors(problems));
    }
    // Problems with the agents are reported by `serve`.
    let first = (!root.at("agent").is_absent()).then(|| DEFAULT_AGENT.to_owned());
    let others = root.at("agents").list_items().unwrap_or_default();
    let ids = others.iter().filter_map(|place| place.at("id").text());
    let places = Some(GatewayPaths::from_file(&root, path, environment));
    Ok(KnownEntities { agents: first.into_iter().chain(ids).collect(), services, people, accounts, places })
}

/// Returns the people, their accounts, and the problems with either but for variables that are not set.
///
/// An identity is a number, for which nothing can stand.
fn known_people(
    text: &str,
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> (Option<Vec<PersonConfig>>, Option<ApproverAccounts>, Vec<ConfigProblem>) {
    let notes = FileDiagnostics::for_file(path);
    let value = value::read_value(text, &notes, Some(environment));
    // Problems with the rest are reported by its readers.
    notes.problems.borrow_mut().retain(|problem| matches!(problem.fault, ConfigFault::Variable(_)));
    let root = ConfigField::root(&notes, value.as_ref());
    let place = root.at("people");
    let people = load::read_people(&place);
    let users = root.at("messenger").at("telegram").at("allowed_users");
    let faults = notes.take_problems();
    // Problems with them are reported by `serve`.
    let telegram = load::read_allowed_users(&users);
    let console = root.at("web").at("users").members().unwrap_or_default();
    let console = console.into_iter().map(|(login, _)| login.to_owned()).collect();
    let is_there = |one: ConfigField<'_>| !one.is_unset() && !one.at("id").is_unset();
    let is_named = !place.is_unset() && place.list_items().unwrap_or_default().into_iter().all(is_there);
    let (unset, faults): (Vec<ConfigProblem>, Vec<ConfigProblem>) =
        faults.into_iter().partition(|problem| matches!(problem.fault, ConfigFault::Variable(_)));
    let is_set =
        |part: &str| unset.iter().all(|problem| !problem.key.starts_with(part) && !part.starts_with(&problem.key));
    // A password may come from a variable, a login cannot.
    let are_logins_known = unset.iter().all(|problem| !"web.users".starts_with(problem.key.as_str()));
    let are_known = is_set("people") && is_set("messenger.telegram.allowed_users") && are_logins_known;
    let accounts = ApproverAccounts { telegram, console };
    (Some(people).filter(|_| is_named), Some(accounts).filter(|_| are_known), faults)
}

#[cfg(test)]
mod tests {
    use super::known_entities;

    #[test]
    fn an_identity_from_a_variable_that_is_not_set_is_no_fault_of_the_rules() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let text = |people: &str| {
            format!(
                "messenger: {{ type: telegram, telegram: {{ token: t, chat_id: 1, allowed_users: [111] }} }}\npeople: {people}\n"
            )
        };
        let unset = |_: &str| None;
        for (people, names, is_known) in [
            ("[ { id: ana, telegram: [\"${ANA}\"] }, { id: ben, telegram: [\"${BEN}\"] } ]", Some(2), false),
            ("[ { id: ana, local: [\"${ANA}\"] } ]", Some(1), false),
            ("[ { id: \"${ANA}\", telegram: [1] } ]", None, false),
            ("[ \"${ANA}\" ]", None, false),
            ("${PEOPLE}", None, false),
            ("[ { id: ana, telegram: [1] } ]", Some(1), true),
        ] {
            std::fs::write(&path, text(people)).unwrap();
            let known = known_entities(&path, &unset).unwrap();
            assert_eq!(known.people.map(|people| people.len()), names, "{people}");
            assert_eq!(known.accounts.map(|accounts| accounts.telegram), is_known.then(|| vec![111]), "{people}");
        }
        for (web, logins) in [
            ("{ users: { ana: \"${ANA}\", ben: b } }", Some(vec!["ana".to_owned(), "ben".to_owned()])),
            ("{ users: \"${USERS}\" }", None),
            ("${WEB}", None),
            ("{ password: \"${ALL}\" }", Some(vec![])),
        ] {
            std::fs::write(&path, format!("web: {web}\npeople: [ {{ id: ana, console: [ana] }} ]\n")).unwrap();
            let known = known_entities(&path, &unset).unwrap();
            assert_eq!(known.accounts.map(|accounts| accounts.console), logins, "{web}");
        }
        for people in ["[ { id: ana, telegram: [ana] } ]", "[ { id: ana, telegran: [1] } ]", "[ { id: a }, { id: a } ]"]
        {
            std::fs::write(&path, text(people)).unwrap();
            let message = known_entities(&path, &unset).unwrap_err().to_string();
            assert!(message.contains("config.yaml:2: people["), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}
