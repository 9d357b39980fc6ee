//! The tools of a node: those that a machine offers to a remote gateway, under the names and with the results that gateways of
//! the gsv protocol know. Source: docs/protocol/gsv.md, docs/node.md.
//!
//! It must not know the wire or the caller: it takes a name and arguments, and returns JSON or a text for the model. The gateway
//! decides what an agent may do; here are only the calls that this machine always refuses.

mod bash;
mod capture;
mod editing;
mod execution;
mod executions;
mod files;
mod guard;
mod offer;
mod process;
mod programs;
mod search;

#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use countersign_core::policy::CompiledRules;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use execution::{ExecutionChange, ExecutionEvent};
pub use executions::{ExecutionListener, NodeExecutions};
pub use guard::{NodeGuard, NodeRulesError, compile_node_rules};
pub use offer::{NodeCapability, NodeToolKind, NodeToolOffer, OFFERED};
pub use programs::{has_program, login_path};

use crate::{
    environment::CommandEnvironment, exec::ExecLauncher, outcome::CallFailure, roots::AllowedRoots,
    shell::SessionShell, tool::ToolContext,
};

/// Most calls that look into files at once. Others wait.
const AT_THE_DISK: usize = 16;

/// Options of a node's tools.
#[derive(Debug)]
pub struct NodeToolOptions {
    /// The folder that paths are confined to, without links.
    pub workspace: PathBuf,
    /// Files and folders of the node itself, which no tool may touch, whether they exist or not.
    pub own: Vec<PathBuf>,
    /// Environment of commands.
    pub environment: CommandEnvironment,
    /// Launcher of the exec child.
    pub launcher: ExecLauncher,
    /// Deny rules of this machine, from [`compile_node_rules`].
    pub rules: CompiledRules,
}

/// The tools, ready to be called. One serves all calls of a node.
pub struct NodeToolRunner {
    cx: ToolContext,
    guard: NodeGuard,
    executions: NodeExecutions,
    disk: Arc<Semaphore>,
}

impl NodeToolRunner {
    /// Creates the tools. `tell` receives the events of commands in the background before every other listener; it must not
    /// block.
    ///
    /// # Errors
    /// Errors of the file system if the workspace does not exist.
    pub fn new(site: NodeToolOptions, tell: ExecutionListener) -> std::io::Result<Self> {
        let NodeToolOptions { workspace, own, environment, launcher, rules } = site;
        let roots = AllowedRoots::new(&workspace, own.clone())?;
        let guard = NodeGuard::new(rules, &own, &environment);
        let executions = NodeExecutions::new(launcher.clone(), environment.clone(), tell);
        let cx = ToolContext::new(roots.root().to_owned(), roots, environment, SessionShell::new(launcher));
        Ok(Self { cx, guard, executions, disk: Arc::new(Semaphore::new(AT_THE_DISK)) })
    }

    /// Runs one call to its end, and returns the result for the gateway. `call` is its id at the gateway.
    ///
    /// *Cancellation*: `cancel` ends it soon, with a text that reports it. Dropping the future ends a command too, if it is not
    /// in the background.
    ///
    /// # Errors
    /// The text that the gateway gets instead.
    pub async fn call(
        &self,
        call: &str,
        tool: &str,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> Result<Value, String> {
        let offer = NodeToolOffer::by_name(tool).ok_or_else(|| format!("Tool not found: {tool}"))?;
        let arguments = offer.check_arguments(arguments)?;
        let cx = ToolContext { cancel, ..self.cx.clone() };
        self.guard.refusal(offer.sort, &arguments, &cx.cwd).map_or(Ok(()), Err)?;
        let done = match offer.sort {
            NodeToolKind::Bash => return bash::run(arguments, call, &self.executions, &cx).await,
            NodeToolKind::Process => return process::run(arguments, &self.executions).await,
            NodeToolKind::Read => self.with_disk_permit(files::read_file(arguments, &cx)).await,
            NodeToolKind::Write => self.with_disk_permit(files::write_file(arguments, &cx)).await,
            NodeToolKind::Edit => self.with_disk_permit(editing::edit_file(arguments, &cx)).await,
            NodeToolKind::Glob => self.with_disk_permit(search::glob_paths(arguments, &cx)).await,
            NodeToolKind::Grep => self.with_disk_permit(search::grep_files(arguments, &cx)).await,
        };
        done.map_err(|failure| failure.to_string())
    }

    /// Does work that looks into files, when it is its turn.
    async fn with_disk_permit(
        &self,
        work: impl Future<Output = Result<Value, CallFailure>>,
    ) -> Result<Value, CallFailure> {
        // The semaphore is never closed.
        let _turn = self.disk.acquire().await;
        work.await
    }

    /// Ends every command, those in the background too, and waits until all their ends are reported.
    pub async fn end_commands(&self) {
        self.executions.end_all().await;
    }
}
