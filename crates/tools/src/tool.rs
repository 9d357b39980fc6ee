//! Interface of a tool: a spec, arguments and a context.
//!
//! It must not know any tool by name.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use countersign_core::{
    call::Pins,
    id::PeerId,
    policy::Class,
    tool::{ShellInput, ToolSpec},
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    environment::CommandEnvironment,
    intercept::CommandInterceptor,
    live_questions::CallQuestions,
    outcome::{CallFailure, CallOutput},
    roots::AllowedRoots,
    secrets::GatewaySecrets,
    shell::SessionShell,
    todo::TodoList,
};

/// Default time limit of a command, if the settings have none either.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Executor of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRoute {
    /// This process, by [`AgentTool::run`].
    Here,
    /// A person: the engine asks the question in the arguments.
    Person,
    /// A peer at the other end of a connection. The call is sent at most once, independent of the spec's repeat mode.
    Peer(PeerRoute),
}

/// A call that a peer executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRoute {
    /// Id of the peer.
    pub peer: PeerId,
    /// Class of the call for policy and contracts.
    pub class: Class,
    /// Input of the call that a shell reads.
    pub shell: ShellInput,
}

/// Something that a run can call.
///
/// # Example
///
/// ```
/// # use std::path::Path;
/// use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
/// use countersign_tools::{AgentTool, CallFailure, CallOutput, ToolContext};
/// # use countersign_tools::{AllowedRoots, CommandEnvironment, SessionShell, exec::ExecLauncher};
/// use futures_util::future::BoxFuture;
/// use serde_json::{Map, Value, json};
///
/// struct CountWords(ToolSpec);
///
/// impl AgentTool for CountWords {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     fn run<'a>(
///         &'a self,
///         arguments: Map<String, Value>,
///         _cx: &'a ToolContext,
///     ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
///         let words = arguments["text"].as_str().unwrap_or_default().split_whitespace().count();
///         Box::pin(async move { Ok(CallOutput::from_text(words.to_string())) })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), CallFailure> {
/// # let shell = SessionShell::new(ExecLauncher::new(Path::new("/bin/false")));
/// # let (roots, environment) = (AllowedRoots::whole_filesystem([]), CommandEnvironment::default());
/// # let cx = ToolContext::new("/".into(), roots, environment, shell);
/// let tool = CountWords(ToolSpec {
///     name: "count_words".to_owned(),
///     description: "Counts the words of a text.".to_owned(),
///     schema: json!({ "type": "object", "required": ["text"], "properties": { "text": { "type": "string" } } }),
///     concurrency: CallConcurrency::Shared,
///     repeat: RepeatMode::Idempotent,
///     effect: ToolEffect::Reads,
///     signature: &["text"],
/// });
/// let arguments = tool.check_arguments(&json!({ "text": "one two three" }))?;
/// assert_eq!(tool.spec().signature_of(&arguments), "count_words(one two three)");
/// assert_eq!(tool.run(arguments, &cx).await?, CallOutput::from_text("3"));
/// assert!(matches!(tool.check_arguments(&json!({})), Err(CallFailure::Invalid(_))));
/// # Ok(())
/// # }
/// ```
pub trait AgentTool: Send + Sync {
    /// Returns the tool's name, schema and description. The schema is without the intent; see [`crate::with_intent`].
    fn spec(&self) -> &ToolSpec;

    /// Checks the arguments of a call and returns them ready for [`AgentTool::route_call`] and [`AgentTool::run`].
    ///
    /// # Errors
    /// [`CallFailure::Invalid`] that names the problems.
    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        crate::validate_arguments(self.spec(), arguments)
    }

    /// Returns the executor of a call with these arguments, and converts them to the one form in which they are judged and used.
    ///
    /// # Errors
    /// Reason that the call cannot be executed.
    fn route_call(&self, _arguments: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        Ok(CallRoute::Here)
    }

    /// Pins the files that a call with these arguments would run from disk, before it is judged. None for a tool that runs
    /// nothing.
    ///
    /// # Errors
    /// Reason that it cannot be done even with approval, so that no question is asked.
    fn pin_files<'a>(
        &'a self,
        _arguments: &'a Map<String, Value>,
        _cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Option<Pins>, CallFailure>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Runs the call, with arguments that [`AgentTool::check_arguments`] accepted and that are [routed](AgentTool::route_call) here.
    ///
    /// *Cancellation*: ends with [`CallFailure::Cancelled`] soon after `cx.cancel`. Dropping the future stops a command as well; a file is
    /// either as it was or as it was to be.
    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>>;
}

