//! The report: one self-contained page, with every figure, its yardstick and its target, and the commands to repeat it.

use std::{fmt::Write as _, fs, process::Command};

use super::{
    figure::{BenchFigure, FigureGroup, GrowthCurve},
    picture,
};

/// Figures that no other project publishes, by the beginnings of their names.
const UNSEEN: [(&str, &[&str]); 5] = [
    ("Sessions that one gateway holds", &["gsv: memory of each of 10,000 sessions", "gsv: listing 10,000 sessions"]),
    ("From a gate to its card", &["gate to card"]),
    ("From a decision to what it starts", &["decision to exec"]),
    ("Events lost under reconnect", &["events lost"]),
    ("Recovery after kill -9", &["1,000 pending gates"]),
];

/// Why figures miss their targets where they do, by what their names begin with, as profiles showed it.
const REASONS: [(&[&str], &str); 3] = [
    (
        &["resident memory, idle", "serve: resident memory, idle"],
        "The row of private memory shows the process's own memory. The rest are pages of the program's file that the kernel maps in \
         windows of 64 KiB around each page that is touched: a start touches 285 of the 640 windows of its code, evenly spread (page \
         faults, perf). The state of the page cache changes the result from day to day.",
    ),
    (
        &["scale: sessions at rest, first start", "scale: records, first start", "scale: records, first statistics"],
        "These read the whole log: a first start folds each view from it in a pass of its own, which is 70 % of its time (perf), and \
         the console reads it once after each start for its statistics.",
    ),
    (
        &[
            "hermes: request to frame at one",
            "gjc: gate raised",
            "gjc: answer",
            "gjc: a call of a host tool",
            "gsv: a call of a node",
        ],
        "One commit of the record comes first, as invariant 1 requires: strace shows one sync, of 0.3 to 0.4 ms on the machine of the \
         README. The rest are wakes between tasks and the frames of the same turn that come first.",
    ),
];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:960px;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}\
 table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25rem .5rem;border-bottom:1px solid #d8dee8}\
 th:first-child,td:first-child{text-align:left}.good{color:#12693a}.bad{color:#a4161a}\
 svg{max-width:100%;height:auto}.curves{display:flex;flex-wrap:wrap;gap:1rem}pre{background:#f6f8fb;padding:.5rem;overflow-x:auto}\
 @media (prefers-color-scheme:dark){body{color:#e3e8ef;background:#12161c}th,td{border-color:#313a47}\
 pre{background:#1a2029}.good{color:#7fd6a2}.bad{color:#ff8f8f}}";

/// Place and time of the measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunConditions {
    pub(crate) program: String,
    pub(crate) commit: String,
    pub(crate) processors: String,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) load: String,
    pub(crate) date: String,
    pub(crate) command: String,
}

impl RunConditions {
    /// Returns the conditions of now, and of `binary`.
    pub(crate) fn for_this_machine(binary: &std::path::Path, arguments: &[String]) -> Self {
        let command_output = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
            output.map_or_else(
                || "not known".to_owned(),
                |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            )
        };
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let processor = after(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned());
        let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        Self {
            program: command_output(&binary.to_string_lossy(), &["--version"]),
            commit: command_output("git", &["log", "-1", "--format=%H %cs"]),
            processors: format!("{count} of {processor}"),
            memory: after(&read("/proc/meminfo"), "MemTotal").unwrap_or_else(|| "unknown".to_owned()),
            kernel: command_output("uname", &["-sr"]),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            date: command_output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            command: format!("cargo xtask bench {}", arguments.join(" ")),
        }
    }
}

/// Returns the whole page.
pub(crate) fn render_page(figures: &[BenchFigure], setting: &RunConditions) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Benchmarks of Countersign</title><style>{STYLE}</style>\n<h1>Benchmarks of Countersign</h1>\n\
         <p>{}, taken {} on {} with {} of memory, {}; load when it ended: {}. Commit of the tools: {}. The measured \
         programs and the benchmark share the processors.</p>\n",
        escape_html(&setting.program),
        escape_html(&setting.date),
        escape_html(&setting.processors),
        escape_html(&setting.memory),
        escape_html(&setting.kernel),
        escape_html(&setting.load),
        escape_html(&setting.commit)
    );
    let missed: Vec<&BenchFigure> = figures.iter().filter(|figure| figure.meets_target() == Some(false)).collect();
    let with_target = figures.iter().filter(|figure| figure.meets_target().is_some()).count();
    let _ = writeln!(page, "<p>{} of {with_target} targets are met.</p>", with_target - missed.len());
    page += "<h2>All benchmarks</h2>\n<p>A yardstick is the limit of the same machine in the same run, such as a raw echo and a raw \
             fsync. A bar ends at the line where the target is met exactly; a bar beyond it misses.</p>\n";
    for group in FigureGroup::ALL {
        page += &render_group(group, figures);
    }
    page += "<h2>Five benchmarks that no other project publishes</h2>\n";
    for (title, names) in UNSEEN {
        let of = figures.iter().filter(|figure| names.iter().any(|name| figure.name.starts_with(name)));
        let _ = write!(page, "<h3>{title}</h3>\n{}", render_table(of));
    }
    if !missed.is_empty() {
        page += "<h2>Missed targets and their causes</h2>\n<ul>\n";
        for figure in &missed {
            let is_of = |names: &&[&str]| names.iter().any(|name| figure.name.starts_with(name));
            let reason =
                REASONS.iter().find(|(names, _)| is_of(names)).map_or("Not profiled yet.", |(_, reason)| reason);
            let _ = writeln!(page, "<li><b>{}</b>: {}</li>", escape_html(figure.name), escape_html(reason));
        }
        page += "</ul>\n";
    }
    page += "<h2>Not measured</h2>\n<ul>\n";
    let failed: Vec<(&str, &str)> =
        figures.iter().filter_map(|figure| Some((figure.name, figure.why_not()?))).collect();
    for (name, why) in &failed {
        let _ = writeln!(page, "<li>{}: {}</li>", escape_html(name), escape_html(why));
    }
    if failed.is_empty() {
        page += "<li>None.</li>\n";
    }
    page += "</ul>\n<h2>Run the benchmarks yourself</h2>\n";
    let _ = writeln!(page, "<pre>{}</pre>", escape_html(&setting.command));
    page + "<p>You need Rust, a C compiler and loopback, but no key and no network. To run one benchmark, add <code>--only PART-OF-ITS-NAME</code>. \
            The sources are in <code>crates/loadtest/src/bench</code>.</p>\n</html>\n"
}

