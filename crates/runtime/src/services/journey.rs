//! The way of one request, redirects included, to an answer.

use std::{sync::atomic::Ordering, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
    },
};

use super::{
    Hiding, Known, Wanted,
    address::Origin,
    answer::{Answer, Size},
    connection::{Connection, Taken, is_over},
    pool::Pool,
};

/// So many redirects are followed.
const MOST_HOPS: usize = 5;

/// The most that is read of an answer that is an error or a redirect, bytes.
const ERROR_LIMIT: usize = 64 << 10;

/// Whether a byte of the call has left. It outlives the journey.
#[derive(Default)]
pub(super) struct Departure {
    left: bool,
    watched: Option<(Taken, u64)>,
}

impl Departure {
    pub(super) fn has_left(&self) -> bool {
        self.left || self.has_left_lately()
    }

    /// Whether a byte has left over the connection that is watched.
    fn has_left_lately(&self) -> bool {
        self.watched.as_ref().is_some_and(|(taken, before)| taken.load(Ordering::Acquire) > *before)
    }

    fn watch(&mut self, connection: &Connection) {
        self.left = self.has_left();
        let taken = connection.taken();
        let before = taken.load(Ordering::Acquire);
        self.watched = Some((taken, before));
    }
}

pub(super) struct Journey<'a> {
    pub(super) known: &'a Known,
    pub(super) hiding: Hiding<'a>,
    pub(super) pool: &'a Pool,
    /// The largest body of an answer, bytes.
    pub(super) response: usize,
    pub(super) limit: Duration,
}

/// One request of the journey.
struct Hop {
    origin: Origin,
    target: String,
    /// Once the service's origin was left they never come back: whoever sends us there again is not the service.
    with_credentials: bool,
}

impl Journey<'_> {
    /// # Errors
    /// Why no whole answer came; `departure` says how far the request had got.
    pub(super) async fn make(self, wanted: &Wanted, departure: &mut Departure) -> Result<Answer, String> {
        let mut hop =
            Hop { origin: self.known.base.origin.clone(), target: wanted.target.clone(), with_credentials: true };
        for _ in 0..MOST_HOPS {
            let (answer, next) = self.hop(&hop, wanted, departure).await?;
            match next {
                None => return Ok(answer),
                Some(next) => hop = next,
            }
        }
        let (answer, _) = self.hop(&hop, wanted, departure).await?;
        Ok(answer)
    }

    async fn hop(
        &self,
        hop: &Hop,
        wanted: &Wanted,
        departure: &mut Departure,
    ) -> Result<(Answer, Option<Hop>), String> {
        let (mut connection, response) = self.ask(hop, wanted, departure).await?;
        let (head, mut body) = response.into_parts();
        let limit = if head.status.is_success() { self.response } else { ERROR_LIMIT };
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let form = head.headers.get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).map(str::to_owned);
        let next = self.redirected(hop, wanted, head.status, &head.headers);
        let is_bodiless = wanted.method == Method::HEAD;
        let announced = announced.filter(|_| !is_bodiless);
        let (body, size) = match read(&mut connection, &mut body, limit, announced).await {
            Ok((bytes, size)) => (bytes, size),
            Err(error) => return Err(format!("its answer ({}) broke off: {}", head.status.as_u16(), causes(&error))),
        };
        if size == Size::Whole {
            self.pool.put(hop.origin.clone(), connection);
        }
        Ok((Answer { status: head.status, form, body, size }, next))
    }

    /// Sends the request of `hop` over a connection that waits, or a new one.
    async fn ask(
        &self,
        hop: &Hop,
        wanted: &Wanted,
        departure: &mut Departure,
    ) -> Result<(Connection, Response<Incoming>), String> {
        while let Some(mut connection) = self.pool.take(&hop.origin) {
            departure.watch(&connection);
            match connection.send(self.request(hop, wanted)?).await {
                Ok(response) => return Ok((connection, response)),
                // It had been closed before, or the service will do no harm by doing it twice.
                Err(_) if !departure.has_left_lately() || wanted.idempotent => {}
                Err(error) => return Err(format!("the connection broke: {}", causes(&error))),
            }
        }
        let mut connection = Connection::open(&hop.origin, &self.pool.tls, self.limit).await?;
        departure.watch(&connection);
        match connection.send(self.request(hop, wanted)?).await {
            Ok(response) => Ok((connection, response)),
            Err(error) => Err(format!("the connection broke: {}", causes(&error))),
        }
    }

    fn request(&self, hop: &Hop, wanted: &Wanted) -> Result<Request<Full<Bytes>>, String> {
        let credentials = Some(&self.known.credentials).filter(|_| hop.with_credentials);
        let target = credentials.map_or_else(|| hop.target.clone(), |known| known.add_to_target(&hop.target));
        let mut headers = HeaderMap::new();
        let host = HeaderValue::from_str(&hop.origin.authority()).map_err(|_| "its address is not valid".to_owned())?;
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("countersign/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = wanted.body.clone().map_or_else(Bytes::new, Bytes::from);
        if wanted.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(credentials) = credentials {
            credentials.add_to(&mut headers);
        }
        let mut request = Request::builder()
            .method(wanted.method.clone())
            .uri(target)
            .body(Full::new(body))
            .map_err(|_| "the address of this request is not valid".to_owned())?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Where an answer sends the request on to, if it may go there.
    fn redirected(&self, hop: &Hop, wanted: &Wanted, status: StatusCode, headers: &HeaderMap) -> Option<Hop> {
        let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        if !is_redirect || wanted.body.is_some() || !matches!(wanted.method, Method::GET | Method::HEAD) {
            return None;
        }
        let url = hop.origin.url(&hop.target)?.join(headers.get(LOCATION)?.to_str().ok()?).ok()?;
        let origin = Origin::of(&url)?;
        let with_credentials = hop.with_credentials && origin == hop.origin;
        let url = if with_credentials { url } else { self.hiding.strip(url)? };
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        Some(Hop { origin, target: format!("{}{query}", url.path()), with_credentials })
    }
}

async fn read(
    connection: &mut Connection,
    body: &mut Incoming,
    limit: usize,
    announced: Option<u64>,
) -> Result<(Vec<u8>, Size), hyper::Error> {
    let mut read = Vec::new();
    let too_large = Size::TooLarge { limit, announced };
    if limit == 0 && !is_over(body) {
        return Ok((read, too_large));
    }
    while let Some(bytes) = connection.next(body).await {
        let bytes = bytes?;
        let room = limit - read.len();
        if bytes.len() > room {
            read.extend_from_slice(&bytes[..room]);
            return Ok((read, too_large));
        }
        read.extend_from_slice(&bytes);
    }
    Ok((read, Size::Whole))
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
