//! Browsers and phones that show what waits: each must end up with the truth, which is that nothing does.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};

use crate::load::{load_fixture::agent_credentials, tally::LoadTally};

const COUNT: &[u8] = b"\"pending_count\":";
/// Maximum delay of the last message after the end.
const LAST: Duration = Duration::from_secs(20);

/// Watches the pending approvals of one agent. After the end the last message must say that there are none.
pub(crate) async fn run_watcher(
    address: SocketAddr,
    number: usize,
    tally: Arc<LoadTally>,
    mut end: watch::Receiver<bool>,
) {
    let mut reading = CountReader::default();
    let Ok(mut stream) = open_stream(address, number).await else {
        return tally.record_failure("a stream could not be opened");
    };
    let mut buffer = [0; 2048];
    let read = async {
        let mut is_open = false;
        loop {
            match stream.read(&mut buffer).await {
                Ok(read @ 1..) => {
                    if !std::mem::replace(&mut is_open, true) {
                        tally.streams.fetch_add(1, Ordering::Relaxed);
                    }
                    let seen = reading.read_counts(&buffer[..read]);
                    tally.frames.fetch_add(seen, Ordering::Relaxed);
                }
                _ => return tally.record_failure("a stream was interrupted"),
            }
            if *end.borrow() && reading.waiting == Some(0) {
                return;
            }
        }
    };
    let patience = async {
        let mut end = end.clone();
        let _ = end.wait_for(|is_over| *is_over).await;
        tokio::time::sleep(LAST).await;
    };
    tokio::select! {
        () = read => {}
        () = patience => if reading.waiting != Some(0) {
            tally.record_failure("a stream still showed approvals that are not pending any more");
        }
    }
    let _ = end.borrow_and_update();
}

async fn open_stream(address: SocketAddr, number: usize) -> std::io::Result<TcpStream> {
    let (name, _) = agent_credentials(number);
    let mut stream = TcpStream::connect(address).await?;
    let path = format!("/api/approval/stream?session_id=agent:{name}");
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

/// Finds the newest count in what comes, also where it is cut in two.
#[derive(Default)]
struct CountReader {
    carry: Vec<u8>,
    waiting: Option<u64>,
}

impl CountReader {
    /// Returns the number of counts in it.
    fn read_counts(&mut self, piece: &[u8]) -> u64 {
        self.carry.extend_from_slice(piece);
        let (mut seen, mut from) = (0, 0);
        while let Some(at) = self.carry[from..].windows(COUNT.len()).position(|part| part == COUNT) {
            let digits = from + at + COUNT.len();
            let Some(length) = self.carry[digits..].iter().position(|byte| !byte.is_ascii_digit()) else {
                // The rest of the number is still to come.
                self.carry.drain(..from + at);
                return seen;
            };
            let number = std::str::from_utf8(&self.carry[digits..digits + length]).unwrap_or_default();
            self.waiting = number.parse().ok();
            seen += 1;
            from = digits + length;
        }
        let keep = (self.carry.len() - from).min(COUNT.len() - 1);
        self.carry.drain(..self.carry.len() - keep);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_count_is_found_wherever_it_is_cut() {
        let text = b"data: {\"pending\":null,\"pending_count\":12}\n\ndata: {\"pending_count\":0}\n\n";
        for cut in 0..text.len() {
            let mut reading = CountReader::default();
            let seen = reading.read_counts(&text[..cut]) + reading.read_counts(&text[cut..]);
            assert_eq!((seen, reading.waiting), (2, Some(0)), "{cut}");
            assert!(reading.carry.len() < COUNT.len(), "{cut}");
        }
    }
}
