//! Paths as text: where a path leads if no link is in the way. Following links is the executor's business.

/// Returns the absolute path that `path` leads to from `cwd`, without `.`, `..` and doubled slashes.
pub fn resolve(cwd: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let base = if path.starts_with('/') { "" } else { cwd };
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns `path` without `.`, `..` and doubled slashes as far as its text tells, in the style in which it is written: relative, with a dot
/// before it, from the root or from a home. Steps up at its beginning stay.
pub fn normalised_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        let is_fixed = |last: &&str| *last == ".." || last.starts_with('~') && parts.len() == 1;
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| !is_fixed(last)) => drop(parts.pop()),
            ".." if parts.is_empty() && path.starts_with('/') => {}
            _ => parts.push(part),
        }
    }
    let begin = match parts.first() {
        _ if path.starts_with('/') => "/",
        Some(first) if path.starts_with("./") && *first != ".." => "./",
        Some(_) => "",
        None if path.starts_with("./") => "./",
        None => ".",
    };
    let is_folder = path.ends_with('/') && !parts.is_empty();
    format!("{begin}{}{}", parts.join("/"), if is_folder { "/" } else { "" })
}

/// Reports whether `path` is `root` or lies under it. Both are resolved.
pub fn is_within(root: &str, path: &str) -> bool {
    root == "/" || path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

/// Names below `/dev` that discard or pass on their input.
const STREAMS: [&str; 10] = ["null", "zero", "full", "tty", "stdin", "stdout", "stderr", "random", "urandom", "ptmx"];

/// Reports whether `path` is a stream that swallows or passes on what it gets: nothing is kept there.
pub fn is_stream(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|name| STREAMS.contains(&name))
}

/// Reports whether `path` is one of the machine's devices rather than a stream that swallows or passes on what it gets.
pub fn is_device(path: &str) -> bool {
    if path == "/proc/sysrq-trigger" || path.starts_with("/sys/") {
        return true;
    }
    let Some(name) = path.strip_prefix("/dev/") else { return false };
    !STREAMS.contains(&name)
        && !["fd", "shm", "pts", "mqueue", "tcp", "udp"].iter().any(|folder| is_within(folder, name))
}

#[cfg(test)]
mod tests {
    use super::{is_device, is_within, normalised_path, resolve};

    #[test]
    fn a_path_leads_where_its_dots_say() {
        for (path, want) in [
            ("a", "/w/a"),
            ("./a//b/", "/w/a/b"),
            ("..", "/"),
            ("../../..", "/"),
            ("/x/../y", "/y"),
            ("", "/w"),
            ("a/../../b", "/b"),
        ] {
            assert_eq!(resolve("/w", path), want, "{path}");
        }
    }

    #[test]
    fn a_path_is_tidied_in_its_own_style() {
        for (path, want) in [
            ("a", "a"),
            ("src/../a", "a"),
            ("src/../../a", "../a"),
            ("./src//x/../a", "./src/a"),
            ("./..", ".."),
            ("src/..", "."),
            ("/a/../../b", "/b"),
            ("//a/./b/", "/a/b/"),
            ("~/x/../y", "~/y"),
            ("~/../y", "~/../y"),
            ("../../a", "../../a"),
            ("/", "/"),
        ] {
            assert_eq!(normalised_path(path), want, "{path}");
        }
    }

    #[test]
    fn a_sibling_with_the_same_beginning_is_not_within() {
        assert!(is_within("/w", "/w") && is_within("/w", "/w/a") && is_within("/", "/a"));
        assert!(!is_within("/w", "/work") && !is_within("/w/a", "/w"));
    }

    #[test]
    fn disks_are_devices_and_streams_are_not() {
        assert!(is_device("/dev/sda") && is_device("/dev/mapper/x") && is_device("/dev/mem"));
        assert!(
            !is_device("/dev/null")
                && !is_device("/dev/fd/3")
                && !is_device("/dev/shm/x")
                && !is_device("/device")
                && !is_device("/dev/tcp")
                && is_device("/dev/tcpx")
        );
    }
}
