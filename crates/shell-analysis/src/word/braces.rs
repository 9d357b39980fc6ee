//! What braces around commas make of a word: words of their own.
//!
//! It must not know what the words mean. Whatever a shell keeps whole, quotes and what a dollar begins, it keeps whole.

mod sequence;

use super::scan;

/// The most words that are made of one, and the most bytes of them.
const MOST_WORDS: usize = 256;
const MOST_BYTES: usize = 64 * 1024;

/// How deep pairs may stand in one another.
const DEEPEST: usize = 32;

/// The most parts that are looked at in one word.
const MOST_STEPS: usize = 1 << 20;

/// More words than are looked at, or longer ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A part of a word as braces see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    Open,
    Close,
    Comma,
    Text(&'a str),
}

impl<'a> Unit<'a> {
    /// Whether a shell finds a comma in it: one in quotes counts too.
    fn holds_comma(self) -> bool {
        match self {
            Self::Comma => true,
            Self::Text(text) => text.replace("\\,", "").contains(','),
            Self::Open | Self::Close => false,
        }
    }

    const fn text(self) -> &'a str {
        match self {
            Self::Open => "{",
            Self::Close => "}",
            Self::Comma => ",",
            Self::Text(text) => text,
        }
    }
}

/// The words that a shell makes of `raw` for its `{a,b}` and `{a..b}`, in its order. A long sequence stays as it is written.
///
/// # Errors
/// [`TooMany`] where it would be more than anybody can look at: each pair doubles them.
pub(crate) fn braces(raw: &str) -> Result<Vec<String>, TooMany> {
    let may_be_words = raw.contains(',') || raw.contains("..");
    if !(raw.contains('{') && raw.contains('}') && may_be_words) {
        return Ok(vec![raw.to_owned()]);
    }
    let mut words = Opener { steps: 0 }.opened(&scan::units(raw), 0)?;
    // What nothing is left of is no word.
    words.retain(|word| !word.is_empty());
    Ok(words)
}

/// Opens pairs of braces the way bash does: from the left, the outermost first.
struct Opener {
    /// How many parts were looked at.
    steps: usize,
}

impl Opener {
    fn opened(&mut self, units: &[Unit<'_>], depth: usize) -> Result<Vec<String>, TooMany> {
        if depth > DEEPEST {
            return Err(TooMany);
        }
        let (mut words, mut rest) = (vec![String::new()], units);
        while let Some(pair) = self.first(rest)? {
            let between = &rest[pair.open + 1..pair.close];
            let mut middle = Vec::new();
            if between.iter().any(|unit| unit.holds_comma()) {
                for part in parts(between) {
                    middle.extend(self.opened(part, depth + 1)?);
                }
            } else {
                let whole = || vec![said(&rest[pair.open..=pair.close])];
                middle = sequence::members(&said(between)).unwrap_or_else(whole);
            }
            words = joined(&words, &[said(&rest[..pair.open])])?;
            words = joined(&words, &middle)?;
            rest = &rest[pair.close + 1..];
        }
        joined(&words, &[said(rest)])
    }

    /// The first pair that a shell opens. One that does not close, or has neither a comma nor dots of its own, is text.
    fn first(&mut self, units: &[Unit<'_>]) -> Result<Option<Pair>, TooMany> {
        for (open, unit) in units.iter().enumerate() {
            // Empty at the beginning it is text.
            let is_empty = open == 0 && units.get(1).is_none_or(|next| *next == Unit::Close);
            if *unit != Unit::Open || is_empty {
                continue;
            }
            if let Some(close) = self.close(units, open + 1)? {
                return Ok(Some(Pair { open, close }));
            }
        }
        Ok(None)
    }

    /// Where the pair closes that opened before `from`: a brace before its first comma or dots is text.
    fn close(&mut self, units: &[Unit<'_>], from: usize) -> Result<Option<usize>, TooMany> {
        let (mut depth, mut has_parts) = (0_usize, false);
        for (at, unit) in units.iter().enumerate().skip(from) {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(TooMany);
            }
            match unit {
                Unit::Close if depth == 0 && has_parts => return Ok(Some(at)),
                Unit::Close => depth = depth.saturating_sub(1),
                Unit::Open => depth += 1,
                Unit::Comma => has_parts |= depth == 0,
                Unit::Text(".") => {
                    let are_dots =
                        units.get(at + 1) == Some(&Unit::Text(".")) && units.get(at + 2) != Some(&Unit::Close);
                    has_parts |= depth == 0 && are_dots;
                }
                Unit::Text(_) => {}
            }
        }
        Ok(None)
    }
}

/// A pair of braces around commas or dots.
struct Pair {
    open: usize,
    close: usize,
}

/// What stands between the commas of a pair, not of those in it.
fn parts<'u, 'a>(units: &'u [Unit<'a>]) -> Vec<&'u [Unit<'a>]> {
    let mut depth = 0_usize;
    let is_between = |unit: &Unit<'_>| {
        match unit {
            Unit::Open => depth += 1,
            Unit::Close => depth = depth.saturating_sub(1),
            Unit::Comma | Unit::Text(_) => {}
        }
        depth == 0 && *unit == Unit::Comma
    };
    units.split(is_between).collect()
}

