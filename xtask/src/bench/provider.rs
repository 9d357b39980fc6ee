//! A provider on loopback that answers every request with one stream of completions, written whole in one write.

use std::{
    io::{BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::{Value, json};

use crate::bench::web;

/// A running provider. It ends with the process.
pub(crate) struct Provider {
    address: SocketAddr,
}

impl Provider {
    /// Answers with `deltas`, one chunk each.
    pub(crate) fn start(deltas: Vec<String>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let answer: Arc<[u8]> = answer(&deltas).into_bytes().into();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                // A client that hangs up is its own business.
                thread::spawn(move || serve(stream, &answer).ok());
            }
        });
        Ok(Self { address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

fn serve(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    web::read(&mut BufReader::new(stream.try_clone()?))?;
    stream.write_all(answer)
}

fn answer(deltas: &[String]) -> String {
    let mut answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
    let mut event = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "small-1",
            "choices": choices, "usage": usage,
        });
        answer += &format!("data: {chunk}\n\n");
    };
    for delta in deltas {
        event(json!([{ "index": 0, "delta": { "content": delta }, "finish_reason": null }]), Value::Null);
    }
    event(json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]), Value::Null);
    event(
        json!([]),
        json!({ "prompt_tokens": 10, "completion_tokens": deltas.len(), "total_tokens": deltas.len() + 10 }),
    );
    answer + "data: [DONE]\n\n"
}
