//! The settings of `config.yml`: the user's file, then the project's over it.
//!
//! It must not know who uses a setting. Keys it does not know are other programs' and are ignored. Source:
//! docs/protocol/omp.md, Configuration.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use countersign_config::{
    misnamed_files,
    yaml::{WrongType, YamlField, YamlNode},
};
use countersign_core::session::{AskTimeouts, NoAnswerRule};
use countersign_files::paths;
use countersign_runtime::{models::entry::ThinkingLevel, tools::sandbox};

use super::{
    AgentDir, LoadError, ProjectServers, Restrictions,
    section::{self, FileOwner},
};

/// Settings that the stdio adapters read from `config.yml`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSettings {
    /// `retry`.
    pub retry: ModelRetrySettings,
    /// `compaction`.
    pub compaction: CompactionSettings,
    /// `steeringMode`. Any text is kept and shown, as hosts expect; only `all` empties the queue at once.
    pub steering_mode: String,
    /// `followUpMode`, as `steering_mode`.
    pub follow_up_mode: String,
    /// `interruptMode`. Only `wait` waits.
    pub interrupt_mode: String,
    /// `defaultThinkingLevel`.
    pub thinking_level: ThinkingLevel,
    /// `modelRoles` by role; the role `default` is the model that was chosen last, `defaultModel` the older key for it.
    pub model_roles: BTreeMap<String, String>,
    /// `enabledModels` of the last file that has it: patterns of the models that are cycled through; absent means all.
    pub enabled_models: Vec<String>,
    /// `edit.mode`.
    pub edit_mode: EditToolMode,
    /// `todo.reminders`.
    pub todo_reminders: TodoReminders,
    /// `mcp.enableProjectConfig`: ignored if any file says false.
    pub project_servers: ProjectServers,
    /// Rights that settings of the originals take away.
    pub restrictions: Restrictions,
    /// `providers.streamIdleTimeoutSeconds`: how long a provider may send nothing of an answer; zero there is no limit.
    pub silence: Duration,
    /// `countersign`.
    pub ours: CountersignSettings,
}

/// Repetition of failed model requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRetrySettings {
    /// True for `retry.enabled`.
    pub enabled: bool,
    /// `retry.maxRetries`.
    pub max_retries: u32,
    /// `retry.baseDelayMs`.
    pub base_delay: Duration,
    /// `retry.maxDelayMs`; zero there is no limit.
    pub max_delay: Duration,
    /// `retry.provider.maxRetries`: attempts before a failure is reported.
    pub silent: u32,
}

/// When the context is made shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionSettings {
    /// True for `compaction.enabled`.
    pub enabled: bool,
    /// `compaction.reserveTokens`.
    pub reserve_tokens: u64,
    /// `compaction.keepRecentTokens`.
    pub keep_recent_tokens: u64,
    /// `compaction.thresholdTokens`, unless it is zero.
    pub threshold_tokens: Option<u64>,
    /// `compaction.thresholdPercent`, where it is from 1 to 99.
    pub threshold_percent: Option<f64>,
}

/// Arguments that the `edit` tool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditToolMode {
    /// `{path, old_text, new_text, all?}`.
    Replace,
    /// Anchored by line hashes.
    Hashline,
    /// A diff.
    Patch,
}

/// Reminders of open tasks for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TodoReminders {
    /// True for `todo.reminders.enabled`, or `todo.reminders` itself.
    pub enabled: bool,
    /// `todo.reminders.max`.
    pub max: u32,
}

