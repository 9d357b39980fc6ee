//! Examines the files that a shell line would run from disk, when it is judged and again before it runs.
//!
//! It must not decide anything: [`take_pins`] reports the present state, and the runner of the line compares.
//! [`countersign_core::policy::files`] finds the names in the line and touches no disk.

mod file;
mod locate;

use std::path::Path;

use countersign_core::{
    call::pins::{FileRole, PathState, Pin, Pins},
    policy::files::{LookupContext, NamedFile, find_files},
};

use file::{ExaminedFile, ReadBudget};

/// The most files that are pinned of one line.
const MOST: usize = 256;
/// Most interpreters that may follow one another.
const DEEPEST: usize = 4;

/// A line, and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct ShellLine<'a> {
    /// Shell text.
    pub command: &'a str,
    /// Folder of the session's shell.
    pub at: &'a Path,
    /// The folder in which the line begins.
    pub folder: &'a Path,
    /// The home folder.
    pub home: Option<&'a str>,
    /// Search path of the shell, if it is known.
    pub path: Option<&'a str>,
}

/// Returns the pins of a line that could not be examined: it cannot be approved.
pub fn unexamined_pins(at: &Path, folder: &Path) -> Pins {
    let folder = folder.display().to_string();
    Pins {
        at: at.display().to_string(),
        folder: Pin { name: folder.clone(), path: folder, role: FileRole::Folder, found: PathState::Absent },
        files: Vec::new(),
        unpinned: vec!["all of it: it could not be looked at".to_owned()],
    }
}

/// Pins all files on disk that `line` would run. Blocks: it reads files.
pub fn take_pins(line: &ShellLine<'_>) -> Pins {
    collect_pins(line, None)
}

/// Pins them again for comparison with the `approved` state. Blocks: it reads files.
pub fn retake_pins(line: &ShellLine<'_>, approved: &Pins) -> Pins {
    collect_pins(line, Some(approved))
}

fn collect_pins(line: &ShellLine<'_>, approved: Option<&Pins>) -> Pins {
    let folder = line.folder.display().to_string();
    let mut taking = PinCollector {
        files: Vec::new(),
        unpinned: Vec::new(),
        budget: ReadBudget::new(&[line.at, line.folder], approved),
    };
    let found = file::examine_path(line.folder, &mut taking.budget).found;
    let is_there = matches!(found, PathState::Folder { .. });
    if is_there {
        let place = LookupContext {
            folder: folder.clone(),
            home: line.home.map(str::to_owned),
            path: line.path.map(str::to_owned),
        };
        let referenced = find_files(line.command, &place);
        taking.unpinned = referenced.unknown;
        referenced.named.iter().for_each(|named| taking.pin_file(named));
    }
    Pins {
        at: line.at.display().to_string(),
        folder: Pin { name: folder.clone(), path: folder, role: FileRole::Folder, found },
        files: taking.files,
        unpinned: taking.unpinned,
    }
}

struct PinCollector {
    files: Vec<Pin>,
    unpinned: Vec<String>,
    budget: ReadBudget,
}

impl PinCollector {
    fn pin_file(&mut self, named: &NamedFile) {
        let Some(at) = locate::locate_named(named) else { return self.pin_absent(named) };
        let looked = file::examine_path(&at, &mut self.budget);
        if named.is_perhaps && !matches!(looked.found, PathState::File { .. }) {
            return;
        }
        let is_program = named.role == FileRole::Program;
        let interpreter = looked.interpreter.clone().filter(|_| is_program);
        self.add_pin(&named.name, named.role, looked);
        if let Some(line) = interpreter {
            self.pin_interpreter(&line, named, 0);
        }
    }

    fn add_pin(&mut self, name: &str, role: FileRole, looked: ExaminedFile) {
        let pin = Pin { name: name.to_owned(), path: looked.path.display().to_string(), role, found: looked.found };
        if self.files.contains(&pin) {
            return;
        }
        if self.files.len() < MOST {
            self.files.push(pin);
        } else {
            self.add_unpinned(format!("more than {MOST} files"));
        }
    }

    fn add_unpinned(&mut self, what: String) {
        if !self.unpinned.contains(&what) {
            self.unpinned.push(what);
        }
    }

    /// Pins a missing file: it does not exist, or the line makes it.
    fn pin_absent(&mut self, named: &NamedFile) {
        if named.is_perhaps {
            return;
        }
        if named.may_be_made {
            return self.add_unpinned(format!("{}: not there yet, and a command before it may make it", named.name));
        }
        let path = match named.tried.first().filter(|_| !named.is_searched) {
            Some(path) => locate::tidy_path(path),
            None => named.name.clone().into(),
        };
        self.add_pin(&named.name, named.role, ExaminedFile { path, found: PathState::Absent, interpreter: None });
    }

    /// Pins the interpreter that the first line of a program names.
    fn pin_interpreter(&mut self, line: &str, named: &NamedFile, depth: usize) {
        let mut words = line.split_ascii_whitespace();
        let Some(program) = words.next().filter(|_| depth < DEEPEST) else { return };
        if !program.starts_with('/') {
            // It is looked for where the file is run, which may be anywhere.
            return self.add_unpinned(format!("{}: what its first line says that runs it, {program}", named.name));
        }
        let is_env = program.rsplit('/').next() == Some("env");
        if !is_env && words.clone().any(|word| !word.starts_with('-')) {
            self.add_unpinned(format!("{}: what its first line has {program} run", named.name));
        }
        let looked = file::examine_path(Path::new(program), &mut self.budget);
        let next = looked.interpreter.clone();
        self.add_pin(program, FileRole::Interpreter, looked);
        if let Some(line) = next {
            self.pin_interpreter(&line, named, depth + 1);
        }
        if !is_env {
            return;
        }
        let Some(name) = words.find(|word| !word.starts_with('-') && !word.contains('=')) else { return };
        if words.any(|word| !word.starts_with('-')) {
            self.add_unpinned(format!("{}: what its first line has {name} run", named.name));
        }
        if !name.starts_with('/') && name.contains('/') {
            // As above.
            return self.add_unpinned(format!("{}: what its first line says that runs it, {name}", named.name));
        }
        let found = match (&named.path, name.starts_with('/')) {
            (_, true) => Some(name.into()),
            (Some(path), false) => locate::search_folders(path.split(':').filter(|entry| entry.starts_with('/')), name),
            (None, false) => return self.add_unpinned(format!("{name}, which runs {}", named.name)),
        };
        match found {
            Some(at) => {
                let looked = file::examine_path(&at, &mut self.budget);
                let next = looked.interpreter.clone();
                self.add_pin(name, FileRole::Interpreter, looked);
                if let Some(line) = next {
                    self.pin_interpreter(&line, named, depth + 1);
                }
            }
            None => {
                let looked = ExaminedFile { path: name.into(), found: PathState::Absent, interpreter: None };
                self.add_pin(name, FileRole::Interpreter, looked);
            }
        }
    }
}

#[cfg(test)]
mod tests;
