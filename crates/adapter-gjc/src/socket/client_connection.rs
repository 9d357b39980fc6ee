//! One client of the socket: `ready`, the missed frames if it requests them, and then every frame as it comes.

use std::{io, time::Duration};

use bytes::Bytes;
use countersign_adapter_omp::ClientInput;
use countersign_protocol::{
    encode_line,
    gjc::{self, GjcInboundFrame},
    lines::{DecodedLine, LineDecoder},
    omp::OmpEvent,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

use super::{SocketOutput, event_replay};
use crate::frame_window::WindowPage;

/// Time for a client to request missed frames before it is sent current ones.
const MOMENT: Duration = Duration::from_millis(200);
/// Number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Position of a client at its connection.
struct ClientPosition {
    /// The last line of before it.
    line: u64,
    /// The last event of before it.
    event: u64,
}

/// Serves a client until it has gone, or lags too far.
pub(super) async fn serve_client(
    stream: impl AsyncRead + AsyncWrite,
    output: &SocketOutput,
    lines: &mpsc::Sender<ClientInput>,
) -> io::Result<()> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let position = ClientPosition { line: output.lines.last_number(), event: output.events.last_number() };
    writing.write_all(&encode_line(&OmpEvent::Ready)).await?;
    let mut input = ClientLines { decoder: LineDecoder::default().with_lossy_utf8(), buffer: vec![0; CHUNK] };
    let (missed, misses) = mpsc::channel(1);
    // Missed frames come before current ones; and nothing else is sent before the client had its time to ask.
    let first = tokio::time::timeout(MOMENT, input.next(&mut reading)).await;
    if let Ok(first) = first {
        let Some(first) = first? else { return Ok(()) };
        match resume_position(&first) {
            Some(after) => {
                announce_resume(lines).await?;
                write_missed(&mut writing, output, after, position.event).await?;
            }
            None => forward_line(first, output, lines).await?,
        }
    }
    let waiting: Vec<Bytes> = {
        let dialogs = output.dialogs.lock();
        dialogs.range(..=position.line).map(|(_, (_, dialog))| dialog.clone()).collect()
    };
    for dialog in waiting {
        writing.write_all(&dialog).await?;
    }
    tokio::select! {
        ended = read_lines(reading, input, output, lines, missed) => ended,
        ended = write_lines(writing, output, position, misses) => ended,
    }
}

/// The lines of a client.
struct ClientLines {
    decoder: LineDecoder,
    buffer: Vec<u8>,
}

