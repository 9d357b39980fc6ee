//! Subject of a decision, and the two digests under which it is remembered.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    policy::{contract::Class, narrow, path, shell},
    tool::{ShellInput, ToolEffect},
};

/// Reach of a call's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectReach {
    /// Files under the working folder and those of [`PolicySubject::paths`], or the conversation.
    Files,
    /// Everything beyond: services, nodes, hosts, the network, anything unverified.
    Beyond,
}

/// One requested call, with everything that evaluation needs.
///
/// The text that a person sees, the text in the record and the text that rules match are [`Self::signature`].
///
/// # Example
///
/// ```
/// # use std::collections::BTreeSet;
/// # use countersign_core::{
/// #     digest::{Digest, canonical_json}, id::{PrincipalId, SessionId}, policy::EffectReach,
/// #     tool::{ShellInput, ToolEffect},
/// # };
/// use countersign_core::policy::{
///     Constraints, DefaultPolicy, GrantSet, PathContext, PolicyLayers, PolicySubject, Rule, RuleAction, RuleLayer,
///     RuleSet, RuleSource, Verdict, compile_rules, evaluate,
/// };
/// use countersign_core::time::Millis;
///
/// # fn subject_of_line(line: &str) -> PolicySubject {
/// #     let arguments = serde_json::json!({ "command": line });
/// #     PolicySubject {
/// #         principal: PrincipalId::new("agent:pi"),
/// #         door: None,
/// #         target: None,
/// #         session: SessionId::new("s1"),
/// #         tool: "bash".to_owned(),
/// #         signature: format!("bash({line})"),
/// #         further_signatures: Vec::new(),
/// #         named: vec!["command".to_owned()],
/// #         undeclared: Vec::new(),
/// #         arguments_digest: Digest::hash_bytes(canonical_json(&arguments).as_bytes()),
/// #         arguments: arguments.as_object().cloned().unwrap_or_default(),
/// #         effect: ToolEffect::Changes,
/// #         reach: EffectReach::Files,
/// #         cwd: "/home/ana/site".to_owned(),
/// #         session_folder: None,
/// #         is_later: false,
/// #         paths: Vec::new(),
/// #         leads_to: None,
/// #         shell: ShellInput::of_own("bash"),
/// #         classes: BTreeSet::new(),
/// #     }
/// # }
/// let rules = vec![Rule::new("bash(git *)", RuleAction::Allow), Rule::new("bash(git push*)", RuleAction::Deny)];
/// let rules = RuleSet { rules, ..RuleSet::default() };
/// let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules };
/// let layers = PolicyLayers {
///     compiled: &compile_rules(vec![source]).expect("each rule has a pattern"),
///     constraints: &Constraints::default(),
///     contract: None,
///     grants: &GrantSet::default(),
///     default_policy: DefaultPolicy::Gateway,
///     path_context: &PathContext::default(),
/// };
/// let verdict = |line| evaluate(&layers, &subject_of_line(line), Millis(1_000));
/// assert!(matches!(verdict("git status"), Verdict::Allow(_)));
/// assert!(matches!(verdict("git status && make"), Verdict::Ask(_)));
/// assert_eq!(verdict("git push").to_string(), "denied by rule \"bash(git push*)\" (permissions.yaml)");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySubject {
    /// The principal that requests it.
    pub principal: PrincipalId,
    /// The door through which it came; none if that is the one of [`PathContext`](super::PathContext).
    pub door: Option<String>,
    /// The service that it goes to, if there is one.
    pub target: Option<String>,
    /// The session that it belongs to; grants for a session are bound to it.
    pub session: SessionId,
    /// The tool's name.
    pub tool: String,
    /// Name and named arguments, such as `bash(ls -l)`.
    pub signature: String,
    /// Signatures beyond the first, one for every further element if an argument is a list. One that is denied denies all, all must be
    /// allowed.
    pub further_signatures: Vec<String>,
    /// The arguments that the signature names; empty means all of them.
    pub named: Vec<String>,
    /// Arguments that a defined tool does not declare and that its settings do not permit: only rules without argument conditions, or with
    /// `args: any`, allow them.
    pub undeclared: Vec<String>,
    /// Every argument.
    pub arguments: Map<String, Value>,
    /// Digest of the canonical arguments, as the gate and the record show it.
    pub arguments_digest: Digest,
    /// Effect of the tool: whether it only reads.
    pub effect: ToolEffect,
    /// Reach of its effect.
    pub reach: EffectReach,
    /// The folder in which it works, absolute.
    pub cwd: String,
    /// The session's working folder, absolute, if its shell or the call itself is in another.
    pub session_folder: Option<String>,
    /// True if another call ran in the same shell before, which may have left variables.
    pub is_later: bool,
    /// Paths that the call names, unchanged: absolute or relative to the working folder. Not those inside a shell command, which are found
    /// here.
    pub paths: Vec<String>,
    /// Absolute target of the first of these paths, if links in it lead elsewhere than its text. The working folder counts as its
    /// text, with any links to it.
    pub leads_to: Option<String>,
    /// The part of it that a shell reads.
    pub shell: ShellInput,
    /// Classes of an unattended contract that the call needs beyond those of its tool and command: of host tools and host URIs.
    pub classes: BTreeSet<Class>,
}

