//! `/name arguments`: a file of that name replaces the text.
//!
//! It must not know adapters. A text that names no file is left as it is. Source: docs/protocol/omp.md, Slash commands.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use countersign_agent_dir::AgentDir;

use super::files::PromptFiles;

/// The longest file that replaces a text, in bytes.
const LIMIT: usize = 200_000;
/// The most letters of a description.
const DESCRIPTION: usize = 200;

/// Returns the text that replaces `text`; `None` if it is no command of a file.
///
/// Commands come before templates, the project's before the user's.
pub fn expand_command(text: &str, folder: &AgentDir, cwd: &Path, files: &dyn PromptFiles) -> Option<String> {
    let (name, rest) = split_command(text)?;
    let project = cwd.join(folder.project_folder());
    let found = ["commands", "prompts"].iter().find_map(|kind| {
        [project.as_path(), folder.root()].iter().find_map(|place| read_template(&place.join(kind), name, files))
    })?;
    Some(fill_arguments(template_body(&found), rest))
}

/// A file that a text may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTemplate {
    /// Its name, without the slash.
    pub name: String,
    /// `description` of the facts that it begins with, else its first line.
    pub description: Option<String>,
    /// Path of the file.
    pub path: PathBuf,
    /// True if it is the project's, false if the user's.
    pub is_of_project: bool,
}

/// Lists the files that a text may stand for, by name: of several of one name the one that [`expand_command`] takes.
pub fn list_templates(folder: &AgentDir, cwd: &Path, files: &dyn PromptFiles) -> Vec<PromptTemplate> {
    let project = cwd.join(folder.project_folder());
    let mut found: BTreeMap<String, PromptTemplate> = BTreeMap::new();
    for kind in ["commands", "prompts"] {
        for (place, is_of_project) in [(project.as_path(), true), (folder.root(), false)] {
            let place = place.join(kind);
            for file in files.file_names(&place) {
                let Some(name) = file.strip_suffix(".md").filter(|name| is_name(name) && !found.contains_key(*name))
                else {
                    continue;
                };
                let Some(text) = read_template(&place, name, files) else { continue };
                let template = PromptTemplate {
                    name: name.to_owned(),
                    description: file_description(&text),
                    path: place.join(&file),
                    is_of_project,
                };
                found.insert(name.to_owned(), template);
            }
        }
    }
    found.into_values().collect()
}

/// Returns a file's own description, in one line.
fn file_description(text: &str) -> Option<String> {
    let body = template_body(text);
    let facts = text.split_once(body).map_or("", |(facts, _)| facts);
    let fact = facts.lines().find_map(|line| line.strip_prefix("description:"));
    let line = fact.map(|fact| fact.trim().trim_matches(['"', '\'']));
    let line = line.or_else(|| body.lines().next().map(|line| line.trim_start_matches('#')))?.trim();
    (!line.is_empty()).then(|| line.chars().take(DESCRIPTION).collect())
}

/// Splits the name and the arguments, as they stand there. A name that could lead out of its folder is none.
fn split_command(text: &str) -> Option<(&str, &str)> {
    let invocation = text.strip_prefix('/')?;
    let (name, rest) = invocation.split_once(char::is_whitespace).unwrap_or((invocation, ""));
    is_name(name).then_some((name, rest.trim()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':'))
}

fn read_template(folder: &Path, name: &str, files: &dyn PromptFiles) -> Option<String> {
    let path: PathBuf = folder.join(format!("{name}.md"));
    let found = files.read_head(&path, LIMIT)?;
    if found.cut {
        tracing::warn!(path = %path.display(), "the file of a slash command is longer than {LIMIT} bytes and is ignored");
        return None;
    }
    Some(found.text)
}

