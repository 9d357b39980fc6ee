//! A service on a loopback port that counts what it did. What it does with a path is said by the test.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::gateway::PATIENCE;

/// What becomes of a request.
#[derive(Clone)]
pub(crate) enum Manner {
    /// Status, content type and body.
    Answer(u16, &'static str, String),
    /// The whole request is read, and the connection closed.
    BreakOff,
    /// Nothing until the client goes.
    Hang,
    /// Nothing until the latch is opened.
    Late(Latch),
    /// Claims a longer body than it sends.
    Lie,
}

/// Holds an answer back until a test opens it.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Book {
    asked: Vec<Asked>,
    manners: HashMap<String, Manner>,
}

type Shared = Arc<(Mutex<Book>, Condvar)>;

pub(crate) struct Service {
    pub(crate) url: String,
    book: Shared,
}

impl Service {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let book = Shared::default();
        let shared = Arc::clone(&book);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || converse(&stream, &shared));
            }
        });
        Self { url, book }
    }

    /// What it does with a path from now on.
    pub(crate) fn does(&self, path: &str, manner: Manner) {
        self.book.0.lock().unwrap().manners.insert(path.to_owned(), manner);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.book.0.lock().unwrap().asked.clone()
    }

    /// How often this path was asked for.
    pub(crate) fn count(&self, path: &str) -> usize {
        count(&self.book.0.lock().unwrap(), path)
    }

    /// Waits until this path was asked for so often.
    pub(crate) fn wait(&self, path: &str, times: usize) {
        let book = self.book.0.lock().unwrap();
        let (book, over) = self.book.1.wait_timeout_while(book, PATIENCE, |book| count(book, path) < times).unwrap();
        assert!(!over.timed_out(), "{path} was asked for {} times", count(&book, path));
    }
}

fn count(book: &Book, path: &str) -> usize {
    book.asked.iter().filter(|asked| asked.path == path).count()
}

fn converse(stream: &TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        let manner = {
            let mut book = shared.0.lock().unwrap();
            let manner = book.manners.get(&asked.path).cloned();
            book.asked.push(asked.clone());
            shared.1.notify_all();
            manner
        };
        let done = || json!({ "did": asked.path }).to_string();
        let (status, form, body, more) = match manner {
            None => (200, "application/json", done(), 0),
            Some(Manner::Answer(status, form, body)) => (status, form, body, 0),
            Some(Manner::Lie) => (200, "application/json", done(), 100),
            Some(Manner::Late(latch)) => {
                latch.wait();
                (200, "application/json", done(), 0)
            }
            Some(Manner::Hang) => {
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
            Some(Manner::BreakOff) => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        };
        let length = body.len() + more;
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {form}\r\ncontent-length: {length}\r\n\r\n");
        let mut writer = stream;
        if writer.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).is_err() || more > 0 {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => value.clone_into(&mut authorization),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { method, path, authorization, body: serde_json::from_slice(&body).unwrap_or_default() })
}
