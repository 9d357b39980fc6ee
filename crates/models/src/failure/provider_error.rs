//! Provider's text about a failure, read from the shapes that providers use.
//!
//! It must not know statuses: [`super::classify`] weighs them.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{
    FailureKind, ModelFailure,
    classify::{classify_failure, held_back, kind_label},
    ending::{self, is_withheld},
    excerpt, hint,
};

/// Returns the failure that an answer with `status` means, from its body and the wait that its headers ask for.
pub(crate) fn with_status(status: u16, body: &str, wait: Option<Duration>) -> ModelFailure {
    let error = ProviderError::from_body(body);
    let redirected = (300..400).contains(&status);
    let message = match &error {
        _ if redirected => "redirected to another address, which is not followed".to_owned(),
        Some(error) => error.full_message(),
        None if body.trim().is_empty() => "no body".to_owned(),
        None => excerpt(body),
    };
    let (words, names) = match &error {
        Some(error) => (error.message.as_str(), error.names.as_str()),
        None => (body, ""),
    };
    // The later one: an earlier attempt would run into the other limit.
    let wait = wait.max(error.as_ref().and_then(|error| error.wait)).or_else(|| wait_in(&message));
    let kind =
        if redirected { FailureKind::Refused } else { in_time(classify_failure(Some(status), words, names), wait) };
    let message = format!("{status} {}", with_label(kind, &message));
    build_failure(kind, message, Some(status), wait)
}

/// Returns the failure that an error inside a stream means.
pub(crate) fn in_stream(body: &str) -> ModelFailure {
    match ProviderError::from_body(body) {
        Some(error) => {
            let wait = error.wait.or_else(|| wait_in(&error.message));
            let kind = in_time(classify_failure(error.status, &error.message, &error.names), wait);
            build_failure(kind, with_label(kind, &error.full_message()), None, wait)
        }
        None => {
            let message = with_label(FailureKind::Server, &excerpt(body));
            let wait = wait_in(&message);
            build_failure(FailureKind::Server, message, None, wait)
        }
    }
}

/// Returns the failure of a success that is no stream of events: an error in disguise, or another endpoint than expected.
///
/// A page or an object comes again with each repetition of the request; an empty body may be a mishap on the way.
pub(crate) fn no_stream(form: Option<&str>, body: &str) -> ModelFailure {
    if parse_body(body).is_some_and(|body| body.get("error").is_some_and(|error| !error.is_null())) {
        return in_stream(body);
    }
    let form = form.unwrap_or("a body");
    if body.trim().is_empty() {
        let message = format!("expected a stream of events, got {form} without content (terminated)");
        return ModelFailure::new(FailureKind::Broken, message);
    }
    let message = format!("expected a stream of events, got {form}: {}", excerpt(body));
    ModelFailure::new(FailureKind::Refused, message)
}

/// Reads a body that is JSON, also after a byte order mark and also as the first of a list.
fn parse_body(body: &str) -> Option<Value> {
    match serde_json::from_str(body.trim_start_matches('\u{feff}')).ok()? {
        Value::Array(items) => items.into_iter().next(),
        whole => Some(whole),
    }
}

fn with_label(kind: FailureKind, message: &str) -> String {
    let label = kind_label(kind);
    // The empty label is in every message.
    if message.to_lowercase().contains(label) { message.to_owned() } else { format!("{label}: {message}") }
}

/// Returns the kind, if the provider asks for a `wait`: an account that is to come back later has used up a quota, and is not
/// unpaid.
fn in_time(kind: FailureKind, wait: Option<Duration>) -> FailureKind {
    if kind == FailureKind::Unpaid && wait.is_some() { FailureKind::Usage } else { kind }
}

/// Returns the wait that words ask for: a length, or a moment with its zone.
fn wait_in(words: &str) -> Option<Duration> {
    hint::in_text(words).or_else(|| hint::moment_in_text(words, SystemTime::now()))
}

fn build_failure(kind: FailureKind, message: String, status: Option<u16>, wait: Option<Duration>) -> ModelFailure {
    ModelFailure { kind, message, status, retry_after: wait.filter(|_| kind.is_retryable()) }
}

struct ProviderError {
    message: String,
    /// The type, code and status that the provider gave, in one line.
    names: String,
    /// The status that the provider would have answered with, where it gives that as a number.
    status: Option<u16>,
    wait: Option<Duration>,
}

