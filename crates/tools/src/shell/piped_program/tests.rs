use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{PipedProgram, ProgramPipes};
use crate::{
    environment::CommandEnvironment,
    exec::{ExecLauncher, tests::AS_CHILD},
    sandbox::Sandbox,
    shell::ShellError,
};

async fn start(program: &str, args: &[&str]) -> Result<(PipedProgram, ProgramPipes), ShellError> {
    let launcher =
        ExecLauncher { program: std::env::current_exe().unwrap(), leading_args: AS_CHILD.map(Into::into).to_vec() };
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let environment = CommandEnvironment::clean_with([("GIVEN".to_owned(), "yes".to_owned())]);
    PipedProgram::start(
        &launcher,
        &Sandbox::default(),
        program,
        &args,
        (Path::new("/"), Path::new("/tmp")),
        &environment,
    )
    .await
}

#[tokio::test]
async fn a_program_has_its_input_its_output_its_errors_and_its_end() {
    let script = "read line; echo \"got $line $GIVEN\"; echo bad >&2; exit 3";
    let (mut program, mut pipes) = start("sh", &["-c", script]).await.unwrap();
    pipes.stream.write_all(b"this\n").await.unwrap();
    assert_eq!(program.wait_exit().await.unwrap(), 3);
    drop(program);
    let (mut output, mut errors) = (String::new(), String::new());
    pipes.stream.read_to_string(&mut output).await.unwrap();
    pipes.errors.read_to_string(&mut errors).await.unwrap();
    // A test binary as the exec child writes its own lines first.
    assert!(output.ends_with("got this yes\n"), "{output}");
    assert!(errors.contains("bad\n"), "{errors}");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let (mut program, _pipes) = start("/nonexistent/server", &[]).await.unwrap();
    let error = program.wait_exit().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start a shell: /nonexistent/server: No such file or directory (os error 2)");
}

#[tokio::test]
async fn a_dropped_program_ends_with_everything_that_it_started() {
    let (program, mut pipes) = start("sh", &["-c", "sleep 1000 & echo begun; wait"]).await.unwrap();
    let mut output = Vec::new();
    while !output.ends_with(b"begun\n") {
        assert_ne!(pipes.stream.read_buf(&mut output).await.unwrap(), 0);
    }
    drop(program);
    // The output ends when no process holds it any more.
    pipes.stream.read_to_end(&mut output).await.unwrap();
}
