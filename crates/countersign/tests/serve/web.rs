//! A browser without script: requests in plain HTTP, forms, and a cookie.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::{
    gateway::{Gateway, PATIENCE},
    http::{Http, Reply},
};

/// Whoever looks at pages.
#[derive(Clone, Default)]
pub(crate) struct Visitor {
    pub(crate) cookie: Option<String>,
    /// Headers beside those that every browser sends.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) text: String,
    reply: Reply,
}

impl Page {
    /// A header of the reply.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.reply.header(name)
    }

    /// The value of the first field of this name on the page.
    pub(crate) fn field(&self, name: &str) -> String {
        let wanted = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.text.split_once(&wanted).unwrap_or_else(|| panic!("no field {name}: {}", self.text));
        rest.split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&")
    }
}

impl Visitor {
    pub(crate) fn get(&self, gateway: &Gateway, path: &str) -> Page {
        self.send(gateway, "GET", path, "")
    }

    /// Sends a form as a page of the gateway's own does.
    pub(crate) fn post(&self, gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> Page {
        let body = form(fields);
        let mut visitor = self.clone();
        if visitor.headers.iter().all(|(name, _)| *name != "origin") {
            visitor.headers.push(("origin", format!("http://{}", gateway.address)));
        }
        visitor.headers.push(("content-type", "application/x-www-form-urlencoded".to_owned()));
        visitor.send(gateway, "POST", path, &body)
    }

    /// Sends a form and does not wait for what comes of it. The connection stays open for as long as it is held.
    pub(crate) fn begin(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> TcpStream {
        let body = form(fields);
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {0}\r\norigin: http://{0}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {1}\r\n\r\n{body}",
            gateway.address,
            body.len()
        )
        .unwrap();
        stream
    }

    /// What a stream says until it has said `last`, and the stream, which stays open for as long as it is held.
    pub(crate) fn hear(&self, gateway: &Gateway, path: &str, last: &str) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address).unwrap();
        let (mut heard, mut piece) = (String::new(), [0; 4096]);
        while !heard.contains(last) {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "no {last}: {heard}");
            heard.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        (heard, stream)
    }

    fn send(&self, gateway: &Gateway, method: &str, path: &str, body: &str) -> Page {
        let cookie = self.cookie.iter().map(|cookie| ("cookie", cookie.clone()));
        let headers = self.headers.iter().cloned().chain(cookie);
        let client = headers.fold(Http::new(&gateway.address), |client, (name, value)| client.with(name, &value));
        let reply = client.send(method, path, body);
        Page { status: reply.status, text: reply.body.clone(), reply }
    }
}

/// The fields as a form sends them.
fn form(fields: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}"));
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    pairs.join("&")
}
