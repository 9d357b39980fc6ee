//! Plain HTTP on loopback, as small as one can be: a server with a thread a connection, and a client with one connection.

use std::{
    io::{BufRead, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use anyhow::Context as _;

/// A request as it came.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// Reads the next request of a connection; `None` at its end.
pub(crate) fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = body(reader)?;
    Ok(Some(Asked { path, body }))
}

/// Passes over headers and reads the body that they announce.
fn body(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let (mut line, mut length) = (String::new(), 0_usize);
    while reader.read_line(&mut line)? > 0 && !line.trim().is_empty() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or_default();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// Answers every request on a port of its own with the JSON that `answer` gives, until the process ends.
pub(crate) fn serve(answer: impl Fn(Asked) -> String + Send + Sync + 'static) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A client that hangs up is its own business.
            thread::spawn(move || converse(stream, &*answer).ok());
        }
    });
    Ok(address)
}

fn converse(mut stream: TcpStream, answer: &impl Fn(Asked) -> String) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(asked) = read(&mut reader)? {
        let body = answer(asked);
        let length = body.len();
        let whole =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(whole.as_bytes())?;
    }
    Ok(())
}

/// A connection that is kept open.
pub(crate) struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("the local service cannot be reached")?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream })
    }

    /// Asks for `path` and reads the whole answer.
    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        let host = self.stream.peer_addr()?;
        self.stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes())?;
        self.reader.read_line(&mut String::new())?;
        Ok(body(&mut self.reader)?)
    }
}
