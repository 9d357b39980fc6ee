//! Access tokens: requested with client credentials, and read strictly from the answer of the token endpoint.
//!
//! It must not know what a token is used for. Values of tokens stay out of all texts.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use crate::{
    definition::ClientCredentials,
    http_client::{client_error, http_client},
    text::printable_excerpt,
};

/// Largest answer of a token endpoint, in bytes.
const LARGEST_ANSWER: usize = 64 << 10;
/// Lifetime of a token that names none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);
/// Longest lifetime that is used. A token that names a longer one is requested again after it.
const LONGEST_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// The only type of tokens that is sent.
const TOKEN_TYPE: &str = "bearer";

/// A token of a token endpoint.
#[derive(Debug)]
pub(crate) struct AccessToken {
    pub(crate) token: SecretString,
    pub(crate) lifetime: Duration,
}

/// Gets a token with client credentials.
///
/// # Errors
/// The reason, without addresses and values.
pub(crate) async fn fetch_token(credentials: &ClientCredentials, secret: &SecretString) -> Result<AccessToken, String> {
    let mut form = vec![("grant_type", "client_credentials")];
    form.extend(credentials.scope.as_deref().map(|scope| ("scope", scope)));
    let request = http_client(&credentials.token_url)?
        .post(&credentials.token_url)
        .basic_auth(&credentials.client_id, Some(secret.expose_secret()))
        .form(&form);
    let failed = |error: reqwest::Error| format!("no token: {}", client_error(&error));
    let mut answer = request.send().await.map_err(failed)?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("no token: the token endpoint returned status {}", status.as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > LARGEST_ANSWER {
            return Err(format!("no token: the answer of the token endpoint is larger than {LARGEST_ANSWER} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    read_token(&body).map_err(|problem| format!("no token: {problem}"))
}

/// Reads the answer of a token endpoint.
///
/// *Source*: RFC 6749 §5.1. An absent `token_type` counts as `Bearer`, an absent `expires_in` as an hour.
///
/// # Errors
/// The member that cannot be used, with its value unless it is the token.
fn read_token(body: &[u8]) -> Result<AccessToken, String> {
    let members: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| "the answer of the token endpoint is not a JSON object".to_owned())?;
    let member = |name: &str| members.get(name).filter(|value| !value.is_null());
    let token = match member("access_token") {
        None => return Err("the answer of the token endpoint has no access_token".to_owned()),
        Some(Value::String(token)) if token.is_empty() => {
            return Err("access_token of the token endpoint is empty".to_owned());
        }
        Some(Value::String(token)) if token.bytes().all(|byte| byte.is_ascii_graphic()) => token,
        Some(Value::String(_)) => {
            return Err("access_token of the token endpoint has characters that a header cannot hold".to_owned());
        }
        Some(_) => return Err("access_token of the token endpoint is not a text".to_owned()),
    };
    if let Some(kind) = member("token_type")
        && !kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case(TOKEN_TYPE))
    {
        let shown = printable_excerpt(&kind.to_string());
        return Err(format!("token_type of the token endpoint is {shown}, expected \"Bearer\""));
    }
    let lifetime = match member("expires_in") {
        None => DEFAULT_LIFETIME,
        Some(seconds) => read_seconds(seconds).ok_or_else(|| {
            let shown = printable_excerpt(&seconds.to_string());
            format!("expires_in of the token endpoint is {shown}, expected a number of seconds, for example 3600")
        })?,
    };
    Ok(AccessToken { token: token.as_str().into(), lifetime: lifetime.min(LONGEST_LIFETIME) })
}

/// Returns a number of seconds, also one that is written as `3600.0` or `"3600"`.
fn read_seconds(value: &Value) -> Option<Duration> {
    let whole = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    // A number beyond the range of a duration is as good as the longest.
    let fraction = || value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds.min(1e9));
    whole.map(Duration::from_secs).or_else(|| fraction().map(Duration::from_secs_f64))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use serde_json::{Value, json};

    use super::read_token;

    fn read(body: &Value) -> Result<(String, u64), String> {
        let token = read_token(body.to_string().as_bytes())?;
        Ok((token.token.expose_secret().to_owned(), token.lifetime.as_secs()))
    }

    #[test]
    fn every_form_of_a_lifetime_is_read_or_refused_with_its_value() {
        let refused = |shown: &str| {
            Err(format!("expires_in of the token endpoint is {shown}, expected a number of seconds, for example 3600"))
        };
        for (given, want) in [
            (json!(60), Ok(60)),
            (json!(0), Ok(0)),
            (json!(3600.0), Ok(3600)),
            (json!(0.5), Ok(0)),
            (json!("3600"), Ok(3600)),
            (json!(null), Ok(3600)),
            (json!(u64::MAX), Ok(2_592_000)),
            (json!(1e300), Ok(2_592_000)),
            (json!(-5), refused("-5")),
            (json!(-0.5), refused("-0.5")),
            (json!("soon"), refused("\"soon\"")),
            (json!([1]), refused("[1]")),
        ] {
            let read = read(&json!({"access_token": "X", "token_type": "Bearer", "expires_in": given}));
            assert_eq!(read, want.map(|seconds| ("X".to_owned(), seconds)), "{given}");
        }
    }

    #[test]
    fn an_answer_that_is_not_a_usable_token_is_refused_with_its_member() {
        for (answer, want) in [
            (json!({"access_token": "X", "token_type": "bearer"}), Ok(())),
            (json!({"access_token": "X"}), Ok(())),
            (
                json!({"access_token": "X", "token_type": "mac"}),
                Err("token_type of the token endpoint is \"mac\", expected \"Bearer\""),
            ),
            (
                json!({"access_token": "X", "token_type": 5}),
                Err("token_type of the token endpoint is 5, expected \"Bearer\""),
            ),
            (json!({"access_token": ""}), Err("access_token of the token endpoint is empty")),
            (json!({"access_token": 5}), Err("access_token of the token endpoint is not a text")),
            (
                json!({"access_token": "A\nB: c"}),
                Err("access_token of the token endpoint has characters that a header cannot hold"),
            ),
            (json!({"error": "x"}), Err("the answer of the token endpoint has no access_token")),
            (json!("X"), Err("the answer of the token endpoint is not a JSON object")),
        ] {
            let read = read(&answer).map(|_| ());
            assert_eq!(read, want.map_err(str::to_owned), "{answer}");
        }
    }
}
