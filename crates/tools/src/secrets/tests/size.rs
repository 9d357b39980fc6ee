//! Memory for secrets, which grows with their length and no faster.

use super::*;
use crate::secrets::{
    LONGEST,
    known_secrets::{PAST, RedactorChange},
};

/// Returns the number of forms, and the bytes of all of them.
fn kept(value: &str) -> (usize, usize) {
    let forms = secret_forms(value, "");
    (forms.len(), forms.iter().map(|form| form.text.len()).sum())
}

#[test]
fn of_a_secret_a_few_copies_are_kept_however_long_it_is() {
    for length in [100, 2_000, LONGEST] {
        let (count, bytes) = kept(&"aZ09".repeat(length / 4));
        assert!(count == 5 && bytes <= 7 * length, "{length}: {count} forms, {bytes} bytes");
        let (count, bytes) = kept(&"\u{1}/ !".repeat(length / 4));
        assert!(count <= 13 && bytes <= 36 * length, "{length}: {count} forms, {bytes} bytes");
        let (_, bytes) = kept(&"\u{1}".repeat(length));
        assert!(bytes <= 36 * length, "{length}: {bytes} bytes");
        // As many lines as there can be.
        let lines = length / 7;
        let (count, bytes) = kept(&(0..lines).map(|line| format!("{line:06}\n")).collect::<String>());
        assert!(count <= 5 * lines && bytes <= 7 * length, "{length}: {count} forms, {bytes} bytes");
    }
}

#[test]
fn of_values_that_are_gone_the_last_are_looked_for() {
    let value = |number: usize| format!("{number:08}") + &"a".repeat(LONGEST - 8);
    let mut ever = KnownSecrets::default();
    let many = 2 * PAST / LONGEST;
    for number in 0..many {
        let value = value(number).into();
        assert_eq!(ever.refresh_values([("KEY", &value), ("STAYS", &"the-same-value".into())]), RedactorChange::Values);
    }
    let veil = ever.build_redactor();
    let hidden: Vec<usize> = (0..many).filter(|number| veil.contains_secret(&value(*number))).collect();
    let first = many - 1 - PAST / LONGEST;
    assert_eq!(hidden, (first..many).collect::<Vec<_>>());
    assert!(veil.contains_secret("the-same-value"));
}
