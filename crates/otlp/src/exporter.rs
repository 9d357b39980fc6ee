//! The way to a collector: batches, one at a time, retried for a while if that makes sense.
//!
//! It must not print the address or a header: either may have a credential in it.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use reqwest::{
    Client, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER},
    redirect,
};
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, sleep, timeout_at},
};

use super::{
    settings::{OtlpConfigError, OtlpSettings},
    spans::TraceSpan,
    wire,
};

/// Attempts at one batch before it is dropped.
const TRIES: u32 = 5;
/// Wait before the second attempt; each further time twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest that a collector may have us wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The most that is read of an answer.
const LONGEST_ANSWER: usize = 64 << 10;
/// Interval between log lines about dropped spans.
const DROP_REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Number of dropped spans.
#[derive(Clone, Debug, Default)]
pub(super) struct DroppedSpans(Arc<AtomicU64>);

impl DroppedSpans {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Relaxed);
    }

    fn take_count(&self) -> u64 {
        self.0.swap(0, Relaxed)
    }
}

/// Outcome of one attempt.
enum ExportOutcome {
    Taken,
    /// The collector refused it: repeating it would be in vain.
    Refused(String),
    /// The collector may take it later, not before this has passed.
    Later(String, Option<Duration>),
}

/// Tells spans.
pub(super) struct SpanExporter {
    settings: OtlpSettings,
    client: Client,
    dropped: DroppedSpans,
    /// True if the last batch was taken; unknown at first.
    is_well: Option<bool>,
    last_report: Option<Instant>,
}

impl SpanExporter {
    pub(super) fn new(settings: OtlpSettings, dropped: DroppedSpans) -> Result<Self, OtlpConfigError> {
        // Fails if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = match settings.endpoint.scheme() {
            // Reading the system's certificates takes time, and plain HTTP does not need them.
            "http" => Client::builder().tls_certs_only([]),
            _ => Client::builder(),
        };
        // Spans of this process go to the configured address, and nowhere else.
        let client =
            builder.no_proxy().redirect(redirect::Policy::none()).build().map_err(|error| OtlpConfigError {
                variable: "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
                problem: format!("cannot create the HTTP client: {}", error.without_url()),
            })?;
        Ok(Self { settings, client, dropped, is_well: None, last_report: None })
    }

    /// Sends spans until no more come, and then the rest.
    pub(super) async fn run(mut self, mut spans: Receiver<TraceSpan>) {
        let mut batch = Vec::new();
        while spans.recv_many(&mut batch, self.settings.batch).await > 0 {
            let due = Instant::now() + self.settings.delay;
            while batch.len() < self.settings.batch {
                let room = self.settings.batch - batch.len();
                match timeout_at(due, spans.recv_many(&mut batch, room)).await {
                    Ok(more) if more > 0 => {}
                    Ok(_) | Err(_) => break,
                }
            }
            self.send_batch(&batch).await;
            batch.clear();
            self.say_dropped();
        }
    }

    async fn send_batch(&mut self, batch: &[TraceSpan]) {
        let body = wire::encode_request(&self.settings.resource, batch);
        let body = if self.settings.is_compressed { gzip_body(&body) } else { body };
        for attempt in 1..=TRIES {
            match self.send_once(body.clone()).await {
                ExportOutcome::Taken => {
                    if self.is_well.replace(true) != Some(true) {
                        tracing::info!("the trace collector accepts spans");
                    }
                    return;
                }
                ExportOutcome::Refused(why) => {
                    self.log_failure(&why);
                    break;
                }
                ExportOutcome::Later(why, pause) => {
                    self.log_failure(&why);
                    if attempt < TRIES {
                        sleep(pause_behind(attempt, pause)).await;
                    }
                }
            }
        }
        self.dropped.add(batch.len());
    }

    async fn send_once(&self, body: Vec<u8>) -> ExportOutcome {
        let mut request = self
            .client
            .post(self.settings.endpoint.clone())
            .headers(self.settings.headers.clone())
            .header(CONTENT_TYPE, "application/json");
        if self.settings.is_compressed {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        let asking = async {
            let answer = request.body(body).send().await?;
            let status = answer.status();
            let pause = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            Ok::<_, reqwest::Error>((status, pause.map(Duration::from_secs), read_body(answer).await?))
        };
        let (status, pause, reply) = match tokio::time::timeout(self.settings.timeout, asking).await {
            Err(_) => return ExportOutcome::Later("the collector did not answer in time".to_owned(), None),
            Ok(Err(error)) => return ExportOutcome::Later(error_text(error), None),
            Ok(Ok(answered)) => answered,
        };
        match status {
            status if status.is_success() => {
                if let Some((count, message)) = wire::parse_rejection(&reply) {
                    tracing::warn!(spans = count, "the trace collector rejected spans: {message}");
                }
                ExportOutcome::Taken
            }
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                ExportOutcome::Later(format!("the collector returned status {}", status.as_u16()), pause)
            }
            status => ExportOutcome::Refused(format!("the collector returned status {}", status.as_u16())),
        }
    }

    /// Says so once, until it was well again.
    fn log_failure(&mut self, why: &str) {
        if self.is_well.replace(false) != Some(false) {
            tracing::warn!("failed to export traces: {why}");
        }
    }

    fn say_dropped(&mut self) {
        if self.last_report.is_some_and(|reported| reported.elapsed() < DROP_REPORT_INTERVAL) {
            return;
        }
        let dropped = self.dropped.take_count();
        if dropped > 0 {
            self.last_report = Some(Instant::now());
            tracing::warn!(spans = dropped, "dropped spans: the export queue is full or the collector failed");
        }
    }
}

/// Returns the wait after an attempt that failed. A collector's own wait makes it longer, never shorter: a few answers
/// at once would use up all of them.
fn pause_behind(attempt: u32, requested: Option<Duration>) -> Duration {
    let usual = PAUSE * 2_u32.pow(attempt - 1);
    requested.map_or(usual, |pause| pause.max(usual)).min(LONGEST_PAUSE)
}

/// Reads as much of an answer as counts.
async fn read_body(mut answer: Response) -> reqwest::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > LONGEST_ANSWER {
            break;
        }
    }
    Ok(bytes)
}

/// Returns the error's text, without the address.
fn error_text(error: reqwest::Error) -> String {
    let what =
        if error.is_connect() { "the collector cannot be reached" } else { "the connection to the collector broke" };
    let error = error.without_url();
    // The outer errors say only that it did not work.
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    match causes.last() {
        Some(cause) => format!("{what}: {cause}"),
        None => what.to_owned(),
    }
}

fn gzip_body(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // A write to memory does not fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn a_collector_may_ask_for_more_time_and_not_for_less() {
        for (attempt, requested, want) in
            [(1, None, 1), (3, None, 4), (1, Some(0), 1), (4, Some(3), 8), (1, Some(20), 20), (1, Some(900), 30)]
        {
            let pause = super::pause_behind(attempt, requested.map(Duration::from_secs));
            assert_eq!(pause, Duration::from_secs(want), "{attempt} {requested:?}");
        }
    }

    #[tokio::test]
    async fn an_unreachable_collector_is_reported_without_its_address() {
        // Bound and let go of: no listener is left there.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let failed = client.post(format!("http://127.0.0.1:{port}/a-token/v1/traces")).send().await.unwrap_err();
        let text = super::error_text(failed);
        assert!(text.starts_with("the collector cannot be reached: ") && text.contains("Connection refused"), "{text}");
        assert!(!text.contains("a-token"), "{text}");
    }
}
