//! Checks of rules that would take too long and are not made for all of them.

/// Returns a line that says that a check, for `what`, was not made for some rules, if there are any.
pub(super) fn unchecked_note(file: &str, rules: usize, what: &str) -> Option<String> {
    (rules > 0).then(|| {
        let rules = if rules == 1 { "1 rule was".to_owned() } else { format!("{rules} rules were") };
        format!("{file}: {rules} not checked for {what}: too many patterns may overlap")
    })
}
