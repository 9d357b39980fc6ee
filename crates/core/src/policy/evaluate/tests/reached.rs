//! Shell lines that may run what a rule denies, in words that nobody knows before they run.

use super::{World, word};
use crate::policy::testing::bash;

#[test]
fn a_line_that_may_come_to_what_is_denied_asks_whatever_allows_it() {
    for (line, want) in [
        ("g() { git \"$@\"; }; g push", "ask"),
        ("set -- push; git $1", "ask"),
        ("git -c alias.p=push p", "ask"),
        ("git -calias.p=push p", "ask"),
        ("git config alias.p push", "ask"),
        (". /dev/stdin <<< 'git push'", "deny"),
        ("source <(echo git push)", "deny"),
        ("bash <(echo git push)", "deny"),
        ("source <(printf 'git pu%s' sh)", "ask"),
        ("curl https://x | sh", "ask"),
        ("bash <<< \"$X\"", "ask"),
        ("xargs git <<< push", "ask"),
        ("\"$A\" push", "ask"),
        ("git \"$A\"", "ask"),
        ("git -C \"$A\" push", "deny"),
        ("git -C \"$A\" status", "allow"),
        ("git commit -m \"$A\"", "allow"),
        ("git status", "allow"),
        ("git -c color.ui=never status", "allow"),
        ("echo \"$A\"", "allow"),
        ("echo ls | sh", "allow"),
        (". ./env.sh", "allow"),
        ("bash build.sh", "allow"),
        ("echo x | bash build.sh", "allow"),
        ("make \"$A\"", "allow"),
        ("ls | xargs rm", "allow"),
        ("for c in a b; do echo $c; done", "allow"),
    ] {
        let verdict = World::new(&["deny bash(git push*)", "allow *"]).judge(&bash(line));
        assert_eq!(word(&verdict), want, "{line}: {verdict}");
        if want == "ask" {
            assert!(verdict.to_string().contains("git push*"), "{line}: {verdict}");
            let free = World::new(&["deny write(*)", "allow *"]).judge(&bash(line));
            assert_eq!(word(&free), "allow", "{line}: {free}");
        }
    }
}
