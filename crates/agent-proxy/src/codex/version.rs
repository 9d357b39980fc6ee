//! Version of Codex, with which the rules here were proven.

use std::fmt;

/// Version of Codex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodexVersion(pub [u32; 3]);

/// Oldest version with which the proxy was proven.
pub const PROVEN_VERSION: CodexVersion = CodexVersion([0, 171, 0]);

impl CodexVersion {
    /// Reads the output of `codex --version`, for example `codex-cli 0.171.0`.
    pub fn parse(output: &str) -> Option<Self> {
        output.split_whitespace().find_map(|word| {
            let plain = word.split(['-', '+']).next()?;
            let parts: Vec<u32> = plain.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            Some(Self(parts.try_into().ok()?))
        })
    }
}

impl fmt::Display for CodexVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::{CodexVersion, PROVEN_VERSION};

    #[test]
    fn the_version_is_the_first_word_of_three_numbers() {
        for (output, want) in [
            ("codex-cli 0.171.0\n", Some([0, 171, 0])),
            ("codex 1.2.3-alpha.1", Some([1, 2, 3])),
            ("codex", None),
            ("codex 1.2", None),
        ] {
            assert_eq!(CodexVersion::parse(output), want.map(CodexVersion), "{output}");
        }
        assert!(CodexVersion([0, 99, 0]) < PROVEN_VERSION && CodexVersion([1, 0, 0]) > PROVEN_VERSION);
    }
}
