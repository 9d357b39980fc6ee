//! `countersign mcp`: a pipe between an MCP host on standard input and output, and the gateway that runs, or a gateway of its own.
//!
//! It must not know what a message says, but which ones are requests without a reply.

mod open_requests;
mod relay;

use std::{
    fs,
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use countersign_config::ConfigFlags;
use countersign_gateway::{
    control::{ControlReply, FILE, Request},
    mcp_tools::STARTED_BY,
};

use self::relay::{ConnectProblem, GatewayConnection, GatewayConnector};
use crate::{exit::fail_with, serve};

/// Time for the last answers once the host has gone.
const FAREWELL: Duration = Duration::from_secs(10);
/// Size of the buffers of lines, in bytes.
const CHUNK: usize = 64 * 1024;

/// Connects the host to the gateway whose data directory is `folder`.
pub(crate) fn run(folder: &Path) -> anyhow::Result<ExitCode> {
    if let Some(started_by) = std::env::var_os(STARTED_BY)
        && is_same(folder, Path::new(&started_by))
    {
        bail!(
            "the gateway with the data directory {} started this process as one of its MCP servers: it would call itself",
            folder.display()
        );
    }
    let mut connector = SocketConnector { folder: folder.to_owned() };
    let first = connector.connect().map_err(|problem| anyhow::anyhow!(problem.into_text()))?;
    let host = BufReader::with_capacity(CHUNK, io::stdin());
    let ended = relay::run(connector, first, host, io::stdout(), |gateway: Option<UnixStream>| {
        if let Some(gateway) = gateway {
            let _ = gateway.shutdown(Shutdown::Write);
            // The gateway closes after its last answer.
            std::thread::sleep(FAREWELL);
        }
        std::process::exit(0);
    });
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => fail_with(&problem),
    })
}

/// Connections to the control socket of a data directory.
struct SocketConnector {
    folder: PathBuf,
}

impl GatewayConnector for SocketConnector {
    type Reading = BufReader<UnixStream>;
    type Writing = UnixStream;

    fn connect(&mut self) -> Result<GatewayConnection<BufReader<UnixStream>, UnixStream>, ConnectProblem> {
        let folder = self.folder.display();
        let absent = |problem: String| ConnectProblem::Absent(problem);
        let stream = UnixStream::connect(self.folder.join(FILE)).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => absent(format!(
                "no gateway runs with the data directory {folder}: start one with `countersign serve`, or select another with \
                 --config or --data"
            )),
            _ => absent(format!("cannot connect to the gateway in {folder}: {error}")),
        })?;
        let opened = open_connection(&stream).map_err(|error| match error {
            OpenFault::Lost(error) => absent(format!("the gateway in {folder} closed the connection: {error}")),
            OpenFault::Refused(problem) => ConnectProblem::Refused(problem),
        })?;
        Ok(GatewayConnection { reading: opened, writing: stream })
    }

    fn pause(&mut self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// Reason why a connection of MCP was not opened.
enum OpenFault {
    /// The connection failed.
    Lost(io::Error),
    /// The gateway refuses it.
    Refused(String),
}

impl From<io::Error> for OpenFault {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Runs a gateway for the host alone, with the data directory `folder`. It ends with the host.
pub(crate) fn run_standalone(
    folder: &Path,
    config: Option<PathBuf>,
    data: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    // Each of them could start the next one.
    if let Some(started_by) = std::env::var_os(STARTED_BY) {
        bail!(
            "the gateway with the data directory {} started this process as one of its MCP servers: expected `countersign mcp \
             --standalone` to be started by a host, not by a gateway",
            Path::new(&started_by).display()
        );
    }
    if UnixStream::connect(folder.join(FILE)).is_ok() {
        bail!(
            "a gateway runs with the data directory {}: connect to it with `countersign mcp`, without --standalone, or choose \
             another directory with --data",
            folder.display()
        );
    }
    // Hosts start several of them: without a configuration none has a claim to a certain port.
    let port = config.is_none().then_some(0);
    let flags = ConfigFlags { data, port, ..ConfigFlags::default() };
    serve::run_for_host(serve::ServeOptions { config, flags })
}

/// Asks for a connection of MCP and returns its reading side.
fn open_connection(mut stream: &UnixStream) -> Result<BufReader<UnixStream>, OpenFault> {
    let mut line = serde_json::to_vec(&Request::Mcp).map_err(io::Error::from)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reading = BufReader::with_capacity(CHUNK, stream.try_clone()?);
    let mut answer = String::new();
    if reading.read_line(&mut answer)? == 0 {
        return Err(OpenFault::Lost(ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_str(&answer) {
        Ok(ControlReply::Ok(_)) => Ok(reading),
        Ok(ControlReply::Error(problem)) => Err(OpenFault::Refused(problem)),
        Err(error) => Err(OpenFault::Refused(format!("invalid answer of the gateway: {error}"))),
    }
}

fn is_same(folder: &Path, other: &Path) -> bool {
    folder == other || fs::canonicalize(folder).ok().is_some_and(|folder| fs::canonicalize(other).ok() == Some(folder))
}
