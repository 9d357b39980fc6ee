//! A figure with its yardstick and its target, as a row for users and as a line for programs.

use std::fmt;

use anyhow::Context as _;
use serde_json::{Value, json};

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FigureUnit {
    Micros,
    Millis,
    Seconds,
    Mebibytes,
    Kibibytes,
    PerSecond,
    Ratio,
    Count,
}

impl fmt::Display for FigureUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Mebibytes => "MiB",
            Self::Kibibytes => "KiB",
            Self::PerSecond => "/s",
            Self::Ratio => "x",
            Self::Count => "",
        })
    }
}

/// Part of the product that a figure is about. Each has a table and a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FigureGroup {
    Start,
    Record,
    Policy,
    AgentGate,
    OmpAndGjc,
    Hermes,
    Gsv,
    Mcp,
    Hooks,
    Cluster,
    Scale,
}

impl FigureGroup {
    /// All groups, in the order of the pages.
    pub(crate) const ALL: [Self; 11] = [
        Self::Start,
        Self::Record,
        Self::Policy,
        Self::AgentGate,
        Self::OmpAndGjc,
        Self::Hermes,
        Self::Gsv,
        Self::Mcp,
        Self::Hooks,
        Self::Cluster,
        Self::Scale,
    ];

    /// Returns the heading of the group.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Start => "Start and memory",
            Self::Record => "Record and restart",
            Self::Policy => "Policy",
            Self::AgentGate => "agent-gate",
            Self::OmpAndGjc => "omp and gjc",
            Self::Hermes => "hermes",
            Self::Gsv => "gsv",
            Self::Mcp => "MCP",
            Self::Hooks => "Hooks",
            Self::Cluster => "Cluster",
            Self::Scale => "Scale of one gateway",
        }
    }

    /// Returns the name of the group in names of files, such as `agent-gate`.
    pub(crate) const fn file_part(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Record => "record",
            Self::Policy => "policy",
            Self::AgentGate => "agent-gate",
            Self::OmpAndGjc => "omp-and-gjc",
            Self::Hermes => "hermes",
            Self::Gsv => "gsv",
            Self::Mcp => "mcp",
            Self::Hooks => "hooks",
            Self::Cluster => "cluster",
            Self::Scale => "scale",
        }
    }
}

/// Largest growth of a cost over the growth of its input that counts as linear: one, and a quarter for noise.
const LINEAR: f64 = 1.25;

/// Cost at growing sizes of an input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GrowthCurve {
    /// Unit of the costs.
    pub(crate) unit: FigureUnit,
    /// Input, such as `sessions`.
    pub(crate) input: &'static str,
    /// Sizes of the input with their costs, the smallest first.
    pub(crate) points: Vec<(f64, f64)>,
}

impl GrowthCurve {
    /// Returns the largest growth of the cost from one size to the next, divided by the growth of the input there: 1 is linear, less
    /// grows more slowly. The steps are compared one by one, because the constant part of a cost hides how it grows from end to end.
    pub(crate) fn steepest_growth(&self) -> Option<f64> {
        let steps = self.points.windows(2).map(|pair| (pair[1].1 / pair[0].1) / (pair[1].0 / pair[0].0));
        steps.reduce(f64::max)
    }

    /// Returns all points for users, such as `100: 1.20 ms, 1,000: 1.50 ms`.
    pub(crate) fn points_text(&self) -> String {
        let point = |(size, cost): &(f64, f64)| format!("{}: {} {}", size_text(*size), rounded_text(*cost), self.unit);
        self.points.iter().map(point).collect::<Vec<_>>().join(", ")
    }
}

