//! Real paths of the files of a call: a link must not hide a file that a rule or the floor protects.
//!
//! A path is judged as its text says, and as the system follows it. Where the gateway cannot see that, the call is denied.

use std::path::Path;

use countersign_core::{
    call::AgentRequest,
    policy::{join_folder, path_spellings, path_texts},
};
use serde_json::{Map, Value};

use crate::path_walk::{PathProblem, real_path};

/// Tools whose one path rules match.
const FILE_TOOLS: [&str; 3] = ["read", "write", "edit"];
/// Argument with that path.
const PATH: &str = "path";
/// Tool of commands. The words of a command are judged with it, not here.
const SHELL: &str = "bash";
/// Most texts of a call that are followed as paths.
const MOST_TEXTS: usize = 4096;
/// Longest part of a path in a reason, in characters.
const LONGEST_SHOWN: usize = 300;

/// Paths of a call, as its program may use them.
struct CallPaths {
    tool: String,
    cwd: String,
    /// Home folder, for paths that begin with `~/`.
    home: Option<String>,
    paths: Vec<String>,
    arguments: Map<String, Value>,
}

/// Paths to which those of a call lead through links.
#[derive(Debug, Default, PartialEq)]
struct LinkTargets {
    /// The one of a file tool.
    leads_to: Option<String>,
    all: Vec<String>,
}

/// Adds the real paths to which the paths of a call lead through links.
///
/// # Errors
/// A reason for the agent to deny the call: where a path leads cannot be known.
pub(crate) async fn follow_links(request: &mut AgentRequest) -> Result<(), String> {
    let call = CallPaths {
        tool: request.tool.to_string(),
        cwd: request.cwd.clone(),
        home: std::env::var("HOME").ok().filter(|home| home.starts_with('/')),
        paths: request.paths.clone(),
        arguments: request.arguments.clone(),
    };
    let found = tokio::task::spawn_blocking(move || call.find_targets()).await;
    let found = found.map_err(|error| format!("the gateway could not follow the paths of the call: {error}"))??;
    request.leads_to = found.leads_to.map(Into::into);
    request.paths.extend(found.all);
    Ok(())
}

impl CallPaths {
    fn find_targets(&self) -> Result<LinkTargets, String> {
        if self.tool == SHELL {
            return Ok(LinkTargets::default());
        }
        if FILE_TOOLS.contains(&self.tool.as_str())
            && let Some(path) = self.arguments.get(PATH).and_then(Value::as_str)
        {
            return self.find_target(path);
        }
        let named = self.paths.iter().map(|path| (path.as_str(), true));
        let texts = path_texts(&self.arguments, None).into_iter().map(|found| (found.text, found.is_named));
        let mut texts: Vec<(&str, bool)> = named.chain(texts).collect();
        // A text that is a path in one argument counts as one.
        texts.sort_unstable_by_key(|(text, is_named)| (*text, !is_named));
        texts.dedup_by_key(|(text, _)| *text);
        if texts.len() > MOST_TEXTS {
            return Err(format!(
                "{} texts of the call may be paths, and at most {MOST_TEXTS} are followed: use several calls",
                texts.len()
            ));
        }
        let mut targets = LinkTargets::default();
        for (text, is_named) in texts {
            for spelled in path_spellings(text) {
                // Other spellings are for readers that may exist. A problem with one must not stop a call that is plain.
                let is_sure = is_named && (spelled.starts_with('/') || spelled == text.trim());
                self.add_spelling(&mut targets, &spelled, is_sure).map_err(|problem| reason(text, &problem))?;
            }
            self.add_spelling(&mut targets, text, false).map_err(|problem| reason(text, &problem))?;
        }
        targets.all.sort_unstable();
        targets.all.dedup();
        Ok(targets)
    }

    /// Returns the target of the one path of a file tool. The system has to be able to follow it.
    fn find_target(&self, path: &str) -> Result<LinkTargets, String> {
        let mut targets = LinkTargets::default();
        for written in self.written_paths(path) {
            let plain = join_folder("/", &written);
            let follow = |path: &str| real_path(Path::new(path)).map_err(|problem| reason(path, &problem));
            let (real, real_of_plain) = (follow(&written)?, follow(&plain)?);
            if real != real_of_plain {
                return Err(format!(
                    "{} leads to {} if its links are followed, and to {} by its text: name the file without `..`",
                    shown(path),
                    shown(&text_of(&real)),
                    shown(&text_of(&real_of_plain)),
                ));
            }
            let real = text_of(&real);
            if real != plain {
                targets.leads_to.get_or_insert_with(|| real.clone());
                targets.all.push(real);
            }
        }
        Ok(targets)
    }

