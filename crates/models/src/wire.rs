//! The four wires: the format of a request on each, and the reading of its answer.
//!
//! It must not know sockets: it builds bytes and reads events for a caller that has them.

use std::vec::Drain;

use serde_json::value::RawValue;

use crate::{FailureKind, ModelApi, ModelEvent, ModelFailure, ModelRequest};

mod anthropic;
mod completions;
mod conversation;
mod effort;
mod google;
mod kept_members;
mod lenient;
mod object_only;
mod parts;
mod responses;
mod text_envelope;
pub(crate) mod unplaced;

/// A request as it is sent. The credential is in the headers and nowhere else.
pub(crate) struct WireRequest {
    /// Address of the request.
    pub(crate) url: String,
    /// Besides the content type. Later ones replace earlier ones of the same name.
    pub(crate) headers: Vec<(String, String)>,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

/// Progress of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerProgress {
    /// The end has not been seen.
    Open,
    /// The answer is complete; only its usage may still come.
    Whole,
    /// The answer has ended and [`ModelEvent::Stop`] was the last event.
    Ended,
}

/// Reads the events of one answer.
pub(crate) trait AnswerDecoder: Send {
    /// Reads the data of one server-sent event.
    ///
    /// # Errors
    /// The provider's error in the stream, or [`FailureKind::Broken`]. Items that were ready before stay to be taken.
    fn decode_event(&mut self, data: &str) -> Result<AnswerProgress, ModelFailure>;

    /// Reads the data of an event that certainly holds more of the open text and nothing else, as nearly all do. If it returns
    /// `false`, nothing was read: [`AnswerDecoder::decode_event`] reads any event.
    fn decode_text(&mut self, _data: &str) -> bool {
        false
    }

    /// Learns that nothing more comes.
    ///
    /// # Errors
    /// [`FailureKind::Broken`] unless the answer is whole.
    fn finish_stream(&mut self) -> Result<(), ModelFailure>;

    /// Takes the ready events.
    fn take_events(&mut self) -> Drain<'_, ModelEvent>;

    /// Returns the bytes of the answer that are held and in no event yet.
    fn held_bytes(&self) -> usize;

    /// Returns the members of events that are read.
    fn known_members(&self) -> &'static [&'static str];
}

/// Returns a decoder for one answer over `api`. `None` for the wire that is none.
pub(crate) fn decoder_for(api: ModelApi) -> Option<Box<dyn AnswerDecoder>> {
    match api {
        ModelApi::AnthropicMessages => Some(Box::new(anthropic::decoder::AnthropicDecoder::default())),
        ModelApi::OpenaiCompletions => Some(Box::new(completions::decoder::CompletionsDecoder::default())),
        ModelApi::OpenaiResponses => Some(Box::new(responses::decoder::ResponsesDecoder::default())),
        ModelApi::GoogleGenerativeAi => Some(Box::new(google::decoder::GoogleDecoder::default())),
        ModelApi::Demo => None,
    }
}

/// Builds the request on the wire for `request`.
///
/// # Errors
/// [`FailureKind::Refused`] if the entry's address or model id cannot be put into a URL.
pub(crate) fn prepare_request(request: &ModelRequest) -> Result<WireRequest, ModelFailure> {
    match request.entry.api {
        ModelApi::AnthropicMessages => anthropic::request::prepare_request(request),
        ModelApi::OpenaiCompletions => completions::request::prepare_request(request),
        ModelApi::OpenaiResponses => responses::request::prepare_request(request),
        ModelApi::GoogleGenerativeAi => google::request::prepare_request(request),
        ModelApi::Demo => Err(ModelFailure::new(FailureKind::Refused, "the demo model has no HTTP API")),
    }
}

/// Returns the base address without its trailing slashes.
fn base_address(request: &ModelRequest) -> &str {
    request.entry.base_url.trim_end_matches('/')
}

