//! The name of the bot in texts: in groups people write it before or after what they say to it.

/// Reports whether a text names the bot, which is called `named` with its `@`.
pub(super) fn names_bot(text: &str, named: &str) -> bool {
    text.to_lowercase().contains(&named.to_lowercase())
}

/// Returns a text in which a command has its usual name: in groups Telegram appends the bot's name to it.
pub(super) fn plain_command(text: &str, named: &str) -> String {
    let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    match strip_end(word, named).filter(|_| word.starts_with('/')) {
        Some(word) => format!("{word}{rest}"),
        None => text.to_owned(),
    }
}

/// Returns the text from which a command or an answer is read: without the name of the bot at its beginning and its end. A text that is
/// nothing but the name stays.
pub(super) fn reply_text(text: &str, named: &str) -> String {
    let mut bare = text.trim();
    if let Some(rest) = strip_start(bare, named).filter(|rest| !rest.starts_with(is_of_name)) {
        bare = rest.trim_start_matches([',', ':']).trim_start();
    }
    if let Some(rest) = strip_end(bare, named).filter(|rest| rest.is_empty() || rest.ends_with(char::is_whitespace)) {
        bare = rest.trim_end().trim_end_matches(',').trim_end();
    }
    if bare.is_empty() { text.to_owned() } else { plain_command(bare, named) }
}

/// Reports whether a character can be part of a name.
fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn strip_start<'a>(text: &'a str, named: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(named.len())?;
    start.eq_ignore_ascii_case(named).then_some(rest)
}

fn strip_end<'a>(text: &'a str, named: &str) -> Option<&'a str> {
    let (rest, end) = text.split_at_checked(text.len().checked_sub(named.len())?)?;
    end.eq_ignore_ascii_case(named).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::{plain_command, reply_text};

    const BOT: &str = "@guard_bot";

    #[test]
    fn the_name_of_the_bot_at_either_end_is_no_part_of_an_answer() {
        for (text, want) in [
            ("yes", "yes"),
            ("@guard_bot yes", "yes"),
            ("@Guard_Bot, yes", "yes"),
            ("@guard_bot: no", "no"),
            ("yes @guard_bot", "yes"),
            ("yes, @guard_bot", "yes"),
            ("@guard_bot yes @guard_bot", "yes"),
            (" @guard_bot\n/approve #ab12 session ", "/approve #ab12 session"),
            ("/approve @guard_bot", "/approve"),
            ("/approve@guard_bot always", "/approve always"),
            ("@guard_bot /deny@guard_bot not now", "/deny not now"),
            ("@guard_bot", "@guard_bot"),
            ("@guard_bot2 yes", "@guard_bot2 yes"),
            ("mail@guard_bot", "mail@guard_bot"),
            ("is @guard_bot there?", "is @guard_bot there?"),
            ("jä @guard_bot", "jä"),
            ("é", "é"),
        ] {
            assert_eq!(reply_text(text, BOT), want, "{text}");
        }
    }

    #[test]
    fn only_a_command_loses_the_name_that_telegram_appends() {
        for (text, want) in [
            ("/status@guard_bot", "/status"),
            ("/model@Guard_Bot a/b", "/model a/b"),
            ("/status@other_bot", "/status@other_bot"),
            ("hello@guard_bot", "hello@guard_bot"),
            ("@guard_bot /status", "@guard_bot /status"),
        ] {
            assert_eq!(plain_command(text, BOT), want, "{text}");
        }
    }
}
