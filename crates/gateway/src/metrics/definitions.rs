//! Definition of every metric: name, type, values of labels, and meaning.
//!
//! A metric that is added here is added to docs/operations.md by `UPDATE_GOLDEN=1`, and the test fails if it is missing there.

use countersign_runtime::metrics::{self, Counter, DurationHistogram, RuntimeMetrics};

use super::text::{
    LabelValues, MetricDefinition,
    MetricKind::{self, Counter as Counts, Gauge, Histogram},
    MetricValue,
};

/// Adapters of `countersign_connections`.
const DOORS: [&str; 8] = ["agent_gate", "gsv", "stream", "mcp", "acp", "hooks", "attach", "http"];

/// All metrics, in the order in which they are written.
pub(super) const ALL: &[MetricDefinition] = &[
    define_metric(
        "countersign_build_info",
        Gauge,
        &[("version", &[env!("CARGO_PKG_VERSION")])],
        "Always 1; the label has the version.",
        |_, _| MetricValue::Numbers(vec![(vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)]),
    ),
    define_metric(
        "countersign_gates_waiting",
        Gauge,
        &[("kind", &metrics::GATE_KINDS)],
        "Pending gates.",
        |snapshot, _| {
            labelled_values("kind", &metrics::GATE_KINDS, snapshot.gates.iter().map(|count| as_float(*count)))
        },
    ),
    define_metric(
        "countersign_gates_opened_total",
        Counts,
        &[("kind", &metrics::GATE_KINDS)],
        "Gates opened.",
        |_, counted| counter_values("kind", &metrics::GATE_KINDS, &counted.gates_opened),
    ),
    define_metric(
        "countersign_gates_resolved_total",
        Counts,
        &[("verdict", &metrics::RESOLUTIONS)],
        "Gates resolved; granted: covered by a grant.",
        |_, counted| counter_values("verdict", &metrics::RESOLUTIONS, &counted.gates_resolved),
    ),
    define_metric(
        "countersign_gate_answer_seconds",
        Histogram,
        &[],
        "Time from the opening of a gate to its answer; gates without an answer are excluded.",
        |_, counted| histogram_value(&counted.answers),
    ),
    define_metric(
        "countersign_sessions_resident",
        Gauge,
        &[],
        "Sessions in memory; sessions at rest are only in the record.",
        |snapshot, _| single_value(snapshot.sessions),
    ),
    define_metric("countersign_runs_active", Gauge, &[], "Active runs.", |snapshot, _| single_value(snapshot.runs)),
    define_metric("countersign_runs_started_total", Counts, &[], "Runs started.", |_, counted| {
        single_value(counted.runs_started.get())
    }),
    define_metric(
        "countersign_runs_ended_total",
        Counts,
        &[("end", &metrics::RUN_ENDS)],
        "Runs ended.",
        |_, counted| counter_values("end", &metrics::RUN_ENDS, &counted.runs_ended),
    ),
    define_metric(
        "countersign_model_requests_total",
        Counts,
        &[],
        "Model requests started, without summaries.",
        |_, counted| single_value(counted.model_requests.get()),
    ),
    define_metric(
        "countersign_model_answers_total",
        Counts,
        &[("stop", &metrics::STOPS)],
        "Model requests ended, by stop reason.",
        |_, counted| counter_values("stop", &metrics::STOPS, &counted.model_answers),
    ),
    define_metric(
        "countersign_model_tokens_total",
        Counts,
        &[("kind", &metrics::TOKEN_KINDS)],
        "Tokens as reported by providers; input excludes tokens read from a cache.",
        |_, counted| counter_values("kind", &metrics::TOKEN_KINDS, &counted.tokens),
    ),
    define_metric(
        "countersign_calls_ended_total",
        Counts,
        &[("executor", &metrics::EXECUTORS), ("outcome", &metrics::ENDS)],
        "Calls ended, by executor (earlier: started by an earlier process) and outcome (unknown: it may have taken effect). Pairs with no calls are omitted.",
        |_, counted| ended_calls(counted),
    ),
    define_metric(
        "countersign_work_in_flight",
        Gauge,
        &[],
        "Model requests, calls, summaries and firings in progress.",
        |_, counted| MetricValue::Numbers(vec![(Vec::new(), signed_float(counted.in_flight.get()))]),
    ),
    define_metric(
        "countersign_tasks_broken_total",
        Counts,
        &[],
        "Tasks that panicked and were ended by a command. Any value above 0 is a bug.",
        |_, counted| single_value(counted.panics.get()),
    ),
    define_metric(
        "countersign_decisions_broken_total",
        Counts,
        &[],
        "Commands refused because their decision panicked. Any value above 0 is a bug.",
        |_, counted| single_value(counted.undecided.get()),
    ),
    define_metric("countersign_events_appended_total", Counts, &[], "Facts appended to the record.", |_, counted| {
        single_value(counted.events.get())
    }),
    define_metric(
        "countersign_record_head",
        Gauge,
        &[],
        "Position of the newest entry in the record.",
        |snapshot, _| single_value(snapshot.head),
    ),
    define_metric("countersign_commit_seconds", Histogram, &[], "Time until a batch is durable.", |_, counted| {
        histogram_value(&counted.commits)
    }),
    define_metric(
        "countersign_commits_failed_total",
        Counts,
        &[],
        "Batches that could not be recorded; each sender received an error.",
        |_, counted| single_value(counted.failed_commits.get()),
    ),
    define_metric(
        "countersign_record_writable",
        Gauge,
        &[],
        "0 from a batch that could not be recorded until the record can be written again, else 1; at 0 requests are refused.",
        |_, counted| single_value(u64::from(counted.refusing.get() == 0)),
    ),
    define_metric(
        "countersign_owner_queue",
        Gauge,
        &[],
        "Commands and queries queued for the owner of the record.",
        |snapshot, _| single_value(snapshot.waiting),
    ),
    define_metric(
        "countersign_connections",
        Gauge,
        &[("door", &DOORS)],
        "Open connections. http: all at the port, upgraded ones included; stream: event streams; mcp: MCP hosts over the control socket; acp: editors; hooks: hooks that wait for their answer; attach: hosts with a session in this gateway.",
        |snapshot, _| labelled_values("door", &DOORS, snapshot.connections.into_iter().map(signed_float)),
    ),
    define_metric(
        "countersign_messenger_well",
        Gauge,
        &[],
        "1 if the last call to the messenger succeeded, else 0; absent without a messenger.",
        |snapshot, _| {
            MetricValue::Numbers(
                snapshot.messenger.iter().map(|is_well| (Vec::new(), f64::from(u8::from(*is_well)))).collect(),
            )
        },
    ),
    define_metric(
        "countersign_lease_term",
        Gauge,
        &[],
        "Number of the lease of the realm, which grows with each takeover; absent without a cluster.",
        |snapshot, _| {
            MetricValue::Numbers(snapshot.lease.iter().map(|(term, _)| (Vec::new(), as_float(*term))).collect())
        },
    ),
    define_metric(
        "countersign_lease_remaining_seconds",
        Gauge,
        &[],
        "Time for which the lease of the realm is held unless it is renewed; absent without a cluster.",
        |snapshot, _| MetricValue::Numbers(snapshot.lease.iter().map(|(_, left)| (Vec::new(), *left)).collect()),
    ),
    define_metric("countersign_record_bytes", Gauge, &[], "Size of the record on disk.", |snapshot, _| {
        single_value(snapshot.record)
    }),
    define_metric(
        "countersign_disk_free_bytes",
        Gauge,
        &[],
        "Free space on the disk of the data directory.",
        |snapshot, _| single_value(snapshot.free),
    ),
    define_metric("process_resident_memory_bytes", Gauge, &[], "Resident memory of the process.", |snapshot, _| {
        single_value(snapshot.memory)
    }),
    define_metric("process_open_fds", Gauge, &[], "Open file descriptors of the process.", |snapshot, _| {
        single_value(snapshot.descriptors)
    }),
    define_metric(
        "process_start_time_seconds",
        Gauge,
        &[],
        "Start time of the gateway, in seconds since 1970.",
        |snapshot, _| MetricValue::Numbers(vec![(Vec::new(), snapshot.started)]),
    ),
];

