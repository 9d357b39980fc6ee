//! Programs that manage containers: which of their commands only look, and so run nothing that the line says.

use super::word::ShellWord;

/// Commands of `docker` and `podman` that only show.
const SHOWN: &str = "ps images logs inspect version info stats top port history diff events";
/// Nouns whose `ls`, `list` and `inspect` only show.
const NOUNS: &str = "container image volume network";
/// Commands of `docker compose` that only show.
const COMPOSED: &str = "ps logs images ls top port version";
/// Commands of `kubectl` that only show.
const ASKED: &str = "get describe logs top version explain api-resources api-versions cluster-info";
/// Options of `kubectl` that have it run a program, or write a file.
const KUBECTL_DOES_MORE: [&str; 5] = ["--kubeconfig", "--profile", "--cache-dir", "--output-directory", "dump"];

/// Reports whether `argv` only looks at containers. An option before the command may choose the daemon, or what is loaded first.
pub(super) fn only_look(program: &str, argv: &[ShellWord]) -> bool {
    let Some(words) = argv.iter().skip(1).map(ShellWord::as_literal).collect::<Option<Vec<&str>>>() else {
        return false;
    };
    let listed = |list: &str, name: &str| list.split(' ').any(|known| known == name);
    match (program, words.as_slice()) {
        ("docker" | "podman", [command, ..]) if listed(SHOWN, command) => true,
        ("docker" | "podman", [noun, command, ..]) if listed(NOUNS, noun) => {
            matches!(*command, "ls" | "list" | "inspect")
        }
        ("docker", ["compose", command, ..]) => listed(COMPOSED, command),
        ("kubectl", [command, rest @ ..]) if listed(ASKED, command) => {
            !rest.iter().any(|word| KUBECTL_DOES_MORE.iter().any(|option| word.starts_with(option)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{ShellWord, only_look};

    #[test]
    fn inspecting_containers_is_distinguished_from_running_in_them() {
        for (line, want) in [
            ("docker ps -a", true),
            ("docker logs --tail 50 web", true),
            ("podman images", true),
            ("docker image ls", true),
            ("docker compose ps", true),
            ("docker compose logs -f web", true),
            ("kubectl get pods -A -o wide", true),
            ("kubectl describe pod web-1", true),
            ("docker", false),
            ("docker exec web ls", false),
            ("docker run --rm alpine ls", false),
            ("docker build .", false),
            ("docker image rm x", false),
            ("docker image", false),
            ("docker compose -f evil.yaml ps", false),
            ("docker compose up", false),
            ("podman compose ps", false),
            ("docker -H ssh://host ps", false),
            ("docker --config evil ps", false),
            ("kubectl --kubeconfig evil get pods", false),
            ("kubectl get pods --kubeconfig=evil", false),
            ("kubectl get pods --profile cpu --profile-output=x", false),
            ("kubectl cluster-info dump --output-directory=x", false),
            ("kubectl diff -f x", false),
            ("kubectl exec web -- ls", false),
            ("lxc ps", false),
        ] {
            let argv: Vec<ShellWord> = line.split(' ').map(ShellWord::from_text).collect();
            assert_eq!(only_look(&argv[0].value, &argv), want, "{line}");
        }
        assert!(!only_look(
            "docker",
            &[ShellWord::from_text("docker"), ShellWord::from_text("ps"), ShellWord::unknown_word()]
        ));
    }
}
