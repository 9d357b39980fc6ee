//! Programs that are started with a bounded environment, in a group of their own that ends as one.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Interval of looks at something that sends no event.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Program with everything that it started. It ends with this value.
pub(crate) struct ProcessGroup(Child);

impl ProcessGroup {
    /// Starts a program as the leader of its group.
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("{name} could not be started"))?;
        Ok(Self(child))
    }

    /// Returns the program itself.
    pub(crate) const fn leader(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits until the program ends.
    ///
    /// # Errors
    /// `limit` is over. The program continues.
    pub(crate) fn wait(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        wait_for("the end of the program", limit, || Ok(self.0.try_wait()?))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Wrappers leave their programs running when only they are killed.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

/// Returns a command with a home of its own and nothing else of this machine except the path of programs.
pub(crate) fn bounded_command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home).env("TERM", "dumb").stdin(Stdio::null());
    command
}

/// Looks again and again until there is a value.
///
/// # Errors
/// Of a look, or `limit` is over.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if begun.elapsed() >= limit {
            bail!("no {what} after {} s", limit.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, path::Path, process::Stdio, time::Duration};

    use super::{ProcessGroup, bounded_command};

    #[test]
    fn what_a_program_started_ends_with_it() {
        let mut command = bounded_command(Path::new("sh"), Path::new("/"));
        // The inner program holds the pipe.
        command.args(["-c", "sleep 600 & echo $HOME; wait"]).stdout(Stdio::piped());
        let mut group = ProcessGroup::spawn(&mut command).unwrap();
        let mut output = group.leader().stdout.take().unwrap();
        assert!(group.wait(Duration::ZERO).is_err());
        drop(group);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(text == "/\n" || text.is_empty(), "{text}");
    }
}
