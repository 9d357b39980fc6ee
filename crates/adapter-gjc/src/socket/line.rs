//! One client of the socket: `ready`, what it missed if it asks for that, and then everything as it is told.

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

use super::{Said, past};
use crate::window::Behind;

/// How long a client has to ask for what it missed before it is told what happens now.
const MOMENT: Duration = Duration::from_millis(200);
/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// Where a client stands when it comes.
struct Place {
    /// The last line of before it.
    line: u64,
    /// The last event of before it.
    event: u64,
}

/// Serves a client until it has gone, or is too far behind.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite,
    said: &Said,
    lines: &mpsc::Sender<ClientInput>,
) -> io::Result<()> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let place = Place { line: said.lines.last(), event: said.events.last() };
    writing.write_all(&encode_line(&OmpEvent::Ready)).await?;
    let mut input = Input { decoder: LineDecoder::default().with_lossy_utf8(), buffer: vec![0; CHUNK] };
    let (missed, misses) = mpsc::channel(1);
    // What was missed comes before what is told now; and nothing else comes before a client had its moment.
    let first = tokio::time::timeout(MOMENT, input.next(&mut reading)).await;
    if let Ok(first) = first {
        let Some(first) = first? else { return Ok(()) };
        match asks(&first) {
            Some(after) => {
                take_up(lines).await?;
                missed_by(&mut writing, said, after, place.event).await?;
            }
            None => hand_on(first, said, lines).await?,
        }
    }
    let waiting: Vec<Bytes> = {
        let dialogs = said.dialogs.lock();
        dialogs.range(..=place.line).map(|(_, (_, dialog))| dialog.clone()).collect()
    };
    for dialog in waiting {
        writing.write_all(&dialog).await?;
    }
    tokio::select! {
        ended = read(reading, input, said, lines, missed) => ended,
        ended = write(writing, said, place, misses) => ended,
    }
}

/// The lines of a client.
struct Input {
    decoder: LineDecoder,
    buffer: Vec<u8>,
}

