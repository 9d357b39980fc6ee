//! The figures of names and texts: `cargo xtask tidy --measure`.
//!
//! Each figure has a target, and a limit that the workspace must not exceed again. A limit above its target only falls.

mod names;
mod texts;

use std::{fmt, path::PathBuf};

use crate::{
    tidy::{
        TidyFinding, read_text,
        source::{self, RustSource},
    },
    workspace::{Workspace, rust_files},
};

use names::NameFigures;
pub(crate) use names::type_name;
use texts::TextFigures;

/// One measured figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    name: &'static str,
    value: f64,
    target: Bound,
    /// Held from now on. `None` where the target is reached: the target holds then.
    limit: Option<f64>,
    unit: &'static str,
}

/// On which side of a number a figure shall be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    const fn number(self) -> f64 {
        match self {
            Self::AtMost(number) | Self::AtLeast(number) => number,
        }
    }

    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(number) => value <= number,
            Self::AtLeast(number) => value >= number,
        }
    }
}

impl Figure {
    /// Reports whether the figure is within its limit, even if it misses its target.
    fn is_within_limit(&self) -> bool {
        let bound = match (self.target, self.limit) {
            (target, None) => target,
            (Bound::AtMost(_), Some(limit)) => Bound::AtMost(limit),
            (Bound::AtLeast(_), Some(limit)) => Bound::AtLeast(limit),
        };
        bound.holds(self.value)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.target {
            Bound::AtMost(_) => "at most",
            Bound::AtLeast(_) => "at least",
        };
        let (value, target) = (rounded(self.value), rounded(self.target.number()));
        let reached = if self.target.holds(self.value) { "" } else { "  (not reached)" };
        write!(f, "{:<52} {value:>8}{}  {side} {target}{}{reached}", self.name, self.unit, self.unit)
    }
}

fn rounded(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Prints every figure with its target, and the type names that are defined too often.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let (names, texts) = measured(workspace)?;
    figures(&names, &texts).iter().for_each(|figure| println!("{figure}"));
    for (name, definitions) in names.repeated() {
        println!("{name} is defined {definitions} times");
    }
    Ok(())
}

/// Finds the figures beyond their limits.
pub(crate) fn findings(workspace: &Workspace) -> anyhow::Result<Vec<TidyFinding>> {
    let (names, texts) = measured(workspace)?;
    let beyond = figures(&names, &texts).into_iter().filter(|figure| !figure.is_within_limit());
    let finding = |figure: Figure| TidyFinding {
        file: PathBuf::from("xtask/src/tidy/measure.rs"),
        line: 1,
        what: figure.to_string(),
        why: "figures of names and texts only get better: `cargo xtask tidy --measure` prints them",
    };
    Ok(beyond.map(finding).collect())
}

fn measured(workspace: &Workspace) -> anyhow::Result<(NameFigures, TextFigures)> {
    let (mut names, mut texts) = (NameFigures::default(), TextFigures::default());
    for package in &workspace.packages {
        for path in rust_files(package.folder())? {
            let text = read_text(&path)?;
            let source = RustSource::new(workspace.relative_path(&path), &text);
            names.add(&source);
            texts.add_rustdoc(&text);
        }
    }
    for page in source::pages(&workspace.root)? {
        texts.add_page(workspace.relative_path(&page), &read_text(&page)?);
    }
    Ok((names, texts))
}

fn figures(names: &NameFigures, texts: &TextFigures) -> Vec<Figure> {
    let figure = |name, value, target, limit, unit| Figure { name, value, target, limit, unit };
    let percent = "%";
    vec![
        figure("type names of one word", names.one_word_types(), Bound::AtMost(40.0), None, percent),
        figure("definitions of each type name", names.definitions_per_name(), Bound::AtMost(1.25), None, ""),
        figure("type names with more than three definitions", names.too_frequent(), Bound::AtMost(0.0), None, ""),
        figure("function names of one word", names.one_word_functions(), Bound::AtMost(45.0), None, percent),
        figure("told, said, asked, wanted, heard as identifiers", names.banned_words(), Bound::AtMost(100.0), None, ""),
        figure(
            "rustdoc that begins with What, Who or How",
            texts.rustdoc_questions(),
            Bound::AtMost(3.0),
            None,
            percent,
        ),
        figure("told, said, heard in 1,000 words of documents", texts.told(), Bound::AtMost(0.5), None, ""),
        figure("you, your in 1,000 words of guides", texts.you(), Bound::AtLeast(8.0), None, ""),
        figure("words of ARCHITECTURE.md", texts.words_of("ARCHITECTURE.md"), Bound::AtMost(3000.0), None, ""),
        figure("words of README.md", texts.words_of("README.md"), Bound::AtMost(900.0), None, ""),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_held_by_its_limit_until_it_reaches_its_target() {
        let at_most = |value, limit| Figure { name: "n", value, target: Bound::AtMost(3.0), limit, unit: "" };
        let at_least = |value, limit| Figure { name: "n", value, target: Bound::AtLeast(8.0), limit, unit: "" };
        for (figure, want) in [
            (at_most(3.0, None), true),
            (at_most(3.1, None), false),
            (at_most(5.0, Some(5.0)), true),
            (at_most(5.1, Some(5.0)), false),
            (at_least(8.0, None), true),
            (at_least(7.9, None), false),
            (at_least(2.0, Some(2.0)), true),
            (at_least(1.9, Some(2.0)), false),
        ] {
            assert_eq!(figure.is_within_limit(), want, "{figure:?}");
        }
        assert!(at_most(5.0, Some(5.0)).to_string().ends_with("at most 3  (not reached)"));
        assert!(at_least(8.5, None).to_string().ends_with("8.50  at least 8"));
    }
}
