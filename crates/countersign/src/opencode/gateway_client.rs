//! Connections to the gateway for the calls of opencode. One that is lost is made again: the gate stays open meanwhile.

use std::time::Duration;

use anyhow::{Context as _, bail};
use countersign_gateway::control::{ControlReply, FILE, ProxiedCall, ProxyAnswer, ProxyDecision, Request};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use super::print_line;
use crate::{data_dir::DataDir, no_gateway::no_gateway_text};

/// Wait before a new connection to a gateway that ended.
const WAIT: Duration = Duration::from_secs(2);

/// Gateway of a data directory.
pub(super) struct GatewayLink {
    place: DataDir,
}

impl GatewayLink {
    pub(super) const fn new(place: DataDir) -> Self {
        Self { place }
    }

    /// Waits for the decision about a call, over ends of the gateway too. A wait that is dropped leaves the gate open.
    ///
    /// # Errors
    /// The gateway refuses the call.
    pub(super) async fn decide(&self, call: ProxiedCall, permission: &str) -> anyhow::Result<ProxyDecision> {
        let mut was_reported = false;
        loop {
            match self.ask(&call, permission).await {
                Ok(decision) => return Ok(decision),
                Err(error) if error.is::<GatewayGone>() => {
                    if !was_reported {
                        print_line(&format!("{permission} waits for the gateway: {error:#}"));
                    }
                    was_reported = true;
                    tokio::time::sleep(WAIT).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn ask(&self, call: &ProxiedCall, permission: &str) -> anyhow::Result<ProxyDecision> {
        let mut connection = self.connect(&Request::ProxiedCall(Box::new(call.clone()))).await?;
        loop {
            match serde_json::from_value(read_reply(&mut connection).await?).context("invalid answer of the gateway")? {
                ProxyAnswer::Waiting { gate, title } => print_line(&format!("{permission} waits for {gate}: {title}")),
                ProxyAnswer::Decided(decision) => return Ok(decision),
            }
        }
    }

    /// Reports a call that ran.
    ///
    /// # Errors
    /// The gateway cannot compare it.
    pub(super) async fn report_run(&self, call: ProxiedCall) -> anyhow::Result<()> {
        let mut connection = self.connect(&Request::ProxiedRun(Box::new(call))).await?;
        read_reply(&mut connection).await.map(drop)
    }

    async fn connect(&self, request: &Request) -> anyhow::Result<BufReader<UnixStream>> {
        let gone = |_| GatewayGone(no_gateway_text(&self.place));
        let mut stream = UnixStream::connect(self.place.folder.join(FILE)).await.map_err(gone)?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await.map_err(gone)?;
        Ok(BufReader::new(stream))
    }
}

async fn read_reply(connection: &mut BufReader<UnixStream>) -> anyhow::Result<serde_json::Value> {
    let mut line = String::new();
    let length = connection.read_line(&mut line).await.unwrap_or(0);
    if length == 0 {
        return Err(GatewayGone("the gateway ended".to_owned()).into());
    }
    match serde_json::from_str(&line).context("invalid answer of the gateway")? {
        ControlReply::Ok(value) => Ok(value),
        ControlReply::Error(problem) => bail!("{problem}"),
    }
}

/// No gateway runs, or it ended.
#[derive(Debug)]
struct GatewayGone(String);

impl std::error::Error for GatewayGone {}

impl std::fmt::Display for GatewayGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
