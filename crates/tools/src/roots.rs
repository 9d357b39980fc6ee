//! Paths that tools may touch: an allowed root less denied trees.
//!
//! It must not know the contents of the trees. A path is resolved as the kernel would do it, every link followed, also for files
//! that do not exist yet; the result has no link in it and is opened by [`crate::disk`] such that a link put there meanwhile is
//! an error. What is left of the race is a folder swapped by rename for another folder between the two steps. A shell is not
//! confined by this.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    sync::OnceLock,
};

/// Most links in one path, as in the kernel.
const LINKS: usize = 40;

/// An allowed root less denied trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedRoots {
    root: PathBuf,
    denied: Vec<PathBuf>,
}

/// A path with every link followed, allowed at the time of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPath {
    path: PathBuf,
    exists: bool,
}

impl AllowedPath {
    /// Returns the path, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if something existed there.
    pub const fn exists(&self) -> bool {
        self.exists
    }
}

/// Reason that a path may not be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// No path at all.
    #[error("the path is empty")]
    Empty,
    /// A path that no file can have.
    #[error("the path holds a NUL character")]
    Nul,
    /// The path is elsewhere, perhaps through a link.
    #[error("{given} is outside of the allowed folder {root}")]
    Outside {
        /// Path as requested.
        given: String,
        /// Allowed root.
        root: String,
    },
    /// The path is in a tree of the gateway's own.
    #[error("{0} is reserved: tools may not touch the gateway's own files")]
    Reserved(String),
    /// The path is in the state of a process.
    #[error("{0} is the state of a process, which tools may not touch")]
    Process(String),
    /// The links lead nowhere.
    #[error("{0} has too many symlinks")]
    Links(String),
    /// The file system refused.
    #[error("{given}: {source}")]
    Io {
        /// Path as requested.
        given: String,
        /// Its reason.
        source: io::Error,
    },
}

impl AllowedRoots {
    /// Allows everything below `root` but the trees in `denied`, which need not exist.
    ///
    /// # Errors
    /// Errors of the file system if `root` does not exist.
    pub fn new(root: &Path, denied: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        Ok(Self { root: fs::canonicalize(root)?, denied: denied.into_iter().collect() })
    }

    /// Allows the whole file system but the trees in `denied`, which need not exist.
    pub fn whole_filesystem(denied: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { root: PathBuf::from("/"), denied: denied.into_iter().collect() }
    }

    /// Returns the allowed root, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Follows `given`, relative to `cwd`, and decides whether it may be used.
    ///
    /// # Errors
    /// [`RootsError`], whose text is fit for a model.
    pub fn resolve_path(&self, cwd: &Path, given: &Path) -> Result<AllowedPath, RootsError> {
        self.boundary().resolve_path(cwd, given)
    }

    /// Prepares the decision for many paths of one moment, such as those of a walk.
    pub fn boundary(&self) -> PathBoundary {
        let denied = self.denied.iter().filter_map(|tree| follow_links(tree).ok()).collect::<Vec<_>>();
        let found = denied.iter().filter_map(|place| fs::symlink_metadata(&place.path).ok());
        let identities = found.map(|found| device_inode(&found)).collect();
        let denied = denied.into_iter().map(|place| place.path).collect();
        PathBoundary { root: self.root.clone(), denied, identities, linked: OnceLock::new() }
    }
}

/// [`AllowedRoots`] of one moment.
#[derive(Debug)]
pub struct PathBoundary {
    root: PathBuf,
    denied: Vec<PathBuf>,
    /// The denied trees themselves, as far as they are there.
    identities: Vec<DeviceInode>,
    /// Files in them that have another name elsewhere. Collected on first use.
    linked: OnceLock<BTreeSet<DeviceInode>>,
}

/// Device and inode: the same for every name of a file.
type DeviceInode = (u64, u64);

