//! A browser without JavaScript: requests in plain HTTP, forms, and a cookie.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::process::{
    GatewayServer, WAIT_TIMEOUT,
    http::{HttpClient, HttpClientReply},
};

/// Browser that shows pages of a gateway.
#[derive(Clone, Default)]
pub struct BrowserClient {
    /// Cookie of the login, as `name=value`.
    pub cookie: Option<String>,
    /// Headers in addition to those that every browser sends.
    pub headers: Vec<(&'static str, String)>,
}

/// Page, read whole.
#[derive(Debug)]
pub struct BrowserPage {
    /// Status code.
    pub status: u16,
    /// Text of the page.
    pub text: String,
    reply: HttpClientReply,
}

impl BrowserPage {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.reply.header(name)
    }

    /// Returns the value of the first field of this name on the page.
    pub fn field_value(&self, name: &str) -> String {
        let marker = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.text.split_once(&marker).unwrap_or_else(|| panic!("no field {name}: {}", self.text));
        rest.split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&")
    }
}

impl BrowserClient {
    /// Opens a page.
    pub fn get_page(&self, gateway: &GatewayServer, path: &str) -> BrowserPage {
        self.send_request(gateway, "GET", path, "")
    }

    /// Sends a form as a page of the gateway does.
    pub fn post_form(&self, gateway: &GatewayServer, path: &str, fields: &[(&str, &str)]) -> BrowserPage {
        let body = encode_form(fields);
        let mut visitor = self.clone();
        if visitor.headers.iter().all(|(name, _)| *name != "origin") {
            visitor.headers.push(("origin", format!("http://{}", gateway.address)));
        }
        visitor.headers.push(("content-type", "application/x-www-form-urlencoded".to_owned()));
        visitor.send_request(gateway, "POST", path, &body)
    }

    /// Sends a form and does not wait for the reply. The connection stays open as long as it is held.
    pub fn start_post(gateway: &GatewayServer, path: &str, fields: &[(&str, &str)]) -> TcpStream {
        let body = encode_form(fields);
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

    /// Returns the text of a stream up to `last`, and the stream, which stays open as long as it is held.
    pub fn read_until(&self, gateway: &GatewayServer, path: &str, last: &str) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address).unwrap();
        let (mut received, mut piece) = (String::new(), [0; 4096]);
        while !received.contains(last) {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "no {last}: {received}");
            received.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        (received, stream)
    }

    fn send_request(&self, gateway: &GatewayServer, method: &str, path: &str, body: &str) -> BrowserPage {
        let cookie = self.cookie.iter().map(|cookie| ("cookie", cookie.clone()));
        let headers = self.headers.iter().cloned().chain(cookie);
        let client =
            headers.fold(HttpClient::new(&gateway.address), |client, (name, value)| client.with_header(name, &value));
        let reply = client.send_request(method, path, body);
        BrowserPage { status: reply.status, text: reply.body.clone(), reply }
    }
}

/// Encodes the fields as a form sends them.
fn encode_form(fields: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}"));
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    pairs.join("&")
}