impl PolicySubject {
    /// Returns the digest that an exact grant is keyed by: tool, canonical arguments and working folder, each after its length.
    pub fn digest(&self) -> Digest {
        keyed_digest(&[&self.tool, &canonical_json(&Value::Object(self.arguments.clone())), &self.cwd])
    }

    /// Returns the digest that a person's denial is keyed by: the tool and the arguments that its signature names.
    ///
    /// For a shell command the words count, not their quotes, spaces or line breaks. For a path the file counts, as far as its text
    /// shows it, not its spelling.
    pub fn constraint_key(&self) -> Digest {
        let mut named: Map<String, Value> = if self.named.is_empty() {
            self.arguments.clone()
        } else {
            self.named.iter().filter_map(|name| Some((name.clone(), self.arguments.get(name)?.clone()))).collect()
        };
        if let Some((argument, line)) = self.shell_line() {
            named.insert(argument.to_owned(), Value::String(shell::plain_form(line)));
        }
        for value in named.values_mut() {
            let path = value.as_str().filter(|text| self.paths.iter().any(|path| path == text));
            if let Some(plain) = path.map(|path| self.plain_path(path)) {
                *value = Value::String(plain);
            }
        }
        keyed_digest(&[&self.tool, &canonical_json(&Value::Object(named))])
    }

    /// Returns `path` in the one spelling under which its denial is keyed: from the working folder, or from the root if it leads out of
    /// that.
    fn plain_path(&self, path: &str) -> String {
        if path.starts_with('~') {
            return path::normalised_path(path);
        }
        let working = path::resolve("/", &self.cwd);
        let absolute = path::resolve(&working, path);
        if path::is_within(&working, &absolute) { narrow::relative_path(&working, &absolute) } else { absolute }
    }

    /// Returns the argument that is a shell line, with the line; none if there is no such argument, or it is no text.
    pub(crate) fn shell_line(&self) -> Option<(&str, &str)> {
        let ShellInput::Line { argument, .. } = &self.shell else { return None };
        Some((argument, self.arguments.get(&**argument)?.as_str()?))
    }

    /// Returns every signature, the shown one first.
    pub(crate) fn all_signatures(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.signature.as_str()).chain(self.further_signatures.iter().map(String::as_str))
    }
}

fn keyed_digest(parts: &[&str]) -> Digest {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    Digest::hash_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policy::{
        PolicySubject,
        testing::{bash, subject},
    };

    #[test]
    fn an_exact_digest_depends_on_every_argument_and_the_folder() {
        let one = subject("t", json!({"a": "x"}));
        let mut elsewhere = one.clone();
        elsewhere.cwd = "/other".to_owned();
        assert_ne!(one.digest(), subject("t", json!({"a": "x "})).digest());
        assert_ne!(one.digest(), subject("t", json!({"a": "x", "b": null})).digest());
        assert_ne!(one.digest(), elsewhere.digest());
        assert_eq!(subject("t", json!({"a": 1, "b": 2})).digest(), subject("t", json!({"b": 2, "a": 1})).digest());
    }

    #[test]
    fn a_denied_command_keeps_its_key_in_other_spelling() {
        let key = bash("rm -r build").constraint_key();
        for same in [
            "rm  -r   build",
            "rm -r 'build'",
            "r\\m -r \"build\"",
            "rm -r build # tidy",
            "\nrm -r build\n",
            "command rm -r build",
        ] {
            assert_eq!(bash(same).constraint_key(), key, "{same}");
        }
        for other in ["rm -r build dist", "rm -r buil", "rm -r build; ls", "rm -r 'buil d'"] {
            assert_ne!(bash(other).constraint_key(), key, "{other}");
        }
    }

    #[test]
    fn a_denied_path_keeps_its_key_in_other_spelling() {
        let key = |path: &str| {
            let call = PolicySubject { paths: vec![path.to_owned()], ..subject("write", json!({ "path": path })) };
            call.constraint_key()
        };
        let same = [["src/a", "./src/a"], ["src/a", "x/../src//a"], ["src/a", "/home/ana/project/src/a"]];
        for [one, other] in same.into_iter().chain([["/etc/x", "../../../etc/x"], ["~/a", "~/b/../a"]]) {
            assert_eq!(key(one), key(other), "{one} {other}");
        }
        assert_eq!(key("src/a"), subject("write", json!({"path": "src/a"})).constraint_key());
        assert_ne!(key("src/a"), key("src/b"));
    }

    #[test]
    fn arguments_that_the_signature_does_not_name_leave_a_denials_key_alone() {
        let mut one = subject("grep", json!({"pattern": "x", "path": "src", "limit": 3}));
        one.named = vec!["pattern".to_owned(), "path".to_owned()];
        let mut two = one.clone();
        two.arguments.insert("limit".to_owned(), json!(9));
        assert_eq!(one.constraint_key(), two.constraint_key());
        assert_ne!(one.digest(), two.digest());
    }
}
