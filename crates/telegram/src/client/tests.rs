//! Over a real socket.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{BadAddress, BotResponse, BotTransport, HttpBotTransport};

const TOKEN: &str = "123:very-secret";

fn http(address: &str) -> HttpBotTransport {
    HttpBotTransport::new(address, TOKEN.to_owned().into()).unwrap()
}

/// Runs a server that answers one request with `answer`, or never if that is empty. Returns the request.
async fn served(answer: &str, path: &str, patience: Duration) -> (Result<BotResponse, String>, String) {
    let answer = answer.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}{path}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"{\"a\":1}") {
            let mut chunk = [0; 4096];
            let count = socket.read(&mut chunk).await.unwrap();
            assert!(count > 0, "the request ended early");
            request.extend_from_slice(&chunk[..count]);
        }
        if answer.is_empty() {
            while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
        } else {
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
        String::from_utf8(request).unwrap()
    });
    let answered = http(&address).call("sendMessage", "{\"a\":1}".to_owned(), patience).await;
    (answered, server.await.unwrap())
}

#[tokio::test]
async fn a_call_is_a_post_of_json_below_the_bots_address() {
    for (path, want) in [("", "/bot123:very-secret/sendMessage"), ("/api/", "/api/bot123:very-secret/sendMessage")] {
        let answer = "HTTP/1.1 429 x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        let (answered, request) = served(answer, path, Duration::from_secs(10)).await;
        assert_eq!(answered, Ok(BotResponse { status: 429, body: b"{}".to_vec() }));
        assert!(request.starts_with(&format!("POST {want} HTTP/1.1\r\n")), "{request}");
        assert!(request.to_lowercase().contains("content-type: application/json\r\n"), "{request}");
    }
}

#[tokio::test]
async fn no_error_contains_the_token() {
    let patience = Duration::from_secs(10);
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{";
    let nonsense = "bot123:very-secret is no HTTP\r\n\r\n";
    let mut errors = vec![
        served(cut, "", patience).await.0.unwrap_err(),
        served(nonsense, "", patience).await.0.unwrap_err(),
        served("", "", Duration::from_millis(50)).await.0.unwrap_err(),
    ];
    let echo = "{\"ok\":false,\"description\":\"/bot123:very-secret/getMe is not here\"}";
    let head = format!("HTTP/1.1 404 x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{echo}", echo.len());
    let echoed = served(&head, "", patience).await.0.unwrap();
    errors.push(String::from_utf8(echoed.body).unwrap());
    // It has no listener.
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    errors.push(http(&format!("http://{unused}")).call("getMe", String::new(), patience).await.unwrap_err());
    for error in errors {
        assert!(!error.is_empty() && !error.contains("very-secret"), "{error}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let answer = "HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (answered, _) = served(answer, "", Duration::from_secs(10)).await;
    assert_eq!(answered.map(|answer| answer.status), Ok(307));
}

#[test]
fn an_address_is_an_http_url() {
    for address in ["", "api.telegram.org", "ftp://a", "mailto:a@b", "file:///a"] {
        let made = HttpBotTransport::new(address, TOKEN.to_owned().into()).map(drop);
        assert_eq!(made, Err(BadAddress), "{address}");
    }
}
