//! Authentication of people at the console and the adapters over HTTP: passwords, the cookie after a login, and the limit of failures.
//!
//! A cookie itself names its login and its time, sealed with a key in the data directory. Only the cookies that were
//! revoked before their time are stored.

use std::{io::Write as _, net::IpAddr, os::unix::fs::OpenOptionsExt as _, path::Path, sync::Arc, time::Duration};

use axum::http::HeaderMap;
use countersign_config::WebConfig;
use countersign_core::{id::PrincipalId, time::Millis};
use countersign_runtime::Clock;
use countersign_view::principals;
use parking_lot::Mutex;
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};

use super::{access::TokenScope, cookie, revoked::RevokedCookies};
use crate::{bearer_token::bearer_token, limits::FailedAuth, origin};

/// The name of the cookie.
pub const COOKIE: &str = "hermes_session";
/// Lifetime of a cookie.
pub const LASTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most wrong passwords from one address in a minute, and most wrong tokens in addition.
const MOST_WRONG: u32 = 5;
/// Name in the record of a caller with the shared password.
const SHARED: &str = "web";
/// Name in the record of a caller if no login is configured.
const OPEN: &str = "web:open";

/// Method of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// No login is configured.
    Open,
    /// A cookie; the token of forms that it is bound to.
    Cookie {
        /// Token that a page has to send back.
        csrf: String,
    },
    /// A program's token.
    Token {
        /// Scopes of the token.
        scopes: Vec<TokenScope>,
    },
}

/// Caller of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCaller {
    /// In the record.
    pub principal: PrincipalId,
    /// For people.
    pub name: String,
    /// Method of its authentication.
    pub via: AuthMethod,
}

impl HttpCaller {
    /// Reports whether this caller has `scope`. People have all of them.
    pub fn has_scope(&self, scope: TokenScope) -> bool {
        match &self.via {
            AuthMethod::Open | AuthMethod::Cookie { .. } => true,
            AuthMethod::Token { scopes } => scopes.contains(&scope),
        }
    }

    /// Returns the token that a page of this caller has to send with each change; empty if no login is configured.
    pub fn csrf_token(&self) -> &str {
        match &self.via {
            AuthMethod::Cookie { csrf } => csrf,
            AuthMethod::Open | AuthMethod::Token { .. } => "",
        }
    }
}

/// Reason of a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLoggedIn {
    /// The password is wrong.
    Wrong,
    /// Too many from this address were wrong; even the right one is refused for a while.
    TooOften,
}

/// Knows programs by their tokens.
pub trait TokenLookup: Send + Sync {
    /// Returns the name and scopes of the token with this text.
    fn find_token(&self, token: &str) -> Option<(String, Vec<TokenScope>)>;
}

/// Logins that may come in, and those that have.
pub struct WebAuth {
    key: hmac::Key,
    web: WebConfig,
    clock: Clock,
    wrong: Mutex<FailedAuth>,
    /// Counted by themselves: tokens cannot be guessed, and a program whose token is out of date must not keep people of its address out.
    wrong_tokens: Mutex<FailedAuth>,
    revoked: Arc<RevokedCookies>,
    tokens: Option<Box<dyn TokenLookup>>,
    /// Names under which pages of ours may be served in addition to that of the request: by a proxy.
    names: Vec<String>,
    is_tls: bool,
    /// The authority of a `public_url` that is reached over TLS.
    public: Option<String>,
}

