//! The four wires: what a request looks like on each and how its answer is read.
//!
//! It must not know sockets: bytes are built and events are read, by whoever has them.

use serde_json::value::RawValue;

use crate::{Api, Event, Failure, FailureKind, Request};

mod anthropic;
mod completions;
mod conversation;
mod effort;
mod google;
mod kept;
mod parts;
mod responses;
pub(crate) mod unplaced;

/// A request as it is sent. The credential is in the headers and nowhere else.
pub(crate) struct Prepared {
    /// Where to.
    pub(crate) url: String,
    /// Besides the content type. Later ones replace earlier ones of the same name.
    pub(crate) headers: Vec<(String, String)>,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its end has not been seen.
    Open,
    /// It is whole; what may still come is what it used.
    Whole,
    /// It has ended and `Stop` was the last event.
    Ended,
}

/// Reads the events of one answer.
pub(crate) trait Decode: Send {
    /// Reads the data of one server-sent event.
    ///
    /// # Errors
    /// What the provider said in the stream, or [`FailureKind::Broken`]. What was ready before stays to be taken.
    fn event(&mut self, data: &str) -> Result<Progress, Failure>;

    /// Learns that nothing more comes.
    ///
    /// # Errors
    /// [`FailureKind::Broken`] unless the answer is whole.
    fn end(&mut self) -> Result<(), Failure>;

    /// Takes what is ready.
    fn take(&mut self) -> Vec<Event>;

    /// How many bytes of the answer are held that no event has told of yet.
    fn held(&self) -> usize;

    /// The members of events that are read.
    fn members(&self) -> &'static [&'static str];
}

/// A decoder for one answer over `api`. `None` for the wire that is none.
pub(crate) fn decoder(api: Api) -> Option<Box<dyn Decode>> {
    match api {
        Api::AnthropicMessages => Some(Box::new(anthropic::decoder::Decoder::default())),
        Api::OpenaiCompletions => Some(Box::new(completions::decoder::Decoder::default())),
        Api::OpenaiResponses => Some(Box::new(responses::decoder::Decoder::default())),
        Api::GoogleGenerativeAi => Some(Box::new(google::decoder::Decoder::default())),
        Api::Demo => None,
    }
}

/// Builds what is sent for `request`.
///
/// # Errors
/// [`FailureKind::Refused`] if the entry's address or model id cannot be put into a URL.
pub(crate) fn prepare(request: &Request) -> Result<Prepared, Failure> {
    match request.entry.api {
        Api::AnthropicMessages => anthropic::request::prepare(request),
        Api::OpenaiCompletions => completions::request::prepare(request),
        Api::OpenaiResponses => responses::request::prepare(request),
        Api::GoogleGenerativeAi => google::request::prepare(request),
        Api::Demo => Err(Failure::new(FailureKind::Refused, "the demo model has no wire")),
    }
}

/// The base address without its trailing slashes.
fn base(request: &Request) -> &str {
    request.entry.base_url.trim_end_matches('/')
}

/// The address of `path` below the base address. A query of the base stays behind the path. A path that begins with the
/// version with which the base ends has it once.
fn below(request: &Request, path: &str) -> String {
    let (base, query) = match request.entry.base_url.split_once('?') {
        Some((base, query)) => (base, Some(query).filter(|query| !query.is_empty())),
        None => (request.entry.base_url.as_str(), None),
    };
    let base = base.trim_end_matches('/');
    let base = if path.starts_with("/v1/") { base.strip_suffix("/v1").unwrap_or(base) } else { base };
    query.map_or_else(|| format!("{base}{path}"), |query| format!("{base}{path}?{query}"))
}

/// Whether the requests go to `host` or a host below it.
fn goes_to(request: &Request, host: &str) -> bool {
    reqwest::Url::parse(&request.entry.base_url).ok().is_some_and(|url| {
        url.host_str().is_some_and(|name| name == host || name.strip_suffix(host).is_some_and(|sub| sub.ends_with('.')))
    })
}