/// Settings that only Countersign has. Read from the user's file alone: a repository must not loosen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersignSettings {
    /// `countersign.approval_timeout`, or `approval_timeout`, in seconds.
    pub approval_timeout: Duration,
    /// `countersign.clarify_timeout`, or `clarify_timeout`, in seconds.
    pub clarify_timeout: Duration,
    /// `countersign.retry_ask_after`, in seconds: the shortest wait for a provider that opens a gate for people; zero there
    /// is never.
    pub retry_ask_after: Duration,
    /// `countersign.host_timeout`, in seconds: how long a call waits for its host, and how long a host may say nothing of one.
    pub host_timeout: Duration,
    /// `countersign.bash_timeout`, in seconds: of commands that name none.
    pub bash_timeout: Duration,
    /// `countersign.gates`: the time limits of gates that runs open, and their defaults.
    pub gates: GateSettings,
    /// `countersign.sandbox`: what commands may touch.
    pub sandbox: sandbox::SandboxSettings,
    /// `countersign.attach`: whether sessions live in the gateway of this machine.
    pub attach: AttachMode,
    /// `countersign.data`: the data directory of that gateway.
    pub data: Option<PathBuf>,
    /// `countersign.mcp`: whether MCP servers are started here. Absent means what the product's hosts expect.
    pub mcp: Option<bool>,
}

/// Waits of gates that runs open. Of each kind `timeout` and `remind`, in seconds, and `default`: whether something counts without
/// an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateSettings {
    /// `question`, with the default `recommended`.
    pub question: AskTimeouts,
    /// `approval`, of plans, with the default `reject`.
    pub approval: AskTimeouts,
    /// `execution`, with the default `decline`.
    pub execution: AskTimeouts,
}

impl GateSettings {
    fn apply_section(&mut self, gates: &YamlField<'_>) -> Result<(), WrongType> {
        for (name, patience, default) in [
            ("question", &mut self.question, "recommended"),
            ("approval", &mut self.approval, "reject"),
            ("execution", &mut self.execution, "decline"),
        ] {
            let of = gates.at(name)?;
            set_given(&mut patience.within, read_seconds(&of.at("timeout")?)?.map(Some));
            set_given(&mut patience.remind, read_seconds(&of.at("remind")?)?.map(Some));
            let place = of.at("default")?;
            match place.text()? {
                None => {}
                Some("none") => patience.otherwise = NoAnswerRule::Nothing,
                Some(word) if word == default => patience.otherwise = NoAnswerRule::Default,
                Some(_) => return Err(place.type_error("none, or the default of the kind of gate")),
            }
        }
        Ok(())
    }
}

/// Place of sessions: in the gateway of this machine or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// `never`: each has a log of its own.
    #[default]
    Never,
    /// `auto`: while one runs.
    Auto,
    /// `always`: without one they do not open.
    Always,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            retry: ModelRetrySettings {
                enabled: true,
                max_retries: 3,
                base_delay: Duration::from_secs(2),
                max_delay: Duration::from_secs(30 * 60),
                silent: 5,
            },
            compaction: CompactionSettings {
                enabled: true,
                reserve_tokens: 16_384,
                keep_recent_tokens: 20_000,
                threshold_tokens: None,
                threshold_percent: None,
            },
            steering_mode: "one-at-a-time".to_owned(),
            follow_up_mode: "one-at-a-time".to_owned(),
            interrupt_mode: "immediate".to_owned(),
            thinking_level: ThinkingLevel::High,
            model_roles: BTreeMap::new(),
            enabled_models: Vec::new(),
            edit_mode: EditToolMode::Replace,
            todo_reminders: TodoReminders { enabled: true, max: 3 },
            project_servers: ProjectServers::Read,
            restrictions: Restrictions::default(),
            silence: Duration::from_secs(120),
            ours: CountersignSettings {
                approval_timeout: Duration::from_secs(900),
                clarify_timeout: Duration::from_secs(3600),
                retry_ask_after: Duration::from_secs(180),
                host_timeout: Duration::from_secs(3600),
                bash_timeout: Duration::from_secs(300),
                gates: GateSettings::default(),
                sandbox: sandbox::SandboxSettings::default(),
                attach: AttachMode::Never,
                data: None,
                mcp: None,
            },
        }
    }
}

