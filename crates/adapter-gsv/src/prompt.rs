//! System prompt of an agent of this adapter: identity, tools, its own files, skills, place and time.
//!
//! Its files are read when a run begins and stay as they were to its end. Source: docs/protocol/gsv.md, Workspace.

use std::{collections::BTreeMap, sync::Arc};

use countersign_conversations::prompt::APPROVALS;
use countersign_core::{id::RunId, schedule::Zone, time::Millis, tool::ToolSpec};
use countersign_protocol::gsv::workspace::WorkspacePath;
use parking_lot::Mutex;

use super::{skills::OfferedSkill, workspace::AgentFolder};

const BASE: &str = include_str!("prompt/base.md");
const STYLE: &str = include_str!("prompt/style.md");
const WORKSPACE: &str = include_str!("prompt/workspace.md");
const HEARTBEAT: &str = include_str!("prompt/heartbeat.md");
const FIRST_RUN: &str = include_str!("prompt/first_run.md");

/// Separator between two sections.
const RULE: &str = "\n\n---\n\n";
/// Longest part of one file in a prompt, in bytes.
const LONGEST_FILE: usize = 64 << 10;
/// Longest part of all files, in bytes.
const LONGEST_FILES: usize = 256 << 10;
/// Most skills that are listed.
const MOST_SKILLS: usize = 200;

/// Occasion of a prompt, which selects the files of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptOccasion {
    /// Main session of the agent: its memory too.
    Main,
    /// Heartbeat: its list too.
    Heartbeat,
    /// Any other session.
    Other,
}

/// Files of an agent as they were when a run began, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentFiles {
    first_run: Option<String>,
    /// Files in the order of the prompt, each with its name. Those of tools and heartbeats are last.
    ordered: Vec<(String, String)>,
    tools: Option<String>,
    heartbeat: Option<String>,
}

impl AgentFiles {
    /// Reads the files of an occasion. Unreadable ones are left out.
    pub(super) fn read_files(folder: &AgentFolder, occasion: PromptOccasion, now: Millis, zone: Zone) -> Self {
        let mut left = LONGEST_FILES;
        let mut read = |name: &str| {
            let text = folder.read_text(&WorkspacePath::from_text(name).ok()?).ok()?.text;
            let text = text.trim();
            let kept = truncate_text(text, LONGEST_FILE.min(left));
            left -= kept.len();
            let rest =
                if kept.len() < text.len() { "\n[The rest of this file is left out: it is too long.]" } else { "" };
            Some(format!("{kept}{rest}")).filter(|text| !text.is_empty())
        };
        // The most important file is read first, in case they are too long together.
        let first_run = read("BOOTSTRAP.md");
        let mut names: Vec<String> = ["SOUL.md", "IDENTITY.md", "USER.md", "AGENTS.md"].map(str::to_owned).to_vec();
        if occasion == PromptOccasion::Main {
            names.push("MEMORY.md".to_owned());
        }
        let days = [1, 0].map(|ago| zone.date_before(now, ago));
        names.extend(days.into_iter().flatten().map(|day| format!("memory/{day}.md")));
        let texts = names.into_iter().filter_map(|name| read(&name).map(|text| (name, text))).collect();
        let tools = read("TOOLS.md");
        let heartbeat = (occasion == PromptOccasion::Heartbeat).then(|| read("HEARTBEAT.md")).flatten();
        Self { first_run, ordered: texts, tools, heartbeat }
    }
}

fn truncate_text(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Input of a prompt.
pub(super) struct PromptInput<'a> {
    /// Text that the settings have in place of the default beginning.
    pub(super) own: Option<&'a str>,
    /// Agent.
    pub(super) agent: &'a str,
    /// Canonical key of the session.
    pub(super) key: &'a str,
    /// Tools that it has.
    pub(super) tools: &'a [&'a ToolSpec],
    /// Files of the agent.
    pub(super) files: &'a AgentFiles,
    /// Skills that it can use.
    pub(super) skills: &'a [OfferedSkill],
    /// Time; only its day is used, so that the prompt stays the same.
    pub(super) now: Millis,
    /// Time zone of its users.
    pub(super) zone: Zone,
}

