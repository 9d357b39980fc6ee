//! HTTP interface of an opencode server: its events, its open permissions and the answers to them.
//!
//! Source: docs/protocol/hooks.md, opencode servers.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, bail, ensure};
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use super::print_line;

/// User name of the server, unless `OPENCODE_SERVER_USERNAME` names another.
const USER: &str = "opencode";
/// Variable with the password that a server asks for.
const PASSWORD: &str = "OPENCODE_SERVER_PASSWORD";
/// Longest time for an answer; events come without end.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest time for the start of a server.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Longest line of an event, in bytes.
const LONGEST_LINE: usize = 64 << 20;
/// Beginning of the line of a server that is ready.
const READY: &str = "opencode server listening on ";
/// File name of our plugin.
const PLUGIN: &str = "/countersign.mjs";

/// Server of opencode.
pub(super) struct OpencodeServer {
    client: Client,
    url: String,
    password: Option<String>,
}

/// Permission that a call of a session waits for.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Permission {
    pub(super) id: String,
    #[serde(rename = "sessionID")]
    pub(super) session: String,
    pub(super) permission: String,
    #[serde(default)]
    pub(super) patterns: Vec<String>,
    #[serde(default)]
    pub(super) metadata: Map<String, Value>,
    /// The call; absent if the permission is about none.
    #[serde(default)]
    pub(super) tool: Option<PermissionTool>,
}

/// Place of a call in its conversation.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PermissionTool {
    #[serde(rename = "messageID")]
    pub(super) message: String,
    #[serde(rename = "callID")]
    pub(super) call: String,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyOutcome {
    Taken,
    /// Another client answered before, or the session ended.
    AnsweredBefore,
}

/// The server asks for another password.
#[derive(Debug)]
pub(super) struct WrongPassword;

impl std::error::Error for WrongPassword {}

impl std::fmt::Display for WrongPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "opencode asks for another password: name the variable that has it with --password-env")
    }
}

impl OpencodeServer {
    /// Makes it for a server that runs.
    ///
    /// # Errors
    /// The address is none of this machine.
    pub(super) fn at(url: &str, password: Option<String>) -> anyhow::Result<Self> {
        let parsed =
            reqwest::Url::parse(url).with_context(|| format!("--url {url}: expected http://127.0.0.1:PORT"))?;
        // Without a certificate another machine could be anything, and would get the password.
        let is_here = matches!(parsed.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        ensure!(
            parsed.scheme() == "http" && is_here,
            "--url {url}: expected http://127.0.0.1:PORT, a server of this machine"
        );
        // Other providers may be set by now; this one only has to be there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().tls_certs_only([]).build()?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), password })
    }

    /// Starts a server in this folder, with a password of its own, which it prints for other clients.
    ///
    /// # Errors
    /// opencode is not installed, or does not start.
    pub(super) async fn start(port: u16) -> anyhow::Result<(Self, Child)> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).context("no random number")?;
        let password = bytes.map(|byte| format!("{byte:02x}")).concat();
        let mut command = Command::new("opencode");
        command.args(["serve", "--hostname", "127.0.0.1", "--port", &port.to_string()]).env(PASSWORD, &password);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start `opencode serve`")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.strip_prefix(READY) {
                    return Ok(url.trim().to_owned());
                }
            }
            bail!("`opencode serve` ended before it was ready")
        };
        let url = tokio::time::timeout(START_LIMIT, ready).await.context("`opencode serve` did not become ready")??;
        // Its later lines are read, so that it never waits for us.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        print_line(&format!("started opencode: {PASSWORD}={password} opencode attach {url}"));
        Ok((Self::at(&url, Some(password))?, child))
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the folder in which a session works.
    pub(super) async fn session_directory(&self, session: &str) -> anyhow::Result<String> {
        let session = self.get(&format!("/session/{session}")).await?;
        session["directory"].as_str().map(str::to_owned).context("a session without a folder")
    }

    /// Follows the events of the server. An error ends the stream.
    pub(super) async fn events(&self) -> anyhow::Result<impl Stream<Item = anyhow::Result<Value>> + use<>> {
        let response = checked(self.authorized(self.client.get(format!("{}/event", self.url))).send().await?)?;
        let lines = SseLines { body: response.bytes_stream().boxed(), buffer: Vec::new() };
        Ok(stream::unfold(lines, |mut lines| async move { lines.next_event().await.map(|event| (event, lines)) }))
    }

    /// Lists the open permissions.
    pub(super) async fn permissions(&self) -> anyhow::Result<Vec<Permission>> {
        let listed = self.get("/permission").await?;
        serde_json::from_value(listed).context("unknown form of the open permissions")
    }

    /// Reports whether our plugin asks about the calls of this server.
    pub(super) async fn has_plugin(&self) -> anyhow::Result<bool> {
        let config = self.get("/config").await?;
        let plugins = config["plugin"].as_array().into_iter().flatten();
        Ok(plugins.filter_map(Value::as_str).any(|plugin| plugin.ends_with(PLUGIN)))
    }

    /// Returns the call of a permission in its conversation; none if the permission is about no call.
    pub(super) async fn tool_part(&self, permission: &Permission) -> anyhow::Result<Option<Value>> {
        let Some(tool) = &permission.tool else { return Ok(None) };
        let message = self.get(&format!("/session/{}/message/{}", permission.session, tool.message)).await?;
        let mut parts = message["parts"].as_array().into_iter().flatten();
        Ok(parts.find(|part| part["callID"] == tool.call.as_str()).cloned())
    }

    /// Answers a permission.
    pub(super) async fn reply(&self, id: &str, word: &str, message: Option<&str>) -> anyhow::Result<ReplyOutcome> {
        let mut body = json!({ "reply": word });
        if let Some(message) = message {
            body["message"] = message.into();
        }
        let request = self.client.post(format!("{}/permission/{id}/reply", self.url)).timeout(LIMIT).json(&body);
        let response = self.authorized(request).send().await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(ReplyOutcome::AnsweredBefore);
        }
        checked(response).map(|_| ReplyOutcome::Taken)
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.client.get(format!("{}{path}", self.url)).timeout(LIMIT);
        let response = checked(self.authorized(request).send().await?)?;
        response.json().await.with_context(|| format!("{path} is no JSON: is this an opencode server?"))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        let user = std::env::var("OPENCODE_SERVER_USERNAME").ok().filter(|user| !user.is_empty());
        match &self.password {
            Some(password) => request.basic_auth(user.as_deref().unwrap_or(USER), Some(password)),
            None => request,
        }
    }
}