    fn add_spelling(&self, targets: &mut LinkTargets, spelled: &str, is_sure: bool) -> Result<(), PathProblem> {
        let is_of_home = spelled.starts_with("~/");
        for written in self.written_paths(spelled) {
            // Few programs have a folder `~` here.
            let is_sure = is_sure && !(is_of_home && written.ends_with(&format!("/{spelled}")));
            self.add_targets(targets, &written, is_sure)?;
        }
        Ok(())
    }

    /// Adds the targets of a path, as it is written and as its text alone says. A problem counts if the text is surely
    /// this path.
    fn add_targets(&self, targets: &mut LinkTargets, written: &str, is_sure: bool) -> Result<(), PathProblem> {
        let plain = join_folder("/", written);
        for path in [written, &plain] {
            match real_path(Path::new(path)) {
                Ok(real) if real != Path::new(&plain) => targets.all.push(text_of(&real)),
                Ok(_) => {}
                Err(problem) if is_sure && problem.may_hide_file() => return Err(problem),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the absolute paths that a text means, with every `..` in them.
    fn written_paths(&self, text: &str) -> Vec<String> {
        if text.starts_with('/') {
            return vec![text.to_owned()];
        }
        let at_home = text.strip_prefix("~/").zip(self.home.as_deref()).map(|(rest, home)| format!("{home}/{rest}"));
        let here = self.cwd.starts_with('/').then(|| format!("{}/{text}", self.cwd));
        at_home.into_iter().chain(here).collect()
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn shown(path: &str) -> String {
    let mut short: String = path.chars().take(LONGEST_SHOWN).collect();
    if short.len() < path.len() {
        short.push('…');
    }
    short
}

fn reason(path: &str, problem: &PathProblem) -> String {
    format!("{}: {problem}", shown(path))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
    };

    use serde_json::{Value, json};

    use super::{CallPaths, LinkTargets};

    /// Folder with `w/link` to `s/d`.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("countersign-real-paths-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("w")).unwrap();
        fs::create_dir_all(folder.join("s/d")).unwrap();
        symlink("../s/d", folder.join("w/link")).unwrap();
        symlink("circle", folder.join("w/circle")).unwrap();
        fs::canonicalize(folder).unwrap()
    }

    fn find(folder: &Path, tool: &str, paths: &[&str], arguments: Value) -> Result<LinkTargets, String> {
        let call = CallPaths {
            tool: tool.to_owned(),
            cwd: folder.join("w").to_string_lossy().into_owned(),
            home: Some(folder.join("w").to_string_lossy().into_owned()),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            arguments: arguments.as_object().unwrap().clone(),
        };
        call.find_targets()
    }

    #[test]
    fn a_file_tool_gets_the_one_file_to_which_its_path_leads() {
        let folder = folder("file-tools");
        let target = |path: &str| folder.join(path).to_string_lossy().into_owned();
        for (path, want) in
            [("a", None), ("new/a", None), ("../w/a", None), ("link/a", Some("s/d/a")), ("./link/a", Some("s/d/a"))]
        {
            let found = find(&folder, "write", &[path], json!({ "path": path, "content": "/x/../y" })).unwrap();
            assert_eq!(found.leads_to, want.map(target), "{path}");
        }
        for (path, want) in [
            ("link/../a", "name the file without `..`"),
            (&target("w/link/../a"), "name the file without `..`"),
            ("new/../a", "does not exist, and `..` is behind it"),
            ("circle/a", "too many links"),
            ("/proc/self/cwd/a", "leads elsewhere for each process"),
            (&"x".repeat(300), "not a valid path"),
        ] {
            let problem = find(&folder, "write", &[path], json!({ "path": path })).unwrap_err();
            assert!(problem.contains(want), "{path}: {problem}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_links_in_any_argument_of_another_tool_are_followed() {
        let folder = folder("arguments");
        let target = |path: &str| folder.join(path).to_string_lossy().into_owned();
        for arguments in [
            json!({"path": "link/../a"}),
            json!({"destination": target("w/link/../a")}),
            json!({"edits": [{"to": ["link/../a"]}]}),
            json!({"uri": format!("file://{}", target("w/link/%2E%2E/a"))}),
            json!({"to": "~/link/../a"}),
        ] {
            let found = find(&folder, "mcp__fs__x", &[], arguments.clone()).unwrap();
            assert!(found.all.contains(&target("s/a")) && found.leads_to.is_none(), "{arguments}: {found:?}");
        }
        for (arguments, is_known) in [
            (json!({"path": "circle"}), false),
            (json!({"to": "./circle"}), false),
            (json!({"note": "circle"}), true),
            (json!({"content": "./circle"}), true),
            (json!({"file_text": "x".repeat(9000)}), true),
        ] {
            let found = find(&folder, "mcp__fs__x", &[], arguments.clone());
            assert_eq!(found.is_ok(), is_known, "{arguments}: {found:?}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