impl ProviderError {
    /// Returns the message, with the provider's name of the error if that says that it held the answer back.
    fn full_message(&self) -> String {
        if !held_back(&self.message, &self.names) || self.message.starts_with(ending::HELD_BACK) {
            return self.message.clone();
        }
        let name = self.names.split_whitespace().find(|name| is_withheld(name));
        let name = name.filter(|name| *name != "flagged_input" && !self.message.contains(*name));
        let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
        format!("{}: {name}{}", ending::HELD_BACK, self.message)
    }

    /// Reads `{"error": {"message", "type", "code", "status", "details"}}`, `{"error": "…"}`, `{"message"}`,
    /// `{"detail"}`, also as the first of a list. `None` for anything else.
    fn from_body(body: &str) -> Option<Self> {
        let whole = &parse_body(body)?;
        let error = whole.get("error").filter(|error| !error.is_null()).unwrap_or(whole);
        let message = match error {
            Value::String(text) => text.clone(),
            Value::Object(fields) => ["message", "detail", "error_description", "msg"]
                .iter()
                .find_map(|name| fields.get(*name))
                .map(|message| message.as_str().map_or_else(|| message.to_string(), str::to_owned))
                // OpenRouter passes the words of its provider on as metadata.
                .map(|message| match fields.get("metadata").and_then(|more| more.get("raw")).and_then(Value::as_str) {
                    Some(raw) => format!("{message}: {raw}"),
                    None => message,
                })
                .or_else(|| {
                    ["code", "type", "status"].iter().find_map(|name| fields.get(*name)?.as_str()).map(str::to_owned)
                })?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        };
        let mut names: Vec<_> =
            ["type", "code", "status"].iter().filter_map(|name| error.get(*name)?.as_str()).collect();
        // OpenRouter says in metadata what its moderation met.
        if error.get("metadata").and_then(|more| more.get("flagged_input")).is_some() {
            names.push("flagged_input");
        }
        let wait = hint::in_body(whole, SystemTime::now());
        let status = ["code", "status"].iter().find_map(|name| u16::try_from(error.get(*name)?.as_u64()?).ok());
        let status = status.filter(|status| (400..600).contains(status));
        Some(Self { message: excerpt(&message), names: names.join(" "), status, wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_place_of_a_stream_is_read_in_each_of_its_forms() {
        for body in [
            r#"{"error":{"code":503,"message":"overloaded"}}"#,
            r#"[{"error":{"code":503,"message":"overloaded"}}]"#,
            "\u{feff}{\"error\":{\"code\":503,\"message\":\"overloaded\"}}",
        ] {
            let failure = no_stream(None, body);
            assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Overloaded, "overloaded"), "{body}");
        }
        assert_eq!(no_stream(None, "[]").kind, FailureKind::Refused);
    }

    #[test]
    fn a_message_keeps_the_providers_words_and_names_the_status() {
        for (case, status, body, want) in [
            (
                "anthropic",
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
                (FailureKind::RateLimit, "429 rate limit: slow down"),
            ),
            (
                "openai",
                400,
                r#"{"error":{"message":"too big","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                (FailureKind::Overflow, "400 context too long: too big"),
            ),
            (
                "a list",
                429,
                r#"[{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED"}}]"#,
                (FailureKind::RateLimit, "429 rate limit: slow down"),
            ),
            ("byte order mark", 400, "\u{feff}{\"error\":\"bad input\"}", (FailureKind::Refused, "400 bad input")),
            ("text", 500, r#"{"error":"internal server error"}"#, (FailureKind::Server, "500 internal server error")),
            ("detail", 422, r#"{"detail":[{"loc":["body"]}]}"#, (FailureKind::Refused, r#"422 [{"loc":["body"]}]"#)),
            ("html", 502, "<html>\n<h1>Bad</h1>", (FailureKind::Server, "502 server error: <html>\\u{a}<h1>Bad</h1>")),
            ("empty", 503, "", (FailureKind::Overloaded, "503 overloaded: no body")),
            ("no error", 418, "{}", (FailureKind::Refused, "418 {}")),
            (
                "moderation",
                403,
                r#"{"error":{"code":403,"message":"Forbidden","metadata":{"reasons":["violence"],"flagged_input":"x"}}}"#,
                (FailureKind::Refused, "403 the provider withheld the answer: Forbidden"),
            ),
            (
                "policy",
                400,
                r#"{"error":{"code":"content_policy_violation","message":"no"}}"#,
                (FailureKind::Refused, "400 the provider withheld the answer: content_policy_violation: no"),
            ),
            ("redirect", 307, "", (FailureKind::Refused, "307 redirected to another address, which is not followed")),
        ] {
            let failure = with_status(status, body, None);
            assert_eq!((failure.kind, failure.message.as_str()), want, "{case}");
        }
    }

    const CODEX: &str = r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_in_seconds":5400}}"#;

    #[test]
    fn an_error_in_a_stream_counts_by_the_status_that_it_names() {
        for (code, want) in [
            ("400", FailureKind::Refused),
            ("403", FailureKind::Auth),
            ("429", FailureKind::RateLimit),
            ("502", FailureKind::Server),
            ("7", FailureKind::Server),
            ("\"x\"", FailureKind::Server),
        ] {
            let body = format!(r#"{{"error":{{"code":{code},"message":"no"}}}}"#);
            assert_eq!(in_stream(&body).kind, want, "{code}");
        }
    }

    #[test]
    fn a_repeated_error_in_a_stream_is_reported_in_the_providers_words() {
        for (body, want) in [
            (r#"{"error":{"code":"content_filter"}}"#, "the provider withheld the answer: content_filter"),
            (
                r#"{"error":{"type":"content_policy_violation","code":400}}"#,
                "the provider withheld the answer: content_policy_violation",
            ),
            (r#"{"error":"model not found"}"#, "model not found"),
            (
                r#"{"code":"cyber_policy_violation","message":"no"}"#,
                "the provider withheld the answer: cyber_policy_violation: no",
            ),
            (r#"{"type":"error","code":"invalid_image","message":"no image"}"#, "no image"),
        ] {
            let failure = in_stream(body);
            assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Refused, want), "{body}");
        }
    }

    #[test]
    fn a_wait_is_the_longest_of_headers_and_details_else_taken_from_words() {
        let google = r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3.5s"}]}}]"#;
        let words = r#"{"error":{"message":"Please try again in 1.2s"}}"#;
        for (case, body, header, want) in [
            ("header", google, Some(Duration::from_secs(9)), Some(Duration::from_secs(9))),
            ("details", google, None, Some(Duration::from_millis(3500))),
            ("words", words, None, Some(Duration::from_millis(1200))),
            ("a quota whose end nobody tells", r#"{"error":"quota exceeded"}"#, None, None),
            ("quota with its end", CODEX, None, Some(Duration::from_secs(5400))),
            ("the later one", CODEX, Some(Duration::from_secs(9)), Some(Duration::from_secs(5400))),
            ("none", r#"{"error":"slow down"}"#, None, None),
        ] {
            assert_eq!(with_status(429, body, header).retry_after, want, "{case}");
        }
    }

    #[test]
    fn no_end_of_a_wait_is_made_up() {
        let unpaid = r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#;
        let half_an_hour = Some(Duration::from_secs(1800));
        for (case, status, body, want) in [
            ("no credit", 429, unpaid, (FailureKind::Unpaid, None, None)),
            ("402", 402, r#"{"error":{"message":"requires more credits"}}"#, (FailureKind::Unpaid, None, None)),
            (
                "402 with an end",
                402,
                r#"{"error":{"message":"try again in 20s"}}"#,
                (FailureKind::Usage, Some(Duration::from_secs(20)), Some(Duration::from_secs(20))),
            ),
            ("a quota", 429, r#"{"error":"quota exceeded"}"#, (FailureKind::Usage, None, half_an_hour)),
            ("slow down", 429, r#"{"error":"slow down"}"#, (FailureKind::RateLimit, None, None)),
        ] {
            let failure = with_status(status, body, None);
            assert_eq!((failure.kind, failure.retry_after, failure.retry_delay()), want, "{case}");
            assert_eq!(failure.kind.is_retryable(), failure.kind != FailureKind::Unpaid, "{case}");
        }
        assert_eq!(in_stream(unpaid).kind, FailureKind::Unpaid);
    }
}
