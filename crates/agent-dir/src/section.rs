//! The section `countersign` of `config.yml`: which keys there are, and how the levels of a key may be joined.
//!
//! The whole section is ours, so an unknown key in it is a slip. It must not know what a setting means. Source:
//! docs/protocol/omp.md, Fields that restrict.

use std::path::Path;

use countersign_config::{
    suggest,
    yaml::{YamlField, YamlKind, YamlNode},
};

use super::{LoadError, names, setting_names};

/// The name of the section.
const NAME: &str = "countersign";

/// Settings of the section that count outside of it too.
const OUTSIDE: [&str; 2] = ["approval_timeout", "clarify_timeout"];

/// Settings of the waits of a gate.
const GATE: &[&str] = &["timeout", "remind", "default"];

/// The keys of the section and of the mappings in it.
const KEYS: [(&str, &[&str]); 7] = [
    (
        NAME,
        &[
            "approval_timeout",
            "clarify_timeout",
            "retry_ask_after",
            "host_timeout",
            "bash_timeout",
            "gates",
            "sandbox",
            "attach",
            "data",
            "mcp",
        ],
    ),
    ("countersign.gates", &["question", "approval", "execution"]),
    ("countersign.gates.question", GATE),
    ("countersign.gates.approval", GATE),
    ("countersign.gates.execution", GATE),
    ("countersign.sandbox", &["mode", "write", "temporary", "read", "network", "on_missing"]),
    ("countersign.sandbox.network", &["hosts", "unlisted"]),
];

/// Most levels of a key that may be joined: none of ours has more.
const MOST_LEVELS: usize = 8;

/// Sections of the originals in which a key with dots replaces its levels.
const OTHERS: [&str; 6] = ["retry", "compaction", "providers", "edit", "todo", "mcp"];

/// Owner of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOwner {
    /// The user's own: the section counts here alone.
    User,
    /// The project in the working folder.
    Project,
    /// One that the host names.
    Host,
}

/// Checks the keys of a user's file that are ours, and returns a notice of each that counts only within the section, unless its name
/// says that it restricts: those are reported anyway.
///
/// # Errors
/// [`LoadError`] for a key that is not there, has nothing after it, or is a slip in the name of the section.
pub(super) fn check_section(root: &YamlField<'_>) -> Result<Vec<String>, LoadError> {
    let mut notices = Vec::new();
    for (key, member) in root.members()? {
        if key == NAME {
            check_keys(&member)?;
        } else if OUTSIDE.contains(&key) && member.is_absent() {
            return Err(member.type_error("a value").into());
        } else if let Some(meant) = misspelt_key(key) {
            return Err(refused_key(&member, &format!("unknown setting; did you mean {meant}?")));
        } else if KEYS[0].1.contains(&key)
            && !OUTSIDE.contains(&key)
            && !is_section_of_original(key, &member)
            && setting_names::setting_claim(key).is_none()
        {
            let (file, line) = (member.file().display(), member.line());
            notices.push(format!("{file}:{line}: {key} was ignored; did you mean {NAME}.{key}?"));
        }
    }
    Ok(notices)
}

/// Returns a notice of each key of a file of `owner` that is ours: they count in the user's own file alone.
pub(super) fn notices_elsewhere(root: &YamlField<'_>, owner: FileOwner) -> Vec<String> {
    let whose = match owner {
        FileOwner::User => return Vec::new(),
        FileOwner::Project => "a project's file",
        FileOwner::Host => "a file of --config",
    };
    let members = root.members().unwrap_or_default();
    let ours =
        members.into_iter().filter(|(key, _)| *key == NAME || OUTSIDE.contains(key) || misspelt_key(key).is_some());
    let ours = ours.map(|(key, member)| {
        let (file, line) = (member.file().display(), member.line());
        format!("{file}:{line}: {key} was ignored: it is read from the user's own config.yml only, not from {whose}")
    });
    ours.collect()
}