/// Returns the address of `path` below the base address. A query of the base stays after the path. A path that begins with the
/// version with which the base ends has it once.
fn endpoint_url(request: &ModelRequest, path: &str) -> String {
    let (base, query) = match request.entry.base_url.split_once('?') {
        Some((base, query)) => (base, Some(query).filter(|query| !query.is_empty())),
        None => (request.entry.base_url.as_str(), None),
    };
    let base = base.trim_end_matches('/');
    let base = if path.starts_with("/v1/") { base.strip_suffix("/v1").unwrap_or(base) } else { base };
    query.map_or_else(|| format!("{base}{path}"), |query| format!("{base}{path}?{query}"))
}

/// Reports whether the requests go to `host` or a host below it.
fn goes_to(request: &ModelRequest, host: &str) -> bool {
    reqwest::Url::parse(&request.entry.base_url).ok().is_some_and(|url| {
        url.host_str().is_some_and(|name| name == host || name.strip_suffix(host).is_some_and(|sub| sub.ends_with('.')))
    })
}

/// Returns `arguments` as a JSON object; any other text is sent back as `{}`, since providers refuse anything else.
fn object_or_empty(arguments: &str) -> &RawValue {
    serde_json::from_str::<&RawValue>(arguments)
        .ok()
        .filter(|raw| raw.get().starts_with('{'))
        .unwrap_or_else(|| serde_json::from_str("{}").expect("an empty object is JSON"))
}

/// Reads the data of an event of a wire whose events are all JSON.
fn parse_json<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelFailure> {
    serde_json::from_str(data).map_err(|error| {
        let excerpt = crate::failure::excerpt(data);
        ModelFailure::new(
            FailureKind::Broken,
            format!("malformed event in the stream (terminated): {error}: {excerpt}"),
        )
    })
}

/// Writes a body.
fn serialise_body(body: &impl serde::Serialize) -> Result<Vec<u8>, ModelFailure> {
    serde_json::to_vec(body)
        .map_err(|error| ModelFailure::new(FailureKind::Refused, format!("cannot serialize the request: {error}")))
}

/// Returns the failure of a stream that stopped in the middle.
fn unfinished_stream() -> ModelFailure {
    ModelFailure::new(FailureKind::Broken, "stream ended before its end (terminated)")
}

/// Returns the failure of a stream that its server ended, although a call in it is not complete.
fn cut_call() -> ModelFailure {
    ModelFailure::new(FailureKind::Broken, "stream ended within the arguments of a tool call (terminated)")
}

/// Returns the failure of an answer that the provider held back.
fn withheld_answer(reason: &str) -> ModelFailure {
    ModelFailure::new(
        FailureKind::Refused,
        format!("the provider withheld the answer: {}", crate::failure::excerpt(reason)),
    )
}

/// Returns the failure of an answer with content that the request did not cause and that has no place in a conversation here. It would
/// come again.
fn unreadable_content(what: &str) -> ModelFailure {
    let what = crate::failure::excerpt(what);
    ModelFailure::new(FailureKind::Refused, format!("the answer holds content that cannot be read: {what}"))
}

/// Reports whether an error says anything. Some servers send an empty one with every chunk.
pub(crate) fn says_something(error: &serde_json::Value) -> bool {
    use serde_json::Value;
    match error {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
    }
}

/// Returns the failure of an answer that does not fit together.
fn malformed_stream(what: &str) -> ModelFailure {
    ModelFailure::new(FailureKind::Broken, format!("malformed stream (terminated): {}", crate::failure::excerpt(what)))
}

