//! The gjc adapter on other transports: `gjc --mode bridge` over HTTPS, `gjc --listen PATH` on a socket, until a signal ends it.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use countersign_adapter_gjc as gjc;
use countersign_adapter_gjc::{AdapterOpener, BridgeServer, BridgeSetup, SessionSelector, SocketServer, TlsPolicy};
use countersign_adapter_omp as omp;
use countersign_adapter_omp::flags::AdapterFlags;
use countersign_agent_dir::ProcessEnvironment;
use countersign_tools::exec;
use tokio::sync::mpsc;

use crate::{exit::print_notice, signals::shutdown_signal};

/// Maximum number of waiting frames of the adapter.
const FRAMES: usize = 64;

/// Serves the bridge. `program` is this one.
pub(crate) fn run(flags: AdapterFlags, program: PathBuf) -> anyhow::Result<ExitCode> {
    let plain = if flags.insecure { TlsPolicy::OnLoopback } else { TlsPolicy::Refused };
    let setup = BridgeSetup::from_environment(&ProcessEnvironment::of_process(), plain)?;
    run_server(async {
        let bridge = BridgeServer::open(setup, session_opener(flags, program)).await?;
        let mut out = std::io::stdout().lock();
        // The reader may have closed the output.
        let _ = writeln!(out, "countersign ready on {}", bridge.address()).and_then(|()| out.flush());
        drop(out);
        bridge.run(shutdown_signal()).await;
        Ok(())
    })
}

/// Serves the socket at `path`. `program` is this one.
pub(crate) fn listen_on_socket(flags: AdapterFlags, path: PathBuf, program: PathBuf) -> anyhow::Result<ExitCode> {
    run_server(async {
        let socket = SocketServer::open(path, nix::unistd::geteuid().as_raw())?;
        let (output, frames) = mpsc::channel(FRAMES);
        let door = Box::pin(omp::open_adapter(
            flags,
            omp::ProgramInfo { path: program },
            gjc::configured_dialect,
            output,
            print_notice,
        ))
        .await?;
        Box::pin(socket.run(door, frames, shutdown_signal())).await?;
        Ok(())
    })
}

/// Runs `serving` to its end, with commands of the agent kept from answering for the host.
fn run_server(serving: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    exec::become_subreaper()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(crate::STACK).enable_all().build()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(exec::reap());
        serving.await
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    exec::kill_remaining();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Opens the sessions of the bridge: the first as the flags say, others as clients request them, else alike.
fn session_opener(flags: AdapterFlags, program: PathBuf) -> AdapterOpener {
    Box::new(move |which, output| {
        let first = flags.clone();
        let flags = match which {
            SessionSelector::First => first,
            SessionSelector::New => AdapterFlags { continues: false, resume: None, fork: None, ..first },
            SessionSelector::Resumed(id) => AdapterFlags { continues: false, resume: Some(id), fork: None, ..first },
        };
        let program = omp::ProgramInfo { path: program.clone() };
        Box::pin(omp::open_adapter(flags, program, gjc::configured_dialect, output, |line: &str| {
            tracing::info!("{line}")
        }))
    })
}
