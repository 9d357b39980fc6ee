//! Text format of Prometheus for metrics.

use std::fmt::Write as _;

use countersign_runtime::metrics::RuntimeMetrics;

use super::snapshot::MetricsSnapshot;

/// Labels of a metric: names and values, all of them known at compile time.
pub(super) type LabelValues = Vec<(&'static str, &'static str)>;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Value of a metric.
#[derive(Debug)]
pub(super) enum MetricValue {
    /// One number for each set of labels.
    Numbers(Vec<(LabelValues, f64)>),
    /// Counts of values up to each bound, the number of values, and their sum.
    Spread { upto: Vec<(f64, u64)>, count: u64, sum: f64 },
}

/// Definition of one metric.
pub(super) struct MetricDefinition {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    /// Values that each label may have.
    pub(super) labels: &'static [(&'static str, &'static [&'static str])],
    /// Meaning.
    pub(super) help: &'static str,
    /// Function that reads it from the snapshot and the counters.
    pub(super) read: fn(&MetricsSnapshot, &RuntimeMetrics) -> MetricValue,
}

/// Writes all metrics.
pub(super) fn write_metrics(
    metrics: &[MetricDefinition],
    snapshot: &MetricsSnapshot,
    meters: &RuntimeMetrics,
) -> String {
    let mut text = String::with_capacity(16 << 10);
    for metric in metrics {
        let MetricDefinition { name, kind, labels, help, read } = metric;
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
        match read(snapshot, meters) {
            MetricValue::Numbers(numbers) => {
                for (label_values, value) in numbers {
                    let is_listed = label_values.iter().all(|(name, _)| labels.iter().any(|(label, _)| label == name));
                    debug_assert!(is_listed, "{name} has other labels than its list: {label_values:?}");
                    let _ = writeln!(text, "{name}{} {value}", format_labels(&label_values));
                }
            }
            MetricValue::Spread { upto, count, sum } => {
                for (bound, counted) in upto {
                    let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {counted}");
                }
                let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
            }
        }
    }
    text
}

fn format_labels(labels: &LabelValues) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use countersign_runtime::metrics::RuntimeMetrics;

    use super::{MetricDefinition, MetricKind, MetricValue, write_metrics};
    use crate::metrics::snapshot::MetricsSnapshot;

    #[test]
    fn figures_are_written_as_prometheus_reads_them() {
        let metrics = [
            MetricDefinition {
                name: "a_total",
                kind: MetricKind::Counter,
                labels: &[("way", &["in"]), ("by", &["us"])],
                help: "Things.",
                read: |_, _| MetricValue::Numbers(vec![(vec![("way", "in"), ("by", "us")], 3.0)]),
            },
            MetricDefinition {
                name: "b_seconds",
                kind: MetricKind::Histogram,
                labels: &[],
                help: "Time.",
                read: |_, _| MetricValue::Spread { upto: vec![(0.5, 1), (2.0, 3)], count: 4, sum: 7.25 },
            },
        ];
        assert_eq!(
            write_metrics(&metrics, &MetricsSnapshot::default(), &RuntimeMetrics::new()),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{way=\"in\",by=\"us\"} 3\n\
             # HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{le=\"0.5\"} 1\nb_seconds_bucket{le=\"2\"} 3\nb_seconds_bucket{le=\"+Inf\"} 4\n\
             b_seconds_sum 7.25\nb_seconds_count 4\n"
        );
    }
}
