//! What braces around commas make of a word: words of their own.
//!
//! It must not know what the words mean. Whatever a shell keeps whole, quotes and what a dollar begins, it keeps whole.

use super::scan;

/// The most words that are made of one, and the most bytes of them.
const MOST_WORDS: usize = 256;
const MOST_BYTES: usize = 64 * 1024;

/// More words than are looked at, or longer ones.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::policy::shell) struct TooMany;

/// A part of a word as braces see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    Open,
    Close,
    Comma,
    Text(&'a str),
}

impl<'a> Unit<'a> {
    const fn text(self) -> &'a str {
        match self {
            Self::Open => "{",
            Self::Close => "}",
            Self::Comma => ",",
            Self::Text(text) => text,
        }
    }
}

/// The words that a shell makes of `raw` for its `{a,b}`. Pairs are opened from the inside, so that the order may be another than a
/// shell's; `{a..b}` stays.
///
/// # Errors
/// [`TooMany`] where it would be more than anybody can look at: each pair doubles them.
pub(in crate::policy::shell) fn braces(raw: &str) -> Result<Vec<String>, TooMany> {
    if !(raw.contains('{') && raw.contains(',') && raw.contains('}')) {
        return Ok(vec![raw.to_owned()]);
    }
    let (mut words, mut open) = (Vec::new(), vec![scan::units(raw)]);
    let mut bytes = raw.len();
    while let Some(units) = open.pop() {
        let Some(pair) = Pair::first(&units) else {
            words.push(said(&units));
            continue;
        };
        bytes -= length(&units);
        for part in pair.parts(&units).rev() {
            let made = [&units[..pair.open], part, &units[pair.close + 1..]].concat();
            bytes += length(&made);
            open.push(made);
            if words.len() + open.len() > MOST_WORDS || bytes > MOST_BYTES {
                return Err(TooMany);
            }
        }
    }
    Ok(words)
}

fn said(units: &[Unit<'_>]) -> String {
    units.iter().map(|unit| unit.text()).collect()
}

fn length(units: &[Unit<'_>]) -> usize {
    units.iter().map(|unit| unit.text().len()).sum()
}

/// A pair of braces around commas.
struct Pair {
    open: usize,
    close: usize,
}

impl Pair {
    /// The first pair that closes with a comma of its own in it. Pairs within it have none.
    fn first(units: &[Unit<'_>]) -> Option<Self> {
        let mut around: Vec<(usize, bool)> = Vec::new();
        for (at, unit) in units.iter().enumerate() {
            match unit {
                Unit::Open => around.push((at, false)),
                Unit::Comma => around.iter_mut().last().into_iter().for_each(|(_, has_comma)| *has_comma = true),
                Unit::Close => {
                    if let Some((open, true)) = around.pop() {
                        return Some(Self { open, close: at });
                    }
                }
                Unit::Text(_) => {}
            }
        }
        None
    }

    fn parts<'u, 'a>(&self, units: &'u [Unit<'a>]) -> impl DoubleEndedIterator<Item = &'u [Unit<'a>]> {
        units[self.open + 1..self.close].split(|unit| *unit == Unit::Comma)
    }
}

#[cfg(test)]
mod tests {
    use super::{TooMany, braces};

    #[test]
    fn each_part_between_commas_is_a_word() {
        for (raw, want) in [
            ("a", "a"),
            ("{a,b}", "a b"),
            ("x{a,b}y", "xay xby"),
            ("{a,b}{c,d}", "ac ad bc bd"),
            ("{a,{b,c}}", "a b a c"),
            ("{a,{b},c}", "a {b} c"),
            ("{a,{b,c}", "{a,b {a,c"),
            ("{a,b}}", "a} b}"),
            ("{,a}", " a"),
            ("{-rf,'/home'}", "-rf '/home'"),
            ("{-rf,\"$HOME\"}", "-rf \"$HOME\""),
            ("{a,$HOME}", "a $HOME"),
            ("{'a,b',c}", "'a,b' c"),
            ("{\"a,${x:-\"}\"}\",c}", "\"a,${x:-\"}\"}\" c"),
            ("{$(a ,b),c}", "$(a ,b) c"),
            ("{`a,b`,c}", "`a,b` c"),
            ("{$'\\'a,b',c}", "$'\\'a,b' c"),
        ] {
            assert_eq!(braces(raw).unwrap().join(" "), want, "{raw}");
        }
    }

    #[test]
    fn a_word_without_a_comma_in_braces_stays() {
        for raw in [
            "{a}",
            "{}",
            "{a..c}",
            "${a,b}",
            "${x:-{a,b}}",
            "\\{a,b}",
            "{a\\,b}",
            "'{a,b}'",
            "\"{a,b}\"",
            "a,b}{",
            "{a,b",
        ] {
            assert_eq!(braces(raw), Ok(vec![raw.to_owned()]), "{raw}");
        }
    }

    #[test]
    fn what_doubles_without_end_is_given_up_at_once() {
        for raw in
            ["{a,b}".repeat(40), "{a,".repeat(9_000) + &"}".repeat(9_000), format!("{}{{a,b}}", "x".repeat(60_000))]
        {
            assert_eq!(braces(&raw), Err(TooMany), "{raw:.80}");
        }
        assert_eq!(braces(&"{a,b}".repeat(8)).map(|words| words.len()), Ok(256));
    }
}
