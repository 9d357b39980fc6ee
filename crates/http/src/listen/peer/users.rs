//! Users that a command of ours may become without being root.
//!
//! It must not know sockets.

use std::fs;

/// Users whom others may become in a namespace of their own, with `newuidmap`.
const GIVEN: &str = "/etc/subuid";

/// Reports whether a process of the user `user` may be a command: a user that others on this machine may become. Who may become whom is not
/// looked at, because names of users come from many places.
pub(super) fn may_be_a_commands(user: u32) -> bool {
    match fs::read_to_string(GIVEN) {
        Ok(text) => is_in(&text, user),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Reads lines of `USER:FIRST:COUNT`.
fn is_in(text: &str, user: u32) -> bool {
    text.lines().any(|line| {
        let mut fields = line.split(':').skip(1).map(|field| field.trim().parse::<u64>());
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.next()) else { return false };
        (first..first.saturating_add(count)).contains(&u64::from(user))
    })
}

#[cfg(test)]
mod tests {
    use super::is_in;

    #[test]
    fn a_user_of_a_given_range_may_be_a_commands() {
        let text = "ana:100000:65536\n# none\n1000:165536:2\n";
        for (user, want) in
            [(99_999, false), (100_000, true), (165_535, true), (165_537, true), (165_538, false), (0, false)]
        {
            assert_eq!(is_in(text, user), want, "{user}");
        }
        assert!(!is_in("ana:x:1\nben:5\n", 5));
    }
}
