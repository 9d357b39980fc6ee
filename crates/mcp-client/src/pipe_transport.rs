//! JSON-RPC over the pipes of a program: one message a line, each bounded, each admitted by the watch over the connection.
//!
//! It must not know which program it is.

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use countersign_runtime::tools::{PipedProgram, shell::ShellError};
use rmcp::{
    RoleClient,
    model::{
        ClientJsonRpcMessage, CustomRequest, ErrorCode, ErrorData, JsonRpcMessage, JsonRpcRequest, NumberOrString,
        ServerJsonRpcMessage, ServerRequest, ServerResult,
    },
    transport::Transport,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::Mutex,
    task::JoinHandle,
    time::Instant,
};

use crate::{
    connection_monitor::ConnectionMonitor,
    elicitation::{ELICITATION, UNKNOWN_MODE, mode_flaw, wanted_input_flaw},
    line_reader::{LineRead, LineReader},
    send_error::SendError,
    text::printable_excerpt,
};

/// Time that a server has to end once its input is closed. Then it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// Time to learn how a server ended whose output is closed.
const EXIT_WAIT: Duration = Duration::from_secs(3);
/// Longest line of error output that is logged whole, in bytes.
const ERROR_LINE: usize = 8 << 10;
/// Lines of error output that are read in one second.
const ERROR_LINES: u32 = 1000;
/// Most bytes of error output within one second, beyond which the server has to wait.
const ERROR_BYTES: usize = 256 << 10;

/// The pipes of a server, with its process if it is one of ours.
pub(crate) struct PipeTransport<R, W> {
    lines: LineReader<R>,
    write: Arc<Mutex<Option<W>>>,
    monitor: Arc<ConnectionMonitor>,
    process: Option<ServerProcess>,
}

/// The process of a server.
pub(crate) struct ServerProcess {
    /// The program. Dropping it kills everything.
    pub(crate) program: PipedProgram,
    /// Reads its error output to the end.
    pub(crate) errors: JoinHandle<()>,
}