/// Returns a size with separators, such as `10,000`.
pub(crate) fn size_text(size: f64) -> String {
    let digits = format!("{size:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Target of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FigureTarget {
    Value(f64),
    /// So many times the yardstick.
    Yardsticks(f64),
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BenchFigure {
    pub(crate) name: &'static str,
    pub(crate) group: FigureGroup,
    unit: FigureUnit,
    target: Option<FigureTarget>,
    /// The measured value, or the reason for its absence.
    value: Result<f64, String>,
    yardstick: Option<f64>,
    /// Costs whose growth is the value.
    pub(crate) curve: Option<GrowthCurve>,
}

impl BenchFigure {
    pub(crate) fn new(name: &'static str, unit: FigureUnit) -> Self {
        let value = Err("not measured".to_owned());
        Self { name, group: FigureGroup::Start, unit, target: None, value, yardstick: None, curve: None }
    }

    /// Returns a figure of the growth of a cost over the growth of its input. It meets its target if the cost grows no faster.
    pub(crate) fn of_growth(name: &'static str) -> Self {
        Self::new(name, FigureUnit::Ratio).with_target(LINEAR)
    }

    pub(crate) fn in_group(self, group: FigureGroup) -> Self {
        Self { group, ..self }
    }

    pub(crate) fn with_target(self, target: f64) -> Self {
        Self { target: Some(FigureTarget::Value(target)), ..self }
    }

    /// Sets the target to so many times the value of the yardstick.
    pub(crate) fn target_yardsticks(self, times: f64) -> Self {
        Self { target: Some(FigureTarget::Yardsticks(times)), ..self }
    }

    fn target_value(&self) -> Option<f64> {
        match self.target? {
            FigureTarget::Value(value) => Some(value),
            FigureTarget::Yardsticks(times) => Some(times * self.yardstick?),
        }
    }

    /// Puts in what was measured: the value and its yardstick.
    pub(crate) fn with_result(self, taken: anyhow::Result<(f64, Option<f64>)>) -> Self {
        match taken {
            Ok((value, yardstick)) => Self { value: Ok(value), yardstick, ..self },
            Err(error) => Self { value: Err(format!("{error:#}")), ..self },
        }
    }

    /// Puts in a curve, whose growth is the value.
    pub(crate) fn with_curve(self, taken: anyhow::Result<GrowthCurve>) -> Self {
        let grown = taken.and_then(|curve| {
            let growth = curve.steepest_growth().context("a curve needs two sizes")?;
            Ok((growth, curve))
        });
        match grown {
            Ok((growth, curve)) => Self { value: Ok(growth), curve: Some(curve), ..self },
            Err(error) => Self { value: Err(format!("{error:#}")), ..self },
        }
    }

    /// Returns the figure as JSON. *Shape:* `{figure, unit, value, yardstick, target, points, unavailable}`, all there, null where there
    /// is none; `points` is an array of `[size, cost]`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "figure": self.name,
            "unit": self.unit.to_string(),
            "value": self.value.as_ref().ok(),
            "yardstick": self.yardstick,
            "target": self.target_value(),
            "points": self.curve.as_ref().map(|curve| &curve.points),
            "unavailable": self.value.as_ref().err(),
        })
    }

    /// Returns the value with its unit, or that it was not measured.
    pub(crate) fn value_text(&self) -> String {
        self.value.as_ref().map_or_else(|_| "not available".to_owned(), |value| self.with_unit(*value))
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", rounded_text(value), self.unit).trim_end().to_owned()
    }

    /// Reports whether the target is met; None without a target or a value.
    pub(crate) fn meets_target(&self) -> Option<bool> {
        Some(self.target_share()? <= 1.0)
    }

    /// Returns the used share of the target: 1 is all of it, more is a miss.
    pub(crate) fn target_share(&self) -> Option<f64> {
        let (value, target) = (*self.value.as_ref().ok()?, self.target_value()?);
        let (used, allowed) = if self.unit == FigureUnit::PerSecond { (target, value) } else { (value, target) };
        // Of what must not be at all, one is too many.
        Some(if allowed > 0.0 {
            used / allowed
        } else if used > 0.0 {
            f64::INFINITY
        } else {
            0.0
        })
    }

    /// Returns the reason why it was not measured.
    pub(crate) fn why_not(&self) -> Option<&str> {
        self.value.as_ref().err().map(String::as_str)
    }

    /// Returns name, value, yardstick and target, for users.
    pub(crate) fn table_cells(&self) -> [String; 4] {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| self.with_unit(value));
        [self.name.to_owned(), self.value_text(), optional(self.yardstick), optional(self.target_value())]
    }
}

/// Returns the middle of `values`; of an even number of them the upper of the two.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns the value that `of_hundred` percent of the `values` do not exceed.
pub(crate) fn percentile(mut values: Vec<f64>, of_hundred: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * of_hundred).div_ceil(100).saturating_sub(1)).copied()
}