impl AgentSettings {
    /// Reads the user's settings and those of the project in `cwd` over them. Files that are not there change nothing.
    ///
    /// # Errors
    /// [`LoadError`] naming the file, the line and the key.
    pub fn load(folder: &AgentDir, cwd: &Path) -> Result<Self, LoadError> {
        Self::load_with(folder, cwd, &[])
    }

    /// Reads the same, and the files of `overlays` over them, in their order.
    ///
    /// # Errors
    /// [`LoadError`], also for an overlay that is not there.
    pub fn load_with(folder: &AgentDir, cwd: &Path, overlays: &[PathBuf]) -> Result<Self, LoadError> {
        let mut settings = Self::default();
        let usual = [(folder.config_path(), FileOwner::User), (folder.project_config(cwd), FileOwner::Project)];
        let overlays = overlays
            .iter()
            .map(|file| (cwd.join(paths::expand_home(&file.to_string_lossy(), folder.home())), FileOwner::Host));
        for (file, owner) in usual.into_iter().chain(overlays) {
            if owner == FileOwner::Host && !file.exists() {
                return Err(LoadError::Absent(file));
            }
            // A file that a host names may stand beside any other.
            let misnamed = misnamed_files(&file, &["yaml"]).next().filter(|_| owner != FileOwner::Host);
            if let Some(other) = misnamed {
                let problem = "is not read: settings are in config.yml; rename or remove this file";
                return Err(LoadError::Refused(format!("{}: {problem}", other.display())));
            }
            let node = YamlNode::read_file(&file);
            let node = if owner == FileOwner::Host { node.map_err(LoadError::Named)? } else { node? };
            // Settings that restrict are more than one to a key, and the strictest counts.
            settings.restrictions.apply_file(&YamlField::root(&file, node.as_ref()))?;
            let node = node.map(|node| section::split_levels(node, &file)).transpose()?;
            settings.apply_file(&YamlField::root(&file, node.as_ref()), owner)?;
        }
        Ok(settings)
    }

    /// Puts back what hosts of gjc must not find changed by a person's settings.
    pub fn reset_for_hosts(&mut self) {
        self.todo_reminders = Self::default().todo_reminders;
    }

    /// Returns the model that was chosen last, as `provider/id`.
    pub fn default_model(&self) -> Option<&str> {
        self.model_roles.get("default").map(String::as_str)
    }

    fn apply_file(&mut self, root: &YamlField<'_>, owner: FileOwner) -> Result<(), LoadError> {
        let retry = root.at("retry")?;
        set_given(&mut self.retry.enabled, retry.at("enabled")?.flag()?);
        set_given(&mut self.retry.max_retries, small_number(&retry.at("maxRetries")?)?);
        set_given(&mut self.retry.base_delay, retry.at("baseDelayMs")?.whole_number()?.map(Duration::from_millis));
        set_given(
            &mut self.retry.max_delay,
            retry.at("maxDelayMs")?.whole_number()?.map(Duration::from_millis).map(unless_zero),
        );
        set_given(&mut self.retry.silent, small_number(&retry.at("provider")?.at("maxRetries")?)?);
        let silence = root.at("providers")?.at("streamIdleTimeoutSeconds")?;
        // The original writes -1 for "not set".
        if !silence.is_negative() {
            set_given(&mut self.silence, silence.whole_number()?.map(Duration::from_secs).map(unless_zero));
        }
        self.compaction.apply_section(&root.at("compaction")?)?;
        set_given(&mut self.steering_mode, root.at("steeringMode")?.text()?.map(str::to_owned));
        set_given(&mut self.follow_up_mode, root.at("followUpMode")?.text()?.map(str::to_owned));
        set_given(&mut self.interrupt_mode, root.at("interruptMode")?.text()?.map(str::to_owned));
        set_given(&mut self.thinking_level, root.at("defaultThinkingLevel")?.text()?.and_then(ThinkingLevel::parse));
        self.take_models(root)?;
        match root.at("edit")?.at("mode")?.text()? {
            None => {}
            Some("hashline") => self.edit_mode = EditToolMode::Hashline,
            Some("patch") => self.edit_mode = EditToolMode::Patch,
            Some(_) => self.edit_mode = EditToolMode::Replace,
        }
        self.todo_reminders.apply_section(&root.at("todo")?.at("reminders")?)?;
        if root.at("mcp")?.at("enableProjectConfig")?.flag()? == Some(false) {
            self.project_servers = ProjectServers::Ignored;
        }
        let notices = match owner {
            FileOwner::User => {
                let notices = section::check_section(root)?;
                self.ours.apply_section(root)?;
                notices
            }
            FileOwner::Project | FileOwner::Host => section::notices_elsewhere(root, owner),
        };
        self.restrictions.notices.extend(notices);
        Ok(())
    }