impl PathBoundary {
    /// See [`AllowedRoots::resolve_path`].
    ///
    /// # Errors
    /// [`RootsError`], whose text is fit for a model.
    pub fn resolve_path(&self, cwd: &Path, given: &Path) -> Result<AllowedPath, RootsError> {
        let shown = given.display().to_string();
        if given.as_os_str().is_empty() {
            return Err(RootsError::Empty);
        }
        let absolute = cwd.join(given);
        let place = follow_links(&absolute).map_err(|error| match error {
            FollowError::Nul => RootsError::Nul,
            FollowError::Links => RootsError::Links(shown.clone()),
            FollowError::Io(source) => RootsError::Io { given: shown.clone(), source },
        })?;
        if is_process(&place.path) {
            return Err(RootsError::Process(shown));
        }
        if !place.path.starts_with(&self.root) {
            return Err(RootsError::Outside { given: shown, root: self.root.display().to_string() });
        }
        let is_linked = || fs::symlink_metadata(&place.path).is_ok_and(|found| self.is_linked(&found));
        if self.is_denied(&place.path) || is_linked() {
            return Err(RootsError::Reserved(shown));
        }
        Ok(place)
    }

    /// Returns true if a walk may show and enter `path`, whose parent was allowed. Links are not followed.
    pub fn allows_entry(&self, path: &Path) -> bool {
        if is_process(path) || self.denied.iter().any(|tree| path.starts_with(tree)) {
            return false;
        }
        if self.identities.is_empty() {
            return true;
        }
        fs::symlink_metadata(path)
            .map_or(true, |found| !self.identities.contains(&device_inode(&found)) && !self.is_linked(&found))
    }

    /// Returns true for a path in a denied tree, by name, and by identity of every folder on the way: another spelling or a bind
    /// mount is the same tree.
    fn is_denied(&self, path: &Path) -> bool {
        let same =
            |at: &Path| fs::symlink_metadata(at).is_ok_and(|found| self.identities.contains(&device_inode(&found)));
        self.denied.iter().any(|tree| path.starts_with(tree))
            || (!self.identities.is_empty() && path.ancestors().any(same))
    }

    /// Returns true if `found` is a second name of a file in a denied tree.
    fn is_linked(&self, found: &Metadata) -> bool {
        has_names(found) && self.linked.get_or_init(|| self.linked_identities()).contains(&device_inode(found))
    }

    fn linked_identities(&self) -> BTreeSet<DeviceInode> {
        let walk = |tree| ignore::WalkBuilder::new(tree).standard_filters(false).build().flatten();
        let found = self.denied.iter().flat_map(walk).filter_map(|entry| fs::symlink_metadata(entry.path()).ok());
        found.filter(has_names).map(|found| device_inode(&found)).collect()
    }
}

/// Returns true for a file with more than one name. Folders count theirs otherwise.
fn has_names(found: &Metadata) -> bool {
    !found.is_dir() && found.nlink() > 1
}

/// Returns true for `/proc/<pid>`: the environment, the memory and the open files of a process, our own among them.
fn is_process(path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix("/proc") else { return false };
    let first = rest.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    first.is_some_and(|first| {
        first == "self" || first == "thread-self" || first.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn device_inode(found: &Metadata) -> DeviceInode {
    (found.dev(), found.ino())
}

enum FollowError {
    Nul,
    Links,
    Io(io::Error),
}

/// Follows every link of an absolute path as the kernel would. After the first missing part the rest is taken as written.
fn follow_links(path: &Path) -> Result<AllowedPath, FollowError> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(FollowError::Nul);
    }
    let mut ahead: VecDeque<OsString> = path_parts(path).collect();
    let mut made = PathBuf::from("/");
    let mut links = 0;
    let mut missing = 0_usize;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            made.pop();
            missing = missing.saturating_sub(1);
            continue;
        }
        made.push(&part);
        if missing > 0 {
            missing += 1;
            continue;
        }
        match fs::symlink_metadata(&made) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > LINKS {
                    return Err(FollowError::Links);
                }
                let target = fs::read_link(&made).map_err(FollowError::Io)?;
                made.pop();
                if target.is_absolute() {
                    made = PathBuf::from("/");
                }
                for part in path_parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = 1,
            Err(error) => return Err(FollowError::Io(error)),
        }
    }
    Ok(AllowedPath { path: made, exists: missing == 0 })
}

