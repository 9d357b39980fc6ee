//! Connections to a gateway with JSON in both directions: over a WebSocket, or over its control socket.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpStream, UnixStream},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_tungstenite::tungstenite::Message;

/// Sender of frames to the gateway.
pub(crate) type OutboundFrames = mpsc::UnboundedSender<Value>;

/// Open connection. Dropping it cuts it without a close.
pub(crate) struct JsonConnection {
    out: OutboundFrames,
    is_open: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl JsonConnection {
    /// Opens a connection over a WebSocket at `path`. Each frame goes to `on_frame`, with a sender for replies.
    pub(crate) async fn websocket(
        address: SocketAddr,
        path: &str,
        mut on_frame: impl FnMut(Value, &OutboundFrames) + Send + 'static,
    ) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{address}{path}"), stream).await.ok()?;
        Some(Self::run(move |mut outbound, out| async move {
            loop {
                tokio::select! {
                    frame = outbound.recv() => {
                        let Some(frame) = frame else { return };
                        if socket.send(Message::text(frame.to_string())).await.is_err() {
                            return;
                        }
                    }
                    message = socket.next() => match message {
                        Some(Ok(Message::Text(text))) => on_frame(serde_json::from_str(&text).unwrap(), &out),
                        // The pong is written with the next send; it must not wait for that.
                        Some(Ok(Message::Ping(_))) => {
                            if socket.flush().await.is_err() {
                                return;
                            }
                        }
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                        Some(Ok(_)) => {}
                    },
                }
            }
        }))
    }

    /// Opens a connection over the control socket, which begins with `hello`.
    pub(crate) async fn local(
        path: &Path,
        hello: &str,
        mut on_frame: impl FnMut(Value, &OutboundFrames) + Send + 'static,
    ) -> Option<Self> {
        let mut stream = UnixStream::connect(path).await.ok()?;
        stream.write_all(format!("{hello}\n").as_bytes()).await.ok()?;
        Some(Self::run(move |mut outbound, out| async move {
            let (reading, mut writing) = stream.into_split();
            let mut lines = BufReader::new(reading).lines();
            loop {
                tokio::select! {
                    frame = outbound.recv() => {
                        let Some(frame) = frame else { return };
                        if writing.write_all(format!("{frame}\n").as_bytes()).await.is_err() {
                            return;
                        }
                    }
                    line = lines.next_line() => match line {
                        Ok(Some(line)) => on_frame(serde_json::from_str(&line).unwrap(), &out),
                        _ => return,
                    },
                }
            }
        }))
    }

    fn run<F>(serve: impl FnOnce(mpsc::UnboundedReceiver<Value>, OutboundFrames) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (out, outbound) = mpsc::unbounded_channel();
        let is_open = Arc::new(AtomicBool::new(true));
        let (ended, serving) = (Arc::clone(&is_open), serve(outbound, out.clone()));
        let task = tokio::spawn(async move {
            serving.await;
            ended.store(false, Ordering::Relaxed);
        });
        Self { out, is_open, task }
    }

    pub(crate) fn send(&self, frame: Value) {
        // The end of a connection is noticed where it is checked.
        let _ = self.out.send(frame);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }
}

impl Drop for JsonConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
