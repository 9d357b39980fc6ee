//! A line between a log and its server, which can be made to stall.

use std::path::PathBuf;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixStream},
    sync::watch,
};

/// A proxy on a TCP port of this machine, before the Unix socket of a server.
pub(crate) struct StallingProxy {
    port: u16,
    flows: watch::Sender<bool>,
}

impl StallingProxy {
    /// Starts one. It ends with the runtime of the test.
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (flows, watched) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&socket).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(pass_on(from_client, to_server, watched.clone()));
                tokio::spawn(pass_on(from_server, to_client, watched.clone()));
            }
        });
        Self { port, flows }
    }

    /// Returns the address of a database behind it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname={database} sslmode=disable", self.port)
    }

    /// Holds everything back, in both directions, without closing anything.
    pub(crate) fn stall(&self) {
        self.flows.send_replace(false);
    }

    /// Lets everything pass again, what was held back first.
    pub(crate) fn resume(&self) {
        self.flows.send_replace(true);
    }
}

async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut flows: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if flows.wait_for(|flows| *flows).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