fn path_parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::AllowedRoots;

    /// Creates a workspace with links that lead out of it, next to a secret and a tree of the gateway.
    fn world() -> tempfile::TempDir {
        let world = tempfile::tempdir().unwrap();
        let at = |name: &str| world.path().join(name);
        fs::create_dir_all(at("work/sub")).unwrap();
        fs::create_dir_all(at("work/own/deep")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("work/a.txt"), "a").unwrap();
        fs::write(at("work/own/rules"), "r").unwrap();
        fs::write(at("outside/secret"), "s").unwrap();
        symlink(at("outside"), at("work/out")).unwrap();
        symlink("../outside/secret", at("work/leak")).unwrap();
        symlink(at("outside/new"), at("work/dangling")).unwrap();
        symlink("sub", at("work/in")).unwrap();
        symlink("own", at("work/alias")).unwrap();
        symlink("loop", at("work/loop")).unwrap();
        fs::hard_link(at("work/own/rules"), at("work/second-name")).unwrap();
        world
    }

    #[test]
    fn a_path_is_judged_by_where_it_leads() {
        let world = world();
        let work = world.path().join("work");
        let absent = work.join("reserved");
        let roots = AllowedRoots::new(&work, [work.join("own"), absent]).unwrap();
        for (given, want) in [
            ("a.txt", Ok("work/a.txt")),
            ("./sub/../a.txt", Ok("work/a.txt")),
            ("in/new.txt", Ok("work/sub/new.txt")),
            ("no/such/dir/file", Ok("work/no/such/dir/file")),
            ("no/../a.txt", Ok("work/a.txt")),
            (".", Ok("work")),
            ("..", Err("outside of the allowed folder")),
            ("../outside/secret", Err("outside of the allowed folder")),
            ("out/secret", Err("outside of the allowed folder")),
            ("out/new", Err("outside of the allowed folder")),
            ("leak", Err("outside of the allowed folder")),
            ("dangling", Err("outside of the allowed folder")),
            ("in/../../outside", Err("outside of the allowed folder")),
            ("no/../../outside/x", Err("outside of the allowed folder")),
            ("/etc/passwd", Err("outside of the allowed folder")),
            ("own/rules", Err("is reserved")),
            ("own/deep/new", Err("is reserved")),
            ("alias/rules", Err("is reserved")),
            ("second-name", Err("is reserved")),
            ("reserved", Err("is reserved")),
            ("reserved/x", Err("is reserved")),
            ("loop", Err("too many symlinks")),
            ("a.txt/x", Err("Not a directory")),
            ("", Err("is empty")),
            ("a\0b", Err("NUL")),
        ] {
            match (roots.resolve_path(&work, Path::new(given)), want) {
                (Ok(place), Ok(want)) => {
                    let want = fs::canonicalize(world.path()).unwrap().join(want);
                    assert_eq!(place.path(), want, "{given}");
                }
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{given}: {error}"),
                (got, want) => panic!("{given}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn a_walk_is_shown_no_second_name_of_a_denied_file() {
        let world = world();
        let work = world.path().canonicalize().unwrap().join("work");
        fs::hard_link(work.join("own/rules"), work.join("own/deep/third-name")).unwrap();
        fs::hard_link(world.path().join("outside/secret"), work.join("elsewhere")).unwrap();
        for (denied, name, want) in [
            ("own", "second-name", false),
            ("own/rules", "second-name", false),
            ("own/rules", "own/deep/third-name", false),
            ("own", "elsewhere", true),
            ("own", "a.txt", true),
            ("own", "own", false),
            ("own", "sub", true),
            ("own", "absent", true),
            ("absent", "second-name", true),
        ] {
            let boundary = AllowedRoots::new(&work, [work.join(denied)]).unwrap().boundary();
            assert_eq!(boundary.allows_entry(&work.join(name)), want, "{name} beside {denied}");
        }
    }

    #[test]
    fn the_state_of_processes_is_closed_even_where_everything_is_open() {
        let roots = AllowedRoots::whole_filesystem([]);
        for given in ["/proc/self/environ", "/proc/1/environ", "/dev/fd/9999", "/proc/thread-self/maps"] {
            let error = roots.resolve_path(Path::new("/"), Path::new(given)).unwrap_err();
            assert!(error.to_string().contains("state of a process"), "{given}: {error}");
        }
        assert!(roots.resolve_path(Path::new("/"), Path::new("/proc/meminfo")).is_ok());
    }
}
