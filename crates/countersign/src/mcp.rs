//! `countersign mcp`: a pipe between an MCP host on standard input and output, and the gateway that runs, or a gateway of its own.
//!
//! It must not know what the lines say.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use countersign_config::ConfigFlags;
use countersign_gateway::{
    control::{ControlReply, FILE, Request},
    mcp_tools::STARTED_BY,
};

use crate::{exit::fail_with, serve};

/// Time for the last answers once the host has gone.
const FAREWELL: Duration = Duration::from_secs(10);
/// Number of bytes that are read at once.
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
    let stream = UnixStream::connect(folder.join(FILE)).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let no_gateway = format!("no gateway runs with the data directory {}", folder.display());
            anyhow::anyhow!(
                "{no_gateway}: start one with `countersign serve`, or select another with --config or --data"
            )
        }
        _ => anyhow::Error::from(error).context(format!("cannot connect to the gateway in {}", folder.display())),
    })?;
    let reading = open_connection(&stream)?;
    let mut writing = stream.try_clone()?;
    let host_gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&host_gone);
    std::thread::spawn(move || {
        let copied = copy(&mut io::stdin().lock(), &mut writing);
        if copied.is_err() {
            // The gateway has gone, which the other side reports.
            return;
        }
        is_gone.store(true, Ordering::SeqCst);
        let _ = writing.shutdown(Shutdown::Write);
        // The gateway closes after its last answer.
        std::thread::sleep(FAREWELL);
        std::process::exit(0);
    });
    copy(&mut { reading }, &mut io::stdout().lock()).context("the connection to the gateway failed")?;
    if host_gone.load(Ordering::SeqCst) {
        return Ok(ExitCode::SUCCESS);
    }
    let folder = folder.display();
    Ok(fail_with(&format!(
        "the gateway with the data directory {folder} has gone: pending calls stay pending there, repeat them when it runs again"
    )))
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
fn open_connection(mut stream: &UnixStream) -> anyhow::Result<BufReader<UnixStream>> {
    let mut line = serde_json::to_vec(&Request::Mcp)?;
    line.push(b'\n');
    stream.write_all(&line).context("cannot write to the gateway")?;
    let mut reading = BufReader::with_capacity(CHUNK, stream.try_clone()?);
    let mut answer = String::new();
    if reading.read_line(&mut answer).context("cannot read from the gateway")? == 0 {
        bail!("the gateway closed the connection");
    }
    match serde_json::from_str(&answer) {
        Ok(ControlReply::Ok(_)) => Ok(reading),
        Ok(ControlReply::Error(problem)) => bail!("{problem}"),
        Err(error) => bail!("invalid answer of the gateway: {error}"),
    }
}

fn is_same(folder: &Path, other: &Path) -> bool {
    folder == other || fs::canonicalize(folder).ok().is_some_and(|folder| fs::canonicalize(other).ok() == Some(folder))
}

/// Copies everything as it comes.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        };
        to.write_all(&chunk[..length])?;
        to.flush()?;
    }
}
