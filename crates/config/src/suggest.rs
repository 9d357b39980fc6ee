//! Distance of a word from one that was probably meant. It knows neither flags nor tools.

/// Returns the word of `known` that `word` was probably meant to be: in other letters, or at most `most` slips away. The nearest, and
/// of several the first.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Option<&'a str> {
    let word = word.to_lowercase();
    let near = known.into_iter().map(|known| (edit_distance(&word, &known.to_lowercase()), known));
    near.filter(|(far, _)| *far <= most).min_by_key(|(far, _)| *far).map(|(_, known)| known)
}

/// Returns the number of letters to insert, leave out, change, or exchange with their neighbours.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn a_word_is_taken_for_the_nearest_within_reach() {
        let known = ["bash", "read", "ls"];
        for (word, most, want) in [
            ("bahs", 1, Some("bash")),
            ("Read", 0, Some("read")),
            ("rea", 1, Some("read")),
            ("raed", 1, Some("read")),
            ("reads", 1, Some("read")),
            ("ready!", 1, None),
            ("ready!", 2, Some("read")),
            ("", 1, None),
        ] {
            assert_eq!(did_you_mean(word, known, most), want, "{word}");
        }
    }
}