/// Each of `words` with each of `ends` behind it.
fn joined(words: &[String], ends: &[String]) -> Result<Vec<String>, TooMany> {
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let length = bytes(words).saturating_mul(ends.len()).saturating_add(bytes(ends).saturating_mul(words.len()));
    if words.len().saturating_mul(ends.len()) > MOST_WORDS || length > MOST_BYTES {
        return Err(TooMany);
    }
    Ok(words.iter().flat_map(|word| ends.iter().map(move |end| format!("{word}{end}"))).collect())
}

fn said(units: &[Unit<'_>]) -> String {
    units.iter().map(|unit| unit.text()).collect()
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
            ("{a,{b,c}}", "a b c"),
            ("{a,{b},c}", "a {b} c"),
            ("{a,{b,c}", "{a,b {a,c"),
            ("{a,b}}", "a} b}"),
            ("{,a}", "a"),
            ("{-rf,'/home'}", "-rf '/home'"),
            ("{-rf,\"$HOME\"}", "-rf \"$HOME\""),
            ("{a,$HOME}", "a $HOME"),
            ("{'a,b',c}", "'a,b' c"),
            ("{\"a,${x:-\"}\"}\",c}", "\"a,${x:-\"}\"}\" c"),
            ("{$(a ,b),c}", "$(a ,b) c"),
            ("{`a,b`,c}", "`a,b` c"),
            ("{$'\\'a,b',c}", "$'\\'a,b' c"),
            ("x{a..c}", "xa xb xc"),
            ("{2..-2..2}", "2 0 -2"),
            ("{-08..-07}", "-08 -07"),
            ("{1..100}x{a,b}", "{1..100}xa {1..100}xb"),
            ("{$x..3}{a,b}", "{$x..3}a {$x..3}b"),
        ] {
            assert_eq!(braces(raw).unwrap().join(" "), want, "{raw}");
        }
    }

    /// The table is what bash 5.2 made of each word; long sequences are not in it.
    #[test]
    fn words_come_in_the_order_of_bash() {
        #[derive(serde::Deserialize)]
        struct Case {
            word: String,
            made: Vec<String>,
        }
        let unquoted = |word: &String| word.replace(['\'', '"', '\\'], "");
        for line in include_str!("../../tests/data/brace_cases.jsonl").lines() {
            let case: Case = serde_json::from_str(line).unwrap();
            let words: Vec<String> = braces(&case.word).unwrap().iter().map(unquoted).collect();
            assert_eq!(words, case.made, "{}", case.word);
        }
    }

    #[test]
    fn a_word_without_a_comma_in_braces_stays() {
        for raw in [
            "{a}",
            "{}",
            "{1..3}",
            "{A..z}",
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
