//! The MCP servers that the originals' own files define: `mcp.json` and `.mcp.json` of the user and of a project.
//!
//! It must not start or call any server. A faulty entry is reported and left out; the rest counts. Source: docs/mcp-config.md of
//! oh-my-pi. The files of other programs that the original reads too (`.claude`, `.cursor` and so on) are not read.

mod entry;
mod entry_error;
mod expansion;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    path::{Path, PathBuf},
    time::Duration,
};

use countersign_config::{
    McpServerConfig, McpServerOrigin, suggest,
    yaml::{WrongType, YamlField, YamlNode},
};

use self::{
    entry::{McpEntry, read_entry},
    expansion::VariableExpander,
};
use super::{AgentDir, ProcessEnvironment};

/// Servers of the files of a user and a project.
#[derive(Clone, Debug, Default)]
pub struct McpServers {
    /// Those of the user, then those of the project, in the order of their files. No two have the same name, in any letter case.
    pub servers: Vec<McpServerConfig>,
    /// Entries that were left out and the reason, and texts that count as they are, one line each. Never holds a value of a file.
    pub problems: Vec<String>,
}

/// Use of the servers that a project defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectServers {
    /// They are read, with the origin [`McpServerOrigin::Project`].
    #[default]
    Read,
    /// `mcp.enableProjectConfig: false`: no file of the project is opened.
    Ignored,
}

/// Key of the names that are never used.
const DENIED: &str = "disabledServers";

/// Time limit of every call in milliseconds, before those of the files.
const TIMEOUT_VARIABLE: &str = "OMP_MCP_TIMEOUT_MS";

impl McpServers {
    /// Reads the files of `folder` and of the project in `cwd`; files that are not there change nothing. Never fails: all faults
    /// are in `problems`.
    ///
    /// A server of the user precedes one of the project with the same name, even if the user's is faulty: in the original the
    /// project's counts, but here rules and approvals are about names. A project can only switch a server of the user off.
    ///
    /// Only the environment of the process may be handed in, never that of a `.env` file: a repository must not choose the values
    /// in the user's files.
    pub fn load(folder: &AgentDir, cwd: &Path, environment: &ProcessEnvironment, project: ProjectServers) -> Self {
        let user = folder.mcp_paths();
        let others = match project {
            ProjectServers::Read => folder.project_mcp_paths(cwd).to_vec(),
            ProjectServers::Ignored => Vec::new(),
        };
        // A working folder may be the agent directory itself.
        let others: Vec<PathBuf> = others.into_iter().filter(|path| !user.contains(path)).collect();
        let mut reader = McpFilesReader::new(environment, cwd);
        for path in &user {
            reader.read_file(path, McpServerOrigin::User);
        }
        for path in &others {
            reader.read_file(path, McpServerOrigin::Project);
        }
        reader.into_servers()
    }
}

/// Findings in the files that were read so far.
struct McpFilesReader<'a> {
    environment: &'a ProcessEnvironment,
    cwd: &'a Path,
    /// By the name in small letters, each with the file that defined it first.
    entries: BTreeMap<String, (PathBuf, McpEntry)>,
    /// Names in small letters, in the order of the files.
    order: Vec<String>,
    /// Names that some file denies.
    denied: BTreeSet<String>,
    /// Names that a file of the user switches on, whatever its entry says.
    forced: BTreeSet<String>,
    /// True if it is not known which servers the files deny.
    denies_all: bool,
    problems: Vec<String>,
}

impl<'a> McpFilesReader<'a> {
    const fn new(environment: &'a ProcessEnvironment, cwd: &'a Path) -> Self {
        Self {
            environment,
            cwd,
            entries: BTreeMap::new(),
            order: Vec::new(),
            denied: BTreeSet::new(),
            forced: BTreeSet::new(),
            denies_all: false,
            problems: Vec::new(),
        }
    }

    fn read_file(&mut self, path: &Path, origin: McpServerOrigin) {
        let node = match YamlNode::read_file(path) {
            Ok(Some(node)) => node,
            Ok(None) => return,
            Err(error) => return self.report_unreadable(&error.to_string(), origin),
        };
        let root = YamlField::root(path, Some(&node));
        match root.members() {
            Ok(members) => {
                if let Err(error) = self.read_root(&root, &members, origin) {
                    self.problems.push(error.to_string());
                }
            }
            Err(error) => self.report_unreadable(&error.to_string(), origin),
        }
    }

