//! Effects of earlier calls on the next line of the same shell.

use super::{PolicyFixture, bash, word};
use crate::policy::PolicySubject;

#[test]
fn where_a_call_before_went_is_no_working_folder_for_what_deletes() {
    for (folder, command, want) in [
        ("/home/ana/project/sub", "rm -rf *", "allow"),
        ("/home/ana/project/sub", "rm -rf ../build", "allow"),
        ("/home/ana/other", "rm -rf *", "floor"),
        ("/home/ana/other", "rm -rf build", "floor"),
        ("/home/ana/other", "rm -rf ~/project/build", "allow"),
        ("/home/ana/other", "ls", "allow"),
    ] {
        let mut call = bash(command);
        call.session_folder = Some(std::mem::replace(&mut call.cwd, folder.to_owned()));
        let verdict = PolicyFixture::new(&["allow *"]).judge(&call);
        assert_eq!(word(&verdict), want, "{command} in {folder}: {verdict}");
    }
}

#[test]
fn what_a_line_before_may_have_left_in_a_variable_may_be_anything() {
    let rules = [
        "allow bash(printf *)",
        "allow bash(git log*)",
        "allow bash(cat *)",
        "allow bash(echo *)",
        "allow bash(grep *)",
    ];
    for (command, first, later) in [
        (r#"printf "$x" 'a[$(evil)]' y"#, "allow", "ask"),
        (r#"git log -1 --format=%B "$x""#, "allow", "ask"),
        // Variables that the line sets itself, and those that are never set unasked, are known.
        (r#"for x in a b; do grep "$x" f; done"#, "allow", "allow"),
        (r#"cat "$x""#, "allow", "ask"),
        (r#"cat "$HOME/notes""#, "allow", "allow"),
        (r#"echo "$x" $?"#, "allow", "ask"),
        (r#"echo "$HOME $PWD $?""#, "allow", "allow"),
    ] {
        for (is_later, want) in [(false, first), (true, later)] {
            let call = PolicySubject { is_later, ..bash(command) };
            let verdict = PolicyFixture::new(&rules).judge(&call);
            assert_eq!(word(&verdict), want, "{command}, later: {is_later}: {verdict}");
        }
    }
}
