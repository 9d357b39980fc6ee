//! The script that completes commands and flags, in a real shell.

use std::process::Command;

use countersign_testkit::process::binary_path;

#[test]
fn bash_completes_with_the_script() {
    let binary = binary_path().display();
    let line = format!(
        "source <({binary} completions bash); COMP_WORDS=(countersign omp --perm); COMP_CWORD=2; \
         _countersign countersign --perm omp; echo \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stdout).trim(), output.stderr.len()), ("--permissions", 0));
}
