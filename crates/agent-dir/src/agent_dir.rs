//! Paths of the agent directory and its parts.
//!
//! It must not know the content of the files. Source: docs/protocol/omp.md, Configuration.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use countersign_runtime::tools::{GatewaySecrets, secrets::FOLDER};

use super::ProcessEnvironment;

/// The name of the file of grants in an agent directory.
pub const GRANTS_FILE: &str = "grants.jsonl";

/// Product whose agent directory is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentProduct {
    /// `~/.omp/agent`.
    #[default]
    Omp,
    /// `~/.gjc/agent`.
    Gjc,
}

impl AgentProduct {
    /// Returns its name; its adapter has the same name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Omp => "omp",
            Self::Gjc => "gjc",
        }
    }

    /// Returns the product of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Omp, Self::Gjc].into_iter().find(|product| product.name() == name)
    }

    /// Returns the variables that name the whole directory, strongest first.
    const fn dir_variables(self) -> &'static [&'static str] {
        match self {
            Self::Omp => &["PI_CODING_AGENT_DIR", "OMP_CODING_AGENT_DIR"],
            Self::Gjc => &["GJC_CODING_AGENT_DIR"],
        }
    }
}

/// Neither `HOME` nor a variable that names the agent directory is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HOME is not set, so the agent directory is not known")]
pub struct NoHome;

/// The agent directory and the places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDir {
    root: PathBuf,
    home: PathBuf,
    project_folder: String,
    content: PathBuf,
}

