//! A service of HTTP/1.1 on loopback that follows its script, well or badly, and remembers the requests that reached it.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
};

/// Action for one connection or one request.
#[derive(Clone, Debug)]
pub(crate) enum ServerAction {
    /// Refuses to speak before a request was read, and reads on until the other end stops.
    Leave,
    /// Reads the request and closes.
    BreakOff,
    /// Reads the request and resets the connection.
    Reset,
    /// Reads the request and never answers.
    Hang,
    /// Answers, and takes another request on the same connection.
    Say(Vec<u8>),
    /// Answers and closes.
    Last(Vec<u8>),
    /// Sends this and then nothing more, without closing.
    Stall(Vec<u8>),
    /// Sends this and then bytes until the client takes no more.
    Flood(Vec<u8>),
}

pub(crate) struct StandIn {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<u32>>,
    /// Bytes that were read from connections that were left.
    pub(crate) stray: watch::Receiver<Option<usize>>,
    spoken: watch::Receiver<usize>,
    hang_up: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StandIn {
    /// Does `acts` in their order, one a request, the last again and again.
    pub(crate) async fn doing(acts: Vec<ServerAction>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let ((tell, spoken), (count, stray)) = (watch::channel(0), watch::channel(None));
        let (requests, opened) = (Arc::clone(&seen), Arc::clone(&connections));
        let hang_up = Arc::new(Notify::new());
        let told_off = Arc::clone(&hang_up);
        let task = tokio::spawn(async move {
            let mut acts = acts.into_iter().peekable();
            let mut last = None;
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                *opened.lock() += 1;
                loop {
                    let leaves = matches!(acts.peek().or(last.as_ref()), Some(ServerAction::Leave));
                    if !leaves {
                        let request = tokio::select! {
                            request = read_request(&mut stream) => request,
                            () = told_off.notified() => None,
                        };
                        let Some(request) = request else { break };
                        requests.lock().push(request);
                    }
                    last = acts.next().or(last);
                    let more = act(last.as_ref().unwrap(), &mut stream, &count).await;
                    tell.send_modify(|spoken| *spoken += 1);
                    match more {
                        ConnectionStep::Next => {}
                        ConnectionStep::Close => break,
                        ConnectionStep::Keep => {
                            kept.push(stream);
                            break;
                        }
                    }
                }
            }
        });
        Self { address, seen, connections, stray, spoken, hang_up, task }
    }

    pub(crate) async fn saying(answer: impl Into<Vec<u8>>) -> Self {
        Self::doing(vec![ServerAction::Say(answer.into())]).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns every request that came whole: its head and its body.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }

    pub(crate) fn connections(&self) -> u32 {
        *self.connections.lock()
    }

    /// Closes the connection on which it waits for the next request.
    pub(crate) fn hang_up(&self) {
        self.hang_up.notify_one();
    }

    /// Waits until so many acts were done.
    pub(crate) async fn acted(&self, acts: usize) {
        let mut spoken = self.spoken.clone();
        spoken.wait_for(|spoken| *spoken >= acts).await.unwrap();
    }
}

enum ConnectionStep {
    Next,
    Close,
    Keep,
}

async fn act(act: &ServerAction, stream: &mut TcpStream, count: &watch::Sender<Option<usize>>) -> ConnectionStep {
    match act {
        ServerAction::Leave => {
            stream.shutdown().await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            count.send_replace(Some(rest.len()));
            ConnectionStep::Close
        }
        ServerAction::BreakOff => ConnectionStep::Close,
        ServerAction::Reset => {
            stream.set_zero_linger().unwrap();
            ConnectionStep::Close
        }
        ServerAction::Hang => ConnectionStep::Keep,
        ServerAction::Say(answer) => {
            let _ = stream.write_all(answer).await;
            ConnectionStep::Next
        }
        ServerAction::Last(answer) => {
            let _ = stream.write_all(answer).await;
            ConnectionStep::Close
        }
        ServerAction::Stall(answer) => {
            let _ = stream.write_all(answer).await;
            ConnectionStep::Keep
        }
        ServerAction::Flood(answer) => {
            let _ = stream.write_all(answer).await;
            let chunk = vec![b'x'; 64 << 10];
            while stream.write_all(&chunk).await.is_ok() {}
            ConnectionStep::Close
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        request.push(byte[0]);
    }
    let head = String::from_utf8(request.clone()).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    request.extend(body);
    Some(String::from_utf8(request).unwrap())
}

/// Returns an answer with a body of this form, its length announced.
pub(crate) fn answer(status: &str, form: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {form}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
