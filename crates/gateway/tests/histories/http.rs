//! HTTP for the actors, as far as they need it, as server and client.

use std::net::{Ipv4Addr, SocketAddr};

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::fixture::HistoryFixture;

/// Answers each connection on a port of its own, until its runtime ends.
pub(crate) async fn serve<F>(
    world: HistoryFixture,
    answer: impl Fn(TcpStream, HistoryFixture) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A gateway may hang up.
            tokio::spawn(answer(stream, world.clone()).map(drop));
        }
    });
    address
}

/// Request to a server.
pub(crate) struct HttpRequest {
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// Reads one request; `None` if there is none.
pub(crate) async fn request(stream: &mut TcpStream) -> std::io::Result<Option<HttpRequest>> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let Some((first, length)) = read_head(&mut reader).await? else { return Ok(None) };
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).await?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Some(HttpRequest { path, body }))
}

/// Reply: its status, and its JSON if it has any.
pub(crate) type JsonReply = (u16, Value);

/// Sends a GET on a connection of its own. `None` without a whole reply.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<JsonReply> {
    get_text(address, path).await.map(json_reply)
}

/// Gets a text on a connection of its own, with its status. `None` without a whole reply.
pub(crate) async fn get_text(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    send(address, &format!("GET {path} HTTP/1.1\r\n"), "").await.ok().flatten()
}

/// Sends a POST on a connection of its own. `None` without a whole reply.
pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value, key: Option<&str>) -> Option<JsonReply> {
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let body = body.to_string();
    let head =
        format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\n{key}content-length: {}\r\n", body.len());
    send(address, &head, &body).await.ok().flatten().map(json_reply)
}

fn json_reply((status, body): (u16, String)) -> JsonReply {
    (status, serde_json::from_str(&body).unwrap_or_default())
}

async fn send(address: SocketAddr, head: &str, body: &str) -> std::io::Result<Option<(u16, String)>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(format!("{head}host: {address}\r\nconnection: close\r\n\r\n{body}").as_bytes()).await?;
    let mut reader = BufReader::new(stream);
    let Some((first, length)) = read_head(&mut reader).await? else { return Ok(None) };
    let Some(status) = first.split(' ').nth(1).and_then(|status| status.parse().ok()) else { return Ok(None) };
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).await?;
    Ok(Some((status, String::from_utf8_lossy(&body).into_owned())))
}

/// Opens a stream of events, and returns a reader of its lines. `None` if it is refused.
pub(crate) async fn open(address: SocketAddr, path: &str) -> std::io::Result<Option<BufReader<TcpStream>>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut reader = BufReader::new(stream);
    let opened = read_head(&mut reader).await?;
    Ok(opened.is_some_and(|(first, _)| first.contains(" 200 ")).then_some(reader))
}

/// Reads the first line, and the length of the body.
async fn read_head(
    reader: &mut (impl tokio::io::AsyncBufRead + Unpin),
) -> std::io::Result<Option<(String, Option<usize>)>> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), None);
    if reader.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    loop {
        line.clear();
        if reader.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            return Ok(Some((first, length)));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
}