/// Writes the prompt.
pub(super) fn build_prompt(facts: &PromptInput<'_>) -> String {
    let file = |name: &str, text: &str| format!("# {name}\n\n{text}");
    let mut sections = vec![
        facts.own.unwrap_or(BASE).to_owned(),
        tools_section(facts.tools),
        STYLE.to_owned(),
        APPROVALS.to_owned(),
        WORKSPACE.to_owned(),
    ];
    if let Some(text) = &facts.files.first_run {
        sections.push(format!("{}\n\n{text}", FIRST_RUN.trim()));
    }
    sections.extend(facts.files.ordered.iter().map(|(name, text)| file(name, text)));
    sections.extend(facts.files.tools.iter().map(|text| file("TOOLS.md", text)));
    match &facts.files.heartbeat {
        Some(text) => sections.push(format!("{}\n\nHEARTBEAT.md:\n\n{text}", HEARTBEAT.trim())),
        None => sections.push(HEARTBEAT.to_owned()),
    }
    sections.extend(skills_section(facts.skills));
    let day = facts.zone.date_before(facts.now, 0).unwrap_or_default();
    sections
        .push(format!("# Here and now\n\nAgent: {}\nSession: {}\nDay: {day} ({})", facts.agent, facts.key, facts.zone));
    let sections: Vec<&str> = sections.iter().map(|section| section.trim()).filter(|it| !it.is_empty()).collect();
    sections.join(RULE)
}

fn tools_section(specs: &[&ToolSpec]) -> String {
    if specs.is_empty() {
        return "# Tools\n\nYou have no tools in this session.".to_owned();
    }
    let mut text = "# Tools\n\nYou have these tools and no others. Those that begin with `gsv__` are the gateway's; what stands in front of the others is the machine that does them.\n".to_owned();
    for spec in specs {
        let first = spec.description.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        text.push_str(&format!("\n- {}: {first}", spec.name));
    }
    text
}

fn skills_section(offered: &[OfferedSkill]) -> Option<String> {
    if offered.is_empty() {
        return None;
    }
    let mut text = "# Skills\n\nHow particular work is done. Before you begin something that one of them is for, read its file with `gsv__ReadFile`.\n".to_owned();
    for skill in offered.iter().take(MOST_SKILLS) {
        let hosts = if skill.hosts.is_empty() { String::new() } else { format!(" (on {})", skill.hosts.join(", ")) };
        text.push_str(&format!("\n- {}{hosts}: {} [{}]", skill.name, skill.description, skill.path));
    }
    Some(text)
}

/// Files of the runs that work, each as it began with them.
#[derive(Default)]
pub(super) struct RunFiles(Mutex<BTreeMap<RunId, Arc<AgentFiles>>>);

/// Most runs whose files are remembered. Those of more are read again for each request.
const MOST_RUNS: usize = 256;

impl RunFiles {
    /// Returns the files with which a run began; `read` reads them if it begins now.
    pub(super) fn files_for(&self, run: Option<RunId>, read: impl FnOnce() -> AgentFiles) -> Arc<AgentFiles> {
        let Some(run) = run else { return Arc::new(read()) };
        if let Some(files) = self.0.lock().get(&run) {
            return Arc::clone(files);
        }
        let files = Arc::new(read());
        let mut known = self.0.lock();
        if known.len() < MOST_RUNS {
            known.insert(run, Arc::clone(&files));
        }
        files
    }

