//! Sockets of other programs that commands in the sandbox reach: their services are not bound by it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use countersign_config::Config;
use nix::unistd::{AccessFlags, access, geteuid};

use super::{DoctorCheck, checkup};

/// Services known to run commands of clients, by the place below the root at which they listen.
const OF_THE_SYSTEM: &[(&str, &str)] = &[
    ("run/docker.sock", "Docker"),
    ("run/podman/podman.sock", "Podman"),
    ("run/containerd/containerd.sock", "containerd"),
    ("run/crio/crio.sock", "CRI-O"),
    ("run/lxd.socket", "LXD"),
    ("run/incus/unix.socket", "Incus"),
    ("run/libvirt/libvirt-sock", "libvirt"),
];
/// The same in the folder of the user's own runtime files.
const OF_THE_USER: &[(&str, &str)] = &[
    ("docker.sock", "Docker"),
    ("podman/podman.sock", "Podman"),
    ("bus", "the session bus, over which systemd starts programs"),
    ("gnupg/S.gpg-agent", "the agent for GPG keys"),
    ("keyring/ssh", "the agent for SSH keys"),
];

/// Tells of those that this user may ask; nothing where no sandbox holds commands, or where there are none.
pub(super) fn check_sockets(config: &Config) -> Option<DoctorCheck> {
    if !checkup::build_sandbox(config).is_on() {
        return None;
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = variable("XDG_RUNTIME_DIR").unwrap_or_else(|| PathBuf::from(format!("run/user/{}", geteuid())));
    sockets_note(&reachable_sockets(Path::new("/"), &runtime, variable("SSH_AUTH_SOCK").as_deref()))
}

/// Returns those that exist and accept this user, with their kind.
fn reachable_sockets(root: &Path, runtime: &Path, agent: Option<&Path>) -> Vec<(PathBuf, &'static str)> {
    let of_system = OF_THE_SYSTEM.iter().map(|(path, what)| (root.join(path), *what));
    let of_user = OF_THE_USER.iter().map(|(path, what)| (runtime.join(path), *what));
    let agent = agent.map(|path| (path.to_owned(), "the agent for SSH keys"));
    let own = |folder: String, what| {
        fs::read_dir(root.join(folder)).into_iter().flatten().flatten().map(move |entry| (entry.path(), what))
    };
    let tmux = own(format!("tmp/tmux-{}", geteuid()), "tmux, which runs commands outside");
    let screen =
        nix::unistd::User::from_uid(geteuid()).ok().flatten().map(|user| format!("run/screen/S-{}", user.name));
    let screen = screen.into_iter().flat_map(|folder| own(folder, "screen, which runs commands outside"));
    let mut found: Vec<(PathBuf, &'static str)> = Vec::new();
    for (path, what) in of_system.chain(of_user).chain(agent).chain(tmux).chain(screen) {
        if access(&path, AccessFlags::W_OK).is_ok() && !found.iter().any(|(known, _)| *known == path) {
            found.push((path, what));
        }
    }
    found
}

fn sockets_note(found: &[(PathBuf, &str)]) -> Option<DoctorCheck> {
    if found.is_empty() {
        return None;
    }
    let shown: Vec<String> = found.iter().map(|(path, what)| format!("{} ({what})", path.display())).collect();
    let what = format!(
        "commands can reach {}, which can act for them outside of the sandbox: run the gateway as a user without that access, or \
        require approval of such commands in your rules (docs/sandbox.md)",
        shown.join(", ")
    );
    Some(DoctorCheck::note("sockets", what))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, path::Path};

    use super::{reachable_sockets, sockets_note};

    #[test]
    fn what_is_there_is_named_once_with_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        assert!(sockets_note(&reachable_sockets(folder.path(), &at("user"), None)).is_none());
        let tmux = format!("tmp/tmux-{}/default", nix::unistd::geteuid());
        for path in ["run", "user/podman", tmux.strip_suffix("/default").unwrap()] {
            fs::create_dir_all(at(path)).unwrap();
        }
        let listening = ["run/docker.sock", "user/podman/podman.sock", "agent.1", &tmux]
            .map(|path| UnixListener::bind(at(path)).unwrap());
        let agent = at("agent.1");
        let found = reachable_sockets(folder.path(), &at("user"), Some(&agent));
        let names: Vec<&str> = found.iter().map(|(_, what)| *what).collect();
        assert_eq!(names, ["Docker", "Podman", "the agent for SSH keys", "tmux, which runs commands outside"]);
        let text = format!("{:?}", sockets_note(&found));
        assert!(text.contains("run/docker.sock (Docker), ") && text.contains("docs/sandbox.md"), "{text}");
        let twice = at("run/docker.sock");
        assert_eq!(reachable_sockets(folder.path(), Path::new("/nowhere"), Some(&twice)).len(), 2, "and tmux");
        drop(listening);
    }
}
