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
    ConfiguredService, PreparedRequest, Redactions,
    address::UrlOrigin,
    answer::{BodySize, ServiceResponse},
    connection::{BytesSent, HttpConnection, is_over},
    pool::ConnectionPool,
};

/// Most redirects that are followed.
const MOST_HOPS: usize = 5;

/// The most that is read of an answer that is an error or a redirect, bytes.
const ERROR_LIMIT: usize = 64 << 10;

/// Tracks whether a byte of the call has left. It outlives the journey.
#[derive(Default)]
pub(super) struct DispatchTracker {
    left: bool,
    watched: Option<(BytesSent, u64)>,
}

impl DispatchTracker {
    pub(super) fn has_left(&self) -> bool {
        self.left || self.has_left_lately()
    }

    /// Reports whether a byte has left over the connection that is watched.
    fn has_left_lately(&self) -> bool {
        self.watched.as_ref().is_some_and(|(taken, before)| taken.load(Ordering::Acquire) > *before)
    }

    fn watch_connection(&mut self, connection: &HttpConnection) {
        self.left = self.has_left();
        let taken = connection.bytes_sent();
        let before = taken.load(Ordering::Acquire);
        self.watched = Some((taken, before));
    }
}

pub(super) struct RequestExecutor<'a> {
    pub(super) known: &'a ConfiguredService,
    pub(super) hiding: Redactions<'a>,
    pub(super) pool: &'a ConnectionPool,
    /// The largest body of an answer, bytes.
    pub(super) response: usize,
    pub(super) limit: Duration,
}

/// One request of the journey.
struct RequestHop {
    origin: UrlOrigin,
    target: String,
    /// True if credentials are sent. Once the service's origin was left they never come back: a server that redirects back is not
    /// the service.
    with_credentials: bool,
}

impl RequestExecutor<'_> {
    /// Executes a request, with its redirects.
    ///
    /// # Errors
    /// The reason why no whole answer came; `tracker` says how far the request had got.
    pub(super) async fn execute_request(
        self,
        prepared: &PreparedRequest,
        tracker: &mut DispatchTracker,
    ) -> Result<ServiceResponse, String> {
        let mut hop = RequestHop {
            origin: self.known.base.origin.clone(),
            target: prepared.target.clone(),
            with_credentials: true,
        };
        for _ in 0..MOST_HOPS {
            let (answer, next) = self.send_hop(&hop, prepared, tracker).await?;
            match next {
                None => return Ok(answer),
                Some(next) => hop = next,
            }
        }
        let (answer, _) = self.send_hop(&hop, prepared, tracker).await?;
        Ok(answer)
    }

    async fn send_hop(
        &self,
        hop: &RequestHop,
        prepared: &PreparedRequest,
        tracker: &mut DispatchTracker,
    ) -> Result<(ServiceResponse, Option<RequestHop>), String> {
        let (mut connection, response) = self.send_request(hop, prepared, tracker).await?;
        let (head, mut body) = response.into_parts();
        let limit = if head.status.is_success() { self.response } else { ERROR_LIMIT };
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let form = head.headers.get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).map(str::to_owned);
        let next = self.redirect_hop(hop, prepared, head.status, &head.headers);
        let is_bodiless = prepared.method == Method::HEAD;
        let announced = announced.filter(|_| !is_bodiless);
        let (body, size) = match read_body(&mut connection, &mut body, limit, announced).await {
            Ok((bytes, size)) => (bytes, size),
            Err(error) => {
                return Err(format!("its answer ({}) broke off: {}", head.status.as_u16(), error_chain(&error)));
            }
        };
        if size == BodySize::Whole {
            self.pool.put_idle(hop.origin.clone(), connection);
        }
        Ok((ServiceResponse { status: head.status, form, body, size }, next))
    }

    /// Sends the request of `hop` over a connection that waits, or a new one.
    async fn send_request(
        &self,
        hop: &RequestHop,
        prepared: &PreparedRequest,
        tracker: &mut DispatchTracker,
    ) -> Result<(HttpConnection, Response<Incoming>), String> {
        while let Some(mut connection) = self.pool.take_idle(&hop.origin) {
            tracker.watch_connection(&connection);
            match connection.send_request(self.build_request(hop, prepared)?).await {
                Ok(response) => return Ok((connection, response)),
                // It had been closed before, or the service will do no harm by doing it twice.
                Err(_) if !tracker.has_left_lately() || prepared.idempotent => {}
                Err(error) => return Err(format!("the connection broke: {}", error_chain(&error))),
            }
        }
        let mut connection = HttpConnection::open(&hop.origin, &self.pool.tls, self.limit).await?;
        tracker.watch_connection(&connection);
        match connection.send_request(self.build_request(hop, prepared)?).await {
            Ok(response) => Ok((connection, response)),
            Err(error) => Err(format!("the connection broke: {}", error_chain(&error))),
        }
    }

    fn build_request(&self, hop: &RequestHop, prepared: &PreparedRequest) -> Result<Request<Full<Bytes>>, String> {
        let credentials = Some(&self.known.credentials).filter(|_| hop.with_credentials);
        let target = credentials.map_or_else(|| hop.target.clone(), |known| known.add_to_target(&hop.target));
        let mut headers = HeaderMap::new();
        let host = HeaderValue::from_str(&hop.origin.authority()).map_err(|_| "its address is not valid".to_owned())?;
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("countersign/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = prepared.body.clone().map_or_else(Bytes::new, Bytes::from);
        if prepared.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(credentials) = credentials {
            credentials.add_to(&mut headers);
        }
        let mut request = Request::builder()
            .method(prepared.method.clone())
            .uri(target)
            .body(Full::new(body))
            .map_err(|_| "the address of this request is not valid".to_owned())?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Returns the target of a redirect, if the request may go there.
    fn redirect_hop(
        &self,
        hop: &RequestHop,
        prepared: &PreparedRequest,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<RequestHop> {
        let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        if !is_redirect || prepared.body.is_some() || !matches!(prepared.method, Method::GET | Method::HEAD) {
            return None;
        }
        let url = hop.origin.url_for(&hop.target)?.join(headers.get(LOCATION)?.to_str().ok()?).ok()?;
        let origin = UrlOrigin::from_url(&url)?;
        let with_credentials = hop.with_credentials && origin == hop.origin;
        let url = if with_credentials { url } else { self.hiding.strip_url(url)? };
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        Some(RequestHop { origin, target: format!("{}{query}", url.path()), with_credentials })
    }
}

async fn read_body(
    connection: &mut HttpConnection,
    body: &mut Incoming,
    limit: usize,
    announced: Option<u64>,
) -> Result<(Vec<u8>, BodySize), hyper::Error> {
    let mut read = Vec::new();
    let too_large = BodySize::TooLarge { limit, announced };
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
    Ok((read, BodySize::Whole))
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
