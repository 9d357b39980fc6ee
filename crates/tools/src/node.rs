//! The tools of a node: what a machine lends to a gateway elsewhere, under the names and with the results that gateways of the
//! gsv protocol know. Source: docs/protocol/gsv.md, docs/node.md.
//!
//! It must not know the wire or who asked: it is given a name and arguments, and gives JSON or a text for the model. What an agent may do is
//! decided at the gateway; here is only what this machine never does, whoever allows it.

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

pub use execution::{Became, Occurrence};
pub use executions::{Executions, Teller};
pub use guard::{Guard, Unfit, fit};
pub use offer::{Need, OFFERED, Offer, Sort};
pub use programs::{has, login_path};

use crate::{environment::Environment, exec::Launcher, outcome::Failure, roots::Roots, shell::Shells, tool::Context};

/// How many calls look into files at once. More of them wait.
const AT_THE_DISK: usize = 16;

/// What a node works with.
#[derive(Debug)]
pub struct Site {
    /// The folder that paths are confined to, without links.
    pub workspace: PathBuf,
    /// Files and folders of the node itself, which no tool may touch, whether they exist or not.
    pub own: Vec<PathBuf>,
    /// What commands start with.
    pub environment: Environment,
    /// How to start the exec child.
    pub launcher: Launcher,
    /// What is denied here, from [`fit`].
    pub rules: CompiledRules,
}

/// The tools, ready to be called. One serves all calls of a node.
pub struct Toolbox {
    cx: Context,
    guard: Guard,
    executions: Executions,
    disk: Arc<Semaphore>,
}

impl Toolbox {
    /// Makes the tools ready. `tell` hears what becomes of commands in the background, before anybody else does; it must not block.
    ///
    /// # Errors
    /// What the file system says if the workspace is not there.
    pub fn new(site: Site, tell: Teller) -> std::io::Result<Self> {
        let Site { workspace, own, environment, launcher, rules } = site;
        let roots = Roots::new(&workspace, own.clone())?;
        let guard = Guard::new(rules, &own, &environment);
        let executions = Executions::new(launcher.clone(), environment.clone(), tell);
        let cx = Context::new(roots.root().to_owned(), roots, environment, Shells::new(launcher));
        Ok(Self { cx, guard, executions, disk: Arc::new(Semaphore::new(AT_THE_DISK)) })
    }

    /// Does one call to its end, and gives what the gateway is given. `call` is what the gateway knows it by.
    ///
    /// *Cancellation*: `cancel` ends it soon, with a text that says so. Dropping the future ends a command too, if it is not in the
    /// background.
    ///
    /// # Errors
    /// The text that the gateway is given instead.
    pub async fn call(
        &self,
        call: &str,
        tool: &str,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
    ) -> Result<Value, String> {
        let offer = Offer::named(tool).ok_or_else(|| format!("Tool not found: {tool}"))?;
        let arguments = offer.check(arguments)?;
        let cx = Context { cancel, ..self.cx.clone() };
        self.guard.refusal(offer.sort, &arguments, &cx.cwd).map_or(Ok(()), Err)?;
        let done = match offer.sort {
            Sort::Bash => return bash::run(arguments, call, &self.executions, &cx).await,
            Sort::Process => return process::run(arguments, &self.executions).await,
            Sort::Read => self.at_the_disk(files::read(arguments, &cx)).await,
            Sort::Write => self.at_the_disk(files::write(arguments, &cx)).await,
            Sort::Edit => self.at_the_disk(editing::edit(arguments, &cx)).await,
            Sort::Glob => self.at_the_disk(search::glob(arguments, &cx)).await,
            Sort::Grep => self.at_the_disk(search::grep(arguments, &cx)).await,
        };
        done.map_err(|failure| failure.to_string())
    }

    /// Does work that looks into files, when it is its turn.
    async fn at_the_disk(&self, work: impl Future<Output = Result<Value, Failure>>) -> Result<Value, Failure> {
        // Nobody closes it.
        let _turn = self.disk.acquire().await;
        work.await
    }

    /// Ends every command, those in the background too, and waits until all of it is told.
    pub async fn end(&self) {
        self.executions.end().await;
    }
}
