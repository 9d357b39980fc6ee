//! Server on loopback that is the model of the programs, and the service whose tool the gateway calls.

use std::{
    collections::HashMap,
    io::{self, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    http::{HttpReply, HttpRequest},
    script::{MessageScript, ScriptId, ScriptStep},
    wire::{ModelReply, Wire},
};

/// Prefix of the paths of the service.
pub const SERVICE_PATH: &str = "/service/";

/// Reason why the model has no result.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No port on loopback is free.
    #[error("no port on loopback: {0}")]
    NoPort(#[source] io::Error),
    /// There is no such script.
    #[error("unknown script")]
    UnknownScript,
    /// Results are counted from 1.
    #[error("the model has no result 0: expected 1 for the first result")]
    ZeroCount,
    /// The script ended before.
    #[error("the model has no result {count}: {ending}")]
    Ended {
        /// Number of the result.
        count: usize,
        /// Last text of the model.
        ending: String,
    },
    /// The program did not call in time.
    #[error("the model has no result {count} after {seconds} s")]
    NoResult {
        /// Number of the result.
        count: usize,
        /// Time of the wait.
        seconds: u64,
    },
}

/// Running server. It ends with the process.
pub struct StubServer {
    /// Address without a path, such as `http://127.0.0.1:4711`.
    pub url: String,
    state: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    shared: Mutex<SharedState>,
    changed: Condvar,
}

#[derive(Default)]
struct SharedState {
    scripts: HashMap<ScriptId, ScriptProgress>,
    /// Number of requests to each path of the service.
    actions: HashMap<String, usize>,
}

/// Script with what has happened.
struct ScriptProgress {
    script: MessageScript,
    results: Vec<String>,
    /// Number of messages after the first that may be sent.
    released: usize,
    /// Last text of the model, if it ended the script.
    ending: Option<String>,
}

impl StubServer {
    /// Starts a server on a port of its own.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> Result<Self, ModelError> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(ModelError::NoPort)?;
        let url = format!("http://{}", listener.local_addr().map_err(ModelError::NoPort)?);
        let state = Arc::<ServerState>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || {
                    // A program that hangs up early asks again.
                    let _ = state.serve(&stream);
                });
            }
        });
        Ok(Self { url, state })
    }

    /// Adds a script.
    pub fn add_script(&self, script: impl Into<MessageScript>) -> ScriptId {
        let script = script.into();
        let mut shared = self.state.lock();
        let id = ScriptId(shared.scripts.len() + 1);
        shared.scripts.insert(id, ScriptProgress { script, results: Vec::new(), released: 0, ending: None });
        id
    }

    /// Lets the model send one further message.
    pub fn release_call(&self, id: ScriptId) {
        if let Some(progress) = self.state.lock().scripts.get_mut(&id) {
            progress.released += 1;
        }
        self.state.changed.notify_all();
    }

    /// Waits until the model has so many results, and returns the last of them. `count` is 1 for the first result.
    ///
    /// # Errors
    /// `count` is 0, the script ended before, or `limit` is over.
    pub fn wait_result(&self, id: ScriptId, count: usize, limit: Duration) -> Result<String, ModelError> {
        let index = count.checked_sub(1).ok_or(ModelError::ZeroCount)?;
        let is_open = |shared: &mut SharedState| {
            let progress = shared.scripts.get(&id);
            progress.is_some_and(|progress| progress.results.len() < count && progress.ending.is_none())
        };
        let waited = self.state.changed.wait_timeout_while(self.state.lock(), limit, is_open);
        let (shared, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let progress = shared.scripts.get(&id).ok_or(ModelError::UnknownScript)?;
        match (progress.results.get(index), &progress.ending) {
            (Some(result), _) => Ok(result.clone()),
            (None, Some(ending)) => Err(ModelError::Ended { count, ending: ending.clone() }),
            (None, None) => Err(ModelError::NoResult { count, seconds: limit.as_secs() }),
        }
    }

    /// Returns how often the service was called at `path`.
    pub fn action_count(&self, path: &str) -> usize {
        self.state.lock().actions.get(path).copied().unwrap_or_default()
    }
}