/// `arguments` as a JSON object; what is none is sent back as `{}`, since providers refuse anything else.
fn object(arguments: &str) -> &RawValue {
    serde_json::from_str::<&RawValue>(arguments)
        .ok()
        .filter(|raw| raw.get().starts_with('{'))
        .unwrap_or_else(|| serde_json::from_str("{}").expect("an empty object is JSON"))
}

/// Reads the data of an event of a wire whose events are all JSON.
fn read<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, Failure> {
    serde_json::from_str(data).map_err(|error| {
        let excerpt = crate::failure::excerpt(data);
        Failure::new(FailureKind::Broken, format!("malformed event in the stream (terminated): {error}: {excerpt}"))
    })
}

/// Writes a body.
fn write(body: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(body)
        .map_err(|error| Failure::new(FailureKind::Refused, format!("the request cannot be written: {error}")))
}

/// The failure of a stream that stopped in the middle.
fn unfinished() -> Failure {
    Failure::new(FailureKind::Broken, "stream ended before its end (terminated)")
}

/// The failure of a stream that its server says is over, although a call in it is not.
fn cut_call() -> Failure {
    Failure::new(FailureKind::Broken, "stream ended within the arguments of a tool call (terminated)")
}

/// The failure of an answer that the provider held back.
fn withheld(reason: &str) -> Failure {
    Failure::new(FailureKind::Refused, format!("the provider withheld the answer: {}", crate::failure::excerpt(reason)))
}

/// The failure of an answer with content that nobody asked for and that has no place in a conversation here. It would
/// come again.
fn unread(what: &str) -> Failure {
    let what = crate::failure::excerpt(what);
    Failure::new(FailureKind::Refused, format!("the answer holds content that cannot be read: {what}"))
}

/// The failure of an answer that does not fit together.
fn misplaced(what: &str) -> Failure {
    Failure::new(FailureKind::Broken, format!("malformed stream (terminated): {}", crate::failure::excerpt(what)))
}