fn checked(response: Response) -> anyhow::Result<Response> {
    match response.status() {
        StatusCode::UNAUTHORIZED => Err(WrongPassword.into()),
        status if !status.is_success() => bail!("opencode answered {status}"),
        _ => Ok(response),
    }
}

/// Lines of a stream of server-sent events.
struct SseLines {
    body: futures_util::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    buffer: Vec<u8>,
}

impl SseLines {
    /// Returns the next event; `None` at the end of the stream. Each event of opencode is one line of data.
    async fn next_event(&mut self) -> Option<anyhow::Result<Value>> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let Some(data) = line.strip_prefix(b"data:") else { continue };
                return Some(serde_json::from_slice(data).context("an event is no JSON"));
            }
            if self.buffer.len() > LONGEST_LINE {
                return Some(Err(anyhow::anyhow!("an event is larger than {LONGEST_LINE} bytes")));
            }
            match self.body.next().await? {
                Ok(bytes) => self.buffer.extend_from_slice(&bytes),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use serde_json::json;

    use super::{OpencodeServer, SseLines};

    #[tokio::test]
    async fn events_are_read_however_their_bytes_come() {
        let text = "data: {\"type\":\"a\"}\n\n: comment\nevent: x\ndata:{\"type\":\"é\"}\r\n\n";
        for size in [1, 2, 7, text.len()] {
            let pieces: Vec<_> = text.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let mut lines = SseLines { body: stream::iter(pieces).boxed(), buffer: Vec::new() };
            assert_eq!(lines.next_event().await.unwrap().unwrap(), json!({"type": "a"}), "{size}");
            assert_eq!(lines.next_event().await.unwrap().unwrap(), json!({"type": "é"}));
            assert!(lines.next_event().await.is_none());
        }
    }

    #[test]
    fn a_server_is_of_this_machine() {
        for (url, is_accepted) in [
            ("http://127.0.0.1:4096", true),
            ("http://localhost:4096/", true),
            ("http://[::1]:4096", true),
            ("https://127.0.0.1:4096", false),
            ("http://opencode.example:4096", false),
            ("127.0.0.1:4096", false),
        ] {
            assert_eq!(OpencodeServer::at(url, None).is_ok(), is_accepted, "{url}");
        }
    }
}