impl WebAuth {
    /// Opens it with its key and the revoked cookies from `folder`. `names` are authorities of `public_url` and the like.
    ///
    /// # Errors
    /// The system's error about the files.
    pub fn open(
        folder: &Path,
        web: WebConfig,
        clock: Clock,
        names: Vec<String>,
        is_tls: bool,
        tokens: Option<Box<dyn TokenLookup>>,
    ) -> std::io::Result<Self> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &load_or_create_key(&folder.join("web.key"))?);
        let revoked = Arc::new(RevokedCookies::open(folder.join("web.revoked"), clock.now())?);
        let [wrong, wrong_tokens] = [(); 2].map(|()| Mutex::new(FailedAuth::new(MOST_WRONG)));
        Ok(Self { key, web, clock, wrong, wrong_tokens, revoked, tokens, names, is_tls, public: None })
    }

    /// Returns the same for a gateway that a proxy may serve at `public_url`.
    pub fn behind_proxy(self, public_url: Option<&str>) -> Self {
        let public = public_url.and_then(|url| url.strip_prefix("https://")?.split('/').next());
        Self { public: public.map(str::to_lowercase), ..self }
    }

    /// Returns the same for a node of a cluster: a login at one node is valid at all that have this secret.
    pub fn in_cluster(self, secret: &SecretString) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret.expose_secret().as_bytes());
        let key = hmac::sign(&root, b"countersign cookies of a cluster, 1");
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), ..self }
    }

    /// Reports whether a login is needed.
    pub fn is_guarded(&self) -> bool {
        self.web.is_guarded()
    }

    /// Reports whether the response to a request goes back over TLS: that of the port, or of a proxy before it. A browser says how it
    /// reached the page; for other clients the requested name has to do.
    pub(crate) fn is_secure(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        self.is_tls
            || match text("origin") {
                Some(origin) => origin.starts_with("https://"),
                None => text("host").is_some_and(|host| self.public.as_deref() == Some(&host.to_lowercase())),
            }
    }

    /// Authenticates the sender of a request, with tokens that are not counted against its address elsewhere.
    ///
    /// # Errors
    /// [`NotLoggedIn`] for a token that is not known. A known one is accepted however many were wrong.
    pub fn authenticate_request(
        &self,
        from: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Result<Option<HttpCaller>, NotLoggedIn> {
        let caller = self.find_caller(headers);
        match (caller.as_ref().map(|caller| &caller.via), from) {
            (Some(AuthMethod::Cookie { .. }), Some(from)) => self.wrong.lock().record_success(from),
            (Some(AuthMethod::Token { .. }), Some(from)) => self.wrong_tokens.lock().record_success(from),
            (Some(AuthMethod::Open) | None, _) | (_, None) => {}
        }
        if caller.is_some() || bearer_token(headers).is_none() {
            return Ok(caller);
        }
        let Some(from) = from else { return Err(NotLoggedIn::Wrong) };
        let (now, mut wrong) = (self.clock.now(), self.wrong_tokens.lock());
        if wrong.is_limited(from, now) {
            return Err(NotLoggedIn::TooOften);
        }
        wrong.record_failure(from, now);
        Err(NotLoggedIn::Wrong)
    }

    /// Reports whether a program's token is known.
    pub fn knows_token(&self, token: &str) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.find_token(token).is_some())
    }

    /// Returns the sender of a request, if it is known.
    pub fn find_caller(&self, headers: &HeaderMap) -> Option<HttpCaller> {
        if let Some(token) = bearer_token(headers) {
            // A wrong token does not fall back to another identity.
            let (name, scopes) = self.tokens.as_ref()?.find_token(token)?;
            let principal = PrincipalId::new(format!("token:{name}"));
            return Some(HttpCaller { principal, name, via: AuthMethod::Token { scopes } });
        }
        if !self.is_guarded() {
            return Some(HttpCaller {
                principal: PrincipalId::new(OPEN),
                name: "you".to_owned(),
                via: AuthMethod::Open,
            });
        }
        self.of_cookie(cookie::read_value(headers, COOKIE)?)
    }

    fn of_cookie(&self, cookie: &str) -> Option<HttpCaller> {
        let (login, token) = self.verify_cookie(cookie)?;
        if self.revoked.contains_token(&token) {
            return None;
        }
        let csrf = hex::encode(hmac::sign(&self.key, format!("form {token}").as_bytes()));
        let principal = login_principal(login.as_deref());
        Some(HttpCaller {
            principal,
            name: login.unwrap_or_else(|| "you".to_owned()),
            via: AuthMethod::Cookie { csrf },
        })
    }

    /// Returns the login of a cookie that we sealed and that is not out of date, and its token as we write it: hex has two spellings.
    fn verify_cookie(&self, cookie: &str) -> Option<(Option<String>, String)> {
        let (token, seal) = cookie.split_once('.')?;
        let bytes: [u8; 32] = hex::decode(token).ok()?.try_into().ok()?;
        let login = self.all_logins().find(|login| login_hash(login.as_deref()) == bytes[24..])?;
        let sealed = [&bytes[..], &self.password_fingerprint(login.as_deref())?].concat();
        hmac::verify(&self.key, &sealed, &hex::decode(seal).ok()?).ok()?;
        let issued = Millis(u64::from_be_bytes(bytes[16..24].try_into().ok()?));
        let now = self.clock.now();
        (issued <= now + Duration::from_secs(60) && now < issued + LASTS).then(|| (login, hex::encode(bytes)))
    }

    /// Returns the text of a new cookie for a caller with `password`.
    ///
    /// # Errors
    /// [`NotLoggedIn`].
    pub(crate) fn log_in(&self, from: IpAddr, password: &str) -> Result<String, NotLoggedIn> {
        let now = self.clock.now();
        let mut wrong = self.wrong.lock();
        if wrong.is_limited(from, now) {
            return Err(NotLoggedIn::TooOften);
        }
        let given = self.password_digest(password);
        let mut found = None;
        // All are looked at, so that the time taken reveals nothing.
        for login in self.all_logins() {
            let known = self.login_password(login.as_deref()).map(|known| self.password_digest(known.expose_secret()));
            if known.is_some_and(|known| bool::from(subtle::ConstantTimeEq::ct_eq(&known[..], &given[..]))) {
                found = Some(login);
            }
        }
        let Some(login) = found else {
            wrong.record_failure(from, now);
            return Err(NotLoggedIn::Wrong);
        };
        wrong.record_success(from);
        drop(wrong);
        Ok(self.cookie_for(login.as_deref(), now))
    }

    fn cookie_for(&self, login: Option<&str>, now: Millis) -> String {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes[..16]).expect("the operating system has randomness");
        bytes[16..24].copy_from_slice(&now.0.to_be_bytes());
        bytes[24..].copy_from_slice(&login_hash(login));
        let sealed = [&bytes[..], &self.password_fingerprint(login).unwrap_or_default()].concat();
        format!("{}.{}", hex::encode(bytes), hex::encode(hmac::sign(&self.key, &sealed)))
    }

    /// Revokes the cookie of a request. It is valid for no caller any more. A cookie that is not ours is passed over.
    ///
    /// # Errors
    /// It could not be noted; it stays good until it is out of date.
    pub(crate) async fn log_out(&self, headers: &HeaderMap) -> std::io::Result<()> {
        let given = cookie::read_value(headers, COOKIE).and_then(|cookie| self.verify_cookie(cookie));
        let Some((_, token)) = given else { return Ok(()) };
        let now = self.clock.now();
        self.revoked.revoke_token(token, now + LASTS, now).await
    }

    /// Reports whether a page with this origin or address is ours, when the request was for `host`.
    pub fn is_ours(&self, origin: &str, host: Option<&str>) -> bool {
        host.into_iter().chain(self.names.iter().map(String::as_str)).any(|at| origin::is_at(origin, at))
    }

    /// Returns all logins with a password: `None` for the shared one.
    fn all_logins(&self) -> impl Iterator<Item = Option<String>> + '_ {
        let shared = self.web.password.iter().map(|_| None);
        shared.chain(self.web.users.iter().map(|(login, _)| Some(login.clone())))
    }

    fn login_password(&self, login: Option<&str>) -> Option<&SecretString> {
        match login {
            None => self.web.password.as_ref(),
            Some(login) => self.web.users.iter().find(|(known, _)| known == login).map(|(_, password)| password),
        }
    }

    fn password_digest(&self, password: &str) -> Vec<u8> {
        hmac::sign(&self.key, format!("password {password}").as_bytes()).as_ref().to_vec()
    }

    /// Returns the part of a cookie's seal that depends on the password: with another password the cookie is no longer valid.
    fn password_fingerprint(&self, login: Option<&str>) -> Option<Vec<u8>> {
        self.login_password(login).map(|password| self.password_digest(password.expose_secret()))
    }
}

/// Returns the name of a login in the record.
fn login_principal(login: Option<&str>) -> PrincipalId {
    login.map_or_else(|| PrincipalId::new(SHARED), principals::of_console)
}

/// Returns the hash of a login in a cookie.
fn login_hash(login: Option<&str>) -> [u8; 8] {
    let text = login.map_or_else(String::new, |login| format!("login {login}"));
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut short = [0; 8];
    short.copy_from_slice(&digest.as_ref()[..8]);
    short
}

/// Reads the key at `path`, made if it is not there.
fn load_or_create_key(path: &Path) -> std::io::Result<Vec<u8>> {
    if let Ok(text) = std::fs::read_to_string(path)
        && let Some(key) = hex::decode(text.trim()).ok().filter(|key| key.len() == 32)
    {
        return Ok(key);
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the operating system has randomness");
    let fresh = path.with_extension("key.new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(format!("{}\n", hex::encode(key)).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    Ok(key.to_vec())
}

#[cfg(test)]
mod tests;
