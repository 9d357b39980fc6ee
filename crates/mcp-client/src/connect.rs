//! Opens a connection to a server: starts its program or reaches its address, and falls back to the older handshake.
//!
//! It must not know when a server is needed.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_runtime::tools::{CommandEnvironment, GatewaySecrets, PipedProgram, secrets::Redactor};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    access_token::{AccessToken, fetch_token},
    connection::{Connection, OpenFailure, ProtocolGeneration},
    connection_monitor::ConnectionMonitor,
    definition::{ServerDefinition, ServerTransport},
    http_transport::GuardedHttp,
    options::McpOptions,
    pipe_transport::{PipeTransport, ServerProcess, log_errors},
    secret_texts::SecretTexts,
};

/// Replacement of a secret of a definition in texts.
const HIDDEN: &str = "[hidden]";
/// The fewest bytes of a value that is hidden: a shorter one is found in anything.
const SHORTEST: usize = 6;
/// Time before the end of a token at which it is not used any more.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);

/// Opens a connection within the time limit of a start.
///
/// *Cancellation*: dropping the future ends the program that it started.
///
/// # Errors
/// The reason, without secrets of the definition.
pub(crate) async fn open_connection(
    definition: &ServerDefinition,
    options: &McpOptions,
    generation: ProtocolGeneration,
) -> Result<Connection, OpenFailure> {
    let limit = definition.start_timeout;
    let opening = async {
        match open_once(definition, options, generation).await {
            // At a request that they do not know some servers end, and others answer anything.
            Err(OpenFailure::Closed(reason) | OpenFailure::Unintelligible(reason))
                if generation == ProtocolGeneration::Unknown =>
            {
                tracing::debug!(server = definition.name, reason, "an MCP server does not know discovery");
                open_once(definition, options, ProtocolGeneration::Handshake).await
            }
            opened => opened,
        }
    };
    let late = |_| OpenFailure::Other(format!("no answer to the handshake within {} s", limit.as_secs()));
    tokio::time::timeout(limit, opening).await.map_err(late)?
}

async fn open_once(
    definition: &ServerDefinition,
    options: &McpOptions,
    generation: ProtocolGeneration,
) -> Result<Connection, OpenFailure> {
    let other = OpenFailure::Other;
    match &definition.transport {
        ServerTransport::Stdio { command, args, env, cwd } => {
            let env = fill_values(env, &options.secrets).map_err(other)?;
            let monitor = new_monitor(options, env.values(), &definition.hidden_texts());
            let variables = env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
            let home = make_home(&options.homes, &definition.name).map_err(other)?;
            let own = [("HOME".to_owned(), home.to_string_lossy().into_owned())];
            let all = own.into_iter().chain(variables).chain(options.variables.clone());
            let environment = CommandEnvironment::clean_with(all);
            let folders = (cwd.as_deref().unwrap_or(&home), home.as_path());
            let sandbox = options.sandbox.with_closed(&other_homes(options, &home).map_err(other)?);
            let started = PipedProgram::start(&options.launcher, &sandbox, command, args, folders, &environment).await;
            let (program, pipes) = started.map_err(|error| other(error.to_string()))?;
            let errors = tokio::spawn(log_errors(definition.name.clone(), pipes.errors, Arc::clone(&monitor)));
            let (read, write) = pipes.stream.into_split();
            let process = Some(ServerProcess { program, errors });
            let transport = PipeTransport::new(read, write, Arc::clone(&monitor), process);
            Connection::open(transport, monitor, generation, options.asker.clone()).await
        }
        ServerTransport::Http { url, headers, auth } => {
            let headers = fill_values(headers, &options.secrets).map_err(other)?;
            let token = match auth {
                None => None,
                Some(credentials) => {
                    let secret = fill_value(&credentials.client_secret, &options.secrets).map_err(other)?;
                    Some(fetch_token(credentials, &secret).await.map_err(other)?)
                }
            };
            let mut credentials = definition.hidden_texts();
            credentials.extend(token.as_ref().map(|token| token.token.clone()));
            let monitor = new_monitor(options, headers.values(), &credentials);
            let own = options.headers.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str())));
            let headers = headers.into_iter().chain(own).collect();
            let transport = GuardedHttp::new(url, &headers, token.as_ref(), Arc::clone(&monitor)).map_err(other)?;
            let asker = options.asker.clone();
            let mut connection = Connection::open(transport, monitor, generation, asker).await?;
            let end = |token: AccessToken| Instant::now().checked_add(token.lifetime.saturating_sub(TOKEN_MARGIN));
            connection.valid_until = token.and_then(end);
            Ok(connection)
        }
        #[cfg(test)]
        ServerTransport::Scripted(server) => {
            let monitor = new_monitor(options, [], &[]);
            let (read, write) = tokio::io::split(server.start());
            let transport = PipeTransport::new(read, write, Arc::clone(&monitor), None);
            Connection::open(transport, monitor, generation, options.asker.clone()).await
        }
    }
}

/// Makes the folder of a server, closed to other users. A link in its place is refused: it would open another folder to the server.
fn make_home(homes: &Path, server: &str) -> Result<PathBuf, String> {
    let home = homes.join(server);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&home);
    let made = made.and_then(|()| Ok((homes.canonicalize()?.join(server), home.symlink_metadata()?.is_dir())));
    match made {
        Ok((home, true)) => Ok(home),
        Ok((home, false)) => Err(format!("its folder {} is a link", home.display())),
        Err(error) => Err(format!("cannot create its folder {}: {error}", home.display())),
    }
}

/// Returns the folders of all other servers, also of those that were configured once.
fn other_homes(options: &McpOptions, home: &Path) -> Result<Vec<PathBuf>, String> {
    let homes = home.parent().unwrap_or(home);
    let listed = fs::read_dir(homes).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let listed = listed.map_err(|error| format!("cannot read {}: {error}", homes.display()))?;
    let known = options.names.iter().map(|name| homes.join(name));
    Ok(known.chain(listed.into_iter().map(|entry| entry.path())).filter(|other| other != home).collect())
}

/// Creates the watch over a connection. `values` are hidden in texts of errors, and `credentials` in every message.
fn new_monitor<'a>(
    options: &McpOptions,
    values: impl IntoIterator<Item = &'a SecretString>,
    credentials: &'a [SecretString],
) -> Arc<ConnectionMonitor> {
    let all = values.into_iter().chain(credentials).map(|value| value.expose_secret());
    let all = Redactor::for_secrets(all.filter(|value| value.len() >= SHORTEST), HIDDEN);
    let mut secrets = SecretTexts::new(all, options.secrets.clone());
    if !credentials.is_empty() {
        let credentials = credentials.iter().map(|value| value.expose_secret());
        let credentials = credentials.filter(|value| value.len() >= SHORTEST);
        secrets = secrets.with_credentials(Redactor::for_secrets(credentials, HIDDEN));
    }
    Arc::new(ConnectionMonitor::new(options.limits, secrets))
}

fn fill_values(
    values: &BTreeMap<String, SecretString>,
    secrets: &GatewaySecrets,
) -> Result<BTreeMap<String, SecretString>, String> {
    values.iter().map(|(name, value)| Ok((name.clone(), fill_value(value, secrets)?))).collect()
}

/// Puts secrets into a value that names them.
fn fill_value(value: &SecretString, secrets: &GatewaySecrets) -> Result<SecretString, String> {
    let mut filled = Value::from(value.expose_secret());
    secrets.fill_value(&mut filled)?;
    match filled {
        Value::String(text) => Ok(text.into()),
        _ => Err("a value of its definition is no text".to_owned()),
    }
}
