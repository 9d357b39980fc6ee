//! How figures are written: the text form of Prometheus.

use std::fmt::Write as _;

use countersign_runtime::metrics::RuntimeMetrics;

use super::seen::Seen;

/// Labels of a figure: names and values, all of them known when this was compiled.
pub(super) type Labels = Vec<(&'static str, &'static str)>;

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What is known of a figure.
#[derive(Debug)]
pub(super) enum Value {
    /// One number for each set of labels.
    Numbers(Vec<(Labels, f64)>),
    /// How many were as large as each bound at most, how many there were, and their sum.
    Spread { upto: Vec<(f64, u64)>, count: u64, sum: f64 },
}

/// One figure.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What each label may say.
    pub(super) labels: &'static [(&'static str, &'static [&'static str])],
    /// What it means.
    pub(super) help: &'static str,
    /// Reads it from what was looked at and what is counted all the time.
    pub(super) read: fn(&Seen, &RuntimeMetrics) -> Value,
}

/// Writes all of them.
pub(super) fn write(metrics: &[Metric], seen: &Seen, meters: &RuntimeMetrics) -> String {
    let mut text = String::with_capacity(16 << 10);
    for metric in metrics {
        let Metric { name, kind, labels, help, read } = metric;
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
        match read(seen, meters) {
            Value::Numbers(numbers) => {
                for (said, value) in numbers {
                    let is_listed = said.iter().all(|(name, _)| labels.iter().any(|(label, _)| label == name));
                    debug_assert!(is_listed, "{name} has other labels than its list: {said:?}");
                    let _ = writeln!(text, "{name}{} {value}", shown(&said));
                }
            }
            Value::Spread { upto, count, sum } => {
                for (bound, counted) in upto {
                    let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {counted}");
                }
                let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
            }
        }
    }
    text
}

fn shown(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use countersign_runtime::metrics::RuntimeMetrics;

    use super::{Kind, Metric, Value, write};
    use crate::metrics::seen::Seen;

    #[test]
    fn figures_are_written_as_prometheus_reads_them() {
        let metrics = [
            Metric {
                name: "a_total",
                kind: Kind::Counter,
                labels: &[("way", &["in"]), ("by", &["us"])],
                help: "Things.",
                read: |_, _| Value::Numbers(vec![(vec![("way", "in"), ("by", "us")], 3.0)]),
            },
            Metric {
                name: "b_seconds",
                kind: Kind::Histogram,
                labels: &[],
                help: "Time.",
                read: |_, _| Value::Spread { upto: vec![(0.5, 1), (2.0, 3)], count: 4, sum: 7.25 },
            },
        ];
        assert_eq!(
            write(&metrics, &Seen::default(), &RuntimeMetrics::new()),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{way=\"in\",by=\"us\"} 3\n\
             # HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{le=\"0.5\"} 1\nb_seconds_bucket{le=\"2\"} 3\nb_seconds_bucket{le=\"+Inf\"} 4\n\
             b_seconds_sum 7.25\nb_seconds_count 4\n"
        );
    }
}