/// Returns a file without the facts that it begins with, between two lines of `---`.
fn template_body(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let facts = || {
        let rest = text.strip_prefix("---")?.trim_start_matches([' ', '\t', '\r']).strip_prefix('\n')?;
        let mut at = 0;
        for line in rest.split_inclusive('\n') {
            at += line.len();
            if line.trim_end() == "---" {
                return Some(&rest[at..]);
            }
        }
        None
    };
    facts().unwrap_or(text).trim()
}

/// Puts the arguments at the placeholders of the text; after it, if it has none. Inserted text is not looked at again.
fn fill_arguments(body: &str, rest: &str) -> String {
    let arguments = split_arguments(rest);
    let mut filled = String::with_capacity(body.len() + rest.len());
    let (mut left, mut is_used) = (body, false);
    while let Some(at) = left.find('$') {
        filled.push_str(&left[..at]);
        left = &left[at..];
        match parse_placeholder(left) {
            Some((place, length)) => {
                is_used = true;
                filled.push_str(&place.select_from(&arguments));
                left = &left[length..];
            }
            None => {
                filled.push('$');
                left = &left[1..];
            }
        }
    }
    filled.push_str(left);
    if !is_used && !rest.is_empty() {
        filled.push_str("\n\n");
        filled.push_str(rest);
    }
    filled
}

/// Selection of arguments for a placeholder, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentSelector {
    One(usize),
    From(usize, Option<usize>),
}

