//! Service of one user that runs a gateway: a unit of `systemd --user`, so that guarded programs find one after each login.
//!
//! The unit says itself what it was when it was written: one that was edited since is neither replaced nor removed.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use countersign_config::find_config;
use countersign_files::replace::{FileAccess, replace_file};
use countersign_guard::GuardPlaces;
use countersign_view::{LineMode, escape};
use sha2::{Digest as _, Sha256};

use crate::{data_dir::DataDir, mcp_servers::confirm};

/// Path of the unit below the folder for configurations.
const UNIT: &str = "systemd/user/countersign.service";
/// First line of the unit, up to the digest of what follows.
const MARK: &str =
    "# Written by `countersign guard --service`; `countersign unguard --service` removes it. SHA-256 of the rest: ";

/// Options of the service.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    /// Write a unit of `systemd --user` that runs a gateway for this user, instead of guarding a program
    #[arg(long)]
    service: bool,
    /// Print the unit and write none
    #[arg(long, requires = "service")]
    dry_run: bool,
    /// Write the unit without a question
    #[arg(long, short, requires = "service")]
    yes: bool,
}

impl ServiceArgs {
    /// Reports whether the command is about the service.
    pub(crate) const fn is_given(self) -> bool {
        self.service
    }
}

/// Writes the unit. `config` is the configuration that the command names.
pub(crate) fn install(options: ServiceArgs, data: &Path, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    let places = &find_places()?;
    let path = places.config_folder().join(UNIT);
    let text = unit_text(&serve_words(places, data, config)?);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}\n{}", path.display(), escape(text.trim_end(), LineMode::Many))?;
    if let Some(found) = read_unit(&path)?
        && !is_ours(&found)
    {
        bail!("{} is there already, and not as this command wrote it: move it away first", path.display());
    }
    if options.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !options.yes && !confirm(&format!("Write {}?", path.display()))? {
        writeln!(std::io::stderr(), "nothing was changed")?;
        return Ok(ExitCode::FAILURE);
    }
    let folder = path.parent().context("a path without a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    replace_file(&path, text.as_bytes(), FileAccess::Shared).with_context(|| path.display().to_string())?;
    if let Some(problem) = unit_problem(&path) {
        fs::remove_file(&path)?;
        bail!("systemd would not read the unit, so it was removed: {problem}");
    }
    writeln!(
        out,
        "Start it now and at each login:\n  systemctl --user daemon-reload\n  systemctl --user enable --now countersign"
    )?;
    writeln!(out, "Keep it running without a login:\n  loginctl enable-linger")?;
    writeln!(out, "Its messages:\n  journalctl --user -u countersign")?;
    Ok(ExitCode::SUCCESS)
}