/// Reports whether a key that is a setting here is a section of the originals.
fn is_section_of_original(key: &str, member: &YamlField<'_>) -> bool {
    key == "mcp" && member.members().is_ok_and(|members| !members.is_empty())
}

fn check_keys(place: &YamlField<'_>) -> Result<(), LoadError> {
    if place.is_absent() {
        return Err(place.type_error("a value").into());
    }
    let Some((_, keys)) = KEYS.iter().find(|(at, _)| *at == place.key()) else { return Ok(()) };
    // Its reader says of another value what it must be.
    for (key, member) in place.members().unwrap_or_default() {
        if !keys.contains(&key) {
            let meant =
                suggest::did_you_mean(key, keys.iter().copied(), 2).map(|meant| format!("{}.{meant}", place.key()));
            let hint = meant.map_or_else(
                || format!("expected one of {}", keys.join(", ")),
                |meant| format!("did you mean {meant}?"),
            );
            return Err(refused_key(&member, &format!("unknown setting; {hint}")));
        }
        check_keys(&member)?;
    }
    Ok(())
}

/// Returns what of ours `key` was probably meant to be, where it is none.
fn misspelt_key(key: &str) -> Option<&'static str> {
    if OUTSIDE.contains(&key) {
        return None;
    }
    let head = key.split('.').next().unwrap_or(key);
    let word = names::name_words(head).into_iter().next().unwrap_or_default();
    let section = [head, &word].into_iter().find_map(|word| suggest::did_you_mean(word, [NAME], 2));
    section.or_else(|| suggest::did_you_mean(key, OUTSIDE, 2))
}

fn refused_key(place: &YamlField<'_>, problem: &str) -> LoadError {
    let (file, line, key) = (place.file().display(), place.line(), place.key());
    LoadError::Refused(format!("{file}:{line}: {key}: {problem}"))
}

