//! Skills of an agent: its own, and the shared ones that it does not replace.

use countersign_config::SKILLS;
use countersign_protocol::gsv::{
    settings::{SettingPath, get_value},
    skill::{SkillEligibility, SkillHost, SkillRequirements, skill_eligibility},
    workspace::WorkspacePath,
};
use serde_json::{Map, Value};

use super::{
    super::workspace::AgentFolder,
    file::{SkillHeader, read_requirements},
};

/// Name of a skill's file.
const FILE: &str = "SKILL.md";
/// Most skills of an agent.
const MOST: usize = 500;

/// Skill, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentSkill {
    pub(super) name: String,
    pub(super) description: String,
    /// Location: with the agent, or shared.
    pub(super) location: String,
    /// Path at which the agent reads it.
    pub(super) path: String,
    pub(super) always: bool,
    is_enabled: bool,
    /// Requirements. An error if they cannot be read.
    needs: Result<Option<SkillRequirements>, ()>,
}

impl AgentSkill {
    /// Returns its requirements, as far as they can be read.
    pub(super) fn requirements(&self) -> Option<&SkillRequirements> {
        self.needs.as_ref().ok().and_then(Option::as_ref)
    }

    /// Returns the machines on which it can be used, or the reason why there are none.
    pub(super) fn check_eligibility(&self, hosts: &[SkillHost], settings: &Value) -> SkillEligibility {
        let refused =
            |why: &str| SkillEligibility { eligible: false, hosts: Vec::new(), reasons: vec![why.to_owned()] };
        if !self.is_enabled {
            return refused("disabled by skills.entries policy");
        }
        let has = |path: &str| {
            let value = SettingPath::from_text(path).ok().and_then(|path| get_value(settings, &path).cloned());
            value.is_some_and(|value| is_set(&value))
        };
        match &self.needs {
            Err(()) if !self.always => refused("invalid requirement identifiers"),
            Ok(Some(needs)) => skill_eligibility(self.always, Some(needs), hosts, has),
            Ok(None) | Err(()) => skill_eligibility(self.always, None, hosts, has),
        }
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(_) => true,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Lists the skills in an agent's folder and the shared ones, by name. It reads files.
pub(super) fn list_skills(folder: &AgentFolder, agent: &str, settings: &Value) -> Vec<AgentSkill> {
    let listed =
        WorkspacePath::from_text(SKILLS).ok().and_then(|path| folder.list_entries(&path).ok()).unwrap_or_default();
    let mut skills: Vec<AgentSkill> = Vec::new();
    for listed in listed.directories.iter().take(MOST) {
        let dir = listed.trim_end_matches('/');
        let dir = dir.strip_prefix(SKILLS).unwrap_or(dir).trim_start_matches('/');
        let path = format!("{SKILLS}/{dir}/{FILE}");
        let Some((text, is_own)) = WorkspacePath::from_text(&path).ok().and_then(|path| folder.read_skill(&path))
        else {
            continue;
        };
        let location = if is_own { format!("agents/{agent}/{path}") } else { path.clone() };
        skills.push(skill_from_text(&text, dir, location, path, settings));
    }
    skills.sort_by(|one, other| (&one.name, &one.location).cmp(&(&other.name, &other.location)));
    skills
}

fn skill_from_text(text: &str, dir: &str, location: String, path: String, settings: &Value) -> AgentSkill {
    let head = SkillHeader::from_text(text);
    let name = head.name.unwrap_or_else(|| dir.to_owned());
    let entries = &settings["skills"]["entries"];
    let keys = [name.as_str(), dir, location.as_str(), path.as_str()];
    let entry = keys.iter().find_map(|key| entries.get(*key)).and_then(Value::as_object);
    let mut written: Option<Map<String, Value>> = head.requires;
    if let Some(Value::Object(over)) = entry.and_then(|entry| entry.get("requires")) {
        // Settings replace the requirements of the file, kind by kind.
        written.get_or_insert_default().extend(over.clone());
    }
    let needs = match (&written, head.is_garbled) {
        (Some(written), _) => read_requirements(written).map(Some).ok_or(()),
        (None, true) => Err(()),
        (None, false) => Ok(None),
    };
    let flag = |name: &str| entry.and_then(|entry| entry.get(name)).and_then(Value::as_bool);
    AgentSkill {
        name,
        description: head.description,
        location,
        path,
        always: flag("always").unwrap_or(head.always),
        is_enabled: flag("enabled").unwrap_or(true),
        needs,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use countersign_protocol::gsv::{
        runtime::{HostRole, MachineCapability},
        skill::SkillHost,
    };
    use serde_json::{Value, json};

    use super::{AgentSkill, list_skills};
    use crate::workspace::AgentFolder;

    fn shelf(own: &[(&str, &str)], shared: &[(&str, &str)], settings: &Value) -> Vec<AgentSkill> {
        let world = tempfile::tempdir().unwrap();
        let agents = world.path().join("agents");
        let put = |root: std::path::PathBuf, files: &[(&str, &str)]| {
            for (name, text) in files {
                fs::create_dir_all(root.join(name)).unwrap();
                fs::write(root.join(name).join("SKILL.md"), text).unwrap();
            }
        };
        put(agents.join("a/skills"), own);
        put(world.path().join("skills"), shared);
        fs::create_dir_all(world.path().join("skills/empty")).unwrap();
        list_skills(&AgentFolder::for_agent(&agents, "a"), "a", settings)
    }

    fn needs(requires: &Value) -> String {
        format!("---\nmetadata: {}\n---\nText.", json!({"gsv": {"requires": requires}}))
    }

    #[test]
    fn an_agents_own_skill_stands_in_the_place_of_everybodys() {
        let skills = shelf(&[("tea", "Mine.")], &[("tea", "Everybody's."), ("bread", "Bakes.")], &json!({}));
        let listed: Vec<_> =
            skills.iter().map(|it| (it.name.as_str(), it.description.as_str(), it.location.as_str())).collect();
        assert_eq!(
            listed,
            [("bread", "Bakes.", "skills/bread/SKILL.md"), ("tea", "Mine.", "agents/a/skills/tea/SKILL.md")]
        );
    }

    #[test]
    fn a_skill_says_where_it_can_be_used_or_why_it_cannot() {
        let host = |node: &str, os: &str, bins: &[&str]| SkillHost {
            node: node.to_owned(),
            role: Some(HostRole::Execution),
            capabilities: vec![MachineCapability::ShellExec],
            os: Some(os.to_owned()),
            env: ["HOME".to_owned()].into(),
            bins: bins.iter().map(|bin| (*bin).to_owned()).collect(),
        };
        let hosts = [host("box", "linux", &["git"]), host("mac", "macos", &["git", "say"])];
        for (case, text, settings, on, reasons) in [
            ("nothing needed", "Text.".to_owned(), json!({}), vec!["box", "mac"], vec![]),
            ("a program", needs(&json!({"bins": ["say"]})), json!({}), vec!["mac"], vec![]),
            (
                "on one machine",
                needs(&json!({"bins": ["say"], "os": ["linux"]})),
                json!({}),
                vec![],
                vec!["requires bins: say"],
            ),
            (
                "a role",
                needs(&json!({"hostRoles": ["specialized"]})),
                json!({}),
                vec![],
                vec!["requires hostRoles: specialized"],
            ),
            (
                "a setting",
                needs(&json!({"config": ["auth.token", "userTimezone"]})),
                json!({"userTimezone": "UTC"}),
                vec![],
                vec!["requires config: auth.token"],
            ),
            (
                "what there is not",
                needs(&json!({"capabilities": ["fly"]})),
                json!({}),
                vec![],
                vec!["invalid requirement identifiers"],
            ),
            ("no list", needs(&json!({"bins": "git"})), json!({}), vec![], vec!["invalid requirement identifiers"]),
            (
                "off",
                "Text.".to_owned(),
                json!({"skills": {"entries": {"one": {"enabled": false}}}}),
                vec![],
                vec!["disabled by skills.entries policy"],
            ),
            (
                "off by its place",
                "Text.".to_owned(),
                json!({"skills": {"entries": {"agents/a/skills/one/SKILL.md": {"enabled": false}}}}),
                vec![],
                vec!["disabled by skills.entries policy"],
            ),
            (
                "always",
                needs(&json!({"bins": ["none"]})),
                json!({"skills": {"entries": {"one": {"always": true}}}}),
                vec!["box", "mac"],
                vec![],
            ),
            (
                "other needs",
                needs(&json!({"bins": ["none"], "env": ["HOME"]})),
                json!({"skills": {"entries": {"one": {"requires": {"bins": ["say"]}}}}}),
                vec!["mac"],
                vec![],
            ),
        ] {
            let skills = shelf(&[("one", &text)], &[], &settings);
            let eligibility = skills[0].check_eligibility(&hosts, &settings);
            assert_eq!(
                (eligibility.hosts, eligibility.reasons, eligibility.eligible),
                (
                    on.iter().map(|it| (*it).to_owned()).collect(),
                    reasons.iter().map(|it| (*it).to_owned()).collect(),
                    reasons.is_empty()
                ),
                "{case}"
            );
        }
        let skills = shelf(&[("one", &needs(&json!({"bins": ["git"]})))], &[], &json!({}));
        assert_eq!(skills[0].check_eligibility(&[], &json!({})).reasons, ["no connected hosts"]);
    }
}