/// Whether two texts hold the same JSON value.
fn is_same_json(left: &str, right: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    left == right || read(left).is_some_and(|left| read(right) == Some(left))
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use serde_json::{Value, json};

    use super::*;
    use crate::{AssistantMessage, Entry, Level, Message, Part, Price, Thinking, ThinkingMode};

    fn request(api: Api, base_url: &str) -> Request {
        let entry = Entry {
            id: "small-1".to_owned(),
            name: String::new(),
            api,
            provider: "local".to_owned(),
            base_url: base_url.to_owned(),
            reasoning: true,
            input: Vec::new(),
            cost: Price::default(),
            context_window: 128_000,
            max_tokens: 64_000,
            thinking: None,
            headers: Default::default(),
            tells_usage: true,
        };
        Request {
            entry: Arc::new(entry),
            key: None,
            system: Some("Be brief.".to_owned()),
            messages: vec![Message::User(vec![Part::text("hi")])],
            tools: Vec::new(),
            max_tokens: None,
            level: Some(Level::High),
            session: Some("s1".to_owned()),
            silence: Duration::from_secs(1),
        }
    }

    fn body(request: &Request) -> Value {
        serde_json::from_slice(&prepare(request).unwrap().body).unwrap()
    }

    /// A call of another model with its result.
    fn called(id: &str) -> [Message; 2] {
        let (id, name, arguments) = (id.to_owned(), "ls".to_owned(), "{}".to_owned());
        let call = Part::ToolCall { id: id.clone(), name: name.clone(), arguments, signature: None };
        let (provider, model) = ("elsewhere".to_owned(), "big-1".to_owned());
        [
            Message::Assistant(AssistantMessage {
                parts: vec![call],
                api: Api::GoogleGenerativeAi,
                provider,
                model,
                payload: None,
            }),
            Message::ToolResult { id, name, parts: Vec::new(), is_error: false },
        ]
    }

    #[test]
    fn what_an_endpoint_of_completions_takes_follows_from_its_host() {
        for (base_url, role, store, old, new, cache) in [
            ("https://api.openai.com/v1", "developer", json!(false), Value::Null, json!(64_000), json!("s1")),
            (
                "https://x.openai.azure.com/openai/v1",
                "developer",
                json!(false),
                Value::Null,
                json!(64_000),
                json!("s1"),
            ),
            ("https://api.groq.com/openai/v1", "system", Value::Null, Value::Null, json!(64_000), Value::Null),
            ("http://127.0.0.1:11434/v1", "system", Value::Null, json!(64_000), Value::Null, Value::Null),
            ("https://not-api.openai.com.example/v1", "system", Value::Null, json!(64_000), Value::Null, Value::Null),
        ] {
            let body = body(&request(Api::OpenaiCompletions, base_url));
            let of = |name: &str| body.get(name).cloned().unwrap_or_default();
            let got = (of("store"), of("max_tokens"), of("max_completion_tokens"), of("prompt_cache_key"));
            assert_eq!(body["messages"][0]["role"], role, "{base_url}");
            assert_eq!(got, (store, old, new, cache), "{base_url}");
        }
    }

    #[test]
    fn mistral_gets_ids_of_nine_letters_and_digits() {
        let mut request = request(Api::OpenaiCompletions, "https://api.mistral.ai/v1");
        request.messages.extend(called("call_r1_0"));
        let body = body(&request);
        let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        assert_eq!(body["messages"][3]["tool_call_id"], id);
    }

    #[test]
    fn gemini_3_gets_a_stand_in_for_a_signature_that_another_model_did_not_give() {
        let mut request = request(Api::GoogleGenerativeAi, "https://generativelanguage.googleapis.com/v1beta");
        request.messages.extend(called("a"));
        assert_eq!(body(&request)["contents"][1]["parts"][0].get("thoughtSignature"), None);
        let levels = Thinking { mode: ThinkingMode::GoogleLevel, min_level: Level::Low, max_level: Level::High };
        request.entry = Arc::new(Entry { thinking: Some(levels), ..(*request.entry).clone() });
        let signature = &body(&request)["contents"][1]["parts"][0]["thoughtSignature"];
        assert_eq!(signature, "skip_thought_signature_validator");
    }

    #[test]
    fn anthropic_is_not_asked_to_think_on_behind_calls_that_were_made_without_thinking() {
        let mut request = request(Api::AnthropicMessages, "https://api.anthropic.com");
        assert_eq!(body(&request)["thinking"], json!({"type": "enabled", "budget_tokens": 16_384}));
        request.messages.extend(called("a"));
        assert_eq!(body(&request)["thinking"], json!({"type": "disabled"}));
        request.messages.push(Message::User(vec![Part::text("and now?")]));
        assert_eq!(body(&request)["thinking"], json!({"type": "enabled", "budget_tokens": 16_384}));
    }

    #[test]
    fn anthropics_own_features_are_asked_of_anthropic_only() {
        let of = |base_url| {
            let prepared = prepare(&request(Api::AnthropicMessages, base_url)).unwrap();
            let beta = prepared.headers.into_iter().find(|(name, _)| name == "anthropic-beta").map(|(_, value)| value);
            (prepared.url, beta)
        };
        let features = "fine-grained-tool-streaming-2025-05-14,interleaved-thinking-2025-05-14";
        let own = ("https://api.anthropic.com/v1/messages".to_owned(), Some(features.to_owned()));
        assert_eq!(of("https://api.anthropic.com"), own);
        assert_eq!(of("https://api.anthropic.com/v1/"), own);
        assert_eq!(of("http://127.0.0.1:9000"), ("http://127.0.0.1:9000/v1/messages".to_owned(), None));
    }
}
