//! Paths that lead through what the kernel tells of processes, back to where the shell is.

use super::word;

/// `text` without the way through `/proc`: what stands behind a process's working folder counts from the shell's, what stands behind
/// its root or a descriptor from the root. None if it takes no such way.
pub(super) fn straight(text: &str) -> Option<String> {
    let mut parts = text.strip_prefix('/')?.split('/').filter(|part| !matches!(*part, "" | "."));
    match (parts.next()?, parts.next()?) {
        ("proc", _) => {
            let link = parts.find(|part| matches!(*part, "cwd" | "root" | "fd"))?;
            if link == "fd" {
                parts.next()?;
            }
            let rest = parts.collect::<Vec<_>>().join("/");
            (!rest.is_empty()).then(|| if link == "cwd" { format!("./{rest}") } else { format!("/{rest}") })
        }
        // Which folder a descriptor leads to nobody can tell.
        ("dev", "fd") => {
            let rest = parts.skip(1).collect::<Vec<_>>().join("/");
            (!rest.is_empty()).then(|| format!("{}/{rest}", word::UNKNOWN))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::straight;

    #[test]
    fn a_way_through_processes_leads_back() {
        for (text, want) in [
            ("/proc/self/cwd/../x", Some("./../x")),
            ("/proc/12/task/12/cwd/x", Some("./x")),
            ("//proc/./self/root/etc/x", Some("/etc/x")),
            ("/proc/self/cwd", None),
            ("/proc/cpuinfo", None),
            ("/home/ana", None),
        ] {
            assert_eq!(straight(text).as_deref(), want, "{text}");
        }
    }
}
