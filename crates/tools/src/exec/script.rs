//! The text that a shell reads for one command.
//!
//! It must not start anything. The text works in bash and in a plain POSIX shell. A command gets `/dev/null` or a pipe as its
//! input and one pipe for both outputs; its end is reported through another pipe that the command does not hold, after a nonce
//! that it does not know.

use super::frame::ShellCommand;

/// Input of a command that has none.
pub(super) const NOTHING: &str = "/dev/null";

/// Paths that the shell writes to, and that the command reads from.
pub(super) struct ScriptPaths<'a> {
    /// The path of the output pipe.
    pub(super) output: &'a str,
    /// The path of what the command reads.
    pub(super) input: &'a str,
    /// The path of the status pipe.
    pub(super) status: &'a str,
    /// Beginning of a status line.
    pub(super) nonce: &'a str,
    /// The folder that was approved, by a descriptor, where the shell is in another or the command names it.
    pub(super) folder: Option<&'a str>,
}

/// Returns the text that a new shell reads first: at its end the shell reports its folder.
pub(super) fn shell_prologue(status: &str) -> String {
    format!("trap {} EXIT\n", shell_quote(&format!("command pwd -P >{status}")))
}

/// The status line of a command that the shell has read: what follows the nonce.
pub(super) const BEGUN: &str = "begun";

/// Text before the shell's `PATH` in a status line.
pub(super) const PATH: &str = "path ";

/// Returns the text that the shell reads for `run`. The status lines are the nonce and [`BEGUN`], the nonce, [`PATH`] and the
/// search path of programs, if that has one line, and the nonce and the exit code.
pub(super) fn command_script(run: &ShellCommand, ends: &ScriptPaths<'_>) -> String {
    let ScriptPaths { output, input, status, nonce, folder } = ends;
    let begun = format!("command printf '%s %s\\n' {nonce} {BEGUN} >{status}");
    let eval = format!("eval {}", shell_quote(&run.command));
    // A remembered path of a program may differ from the one that it would find now, which was examined.
    let eval = if run.pins.is_some() { format!("command hash -r 2>/dev/null || :\n{eval}") } else { eval };
    let report = format!(
        "case ${{PATH-}} in *'\n'*) ;; *) command printf '%s {PATH}%s\\n' {nonce} \"${{PATH-}}\" >{status};; esac\ncommand printf '%s %s\\n' {nonce} \"$__countersign_code\" >{status}\nunset __countersign_code\n"
    );
    // A folder that was approved is entered by its descriptor: its name may lead elsewhere by now.
    let eval = match folder.filter(|_| run.cwd.is_none()) {
        Some(folder) => format!("command cd -P -- {} &&\n{{ {eval}\n}}", shell_quote(folder)),
        None => eval,
    };
    if run.cwd.is_none() && run.env.is_empty() {
        return format!("{begun}\n{{ {eval}\n}} <{input} >{output} 2>&1\n__countersign_code=$?\n{report}");
    }
    let (mut before, mut after) = (String::new(), String::new());
    for (at, (name, value)) in run.env.iter().enumerate() {
        let kept = format!("__countersign_{at}");
        before.push_str(&format!("{kept}=${{{name}+x}}${{{name}-}}\nexport {name}={}\n", shell_quote(value)));
        after.push_str(&format!(
            "if [ -n \"${kept}\" ]; then {name}=${{{kept}#x}}; else unset {name}; fi\nunset {kept}\n"
        ));
    }
    let body = format!("{before}{eval}\n__countersign_code=$?\n{after}");
    let body = match &run.cwd {
        None => body,
        Some(cwd) => format!(
            "__countersign_from=$PWD\nif command cd {}; then\n{body}command cd -- \"$__countersign_from\"\nelse\n__countersign_code=1\nfi\nunset __countersign_from\n",
            folder
                .map_or_else(|| format!("-- {}", shell_quote(cwd)), |folder| format!("-P -- {}", shell_quote(folder)))
        ),
    };
    format!("{begun}\n{{ {body}}} <{input} >{output} 2>&1\n{report}")
}

/// Quotes `text` as one literal word.
pub(crate) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        process::{Command, Stdio},
    };

    use super::{NOTHING, ScriptPaths, command_script, shell_prologue, shell_quote};
    use crate::exec::frame::ShellCommand;

    #[test]
    fn the_text_works_in_every_shell() {
        for shell in ["bash", "sh"] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name).display().to_string();
            let (output, status) = (at("output"), at("status"));
            let mut given = String::new();
            for (index, run) in [
                ShellCommand { command: "a='it'\\''s'; cd /; f() { return 5; }".to_owned(), ..ShellCommand::default() },
                ShellCommand { command: "echo \"$a\"; pwd; f".to_owned(), ..ShellCommand::default() },
                ShellCommand {
                    command: "echo \"$PWD $V\"; false".to_owned(),
                    cwd: Some("/usr".to_owned()),
                    env: vec![("V".to_owned(), "1 2".to_owned())],
                    ..ShellCommand::default()
                },
                ShellCommand { command: "echo \"$PWD ${V-unset}\"".to_owned(), ..ShellCommand::default() },
                ShellCommand { command: ":".to_owned(), cwd: Some("/no/such".to_owned()), ..ShellCommand::default() },
            ]
            .iter()
            .enumerate()
            {
                let (output, status) = (format!("{output}{index}"), format!("{status}{index}"));
                given.push_str(&command_script(
                    run,
                    &ScriptPaths { output: &output, input: NOTHING, status: &status, nonce: "n", folder: None },
                ));
            }
            let mut child = Command::new(shell).stdin(Stdio::piped()).spawn().unwrap();
            let text = shell_prologue(&at("folder")) + &given;
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            child.wait().unwrap();
            let read = |name: String| fs::read_to_string(folder.path().join(name)).unwrap();
            let outputs: Vec<String> = (0..4).map(|index| read(format!("output{index}"))).collect();
            assert_eq!(outputs, ["", "it's\n/\n", "/usr 1 2\n", "/ unset\n"], "{shell}");
            let codes: Vec<String> = (0..5).map(|index| read(format!("status{index}"))).collect();
            assert_eq!(codes, ["n 0\n", "n 5\n", "n 1\n", "n 0\n", "n 1\n"], "{shell}");
            assert_eq!(read("folder".to_owned()), "/\n", "{shell}");
        }
    }

    #[test]
    fn a_quoted_text_stands_for_itself() {
        for (given, want) in [("", "''"), ("a b$c", "'a b$c'"), ("it's", r"'it'\''s'"), ("a\nb", "'a\nb'")] {
            assert_eq!(shell_quote(given), want);
        }
    }
}