impl Input {
    /// The next line; none at the end. Dropping the future loses nothing that was read.
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

/// Which frame a client saw last, if it asks for those behind it.
fn asks(line: &DecodedLine) -> Option<u64> {
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

/// Tells the door that whoever was there before is there again.
async fn take_up(lines: &mpsc::Sender<ClientInput>) -> io::Result<()> {
    lines.send(ClientInput::Resumed).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Hands a line to the door.
async fn hand_on(line: DecodedLine, said: &Said, lines: &mpsc::Sender<ClientInput>) -> io::Result<()> {
    if let DecodedLine::Text(text) = &line
        && text.contains("extension_ui_response")
        && let Ok(GjcInboundFrame::UiResponse { id, .. }) = gjc::parse_line(text)
    {
        said.ends(&id);
    }
    lines.send(ClientInput::Line(line)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

async fn read(
    mut reading: impl AsyncRead + Unpin,
    mut input: Input,
    said: &Said,
    lines: &mpsc::Sender<ClientInput>,
    missed: mpsc::Sender<u64>,
) -> io::Result<()> {
    while let Some(line) = input.next(&mut reading).await? {
        match asks(&line) {
            Some(after) => {
                take_up(lines).await?;
                missed.send(after).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
            }
            None => hand_on(line, said, lines).await?,
        }
    }
    Ok(())
}

/// Tells what is told from the client's place on, each line whole.
async fn write(
    mut writing: impl AsyncWrite + Unpin,
    said: &Said,
    place: Place,
    mut misses: mpsc::Receiver<u64>,
) -> io::Result<()> {
    let mut after = place.line;
    loop {
        match said.lines.behind(after) {
            // It can have what it missed when it comes again.
            Behind::Lost(_) => return Err(io::ErrorKind::TimedOut.into()),
            Behind::Frames(frames) if frames.is_empty() => {
                if said.lines.is_over() {
                    return writing.shutdown().await;
                }
                tokio::select! {
                    () = said.lines.moves(after) => {}
                    Some(seen) = misses.recv() => missed_by(&mut writing, said, seen, place.event).await?,
                }
            }
            Behind::Frames(frames) => {
                for (number, frame) in frames {
                    writing.write_all(&frame).await?;
                    after = number;
                }
            }
        }
    }
}

/// Tells the events behind `after` up to `last`: those of processes before this one from the log, as far as it has them.
async fn missed_by(writing: &mut (impl AsyncWrite + Unpin), said: &Said, after: u64, last: u64) -> io::Result<()> {
    let oldest = said.events.oldest();
    if after < said.first
        && let Some(past) = &said.past
    {
        for frame in past.behind(after).await {
            writing.write_all(&frame).await?;
        }
    }
    if after.max(said.first) < oldest {
        // It hears that some are gone.
        writing.write_all(&past::reset(&said.session, oldest + 1)).await?;
    }
    let mut after = after.max(oldest);
    loop {
        let Behind::Frames(frames) = said.events.behind(after) else { return Ok(()) };
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

    use super::{Said, serve};
    use crate::window::Window;
    use countersign_adapter_omp::ClientInput;

    struct Client {
        line: BufReader<DuplexStream>,
    }

    impl Client {
        async fn hears(&mut self) -> Value {
            let mut line = String::new();
            self.line.read_line(&mut line).await.unwrap();
            serde_json::from_str(&line).unwrap_or(Value::Null)
        }

        async fn says(&mut self, line: Value) {
            self.line.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        }
    }

    fn said(last: u64) -> Arc<Said> {
        Arc::new(Said {
            lines: Window::new(100, 0),
            events: Window::new(4, last),
            dialogs: parking_lot::Mutex::default(),
            client: tokio::sync::watch::Sender::new(0),
            past: None,
            first: last,
            session: "s".to_owned(),
        })
    }

    fn connect(said: &Arc<Said>) -> (Client, mpsc::Receiver<ClientInput>) {
        let (client, server) = duplex(1 << 16);
        let (lines, input) = mpsc::channel(8);
        let said = Arc::clone(said);
        tokio::spawn(async move { serve(server, &said, &lines).await });
        (Client { line: BufReader::new(client) }, input)
    }

    fn event(said: &Said, seq: u64) {
        let event = json!({"type": "event", "session_id": "s", "seq": seq, "payload": {}});
        said.hear(Bytes::from(format!("{event}\n")));
    }

    fn dialog(said: &Said, id: &str) {
        let dialog = json!({"type": "extension_ui_request", "id": id, "method": "input", "title": "T"});
        said.hear(Bytes::from(format!("{dialog}\n")));
    }

    async fn seqs<const N: usize>(client: &mut Client) -> [u64; N] {
        let mut seqs = [0; N];
        for seq in &mut seqs {
            *seq = client.hears().await["seq"].as_u64().unwrap();
        }
        seqs
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_told_again_unless_it_is_asked_for() {
        let said = said(0);
        event(&said, 1);
        let (mut client, _input) = connect(&said);
        assert_eq!(client.hears().await, json!({"type": "ready"}));
        event(&said, 2);
        assert_eq!(seqs(&mut client).await, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missed_comes_before_what_is_told_now_and_each_once() {
        let said = said(40);
        for seq in 41..=44 {
            event(&said, seq);
        }
        let (mut client, mut input) = connect(&said);
        assert_eq!(client.hears().await, json!({"type": "ready"}));
        event(&said, 45);
        client.says(json!({"type": "resume", "last_seq": 42})).await;
        assert_eq!(seqs(&mut client).await, [43, 44, 45]);
        client.says(json!({"type": "abort", "id": "1"})).await;
        assert!(matches!(input.recv().await, Some(ClientInput::Resumed)));
        let next = input.recv().await;
        assert!(
            matches!(next, Some(ClientInput::Line(DecodedLine::Text(line))) if line.contains("abort")),
            "it is no command"
        );
        // Somebody may ask later, too, and as far back as is kept.
        client.says(json!({"type": "resume", "last_seq": 1})).await;
        let reset = client.hears().await;
        assert_eq!((&reset["type"], &reset["payload"]["first_seq"]), (&json!("reset"), &json!(42)), "41 is gone");
        assert_eq!(seqs(&mut client).await, [42, 43, 44]);
        event(&said, 46);
        assert_eq!(seqs(&mut client).await, [46]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dialog_that_waits_is_shown_to_whoever_comes_until_it_is_answered() {
        let said = said(0);
        dialog(&said, "d1");
        dialog(&said, "d2");
        let (mut client, mut input) = connect(&said);
        client.hears().await;
        assert_eq!(
            (client.hears().await["id"].clone(), client.hears().await["id"].clone()),
            (json!("d1"), json!("d2"))
        );
        client.says(json!({"type": "extension_ui_response", "id": "d1", "value": "x"})).await;
        input.recv().await.unwrap();
        let ends = json!({"type": "extension_ui_request", "id": "x", "method": "cancel", "targetId": "d2"});
        said.hear(Bytes::from(format!("{ends}\n")));
        let (mut other, _input) = connect(&said);
        assert_eq!(other.hears().await, json!({"type": "ready"}));
        dialog(&said, "d3");
        assert_eq!(other.hears().await["id"], "d3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_closed_and_holds_nobody_up() {
        let said = said(0);
        let (mut client, _input) = connect(&said);
        client.hears().await;
        let large = "x".repeat(1 << 12);
        for seq in 1..=300 {
            let event = json!({"type": "event", "session_id": "s", "seq": seq, "payload": {"text": large}});
            said.hear(Bytes::from(format!("{event}\n")));
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