    fn take_models(&mut self, root: &YamlField<'_>) -> Result<(), WrongType> {
        if let Some(model) = root.at("defaultModel")?.text()? {
            self.model_roles.insert("default".to_owned(), model.to_owned());
        }
        // A host changes the one with levels: it counts last.
        let joined = root.members()?.into_iter();
        let joined = joined.filter_map(|(key, model)| Some((key.strip_prefix("modelRoles.")?, model)));
        for (role, model) in joined.chain(root.at("modelRoles")?.members()?) {
            if let Some(model) = model.text()? {
                self.model_roles.insert(role.to_owned(), model.to_owned());
            }
        }
        if let Some(patterns) = root.at("enabledModels")?.items()? {
            let patterns: Result<Vec<_>, _> = patterns.iter().map(YamlField::text).collect();
            let patterns: Vec<String> = patterns?.into_iter().flatten().map(str::to_owned).collect();
            if patterns.iter().all(|pattern| pattern.trim().is_empty()) {
                return Err(root.at("enabledModels")?.type_error("a list with at least one pattern of models"));
            }
            let before = std::mem::replace(&mut self.enabled_models, patterns);
            self.restrictions.scopes.extend(Some(before).filter(|before| !before.is_empty()));
        }
        Ok(())
    }
}

impl CompactionSettings {
    fn apply_section(&mut self, compaction: &YamlField<'_>) -> Result<(), WrongType> {
        set_given(&mut self.enabled, compaction.at("enabled")?.flag()?);
        set_given(&mut self.reserve_tokens, compaction.at("reserveTokens")?.whole_number()?);
        set_given(&mut self.keep_recent_tokens, compaction.at("keepRecentTokens")?.whole_number()?);
        // The original writes -1 for "not set".
        let set = |key: &str| -> Result<Option<f64>, WrongType> {
            let place = compaction.at(key)?;
            if place.is_negative() { Ok(None) } else { place.non_negative() }
        };
        if set("thresholdTokens")?.is_some() {
            self.threshold_tokens = compaction.at("thresholdTokens")?.whole_number()?.filter(|tokens| *tokens > 0);
        }
        if let Some(percent) = set("thresholdPercent")? {
            self.threshold_percent = Some(percent).filter(|percent| (1.0..=99.0).contains(percent));
        }
        Ok(())
    }
}

impl TodoReminders {
    fn apply_section(&mut self, reminders: &YamlField<'_>) -> Result<(), WrongType> {
        if let Ok(enabled) = reminders.flag() {
            set_given(&mut self.enabled, enabled);
            return Ok(());
        }
        set_given(&mut self.enabled, reminders.at("enabled")?.flag()?);
        set_given(&mut self.max, small_number(&reminders.at("max")?)?);
        Ok(())
    }
}