/// Reports whether two texts hold the same JSON value.
fn is_same_json(left: &str, right: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    left == right || read(left).is_some_and(|left| read(right) == Some(left))
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        AnswerMessage, MessagePart, ModelEntry, RequestMessage, ThinkingLevel, ThinkingParameter, ThinkingSupport,
        TokenPrice,
    };

    fn request(api: ModelApi, base_url: &str) -> ModelRequest {
        let entry = ModelEntry {
            id: "small-1".to_owned(),
            name: String::new(),
            api,
            provider: "local".to_owned(),
            base_url: base_url.to_owned(),
            reasoning: true,
            input: Vec::new(),
            cost: TokenPrice::default(),
            context_window: 128_000,
            max_tokens: 64_000,
            thinking: None,
            headers: Default::default(),
            tells_usage: true,
        };
        ModelRequest {
            entry: Arc::new(entry),
            key: None,
            system: Some("Be brief.".to_owned()),
            messages: vec![RequestMessage::User(vec![MessagePart::text("hi")])],
            tools: Vec::new(),
            max_tokens: None,
            level: Some(ThinkingLevel::High),
            session: Some("s1".to_owned()),
            silence: Duration::from_secs(1),
        }
    }

    fn body(request: &ModelRequest) -> Value {
        serde_json::from_slice(&prepare_request(request).unwrap().body).unwrap()
    }

    /// Returns a call of another model with its result.
    fn called(id: &str) -> [RequestMessage; 2] {
        let (id, name, arguments) = (id.to_owned(), "ls".to_owned(), "{}".to_owned());
        let call = MessagePart::ToolCall { id: id.clone(), name: name.clone(), arguments, signature: None };
        let (provider, model) = ("elsewhere".to_owned(), "big-1".to_owned());
        [
            RequestMessage::Assistant(AnswerMessage {
                parts: vec![call],
                api: ModelApi::GoogleGenerativeAi,
                provider,
                model,
                payload: None,
            }),
            RequestMessage::ToolResult { id, name, parts: Vec::new(), is_error: false },
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
            let body = body(&request(ModelApi::OpenaiCompletions, base_url));
            let of = |name: &str| body.get(name).cloned().unwrap_or_default();
            let got = (of("store"), of("max_tokens"), of("max_completion_tokens"), of("prompt_cache_key"));
            assert_eq!(body["messages"][0]["role"], role, "{base_url}");
            assert_eq!(got, (store, old, new, cache), "{base_url}");
        }
    }

    #[test]
    fn mistral_gets_ids_of_nine_letters_and_digits() {
        let mut request = request(ModelApi::OpenaiCompletions, "https://api.mistral.ai/v1");
        request.messages.extend(called("call_r1_0"));
        let body = body(&request);
        let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        assert_eq!(body["messages"][3]["tool_call_id"], id);
    }

    #[test]
    fn gemini_3_gets_a_stand_in_for_a_signature_that_another_model_did_not_give() {
        let mut request = request(ModelApi::GoogleGenerativeAi, "https://generativelanguage.googleapis.com/v1beta");
        request.messages.extend(called("a"));
        assert_eq!(body(&request)["contents"][1]["parts"][0].get("thoughtSignature"), None);
        let levels = ThinkingSupport {
            mode: ThinkingParameter::GoogleLevel,
            min_level: ThinkingLevel::Low,
            max_level: ThinkingLevel::High,
        };
        request.entry = Arc::new(ModelEntry { thinking: Some(levels), ..(*request.entry).clone() });
        let signature = &body(&request)["contents"][1]["parts"][0]["thoughtSignature"];
        assert_eq!(signature, "skip_thought_signature_validator");
    }

    #[test]
    fn anthropic_gets_no_thinking_after_calls_made_without_thinking() {
        let mut request = request(ModelApi::AnthropicMessages, "https://api.anthropic.com");
        assert_eq!(body(&request)["thinking"], json!({"type": "enabled", "budget_tokens": 16_384}));
        request.messages.extend(called("a"));
        assert_eq!(body(&request)["thinking"], json!({"type": "disabled"}));
        request.messages.push(RequestMessage::User(vec![MessagePart::text("and now?")]));
        assert_eq!(body(&request)["thinking"], json!({"type": "enabled", "budget_tokens": 16_384}));
    }

    #[test]
    fn features_of_anthropic_are_requested_from_anthropic_only() {
        let of = |base_url| {
            let prepared = prepare_request(&request(ModelApi::AnthropicMessages, base_url)).unwrap();
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
