//! A line between a node and its database that is cut, or answers late.

use std::{path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixStream},
    sync::watch,
    time::sleep,
};

/// Delay of each answer on a slow line.
const DELAY: Duration = Duration::from_secs(10);

/// State of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineState {
    /// It passes everything on.
    Sound,
    /// Its connections are closed, and new ones too.
    Cut,
    /// It passes each answer on after ten seconds.
    Slow,
}

/// Direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

/// A proxy on a TCP port of this machine, before the Unix socket of a server.
pub(crate) struct FaultyLine {
    port: u16,
    state: watch::Sender<LineState>,
}

impl FaultyLine {
    /// Starts one. It ends with the runtime of the test.
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, watched) = watch::channel(LineState::Sound);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *watched.borrow() == LineState::Cut {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&socket).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(pass_on(from_client, to_server, Direction::Request, watched.clone()));
                tokio::spawn(pass_on(from_server, to_client, Direction::Answer, watched.clone()));
            }
        });
        Self { port, state }
    }

    /// Returns the address of a database behind it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname={database} sslmode=disable", self.port)
    }

    /// Changes its state, for connections that are open too.
    pub(crate) fn set_state(&self, state: LineState) {
        self.state.send_replace(state);
    }
}

/// Waits until the state of a line fits, or the line ends.
async fn wait_state(state: &mut watch::Receiver<LineState>, fits: impl Fn(LineState) -> bool) {
    let _ = state.wait_for(|state| fits(*state)).await;
}

async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    mut state: watch::Receiver<LineState>,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            read = from.read(&mut bytes) => match read {
                Ok(count @ 1..) => count,
                Ok(0) | Err(_) => break,
            },
            () = wait_state(&mut state, |state| state == LineState::Cut) => break,
        };
        let now = *state.borrow();
        if now == LineState::Slow && direction == Direction::Answer {
            tokio::select! {
                () = sleep(DELAY) => {}
                () = wait_state(&mut state, |state| state != LineState::Slow) => {}
            }
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
