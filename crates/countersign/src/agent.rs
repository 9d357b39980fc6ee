//! The agent's own client: `request`, `tools` and `pending`, with the exit codes that agents know.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use countersign_node_client::{connect_error, tls_roots::tls_client_config};
use countersign_protocol::agent_gate::close;
use countersign_view::{LineMode, escape, escape_json};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Map, Value, json};
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
    tungstenite::{Error, Message, http::Uri, protocol::WebSocketConfig},
};

use crate::error_text;

/// Maximum time to connect and authenticate.
const CONNECT: Duration = Duration::from_secs(15);
/// A person denied, or something else that ended with an error.
const FAILED: u8 = 1;
/// Exit code: no answer in time.
const TIMED_OUT: u8 = 2;
/// The gateway cannot be reached, or does not know the token.
const UNREACHABLE: u8 = 3;
/// An argument is not `key=value`.
const MALFORMED: u8 = 4;

/// Advice if the agent has a connection already.
const TAKEN: &str = "an agent has one connection at a time, and another request with this token is still pending: wait \
                     for it or stop it, or create a separate token with `countersign agents add NAME --config FILE` and restart \
                     the gateway";

/// Address of the gateway, and the agent's token.
pub(crate) struct ClientOptions {
    pub(crate) url: Option<String>,
    pub(crate) token: Option<String>,
    /// Maximum wait for an answer.
    pub(crate) timeout: Duration,
    /// A file of certificates that are trusted besides the system's.
    pub(crate) ca: Option<PathBuf>,
}

/// Command of the client.
pub(crate) enum ClientCommand {
    Request { tool: String, arguments: Vec<String> },
    Tools,
    Pending,
}

/// Why there is no result.
pub(crate) struct ClientFailure {
    code: u8,
    pub(crate) message: String,
    /// By which rule or whom, as the gateway says it.
    reason: Option<String>,
}

fn client_failure(code: u8, message: impl Into<String>) -> ClientFailure {
    ClientFailure { code, message: message.into(), reason: None }
}

#[allow(clippy::print_stderr, reason = "this output is for the agent")]
pub(crate) fn run(options: ClientOptions, command: ClientCommand) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| client_failure(UNREACHABLE, error.to_string()))
        .and_then(|runtime| runtime.block_on(run_command(options, command)));
    match outcome {
        // The reader of the output closed the pipe: that is no failure.
        Ok(value) => match writeln!(std::io::stdout().lock(), "{}", escape_json(&format!("{value:#}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                eprintln!("Error: {error}");
                ExitCode::from(FAILED)
            }
            Ok(()) | Err(_) => ExitCode::SUCCESS,
        },
        Err(ClientFailure { code, message, reason }) => {
            eprintln!("Error: {}", escape(&message, LineMode::Many));
            if let Some(reason) = reason {
                // A person may have written it, and it stays one line.
                let lines: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
                eprintln!("Reason: {}", escape(&lines.join("; "), LineMode::One));
            }
            ExitCode::from(code)
        }
    }
}

async fn run_command(options: ClientOptions, command: ClientCommand) -> Result<Value, ClientFailure> {
    let (method, params) = match command {
        ClientCommand::Request { tool, arguments } => {
            ("tool_request", json!({ "tool": tool, "args": parse_arguments(&arguments)? }))
        }
        ClientCommand::Tools => ("list_tools", json!({})),
        ClientCommand::Pending => ("get_pending_results", json!({})),
    };
    let is_request = method == "tool_request";
    let url = options.url.ok_or_else(|| client_failure(UNREACHABLE, "no gateway: give --url or set AGENTPASS_URL"))?;
    let token =
        options.token.ok_or_else(|| client_failure(UNREACHABLE, "no token: give --token or set AGENT_TOKEN"))?;
    // A variable that was meant to be filled reads like a wrong token at the gateway, and like a wrong address here.
    if url.is_empty() {
        return Err(client_failure(UNREACHABLE, "the address is empty: AGENTPASS_URL, or --url, must name a gateway"));
    }
    if token.trim().is_empty() {
        return Err(client_failure(
            UNREACHABLE,
            "the token is empty: AGENT_TOKEN, or --token, must hold the agent's token",
        ));
    }
    let mut connection =
        tokio::time::timeout(CONNECT, connect_gateway(&url, options.ca.as_deref(), &token)).await.map_err(|_| {
            client_failure(UNREACHABLE, format!("{url}: no answer within {} seconds", CONNECT.as_secs()))
        })??;
    let request = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 });
    let answer = tokio::time::timeout(options.timeout, connection.send_request(&request))
        .await
        .map_err(|_| client_failure(TIMED_OUT, timeout_message(is_request, options.timeout)))?;
    // A gateway that proves receipt by a ping is answered before the connection closes, whatever it answered.
    connection.close_gracefully().await;
    let answer = answer?;
    Ok(match method {
        "tool_request" => answer.get("data").cloned().unwrap_or(Value::Null),
        "list_tools" => answer.get("tools").cloned().unwrap_or(answer),
        _ => answer.get("results").cloned().unwrap_or(answer),
    })
}

/// Returns the state of a request that was not answered in time.
fn timeout_message(is_request: bool, timeout: Duration) -> String {
    let message = format!("no answer within {} seconds", timeout.as_secs_f64());
    match is_request {
        true => format!(
            "{message}. The request is still pending: `countersign pending` prints its result once it has ended"
        ),
        false => message,
    }
}

