//! What texts of the protocol mean: keys, slash commands, directives, names of tools, settings, skills.

mod keys;
mod settings;
mod skills;
mod words;

fn text(text: &str) -> String {
    text.to_owned()
}
