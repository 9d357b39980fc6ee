//! Pictures of figures as SVG: bars of a group against their targets, and costs against the sizes of their input. Each has its own
//! colours for light and dark pages, and needs nothing else.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::figure::{BenchFigure, FigureGroup, GrowthCurve, rounded_text, size_text};

/// Width of a picture of bars.
const WIDTH: f64 = 860.0;
/// Begin of the bars, after the names.
const BARS: f64 = 430.0;
/// Length of a bar that uses its whole target.
const TARGET: f64 = 180.0;
/// Length of the longest bar.
const LONGEST: f64 = 2.0 * TARGET - 20.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 56.0;

/// Size of a curve, and the room around its axes.
const CURVE: (f64, f64) = (430.0, 300.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 44.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 42.0;

const STYLE: &str = ".bp{font:12px system-ui,sans-serif;fill:#1c2430}.bp-title{font-size:14px;font-weight:600}.bp-end{text-anchor:end}\
 .bp-middle{text-anchor:middle}.bp-page{fill:#fff}.bp-met{fill:#7fa3d6}.bp-missed{fill:#d67f7f}.bp-target{stroke:#1c2430}\
 .bp-grid{stroke:#d8dee8}.bp-cost{stroke:#2f62ad;stroke-width:2;fill:none}.bp-dot{fill:#2f62ad}\
 .bp-linear{stroke:#6b7686;stroke-dasharray:5 4;fill:none}\
 @media (prefers-color-scheme:dark){.bp{fill:#e3e8ef}.bp-page{fill:#12161c}.bp-met{fill:#4f78b3}.bp-missed{fill:#b35454}\
 .bp-target{stroke:#e3e8ef}.bp-grid{stroke:#313a47}.bp-cost{stroke:#8db4ef}.bp-dot{fill:#8db4ef}.bp-linear{stroke:#98a3b3}}";

/// Writes `bench-GROUP.svg` into `folder` for each group with a target among the `figures`.
pub(super) fn write_pictures(folder: &Path, figures: &[BenchFigure]) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for group in FigureGroup::ALL {
        if let Some(picture) = render_bars(group, figures) {
            let file = folder.join(format!("bench-{}.svg", group.file_part()));
            fs::write(&file, picture).with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("{}", file.display());
        }
    }
    Ok(())
}

/// Renders the used share of the target of each figure of a group; None if no figure of it has one.
pub(super) fn render_bars(group: FigureGroup, figures: &[BenchFigure]) -> Option<String> {
    let shares: Vec<(&BenchFigure, f64)> = figures
        .iter()
        .filter(|figure| figure.group == group)
        .filter_map(|figure| Some((figure, figure.target_share()?)))
        .collect();
    if shares.is_empty() {
        return None;
    }
    let height = rows_below(shares.len());
    let line = BARS + TARGET;
    let mut picture = begin_picture(WIDTH, height, &format!("{}: used share of each target", group.title()));
    let _ = writeln!(picture, "<text class=\"bp bp-title\" x=\"12\" y=\"22\">{}</text>", escape_text(group.title()));
    let _ = writeln!(picture, "<text class=\"bp bp-middle\" x=\"{line}\" y=\"44\">target; shorter is better</text>");
    for (index, (figure, share)) in shares.iter().enumerate() {
        let top = rows_below(index) - 8.0;
        let class = if *share > 1.0 { "bp-missed" } else { "bp-met" };
        let length = (share * TARGET).min(LONGEST);
        let (middle, after) = (top + 14.0, BARS + length + 6.0);
        let share = if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "missed".to_owned() };
        let name = escape_text(figure.name);
        let _ = writeln!(picture, "<text class=\"bp bp-end\" x=\"{}\" y=\"{middle}\">{name}</text>", BARS - 10.0);
        let _ = writeln!(
            picture,
            "<rect class=\"{class}\" x=\"{BARS}\" y=\"{}\" width=\"{length:.1}\" height=\"14\"/>",
            top + 3.0
        );
        let _ = writeln!(picture, "<text class=\"bp\" x=\"{after:.1}\" y=\"{middle}\">{share}</text>");
    }
    let _ = writeln!(
        picture,
        "<line class=\"bp-target\" x1=\"{line}\" x2=\"{line}\" y1=\"{}\" y2=\"{}\"/>",
        HEAD - 6.0,
        height - 6.0
    );
    Some(picture + "</svg>\n")
}

/// Returns the height of the head and so many rows.
#[expect(clippy::cast_precision_loss, reason = "there are few figures")]
fn rows_below(count: usize) -> f64 {
    (count as f64).mul_add(ROW, HEAD + 8.0)
}