/// The surroundings of one call.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The folder that relative paths start from, absolute.
    pub cwd: PathBuf,
    /// Paths that may be touched.
    pub roots: AllowedRoots,
    /// The variables that commands start with.
    pub environment: CommandEnvironment,
    /// The session's shell.
    pub shells: SessionShell,
    /// The session's list of tasks.
    pub todos: TodoList,
    /// The folder for outputs that are too long to show, from [`crate::artifacts::session_folder`]; without it they are cut only.
    pub artifacts: Option<PathBuf>,
    /// Secrets that may be released by name, and are removed from results.
    pub secrets: GatewaySecrets,
    /// Default time limit of a command.
    pub bash_timeout: Duration,
    /// Longest time limit of an agent's command.
    pub bash_longest: Duration,
    /// Blocks the agent's commands that have a tool of their own.
    pub interceptor: CommandInterceptor,
    /// Stops the call.
    pub cancel: CancellationToken,
    /// Stops the commands of a run as well, for the creator of the context.
    pub halt: CancellationToken,
    /// Sink of partial results.
    pub updates: UpdateSink,
    /// The form of `edit`, which decides how `read` marks lines.
    pub edit_mode: EditFormat,
    /// True if `read` numbers lines when the form of `edit` needs no marks.
    pub line_numbers: bool,
    /// Folder in which the session's shell must be when a command of a run begins; absent means any.
    pub pinned: Option<PathBuf>,
    /// Files that a person approved for the call: if anything differs from them by now, it is not run.
    pub pins: Option<Box<Pins>>,
    /// Id of the call, for the log; empty for a person's command.
    pub call: String,
    /// Questions of the call to people while it works.
    pub asks: CallQuestions,
}

impl ToolContext {
    /// Creates a context with plain lines, no listener, no tasks, no folder for long outputs, and no way to stop the call.
    pub fn new(cwd: PathBuf, roots: AllowedRoots, environment: CommandEnvironment, shells: SessionShell) -> Self {
        Self {
            cwd,
            roots,
            environment,
            shells,
            todos: TodoList::default(),
            artifacts: None,
            secrets: GatewaySecrets::default(),
            bash_timeout: COMMAND_TIMEOUT,
            bash_longest: Duration::MAX,
            interceptor: CommandInterceptor::default(),
            cancel: CancellationToken::new(),
            halt: CancellationToken::new(),
            updates: UpdateSink::default(),
            edit_mode: EditFormat::default(),
            line_numbers: false,
            pinned: None,
            pins: None,
            call: String::new(),
            asks: CallQuestions::default(),
        }
    }
}

impl ToolContext {
    /// Waits until the call is to stop.
    pub async fn wait_stopped(&self) {
        tokio::select! {
            () = self.cancel.cancelled() => {}
            () = self.halt.cancelled() => {}
        }
    }
}

/// The form of `edit` (`edit.mode` in the settings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EditFormat {
    /// Exact text is replaced.
    #[default]
    Replace,
    /// Lines are named by number and hash, as `read` shows them.
    Hashline,
    /// A diff is applied.
    Patch,
}

/// Sink of the partial results of a call. Each one replaces the one before.
#[derive(Clone, Default)]
pub struct UpdateSink(Option<Arc<dyn Fn(CallOutput) + Send + Sync>>);

impl UpdateSink {
    /// Hands every partial result to `listener`, which must not block.
    pub fn new(listener: impl Fn(CallOutput) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Returns true if there is a listener; without one no partial result needs to be made.
    pub const fn has_listener(&self) -> bool {
        self.0.is_some()
    }

    /// Makes and sends a partial result if there is a listener.
    pub fn send_update(&self, output: impl FnOnce() -> CallOutput) {
        if let Some(listener) = &self.0 {
            listener(output());
        }
    }
}

impl fmt::Debug for UpdateSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpdateSink").field(&self.has_listener()).finish()
    }
}

/// A folder to work in, and calls in it.
#[cfg(test)]
pub(crate) mod testing {
    use std::path::PathBuf;

    use serde_json::Value;

    use super::{AgentTool, CallFailure, CallOutput, ToolContext};
    use crate::{AllowedRoots, CommandEnvironment, SessionShell, exec::ExecLauncher, validate_arguments};

    pub(crate) struct ToolFixture {
        folder: tempfile::TempDir,
        pub(crate) cx: ToolContext,
    }

    impl ToolFixture {
        /// Creates an empty folder to which everything is confined, less `own`.
        pub(crate) fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cwd = std::fs::canonicalize(folder.path()).unwrap();
            let roots = AllowedRoots::new(&cwd, [cwd.join("own")]).unwrap();
            let launcher = ExecLauncher {
                program: std::env::current_exe().unwrap(),
                leading_args: crate::exec::tests::AS_CHILD.map(Into::into).to_vec(),
            };
            let cx = ToolContext::new(cwd, roots, CommandEnvironment::clean_with([]), SessionShell::new(launcher));
            Self { folder, cx }
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
            std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            std::fs::write(self.path(name), content).unwrap();
        }

        pub(crate) fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.path(name)).unwrap()
        }

        pub(crate) async fn run(&self, tool: &impl AgentTool, arguments: Value) -> Result<CallOutput, CallFailure> {
            tool.run(validate_arguments(tool.spec(), &arguments)?, &self.cx).await
        }
    }

    pub(crate) fn text(result: &Result<CallOutput, CallFailure>) -> &str {
        result.as_ref().unwrap().content[0].as_text().unwrap()
    }

    pub(crate) fn failure(result: &Result<CallOutput, CallFailure>) -> String {
        result.as_ref().unwrap_err().to_string()
    }
}