impl<R, W> PipeTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(read: R, write: W, monitor: Arc<ConnectionMonitor>, process: Option<ServerProcess>) -> Self {
        let lines = LineReader::new(read, monitor.limits().message);
        Self { lines, write: Arc::new(Mutex::new(Some(write))), monitor, process }
    }

    /// Returns the message in a line, if it has one that passes.
    fn parse_line(&self, line: &[u8]) -> Option<ServerJsonRpcMessage> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        if line.first() != Some(&b'{') {
            self.monitor.note_noise(&String::from_utf8_lossy(line));
            return None;
        }
        match serde_json::from_slice::<ServerJsonRpcMessage>(line) {
            Ok(message) => self.handle_message(message, line),
            Err(_) => self.handle_invalid(line),
        }
    }

    /// Returns a message that passes. A request for input in an unknown mode, which is read as a form, becomes one that is refused.
    fn handle_message(&self, message: ServerJsonRpcMessage, line: &[u8]) -> Option<ServerJsonRpcMessage> {
        let message = match message {
            JsonRpcMessage::Request(JsonRpcRequest { id, request: ServerRequest::ElicitRequest(_), .. })
                if input_mode_flaw(line).is_some() =>
            {
                let sent: Value = serde_json::from_slice(line).ok()?;
                let request = CustomRequest::new(ELICITATION, sent.get("params").cloned());
                JsonRpcMessage::Request(JsonRpcRequest::new(id, ServerRequest::CustomRequest(request)))
            }
            JsonRpcMessage::Response(response) if matches!(response.result, ServerResult::InputRequiredResult(_)) => {
                if let Some(flaw) = input_mode_flaw(line) {
                    return self.failed_answer(&response.id, format!("{UNKNOWN_MODE}: {flaw}"));
                }
                JsonRpcMessage::Response(response)
            }
            message => message,
        };
        self.monitor.admit_message(message)
    }

    /// Returns an error in place of an invalid answer, whose request counts as lost: the server may have done it. Any other invalid line is noise, but broken JSON ends the connection.
    fn handle_invalid(&self, line: &[u8]) -> Option<ServerJsonRpcMessage> {
        let shown = String::from_utf8_lossy(line);
        match serde_json::from_slice::<MessageHead>(line) {
            Ok(MessageHead { id: Some(id), method: None }) => {
                self.monitor.note_unreadable(self.monitor.open_request(&id)?);
                self.failed_answer(&id, "the answer has not the form of a JSON-RPC answer".to_owned())
            }
            Ok(MessageHead { .. }) => {
                self.monitor.note_noise(&shown);
                None
            }
            Err(error) => {
                let shown = self.monitor.show_text(&shown);
                let flaw = match serde_json::from_slice::<IgnoredAny>(line) {
                    Ok(_) => head_flaw(line, &error),
                    Err(_) => "is not valid JSON".to_owned(),
                };
                self.monitor.close(format!("it sent a message that {flaw}: {shown:?}"));
                None
            }
        }
    }

    /// Returns an error in place of an answer that is longer than a message may be. If it answers no open request, the
    /// connection ends.
    fn handle_too_long(&self, head: &[u8]) -> Option<ServerJsonRpcMessage> {
        let most = self.monitor.limits().message;
        let answer = id_in_head(head).and_then(|id| {
            self.failed_answer(&NumberOrString::Number(id), format!("the answer is larger than {most} bytes"))
        });
        if answer.is_none() {
            self.monitor.close(format!("it sent a message of more than {most} bytes"));
        }
        answer
    }

    fn failed_answer(&self, id: &NumberOrString, why: String) -> Option<ServerJsonRpcMessage> {
        let id = self.monitor.open_request(id)?;
        let message = JsonRpcMessage::error(
            ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None),
            Some(NumberOrString::Number(id)),
        );
        self.monitor.admit_message(message)
    }

    /// Finds out how the server ended and closes the connection with that, even if the caller is dropped.
    fn close_ended(&mut self, end: Option<io::Error>) {
        let monitor = Arc::clone(&self.monitor);
        let plain = end
            .map_or_else(|| "it closed its output".to_owned(), |error| format!("its output cannot be read: {error}"));
        let Some(mut process) = self.process.take() else { return monitor.close(plain) };
        tokio::spawn(async move {
            let ended = async {
                let exit = process.program.wait_exit().await;
                // Its last words come before its end is reported.
                let _ = (&mut process.errors).await;
                exit
            };
            let reason = match tokio::time::timeout(EXIT_WAIT, ended).await {
                Ok(Ok(0)) => "it exited".to_owned(),
                Ok(Ok(code)) => format!("it exited with code {code}"),
                Ok(Err(ShellError::Start(reason))) => reason,
                Ok(Err(error)) => error.to_string(),
                Err(_) => plain,
            };
            monitor.close(reason);
        });
    }
}

impl<R, W> Transport<RoleClient> for PipeTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = SendError;

    fn name() -> Cow<'static, str> {
        "pipe".into()
    }

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        let id = self.monitor.note_request(&item);
        let (write, monitor) = (Arc::clone(&self.write), Arc::clone(&self.monitor));
        async move {
            let mut bytes = serde_json::to_vec(&item).map_err(|error| SendError::NotSent(error.to_string()))?;
            bytes.push(b'\n');
            let mut write = write.lock().await;
            let Some(write) = write.as_mut() else {
                return Err(SendError::NotSent("the connection is closed".to_owned()));
            };
            if id.is_some_and(|id| !monitor.begin_request(id)) {
                return Err(SendError::NotSent("it was given up before it was sent".to_owned()));
            }
            let sent = write.write(&bytes).await.map_err(|error| SendError::NotSent(error.to_string()))?;
            let rest = async {
                write.write_all(&bytes[sent..]).await?;
                write.flush().await
            };
            rest.await.map_err(|error| SendError::Lost(error.to_string()))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let monitor = Arc::clone(&self.monitor);
        loop {
            let read = tokio::select! {
                biased;
                () = monitor.wait_closed() => return None,
                read = self.lines.next() => read,
            };
            let message = match read {
                Ok(LineRead::Line(line)) => self.parse_line(&line),
                Ok(LineRead::TooLong(head)) => self.handle_too_long(&head),
                Ok(LineRead::End) => {
                    self.close_ended(None);
                    monitor.wait_closed().await;
                    return None;
                }
                Err(error) => {
                    self.close_ended(Some(error));
                    monitor.wait_closed().await;
                    return None;
                }
            };
            if message.is_some() {
                return message;
            }
        }
    }

    async fn close(&mut self) -> Result<(), SendError> {
        self.monitor.close("the gateway closed the connection");
        // A send that is stuck holds the writer: then the program is killed without the end of its input.
        if let Ok(mut write) = self.write.try_lock()
            && let Some(mut write) = write.take()
        {
            let _ = tokio::time::timeout(GRACE, write.shutdown()).await;
        }
        if let Some(mut process) = self.process.take() {
            let _ = tokio::time::timeout(GRACE, process.program.wait_exit()).await;
        }
        Ok(())
    }
}