    /// Reports a file whose names are not known. One of the user may deny servers of the project.
    fn report_unreadable(&mut self, error: &str, origin: McpServerOrigin) {
        if origin.is_trusted() {
            self.deny_all(error);
        } else {
            self.problems.push(error.to_owned());
        }
    }

    fn deny_all(&mut self, reason: &str) {
        self.denies_all = true;
        self.problems.push(format!("{reason}; no MCP server is used until this is corrected"));
    }

    fn read_root(
        &mut self,
        root: &YamlField<'_>,
        members: &[(&str, YamlField<'_>)],
        origin: McpServerOrigin,
    ) -> Result<(), WrongType> {
        let has_servers = members.iter().any(|(key, _)| *key == "mcpServers");
        for (key, place) in members {
            let known = ["mcpServers", DENIED];
            let meant = suggest::did_you_mean(key, known, 2).filter(|meant| meant != key);
            let place = place.shown_place();
            match meant {
                Some(DENIED) => {
                    let problem = format!("{place}unknown key; did you mean \"{DENIED}\"?");
                    self.report_unreadable(&problem, origin);
                }
                Some(meant) => self.problems.push(format!("{place}unknown key; did you mean \"{meant}\"?")),
                None if *key == "servers" && !has_servers => {
                    self.problems.push(format!("{place}unknown key; the servers are under \"mcpServers\""));
                }
                None => {}
            }
        }
        match read_names(&root.at(DENIED)?) {
            Ok(names) => self.denied.extend(names),
            Err(error) => self.deny_all(&error.to_string()),
        }
        if origin == McpServerOrigin::User {
            match read_names(&root.at("enabledServers")?) {
                Ok(names) => self.forced.extend(names),
                Err(error) => self.problems.push(error.to_string()),
            }
        }
        for (name, place) in root.at("mcpServers")?.members()? {
            self.add_entry(name, &place, origin);
        }
        Ok(())
    }

    fn add_entry(&mut self, name: &str, place: &YamlField<'_>, origin: McpServerOrigin) {
        let mut variables = VariableExpander::new(self.environment, origin);
        let entry = read_entry(name, place, self.cwd, origin, &mut variables);
        match self.entries.entry(name.to_lowercase()) {
            btree_map::Entry::Vacant(free) => {
                self.order.push(free.key().clone());
                self.problems.extend(variables.into_notices());
                self.problems.extend(entry.config.as_ref().err().map(ToString::to_string));
                free.insert((place.file().to_owned(), entry));
            }
            btree_map::Entry::Occupied(mut first) => {
                let (file, first) = first.get_mut();
                if entry.is_enabled {
                    let message = format!("left out: {} defines a server of this name", file.display());
                    self.problems.push(format!("{}{message}", place.shown_place()));
                } else {
                    first.is_enabled = false;
                }
            }
        }
    }

    fn into_servers(mut self) -> McpServers {
        let timeout = self.read_timeout();
        let mut servers = Vec::new();
        for name in &self.order {
            let Some((_, McpEntry { is_enabled, config: Ok(mut config) })) = self.entries.remove(name) else {
                continue;
            };
            config.enabled = !self.denied.contains(name) && (is_enabled || self.forced.contains(name));
            config.timeout = timeout.unwrap_or(config.timeout);
            servers.push(config);
        }
        if self.denies_all {
            servers.clear();
        }
        // A project names its servers as it likes, and the lines are for a terminal.
        let problems = self.problems.iter().map(|problem| without_control_characters(problem)).collect();
        McpServers { servers, problems }
    }

    fn read_timeout(&mut self) -> Option<Duration> {
        let number = self.environment.get(TIMEOUT_VARIABLE)?.trim().parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            self.problems.push(format!("{TIMEOUT_VARIABLE} was ignored: expected a number of milliseconds"));
        }
        number.map(entry::limit_from_milliseconds)
    }
}

fn without_control_characters(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Reads a list of names of servers, in small letters.
fn read_names(place: &YamlField<'_>) -> Result<Vec<String>, WrongType> {
    let name = |item: YamlField<'_>| match item.text()? {
        Some(name) => Ok(name.to_lowercase()),
        None => Err(item.type_error("the name of a server")),
    };
    place.items()?.unwrap_or_default().into_iter().map(name).collect()
}