impl ClientLines {
    /// Returns the next line; none at the end. Dropping the future loses nothing that was read.
    async fn next(&mut self, reading: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<DecodedLine>> {
        loop {
            if let Some(line) = self.decoder.next_line() {
                return Ok(Some(line));
            }
            let count = reading.read(&mut self.buffer).await?;
            if count == 0 {
                return Ok(std::mem::take(&mut self.decoder).finish());
            }
            self.decoder.push(&self.buffer[..count]);
        }
    }
}

/// Returns the number of the last frame that a client saw, if it requests those after it.
fn resume_position(line: &DecodedLine) -> Option<u64> {
    let DecodedLine::Text(text) = line else { return None };
    // Most lines are long and none of these.
    if !text.contains("\"resume\"") {
        return None;
    }
    match gjc::parse_line(text) {
        Ok(GjcInboundFrame::Resume { last_seq }) => Some(last_seq),
        Ok(_) | Err(_) => None,
    }
}

/// Informs the adapter that the previous client is back.
async fn announce_resume(lines: &mpsc::Sender<ClientInput>) -> io::Result<()> {
    lines.send(ClientInput::Resumed).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Hands a line to the adapter.
async fn forward_line(line: DecodedLine, output: &SocketOutput, lines: &mpsc::Sender<ClientInput>) -> io::Result<()> {
    if let DecodedLine::Text(text) = &line
        && text.contains("extension_ui_response")
        && let Ok(GjcInboundFrame::UiResponse { id, .. }) = gjc::parse_line(text)
    {
        output.close_dialog(&id);
    }
    lines.send(ClientInput::Line(line)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

async fn read_lines(
    mut reading: impl AsyncRead + Unpin,
    mut input: ClientLines,
    output: &SocketOutput,
    lines: &mpsc::Sender<ClientInput>,
    missed: mpsc::Sender<u64>,
) -> io::Result<()> {
    while let Some(line) = input.next(&mut reading).await? {
        match resume_position(&line) {
            Some(after) => {
                announce_resume(lines).await?;
                missed.send(after).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
            }
            None => forward_line(line, output, lines).await?,
        }
    }
    Ok(())
}

/// Writes the frames from the client's position on, each line whole.
async fn write_lines(
    mut writing: impl AsyncWrite + Unpin,
    output: &SocketOutput,
    position: ClientPosition,
    mut misses: mpsc::Receiver<u64>,
) -> io::Result<()> {
    let mut after = position.line;
    loop {
        match output.lines.frames_after(after) {
            // It can have what it missed when it comes again.
            WindowPage::Lost(_) => return Err(io::ErrorKind::TimedOut.into()),
            WindowPage::Frames(frames) if frames.is_empty() => {
                if output.lines.is_over() {
                    return writing.shutdown().await;
                }
                tokio::select! {
                    () = output.lines.wait_for_frame(after) => {}
                    Some(seen) = misses.recv() => write_missed(&mut writing, output, seen, position.event).await?,
                }
            }
            WindowPage::Frames(frames) => {
                for (number, frame) in frames {
                    writing.write_all(&frame).await?;
                    after = number;
                }
            }
        }
    }
}

/// Writes the events after `after` up to `last`: those of earlier processes from the log, as far as it has them.
async fn write_missed(
    writing: &mut (impl AsyncWrite + Unpin),
    output: &SocketOutput,
    after: u64,
    last: u64,
) -> io::Result<()> {
    let oldest = output.events.before_oldest();
    if after < output.first
        && let Some(replay) = &output.replay
    {
        for frame in replay.frames_after(after).await {
            writing.write_all(&frame).await?;
        }
    }
    if after.max(output.first) < oldest {
        // The client is informed that some are gone.
        writing.write_all(&event_replay::reset_frame(&output.session, oldest + 1)).await?;
    }
    let mut after = after.max(oldest);
    loop {
        let WindowPage::Frames(frames) = output.events.frames_after(after) else { return Ok(()) };
        let before = after;
        for (number, frame) in frames.into_iter().take_while(|(number, _)| *number <= last) {
            writing.write_all(&frame).await?;
            after = number;
        }
        if after == before {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use countersign_protocol::lines::DecodedLine;
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex},
        sync::mpsc,
    };

    use super::{SocketOutput, serve_client};
    use crate::frame_window::FrameWindow;
    use countersign_adapter_omp::ClientInput;

    struct SocketTestClient {
        line: BufReader<DuplexStream>,
    }

    impl SocketTestClient {
        async fn hears(&mut self) -> Value {
            let mut line = String::new();
            self.line.read_line(&mut line).await.unwrap();
            serde_json::from_str(&line).unwrap_or(Value::Null)
        }

        async fn says(&mut self, line: Value) {
            self.line.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        }
    }

    fn new_output(last: u64) -> Arc<SocketOutput> {
        Arc::new(SocketOutput {
            lines: FrameWindow::new(100, 0),
            events: FrameWindow::new(4, last),
            dialogs: parking_lot::Mutex::default(),
            client: tokio::sync::watch::Sender::new(0),
            replay: None,
            first: last,
            session: "s".to_owned(),
        })
    }

    fn connect(output: &Arc<SocketOutput>) -> (SocketTestClient, mpsc::Receiver<ClientInput>) {
        let (client, server) = duplex(1 << 16);
        let (lines, input) = mpsc::channel(8);
        let output = Arc::clone(output);
        tokio::spawn(async move { serve_client(server, &output, &lines).await });
        (SocketTestClient { line: BufReader::new(client) }, input)
    }

    fn event(output: &SocketOutput, seq: u64) {
        let event = json!({"type": "event", "session_id": "s", "seq": seq, "payload": {}});
        output.handle_frame(Bytes::from(format!("{event}\n")));
    }

    fn dialog(output: &SocketOutput, id: &str) {
        let dialog = json!({"type": "extension_ui_request", "id": id, "method": "input", "title": "T"});
        output.handle_frame(Bytes::from(format!("{dialog}\n")));
    }

    async fn seqs<const N: usize>(client: &mut SocketTestClient) -> [u64; N] {
        let mut seqs = [0; N];
        for seq in &mut seqs {
            *seq = client.hears().await["seq"].as_u64().unwrap();
        }
        seqs
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_replayed_unless_requested() {
        let output = new_output(0);
        event(&output, 1);
        let (mut client, _input) = connect(&output);
        assert_eq!(client.hears().await, json!({"type": "ready"}));
        event(&output, 2);
        assert_eq!(seqs(&mut client).await, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn missed_events_precede_new_ones_and_each_comes_once() {
        let output = new_output(40);
        for seq in 41..=44 {
            event(&output, seq);
        }
        let (mut client, mut input) = connect(&output);
        assert_eq!(client.hears().await, json!({"type": "ready"}));
        event(&output, 45);
        client.says(json!({"type": "resume", "last_seq": 42})).await;
        assert_eq!(seqs(&mut client).await, [43, 44, 45]);
        client.says(json!({"type": "abort", "id": "1"})).await;
        assert!(matches!(input.recv().await, Some(ClientInput::Resumed)));
        let next = input.recv().await;
        assert!(
            matches!(next, Some(ClientInput::Line(DecodedLine::Text(line))) if line.contains("abort")),
            "it is no command"
        );
        // A client may ask later, too, and as far back as is kept.
        client.says(json!({"type": "resume", "last_seq": 1})).await;
        let reset = client.hears().await;
        assert_eq!((&reset["type"], &reset["payload"]["first_seq"]), (&json!("reset"), &json!(42)), "41 is gone");
        assert_eq!(seqs(&mut client).await, [42, 43, 44]);
        event(&output, 46);
        assert_eq!(seqs(&mut client).await, [46]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pending_dialog_is_shown_to_each_new_client_until_it_is_answered() {
        let output = new_output(0);
        dialog(&output, "d1");
        dialog(&output, "d2");
        let (mut client, mut input) = connect(&output);
        client.hears().await;
        assert_eq!(
            (client.hears().await["id"].clone(), client.hears().await["id"].clone()),
            (json!("d1"), json!("d2"))
        );
        client.says(json!({"type": "extension_ui_response", "id": "d1", "value": "x"})).await;
        input.recv().await.unwrap();
        let ends = json!({"type": "extension_ui_request", "id": "x", "method": "cancel", "targetId": "d2"});
        output.handle_frame(Bytes::from(format!("{ends}\n")));
        let (mut other, _input) = connect(&output);
        assert_eq!(other.hears().await, json!({"type": "ready"}));
        dialog(&output, "d3");
        assert_eq!(other.hears().await["id"], "d3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_closed_and_holds_nobody_up() {
        let output = new_output(0);
        let (mut client, _input) = connect(&output);
        client.hears().await;
        let large = "x".repeat(1 << 12);
        for seq in 1..=300 {
            let event = json!({"type": "event", "session_id": "s", "seq": seq, "payload": {"text": large}});
            output.handle_frame(Bytes::from(format!("{event}\n")));
            tokio::task::yield_now().await;
        }
        let mut last = 0;
        while let Some(seq) = client.hears().await["seq"].as_u64() {
            assert_eq!(seq, last + 1, "no line is left out");
            last = seq;
        }
        assert!(last < 300, "it was closed");
    }
}
