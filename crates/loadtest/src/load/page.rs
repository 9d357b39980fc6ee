//! The report: one self-contained page, with charts of memory, work and waiting.

use std::fmt::Write as _;

use crate::load::{
    LoadOutcome,
    gauge::GaugeSample,
    tally::{ActivityKind, per_mille},
};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 160.0;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}\
 table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25rem .5rem;border-bottom:1px solid #d8dee8}\
 th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;background:#f6f8fb}.good{color:#12693a}.bad{color:#a4161a}\
 polyline{fill:none;stroke:#2457a6;stroke-width:1.5}text{font:12px system-ui,sans-serif;fill:#4a5568}\
 @media (prefers-color-scheme:dark){body{color:#e3e8ef;background:#12161c}svg{background:#1a2029}th,td{border-color:#313a47}\
 polyline{stroke:#7fb0ff}text{fill:#a3b0c2}.good{color:#7fd6a2}.bad{color:#ff8f8f}}";

/// Returns the whole page.
pub(crate) fn render_page(outcome: &LoadOutcome) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Countersign under load</title><style>{STYLE}</style>\n<h1>Countersign under load</h1>\n<p>{}</p>\n",
        escape_html(&outcome.setting_text())
    );
    page += "<h2>Checks</h2>\n<ul>\n";
    for check in outcome.run_checks() {
        let (class, word) = if check.holds { ("good", "passed") } else { ("bad", "failed") };
        let _ = writeln!(page, "<li><b class=\"{class}\">{word}</b>: {}</li>", escape_html(&check.text));
    }
    page += "</ul>\n<h2>Durations</h2>\n<table><tr><th></th><th>count</th><th>per second</th><th>50 %</th><th>99 %</th><th>99.9 %</th><th>longest</th></tr>\n";
    for row in ActivityKind::ALL {
        let sorted = outcome.tally.sorted_times(row);
        let cell = |of| per_mille(&sorted, of).map_or_else(|| "-".to_owned(), |value| format!("{value:.1} ms"));
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            row.name(),
            sorted.len(),
            outcome.rate_per_second(sorted.len()),
            cell(500),
            cell(990),
            cell(999),
            cell(1000)
        );
    }
    page += "</table>\n";
    for (title, unit, points) in chart_series(&outcome.looks) {
        let _ = writeln!(page, "<h2>{title}</h2>\n{}", render_chart(title, unit, &points));
    }
    page += "<h2>Failures</h2>\n";
    let wrongs = outcome.tally.failure_counts();
    if wrongs.is_empty() {
        page += "<p>None.</p>\n";
    } else {
        page += "<table><tr><th>what</th><th>times</th></tr>\n";
        for (what, times) in &wrongs {
            let _ = writeln!(page, "<tr><td>{}</td><td>{times}</td></tr>", escape_html(what));
        }
        page += "</table>\n";
    }
    let _ = writeln!(page, "<p>{}.</p>", escape_html(&outcome.limits_text()));
    page + "<p>Made by <code>cargo xtask load</code>; the gateway and all clients share the processors.</p>\n</html>\n"
}

type ChartSeries = (&'static str, &'static str, Vec<(f64, f64)>);

fn chart_series(looks: &[GaugeSample]) -> [ChartSeries; 5] {
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let of = |pick: fn(&GaugeSample) -> u64| -> Vec<(f64, f64)> {
        looks.iter().map(|look| (look.at, pick(look) as f64)).collect()
    };
    let memory = of(|look| look.memory).into_iter().map(|(at, bytes)| (at, bytes / f64::from(1 << 20))).collect();
    let processor: Vec<(f64, f64)> = looks.iter().map(|look| (look.at, look.processor)).collect();
    [
        ("Resident memory of the gateway", "MiB", memory),
        ("Processors that the gateway uses", "", rates_per_second(&processor)),
        ("Calls that rules allow, per second", "/s", rates_per_second(&of(|look| look.allowed as u64))),
        ("Answers of approvers, per second", "/s", rates_per_second(&of(|look| look.answered as u64))),
        ("Frames at watchers, per second", "/s", rates_per_second(&of(|look| look.frames))),
    ]
}

/// Returns the growth of a counter per second, over ten samples each.
fn rates_per_second(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points
        .windows(11)
        .filter_map(|window| {
            let ((from, before), (to, after)) = (*window.first()?, *window.last()?);
            (to > from).then(|| (to, (after - before) / (to - from)))
        })
        .collect()
}

fn render_chart(title: &str, unit: &str, points: &[(f64, f64)]) -> String {
    let top = points.iter().map(|(_, value)| *value).fold(0.0, f64::max) * 1.1;
    let end = points.last().map_or(0.0, |(at, _)| *at);
    if top <= 0.0 || end <= 0.0 {
        return "<p>The run was too short for a chart.</p>".to_owned();
    }
    let line: String = points
        .iter()
        .map(|(at, value)| format!("{:.1},{:.1} ", at / end * WIDTH, HEIGHT - value / top * HEIGHT))
        .collect();
    let last = points.last().map_or(0.0, |(_, value)| *value);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}: {last:.1} {unit} at the end, at most {:.1}\">\
         <polyline points=\"{}\"/><text x=\"4\" y=\"14\">{:.1} {unit}</text><text x=\"4\" y=\"{}\">0 s</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{end:.0} s</text></svg>",
        HEIGHT + 20.0,
        top / 1.1,
        line.trim_end(),
        top / 1.1,
        HEIGHT + 15.0,
        WIDTH - 4.0,
        HEIGHT + 15.0,
    )
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_a_count_grew_by_over_ten_looks() {
        let points: Vec<(f64, f64)> = (0..12).map(|at| (f64::from(at), f64::from(at) * 3.0)).collect();
        assert_eq!(rates_per_second(&points), [(10.0, 3.0), (11.0, 3.0)]);
        assert_eq!(rates_per_second(&points[..5]), []);
    }

    #[test]
    fn a_picture_says_in_words_what_it_shows() {
        let drawn = render_chart("Memory", "MiB", &[(0.0, 10.0), (2.0, 20.0)]);
        assert!(drawn.contains("Memory: 20.0 MiB at the end, at most 20.0"), "{drawn}");
        assert!(drawn.contains("points=\"0.0,87.3 720.0,14.5\""), "{drawn}");
        assert_eq!(render_chart("Memory", "MiB", &[]), "<p>The run was too short for a chart.</p>");
    }
}