impl AgentDir {
    /// Finds the directory for `product`. Relative paths start at `cwd`; `exists` reports whether a folder is there.
    ///
    /// Only the environment of the process may be handed in, never that of a `.env` file: a repository must not choose
    /// where policy and keys are read from.
    ///
    /// # Errors
    /// [`NoHome`] if nothing says where it is.
    pub fn resolve(
        product: AgentProduct,
        environment: &ProcessEnvironment,
        cwd: &Path,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<Self, NoHome> {
        let home = environment.get("HOME").or_else(|| environment.get("USERPROFILE")).map(PathBuf::from);
        let project_folder = match product {
            AgentProduct::Omp => environment.get("PI_CONFIG_DIR").unwrap_or(".omp").to_owned(),
            AgentProduct::Gjc => ".gjc".to_owned(),
        };
        let usual = home.as_ref().map(|home| home.join(&project_folder).join("agent"));
        let named = product.dir_variables().iter().find_map(|name| environment.get(name)).map(|path| {
            let path = match (path.strip_prefix("~/"), &home) {
                (Some(rest), Some(home)) => home.join(rest),
                (Some(_) | None, _) => PathBuf::from(path),
            };
            cwd.join(path)
        });
        let root = named.or_else(|| usual.clone()).ok_or(NoHome)?;
        // Sessions and blobs move, the settings stay; the folder has no `agent` level there.
        let moved = (Some(&root) == usual.as_ref())
            .then(|| environment.get("XDG_DATA_HOME"))
            .flatten()
            .map(|data| Path::new(data).join(product.name()))
            .filter(|folder| exists(folder));
        let content = moved.unwrap_or_else(|| root.clone());
        let home = home.unwrap_or_else(|| root.clone());
        Ok(Self { root, home, project_folder, content })
    }

    /// Opens the directory at `root`, for a gateway, which has no home and no project settings of a product.
    pub fn at_root(root: PathBuf) -> Self {
        Self { home: root.clone(), content: root.clone(), project_folder: ".countersign".to_owned(), root }
    }

    /// Returns the directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder in which each MCP server has a folder of its own. It is next to the directory and not in it: a server may
    /// write there, and nothing of the directory is open to it.
    pub fn server_homes(&self) -> PathBuf {
        let mut name = self.root.file_name().unwrap_or_default().to_owned();
        name.push(".mcp");
        self.root.with_file_name(name)
    }

    /// Returns the secrets that commands may use by name; none if the directory has no folder for them yet.
    pub fn secrets(&self) -> GatewaySecrets {
        let folder = self.root.join(FOLDER);
        if folder.is_dir() { GatewaySecrets::from_folder(folder, BTreeMap::new()) } else { GatewaySecrets::default() }
    }

    /// Returns the home directory of the user, or the agent directory if there is none.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the name of the folder in a project that holds its own settings, such as `.omp`.
    pub fn project_folder(&self) -> &str {
        &self.project_folder
    }

    /// Returns the user's settings.
    pub fn config_path(&self) -> PathBuf {
        self.root.join("config.yml")
    }

    /// Returns the settings of the project in `cwd`.
    pub fn project_config(&self, cwd: &Path) -> PathBuf {
        cwd.join(&self.project_folder).join("config.yml")
    }

    /// Returns the user's models, the newer form first.
    pub fn models_paths(&self) -> [PathBuf; 2] {
        [self.root.join("models.yml"), self.root.join("models.json")]
    }

    /// Returns the user's files of MCP servers, strongest first.
    pub fn mcp_paths(&self) -> [PathBuf; 2] {
        ["mcp.json", ".mcp.json"].map(|name| self.root.join(name))
    }

    /// Returns the files of MCP servers of the project in `cwd`, strongest first. The last two belong to other programs too.
    pub fn project_mcp_paths(&self, cwd: &Path) -> [PathBuf; 4] {
        let own = cwd.join(&self.project_folder);
        [own.join("mcp.json"), own.join(".mcp.json"), cwd.join("mcp.json"), cwd.join(".mcp.json")]
    }

    /// Returns the files that may hold keys, strongest first.
    pub fn env_files(&self, cwd: &Path) -> [PathBuf; 2] {
        [cwd.join(".env"), self.home.join(".env")]
    }

    /// Returns the folder that has one folder of session files a working directory.
    pub fn sessions_dir(&self) -> PathBuf {
        self.content.join("sessions")
    }

    /// Returns the folder of images, each under the digest of its bytes.
    pub fn blobs_dir(&self) -> PathBuf {
        self.content.join("blobs")
    }

    /// Returns the folder of the logs of sessions.
    pub fn logs_dir(&self) -> PathBuf {
        self.root.join("countersign")
    }

    /// Returns the grants that outlive a session.
    pub fn grants_path(&self) -> PathBuf {
        self.root.join(GRANTS_FILE)
    }

    /// Returns the user's rules.
    pub fn permissions_path(&self) -> PathBuf {
        self.root.join("permissions.yaml")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{AgentDir, AgentProduct, NoHome, ProcessEnvironment};

    fn places(product: AgentProduct, variables: &[(&str, &str)]) -> Result<(String, String), NoHome> {
        let environment: ProcessEnvironment = variables.iter().copied().collect();
        let folder =
            AgentDir::resolve(product, &environment, Path::new("/work"), |path| path == Path::new("/data/omp"))?;
        Ok((folder.config_path().display().to_string(), folder.sessions_dir().display().to_string()))
    }

    #[test]
    fn the_agent_directory_is_where_its_hosts_expect_it() {
        use AgentProduct::{Gjc, Omp};
        let home = ("HOME", "/home/ana");
        for (case, product, variables, config, sessions) in [
            ("usual", Omp, vec![home], "/home/ana/.omp/agent/config.yml", "/home/ana/.omp/agent/sessions"),
            ("gjc", Gjc, vec![home], "/home/ana/.gjc/agent/config.yml", "/home/ana/.gjc/agent/sessions"),
            ("named", Omp, vec![home, ("PI_CODING_AGENT_DIR", "/a")], "/a/config.yml", "/a/sessions"),
            ("older name", Omp, vec![home, ("OMP_CODING_AGENT_DIR", "/b")], "/b/config.yml", "/b/sessions"),
            ("relative", Omp, vec![("PI_CODING_AGENT_DIR", "c")], "/work/c/config.yml", "/work/c/sessions"),
            (
                "tilde",
                Omp,
                vec![home, ("PI_CODING_AGENT_DIR", "~/d")],
                "/home/ana/d/config.yml",
                "/home/ana/d/sessions",
            ),
            ("gjc named", Gjc, vec![home, ("GJC_CODING_AGENT_DIR", "/g")], "/g/config.yml", "/g/sessions"),
            (
                "not gjc's",
                Gjc,
                vec![home, ("PI_CODING_AGENT_DIR", "/a")],
                "/home/ana/.gjc/agent/config.yml",
                "/home/ana/.gjc/agent/sessions",
            ),
            (
                "renamed",
                Omp,
                vec![home, ("PI_CONFIG_DIR", ".pi")],
                "/home/ana/.pi/agent/config.yml",
                "/home/ana/.pi/agent/sessions",
            ),
            (
                "xdg",
                Omp,
                vec![home, ("XDG_DATA_HOME", "/data")],
                "/home/ana/.omp/agent/config.yml",
                "/data/omp/sessions",
            ),
            (
                "xdg without the folder",
                Omp,
                vec![home, ("XDG_DATA_HOME", "/else")],
                "/home/ana/.omp/agent/config.yml",
                "/home/ana/.omp/agent/sessions",
            ),
            (
                "xdg and named",
                Omp,
                vec![home, ("XDG_DATA_HOME", "/data"), ("PI_CODING_AGENT_DIR", "/a")],
                "/a/config.yml",
                "/a/sessions",
            ),
        ] {
            assert_eq!(places(product, &variables), Ok((config.to_owned(), sessions.to_owned())), "{case}");
        }
        assert_eq!(places(Omp, &[]), Err(NoHome));
    }
}
