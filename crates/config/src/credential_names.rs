//! Names that credentials usually have. It must not know any value.

/// Parts of names of credentials.
const PARTS: [&str; 10] = ["key", "token", "secret", "pass", "pwd", "auth", "sig", "cred", "session", "code"];

/// Reports whether a parameter, a flag or a variable of this name may hold a credential, in any letter case.
pub fn is_credential_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    PARTS.iter().any(|part| lower.contains(part))
}

#[cfg(test)]
mod tests {
    use super::is_credential_name;

    #[test]
    fn a_part_of_a_name_is_enough() {
        for (name, want) in [
            ("GITHUB_TOKEN", true),
            ("--api-key", true),
            ("PGPASSWORD", true),
            ("accessToken", true),
            ("HOME", false),
            ("--port", false),
            ("", false),
        ] {
            assert_eq!(is_credential_name(name), want, "{name}");
        }
    }
}
