//! What of a configuration rules are about: the agents, and the services with their tools.
//!
//! It needs no credential and no variable of the environment, so that rules can be looked at where no gateway runs.

use std::path::Path;

use countersign_runtime::tools::regular;

use super::{
    at::{At, Notes},
    cases::DEFAULT_AGENT,
    load,
    problem::{Errors, Fault},
    services::{self, Service},
    settings::Person,
    value,
};
use crate::agent_dir::LARGEST;

/// Stands for a variable that is not set: good for an address and for a token.
const UNSET: &str = "http://unset.invalid";

/// What rules are about.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The ids of agents.
    pub agents: Vec<String>,
    /// The services with their tools.
    pub services: Vec<Service>,
    /// The people; none where there is no configuration.
    pub people: Option<Vec<Person>>,
}

/// Reads what rules are about from the configuration at `path`.
///
/// # Errors
/// What is wrong with the file as a whole, its services or their tools; the rest is not looked at.
pub fn known(path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Result<Known, Errors> {
    let notes = Notes::of(path);
    let text = regular::read_text(path, LARGEST);
    let text = text.map_err(|error| notes.fault(0, "", Fault::Io(error.to_string()))).unwrap_or_default();
    let or_unset = |name: &str| environment(name).or_else(|| Some(UNSET.to_owned()));
    let value = value::read(&text, &notes, Some(&or_unset));
    let root = At::root(&notes, value.as_ref());
    let services = services::read(&root.at("services"));
    let people = Some(load::people(&root.at("people")));
    let problems = notes.problems.take();
    if !problems.is_empty() {
        return Err(Errors(problems));
    }
    // What is wrong with the agents is for `serve` to say.
    let first = (!root.at("agent").is_absent()).then(|| DEFAULT_AGENT.to_owned());
    let others = root.at("agents").list().unwrap_or_default();
    let ids = others.iter().filter_map(|place| place.at("id").text());
    Ok(Known { agents: first.into_iter().chain(ids).collect(), services, people })
}
