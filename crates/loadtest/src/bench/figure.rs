//! A figure beside its yardstick and its target, as a row for people and as a line for programs.

use std::fmt;

use serde_json::{Value, json};

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Micros,
    Millis,
    Seconds,
    Mebibytes,
    Kibibytes,
    PerSecond,
    Ratio,
    Count,
}

impl fmt::Display for Unit {
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

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    Value(f64),
    /// So many times the yardstick.
    Yardsticks(f64),
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    unit: Unit,
    target: Option<Target>,
    /// What was measured, or why it could not be.
    value: Result<f64, String>,
    yardstick: Option<f64>,
}

impl Figure {
    pub(crate) fn new(name: &'static str, unit: Unit) -> Self {
        Self { name, unit, target: None, value: Err("not taken".to_owned()), yardstick: None }
    }

    pub(crate) fn target(self, target: f64) -> Self {
        Self { target: Some(Target::Value(target)), ..self }
    }

    /// The target is so many times what the yardstick turns out to be.
    pub(crate) fn target_yardsticks(self, times: f64) -> Self {
        Self { target: Some(Target::Yardsticks(times)), ..self }
    }

    fn wanted(&self) -> Option<f64> {
        match self.target? {
            Target::Value(value) => Some(value),
            Target::Yardsticks(times) => Some(times * self.yardstick?),
        }
    }

    /// Puts in what was measured: the value and its yardstick.
    pub(crate) fn taken(self, taken: anyhow::Result<(f64, Option<f64>)>) -> Self {
        match taken {
            Ok((value, yardstick)) => Self { value: Ok(value), yardstick, ..self },
            Err(error) => Self { value: Err(format!("{error:#}")), ..self },
        }
    }

    /// *Shape:* `{figure, unit, value, yardstick, target, unavailable}`, all there, null where there is none.
    pub(crate) fn json(&self) -> Value {
        json!({
            "figure": self.name,
            "unit": self.unit.to_string(),
            "value": self.value.as_ref().ok(),
            "yardstick": self.yardstick,
            "target": self.wanted(),
            "unavailable": self.value.as_ref().err(),
        })
    }

    /// What was measured with its unit, or that it was not.
    pub(crate) fn value(&self) -> String {
        self.value.as_ref().map_or_else(|_| "not available".to_owned(), |value| self.with_unit(*value))
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", rounded(value), self.unit).trim_end().to_owned()
    }

    /// Whether the target is met; nothing without a target or a value.
    pub(crate) fn holds(&self) -> Option<bool> {
        Some(self.share()? <= 1.0)
    }

    /// How much of what the target allows is used: 1 is all of it, more is a miss.
    pub(crate) fn share(&self) -> Option<f64> {
        let (value, wanted) = (*self.value.as_ref().ok()?, self.wanted()?);
        let (used, allowed) = if self.unit == Unit::PerSecond { (wanted, value) } else { (value, wanted) };
        // Of what must not be at all, one is too many.
        Some(if allowed > 0.0 {
            used / allowed
        } else if used > 0.0 {
            f64::INFINITY
        } else {
            0.0
        })
    }

    /// Why it was not taken.
    pub(crate) fn why_not(&self) -> Option<&str> {
        self.value.as_ref().err().map(String::as_str)
    }

    /// Name, value, yardstick and target, as people read them.
    pub(crate) fn cells(&self) -> [String; 4] {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| self.with_unit(value));
        [self.name.to_owned(), self.value(), optional(self.yardstick), optional(self.wanted())]
    }
}

/// The middle of `values`; of an even number of them the upper of the two.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// What so many of a hundred `values` do not exceed.
pub(crate) fn percentile(mut values: Vec<f64>, of_hundred: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * of_hundred).div_ceil(100).saturating_sub(1)).copied()
}

/// All figures as a table, with the reasons for those that are not available below it.
pub(crate) fn table(figures: &[Figure]) -> String {
    let head = ["figure", "measured", "yardstick", "target"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(figures.iter().map(Figure::cells)).collect();
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

fn rounded(value: f64) -> String {
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
        let figure = Figure::new("rate", Unit::PerSecond).target_yardsticks(0.5);
        assert_eq!(figure.clone().taken(Ok((90.0, Some(160.0)))).json()["target"], 80.0);
        assert_eq!(figure.taken(Ok((90.0, None))).json()["target"], Value::Null);
    }

    #[test]
    fn a_rate_has_to_reach_its_target_and_anything_else_to_stay_below() {
        for (unit, target, value, holds, share) in [
            (Unit::Millis, 2.0, 1.0, true, 0.5),
            (Unit::Millis, 2.0, 3.0, false, 1.5),
            (Unit::PerSecond, 100.0, 200.0, true, 0.5),
            (Unit::PerSecond, 100.0, 50.0, false, 2.0),
            (Unit::Count, 0.0, 0.0, true, 0.0),
            (Unit::Count, 0.0, 1.0, false, f64::INFINITY),
        ] {
            let figure = Figure::new("one", unit).target(target).taken(Ok((value, None)));
            assert_eq!((figure.holds(), figure.share()), (Some(holds), Some(share)), "{unit} {target} {value}");
        }
        assert_eq!(Figure::new("one", Unit::Millis).taken(Ok((1.0, None))).holds(), None);
    }

    #[test]
    fn a_figure_that_failed_keeps_its_row_and_its_reason() {
        let figures = [
            Figure::new("start", Unit::Millis).target(5.0).taken(Ok((4.321, Some(1.4)))),
            Figure::new("size", Unit::Mebibytes).taken(Err(anyhow::anyhow!("no file"))),
        ];
        let want = "\
figure       measured  yardstick   target
start         4.32 ms    1.40 ms  5.00 ms
size    not available          -        -
size: no file
";
        assert_eq!(table(&figures), want);
    }

    #[test]
    fn a_program_gets_every_field_of_every_figure() {
        let figure = Figure::new("start", Unit::Millis).target(5.0).taken(Ok((4.5, None)));
        let want = r#"{"figure":"start","unit":"ms","value":4.5,"yardstick":null,"target":5.0,"unavailable":null}"#;
        let want: Value = serde_json::from_str(want).unwrap();
        assert_eq!(figure.json(), want);
    }
}