    /// Forgets the files of a run that has ended.
    pub(super) fn forget_run(&self, run: RunId) {
        self.0.lock().remove(&run);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use countersign_core::{schedule::Zone, time::Millis};

    use super::{AgentFiles, PromptInput, PromptOccasion, RULE, build_prompt};
    use crate::{skills::OfferedSkill, workspace::AgentFolder};

    /// Time 2026-01-31, an hour before midnight in London and after it in Berlin.
    const LATE: Millis = Millis(1_769_900_400_000);

    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, AgentFolder) {
        let agents = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = agents.path().join("a").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let folder = AgentFolder::for_agent(agents.path(), "a");
        (agents, folder)
    }

    fn headings(text: &str) -> Vec<&str> {
        let sections = text.split(RULE).map(|section| section.lines().next().unwrap_or_default());
        sections.map(|line| line.trim_start_matches("# ")).collect()
    }

    fn built(files: &AgentFiles, zone: Zone) -> String {
        let skills = [OfferedSkill {
            name: "tea".to_owned(),
            description: "Makes tea".to_owned(),
            path: "skills/tea/SKILL.md".to_owned(),
            hosts: vec!["kitchen".to_owned()],
        }];
        let facts = PromptInput {
            own: Some("You are Tom."),
            agent: "a",
            key: "k",
            tools: &[],
            files,
            skills: &skills,
            now: LATE,
            zone,
        };
        build_prompt(&facts)
    }

    #[test]
    fn an_agents_files_stand_in_their_order_and_memory_in_its_main_session_alone() {
        let names =
            ["SOUL.md", "IDENTITY.md", "USER.md", "AGENTS.md", "MEMORY.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md"];
        let days = ["memory/2026-01-30.md", "memory/2026-01-31.md", "memory/2026-02-01.md"];
        let all: Vec<(&str, &str)> = names.iter().chain(&days).map(|name| (*name, *name)).collect();
        let (_kept, folder) = folder(&all);
        let berlin: Zone = "Europe/Berlin".parse().unwrap();
        let prompt_for = |occasion, zone| built(&AgentFiles::read_files(&folder, occasion, LATE, zone), zone);
        let usual = [
            "You are Tom.",
            "Tools",
            "How to work and speak",
            "Approvals",
            "Your folder",
            "First run",
            "SOUL.md",
            "IDENTITY.md",
            "USER.md",
            "AGENTS.md",
        ];
        let last = ["TOOLS.md", "Heartbeats", "Skills", "Here and now"];
        let with = |between: &[&'static str]| [&usual[..], between, &last].concat();
        let main = prompt_for(PromptOccasion::Main, Zone::UTC);
        assert_eq!(headings(&main), with(&["MEMORY.md", "memory/2026-01-30.md", "memory/2026-01-31.md"]));
        assert!(main.contains("- tea (on kitchen): Makes tea [skills/tea/SKILL.md]"), "{main}");
        assert!(!main.contains("HEARTBEAT.md:"));
        let abroad = prompt_for(PromptOccasion::Other, berlin);
        assert_eq!(headings(&abroad), with(&["memory/2026-01-31.md", "memory/2026-02-01.md"]));
        assert!(abroad.ends_with("Day: 2026-02-01 (Europe/Berlin)"), "{abroad}");
        assert!(prompt_for(PromptOccasion::Heartbeat, Zone::UTC).contains("HEARTBEAT.md:\n\nHEARTBEAT.md"));
    }

    #[test]
    fn a_long_file_is_cut_with_a_notice_and_an_empty_one_is_left_out() {
        let long = "ü".repeat(40_000);
        let (_kept, folder) = folder(&[("SOUL.md", &long), ("USER.md", " \n")]);
        let files = AgentFiles::read_files(&folder, PromptOccasion::Other, LATE, Zone::UTC);
        assert_eq!(files.ordered.len(), 1);
        assert!(files.ordered[0].1.ends_with("üü\n[The rest of this file is left out: it is too long.]"));
        assert!(files.ordered[0].1.len() < 66_000);
    }
}