const fn define_metric(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [(&'static str, &'static [&'static str])],
    help: &'static str,
    read: fn(&super::snapshot::MetricsSnapshot, &RuntimeMetrics) -> MetricValue,
) -> MetricDefinition {
    MetricDefinition { name, kind, labels, help, read }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
const fn as_float(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss, reason = "as above")]
const fn signed_float(count: i64) -> f64 {
    count as f64
}

fn single_value(count: u64) -> MetricValue {
    MetricValue::Numbers(vec![(Vec::new(), as_float(count))])
}

fn labelled_values(label: &'static str, words: &[&'static str], values: impl Iterator<Item = f64>) -> MetricValue {
    MetricValue::Numbers(words.iter().zip(values).map(|(word, value)| (vec![(label, *word)], value)).collect())
}

fn counter_values(label: &'static str, words: &[&'static str], counters: &[Counter]) -> MetricValue {
    labelled_values(label, words, counters.iter().map(|counter| as_float(counter.get())))
}

fn histogram_value<const N: usize>(timer: &DurationHistogram<N>) -> MetricValue {
    let (upto, count) = timer.bucket_counts();
    MetricValue::Spread { upto: timer.bounds.into_iter().zip(upto).collect(), count, sum: timer.total_seconds() }
}

fn ended_calls(counted: &RuntimeMetrics) -> MetricValue {
    let pairs = metrics::EXECUTORS.iter().flat_map(|executor| metrics::ENDS.iter().map(move |end| (*executor, *end)));
    let all = pairs.zip(&counted.calls_ended).filter(|(_, counter)| counter.get() > 0);
    let labelled_count = |((executor, end), counter): ((&'static str, &'static str), &Counter)| -> (LabelValues, f64) {
        (vec![("executor", executor), ("outcome", end)], as_float(counter.get()))
    };
    MetricValue::Numbers(all.map(labelled_count).collect())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Write as _, path::Path};

    use countersign_runtime::metrics::RuntimeMetrics;

    use super::{ALL, MetricValue};
    use crate::metrics::snapshot::MetricsSnapshot;

    /// Returns the table for docs/operations.md.
    fn table() -> String {
        let mut table = "| name | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for metric in ALL {
            let labels = metric.labels.iter().map(|(name, values)| match *name {
                "version" => "`version`".to_owned(),
                name => format!("`{name}`: {}", values.join(", ")),
            });
            let labels: Vec<String> = labels.collect();
            writeln!(
                table,
                "| `{}` | {} | {} | {} |",
                metric.name,
                metric.kind.as_str(),
                labels.join("; "),
                metric.help
            )
            .unwrap();
        }
        table
    }

    #[test]
    fn the_written_list_is_this_list() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = ("<!-- metrics: begin -->\n", "<!-- metrics: end -->");
        let (before, rest) = page.split_once(begin).unwrap();
        let (written, after) = rest.split_once(end).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, format!("{before}{begin}{}{end}{after}", table())).unwrap();
            return;
        }
        assert_eq!(written, table(), "UPDATE_GOLDEN=1 writes it");
    }

    #[test]
    fn names_are_unique_and_labels_are_those_of_the_list() {
        let mut names = BTreeSet::new();
        for metric in ALL {
            assert!(names.insert(metric.name), "{} stands twice", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == super::Counts, "{}", metric.name);
            match (metric.read)(
                &MetricsSnapshot { messenger: Some(true), lease: Some((1, 2.5)), ..MetricsSnapshot::default() },
                &RuntimeMetrics::new(),
            ) {
                MetricValue::Spread { .. } => assert_eq!(metric.kind, super::Histogram, "{}", metric.name),
                MetricValue::Numbers(numbers) => {
                    for (labels, _) in numbers {
                        let allowed = metric.labels.iter();
                        assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
                        for ((name, value), (label, values)) in labels.iter().zip(allowed) {
                            assert!(name == label && values.contains(value), "{} {name}={value}", metric.name);
                        }
                    }
                }
            }
        }
    }
}
