//! The credentials of one service: put into its requests, and hidden in everything that comes out.

use base64::{Engine, prelude::BASE64_STANDARD};
use countersign_tools::secrets::Redactor;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::{ServiceAuth, address::encode_value};

const HIDDEN: &str = "[hidden]";

/// Headers that say how a message is to be read, and may not be set by a configuration.
const RESERVED: [&str; 8] =
    ["connection", "content-length", "content-type", "host", "te", "trailer", "transfer-encoding", "upgrade"];

/// Credentials that cannot be sent. Its text holds nothing of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredentials {
    /// No header has such a name, or it is not ours to set.
    #[error("the header {0:?} is not valid for credentials")]
    Name(String),
    /// A line break or the like.
    #[error("the credentials contain a character that is not valid in an HTTP header")]
    Value,
    /// The name would be ended by it.
    #[error("the user name of basic authentication must not contain a colon")]
    Colon,
    /// A parameter needs a name.
    #[error("the query parameter for credentials has no name")]
    Parameter,
}

pub(super) struct ServiceCredentials {
    header: Option<(HeaderName, HeaderValue)>,
    query: Option<(String, SecretString)>,
    /// Over every form in which a service could read them back to us.
    veil: Redactor,
}

impl ServiceCredentials {
    pub(super) fn new(auth: &ServiceAuth) -> Result<Self, BadCredentials> {
        let (header, query, secrets) = match auth {
            ServiceAuth::None => (None, None, Vec::new()),
            ServiceAuth::Bearer(token) => {
                let token = token.expose_secret().trim();
                (Some((AUTHORIZATION, header_value(&format!("Bearer {token}"))?)), None, vec![token.to_owned()])
            }
            ServiceAuth::Header { name, token } => {
                let refused = || BadCredentials::Name(name.clone());
                let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
                if RESERVED.contains(&key.as_str()) {
                    return Err(refused());
                }
                let token = token.expose_secret().trim();
                let bare = token.split_once(' ').map(|(_, bare)| bare.trim().to_owned());
                let secrets = std::iter::once(token.to_owned()).chain(bare).collect();
                (Some((key, header_value(token)?)), None, secrets)
            }
            ServiceAuth::Query { param, token } => {
                if param.is_empty() {
                    return Err(BadCredentials::Parameter);
                }
                let token = token.expose_secret().trim().to_owned();
                (None, Some((param.clone(), token.clone().into())), vec![token])
            }
            ServiceAuth::Basic { user, password } => {
                if user.contains(':') {
                    return Err(BadCredentials::Colon);
                }
                let password = password.expose_secret();
                let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
                (Some((AUTHORIZATION, header_value(&format!("Basic {pair}"))?)), None, vec![password.to_owned(), pair])
            }
        };
        Ok(Self { header, query, veil: Redactor::for_secrets(secrets.iter().map(String::as_str), HIDDEN) })
    }

    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some((name, value)) = &self.header {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Returns `target` with the credential's parameter, once.
    pub(super) fn add_to_target(&self, target: &str) -> String {
        let Some((param, token)) = &self.query else { return target.to_owned() };
        let target = self.without_parameter(target);
        let joint = if target.contains('?') { '&' } else { '?' };
        format!("{target}{joint}{}={}", encode_value(param), encode_value(token.expose_secret()))
    }

    /// Returns `url` as another origin may see it, or none if it holds a credential that cannot be taken out.
    pub(super) fn strip_url(&self, mut url: Url) -> Option<Url> {
        let _ = url.set_username("");
        let _ = url.set_password(None);
        if let Some(query) = url.query() {
            let query = self.without_parameter(&format!("?{query}"));
            url.set_query(query.strip_prefix('?').filter(|query| !query.is_empty()));
        }
        let decoded = percent_encoding::percent_decode_str(url.as_str()).decode_utf8_lossy();
        (!self.veil.contains_secret(url.as_str()) && !self.veil.contains_secret(&decoded)).then_some(url)
    }

    fn without_parameter(&self, target: &str) -> String {
        let (Some((param, _)), Some((path, query))) = (&self.query, target.split_once('?')) else {
            return target.to_owned();
        };
        let is_ours = |item: &str| {
            let name = item.split('=').next().unwrap_or_default();
            percent_encoding::percent_decode_str(name).decode_utf8_lossy() == param.as_str()
        };
        let others: Vec<&str> = query.split('&').filter(|item| !is_ours(item)).collect();
        if others.is_empty() { path.to_owned() } else { format!("{path}?{}", others.join("&")) }
    }

    /// Returns `text` without any secret.
    pub(super) fn redact_text(&self, text: &str) -> String {
        self.veil.redact_text(text).into_owned()
    }

    /// Hides in every text of `value`, names included.
    pub(super) fn redact_value(&self, value: &mut Value) {
        self.veil.redact_value(value);
    }
}

fn header_value(text: &str) -> Result<HeaderValue, BadCredentials> {
    let mut value = HeaderValue::from_str(text).map_err(|_| BadCredentials::Value)?;
    value.set_sensitive(true);
    Ok(value)
}
