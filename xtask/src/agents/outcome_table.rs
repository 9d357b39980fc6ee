//! Frozen outcomes of one version of a program, one line a case.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::agents::pinned_program::PinnedProgram;

/// Outcomes by case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutcomeTable {
    path: PathBuf,
    outcomes: BTreeMap<String, String>,
}

impl OutcomeTable {
    /// Reads the table of the pinned version. It is empty if there is no file.
    pub(crate) fn read(folder: &Path, program: PinnedProgram) -> anyhow::Result<Self> {
        let path = folder.join(format!("{}-{}.txt", program.name, program.version));
        let text = if path.exists() { fs::read_to_string(&path)? } else { String::new() };
        Ok(Self { path, outcomes: parse(&text) })
    }

    /// Returns the difference between the table and an outcome.
    pub(crate) fn difference(&self, case: &str, outcome: &str) -> Option<String> {
        match self.outcomes.get(case) {
            Some(frozen) if frozen == outcome => None,
            Some(frozen) => Some(format!("{outcome}\n    differs from the table: {frozen}")),
            None => Some(format!("{outcome}\n    is not in {}", self.path.display())),
        }
    }

    /// Adds an outcome, or replaces it.
    pub(crate) fn set(&mut self, case: &str, outcome: &str) {
        self.outcomes.insert(case.to_owned(), outcome.to_owned());
    }

    /// Writes the table with the reasons of the cases that are left out.
    pub(crate) fn write(&self, skipped: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut text = String::from("# Written by `UPDATE_GOLDEN=1 cargo xtask agents`.\n");
        for (case, reason) in skipped {
            text.push_str(&format!("# {case} is left out: {reason}.\n"));
        }
        for (case, outcome) in &self.outcomes {
            text.push_str(&format!("{case}: {outcome}\n"));
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(&self.path, text)?)
    }
}

fn parse(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(": "))
        .map(|(case, outcome)| (case.to_owned(), outcome.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::OutcomeTable;
    use crate::agents::host_program::HostProgram;

    #[test]
    fn a_table_names_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = OutcomeTable::read(folder.path(), HostProgram::Claude.pinned()).unwrap();
        assert!(table.difference("a", "ran: x").unwrap().contains("is not in"));
        table.set("a", "ran: x");
        table.write(&[("b", "no reason")]).unwrap();
        let table = OutcomeTable::read(folder.path(), HostProgram::Claude.pinned()).unwrap();
        assert_eq!(table.difference("a", "ran: x"), None);
        let differs = table.difference("a", "ran: y").unwrap();
        assert_eq!(differs, "ran: y\n    differs from the table: ran: x");
    }
}