impl ArgumentSelector {
    fn select_from(self, arguments: &[String]) -> String {
        match self {
            Self::One(number) => number.checked_sub(1).and_then(|at| arguments.get(at)).cloned().unwrap_or_default(),
            Self::From(first, count) => {
                let selected = arguments.iter().skip(first.saturating_sub(1)).take(count.unwrap_or(usize::MAX));
                selected.map(String::as_str).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Parses the placeholder at the beginning of `text`, and its length: `$1`, `$@`, `$ARGUMENTS`, `${@:2}`, `${@:2:1}`.
fn parse_placeholder(text: &str) -> Option<(ArgumentSelector, usize)> {
    let rest = text.strip_prefix('$')?;
    for all in ["@", "ARGUMENTS"] {
        if rest.starts_with(all) {
            return Some((ArgumentSelector::From(1, None), 1 + all.len()));
        }
    }
    if let Some(slice) = rest.strip_prefix("{@:") {
        let (inner, _) = slice.split_once('}')?;
        let (first, count) = match inner.split_once(':') {
            Some((first, count)) => (first, Some(count.parse().ok()?)),
            None => (inner, None),
        };
        return Some((ArgumentSelector::From(first.parse().ok()?, count), "${@:}".len() + inner.len()));
    }
    let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    Some((ArgumentSelector::One(rest[..digits].parse().ok()?), 1 + digits))
}

/// Arguments are apart where there is white space outside of quotation marks.
fn split_arguments(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut has_begun, mut quote) = (String::new(), false, None);
    for letter in text.chars() {
        match quote {
            Some(mark) if letter == mark => quote = None,
            Some(_) => word.push(letter),
            None if matches!(letter, '"' | '\'') => (has_begun, quote) = (true, Some(letter)),
            None if letter.is_whitespace() => {
                if std::mem::take(&mut has_begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            None => {
                has_begun = true;
                word.push(letter);
            }
        }
    }
    if has_begun {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        path::{Path, PathBuf},
    };

    use super::{expand_command, fill_arguments, list_templates, template_body};
    use countersign_agent_dir::{AgentDir, AgentProduct, ProcessEnvironment};

    #[test]
    fn a_file_stands_for_its_name_commands_first_and_the_projects_before_the_users() {
        let environment = [("HOME", "/home/a")].into_iter().collect::<ProcessEnvironment>();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, Path::new("/project"), |_| false).unwrap();
        let files: BTreeMap<PathBuf, String> = [
            ("/home/a/.omp/agent/prompts/pt.md", "Template $1"),
            ("/home/a/.omp/agent/prompts/both.md", "the user's template"),
            ("/home/a/.omp/agent/commands/both.md", "the user's command"),
            ("/home/a/.omp/agent/commands/hey.md", "the user's"),
            ("/project/.omp/commands/hey.md", "---\ndescription: says hey\n---\nHey $ARGUMENTS!\n"),
            ("/project/.omp/prompts/both.md", "the project's template"),
            ("/project/.omp/secret.md", "secret"),
        ]
        .map(|(path, text)| (PathBuf::from(path), text.to_owned()))
        .into();
        for (text, want) in [
            ("/pt now", Some("Template now")),
            ("/both", Some("the user's command")),
            ("/hey you there", Some("Hey you there!")),
            ("/hey", Some("Hey !")),
            ("/unknown x", None),
            ("/../secret", None),
            ("/", None),
            ("hey", None),
            (" /hey", None),
        ] {
            assert_eq!(expand_command(text, &folder, Path::new("/project"), &files).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn what_can_be_named_is_listed_once_with_what_it_says_of_itself() {
        let environment = [("HOME", "/home/a")].into_iter().collect::<ProcessEnvironment>();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, Path::new("/project"), |_| false).unwrap();
        let files: BTreeMap<PathBuf, String> = [
            ("/home/a/.omp/agent/prompts/pt.md", "# Template ß\n\n$1"),
            ("/home/a/.omp/agent/prompts/both.md", "the user's template"),
            ("/home/a/.omp/agent/commands/both.md", "the user's command"),
            ("/home/a/.omp/agent/commands/empty.md", ""),
            ("/home/a/.omp/agent/commands/no command.md", "x"),
            ("/home/a/.omp/agent/commands/deep/x.md", "x"),
            ("/home/a/.omp/agent/commands/hey.txt", "x"),
            ("/project/.omp/commands/hey.md", "---\ndescription: 'says hey'\n---\nHey $ARGUMENTS!\n"),
        ]
        .map(|(path, text)| (PathBuf::from(path), text.to_owned()))
        .into();
        let listed = list_templates(&folder, Path::new("/project"), &files);
        let listed: Vec<_> = listed
            .iter()
            .map(|one| (one.name.as_str(), one.description.as_deref(), one.path.to_str().unwrap(), one.is_of_project))
            .collect();
        assert_eq!(
            listed,
            [
                ("both", Some("the user's command"), "/home/a/.omp/agent/commands/both.md", false),
                ("empty", None, "/home/a/.omp/agent/commands/empty.md", false),
                ("hey", Some("says hey"), "/project/.omp/commands/hey.md", true),
                ("pt", Some("Template ß"), "/home/a/.omp/agent/prompts/pt.md", false),
            ]
        );
    }

    #[test]
    fn arguments_stand_where_the_text_wants_them_or_behind_it() {
        for (text, arguments, want) in [
            ("a $1 b $2 c $3", "x 'y z'", "a x b y z c "),
            ("$@|${@:2}|${@:2:1}", "1 2 3", "1 2 3|2 3|2"),
            ("$ARGUMENTS", "\"a b\"  c", "a b c"),
            ("$1 and $2", "$2 $1", "$2 and $1"),
            ("costs $ 5, ${HOME} $x", "", "costs $ 5, ${HOME} $x"),
            ("do it", "fast, please", "do it\n\nfast, please"),
            ("do it", "", "do it"),
            ("$10", "a b c d e f g h i j", "j"),
        ] {
            assert_eq!(fill_arguments(text, arguments), want, "{text}");
        }
    }

    #[test]
    fn front_matter_is_not_part_of_the_text() {
        for (text, want) in [
            ("---\na: b\n---\n\ntext\n", "text"),
            ("---\r\na: b\r\n---\r\ntext", "text"),
            ("--- no facts\ntext", "--- no facts\ntext"),
            ("---\nnever ends", "---\nnever ends"),
            ("text\n---\nmore", "text\n---\nmore"),
        ] {
            assert_eq!(template_body(text), want);
        }
    }
}