impl CountersignSettings {
    fn apply_section(&mut self, root: &YamlField<'_>) -> Result<(), WrongType> {
        let ours = root.at("countersign")?;
        for place in [root, &ours] {
            set_given(&mut self.approval_timeout, read_seconds(&place.at("approval_timeout")?)?);
            set_given(&mut self.clarify_timeout, read_seconds(&place.at("clarify_timeout")?)?);
        }
        let ask_after = ours.at("retry_ask_after")?.whole_number()?;
        set_given(&mut self.retry_ask_after, ask_after.map(Duration::from_secs).map(unless_zero));
        set_given(&mut self.host_timeout, read_seconds(&ours.at("host_timeout")?)?);
        set_given(&mut self.bash_timeout, read_seconds(&ours.at("bash_timeout")?)?);
        self.gates.apply_section(&ours.at("gates")?)?;
        super::sandbox::read_sandbox(&mut self.sandbox, &ours.at("sandbox")?)?;
        let attach = ours.at("attach")?;
        match attach.text()? {
            None => {}
            Some("never") => self.attach = AttachMode::Never,
            Some("auto") => self.attach = AttachMode::Auto,
            Some("always") => self.attach = AttachMode::Always,
            Some(_) => return Err(attach.type_error("auto, always or never")),
        }
        set_given(&mut self.data, ours.at("data")?.text()?.map(|data| Some(PathBuf::from(data))));
        set_given(&mut self.mcp, ours.at("mcp")?.flag()?.map(Some));
        Ok(())
    }
}

fn set_given<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

/// Returns a limit, of which zero means that there is none.
const fn unless_zero(limit: Duration) -> Duration {
    if limit.is_zero() { Duration::MAX } else { limit }
}

fn small_number(place: &YamlField<'_>) -> Result<Option<u32>, WrongType> {
    let Some(number) = place.whole_number()? else { return Ok(None) };
    u32::try_from(number).map(Some).map_err(|_| place.type_error("a smaller number"))
}