/// Returns all figures as a table, with the reasons for those that are not available below it.
pub(crate) fn figure_table(figures: &[BenchFigure]) -> String {
    let head = ["figure", "measured", "yardstick", "target"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(figures.iter().map(BenchFigure::table_cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let [name, value, yardstick, target] = [0, 1, 2, 3].map(width);
    let mut table = String::new();
    for [a, b, c, d] in &rows {
        table += &format!("{a:<name$}  {b:>value$}  {c:>yardstick$}  {d:>target$}\n");
    }
    for figure in figures {
        if let Err(why) = &figure.value {
            table += &format!("{}: {why}\n", figure.name);
        }
        if let Some(curve) = &figure.curve {
            table += &format!("{}, by {}: {}\n", figure.name, curve.input, curve.points_text());
        }
    }
    table
}

pub(crate) fn rounded_text(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        for (values, want) in [(vec![], None), (vec![3.0, 1.0, 2.0], Some(2.0)), (vec![1.0, 2.0], Some(2.0))] {
            assert_eq!(median(values.clone()), want, "{values:?}");
        }
    }

    #[test]
    fn a_percentile_is_the_least_value_that_enough_do_not_exceed() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (values, of_hundred, want) in [
            (vec![], 99, None),
            (vec![5.0], 99, Some(5.0)),
            (hundred.clone(), 99, Some(99.0)),
            (hundred, 50, Some(50.0)),
        ] {
            assert_eq!(percentile(values.clone(), of_hundred), want, "{values:?}");
        }
    }

    #[test]
    fn a_target_may_be_a_part_of_the_yardstick() {
        let figure = BenchFigure::new("rate", FigureUnit::PerSecond).target_yardsticks(0.5);
        assert_eq!(figure.clone().with_result(Ok((90.0, Some(160.0)))).to_json()["target"], 80.0);
        assert_eq!(figure.with_result(Ok((90.0, None))).to_json()["target"], Value::Null);
    }

    #[test]
    fn a_rate_has_to_reach_its_target_and_anything_else_to_stay_below() {
        for (unit, target, value, holds, share) in [
            (FigureUnit::Millis, 2.0, 1.0, true, 0.5),
            (FigureUnit::Millis, 2.0, 3.0, false, 1.5),
            (FigureUnit::PerSecond, 100.0, 200.0, true, 0.5),
            (FigureUnit::PerSecond, 100.0, 50.0, false, 2.0),
            (FigureUnit::Count, 0.0, 0.0, true, 0.0),
            (FigureUnit::Count, 0.0, 1.0, false, f64::INFINITY),
        ] {
            let figure = BenchFigure::new("one", unit).with_target(target).with_result(Ok((value, None)));
            assert_eq!(
                (figure.meets_target(), figure.target_share()),
                (Some(holds), Some(share)),
                "{unit} {target} {value}"
            );
        }
        assert_eq!(BenchFigure::new("one", FigureUnit::Millis).with_result(Ok((1.0, None))).meets_target(), None);
    }

    #[test]
    fn a_cost_that_grows_faster_than_its_input_at_any_step_misses_its_target() {
        for (case, points, growth, holds) in [
            ("constant", vec![(10.0, 5.0), (100.0, 5.0)], 0.1, true),
            ("linear", vec![(10.0, 1.0), (100.0, 10.0), (1000.0, 100.0)], 1.0, true),
            ("quadratic after a constant part", vec![(10.0, 100.0), (100.0, 100.0), (1000.0, 5000.0)], 5.0, false),
        ] {
            let curve = GrowthCurve { unit: FigureUnit::Millis, input: "sessions", points };
            let figure = BenchFigure::of_growth("list").with_curve(Ok(curve));
            assert_eq!((figure.value.clone(), figure.meets_target()), (Ok(growth), Some(holds)), "{case}");
        }
    }

    #[test]
    fn the_table_has_every_size_of_a_curve() {
        let points = vec![(1000.0, 1.5), (100_000.0, 20.0)];
        let curve = GrowthCurve { unit: FigureUnit::Millis, input: "sessions", points };
        let table = figure_table(&[BenchFigure::of_growth("list").with_curve(Ok(curve))]);
        assert!(table.ends_with("list, by sessions: 1,000: 1.50 ms, 100,000: 20.0 ms\n"), "{table}");
    }

    #[test]
    fn a_figure_that_failed_keeps_its_row_and_its_reason() {
        let figures = [
            BenchFigure::new("start", FigureUnit::Millis).with_target(5.0).with_result(Ok((4.321, Some(1.4)))),
            BenchFigure::new("size", FigureUnit::Mebibytes).with_result(Err(anyhow::anyhow!("no file"))),
        ];
        let want = "\
figure       measured  yardstick   target
start         4.32 ms    1.40 ms  5.00 ms
size    not available          -        -
size: no file
";
        assert_eq!(figure_table(&figures), want);
    }

    #[test]
    fn a_program_gets_every_field_of_every_figure() {
        let figure = BenchFigure::new("start", FigureUnit::Millis).with_target(5.0).with_result(Ok((4.5, None)));
        let want = r#"{"figure":"start","unit":"ms","value":4.5,"yardstick":null,"target":5.0,"points":null,"unavailable":null}"#;
        let want: Value = serde_json::from_str(want).unwrap();
        assert_eq!(figure.to_json(), want);
    }
}
