//! Whom a rule is bound to: who asks, through which door, for which target. Knows nothing of what rules decide.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::policy::{fnmatch::Pattern, patterns::Patterns, rules::Rule, subject::Subject};

/// What of a call rules can be bound to. What a call does not have, no bound rule matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    principal: &'a str,
    door: Option<&'a str>,
    target: Option<&'a str>,
}

/// One of the three things that a rule may be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who asks.
    Principal,
    /// The door through which it came.
    Door,
    /// The service that it goes to.
    Target,
}

impl Side {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 3] = [Self::Principal, Self::Door, Self::Target];

    /// The key in a rule.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Door => "door",
            Self::Target => "target",
        }
    }

    /// The pattern that `rule` has for it.
    pub fn of(self, rule: &Rule) -> Option<&str> {
        match self {
            Self::Principal => rule.principal.as_deref(),
            Self::Door => rule.door.as_deref(),
            Self::Target => rule.target.as_deref(),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl<'a> Caller<'a> {
    /// What `subject` has; a call that does not know its door came through `door`.
    pub(crate) fn of(subject: &'a Subject, door: Option<&'a str>) -> Self {
        Self {
            principal: subject.principal.as_str(),
            door: subject.door.as_deref().or(door),
            target: subject.target.as_deref(),
        }
    }

    /// The texts that a pattern for `side` may match. An agent has two: its id, and that behind the word that tells agents
    /// from people.
    fn texts(self, side: Side) -> impl Iterator<Item = &'a str> {
        let (first, second) = match side {
            Side::Principal => (Some(self.principal), self.principal.strip_prefix("agent:")),
            Side::Door => (self.door, None),
            Side::Target => (self.target, None),
        };
        first.into_iter().chain(second)
    }

    /// The text for people.
    pub(crate) fn shown(self, side: Side) -> Option<&'a str> {
        self.texts(side).last()
    }

    /// True if `rule` is not bound to anything else on this side.
    pub(crate) fn meets(self, rule: &Rule, side: Side) -> bool {
        side.of(rule).is_none_or(|pattern| {
            let pattern = Pattern::new(pattern);
            self.texts(side).any(|text| pattern.matches(text))
        })
    }
}

/// Values by whom they are bound to.
///
/// What one caller meets is found by one look-up a side and one for each combination of what those found.
#[derive(Debug)]
pub(crate) struct Bound<T> {
    sides: [Names; 3],
    groups: BTreeMap<[Option<usize>; 3], T>,
}

/// The patterns of one side, each with a number.
#[derive(Debug, Default)]
struct Names {
    numbers: BTreeMap<String, usize>,
    patterns: Patterns,
}

impl<T> Default for Bound<T> {
    fn default() -> Self {
        Self { sides: Default::default(), groups: BTreeMap::new() }
    }
}

impl<T: Default> Bound<T> {
    /// The value for everything that is bound as `rule` is.
    pub(crate) fn entry(&mut self, rule: &Rule) -> &mut T {
        let mut key = [None; 3];
        for ((names, side), number) in self.sides.iter_mut().zip(Side::ALL).zip(&mut key) {
            *number = side.of(rule).map(|pattern| names.number(pattern));
        }
        self.groups.entry(key).or_default()
    }
}

impl<T> Bound<T> {
    /// Every value.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.groups.values_mut()
    }

    /// Compiles what is crowded.
    pub(crate) fn compile(&mut self) {
        self.sides.iter_mut().for_each(|names| names.patterns.compile());
    }

    /// The values whose bounds `caller` meets.
    pub(crate) fn met_by(&self, caller: Caller<'_>) -> Vec<&T> {
        if self.sides.iter().all(|names| names.numbers.is_empty()) {
            return self.groups.values().collect();
        }
        let mut met = Side::ALL.iter().zip(&self.sides).map(|(side, names)| names.met_by(caller, *side));
        let [Some(principals), Some(doors), Some(targets)] = [met.next(), met.next(), met.next()] else {
            return Vec::new();
        };
        if principals.len() * doors.len() * targets.len() > self.groups.len() {
            let meets = |key: &[Option<usize>; 3]| {
                principals.contains(&key[0]) && doors.contains(&key[1]) && targets.contains(&key[2])
            };
            return self.groups.iter().filter(|(key, _)| meets(key)).map(|(_, value)| value).collect();
        }
        let mut values = Vec::new();
        for principal in &principals {
            for door in &doors {
                values.extend(targets.iter().filter_map(|target| self.groups.get(&[*principal, *door, *target])));
            }
        }
        values
    }
}

impl Names {
    fn number(&mut self, pattern: &str) -> usize {
        if let Some(number) = self.numbers.get(pattern) {
            return *number;
        }
        let number = self.numbers.len();
        self.numbers.insert(pattern.to_owned(), number);
        self.patterns.insert(number, Pattern::new(pattern));
        number
    }

    /// Unbound, and every pattern that a text of `caller` matches.
    fn met_by(&self, caller: Caller<'_>, side: Side) -> BTreeSet<Option<usize>> {
        let named = (!self.numbers.is_empty()).then(|| caller.texts(side)).into_iter().flatten();
        std::iter::once(None).chain(named.flat_map(|text| self.patterns.matching(text)).map(Some)).collect()
    }
}
