//! Spellings of a path: from the working folder, from the root and from the home folder.
//!
//! It must not look at the disk.

use crate::{narrow_path as narrow, path};

/// Notation of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStyle {
    /// From the working folder, `src/a`.
    Relative,
    /// The same with a dot before it, `./src/a`.
    Dotted,
    /// From the root, `/w/src/a`.
    Absolute,
    /// From the home folder, `~/src/a`.
    Home,
}

/// Every style.
pub const STYLES: [PathStyle; 4] = [PathStyle::Relative, PathStyle::Dotted, PathStyle::Absolute, PathStyle::Home];

/// The folders that paths are written from.
#[derive(Clone, Copy)]
pub struct StyleFolders<'a> {
    /// The working folder, absolute.
    pub working: &'a str,
    /// The home folder, absolute.
    pub home: Option<&'a str>,
}

impl StyleFolders<'_> {
    /// Returns the absolute path that `text` leads to from the folder `from`. `None` if the home that it begins with is not known.
    pub fn resolve_text(self, from: &str, text: &str) -> Option<String> {
        match text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => self.home.map(|home| path::resolve(home, rest.trim_start_matches('/'))),
            None => Some(path::resolve(from, text)),
        }
    }

    /// Returns `path`, which is absolute, in this style. `None` if it has no such spelling.
    pub fn format_path(self, path: &str, style: PathStyle) -> Option<String> {
        let relative = narrow::relative_path(self.working, path);
        match style {
            PathStyle::Relative => Some(relative),
            PathStyle::Dotted => (!relative.starts_with("..")).then(|| format!("./{relative}")),
            PathStyle::Absolute => Some(path.to_owned()),
            PathStyle::Home => {
                let home = self.home.filter(|home| path::is_within(home, path) && *home != "/")?;
                Some(format!("~{}", &path[home.len()..]))
            }
        }
    }

    /// Returns every spelling of `path`, which is absolute.
    pub fn all_spellings(self, path: &str) -> impl Iterator<Item = String> {
        STYLES.into_iter().filter_map(move |style| self.format_path(path, style))
    }
}
