//! JSON lines of one connection: bounded messages, errors in the form of the protocol, and receipts of what was written.

use std::{io, sync::Arc, time::Duration};

use countersign_foreign_calls::{Delivery, Requester};
use rmcp::{
    ErrorData, RoleServer,
    model::{ClientJsonRpcMessage, ClientNotification, GetExtensions as _, JsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::{
    admission::{FaultReply, OpenRequests, fault_reply, parse_message, replied_id},
    limits::LARGEST_MESSAGE,
    server::RequestOrigin,
};

/// Most messages that wait to be written. More stop the reading.
const MOST_QUEUED: usize = 64;
/// Longest time in which a client may read nothing.
const STUCK: Duration = Duration::from_secs(40);

/// Message on its way to the client.
struct OutgoingLine {
    bytes: Vec<u8>,
    delivery: Option<Delivery>,
    written: Option<oneshot::Sender<io::Result<()>>>,
}

/// Transport over one connection.
pub(super) struct StreamTransport<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// True within a line that was too long.
    is_discarding: bool,
    /// Reply of the transport itself that is not queued yet.
    unsent: Option<OutgoingLine>,
    requester: Arc<Requester>,
    open: OpenRequests<Delivery>,
    outgoing: Option<mpsc::Sender<OutgoingLine>>,
}

/// Result of reading.
enum ReadLine {
    Line,
    TooLong,
    End,
}

impl<R: AsyncRead + Send + Unpin> StreamTransport<R> {
    /// Serves a connection of `requester`. A task of its own writes.
    pub(super) fn new<W>(reader: BufReader<R>, writer: W, requester: Arc<Requester>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (outgoing, lines) = mpsc::channel(MOST_QUEUED);
        tokio::spawn(write_lines(writer, lines));
        Self {
            reader,
            line: Vec::new(),
            is_discarding: false,
            unsent: None,
            requester,
            open: OpenRequests::default(),
            outgoing: Some(outgoing),
        }
    }

    /// Reads one line. A read that is dropped in the middle continues at the next call.
    async fn read_line(&mut self) -> io::Result<ReadLine> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(ReadLine::End);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let length = newline.map_or(available.len(), |at| at + 1);
            let was_discarding = self.is_discarding;
            if !was_discarding {
                self.is_discarding = self.line.len() + length > LARGEST_MESSAGE;
                if self.is_discarding {
                    self.line = Vec::new();
                } else {
                    self.line.extend_from_slice(&available[..length]);
                }
            }
            self.reader.consume(length);
            let is_too_long = self.is_discarding && !was_discarding;
            if newline.is_some() {
                let is_line = !self.is_discarding;
                self.is_discarding = false;
                if is_line {
                    return Ok(ReadLine::Line);
                }
            }
            if is_too_long {
                return Ok(ReadLine::TooLong);
            }
        }
    }

    /// Handles a message before the service gets it. `Err` is the reply of the transport, if there is one.
    fn admit_message(&mut self, line: &[u8]) -> Result<ClientJsonRpcMessage, Option<FaultReply>> {
        if line.is_empty() {
            return Err(None);
        }
        let mut message = parse_message(line)?;
        match &mut message {
            JsonRpcMessage::Request(request) => {
                let delivery = Delivery::default();
                self.open.admit(&request.id, delivery.clone()).map_err(Some)?;
                let origin = RequestOrigin { requester: Arc::clone(&self.requester), delivery, is_repeated: true };
                request.request.extensions_mut().insert(origin);
            }
            // The service sends no reply to a cancelled request.
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(delivery) = cancelled.params.request_id.as_ref().and_then(|id| self.open.cancel(id))
                {
                    delivery.abandon();
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Ok(message)
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for StreamTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let delivery = replied_id(&message).and_then(|id| self.open.finish(id));
        let (written, is_written) = oneshot::channel();
        let line = encode_line(&message, delivery, Some(written));
        let outgoing = self.outgoing.clone();
        async move {
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            outgoing.ok_or_else(gone)?.send(line).await.map_err(|_| gone())?;
            is_written.await.map_err(|_| gone())?
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.unsent.is_some() {
                // A client that sends faults and reads nothing is not read either.
                let place = self.outgoing.as_ref()?.reserve().await.ok()?;
                if let Some(line) = self.unsent.take() {
                    place.send(line);
                }
            }
            let reply = match self.read_line().await {
                Ok(ReadLine::Line) => {
                    let line = std::mem::take(&mut self.line);
                    match self.admit_message(line.trim_ascii()) {
                        Ok(message) => return Some(message),
                        Err(reply) => reply,
                    }
                }
                Ok(ReadLine::TooLong) => {
                    let text = format!("Message too large (at most {LARGEST_MESSAGE} bytes)");
                    Some(fault_reply(None, ErrorData::invalid_request(text, None)))
                }
                Ok(ReadLine::End) | Err(_) => return None,
            };
            self.unsent = reply.map(|reply| encode_line(&JsonRpcMessage::Error(*reply), None, None));
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.outgoing = None;
        self.open.drain().for_each(|delivery| delivery.abandon());
        Ok(())
    }
}

fn encode_line(
    message: &ServerJsonRpcMessage,
    delivery: Option<Delivery>,
    written: Option<oneshot::Sender<io::Result<()>>>,
) -> OutgoingLine {
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(b'\n');
    OutgoingLine { bytes, delivery, written }
}

async fn write_lines(mut writer: impl AsyncWrite + Send + Unpin, mut lines: mpsc::Receiver<OutgoingLine>) {
    while let Some(OutgoingLine { bytes, delivery, written }) = lines.recv().await {
        let writing = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        let result = timeout(STUCK, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let is_over = result.is_err();
        if let Some(delivery) = delivery {
            if is_over { delivery.abandon() } else { delivery.confirm() }
        }
        if let Some(written) = written {
            let _ = written.send(result);
        }
        if is_over {
            break;
        }
    }
    let _ = writer.shutdown().await;
    // Their clients have gone.
    lines.close();
    while let Some(line) = lines.recv().await {
        line.delivery.iter().for_each(Delivery::abandon);
    }
}

#[cfg(test)]
mod tests;
