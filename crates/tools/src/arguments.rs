//! From the arguments of a call to a struct of a tool's own, and from a path argument to a place.
//!
//! It must not know any tool.

use std::path::{Component, Path, PathBuf};

use countersign_core::policy::obeyed_by;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{outcome::CallFailure, roots::AllowedPath, tool::ToolContext};

/// Reads checked arguments; the intent is passed over.
pub(crate) fn parse_arguments<T: DeserializeOwned>(
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<T, CallFailure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| CallFailure::Invalid(format!("Invalid arguments for {tool}:\n- {error}")))
}

/// Returns the path that an argument means: `~` is the home folder of the environment, the rest is relative to the working
/// folder.
pub(crate) fn expand_home(given: &str, cx: &ToolContext) -> PathBuf {
    let home = || cx.environment.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let expanded = match given.strip_prefix('~') {
        Some("") => home(),
        Some(rest) if rest.starts_with('/') => home().map(|home| home.join(rest.trim_start_matches('/'))),
        Some(_) | None => None,
    };
    expanded.unwrap_or_else(|| PathBuf::from(given))
}

/// Decides whether a path argument may be used, and where it leads.
pub(crate) fn locate_path(given: &str, cx: &ToolContext) -> Result<AllowedPath, CallFailure> {
    cx.roots.resolve_path(&cx.cwd, &expand_home(given, cx)).map_err(|error| CallFailure::Failed(error.to_string()))
}

/// Does the same for a path that is to be changed: where commands are confined to folders, this is confined to the same ones. A
/// link must not hide from the judge of the call's text that another program obeys the file that it leads to.
pub(crate) fn locate_to_change(given: &str, cx: &ToolContext) -> Result<AllowedPath, CallFailure> {
    let place = locate_path(given, cx)?;
    if let Some(because) = obeyed_behind_link(given, place.path(), cx) {
        let real = display_path(place.path(), cx);
        return Err(CallFailure::Failed(format!(
            "{given} was not changed: a symlink in it leads to {real}, which {because}; use that path instead"
        )));
    }
    match cx.shells.sandbox().forbids_writing(place.path(), &cx.cwd, &cx.environment) {
        None => Ok(place),
        Some(reason) => Err(CallFailure::Failed(format!("{given} was not changed: {reason}"))),
    }
}

/// Returns the absolute path that the argument `path` leads to, if links in it lead elsewhere than its text. The working folder
/// counts as written. `None` if there is no such argument, or the path may not be used.
pub async fn leads_to(arguments: &Map<String, Value>, cx: &ToolContext) -> Option<String> {
    let given = arguments.get("path")?.as_str()?.to_owned();
    let cx = cx.clone();
    let look = move || {
        let lexical = normalise_path(&cx.cwd.join(expand_home(&given, &cx)));
        let real = locate_path(&given, &cx).ok()?.path().to_owned();
        let working = std::fs::canonicalize(&cx.cwd).unwrap_or_else(|_| cx.cwd.clone());
        let real = real.strip_prefix(&working).map(|rest| cx.cwd.join(rest)).unwrap_or(real);
        let real = normalise_path(&real);
        (real != lexical).then(|| real.to_string_lossy().into_owned())
    };
    tokio::task::spawn_blocking(look).await.ok().flatten()
}

/// Returns an absolute path without `.` and `..`, from its text alone.
fn normalise_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Returns the reason for which a rule has to name `real`, where `given` does not show that it is such a file.
fn obeyed_behind_link(given: &str, real: &Path, cx: &ToolContext) -> Option<&'static str> {
    let obeyed = |working: &Path, path: &Path| obeyed_by(&working.to_string_lossy(), &path.to_string_lossy());
    let working = std::fs::canonicalize(&cx.cwd);
    let because = obeyed(working.as_deref().unwrap_or(&cx.cwd), real)?;
    obeyed(&cx.cwd, &expand_home(given, cx)).is_none().then_some(because)
}

/// Returns the path as results show it: relative if it is in the working folder.
pub(crate) fn display_path(path: &Path, cx: &ToolContext) -> String {
    let real = std::fs::canonicalize(&cx.cwd);
    let cwd = real.as_deref().unwrap_or(&cx.cwd);
    match path.strip_prefix(cwd) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
        Ok(rest) => rest.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

/// Runs `work` where it may block, until it is done or the call is cancelled; `work` sees the token and should end soon
/// after.
pub(crate) async fn run_blocking<T: Send + 'static>(
    cx: &ToolContext,
    work: impl FnOnce() -> Result<T, CallFailure> + Send + 'static,
) -> Result<T, CallFailure> {
    let working = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        done = working => done.unwrap_or_else(|error| Err(CallFailure::Failed(format!("the tool panicked: {error}")))),
        () = cx.cancel.cancelled() => Err(CallFailure::Cancelled("Tool execution was aborted".to_owned())),
    }
}

/// Does `work` on the disk, where it may block. It is not broken off: a change is made or not, and the result reports which. Work
/// that panics leaves that in doubt.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    cx: &ToolContext,
    work: impl FnOnce() -> Result<T, CallFailure> + Send + 'static,
) -> Result<T, CallFailure> {
    if cx.cancel.is_cancelled() {
        return Err(CallFailure::Cancelled("Tool execution was aborted".to_owned()));
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(CallFailure::InDoubt(format!("the tool panicked, and its outcome is unknown: {error}")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{leads_to, run_blocking, run_to_completion};
    use crate::{AllowedRoots, outcome::CallFailure, tool::testing::ToolFixture};

    fn break_off() -> Result<(), CallFailure> {
        // Not a panic: that would print into the output of the tests.
        std::panic::resume_unwind(Box::new("on purpose"));
    }

    #[tokio::test]
    async fn a_path_leads_elsewhere_through_a_link_alone() {
        let mut case = ToolFixture::new();
        case.cx.roots = AllowedRoots::whole_filesystem([]);
        let cwd = case.cx.cwd.clone();
        std::fs::create_dir(cwd.join("src")).unwrap();
        std::os::unix::fs::symlink("src", cwd.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", cwd.join("out")).unwrap();
        let inside = cwd.join("src/a").to_string_lossy().into_owned();
        for (path, want) in [
            ("link/a", Some(inside.as_str())),
            ("out/x", Some("/etc/x")),
            ("out/../x", Some("/x")),
            ("src/a", None),
            ("./src/../src/a", None),
            ("new/a", None),
            ("/etc/passwd", None),
        ] {
            let arguments = json!({ "path": path });
            assert_eq!(leads_to(arguments.as_object().unwrap(), &case.cx).await.as_deref(), want, "{path}");
        }
        assert_eq!(leads_to(json!({}).as_object().unwrap(), &case.cx).await, None);
    }

    #[tokio::test]
    async fn a_change_that_breaks_off_is_in_doubt_and_a_look_is_not() {
        let case = ToolFixture::new();
        let changed = run_to_completion(&case.cx, break_off).await;
        assert!(matches!(changed, Err(CallFailure::InDoubt(_))), "{changed:?}");
        let looked = run_blocking(&case.cx, break_off).await;
        assert!(matches!(looked, Err(CallFailure::Failed(_))), "{looked:?}");
    }
}
