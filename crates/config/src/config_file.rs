//! The usual configuration of a folder, and what tells it from a file of another program.
//!
//! It must not read any section.

use std::path::{Path, PathBuf};

use super::{config_field::ConfigField, diagnostics::FileDiagnostics, load::TOP, problem::ConfigErrors, value};

/// Usual names of a configuration, the first one first.
const USUAL_NAMES: [&str; 2] = ["config.yaml", "config.yml"];

/// Returns the configuration that is read in `folder` if none is named: `config.yaml`, else `config.yml`. Any entry of that name counts,
/// also a folder or a dangling link: reading it reports the error.
///
/// # Example
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use countersign_config::find_config;
///
/// assert_eq!(find_config(folder.path()), None);
/// std::fs::write(folder.path().join("config.yml"), "")?;
/// assert_eq!(find_config(folder.path()), Some(folder.path().join("config.yml")));
/// # std::io::Result::Ok(())
/// ```
pub fn find_config(folder: &Path) -> Option<PathBuf> {
    let mut usual = USUAL_NAMES.into_iter().map(|name| folder.join(name));
    usual.find(|path| path.symlink_metadata().is_ok())
}

/// Checks that the file at `path` has no sections but those of a configuration. Their contents do not matter.
///
/// # Errors
/// The file cannot be read, is not well-formed, is no mapping or has a key at its top that no configuration has.
pub fn check_sections(path: &Path) -> Result<(), ConfigErrors> {
    let notes = FileDiagnostics::for_file(path);
    // Only values have variables, and no value is looked at.
    let any = |_: &str| Some("-".to_owned());
    let value = value::read_value(&value::config_text(Some(path), &notes), &notes, Some(&any));
    ConfigField::root(&notes, value.as_ref()).check_mapping(TOP);
    let problems = notes.take_problems();
    if problems.is_empty() { Ok(()) } else { Err(ConfigErrors(problems)) }
}

#[cfg(test)]
mod tests {
    use super::check_sections;

    #[test]
    fn a_file_of_another_program_has_other_sections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        for (text, want) in [
            ("", Ok(())),
            ("# nothing\n", Ok(())),
            ("agent: { token: '${NOWHERE}' }\nservices: 5\n", Ok(())),
            ("services: {}\nport: 80\n", Err("port: unknown key")),
            ("title: My site\n", Err("title: unknown key")),
            ("- a\n", Err("expected a mapping, found a list")),
            ("just text\n", Err("expected a mapping, found text")),
            ("a: [\n", Err("config.yaml:")),
        ] {
            std::fs::write(&path, text).unwrap();
            let got = check_sections(&path).map_err(|errors| errors.to_string());
            match want {
                Ok(()) => assert_eq!(got, Ok(()), "{text}"),
                Err(want) => assert!(got.clone().is_err_and(|error| error.contains(want)), "{text}: {got:?}"),
            }
        }
    }
}
