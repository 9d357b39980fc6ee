//! Sequences in braces: `{a..c}`, `{1..10..2}`.
//!
//! It must not know what stands around them.

/// Maximum number of members of a sequence that are listed one by one.
const MOST_MEMBERS: i64 = 64;

/// Returns the members of a sequence in braces. None if it is no sequence, or one that need not be listed: several numbers without a dash
/// are no option and no name that matters, and rules see them as text that is only known when the line runs.
pub(super) fn sequence_members(text: &str) -> Option<Vec<String>> {
    let mut parts = text.splitn(3, "..");
    let (first, last) = (parts.next()?, parts.next()?);
    let step = match parts.next() {
        Some(step) => parse_number(step)?,
        None => 1,
    };
    let step = step.checked_abs()?.max(1);
    if let (Some(from), Some(to)) = (parse_number(first), parse_number(last)) {
        let width = [first, last].into_iter().filter(|text| is_padded(text)).map(str::len).max().unwrap_or(0);
        let all = number_steps(from, to, step)?;
        (all.len() == 1 || from < 0 || to < 0).then_some(())?;
        let width = if width > 0 { first.len().max(last.len()) } else { 0 };
        return Some(all.into_iter().map(|number| pad_number(number, width)).collect());
    }
    let (from, to) = (parse_letter(first)?, parse_letter(last)?);
    // Between capitals and small letters there are other characters.
    (from.is_ascii_lowercase() == to.is_ascii_lowercase()).then_some(())?;
    let all = number_steps(i64::from(u32::from(from)), i64::from(u32::from(to)), step)?;
    all.into_iter().map(|code| u8::try_from(code).ok().map(|code| char::from(code).to_string())).collect()
}

/// Returns the numbers from one to another. None if there are too many.
fn number_steps(from: i64, to: i64, step: i64) -> Option<Vec<i64>> {
    let distance = to.checked_sub(from)?;
    let count = distance.checked_abs()? / step;
    (count < MOST_MEMBERS).then(|| (0..=count).map(|at| from + at * step * distance.signum()).collect())
}

fn parse_number(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn parse_letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters.next().filter(|letter| letter.is_ascii_alphabetic() && letters.next().is_none())
}

fn is_padded(text: &str) -> bool {
    let digits = text.trim_start_matches('-');
    digits.len() > 1 && digits.starts_with('0')
}

fn pad_number(number: i64, width: usize) -> String {
    if number < 0 {
        format!("-{:0>1$}", number.unsigned_abs(), width.saturating_sub(1))
    } else {
        format!("{number:0>width$}")
    }
}
