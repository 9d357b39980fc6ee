//! Skills of agents, and their availability. Source: docs/protocol/gsv.md, Skills.

mod catalogue;
mod file;

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
    GsvAdapter,
    method_result::{MethodResult, unsupported_method},
    nodes::{self, ProbeScope},
    peer::ConnectedPeer,
    workspace::AgentFolder,
};

use catalogue::{AgentSkill, list_skills};

/// Skill that an agent can use, as its prompt lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfferedSkill {
    /// Name.
    pub(super) name: String,
    /// Purpose.
    pub(super) description: String,
    /// Path at which the agent reads it.
    pub(super) path: String,
    /// Machines on which it can be used, if it needs any.
    pub(super) hosts: Vec<String>,
}

/// Returns the skills that an agent can use now. It reads files.
pub(super) fn offered_skills(door: &GsvAdapter, folder: &AgentFolder, agent: &str) -> Vec<OfferedSkill> {
    let settings = door.settings.tree();
    let hosts = skill_hosts(&nodes::known(door));
    let offer = |skill: AgentSkill| {
        let eligibility = skill.check_eligibility(&hosts, &settings);
        let hosts = if skill.requirements().is_some() { eligibility.hosts } else { Vec::new() };
        eligibility.eligible.then_some(OfferedSkill {
            name: skill.name,
            description: skill.description,
            path: skill.path,
            hosts,
        })
    };
    list_skills(folder, agent, &settings).into_iter().filter_map(offer).collect()
}

/// Answers a request of this group.
pub(super) async fn handle_request(
    door: &Arc<GsvAdapter>,
    _: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
) -> MethodResult {
    match request {
        GsvRequest::SkillsStatus(of) => Ok(RawJson::from_wire(&skills_status(door, &of.agent).await?)),
        GsvRequest::SkillsUpdate(params) => update_skills(door, &params).await,
        _ => Err(unsupported_method(method)),
    }
}

async fn load_skills(door: &Arc<GsvAdapter>, agent: &str) -> Result<(Vec<AgentSkill>, Arc<Value>), GsvError> {
    let settings = door.settings.tree();
    let (agent, tree) = (agent_id(agent), Arc::clone(&settings));
    let folder = AgentFolder::for_agent(&door.context.config.agents_dir, &agent);
    let read = tokio::task::spawn_blocking(move || list_skills(&folder, &agent, &tree)).await;
    let skills = read.map_err(|error| GsvError::new(code::FAILED, error.to_string()))?;
    Ok((skills, settings))
}

/// Returns the programs that skills of any agent need: of agents in the settings, and of those that have a folder.
pub(super) async fn all_required(door: &Arc<GsvAdapter>) -> BTreeSet<String> {
    let (settings, own) = (door.settings.tree(), door.settings.default_agent());
    let agents_dir = door.context.config.agents_dir.clone();
    let read = move || {
        let listed = settings["agents"]["list"].as_array().into_iter().flatten();
        let listed = listed.filter_map(|agent| agent["id"].as_str().map(agent_id));
        let folders = std::fs::read_dir(&agents_dir).into_iter().flatten().flatten();
        let folders = folders.filter_map(|folder| folder.file_name().into_string().ok());
        let agents: BTreeSet<String> =
            listed.chain(folders.filter(|name| agent_id(name) == *name)).chain([own]).collect();
        let of_agent = |agent: &String| {
            required_programs(&list_skills(&AgentFolder::for_agent(&agents_dir, agent), agent, &settings))
        };
        agents.iter().flat_map(of_agent).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

fn required_programs(skills: &[AgentSkill]) -> BTreeSet<String> {
    let needs = skills.iter().filter_map(AgentSkill::requirements);
    needs.flat_map(|needs| needs.bins.iter().chain(&needs.any_bins).cloned()).collect()
}

fn skill_hosts(nodes: &[SkillNode]) -> Vec<SkillHost> {
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

/// Probes nodes for the programs that skills need, and waits for their answers.
async fn update_skills(door: &Arc<GsvAdapter>, params: &SkillsUpdateParams) -> MethodResult {
    let (skills, _) = load_skills(door, &params.agent).await?;
    let bins = required_programs(&skills);
    let anew = if params.force { ProbeScope::All } else { ProbeScope::Stale };
    let probed = nodes::probe_nodes(door, &bins, anew, Duration::from_millis(params.timeout_ms)).await;
    Ok(RawJson::from_wire(&SkillsUpdateResult {
        status: skills_status(door, &params.agent).await?,
        updated_node_count: probed.updated,
        skipped_node_ids: probed.skipped,
        errors: probed.errors,
    }))
}

async fn skills_status(door: &Arc<GsvAdapter>, agent: &str) -> Result<SkillsStatusResult, GsvError> {
    let (skills, settings) = load_skills(door, agent).await?;
    let nodes = nodes::known(door);
    let hosts = skill_hosts(&nodes);
    let required_bins = required_programs(&skills).into_iter().collect();
    let entry = |skill: AgentSkill| {
        let eligibility = skill.check_eligibility(&hosts, &settings);
        SkillEntry {
            requirements: skill.requirements().cloned(),
            name: skill.name,
            description: skill.description,
            location: skill.location,
            always: skill.always,
            eligible: eligibility.eligible,
            eligible_hosts: eligibility.hosts,
            reasons: eligibility.reasons,
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
