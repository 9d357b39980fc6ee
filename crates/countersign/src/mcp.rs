//! `countersign mcp`: a pipe between an MCP host on standard input and output, and the gateway that runs, or a gateway of its own.
//!
//! It must not know what a message says, but which ones are requests without a reply.

mod open_requests;
mod relay;

use std::{
    fs,
    io::{self, BufReader},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use countersign_config::ConfigFlags;
use countersign_gateway::{
    control::{FILE, Request},
    mcp_tools::STARTED_BY,
};

use self::relay::{ConnectProblem, GatewayConnection, GatewayConnector};
use crate::{
    data_dir::DataDir,
    exit::fail_with,
    no_gateway::no_gateway_text,
    serve,
    socket_pipe::{self, CHUNK, FAREWELL, OpenFault, open_connection},
};

/// Connects the host to the gateway with this data directory.
pub(crate) fn run(place: DataDir) -> anyhow::Result<ExitCode> {
    let folder = &place.folder;
    if let Some(started_by) = std::env::var_os(STARTED_BY)
        && is_same(folder, Path::new(&started_by))
    {
        bail!(
            "the gateway with the data directory {} started this process as one of its MCP servers: it would call itself",
            folder.display()
        );
    }
    let mut connector = SocketConnector { place };
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
    place: DataDir,
}

impl GatewayConnector for SocketConnector {
    type Reading = BufReader<UnixStream>;
    type Writing = UnixStream;

    fn connect(&mut self) -> Result<GatewayConnection<BufReader<UnixStream>, UnixStream>, ConnectProblem> {
        let folder = self.place.folder.display();
        let absent = ConnectProblem::Absent;
        let stream = match socket_pipe::connect(&self.place.folder) {
            Ok(Some(stream)) => stream,
            Ok(None) => return Err(absent(no_gateway_text(&self.place))),
            Err(error) => return Err(absent(format!("{error:#}"))),
        };
        let opened = open_connection(&stream, &Request::Mcp).map_err(|fault| match fault {
            OpenFault::Lost(error) => absent(format!("the gateway in {folder} closed the connection: {error}")),
            OpenFault::Refused(problem) => ConnectProblem::Refused(problem),
        })?;
        Ok(GatewayConnection { reading: opened, writing: stream })
    }

    fn pause(&mut self, pause: Duration) {
        std::thread::sleep(pause);
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

fn is_same(folder: &Path, other: &Path) -> bool {
    folder == other || fs::canonicalize(folder).ok().is_some_and(|folder| fs::canonicalize(other).ok() == Some(folder))
}