/// Removes the unit, if it is as it was written.
pub(crate) fn remove() -> anyhow::Result<ExitCode> {
    let path = find_places()?.config_folder().join(UNIT);
    let Some(found) = read_unit(&path)? else { bail!("there is no {}", path.display()) };
    if !is_ours(&found) {
        bail!("{} was edited since it was written, or is not of this command: remove it yourself", path.display());
    }
    fs::remove_file(&path).with_context(|| path.display().to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "removed {}", path.display())?;
    // `systemctl disable` does nothing for a unit that is gone.
    if let Some(link) = enabling_link(&path) {
        fs::remove_file(&link).with_context(|| link.display().to_string())?;
        writeln!(out, "removed {}, which started it at each login", link.display())?;
    }
    writeln!(out, "A gateway that it started still runs. To stop it:\n  systemctl --user stop countersign")?;
    writeln!(out, "  systemctl --user daemon-reload")?;
    writeln!(out, "If you had it run without a login:\n  loginctl disable-linger")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the link with which `systemctl enable` has the unit started, if it leads to this unit.
fn enabling_link(unit: &Path) -> Option<PathBuf> {
    let link = unit.parent()?.join("default.target.wants").join(unit.file_name()?);
    let target = fs::read_link(&link).ok()?;
    (link.parent()?.join(target).file_name() == unit.file_name()).then_some(link)
}

fn find_places() -> anyhow::Result<GuardPlaces> {
    GuardPlaces::from_environment(|name| std::env::var(name).ok()).context("HOME is not set")
}

/// Returns the command that starts a gateway at `place` from any folder: the service, if it is installed for that data directory.
pub(crate) fn start_command(place: &DataDir) -> String {
    let places = GuardPlaces::from_environment(|name| std::env::var(name).ok());
    let unit = places.and_then(|places| read_unit(&places.config_folder().join(UNIT)).ok().flatten());
    let folder = std::path::absolute(&place.folder).unwrap_or_else(|_| place.folder.clone());
    match unit.is_some_and(|unit| unit.contains(&data_words(&folder))) {
        true => "systemctl --user start countersign".to_owned(),
        false => format!("countersign serve{}", place.serve_flags()),
    }
}

/// Returns the words that select the data directory, as they are in the unit.
fn data_words(folder: &Path) -> String {
    format!("--data {}", unit_quote(&folder.to_string_lossy()))
}

fn read_unit(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => bail!("{} is a symbolic link: change it yourself", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    fs::read_to_string(path).map(Some).with_context(|| path.display().to_string())
}

/// Reports whether a unit is as it was written.
fn is_ours(unit: &str) -> bool {
    let lines = unit.strip_prefix(MARK).and_then(|rest| rest.split_once('\n'));
    lines.is_some_and(|(digest, rest)| digest == text_digest(rest))
}

fn text_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the command line of the gateway, in the form of a unit.
fn serve_words(places: &GuardPlaces, data: &Path, config: Option<&Path>) -> anyhow::Result<String> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let text = |path: &Path| -> anyhow::Result<String> {
        let path = std::path::absolute(path)?;
        Ok(unit_quote(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?))
    };
    let mut words = vec![text(&binary)?, "serve".to_owned()];
    let own = places.config_folder().join("countersign");
    match config.map(Path::to_owned).or_else(|| find_config(&own)) {
        Some(config) => words.extend(["--config".to_owned(), text(&config)?]),
        None => {
            let rules = own.join("permissions.yaml");
            if rules.is_file() {
                words.extend(["--permissions".to_owned(), text(&rules)?]);
            }
        }
    }
    words.extend(["--data".to_owned(), text(data)?]);
    Ok(words.join(" "))
}

/// Quotes a word for a unit.
fn unit_quote(word: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' | '$' => quoted.extend([letter, letter]),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}

fn unit_text(command: &str) -> String {
    // The packaged unit has more, for which the manager of one user has no right.
    let rest = format!(
        "[Unit]
Description=Countersign: approvals for the agents of this user

[Service]
Type=exec
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
TimeoutStopSec=15
KillMode=mixed
LimitNOFILE=65536
OOMPolicy=continue
# Not the home folder: a config.yaml there would be taken for its configuration.
WorkingDirectory=/
UMask=0077
NoNewPrivileges=true
RestrictRealtime=true
RestrictSUIDSGID=true
LockPersonality=true
SystemCallArchitectures=native
RestrictNamespaces=user net
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK

[Install]
WantedBy=default.target
"
    );
    format!("{MARK}{}\n{rest}", text_digest(&rest))
}

/// Returns the reason why systemd would not read the unit. None if it would, or is not installed.
fn unit_problem(path: &Path) -> Option<String> {
    let mut command = Command::new("systemd-analyze");
    command.args(["--user", "verify"]).arg(path).stdin(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // It also reports other units of the machine, and that no manager runs.
    let name = path.file_name()?.to_string_lossy().into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&name)).collect();
    (!output.status.success() && !lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use countersign_guard::GuardPlaces;

    use super::{is_ours, serve_words, unit_quote, unit_text};

    #[test]
    fn a_unit_names_the_configuration_under_either_name() {
        for name in ["config.yaml", "config.yml"] {
            let home = tempfile::tempdir().unwrap();
            let folder = home.path().join(".config/countersign");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), "").unwrap();
            let variable = |known: &str| (known == "HOME").then(|| home.path().to_str().unwrap().to_owned());
            let places = GuardPlaces::from_environment(variable).unwrap();
            let words = serve_words(&places, std::path::Path::new("/data"), None).unwrap();
            assert!(words.contains(&format!("--config \"{}\"", folder.join(name).display())), "{words}");
        }
    }

    #[test]
    fn words_of_a_unit_are_quoted_for_systemd() {
        for (word, want) in [
            ("/usr/bin/countersign", "\"/usr/bin/countersign\""),
            ("/home/a b/50% $x", "\"/home/a b/50%% $$x\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
        ] {
            assert_eq!(unit_quote(word), want);
        }
    }

    #[test]
    fn a_unit_that_was_edited_is_not_ours_any_more() {
        let text = unit_text("\"/usr/bin/countersign\" serve");
        assert!(is_ours(&text));
        assert!(!is_ours(&text.replace("Restart=always", "Restart=no")));
        assert!(!is_ours("[Unit]\n"));
    }
}