/// Renders costs against sizes on logarithmic axes, with a line of linear growth from the first point.
pub(super) fn render_curve(name: &str, curve: &GrowthCurve) -> Option<String> {
    let (first, last) = (curve.points.first()?, curve.points.last()?);
    let linear = first.1 * last.0 / first.0;
    let highest = curve.points.iter().map(|(_, cost)| *cost).fold(linear, f64::max);
    let lowest = curve.points.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
    let across = LogAxis::new(first.0, last.0, LEFT, CURVE.0 - RIGHT)?;
    let up = LogAxis::new(lowest, highest, CURVE.1 - BOTTOM, TOP)?;
    let mut picture = begin_picture(CURVE.0, CURVE.1, &format!("{name}, by {}: {}", curve.input, curve.points_text()));
    let _ = writeln!(picture, "<text class=\"bp bp-title\" x=\"12\" y=\"22\">{}</text>", escape_text(name));
    for size in across.decades() {
        let x = across.place(size);
        let _ = writeln!(
            picture,
            "<line class=\"bp-grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
             <text class=\"bp bp-middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            CURVE.1 - BOTTOM,
            CURVE.1 - BOTTOM + 16.0,
            size_text(size)
        );
    }
    for cost in up.decades() {
        let y = up.place(cost);
        let text = if cost < 1.0 { format!("{cost}") } else { size_text(cost) };
        let _ = writeln!(
            picture,
            "<line class=\"bp-grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"bp bp-end\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            CURVE.0 - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        picture,
        "<path class=\"bp-linear\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
        across.place(first.0),
        up.place(first.1),
        across.place(last.0),
        up.place(linear)
    );
    let path: Vec<String> =
        curve.points.iter().map(|(size, cost)| format!("{:.1} {:.1}", across.place(*size), up.place(*cost))).collect();
    let _ = writeln!(picture, "<path class=\"bp-cost\" d=\"M{}\"/>", path.join("L"));
    for (size, cost) in &curve.points {
        let (x, y) = (across.place(*size), up.place(*cost));
        let at_end = if x > CURVE.0 - 80.0 { " bp-end" } else { "" };
        // Lines rise to the right: below a point is more room.
        let label = if y + 20.0 < CURVE.1 - BOTTOM { y + 18.0 } else { y - 9.0 };
        let _ = writeln!(
            picture,
            "<circle class=\"bp-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\
             <text class=\"bp{at_end}\" x=\"{x:.1}\" y=\"{label:.1}\">{} {}</text>",
            rounded_text(*cost),
            curve.unit
        );
    }
    let _ = writeln!(
        picture,
        "<text class=\"bp bp-middle\" x=\"{:.1}\" y=\"{:.1}\">{}; dashed: as fast as its input</text>",
        f64::midpoint(LEFT, CURVE.0 - RIGHT),
        CURVE.1 - 8.0,
        curve.input
    );
    Some(picture + "</svg>\n")
}

fn begin_picture(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"{}\"><style>{STYLE}</style><rect class=\"bp-page\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n",
        escape_text(label)
    )
}

/// Axis of whole decades.
struct LogAxis {
    decades: (i32, i32),
    from: f64,
    to: f64,
}

impl LogAxis {
    /// Returns the axis from the place `from` to the place `to` that has both values; None if no logarithm has them.
    #[expect(clippy::cast_possible_truncation, reason = "logarithms of costs are small")]
    fn new(least: f64, most: f64, from: f64, to: f64) -> Option<Self> {
        let (low, high) = (least.log10(), most.log10());
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        let first = low.floor() as i32;
        Some(Self { decades: (first, (high.ceil() as i32).max(first + 1)), from, to })
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        (self.decades.0..=self.decades.1).map(|decade| 10_f64.powi(decade))
    }

    fn place(&self, value: f64) -> f64 {
        let (first, last) = (f64::from(self.decades.0), f64::from(self.decades.1));
        (value.log10() - first) / (last - first) * (self.to - self.from) + self.from
    }
}

fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::FigureUnit;

    #[test]
    fn a_bar_is_as_long_as_the_used_share_of_its_target() {
        let figure = |name, value| {
            let figure = BenchFigure::new(name, FigureUnit::Millis).with_target(2.0).in_group(FigureGroup::Gsv);
            figure.with_result(Ok((value, None)))
        };
        let figures = [figure("half", 1.0), figure("double", 4.0), figure("far <over>", 400.0)];
        let picture = render_bars(FigureGroup::Gsv, &figures).unwrap();
        for part in [
            "<rect class=\"bp-met\" x=\"430\" y=\"59\" width=\"90.0\"",
            "<rect class=\"bp-missed\" x=\"430\" y=\"83\" width=\"340.0\"",
            ">50 %</text>",
            ">200 %</text>",
            ">far &lt;over&gt;</text>",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert_eq!(render_bars(FigureGroup::Hermes, &figures), None);
    }

    #[test]
    fn a_curve_has_its_points_and_the_line_of_linear_growth() {
        let points = vec![(10.0, 1.0), (100.0, 1.0), (1000.0, 10.0)];
        let picture =
            render_curve("list", &GrowthCurve { unit: FigureUnit::Millis, input: "sessions", points }).unwrap();
        for part in [
            "<path class=\"bp-linear\" d=\"M64.0 258.0L386.0 44.0\"/>",
            "<path class=\"bp-cost\" d=\"M64.0 258.0L225.0 258.0L386.0 151.0\"/>",
            ">10.0 ms</text>",
            ">1,000</text>",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }

    #[test]
    fn a_cost_of_nothing_has_no_curve() {
        let points = vec![(10.0, 0.0), (100.0, 1.0)];
        assert_eq!(render_curve("list", &GrowthCurve { unit: FigureUnit::Millis, input: "sessions", points }), None);
    }
}