/// The members that say what an invalid message was to be.
#[derive(Deserialize)]
struct MessageHead {
    #[serde(default)]
    id: Option<NumberOrString>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

/// Returns the flaw of a message that is JSON and has no readable id or method.
fn head_flaw(line: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("duplicate field") {
        let name = if text.contains("`id`") { "id" } else { "method" };
        return format!("has several members {name:?}");
    }
    match serde_json::from_slice::<Value>(line) {
        Ok(message) => {
            let id = printable_excerpt(&message["id"].to_string());
            format!("has the id {id}, expected a text or a whole number up to 2^63 - 1")
        }
        // Skipped text is not read as UTF-8.
        Err(_) if std::str::from_utf8(line).is_err() => "is not valid JSON".to_owned(),
        Err(_) => "is nested too deep".to_owned(),
    }
}

/// Returns the flaw in the mode of a request for input, or of one within a result.
fn input_mode_flaw(line: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(line).ok()?;
    mode_flaw(message.get("params")).or_else(|| wanted_input_flaw(&message))
}

/// Reads `"id": 7` in the beginning of a message. An id after the result is not found.
fn id_in_head(head: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(head);
    let (before, rest) = text.split_once("\"id\"")?;
    // Within a result it would be another member.
    if before.contains("\"result\"") || before.contains("\"params\"") {
        return None;
    }
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

/// Logs the error output of a server line by line, and remembers the last one.
pub(crate) async fn log_errors(server: String, errors: impl AsyncRead + Unpin, monitor: Arc<ConnectionMonitor>) {
    let mut lines = LineReader::new(errors, ERROR_LINE).with_pace(ERROR_BYTES);
    let mut second = (Instant::now(), 0_u32);
    while let Ok(read) = lines.next().await {
        if second.0.elapsed() >= Duration::from_secs(1) {
            second = (Instant::now(), 0);
        }
        second.1 += 1;
        if second.1 > ERROR_LINES {
            // The pipe holds the server back meanwhile.
            tokio::time::sleep_until(second.0 + Duration::from_secs(1)).await;
        }
        let line = match read {
            LineRead::Line(line) => String::from_utf8_lossy(&line).into_owned(),
            LineRead::TooLong(head) => String::from_utf8_lossy(&head).into_owned(),
            LineRead::End => return,
        };
        if line.trim().is_empty() {
            continue;
        }
        monitor.note_error_line(&line);
        tracing::debug!(server, line = monitor.show_text(&line), "error output of an MCP server");
    }
}

#[cfg(test)]
mod tests {
    use super::{MessageHead, head_flaw, id_in_head};

    #[test]
    fn a_message_whose_id_cannot_be_read_is_refused_for_its_id() {
        let bad = |id: &str| format!("has the id {id}, expected a text or a whole number up to 2^63 - 1");
        for (line, want) in [
            (r#"{"jsonrpc":"2.0","id":[4],"result":{}}"#, bad("[4]")),
            (r#"{"jsonrpc":"2.0","id":18446744073709551616,"result":{}}"#, bad("1.8446744073709552e+19")),
            (r#"{"jsonrpc":"2.0","id":9223372036854775808,"result":{}}"#, bad("9223372036854775808")),
            (r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, bad("1.5")),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#, "has several members \"id\"".to_owned()),
        ] {
            let error = serde_json::from_str::<MessageHead>(line).err().expect(line);
            assert_eq!(head_flaw(line.as_bytes(), &error), want, "{line}");
        }
    }

    #[test]
    fn the_id_of_a_long_answer_is_found_before_its_result() {
        for (head, want) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{"content":"#, Some(3)),
            (r#"{ "id" : 12 , "jsonrpc":"#, Some(12)),
            (r#"{"jsonrpc":"2.0","result":{"id":3"#, None),
            (r#"{"jsonrpc":"2.0","id":"x","result":"#, None),
            (r#"{"jsonrpc":"2.0","method":"x","params":{"id":3"#, None),
            ("xxxx", None),
        ] {
            assert_eq!(id_in_head(head.as_bytes()), want, "{head}");
        }
    }
}
