//! Requests of a command for access beyond its sandbox: a person decides about exactly that, each time.
//!
//! It must not know of the sandbox itself: a request for more asks a person even if nothing is restricted.

use serde_json::Value;

use crate::policy::subject::PolicySubject;

/// Returns the access that the call needs beyond the sandbox, in words that follow "because it".
pub(super) fn needs_reason(subject: &PolicySubject) -> Option<String> {
    let needs = subject.arguments.get("needs")?;
    let members = match needs {
        Value::Null => return None,
        Value::Object(members) => members,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Some("needs more than the sandbox gives, in words that cannot be judged".to_owned());
        }
    };
    let mut wants = Vec::new();
    for (name, value) in members {
        match (name.as_str(), value) {
            ("network", Value::Bool(true)) => wants.push("to reach other machines".to_owned()),
            ("network", Value::Bool(false)) => {}
            ("write", Value::Array(paths)) => wants.extend(paths.iter().map(|path| match path {
                Value::String(path) => format!("to write to {path}"),
                other => format!("to write to {other}"),
            })),
            ("hosts", Value::Array(hosts)) => wants.extend(hosts.iter().map(|host| match host {
                Value::String(host) if host.ends_with(']') || !host.contains(':') => {
                    format!("to reach {host} at the ports 80 and 443")
                }
                Value::String(host) => format!("to reach {host}"),
                other => format!("to reach {other}"),
            })),
            (name, value) => wants.push(format!("{name} {value}")),
        }
    }
    if wants.is_empty() {
        return None;
    }
    Some(format!("needs more than the sandbox gives: {}", wants.join(" and ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::needs_reason;
    use crate::policy::testing::subject;

    #[test]
    fn what_a_command_needs_is_named_exactly() {
        for (needs, want) in [
            (json!(null), None),
            (json!({}), None),
            (json!({"network": false, "write": []}), None),
            (json!({"network": true}), Some("to reach other machines")),
            (
                json!({"network": true, "write": ["/a", "b"]}),
                Some("to reach other machines and to write to /a and to write to b"),
            ),
            (
                json!({"hosts": ["a.org", "b.org:99", 1]}),
                Some("to reach a.org at the ports 80 and 443 and to reach b.org:99 and to reach 1"),
            ),
            (json!({"write": [1]}), Some("to write to 1")),
            (json!({"write": "/a"}), Some("write \"/a\"")),
            (json!({"root": true}), Some("root true")),
        ] {
            let got = needs_reason(&subject("bash", json!({"command": "ls", "needs": needs})));
            assert_eq!(got, want.map(|want| format!("needs more than the sandbox gives: {want}")), "{needs}");
        }
        let unclear = needs_reason(&subject("bash", json!({"command": "ls", "needs": "all"}))).unwrap();
        assert!(unclear.contains("cannot be judged"));
    }
}
