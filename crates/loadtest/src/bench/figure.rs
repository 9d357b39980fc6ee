//! A figure with its yardstick and its target, as a row for users and as a line for programs.

use std::fmt;

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
    unit: FigureUnit,
    target: Option<FigureTarget>,
    /// The measured value, or the reason for its absence.
    value: Result<f64, String>,
    yardstick: Option<f64>,
}

impl BenchFigure {
    pub(crate) fn new(name: &'static str, unit: FigureUnit) -> Self {
        Self { name, unit, target: None, value: Err("not measured".to_owned()), yardstick: None }
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

    /// Returns the figure as JSON. *Shape:* `{figure, unit, value, yardstick, target, unavailable}`, all there, null where there is none.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "figure": self.name,
            "unit": self.unit.to_string(),
            "value": self.value.as_ref().ok(),
            "yardstick": self.yardstick,
            "target": self.target_value(),
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
    }
    table
}

fn rounded_text(value: f64) -> String {
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
        let want = r#"{"figure":"start","unit":"ms","value":4.5,"yardstick":null,"target":5.0,"unavailable":null}"#;
        let want: Value = serde_json::from_str(want).unwrap();
        assert_eq!(figure.to_json(), want);
    }
}
