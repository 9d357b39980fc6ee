//! Follows a path as the system does, step by step: a link is followed before a `..` behind it counts.
//!
//! It must not know what a path is for.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::ErrorKind,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

/// Most links in one path, as in Linux.
const MOST_LINKS: usize = 40;
/// Folder whose links are others for each process.
const PROCESSES: &str = "/proc";

/// Reason why it is unknown where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathProblem {
    /// The gateway may not look there, or reading failed.
    Unreadable { at: PathBuf, error: String },
    /// More links than the system follows.
    TooManyLinks,
    /// A `..` behind a folder that does not exist.
    StepUp { behind: PathBuf },
    /// A link that is another one for each process.
    OfProcess { at: PathBuf },
    /// A file where a folder is needed.
    NoFolder { at: PathBuf },
    /// Text that the system takes for no path.
    NoPath,
}

impl PathProblem {
    /// Reports whether a program may reach a file by this path in spite of the problem, or at the next moment.
    pub(crate) const fn may_hide_file(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::TooManyLinks | Self::StepUp { .. } | Self::OfProcess { .. } => true,
            Self::NoFolder { .. } | Self::NoPath => false,
        }
    }
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { at, error } => write!(
                f,
                "the gateway cannot see where {} leads ({error}). Let the user of the gateway enter the folders above it, or start a \
                 gateway as the user of the agent (countersign guard --service)",
                at.display()
            ),
            Self::TooManyLinks => f.write_str("too many links. Name the file itself"),
            Self::StepUp { behind } => {
                write!(f, "{} does not exist, and `..` is behind it. Name the file without `..`", behind.display())
            }
            Self::OfProcess { at } => {
                write!(f, "{} leads elsewhere for each process. Name the file itself", at.display())
            }
            Self::NoFolder { at } => write!(f, "{} is not a folder", at.display()),
            Self::NoPath => f.write_str("not a valid path"),
        }
    }
}

/// Returns the real path of an absolute path, also of a file that does not exist yet.
///
/// # Errors
/// [`PathProblem`] if only the process that uses the path can know where it leads, or no process can use it.
pub(crate) fn real_path(path: &Path) -> Result<PathBuf, PathProblem> {
    let mut walk = PathWalk { real: PathBuf::from("/"), left: Vec::new(), links: 0 };
    walk.add_steps(path);
    walk.finish()
}

/// Path that is being followed.
struct PathWalk {
    real: PathBuf,
    /// Steps that are left, the next one last.
    left: Vec<OsString>,
    links: usize,
}

impl PathWalk {
    fn add_steps(&mut self, path: &Path) {
        let steps = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
        let steps = steps.filter(|step| !step.is_empty() && *step != b".");
        self.left.extend(steps.rev().map(|step| OsString::from_vec(step.to_vec())));
    }

    fn finish(mut self) -> Result<PathBuf, PathProblem> {
        while let Some(step) = self.left.pop() {
            if step == ".." {
                self.real.pop();
                continue;
            }
            let next = self.real.join(&step);
            match std::fs::symlink_metadata(&next) {
                Ok(found) if found.is_symlink() => self.follow_link(&next)?,
                Ok(found) if !found.is_dir() && !self.left.is_empty() => {
                    return Err(PathProblem::NoFolder { at: next });
                }
                Ok(_) => self.real = next,
                Err(error) if error.kind() == ErrorKind::NotFound => return self.finish_missing(next),
                Err(error) => return Err(problem_at(next, &error)),
            }
        }
        Ok(self.real)
    }

    fn follow_link(&mut self, link: &Path) -> Result<(), PathProblem> {
        if self.real.starts_with(PROCESSES) {
            return Err(PathProblem::OfProcess { at: link.to_owned() });
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(PathProblem::TooManyLinks);
        }
        let target = std::fs::read_link(link).map_err(|error| problem_at(link.to_owned(), &error))?;
        if target.is_absolute() {
            self.real = PathBuf::from("/");
        }
        self.add_steps(&target);
        Ok(())
    }

