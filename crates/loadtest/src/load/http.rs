//! As much of HTTP as browsers and people of the load need.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// A connection that is kept open, for one request after the other.
pub(crate) struct Client {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { address, stream: BufReader::new(stream) })
    }

    /// Posts JSON and gives the status and what came back.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        self.posted(path, body, "").await
    }

    /// The same under a key, on a new connection where this one was closed meanwhile: the key is there for that.
    pub(crate) async fn post_once(&mut self, path: &str, body: &Value, key: &str) -> anyhow::Result<(u16, Value)> {
        if let Ok(reply) = self.post_under(path, body, key).await {
            return Ok(reply);
        }
        *self = Self::connect(self.address).await?;
        self.post_under(path, body, key).await
    }

    /// The same, with one attempt.
    pub(crate) async fn post_under(&mut self, path: &str, body: &Value, key: &str) -> anyhow::Result<(u16, Value)> {
        self.posted(path, body, &format!("idempotency-key: {key}\r\n")).await
    }

    /// Gets JSON.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<(u16, Value)> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        self.stream.get_mut().write_all(head.as_bytes()).await?;
        self.reply().await
    }

    async fn posted(&mut self, path: &str, body: &Value, header: &str) -> anyhow::Result<(u16, Value)> {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{header}content-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).await?;
        self.reply().await
    }

    async fn reply(&mut self) -> anyhow::Result<(u16, Value)> {
        let (status, length) = self.head().await?;
        let mut body = vec![0; length.context("a reply without a length")?];
        self.stream.read_exact(&mut body).await?;
        Ok((status, serde_json::from_slice(&body)?))
    }

    /// Opens a stream of events, whose lines are read with [`Self::line`].
    pub(crate) async fn open(&mut self, path: &str) -> anyhow::Result<()> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n", self.address);
        self.stream.get_mut().write_all(head.as_bytes()).await?;
        match self.head().await? {
            (200, _) => Ok(()),
            (status, _) => bail!("{status} for a stream"),
        }
    }

    /// The next line of a stream. The lengths of its pieces come as lines of their own.
    ///
    /// Cancel safety: what was read is kept in `line`.
    pub(crate) async fn line(&mut self, line: &mut String) -> anyhow::Result<()> {
        if self.stream.read_line(line).await? == 0 {
            bail!("the stream ended");
        }
        Ok(())
    }

    async fn head(&mut self) -> anyhow::Result<(u16, Option<usize>)> {
        let (mut line, mut length) = (String::new(), None);
        self.stream.read_line(&mut line).await?;
        let status = line.split(' ').nth(1).context("the connection was closed")?.parse()?;
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
                return Ok((status, length));
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse()?);
            }
        }
    }
}
