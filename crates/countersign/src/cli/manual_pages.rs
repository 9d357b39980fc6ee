//! Files made of the command line for users: scripts with which shells complete it, and its manual.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::{Arg, ArgAction, CommandFactory as _};
use clap_complete::Shell;
use countersign_adapter_omp::flags;

use super::Cli;

/// Returns the whole command line, with the flags of the doors, which it hands on unread.
fn full_command() -> clap::Command {
    let with_flags = |door: clap::Command| {
        door.args(flags::FLAG_HELP.map(|listed| {
            let flag = Arg::new(listed.name).long(listed.name).help(listed.help);
            if let Some(value) = listed.value { flag.value_name(value) } else { flag.action(ArgAction::SetTrue) }
        }))
    };
    let listen = Arg::new("listen").long("listen").value_name("PATH").help("Path of a socket to listen on");
    let insecure =
        Arg::new("insecure").long("insecure").help("Run without TLS, on loopback only").action(ArgAction::SetTrue);
    let of_gjc = |door| with_flags(door).args([listen, insecure]);
    Cli::command().mut_subcommand("omp", with_flags).mut_subcommand("gjc", of_gjc)
}

/// Returns the script for `shell`.
pub(super) fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut full_command(), "countersign", &mut script);
    script
}

/// Writes one page for the program and one for each command into `folder`.
pub(super) fn write_manual(folder: &Path) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let whole = full_command().disable_help_subcommand(true);
    clap_mangen::generate_to(whole, folder)
        .with_context(|| format!("cannot write the pages into {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};

    use super::{super::Cli, Shell, completion_script, flags, write_manual};

    /// Returns the names of all subcommands and long flags.
    fn names(command: &clap::Command) -> Vec<String> {
        let flags = command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned);
        let below = command
            .get_subcommands()
            .flat_map(|below| std::iter::once(below.get_name().to_owned()).chain(names(below)).collect::<Vec<_>>());
        flags.chain(below).collect()
    }

    #[test]
    fn each_shell_completes_every_subcommand_and_flag() {
        let mut expected = names(&Cli::command());
        assert!(expected.iter().any(|name| name == "verify") && expected.iter().any(|name| name == "keep"));
        expected.extend(flags::FLAG_HELP.iter().map(|listed| listed.name.to_owned()));
        for shell in Shell::value_variants() {
            let script = String::from_utf8(completion_script(*shell)).unwrap();
            for name in &expected {
                assert!(script.contains(name.as_str()), "{shell}: {name}");
            }
            assert!(!script.contains("__exec"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_its_page_in_the_manual() {
        let folder = tempfile::tempdir().unwrap();
        write_manual(folder.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = page(&format!("countersign-{}.1", command.get_name()));
            assert!(page.contains(".SH SYNOPSIS"), "{}: {page}", command.get_name());
        }
        assert!(page("countersign.1").contains("countersign"));
        assert!(page("countersign-audit-verify.1").contains("head"));
        assert!(page("countersign-omp.1").contains(flags::FLAG_HELP[0].name));
    }
}