fn read_seconds(place: &YamlField<'_>) -> Result<Option<Duration>, WrongType> {
    match place.non_negative()? {
        Some(0.0) => Err(place.type_error("a number of seconds above zero")),
        Some(seconds) => {
            Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| place.type_error("a smaller number of seconds"))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use countersign_core::session::{AskTimeouts, NoAnswerRule};
    use countersign_runtime::{models::entry::ThinkingLevel, tools::sandbox};

    use super::{AgentDir, AgentSettings, EditToolMode};
    use crate::{AgentProduct, ProcessEnvironment, ProjectServers};

    const OF_USER: &str = "it is read from the user's own config.yml only";

    fn load(user: &str, project: &str) -> Result<AgentSettings, String> {
        let home = tempfile::tempdir().unwrap();
        let cwd = home.path().join("work");
        let environment: ProcessEnvironment = [("HOME", home.path().to_str().unwrap())].into_iter().collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, &cwd, |_| false).unwrap();
        fs::create_dir_all(folder.root()).unwrap();
        fs::create_dir_all(cwd.join(".omp")).unwrap();
        fs::write(folder.config_path(), user).unwrap();
        fs::write(folder.project_config(&cwd), project).unwrap();
        AgentSettings::load(&folder, &cwd)
            .map_err(|error| error.to_string().replace(home.path().to_str().unwrap(), "~"))
    }

    #[test]
    fn without_files_the_settings_are_the_originals() {
        assert_eq!(load("", "# nothing\n"), Ok(AgentSettings::default()));
    }

    #[test]
    fn a_file_of_settings_with_another_extension_is_refused() {
        for is_of_project in [false, true] {
            let home = tempfile::tempdir().unwrap();
            let environment: ProcessEnvironment = [("HOME", home.path().to_str().unwrap())].into_iter().collect();
            let folder = AgentDir::resolve(AgentProduct::Omp, &environment, home.path(), |_| false).unwrap();
            let cwd = home.path().join("work");
            let read = if is_of_project { folder.project_config(&cwd) } else { folder.config_path() };
            let other = read.with_extension("yaml");
            fs::create_dir_all(other.parent().unwrap()).unwrap();
            fs::write(&other, "tools: { approvalMode: write }").unwrap();
            let want =
                format!("{}: is not read: settings are in config.yml; rename or remove this file", other.display());
            assert_eq!(AgentSettings::load(&folder, &cwd).map_err(|error| error.to_string()), Err(want));
        }
    }

    #[test]
    fn each_key_sets_its_setting() {
        let user = "
theme: { dark: anything }          # another program's
retry: { enabled: false, maxRetries: 5, baseDelayMs: 150, maxDelayMs: 60000, provider: { maxRetries: 2 } }
providers: { streamIdleTimeoutSeconds: 90 }
compaction:
  enabled: false
  reserveTokens: 1
  keepRecentTokens: 2
  thresholdTokens: 3
  thresholdPercent: 80
steeringMode: all
followUpMode: anything
interruptMode: wait
defaultThinkingLevel: low
modelRoles: { default: local/small-1, smol: local/tiny }
enabledModels: [local/*, claude]
edit: { mode: hashline }
todo: { reminders: { enabled: false, max: 9 } }
images: { autoResize: false, blockImages: true }
approval_timeout: 60
countersign:
  { approval_timeout: 30, clarify_timeout: 40, retry_ask_after: 45, host_timeout: 50, bash_timeout: 0.5, gates: {
    question: { timeout: 5, remind: 2, default: recommended }, approval: { default: reject }, execution: { default: none } },
    sandbox: { write: [~/.cache, /srv/x], network: off, on_missing: warn }, mcp: true }
";
        let mut want = AgentSettings::default();
        want.retry.enabled = false;
        want.retry.max_retries = 5;
        want.retry.base_delay = Duration::from_millis(150);
        want.retry.max_delay = Duration::from_secs(60);
        want.retry.silent = 2;
        want.silence = Duration::from_secs(90);
        want.compaction.enabled = false;
        want.compaction.reserve_tokens = 1;
        want.compaction.keep_recent_tokens = 2;
        want.compaction.threshold_tokens = Some(3);
        want.compaction.threshold_percent = Some(80.0);
        want.steering_mode = "all".to_owned();
        want.follow_up_mode = "anything".to_owned();
        want.interrupt_mode = "wait".to_owned();
        want.thinking_level = ThinkingLevel::Low;
        want.model_roles = [("default", "local/small-1"), ("smol", "local/tiny")]
            .map(|(role, model)| (role.to_owned(), model.to_owned()))
            .into();
        want.enabled_models = vec!["local/*".to_owned(), "claude".to_owned()];
        want.edit_mode = EditToolMode::Hashline;
        want.todo_reminders = super::TodoReminders { enabled: false, max: 9 };
        want.restrictions.blocks_images = true;
        want.ours.approval_timeout = Duration::from_secs(30);
        want.ours.clarify_timeout = Duration::from_secs(40);
        want.ours.retry_ask_after = Duration::from_secs(45);
        want.ours.host_timeout = Duration::from_secs(50);
        want.ours.bash_timeout = Duration::from_millis(500);
        want.ours.mcp = Some(true);
        let (within, remind) = (Some(Duration::from_secs(5)), Some(Duration::from_secs(2)));
        want.ours.gates.question = AskTimeouts { within, remind, otherwise: NoAnswerRule::Default };
        want.ours.gates.approval.otherwise = NoAnswerRule::Default;
        want.ours.sandbox = sandbox::SandboxSettings {
            mode: sandbox::SandboxMode::Workspace,
            write: vec!["~/.cache".into(), "/srv/x".into()],
            network: sandbox::NetworkAccess::Off,
            on_missing: sandbox::OnMissingKernel::Warn,
            ..sandbox::SandboxSettings::default()
        };
        assert_eq!(load(user, ""), Ok(want));
    }

    #[test]
    fn servers_of_a_project_are_ignored_if_any_file_says_so() {
        for (user, project, want) in [
            ("", "", ProjectServers::Read),
            ("mcp: { enableProjectConfig: true }", "", ProjectServers::Read),
            ("mcp: { enableProjectConfig: false }", "mcp: { enableProjectConfig: true }", ProjectServers::Ignored),
            ("mcp.enableProjectConfig: false", "", ProjectServers::Ignored),
            ("", "mcp: { enableProjectConfig: false }", ProjectServers::Ignored),
        ] {
            assert_eq!(load(user, project).unwrap().project_servers, want, "{user} {project}");
        }
        let wrong = "~/.omp/agent/config.yml:1: mcp.enableProjectConfig: expected true or false, found other text";
        assert_eq!(load("mcp: { enableProjectConfig: off }", ""), Err(wrong.to_owned()));
    }

    #[test]
    fn a_project_overrides_single_keys_but_not_our_own() {
        let user = "retry: { maxRetries: 5, baseDelayMs: 7 }\ndefaultModel: a/b\ntodo: { reminders: false }\n";
        let project = "retry: { maxRetries: 1 }\napproval_timeout: 1\ncountersign: { clarify_timeout: 1, sandbox: { mode: guard } }\n\
                       defaultThinkingLevel: max\ncompaction: { thresholdTokens: -1, thresholdPercent: -1 }\n";
        let mut want = AgentSettings::default();
        want.retry.max_retries = 1;
        want.retry.base_delay = Duration::from_millis(7);
        want.model_roles.insert("default".to_owned(), "a/b".to_owned());
        want.todo_reminders.enabled = false;
        want.thinking_level = ThinkingLevel::Xhigh;
        let mut got = load(user, project).unwrap();
        let notices = std::mem::take(&mut got.restrictions.notices);
        assert_eq!(got, want);
        for (notice, key) in notices.iter().zip(["config.yml:2: approval_timeout", "config.yml:3: countersign"]) {
            assert!(notice.ends_with(&format!("{key} was ignored: {OF_USER}, not from a project's file")), "{notice}");
        }
        assert_eq!(notices.len(), 2);
    }

    #[test]
    fn a_setting_counts_however_its_levels_are_joined() {
        for (dotted, levels) in [
            ("countersign.sandbox.mode: workspace", "countersign: { sandbox: { mode: workspace } }"),
            ("countersign.sandbox: { mode: workspace }", "countersign: { sandbox: {} }"),
            ("countersign: { sandbox.network: off }", "countersign: { sandbox: { network: off } }"),
            ("countersign.bash_timeout: 1", "countersign: { bash_timeout: 1 }"),
            ("countersign.gates.approval.timeout: 1", "countersign: { gates: { approval: { timeout: 1 } } }"),
            (
                "retry.enabled: false\ncompaction.enabled: false",
                "retry: { enabled: false }\ncompaction: { enabled: false }",
            ),
            ("todo.reminders.max: 1\nedit.mode: patch", "todo: { reminders: { max: 1 } }\nedit: { mode: patch }"),
            ("modelRoles.default: a/b", "modelRoles: { default: a/b }"),
            ("modelRoles.default: c/d\nmodelRoles: { default: a/b }", "modelRoles: { default: a/b }"),
        ] {
            let got = load(dotted, "");
            assert_eq!(got, load(levels, ""), "{dotted}");
            assert!(got.is_ok_and(|got| got != AgentSettings::default()), "{dotted}");
        }
        let problem = load("countersign.sandbox.mode: enforce", "").unwrap_err();
        let want = "countersign.sandbox.mode: expected off, guard or workspace, found other text";
        assert_eq!(problem, format!("~/.omp/agent/config.yml:1: {want}"));
    }

    #[test]
    fn no_file_widens_the_models_of_another() {
        let both = load("enabledModels: [a, b]", "enabledModels: [b]").unwrap();
        assert_eq!((both.enabled_models, both.restrictions.scopes.len()), (vec!["b".to_owned()], 1));
        for list in ["[]", "['']"] {
            let want = "expected a list with at least one pattern of models, found a list";
            let problem = load(&format!("enabledModels: {list}"), "").unwrap_err();
            assert_eq!(problem, format!("~/.omp/agent/config.yml:1: enabledModels: {want}"));
        }
    }

    #[test]
    fn a_limit_may_be_taken_away_and_is_else_as_usual() {
        let of = |user| load(user, "").map(|settings| (settings.silence, settings.retry.max_delay));
        let usual = (Duration::from_secs(120), Duration::from_secs(1800));
        assert_eq!(of("providers: { streamIdleTimeoutSeconds: -1 }\n"), Ok(usual));
        let none = "providers: { streamIdleTimeoutSeconds: 0 }\nretry: { maxDelayMs: 0 }\n";
        assert_eq!(of(none), Ok((Duration::MAX, Duration::MAX)));
        let never = load("countersign: { retry_ask_after: 0 }\n", "countersign: { retry_ask_after: 1 }\n").unwrap();
        assert_eq!(never.ours.retry_ask_after, Duration::MAX);
        for (user, want) in [
            (
                "providers: { streamIdleTimeoutSeconds: long }",
                "providers.streamIdleTimeoutSeconds: expected a number, found other text",
            ),
            (
                "providers: { streamIdleTimeoutSeconds: 0.5 }",
                "providers.streamIdleTimeoutSeconds: expected a whole number, found a number",
            ),
            ("retry: { maxDelayMs: -1 }", "retry.maxDelayMs: expected a number that is not negative, found a number"),
            (
                "countersign: { retry_ask_after: soon }",
                "countersign.retry_ask_after: expected a number, found other text",
            ),
            ("retry: { provider: 3 }", "retry.provider: expected a mapping, found a number"),
            (
                "retry: { provider: { maxRetries: true } }",
                "retry.provider.maxRetries: expected a number, found true or false",
            ),
        ] {
            assert_eq!(load(user, ""), Err(format!("~/.omp/agent/config.yml:1: {want}")));
        }
    }

    #[test]
    fn a_wrong_type_names_file_line_and_key() {
        for (user, project, want) in [
            (
                "a: 1\nretry:\n  enabled: sometimes\n",
                "",
                "~/.omp/agent/config.yml:3: retry.enabled: expected true or false, found other text",
            ),
            ("", "retry: 3\n", "~/work/.omp/config.yml:1: retry: expected a mapping, found a number"),
            (
                "countersign:\n  sandbox: { mode: most }\n",
                "",
                "~/.omp/agent/config.yml:2: countersign.sandbox.mode: expected off, guard or workspace, found other text",
            ),
            (
                "countersign: { sandbox: { network: { hosts: [a/b] } } }\n",
                "",
                "~/.omp/agent/config.yml:1: countersign.sandbox.network.hosts.0: expected a host such as crates.io, *.debian.org or api.example.com:8443, found other text",
            ),
            (
                "countersign: { sandbox: { write: [here] } }\n",
                "",
                "~/.omp/agent/config.yml:1: countersign.sandbox.write.0: expected a path that begins with / or ~/, found other text",
            ),
            (
                "",
                "steeringMode: [all]\n",
                "~/work/.omp/config.yml:1: steeringMode: expected text (quote it if it looks like something else), found a list",
            ),
            (
                "approval_timeout: 0\n",
                "",
                "~/.omp/agent/config.yml:1: approval_timeout: expected a number of seconds above zero, found a number",
            ),
            (
                "todo: { reminders: 3 }\n",
                "",
                "~/.omp/agent/config.yml:1: todo.reminders: expected a mapping, found a number",
            ),
        ] {
            assert_eq!(load(user, project), Err(want.to_owned()));
        }
    }
}
