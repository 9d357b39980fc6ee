//! A provider on loopback that answers every request with one stream of completions, written whole in one write.

use std::{
    io::{BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use serde_json::{Value, json};

use crate::bench::web;

/// A running provider. It ends with the process.
pub(crate) struct Provider {
    address: SocketAddr,
    written: Arc<Mutex<Option<Instant>>>,
}

impl Provider {
    /// Answers with `deltas`, one chunk each.
    pub(crate) fn start(deltas: Vec<String>) -> anyhow::Result<Self> {
        Self::taking_turns(vec![answer(&said(&deltas), "stop")])
    }

    /// Wants a call of `tool` in every first of two answers, and says "done" in the other.
    pub(crate) fn calling(tool: &str, arguments: &str) -> anyhow::Result<Self> {
        let function = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "tool_calls": [{ "index": 0, "id": "c1", "type": "function", "function": function }] });
        Self::taking_turns(vec![answer(&[call], "tool_calls"), answer(&said(&["done".to_owned()]), "stop")])
    }

    /// When the last answer was written.
    pub(crate) fn written(&self) -> Option<Instant> {
        self.written.lock().ok().and_then(|written| *written)
    }

    /// Gives these answers in turn, again and again.
    fn taking_turns(answers: Vec<String>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let answers: Vec<Arc<[u8]>> = answers.into_iter().map(|answer| answer.into_bytes().into()).collect();
        let written: Arc<Mutex<Option<Instant>>> = Arc::default();
        let at = Arc::clone(&written);
        thread::spawn(move || {
            for (stream, answer) in listener.incoming().flatten().zip(answers.iter().cycle()) {
                let (answer, at) = (Arc::clone(answer), Arc::clone(&at));
                // A client that hangs up is its own business.
                thread::spawn(move || serve(stream, &answer, &at).ok());
            }
        });
        Ok(Self { address, written })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

fn serve(mut stream: TcpStream, answer: &[u8], written: &Mutex<Option<Instant>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    web::read(&mut BufReader::new(stream.try_clone()?))?;
    if let Ok(mut written) = written.lock() {
        *written = Some(Instant::now());
    }
    stream.write_all(answer)
}

fn said(deltas: &[String]) -> Vec<Value> {
    deltas.iter().map(|delta| json!({ "content": delta })).collect()
}

fn answer(deltas: &[Value], finish: &str) -> String {
    let mut answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
    let mut event = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "small-1",
            "choices": choices, "usage": usage,
        });
        answer += &format!("data: {chunk}\n\n");
    };
    for delta in deltas {
        event(json!([{ "index": 0, "delta": delta, "finish_reason": null }]), Value::Null);
    }
    event(json!([{ "index": 0, "delta": {}, "finish_reason": finish }]), Value::Null);
    event(
        json!([]),
        json!({ "prompt_tokens": 10, "completion_tokens": deltas.len(), "total_tokens": deltas.len() + 10 }),
    );
    answer + "data: [DONE]\n\n"
}
