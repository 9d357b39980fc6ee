//! `countersign opencode`: answers the permissions that an opencode server asks for, from the gateway's rules and approvers.
//!
//! The server waits for ever for an answer, so that whatever fails here lets no call run. Never "always": it stores a wider rule than
//! the call. It must not know rules: the gateway decides.

mod gateway_client;
mod permission;
mod server;

use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_gateway::control::{ProxiedCall, ProxyDecision};
use countersign_view::{LineMode, escape};
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::sync::{Mutex, oneshot};

use gateway_client::GatewayLink;
use permission::{PermissionRequest, ran_call};
use server::{OpencodeServer, Permission, ReplyOutcome};

use crate::data_dir::DataDir;

/// First and longest wait before a new connection.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Options of the answerer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OpencodeArgs {
    /// Address of a running `opencode serve`; without it one is started here, with a password of its own
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Environment variable with the password of that server
    #[arg(long, value_name = "NAME", default_value = "OPENCODE_SERVER_PASSWORD")]
    password_env: String,
    /// Port of the server that is started; 0 is a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "url")]
    port: u16,
}

/// Answers permissions until it is stopped, or the server that it started ends.
pub(crate) fn run(options: OpencodeArgs, place: DataDir) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (server, mut child) = match &options.url {
            Some(url) => (OpencodeServer::at(url, std::env::var(&options.password_env).ok())?, None),
            None => {
                let (server, child) = OpencodeServer::start(options.port).await?;
                (server, Some(child))
            }
        };
        let answerer = Arc::new(PermissionAnswerer {
            server,
            gateway: GatewayLink::new(place),
            open: Mutex::default(),
            allowed: Mutex::default(),
        });
        let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let ended = async {
            match &mut child {
                Some(child) => child.wait().await.map(drop),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = answerer.follow() => outcome.map(|()| ExitCode::SUCCESS),
            _ = ended => bail!("`opencode serve` ended"),
            // The server that was started ends with this process.
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::SUCCESS),
            _ = terminated.recv() => Ok(ExitCode::SUCCESS),
        }
    })
}

/// Writes a line for the user. Nothing can be done if that fails.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", escape(line, LineMode::One));
}

/// Answers the permissions of one server.
struct PermissionAnswerer {
    server: OpencodeServer,
    gateway: GatewayLink,
    /// Permissions that wait for the gateway. Dropping the sender of one ends its wait.
    open: Mutex<HashMap<String, oneshot::Sender<()>>>,
    /// Calls that were allowed and have not ended, with their folders.
    allowed: Mutex<HashMap<(String, String), String>>,
}

impl PermissionAnswerer {
    /// Follows the server, with a new connection after each that ended.
    async fn follow(self: &Arc<Self>) -> anyhow::Result<()> {
        let mut wait = FIRST_WAIT;
        loop {
            match self.follow_connection(&mut wait).await {
                Err(error) if error.is::<server::WrongPassword>() => return Err(error),
                Err(error) => print_line(&format!("no connection to {}: {error:#}", self.server.url())),
                Ok(()) => print_line(&format!("{} closed the connection", self.server.url())),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn follow_connection(self: &Arc<Self>, wait: &mut Duration) -> anyhow::Result<()> {
        if self.server.has_plugin().await? {
            print_line("the plugin of `countersign guard opencode` asks too: people may be asked twice about a call");
        }
        let mut events = Box::pin(self.server.events().await?);
        *wait = FIRST_WAIT;
        print_line(&format!("answers the permissions of {}", self.server.url()));
        // Those that were asked for before the connection are in no event.
        let listed = self.server.permissions().await?;
        let ids: HashSet<&str> = listed.iter().map(|one| one.id.as_str()).collect();
        self.open.lock().await.retain(|id, _| ids.contains(id.as_str()));
        for permission in listed {
            self.answer_later(permission).await;
        }
        while let Some(event) = events.next().await {
            self.take_event(&event?).await;
        }
        Ok(())
    }

    async fn take_event(self: &Arc<Self>, event: &Value) {
        let properties = &event["properties"];
        match event["type"].as_str() {
            Some("permission.asked") => match serde_json::from_value::<Permission>(properties.clone()) {
                Ok(permission) => self.answer_later(permission).await,
                // Without an answer the call does not run.
                Err(error) => print_line(&format!("a permission that is not understood stays open: {error}")),
            },
            Some("permission.replied") => {
                if let Some(id) = properties["requestID"].as_str() {
                    self.open.lock().await.remove(id);
                }
            }
            Some("message.part.updated") => {
                let Some((key, call)) = ran_call(&properties["part"]) else { return };
                if let Some(cwd) = self.allowed.lock().await.remove(&key)
                    && let Err(error) = self.gateway.report_run(ProxiedCall { cwd, ..call }).await
                {
                    print_line(&format!("a call ran, and was not compared with the decision about it: {error:#}"));
                }
            }
            _ => {}
        }
    }

    /// Answers a permission while further events are read.
    async fn answer_later(self: &Arc<Self>, permission: Permission) {
        let (sender, replied) = oneshot::channel();
        if self.open.lock().await.contains_key(&permission.id) {
            return;
        }
        self.open.lock().await.insert(permission.id.clone(), sender);
        let answerer = Arc::clone(self);
        tokio::spawn(async move {
            let id = permission.id.clone();
            tokio::select! {
                decided = answerer.decide(&permission) => {
                    let outcome = match decided {
                        // From here on an answer of somebody else is a refused one of ours.
                        Ok((decision, request)) => answerer.reply(&id, &decision, request).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = outcome {
                        print_line(&format!("{id} stays open: {error:#}"));
                    }
                }
                // The wait at the gateway ends with its connection.
                _ = replied => print_line(&format!("{id} was answered by another client")),
            }
            answerer.open.lock().await.remove(&id);
        });
    }

    async fn decide(&self, permission: &Permission) -> anyhow::Result<(ProxyDecision, PermissionRequest)> {
        let part = self.server.tool_part(permission).await?;
        let directory = self.server.session_directory(&permission.session).await?;
        let request = PermissionRequest::new(permission, part.as_ref(), &directory);
        let decision = self.gateway.decide(request.call.clone(), &permission.id).await?;
        Ok((decision, request))
    }

    async fn reply(&self, id: &str, decision: &ProxyDecision, request: PermissionRequest) -> anyhow::Result<()> {
        let PermissionRequest { call, key, title } = request;
        let (word, reason, done) = match decision {
            ProxyDecision::Allow => ("once", None, "allowed once"),
            ProxyDecision::Deny { reason } => ("reject", Some(reason.as_str()), "rejected"),
        };
        // The call may end before the answer to this one has come.
        let allowed = key.filter(|_| *decision == ProxyDecision::Allow);
        if let Some(key) = &allowed {
            self.allowed.lock().await.insert(key.clone(), call.cwd);
        }
        let outcome = self.server.reply(id, word, reason).await;
        if !matches!(outcome, Ok(ReplyOutcome::Taken))
            && let Some(key) = &allowed
        {
            self.allowed.lock().await.remove(key);
        }
        match outcome.context("the answer did not reach opencode")? {
            ReplyOutcome::Taken => print_line(&format!("{id}: {done}: {title}")),
            ReplyOutcome::AnsweredBefore => print_line(&format!("{id}: another client answered before: {title}")),
        }
        Ok(())
    }
}