/// Values are texts, cut off their names at the first `=`.
pub(crate) fn parse_arguments(arguments: &[String]) -> Result<Map<String, Value>, ClientFailure> {
    arguments
        .iter()
        .map(|argument| match argument.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Value::from(value))),
            _ => Err(client_failure(MALFORMED, format!("invalid argument {argument:?}: expected key=value"))),
        })
        .collect()
}

struct ClientConnection(WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>);

async fn connect_gateway(url: &str, ca: Option<&Path>, token: &str) -> Result<ClientConnection, ClientFailure> {
    if let Some((scheme @ ("http" | "https"), rest)) = url.split_once("://") {
        let websocket_scheme = if scheme == "http" { "ws" } else { "wss" };
        return Err(client_failure(
            UNREACHABLE,
            format!("{url}: agents connect over WebSocket: use {websocket_scheme}://{rest}"),
        ));
    }
    if !url.contains("://") {
        return Err(client_failure(
            UNREACHABLE,
            format!("{url}: expected an address with ws:// or wss://, such as ws://{url}"),
        ));
    }
    if let Ok(uri) = url.parse::<Uri>() {
        connect_error::check_port(&uri).map_err(|error| client_failure(UNREACHABLE, format!("{url}: {error}")))?;
    }
    let connector = match url.to_ascii_lowercase().starts_with("wss:") {
        true => {
            let trusted = tls_client_config(ca).map_err(|error| client_failure(UNREACHABLE, format!("{error:#}")))?;
            Some(Connector::Rustls(Arc::new(trusted)))
        }
        false if ca.is_some() => {
            return Err(client_failure(UNREACHABLE, format!("{url}: --ca can only be used with a wss:// address")));
        }
        false => None,
    };
    // Tokens are for gateways only; what the library says of an address holds none.
    let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(4096);
    let (stream, _) = connect_async_tls_with_config(url, Some(config), true, connector)
        .await
        .map_err(|error| client_failure(UNREACHABLE, describe_connect_error(url, &error)))?;
    let mut connection = ClientConnection(stream);
    let auth = json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": token }, "id": "auth-1" });
    match connection.send_request(&auth).await {
        Ok(_) => Ok(connection),
        Err(ClientFailure { message, .. }) => Err(client_failure(UNREACHABLE, message)),
    }
}

/// Returns why there is no connection, with advice if there is any.
fn describe_connect_error(url: &str, error: &Error) -> String {
    match error {
        Error::Io(refused) if refused.kind() == std::io::ErrorKind::ConnectionRefused => {
            format!("{url}: no gateway runs there; `countersign serve` starts one")
        }
        Error::Http(answer) => {
            let body = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let first_line = body.trim().lines().next().filter(|line| !line.is_empty());
            let detail = first_line.map_or_else(String::new, |line| format!(" ({line})"));
            let helps = match answer.status().as_u16() {
                403 | 404 => {
                    ": no agents can connect there; add one with `countersign agents add ID --config FILE`, and \
                    check the gateway with `countersign doctor --config FILE`"
                }
                _ => "",
            };
            format!("{url}: {error}{detail}{helps}")
        }
        _ => format!("{url}: {}", connect_error::explain_failure(error)),
    }
}

impl ClientConnection {
    /// Sends a request and waits for its answer.
    async fn send_request(&mut self, request: &Value) -> Result<Value, ClientFailure> {
        // The action may still wait for an approval, or be done.
        let became = match request["method"] == "tool_request" {
            true => "; `countersign pending` prints the outcome of the request",
            false => "",
        };
        let gone = |error: Error| {
            let why = error_text::without_numbers(&error.to_string());
            client_failure(UNREACHABLE, format!("the connection broke: {why}{became}"))
        };
        self.0.send(Message::text(request.to_string())).await.map_err(gone)?;
        loop {
            let text = match self.0.next().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == close::CONNECTED => {
                    return Err(client_failure(UNREACHABLE, format!("{}: {TAKEN}", frame.reason)));
                }
                Some(Ok(Message::Close(frame))) => {
                    let why = frame.map_or_else(String::new, |frame| format!(": {} {}", frame.code, frame.reason));
                    return Err(client_failure(UNREACHABLE, format!("the gateway closed the connection{why}{became}")));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(gone(error)),
                None => return Err(client_failure(UNREACHABLE, format!("the gateway closed the connection{became}"))),
            };
            let Ok(mut reply) = serde_json::from_str::<Value>(&text) else { continue };
            if reply.get("id") != request.get("id") {
                continue;
            }
            let Some(error) = reply.get("error") else { return Ok(reply["result"].take()) };
            let code = error["code"].as_i64().unwrap_or_default();
            let message = error["message"].as_str().unwrap_or_default();
            let failure = match code {
                -32002 => client_failure(TIMED_OUT, format!("Timeout ({code}): {message}")),
                -32001 | -32003 => client_failure(FAILED, format!("Denied ({code}): {message}")),
                _ => client_failure(FAILED, format!("Gateway error ({code}): {message}")),
            };
            let reason = error["data"]["reason"].as_str().map(str::to_owned);
            return Err(ClientFailure { reason, ..failure });
        }
    }

    /// Closes the connection, once the gateway knows that everything arrived: the pong to its ping is sent before the one to
    /// ours comes back, and after a close none is sent any more.
    async fn close_gracefully(&mut self) {
        let leave = async {
            if self.0.send(Message::Ping(Vec::new().into())).await.is_err() {
                return;
            }
            while let Some(Ok(message)) = self.0.next().await {
                if message.is_pong() {
                    break;
                }
            }
            let _ = self.0.flush().await;
            let _ = self.0.close(None).await;
            while let Some(Ok(_)) = self.0.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), leave).await;
    }
}
