//! Spellings of options in a word: a long one, perhaps cut short, or one letter of a group.
//!
//! It must not know what any program means by it.

use super::word::UNKNOWN;

/// Reports whether `text` is one of these long options, perhaps cut short, perhaps with a value, or may be.
pub(super) fn has_long(text: &str, known: &[&str]) -> bool {
    let given = text.split(['=', UNKNOWN]).next().unwrap_or(text);
    let is_open = text.starts_with('-') && text.contains(UNKNOWN) && !text.contains('=');
    // A letter after two dashes is enough, if no other option begins with it.
    let says = given.len() > 2 || is_open;
    says && known.iter().any(|known| text.starts_with(known) || known.starts_with(given))
}

/// Reports whether `letter` is among those after one dash, or after another letter as its value.
pub(super) fn has_letter(text: &str, letter: char) -> bool {
    text.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

/// Reports whether `text` is no option, or one of these letters alone.
pub(super) fn has_only(text: &str, letters: &str) -> bool {
    if text.starts_with('+') {
        return false;
    }
    text.strip_prefix('-').is_none_or(|given| given.chars().all(|c| c.is_ascii_digit() || letters.contains(c)))
}

/// Reports whether `word` is a group of short options with one of `letters`, or the long option `name`, perhaps cut short.
pub(super) fn is_option(word: &str, letters: &str, name: &str) -> bool {
    match word.strip_prefix("--") {
        Some("") | None => is_short(word, letters) || (word.len() > 3 && word.starts_with(name)),
        Some(_) => name.starts_with(word.split('=').next().unwrap_or(word)),
    }
}

/// Reports whether `word` is a group of short options with one of `letters`.
pub(super) fn is_short(word: &str, letters: &str) -> bool {
    letters.chars().any(|letter| has_letter(word, letter))
}

/// Reports whether a word may turn out to be an option.
pub(super) fn may_be_option(arguments: &[&str]) -> bool {
    arguments.iter().any(|word| word.starts_with(UNKNOWN))
}

/// Returns the number of words that are no options.
pub(super) fn count_operands(arguments: &[&str]) -> usize {
    arguments.iter().filter(|word| !word.starts_with('-') || **word == "-").count()
}
