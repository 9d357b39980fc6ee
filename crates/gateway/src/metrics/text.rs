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

/// Writes all metrics, with the name of the realm as a label if the process serves several.
pub(super) fn write_metrics(
    metrics: &[MetricDefinition],
    snapshot: &MetricsSnapshot,
    meters: &RuntimeMetrics,
    realm: Option<&str>,
) -> String {
    let mut text = String::with_capacity(16 << 10);
    for metric in metrics {
        let MetricDefinition { name, kind, labels, help, read } = metric;
        // Figures of the process would show what other realms do.
        if realm.is_some() && name.starts_with("process_") {
            continue;
        }
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
        match read(snapshot, meters) {
            MetricValue::Numbers(numbers) => {
                for (label_values, value) in numbers {
                    let is_listed = label_values.iter().all(|(name, _)| labels.iter().any(|(label, _)| label == name));
                    debug_assert!(is_listed, "{name} has other labels than its list: {label_values:?}");
                    let _ = writeln!(text, "{name}{} {value}", format_labels(&label_values, realm, None));
                }
            }
            MetricValue::Spread { upto, count, sum } => {
                let bounds = upto.iter().map(|(bound, counted)| (bound.to_string(), *counted));
                for (bound, counted) in bounds.chain([("+Inf".to_owned(), count)]) {
                    let labels = format_labels(&Vec::new(), realm, Some(&bound));
                    let _ = writeln!(text, "{name}_bucket{labels} {counted}");
                }
                let labels = format_labels(&Vec::new(), realm, None);
                let _ = writeln!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}");
            }
        }
    }
    text
}

/// Writes labels in braces; nothing if there are none. `bound` is that of a bucket.
fn format_labels(labels: &LabelValues, realm: Option<&str>, bound: Option<&str>) -> String {
    let around = [("realm", realm), ("le", bound)].into_iter().filter_map(|(name, value)| Some((name, value?)));
    let all = labels.iter().copied().chain(around);
    let pairs: Vec<String> = all.map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    if pairs.is_empty() {
        return String::new();
    }
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
            write_metrics(&metrics, &MetricsSnapshot::default(), &RuntimeMetrics::new(), None),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{way=\"in\",by=\"us\"} 3\n\
             # HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{le=\"0.5\"} 1\nb_seconds_bucket{le=\"2\"} 3\nb_seconds_bucket{le=\"+Inf\"} 4\n\
             b_seconds_sum 7.25\nb_seconds_count 4\n"
        );
    }
}