/// Renders the picture and the table of a group, and its curves; nothing if the run has no figure of it.
fn render_group(group: FigureGroup, figures: &[BenchFigure]) -> String {
    let of: Vec<&BenchFigure> = figures.iter().filter(|figure| figure.group == group).collect();
    if of.is_empty() {
        return String::new();
    }
    let bars = picture::render_bars(group, figures).unwrap_or_default();
    let mut text = format!("<h3>{}</h3>\n{bars}{}", group.title(), render_table(of.iter().copied()));
    let curves: Vec<(&str, &GrowthCurve)> =
        of.iter().filter_map(|figure| Some((figure.name, figure.curve.as_ref()?))).collect();
    if !curves.is_empty() {
        text += "<p>A value is the growth of a cost over the growth of its input, at the steepest step.</p>\n<div class=\"curves\">\n";
        for (name, curve) in &curves {
            text += &picture::render_curve(name, curve).unwrap_or_default();
        }
        text += "</div>\n<ul>\n";
        for (name, curve) in &curves {
            let _ = writeln!(text, "<li>{}, by {}: {}</li>", escape_html(name), curve.input, curve.points_text());
        }
        text += "</ul>\n";
    }
    text
}

fn render_table<'a>(figures: impl Iterator<Item = &'a BenchFigure>) -> String {
    let mut rows = String::new();
    for figure in figures {
        let [name, value, yardstick, target] = figure.table_cells();
        let (class, word) = match figure.meets_target() {
            Some(true) => ("good", "met"),
            Some(false) => ("bad", "missed"),
            None => ("", ""),
        };
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td>{value}</td><td>{yardstick}</td><td>{target}</td><td class=\"{class}\">{word}</td></tr>",
            escape_html(&name)
        );
    }
    if rows.is_empty() {
        return "<p>Not measured in this run.</p>\n".to_owned();
    }
    format!(
        "<table><tr><th>benchmark</th><th>measured</th><th>yardstick</th><th>target</th><th></th></tr>\n{rows}</table>\n"
    )
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::FigureUnit;

    #[test]
    fn the_page_has_a_picture_of_each_curve_with_its_sizes() {
        let curve =
            GrowthCurve { unit: FigureUnit::Millis, input: "sessions", points: vec![(10.0, 1.0), (100.0, 20.0)] };
        let figure = BenchFigure::of_growth("list").in_group(FigureGroup::Scale).with_curve(Ok(curve));
        let page = render_page(&[figure], &RunConditions::default());
        for part in [
            "<h3>Scale of one gateway</h3>\n<svg",
            "class=\"bp-linear\"",
            "<li>list, by sessions: 10: 1.00 ms, 100: 20.0 ms</li>",
            "0 of 1 targets are met",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn the_page_says_what_was_met_what_was_missed_and_what_was_not_taken() {
        let figures = [
            BenchFigure::new("gate to card", FigureUnit::Millis).with_target(2.0).with_result(Ok((1.0, None))),
            BenchFigure::new("rate", FigureUnit::PerSecond).with_target(200.0).with_result(Ok((100.0, None))),
            BenchFigure::new("events lost", FigureUnit::Count)
                .with_target(0.0)
                .with_result(Err(anyhow::anyhow!("no <gateway>"))),
        ];
        let setting = RunConditions { command: "cargo xtask bench --report x".to_owned(), ..RunConditions::default() };
        let page = render_page(&figures, &setting);
        assert!(page.contains("1 of 2 targets are met"), "{page}");
        assert!(page.contains("<h3>From a gate to its card</h3>\n<table>"), "{page}");
        assert!(page.contains("<h3>Recovery after kill -9</h3>\n<p>Not measured in this run.</p>"), "{page}");
        assert!(page.contains("<li><b>rate</b>: Not profiled yet.</li>"), "{page}");
        assert!(page.contains("<li>events lost: no &lt;gateway&gt;</li>"), "{page}");
        assert!(page.contains(">50 %</text>") && page.contains(">200 %</text>"), "{page}");
        assert!(page.contains("<pre>cargo xtask bench --report x</pre>"), "{page}");
    }
}
