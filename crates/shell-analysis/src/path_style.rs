//! Spellings of a path: from the working folder, from the root and from the home folder.
//!
//! It must not look at the disk.

use crate::{narrow_path as narrow, path};

/// How a path is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
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
pub const STYLES: [Style; 4] = [Style::Relative, Style::Dotted, Style::Absolute, Style::Home];

/// The folders that paths are written from.
#[derive(Clone, Copy)]
pub struct Folders<'a> {
    /// The working folder, absolute.
    pub working: &'a str,
    /// The home folder, absolute.
    pub home: Option<&'a str>,
}

impl Folders<'_> {
    /// Returns the absolute path that `text` leads to from the folder `from`. `None` if the home that it begins with is not known.
    pub fn reached(self, from: &str, text: &str) -> Option<String> {
        match text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => self.home.map(|home| path::resolve(home, rest.trim_start_matches('/'))),
            None => Some(path::resolve(from, text)),
        }
    }

    /// Returns `path`, which is absolute, in this style. `None` if it has no such spelling.
    pub fn written(self, path: &str, style: Style) -> Option<String> {
        let relative = narrow::relative(self.working, path);
        match style {
            Style::Relative => Some(relative),
            Style::Dotted => (!relative.starts_with("..")).then(|| format!("./{relative}")),
            Style::Absolute => Some(path.to_owned()),
            Style::Home => {
                let home = self.home.filter(|home| path::is_within(home, path) && *home != "/")?;
                Some(format!("~{}", &path[home.len()..]))
            }
        }
    }

    /// Returns every spelling of `path`, which is absolute.
    pub fn spellings(self, path: &str) -> impl Iterator<Item = String> {
        STYLES.into_iter().filter_map(move |style| self.written(path, style))
    }
}