    /// Returns the path of a file below `missing`, which does not exist.
    fn finish_missing(mut self, missing: PathBuf) -> Result<PathBuf, PathProblem> {
        if self.left.iter().any(|step| step == OsStr::new("..")) {
            return Err(PathProblem::StepUp { behind: missing });
        }
        let mut real = missing;
        while let Some(step) = self.left.pop() {
            real.push(step);
        }
        Ok(real)
    }
}

fn problem_at(at: PathBuf, error: &std::io::Error) -> PathProblem {
    match error.kind() {
        ErrorKind::NotADirectory => PathProblem::NoFolder { at },
        ErrorKind::InvalidFilename | ErrorKind::InvalidInput => PathProblem::NoPath,
        _ => PathProblem::Unreadable { at, error: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
    };

    use super::{MOST_LINKS, PathProblem, real_path};

    /// Folder with `w/link` to `s/d`, `w/abs` to the same by an absolute path, and files.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("countersign-path-walk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("w")).unwrap();
        fs::create_dir_all(folder.join("s/d")).unwrap();
        fs::write(folder.join("w/file"), "x").unwrap();
        symlink("../s/d", folder.join("w/link")).unwrap();
        symlink(folder.join("s/d"), folder.join("w/abs")).unwrap();
        symlink("../s/new", folder.join("w/dangling")).unwrap();
        symlink("circle", folder.join("w/circle")).unwrap();
        fs::canonicalize(folder).unwrap()
    }

    #[test]
    fn a_link_is_followed_before_the_step_up_behind_it() {
        let folder = folder("order");
        for (path, want) in [
            ("w/file", "w/file"),
            ("w/./file", "w/file"),
            ("w/../s/d/x", "s/d/x"),
            ("w/link/x", "s/d/x"),
            ("w/link/../owned.txt", "s/owned.txt"),
            ("w/abs/../owned.txt", "s/owned.txt"),
            ("w/link/../d/../../w/file", "w/file"),
            ("w/dangling", "s/new"),
            ("w/dangling/a/b", "s/new/a/b"),
            ("w/new/a", "w/new/a"),
            ("w/link/", "s/d"),
        ] {
            assert_eq!(real_path(&folder.join(path)), Ok(folder.join(want)), "{path}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_a_file_that_does_not_exist_counts_as_its_text() {
        let folder = folder("problems");
        let at = |path: &str| folder.join(path);
        for (path, want) in [
            ("w/new/../file", PathProblem::StepUp { behind: at("w/new") }),
            ("w/dangling/../file", PathProblem::StepUp { behind: at("s/new") }),
            ("w/file/x", PathProblem::NoFolder { at: at("w/file") }),
            ("w/file/../file", PathProblem::NoFolder { at: at("w/file") }),
            ("w/circle/x", PathProblem::TooManyLinks),
            ("w/a\0b", PathProblem::NoPath),
        ] {
            assert_eq!(real_path(&folder.join(path)), Err(want), "{path}");
        }
        assert_eq!(real_path(&folder.join("x".repeat(300))), Err(PathProblem::NoPath));
        assert_eq!(
            real_path(Path::new("/proc/self/cwd/x")),
            Err(PathProblem::OfProcess { at: PathBuf::from("/proc/self") })
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn as_many_links_as_the_system_follows_are_followed() {
        let folder = folder("links");
        fs::write(folder.join("l0"), "x").unwrap();
        for number in 1..=MOST_LINKS + 1 {
            symlink(format!("l{}", number - 1), folder.join(format!("l{number}"))).unwrap();
        }
        assert_eq!(real_path(&folder.join(format!("l{MOST_LINKS}"))), Ok(folder.join("l0")));
        assert_eq!(real_path(&folder.join(format!("l{}", MOST_LINKS + 1))), Err(PathProblem::TooManyLinks));
        fs::remove_dir_all(folder).unwrap();
    }
}
