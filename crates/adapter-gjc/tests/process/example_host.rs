//! The host among the examples, against the real binary.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use countersign_testkit::process::binary_path;

#[test]
fn the_host_among_the_examples_has_its_day() {
    let is_there = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gjc_host.py");
    for argument in [binary_path().as_os_str(), "--self-test".as_ref()] {
        let output = Command::new("python3").arg(&script).arg(argument).stdin(Stdio::null()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{argument:?}: {stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}