impl ServerState {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let request = HttpRequest::read(&mut BufReader::new(stream))?;
        self.reply_to(&request).write(&mut &*stream)
    }

    fn reply_to(&self, request: &HttpRequest) -> HttpReply {
        if let Some(path) = request.path().strip_prefix(SERVICE_PATH) {
            *self.lock().actions.entry(path.to_owned()).or_default() += 1;
            return HttpReply::json(200, &json!({ "result": format!("{path} is done") }));
        }
        let Some(wire) = Wire::for_path(request.path()) else {
            return HttpReply::json(404, &json!({ "error": { "message": "not found" } }));
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        wire.encode(&self.model_reply(wire, &body))
    }

    fn model_reply(&self, wire: Wire, body: &Value) -> ModelReply {
        let request = wire.decode(body);
        let mut shared = self.lock();
        let found = ScriptId::find(&request).filter(|_| !request.tools.is_empty());
        let Some((id, progress)) = found.and_then(|id| Some((id, shared.scripts.get_mut(&id)?))) else {
            // Titles, summaries and the like.
            return ModelReply::Text("ok".to_owned());
        };
        let step = progress.script.next_step(id, &request);
        progress.results = request.results;
        if let ScriptStep::Reply(ModelReply::Text(text)) = &step {
            progress.ending = Some(text.clone());
        }
        self.changed.notify_all();
        match step {
            ScriptStep::Reply(reply) => reply,
            ScriptStep::ReplyWhenReleased { reply, releases } => {
                let waits = |shared: &mut SharedState| {
                    shared.scripts.get(&id).is_some_and(|progress| progress.released < releases)
                };
                drop(self.changed.wait_while(shared, waits));
                reply
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{HttpReply, HttpRequest, ModelError, StubServer};
    use crate::script::{ModelScript, ScriptId};
    use std::time::Duration;

    fn ask(server: &StubServer, target: &str, body: &serde_json::Value) -> HttpReply {
        server.state.reply_to(&HttpRequest { target: target.to_owned(), body: body.to_string().into_bytes() })
    }

    #[test]
    fn a_script_calls_its_tool_and_gets_the_result() {
        let server = StubServer::start().unwrap();
        let id = server.add_script(ModelScript { tool: "turn", arguments: json!({}), calls: 1 });
        let chat = |messages: serde_json::Value| {
            let tools = json!([{ "type": "function", "function": { "name": "countersign_turn" } }]);
            let reply = ask(&server, "/v1/chat/completions", &json!({ "messages": messages, "tools": tools }));
            String::from_utf8(reply.body).unwrap()
        };
        let user = json!({ "role": "user", "content": id.prompt() });
        assert!(chat(json!([user])).contains("countersign_turn"));
        assert!(server.wait_result(id, 1, Duration::ZERO).unwrap_err().to_string().contains("after 0 s"));
        assert!(chat(json!([user, { "role": "tool", "content": "done" }])).contains("finished"));
        assert_eq!(server.wait_result(id, 1, Duration::ZERO).unwrap(), "done");
        assert!(server.wait_result(id, 2, Duration::ZERO).unwrap_err().to_string().contains("finished"));
        assert!(matches!(server.wait_result(id, 0, Duration::ZERO), Err(ModelError::ZeroCount)));
    }

    #[test]
    fn requests_without_tools_or_script_get_a_text_and_actions_are_counted() {
        let server = StubServer::start().unwrap();
        let title = json!({ "messages": [{ "role": "user", "content": ScriptId(9).prompt() }] });
        let reply = ask(&server, "/v1/messages?beta=true", &title);
        assert!(String::from_utf8(reply.body).unwrap().contains("\"ok\""));
        assert_eq!(ask(&server, "/v1/models", &json!({})).status, 404);
        ask(&server, "/service/door", &json!({}));
        assert_eq!((server.action_count("door"), server.action_count("lamp")), (1, 0));
    }
}