/// Returns `root` with the levels apart that keys of our section, and of those that are read here, have joined by dots.
///
/// # Errors
/// [`LoadError::Refused`] for a setting of our section that occurs twice. In the others the one with levels counts: hosts
/// change settings there.
pub(super) fn split_levels(root: YamlNode, file: &Path) -> Result<YamlNode, LoadError> {
    let line = root.line;
    let members = match root.kind {
        YamlKind::Map(members) => members,
        kind => return Ok(YamlNode { line, kind }),
    };
    let is_read = |key: &str| {
        let head = key.split('.').next().unwrap_or(key);
        head == NAME || OTHERS.contains(&head)
    };
    let (read, mut apart): (Vec<_>, Vec<_>) = members.into_iter().partition(|(key, _)| is_read(key));
    let (dotted, levelled): (Vec<_>, Vec<_>) = read.into_iter().partition(|(key, _)| key.contains('.'));
    for (key, node) in levelled.into_iter().chain(dotted) {
        let is_ours = key.split('.').next() == Some(NAME);
        match insert_node(&mut apart, &key, node, "") {
            Err((line, key)) if is_ours => {
                let file = file.display();
                return Err(LoadError::Refused(format!("{file}:{line}: {key}: duplicate key: keep one")));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(YamlNode { line, kind: YamlKind::Map(apart) })
}

/// Puts `node` at `key` below `above`, level by level. Fails with the line and the whole key where something else is there already.
fn insert_node(
    members: &mut Vec<(String, YamlNode)>,
    key: &str,
    node: YamlNode,
    above: &str,
) -> Result<(), (u64, String)> {
    let joined = key.split_once('.').filter(|_| above.matches('.').count() < MOST_LEVELS);
    let (first, rest) = joined.map_or((key, None), |(first, rest)| (first, Some(rest)));
    let whole = if above.is_empty() { first.to_owned() } else { format!("{above}.{first}") };
    let line = node.line;
    let below = match (rest, node.kind) {
        (Some(rest), kind) => vec![(rest.to_owned(), YamlNode { line, kind })],
        (None, YamlKind::Map(below)) => below,
        (None, kind) if members.iter().any(|(name, _)| name == first) => {
            drop(kind);
            return Err((line, whole));
        }
        (None, kind) => {
            members.push((first.to_owned(), YamlNode { line, kind }));
            return Ok(());
        }
    };
    let at = members.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
        members.push((first.to_owned(), YamlNode { line, kind: YamlKind::Map(Vec::new()) }));
        members.len() - 1
    });
    let YamlKind::Map(there) = &mut members[at].1.kind else { return Err((line, whole)) };
    let mut outcome = Ok(());
    for (key, node) in below {
        let one = insert_node(there, &key, node, &whole);
        outcome = outcome.and(one);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use countersign_config::yaml::{YamlField, YamlNode};
    use serde_json::json;

    use super::{FileOwner, check_section, notices_elsewhere, split_levels};

    fn node(text: &str) -> YamlNode {
        YamlNode::parse(text).unwrap().unwrap()
    }

    fn checked(text: &str) -> Result<Vec<String>, String> {
        let file = Path::new("config.yml");
        let node = split_levels(node(text), file).map_err(|error| error.to_string())?;
        check_section(&YamlField::root(file, Some(&node))).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_counts_however_its_levels_are_joined() {
        let want =
            json!({"countersign": {"sandbox": {"mode": "guard", "network": {"hosts": ["a.b"]}}, "bash_timeout": 1}});
        for text in [
            "countersign: { sandbox: { mode: guard, network: { hosts: [a.b] } }, bash_timeout: 1 }",
            "countersign: { sandbox.mode: guard, sandbox.network.hosts: [a.b], bash_timeout: 1 }",
            "countersign.sandbox.mode: guard\ncountersign.sandbox: { network.hosts: [a.b] }\ncountersign.bash_timeout: 1",
            "countersign.sandbox: { mode: guard }\ncountersign.sandbox.network: { hosts: [a.b] }\ncountersign: { bash_timeout: 1 }",
        ] {
            let got = split_levels(node(text), Path::new("config.yml")).unwrap();
            assert_eq!(got.to_json(), want, "{text}");
        }
        let others = "retry.enabled: false\nretry: { maxRetries: 1 }\nx.y: { z.a: 1 }\ntools.approval: { a.b: deny }";
        let want =
            json!({"x.y": {"z.a": 1}, "tools.approval": {"a.b": "deny"}, "retry": {"maxRetries": 1, "enabled": false}});
        assert_eq!(split_levels(node(others), Path::new("config.yml")).unwrap().to_json(), want);
        // A host writes its changes with levels.
        let both =
            split_levels(node("retry.enabled: false\nretry: { enabled: true }"), Path::new("config.yml")).unwrap();
        assert_eq!(both.to_json(), json!({"retry": {"enabled": true}}));
    }

    #[test]
    fn a_key_of_ours_that_stands_there_twice_is_refused() {
        for (text, want) in [
            ("countersign.bash_timeout: 1\ncountersign: { bash_timeout: 2 }", "1: countersign.bash_timeout"),
            ("countersign: { sandbox.mode: guard, sandbox: { mode: off } }", "1: countersign.sandbox.mode"),
            ("countersign:\ncountersign.sandbox.mode: guard", "2: countersign"),
            ("countersign.sandbox: off\ncountersign.sandbox.mode: guard", "2: countersign.sandbox"),
        ] {
            assert_eq!(checked(text), Err(format!("config.yml:{want}: duplicate key: keep one")), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_refused() {
        let all = "approval_timeout, clarify_timeout, retry_ask_after, host_timeout, bash_timeout, gates, sandbox, attach, data, mcp";
        let section = "did you mean countersign?";
        for (text, key, hint) in [
            ("countersign: { sanbox: strict }", "countersign.sanbox", "did you mean countersign.sandbox?"),
            ("countersign.sanbox.mode: guard", "countersign.sanbox", "did you mean countersign.sandbox?"),
            ("countersign: { Sandbox: { mode: guard } }", "countersign.Sandbox", "did you mean countersign.sandbox?"),
            ("countersign.bash_timeuot: 1", "countersign.bash_timeuot", "did you mean countersign.bash_timeout?"),
            ("countersign: { bashTimeout: 1 }", "countersign.bashTimeout", "did you mean countersign.bash_timeout?"),
            ("countersign: { limits: 1 }", "countersign.limits", &format!("expected one of {all}")),
            ("countersign..sandbox: {}", "countersign.", &format!("expected one of {all}")),
            (&format!("countersign{}: 1", ".a".repeat(400)), "countersign.a", &format!("expected one of {all}")),
            (
                "countersign: { sandbox: { netwrok: off } }",
                "countersign.sandbox.netwrok",
                "did you mean countersign.sandbox.network?",
            ),
            (
                "countersign.sandbox.network.host: [a]",
                "countersign.sandbox.network.host",
                "did you mean countersign.sandbox.network.hosts?",
            ),
            (
                "countersign.gates.approval.timout: 1",
                "countersign.gates.approval.timout",
                "did you mean countersign.gates.approval.timeout?",
            ),
            ("Countersign: { sandbox: {} }", "Countersign", section),
            ("countersing.sandbox.mode: guard", "countersing.sandbox.mode", section),
            ("counter-sign: { sandbox: {} }", "counter-sign", section),
            ("countersign_sandbox: guard", "countersign_sandbox", section),
            ("countersignSandbox: guard", "countersignSandbox", section),
            ("aproval_timeout: 1", "aproval_timeout", "did you mean approval_timeout?"),
        ] {
            let want = format!("config.yml:1: {key}: unknown setting; {hint}");
            assert_eq!(checked(text), Err(want), "{text}");
        }
        for text in ["counter: 1", "sign: 1", "countdown: 3", "theme: { countersign: 1 }", "approval_timeout: 3"] {
            assert_eq!(checked(text), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn nothing_behind_a_key_of_ours_is_no_absence() {
        for (text, key) in [
            ("countersign:\n", "1: countersign"),
            ("countersign:\n  sandbox:\n", "2: countersign.sandbox"),
            ("countersign.sandbox:\n", "1: countersign.sandbox"),
            ("countersign: { sandbox: { mode: } }", "1: countersign.sandbox.mode"),
            ("countersign.sandbox.network.hosts:", "1: countersign.sandbox.network.hosts"),
            ("countersign.bash_timeout: null", "1: countersign.bash_timeout"),
            ("approval_timeout:", "1: approval_timeout"),
        ] {
            let want = format!("config.yml:{key}: expected a value, found nothing");
            assert_eq!(checked(text), Err(want), "{text}");
        }
        assert_eq!(checked("countersign: {}"), Ok(Vec::new()));
    }

    #[test]
    fn a_key_of_ours_in_the_wrong_place_is_reported() {
        assert_eq!(checked("sandbox: { mode: guard }"), Ok(Vec::new()));
        let want = "config.yml:1: bash_timeout was ignored; did you mean countersign.bash_timeout?";
        assert_eq!(checked("bash_timeout: 1"), Ok(vec![want.to_owned()]));
        let node = node("countersign: { sandbox: {} }\ntheme: x\napproval_timeout: 1");
        let root = YamlField::root(Path::new("config.yml"), Some(&node));
        let want = |whose: &str| {
            [(1, "countersign"), (3, "approval_timeout")].map(|(line, key)| {
                format!(
                    "config.yml:{line}: {key} was ignored: it is read from the user's own config.yml only, not from {whose}"
                )
            })
        };
        assert_eq!(notices_elsewhere(&root, FileOwner::User), Vec::<String>::new());
        assert_eq!(notices_elsewhere(&root, FileOwner::Project), want("a project's file"));
        assert_eq!(notices_elsewhere(&root, FileOwner::Host), want("a file of --config"));
    }
}
