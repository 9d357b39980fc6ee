//! Meaning of the protocol's texts: keys, slash commands, directives, names of tools, settings, skills.

mod keys;
mod settings;
mod skills;
mod words;

fn text(text: &str) -> String {
    text.to_owned()
}
