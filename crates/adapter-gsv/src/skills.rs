//! Skills of agents, and where they can be used. Source: docs/protocol/gsv.md, Skills.

mod file;
mod shelf;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, GsvRequest, Method, code,
        key::agent_id,
        skill::{SkillEntry, SkillHost, SkillNode, SkillsStatusResult, SkillsUpdateParams, SkillsUpdateResult},
    },
};
use serde_json::Value;

use super::{
    Door,
    answer::{Answer, missing},
    nodes::{self, Anew},
    peer::Peer,
    workspace::Folder,
};

use shelf::{Skill, all};

/// A skill that an agent can use, as it is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offered {
    /// What it is called.
    pub(super) name: String,
    /// What it is for.
    pub(super) description: String,
    /// Where the agent reads it.
    pub(super) path: String,
    /// The machines on which it can be used, if it needs any.
    pub(super) hosts: Vec<String>,
}

/// The skills that an agent can use now. It reads files.
pub(super) fn offered(door: &Door, folder: &Folder, agent: &str) -> Vec<Offered> {
    let settings = door.settings.tree();
    let hosts = hosts(&nodes::known(door));
    let offer = |skill: Skill| {
        let told = skill.eligibility(&hosts, &settings);
        let hosts = if skill.requirements().is_some() { told.hosts } else { Vec::new() };
        told.eligible.then_some(Offered { name: skill.name, description: skill.description, path: skill.path, hosts })
    };
    all(folder, agent, &settings).into_iter().filter_map(offer).collect()
}

/// Answers a request of this group.
pub(super) async fn answer(door: &Arc<Door>, _: &Arc<Peer>, method: Method, request: GsvRequest) -> Answer {
    match request {
        GsvRequest::SkillsStatus(of) => Ok(RawJson::from_wire(&status(door, &of.agent).await?)),
        GsvRequest::SkillsUpdate(wanted) => update(door, &wanted).await,
        _ => Err(missing(method)),
    }
}

async fn shelf(door: &Arc<Door>, agent: &str) -> Result<(Vec<Skill>, Arc<Value>), GsvError> {
    let settings = door.settings.tree();
    let (agent, tree) = (agent_id(agent), Arc::clone(&settings));
    let folder = Folder::of(&door.context.config.agents_dir, &agent);
    let read = tokio::task::spawn_blocking(move || all(&folder, &agent, &tree)).await;
    let skills = read.map_err(|error| GsvError::new(code::FAILED, error.to_string()))?;
    Ok((skills, settings))
}

/// The programs that skills of any agent need: of those in the settings, and of those that have a folder.
pub(super) async fn all_required(door: &Arc<Door>) -> BTreeSet<String> {
    let (settings, own) = (door.settings.tree(), door.settings.agent());
    let agents_dir = door.context.config.agents_dir.clone();
    let read = move || {
        let listed = settings["agents"]["list"].as_array().into_iter().flatten();
        let listed = listed.filter_map(|agent| agent["id"].as_str().map(agent_id));
        let folders = std::fs::read_dir(&agents_dir).into_iter().flatten().flatten();
        let folders = folders.filter_map(|folder| folder.file_name().into_string().ok());
        let agents: BTreeSet<String> =
            listed.chain(folders.filter(|name| agent_id(name) == *name)).chain([own]).collect();
        let of_agent = |agent: &String| required(&all(&Folder::of(&agents_dir, agent), agent, &settings));
        agents.iter().flat_map(of_agent).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

fn required(skills: &[Skill]) -> BTreeSet<String> {
    let needs = skills.iter().filter_map(Skill::requirements);
    needs.flat_map(|needs| needs.bins.iter().chain(&needs.any_bins).cloned()).collect()
}

fn hosts(nodes: &[SkillNode]) -> Vec<SkillHost> {
    let machine = |node: &SkillNode| SkillHost {
        node: node.node_id.clone(),
        role: node.host_role,
        capabilities: node.host_capabilities.clone(),
        os: node.host_os.clone(),
        env: node.host_env.iter().cloned().collect(),
        bins: node.host_bins.iter().cloned().collect(),
    };
    nodes.iter().map(machine).collect()
}

/// Asks nodes which of the programs they have that skills need, and waits for what they say.
async fn update(door: &Arc<Door>, wanted: &SkillsUpdateParams) -> Answer {
    let (skills, _) = shelf(door, &wanted.agent).await?;
    let bins = required(&skills);
    let anew = if wanted.force { Anew::All } else { Anew::Stale };
    let asked = nodes::probe(door, &bins, anew, Duration::from_millis(wanted.timeout_ms)).await;
    Ok(RawJson::from_wire(&SkillsUpdateResult {
        status: status(door, &wanted.agent).await?,
        updated_node_count: asked.updated,
        skipped_node_ids: asked.skipped,
        errors: asked.errors,
    }))
}

async fn status(door: &Arc<Door>, agent: &str) -> Result<SkillsStatusResult, GsvError> {
    let (skills, settings) = shelf(door, agent).await?;
    let nodes = nodes::known(door);
    let hosts = hosts(&nodes);
    let required_bins = required(&skills).into_iter().collect();
    let entry = |skill: Skill| {
        let told = skill.eligibility(&hosts, &settings);
        SkillEntry {
            requirements: skill.requirements().cloned(),
            name: skill.name,
            description: skill.description,
            location: skill.location,
            always: skill.always,
            eligible: told.eligible,
            eligible_hosts: told.hosts,
            reasons: told.reasons,
        }
    };
    let skills = skills.into_iter().map(entry).collect();
    Ok(SkillsStatusResult {
        agent_id: agent_id(agent),
        refreshed_at: door.context.clock.now().0,
        required_bins,
        nodes,
        skills,
    })
}
