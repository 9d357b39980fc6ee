//! Traces for operators of programs of many kinds: the runs, requests to models, calls and gates of the record, sent
//! to a collector over OTLP (HTTP, JSON) in the names that OpenTelemetry has for generative AI.
//!
//! It follows the record and decides nothing. Texts of people, models and tools never leave: spans have names, times and
//! counts. Nothing waits for a collector; spans that it does not take in time are dropped and counted. docs/operations.md, Traces, has the
//! list of exported spans.

mod exporter;
mod labels;
mod settings;
mod spans;
mod wire;

use std::{sync::Arc, time::Duration};

use countersign_core::engine::RecordedFact;
use countersign_runtime::OwnerHandle;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
};

use exporter::{DroppedSpans, SpanExporter};
pub use settings::OtlpConfigError;
use settings::{OtlpSettings, TraceSampler};
use spans::{SpanTracer, TraceSpan};

/// Collector of traces.
pub struct TraceCollector {
    sampler: TraceSampler,
    sender: Sender<TraceSpan>,
    receiver: Receiver<TraceSpan>,
    exporter: SpanExporter,
    dropped: DroppedSpans,
}

/// The spans of one gateway, on their way to a collector.
pub struct TraceExport {
    /// Ends once every span that could be sent was sent.
    exporting: JoinHandle<()>,
}

impl TraceCollector {
    /// Returns the collector that the environment names, if it names one. No connection is made yet.
    ///
    /// # Errors
    /// [`OtlpConfigError`]: a variable that has no meaning here.
    pub fn from_environment() -> Result<Option<Self>, OtlpConfigError> {
        let Some(settings) = OtlpSettings::from_variables(|name| std::env::var(name).ok())? else { return Ok(None) };
        let (sender, receiver) = mpsc::channel(settings.queue);
        let (sampler, dropped) = (settings.sampler, DroppedSpans::default());
        Ok(Some(Self { sampler, sender, receiver, exporter: SpanExporter::new(settings, dropped.clone())?, dropped }))
    }

    /// Tells it what `handle` records from now on. `None` if the gateway closes already.
    pub async fn follow_record(self, handle: &OwnerHandle) -> Option<TraceExport> {
        let Self { sampler, sender, receiver, exporter, dropped } = self;
        let mut tracer = SpanTracer::default();
        let span = move |recorded: &Arc<RecordedFact>| {
            tracer.process_fact(recorded).filter(|span| sampler.samples_trace(span.trace))
        };
        let mut spans = handle.follow_all_facts(span).await?;
        tokio::spawn(async move {
            while let Some(span) = spans.next().await {
                if sender.try_send(span).is_err() {
                    dropped.add(1);
                }
            }
        });
        Some(TraceExport { exporting: tokio::spawn(exporter.run(receiver)) })
    }
}

impl TraceExport {
    /// Sends the rest, once the record is closed: for at most `patience`.
    pub async fn stop(mut self, patience: Duration) {
        if tokio::time::timeout(patience, &mut self.exporting).await.is_err() {
            self.exporting.abort();
            tracing::warn!("the trace collector did not accept the last spans in time");
        }
    }
}
