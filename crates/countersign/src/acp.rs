//! `countersign acp`: an agent for an editor on standard input and output, in the gateway that runs, or in one for editors alone.
//!
//! It must not know what the lines say.

mod agent_config;

use std::{
    fs::{self, TryLockError},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use countersign_gateway::control::{AcpOptions, FILE, Request};

use crate::{data_dir::DataDir, no_gateway::no_gateway_text, serve, socket_pipe};

/// Longest wait for a gateway that another window of the editor starts at the same moment.
const STARTING: Duration = Duration::from_secs(20);
/// Time between two tries to connect to it.
const TRIED: Duration = Duration::from_millis(50);
/// Text for a gateway that ends before the editor.
const LEFT: &str = "its sessions stay in the record; start the agent in the editor again, and load them";

/// Place in which sessions of the editor work.
pub(crate) enum AgentPlace {
    /// The gateway with this data directory.
    Gateway(DataDir),
    /// The user's gateway, if it runs; otherwise one for editors, with the models and rules of an agent directory.
    AgentDir {
        /// The agent directory; absent for that of omp.
        folder: Option<PathBuf>,
        /// The data directory of the user's gateway.
        gateway: Option<PathBuf>,
    },
}

/// Serves the editor until it has gone.
pub(crate) fn run(place: AgentPlace, options: AcpOptions) -> anyhow::Result<ExitCode> {
    let (folder, gateway) = match place {
        AgentPlace::Gateway(place) => {
            let stream = socket_pipe::connect(&place.folder)?;
            let stream = stream.with_context(|| no_gateway_text(&place))?;
            return socket_pipe::run(&stream, &Request::Acp(Box::new(options)), &place.folder, LEFT);
        }
        AgentPlace::AgentDir { folder, gateway } => (folder, gateway),
    };
    if let Some(gateway) = gateway
        && let Some(stream) = socket_pipe::connect(&gateway)?
    {
        return socket_pipe::run(&stream, &Request::Acp(Box::new(options)), &gateway, LEFT);
    }
    let agent = agent_config::AgentConfig::read(folder.as_deref(), options)?;
    let data = agent.data_dir();
    // Another window of the editor may have started it.
    if let Some(stream) = find_editor_gateway(&data)? {
        return socket_pipe::run(&stream, &Request::Acp(Box::new(agent.options)), &data, LEFT);
    }
    let (loaded, options) = agent.load()?;
    serve::run_for_editor(loaded, options)
}

/// Connects to the gateway for editors, also if it is about to start. `None` if there is none.
fn find_editor_gateway(data: &Path) -> anyhow::Result<Option<std::os::unix::net::UnixStream>> {
    let deadline = Instant::now() + STARTING;
    loop {
        if let Some(stream) = socket_pipe::connect(data)? {
            return Ok(Some(stream));
        }
        if !is_locked(data)? {
            return Ok(None);
        }
        if Instant::now() > deadline {
            bail!("a gateway uses the data directory {}, and does not answer", data.display());
        }
        std::thread::sleep(TRIED);
    }
}

/// Reports whether a process has the data directory.
fn is_locked(data: &Path) -> anyhow::Result<bool> {
    let path = data.join(FILE).with_extension("sock.lock");
    let file = match fs::OpenOptions::new().write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
    }
}
