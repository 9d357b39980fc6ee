//! Classes of actions that a whole shell line needs.

use std::collections::BTreeSet;

use crate::{
    action_class::ActionClass as Class,
    analyze,
    line::{LineAnalysis, Place},
};

/// The classes of actions that a shell line needs, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineClasses(BTreeSet<Class>);

impl LineClasses {
    /// Sorts `command` as run in `cwd` by a user whose home is `home`. A line that does nothing only reads.
    pub fn for_command(command: &str, cwd: &str, home: Option<&str>) -> Self {
        let place = Place { cwd: cwd.to_owned(), home: home.map(str::to_owned), ..Place::default() };
        classes_of(&analyze(command, &place))
    }

    /// Returns the worst of them.
    pub fn worst_class(&self) -> Class {
        self.0.last().copied().unwrap_or(Class::BashReadonly)
    }

    /// Returns all of them, the worst last. [`Class::BashReadonly`] is among them only if it is the only one: a permission to change
    /// includes reading.
    pub fn iter(&self) -> impl Iterator<Item = Class> + '_ {
        self.0.iter().copied()
    }
}

/// Returns the classes of a line that was judged.
pub fn classes_of(line: &LineAnalysis) -> LineClasses {
    let mut classes = line.classes.clone();
    classes.insert(Class::BashReadonly);
    if classes.len() > 1 {
        classes.remove(&Class::BashReadonly);
    }
    LineClasses(classes)
}
