//! Words that braces around commas make of a word.
//!
//! It must not know what the words mean. Parts that a shell keeps whole, such as quotes and expansions, stay whole.

mod sequence;

use super::scan;

/// The most words that are made of one, and the most bytes of them.
const MOST_WORDS: usize = 256;
const MOST_BYTES: usize = 64 * 1024;

/// Maximum nesting of pairs.
const DEEPEST: usize = 32;

/// The most parts that are looked at in one word.
const MOST_STEPS: usize = 1 << 20;

/// More words than are looked at, or longer ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyWords;

/// A part of a word as braces see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BraceUnit<'a> {
    Open,
    Close,
    Comma,
    Text(&'a str),
}

impl<'a> BraceUnit<'a> {
    /// Reports whether a shell finds a comma in it: one in quotes counts too.
    fn holds_comma(self) -> bool {
        match self {
            Self::Comma => true,
            Self::Text(text) => text.replace("\\,", "").contains(','),
            Self::Open | Self::Close => false,
        }
    }

    const fn unit_text(self) -> &'a str {
        match self {
            Self::Open => "{",
            Self::Close => "}",
            Self::Comma => ",",
            Self::Text(text) => text,
        }
    }
}

/// Returns the words that a shell makes of `raw` for its `{a,b}` and `{a..b}`, in its order. A long sequence stays as it is written.
///
/// # Errors
/// [`TooManyWords`] if there would be too many: each pair doubles them.
pub(crate) fn expand_braces(raw: &str) -> Result<Vec<String>, TooManyWords> {
    let may_be_words = raw.contains(',') || raw.contains("..");
    if !(raw.contains('{') && raw.contains('}') && may_be_words) {
        return Ok(vec![raw.to_owned()]);
    }
    let mut words = BraceExpander { steps: 0 }.expand_units(&scan::brace_units(raw), 0)?;
    // An empty result is no word.
    words.retain(|word| !word.is_empty());
    Ok(words)
}

/// Opens pairs of braces the way bash does: from the left, the outermost first.
struct BraceExpander {
    /// Number of parts that were looked at.
    steps: usize,
}

impl BraceExpander {
    fn expand_units(&mut self, units: &[BraceUnit<'_>], depth: usize) -> Result<Vec<String>, TooManyWords> {
        if depth > DEEPEST {
            return Err(TooManyWords);
        }
        let (mut words, mut rest) = (vec![String::new()], units);
        while let Some(pair) = self.first_pair(rest)? {
            let between = &rest[pair.open + 1..pair.close];
            let mut middle = Vec::new();
            if between.iter().any(|unit| unit.holds_comma()) {
                for part in split_commas(between) {
                    middle.extend(self.expand_units(part, depth + 1)?);
                }
            } else {
                let whole = || vec![units_text(&rest[pair.open..=pair.close])];
                middle = sequence::sequence_members(&units_text(between)).unwrap_or_else(whole);
            }
            words = append_each(&words, &[units_text(&rest[..pair.open])])?;
            words = append_each(&words, &middle)?;
            rest = &rest[pair.close + 1..];
        }
        append_each(&words, &[units_text(rest)])
    }

    /// Returns the first pair that a shell opens. One that does not close, or has neither a comma nor dots of its own, is text.
    fn first_pair(&mut self, units: &[BraceUnit<'_>]) -> Result<Option<BracePair>, TooManyWords> {
        for (open, unit) in units.iter().enumerate() {
            // Empty at the beginning it is text.
            let is_empty = open == 0 && units.get(1).is_none_or(|next| *next == BraceUnit::Close);
            if *unit != BraceUnit::Open || is_empty {
                continue;
            }
            if let Some(close) = self.find_close(units, open + 1)? {
                return Ok(Some(BracePair { open, close }));
            }
        }
        Ok(None)
    }

    /// Returns the end of the pair that opened before `from`: a brace before its first comma or dots is text.
    fn find_close(&mut self, units: &[BraceUnit<'_>], from: usize) -> Result<Option<usize>, TooManyWords> {
        let (mut depth, mut has_parts) = (0_usize, false);
        for (at, unit) in units.iter().enumerate().skip(from) {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(TooManyWords);
            }
            match unit {
                BraceUnit::Close if depth == 0 && has_parts => return Ok(Some(at)),
                BraceUnit::Close => depth = depth.saturating_sub(1),
                BraceUnit::Open => depth += 1,
                BraceUnit::Comma => has_parts |= depth == 0,
                BraceUnit::Text(".") => {
                    let are_dots = units.get(at + 1) == Some(&BraceUnit::Text("."))
                        && units.get(at + 2) != Some(&BraceUnit::Close);
                    has_parts |= depth == 0 && are_dots;
                }
                BraceUnit::Text(_) => {}
            }
        }
        Ok(None)
    }
}

/// A pair of braces around commas or dots.
struct BracePair {
    open: usize,
    close: usize,
}

/// Returns the parts between the commas of a pair, not of those in it.
fn split_commas<'u, 'a>(units: &'u [BraceUnit<'a>]) -> Vec<&'u [BraceUnit<'a>]> {
    let mut depth = 0_usize;
    let is_between = |unit: &BraceUnit<'_>| {
        match unit {
            BraceUnit::Open => depth += 1,
            BraceUnit::Close => depth = depth.saturating_sub(1),
            BraceUnit::Comma | BraceUnit::Text(_) => {}
        }
        depth == 0 && *unit == BraceUnit::Comma
    };
    units.split(is_between).collect()
}

/// Returns each of `words` with each of `ends` appended.
fn append_each(words: &[String], ends: &[String]) -> Result<Vec<String>, TooManyWords> {
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let length = bytes(words).saturating_mul(ends.len()).saturating_add(bytes(ends).saturating_mul(words.len()));
    if words.len().saturating_mul(ends.len()) > MOST_WORDS || length > MOST_BYTES {
        return Err(TooManyWords);
    }
    Ok(words.iter().flat_map(|word| ends.iter().map(move |end| format!("{word}{end}"))).collect())
}

fn units_text(units: &[BraceUnit<'_>]) -> String {
    units.iter().map(|unit| unit.unit_text()).collect()
}

#[cfg(test)]
mod tests {
    use super::{TooManyWords, expand_braces};

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
            assert_eq!(expand_braces(raw).unwrap().join(" "), want, "{raw}");
        }
    }

    /// The table is what bash 5.2 made of each word; long sequences are not in it.
    #[test]
    fn words_come_in_the_order_of_bash() {
        #[derive(serde::Deserialize)]
        struct BraceCase {
            word: String,
            made: Vec<String>,
        }
        let unquoted = |word: &String| word.replace(['\'', '"', '\\'], "");
        for line in include_str!("../../tests/data/brace_cases.jsonl").lines() {
            let case: BraceCase = serde_json::from_str(line).unwrap();
            let words: Vec<String> = expand_braces(&case.word).unwrap().iter().map(unquoted).collect();
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
            assert_eq!(expand_braces(raw), Ok(vec![raw.to_owned()]), "{raw}");
        }
    }

    #[test]
    fn what_doubles_without_end_is_given_up_at_once() {
        for raw in
            ["{a,b}".repeat(40), "{a,".repeat(9_000) + &"}".repeat(9_000), format!("{}{{a,b}}", "x".repeat(60_000))]
        {
            assert_eq!(expand_braces(&raw), Err(TooManyWords), "{raw:.80}");
        }
        assert_eq!(expand_braces(&"{a,b}".repeat(8)).map(|words| words.len()), Ok(256));
    }
}
