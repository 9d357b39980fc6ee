//! Known agents of ACP: their arguments and variables that make them ask, and what gets past.
//!
//! Measured with Gemini CLI 0.61.0, opencode 1.18.33, codex-acp 0.16.0, claude-agent-acp 0.101.0 and Copilot CLI 1.0.102.

/// Agent behind the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardedAgent {
    /// claude-agent-acp.
    Claude,
    /// codex-acp.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Copilot CLI.
    Copilot,
    /// opencode.
    Opencode,
    /// Any other.
    #[default]
    Other,
}

/// What makes an agent ask, below the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnerGuard {
    /// Policy file: the flag before its path, and its text.
    pub policy: Option<(&'static str, &'static str)>,
    /// Further arguments.
    pub arguments: Vec<&'static str>,
    /// Variables of its environment.
    pub environment: Vec<(&'static str, &'static str)>,
    /// What gets past the proxy, for the user.
    pub notice: &'static str,
}

/// Rules with which Gemini CLI asks for each tool, in any approval mode.
const GEMINI_POLICY: &str =
    "# Written by countersign acp.\n[[rule]]\ntoolName = \"*\"\ndecision = \"ask_user\"\npriority = 950\n";

impl GuardedAgent {
    /// Recognises an agent by the words of its command.
    pub fn from_words(words: &[String]) -> Self {
        let has = |flags: &[&str]| words.iter().any(|word| flags.contains(&word.as_str()));
        for word in words {
            // A path, or a package with a version.
            let name = word.rsplit('/').next().unwrap_or(word);
            let name = name.split('@').next().unwrap_or(name);
            match name {
                "claude-agent-acp" | "claude-code-acp" => return Self::Claude,
                "codex-acp" => return Self::Codex,
                "gemini" | "gemini-cli" if has(&["--acp", "--experimental-acp"]) => return Self::Gemini,
                "copilot" if has(&["--acp"]) => return Self::Copilot,
                "opencode" | "opencode-ai" if has(&["acp"]) => return Self::Opencode,
                _ => {}
            }
        }
        Self::Other
    }

    /// Returns what makes it ask.
    pub fn inner_guard(self) -> InnerGuard {
        match self {
            Self::Claude => InnerGuard {
                notice: "tools that the settings of Claude Code allow run without a question: install `countersign guard claude` too",
                ..InnerGuard::default()
            },
            Self::Codex => InnerGuard {
                arguments: vec!["-c", "approval_policy=\"on-request\"", "-c", "sandbox_mode=\"read-only\""],
                notice: "commands that only read run in the sandbox of Codex without a question",
                ..InnerGuard::default()
            },
            Self::Gemini => InnerGuard {
                policy: Some(("--policy", GEMINI_POLICY)),
                notice: "a policy of the administrator with a higher priority gets past",
                ..InnerGuard::default()
            },
            Self::Copilot => InnerGuard {
                notice: "tools that Copilot allows itself run without a question: install `countersign guard copilot` too",
                ..InnerGuard::default()
            },
            Self::Opencode => InnerGuard {
                environment: vec![("OPENCODE_PERMISSION", "{\"*\":\"ask\"}")],
                notice: "plugins of opencode can act without a question",
                ..InnerGuard::default()
            },
            Self::Other => InnerGuard {
                notice: "this agent is not known: everything that it does without asking its client gets past",
                ..InnerGuard::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GuardedAgent;

    #[test]
    fn an_agent_is_recognised_by_the_words_of_its_command() {
        for (line, want) in [
            ("gemini --acp", GuardedAgent::Gemini),
            ("/opt/bin/gemini -m x --experimental-acp", GuardedAgent::Gemini),
            ("gemini -p", GuardedAgent::Other),
            ("opencode acp", GuardedAgent::Opencode),
            ("npx -y @zed-industries/codex-acp@0.16.0", GuardedAgent::Codex),
            ("npx @agentclientprotocol/claude-agent-acp", GuardedAgent::Claude),
            ("copilot --acp --allow-all-tools", GuardedAgent::Copilot),
            ("python3 agent.py", GuardedAgent::Other),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(GuardedAgent::from_words(&words), want, "{line}");
        }
    }
}
