//! Traces of realms over OTLP. A program that was built without them has none, and reports that.

use std::time::Duration;

use countersign_runtime::OwnerHandle;

use crate::{notice::NoticeLevel, serve_error::ServeError};

/// Collector of traces that the environment names.
#[derive(Default)]
pub struct TraceDestination {
    #[cfg(feature = "otlp")]
    named: Option<countersign_otlp::TraceCollector>,
}

impl TraceDestination {
    /// Reads the environment. `notice` gets a text for users if it names a collector and this program has no traces.
    ///
    /// # Errors
    /// [`ServeError::Traces`] in programs that have traces: a variable has no meaning.
    #[cfg(feature = "otlp")]
    pub fn from_environment(_notice: &(dyn Fn(NoticeLevel, &str) + Send + Sync)) -> Result<Self, ServeError> {
        Ok(Self { named: countersign_otlp::TraceCollector::from_environment()? })
    }

    /// Reads the environment. `notice` gets a text for users if it names a collector and this program has no traces.
    ///
    /// # Errors
    /// `ServeError::Traces` in programs that have traces: a variable has no meaning.
    #[cfg(not(feature = "otlp"))]
    #[allow(clippy::unnecessary_wraps, reason = "with traces it can fail")]
    pub fn from_environment(notice: &(dyn Fn(NoticeLevel, &str) + Send + Sync)) -> Result<Self, ServeError> {
        if let Some(name) = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
            .iter()
            .find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        {
            let text = format!("{name} is set, but this program was built without trace export: no traces are sent");
            notice(NoticeLevel::Warning, &text);
        }
        Ok(Self {})
    }

    /// Sends spans of what `handle` records from now on.
    #[cfg_attr(not(feature = "otlp"), allow(clippy::unused_async, reason = "with traces it waits for the owner"))]
    pub(crate) async fn follow_log(self, handle: &OwnerHandle) -> ActiveTraces {
        #[cfg(feature = "otlp")]
        return ActiveTraces {
            followed: match self.named {
                Some(collector) => collector.follow_record(handle).await,
                None => None,
            },
        };
        #[cfg(not(feature = "otlp"))]
        {
            let _ = handle;
            ActiveTraces {}
        }
    }
}

/// Spans of one realm on their way to its collector, if it has one.
pub(crate) struct ActiveTraces {
    #[cfg(feature = "otlp")]
    followed: Option<countersign_otlp::TraceExport>,
}

impl ActiveTraces {
    /// Sends the spans that are left, for at most `patience`.
    #[cfg_attr(not(feature = "otlp"), allow(clippy::unused_async, reason = "with traces it waits for the collector"))]
    pub(crate) async fn stop(self, patience: Duration) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.followed {
            traces.stop(patience).await;
        }
        #[cfg(not(feature = "otlp"))]
        let _ = patience;
    }
}
