//! Calls that a shell reads, and the place in which their line runs.
//!
//! It must not know who wants a call or what a rule says of it.

mod remote;

use serde_json::{Map, Value};

use crate::{
    path,
    shell::{ShellInput, ShellMachine},
};

/// One call of a tool, as far as its shell line is concerned.
#[derive(Clone, Copy, Debug)]
pub struct ShellCall<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// Part of the arguments that a shell reads.
    pub shell: &'a ShellInput,
    /// Every argument.
    pub arguments: &'a Map<String, Value>,
    /// Folder in which the line runs, absolute.
    pub cwd: &'a str,
    /// Working folder of the session, absolute, where the line runs in another one.
    pub session_folder: Option<&'a str>,
    /// True if another line ran in the same shell before, which may have left variables.
    pub is_later: bool,
}

/// Files and folders of this machine that have a meaning for every line. All absolute.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachinePaths<'a> {
    /// Home folder that `~` and `$HOME` stand for; none makes them unknown.
    pub home: Option<&'a str>,
    /// Folders for temporary files, where deletion is harmless.
    pub temporary: &'a [String],
    /// Files and folders that no line may write, whether they exist or not.
    pub protected: &'a [String],
    /// Those of them that no line may read either.
    pub unreadable: &'a [String],
}

/// Place in which a line runs.
#[derive(Clone, Debug, Default)]
pub struct ShellContext {
    /// The tool that runs it: the texts that rules see begin with its name.
    pub tool: String,
    /// Working folder, absolute.
    pub cwd: String,
    /// Folder in which the line begins, if that is not the working folder.
    pub start: StartFolder,
    /// Home folder; none if it is not known.
    pub home: Option<String>,
    /// Folders in which deletion is harmless.
    pub temporary: Vec<String>,
    /// Files and folders that the line may not write.
    pub protected: Vec<String>,
    /// Files and folders that the line may not read.
    pub unreadable: Vec<String>,
    /// True if another line ran in the same shell before: it may have left variables.
    pub is_later: bool,
    /// Variables that the call sets for the line.
    pub environment: Vec<(String, String)>,
    /// Part of the call, other than its line, that cannot be judged.
    pub beside: Option<String>,
}

/// Folder in which a line begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StartFolder {
    /// In the working folder.
    #[default]
    Working,
    /// In another one.
    Folder(String),
    /// Anywhere.
    Unknown,
}

/// The arguments of a shell call that change nothing about what its line does; `cwd` is where the line runs.
const HARMLESS_ARGUMENTS: [&str; 12] = [
    "timeout",
    "head",
    "tail",
    "pty",
    "async",
    "cwd",
    // Those of other agents, for the same purposes and for people.
    "description",
    "justification",
    "run_in_background",
    "is_background",
    "yield_time_ms",
    "max_output_tokens",
];

impl<'a> ShellCall<'a> {
    /// Returns the argument that is a shell line, with the line. `None` if there is no such argument, or it is no text.
    pub fn shell_line(&self) -> Option<(&'a str, &'a str)> {
        let ShellInput::Line { argument, .. } = self.shell else { return None };
        Some((argument, self.arguments.get(&**argument)?.as_str()?))
    }
}

impl ShellContext {
    /// Returns the place in which the line of `call` runs. The paths of this machine mean nothing on another one.
    pub fn from_call(call: &ShellCall<'_>, paths: &MachinePaths<'_>) -> Self {
        match call.shell {
            ShellInput::Line { machine: ShellMachine::Other, .. }
            | ShellInput::Perhaps { machine: ShellMachine::Other } => remote::remote_context(call),
            ShellInput::Line { .. } | ShellInput::Perhaps { .. } | ShellInput::Nothing => {
                Self::on_this_machine(call, paths)
            }
        }
    }

    fn on_this_machine(call: &ShellCall<'_>, paths: &MachinePaths<'_>) -> Self {
        let resolved = |paths: &[String]| paths.iter().map(|one| path::resolve("/", one)).collect();
        let (mut environment, mut beside) = (Vec::new(), None);
        let line = call.shell_line().map(|(argument, _)| argument);
        for (name, value) in call.arguments {
            match (name.as_str(), value) {
                (name, _) if HARMLESS_ARGUMENTS.contains(&name) || Some(name) == line => {}
                ("env", Value::Null) => {}
                ("env", Value::Object(members)) => environment.extend(members.iter().map(|(name, value)| {
                    (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                })),
                _ => beside = beside.or_else(|| Some(format!("the argument {name}"))),
            }
        }
        let cwd = path::resolve("/", call.cwd);
        let (cwd, start) = match call.session_folder.map(|folder| path::resolve("/", folder)) {
            // The folder to which an earlier call went does not become the working folder.
            Some(folder) if folder != cwd => (folder, StartFolder::Folder(cwd)),
            Some(_) | None => (cwd, StartFolder::Working),
        };
        Self {
            tool: call.tool.to_owned(),
            cwd,
            start,
            home: paths.home.map(|home| path::resolve("/", home)),
            temporary: resolved(paths.temporary),
            protected: resolved(paths.protected),
            unreadable: resolved(paths.unreadable),
            is_later: call.is_later,
            environment,
            beside,
        }
    }
}
