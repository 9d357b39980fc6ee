//! What always asks and what is never done, for tools other than the shell.

use crate::{
    policy::{path, subject::Subject},
    tool::Effect,
};

/// The protected path that `subject` would write, if it would write one.
pub(super) fn protected(subject: &Subject, protected: &[String]) -> Option<String> {
    written(subject).find(|path| {
        protected.iter().any(|root| {
            let root = path::resolve("/", root);
            path::is_within(&root, path)
        })
    })
}

/// What destroys beyond the working folder, in words that follow "because it".
pub(super) fn reason(subject: &Subject) -> Option<String> {
    // A shell call whose command is not a text cannot be judged at all.
    if subject.tool == "bash" {
        return Some("has no command that can be judged".to_owned());
    }
    written(subject).find(|path| path::is_device(path)).map(|path| format!("writes to {path}"))
}

fn written(subject: &Subject) -> impl Iterator<Item = String> {
    let paths: &[String] = if subject.effect == Effect::Changes { &subject.paths } else { &[] };
    paths.iter().map(|path| path::resolve(&subject.cwd, path))
}
