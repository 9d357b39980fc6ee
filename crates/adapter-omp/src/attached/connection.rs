//! A connection between a host's process and the gateway: its handshake, and the bytes after that.

use std::sync::Arc;

use bytes::Bytes;
use countersign_protocol::lines::{DecodedLine, LineDecoder};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

use super::open_attached;
use crate::{
    adapter::dialect::ExtensionFactory,
    attach::{AttachParams, AttachServer},
};

/// Maximum number of lines that wait for an adapter; the socket holds the rest.
const WAITING: usize = 256;
/// Maximum number of frames that wait for the socket: few, for their bytes are not counted. The adapter counts the frames that wait after
/// them.
const FRAMES: usize = 64;
/// Number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Replies of the gateway before a connection is the adapter's, each in a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachReply {
    /// Something for a person to read.
    Notice(String),
    /// The session is open. What follows in both directions is the adapter's.
    Ok {},
    /// It is not, and why.
    Error(String),
}

/// Opens a session on a line and serves it until its host has gone, or the record has.
pub async fn serve_attached(
    server: Arc<AttachServer>,
    extend: ExtensionFactory,
    params: AttachParams,
    reading: impl AsyncRead + Unpin + Send + 'static,
    mut writing: impl AsyncWrite + Unpin + Send + 'static,
) -> std::io::Result<()> {
    let (output, frames) = mpsc::channel(FRAMES);
    let notices = parking_lot::Mutex::new(Vec::new());
    let notice = |text: &str| notices.lock().push(text.to_owned());
    let opened = open_attached(server, extend, params, output, &notice).await;
    for notice in notices.into_inner() {
        write_reply(&mut writing, &AttachReply::Notice(notice)).await?;
    }
    let adapter = match opened {
        Ok(adapter) => adapter,
        Err(error) => return write_reply(&mut writing, &AttachReply::Error(error.to_string())).await,
    };
    if let Err(gone) = write_reply(&mut writing, &AttachReply::Ok {}).await {
        adapter.leave_session().await;
        return Err(gone);
    }
    // One dialect gives up a line that is no text, another reads it as well as it can.
    let decoder = if adapter.reads_lossy() { LineDecoder::default().with_lossy_utf8() } else { LineDecoder::default() };
    let listed = adapter.list_session();
    let (lines, input) = mpsc::channel(WAITING);
    let read = tokio::spawn(read_lines(reading, decoder, lines));
    let written = tokio::spawn(write_frames(writing, frames));
    if let Err(ended) = adapter.run(input, std::future::pending()).await {
        tracing::debug!(%ended, "the connection to a host ended");
    }
    drop(listed);
    read.abort();
    // The frames end with the adapter: the last of them are on their way.
    let _ = written.await;
    Ok(())
}

async fn write_reply(writing: &mut (impl AsyncWrite + Unpin), opening: &AttachReply) -> std::io::Result<()> {
    let mut line = serde_json::to_string(opening)?;
    line.push('\n');
    writing.write_all(line.as_bytes()).await?;
    writing.flush().await
}

/// Reads to the end. A line without an end counts as one.
async fn read_lines(mut reading: impl AsyncRead + Unpin, mut decoder: LineDecoder, lines: mpsc::Sender<DecodedLine>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count) = reading.read(&mut buffer).await
        && count > 0
    {
        decoder.push(&buffer[..count]);
        while let Some(line) = decoder.next_line() {
            if lines.send(line).await.is_err() {
                return;
            }
        }
    }
    if let Some(line) = decoder.finish() {
        let _ = lines.send(line).await;
    }
}

async fn write_frames(mut writing: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    while let Some(frame) = frames.recv().await {
        if writing.write_all(&frame).await.is_err() {
            return;
        }
    }
    let _ = writing.shutdown().await;
}
