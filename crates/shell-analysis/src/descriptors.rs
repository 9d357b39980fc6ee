//! Names in braces before a redirection: `{fd}<file` has the shell keep a descriptor's number in a variable.

use brush_parser::Token;

/// Returns `text` without the names that redirections set, for they are no words of a command. None if there are none.
pub(super) fn without_names(text: &str, tokens: &[Token]) -> Option<String> {
    let mut chars: Vec<char> = text.chars().collect();
    let mut found = false;
    for pair in tokens.windows(2) {
        let [Token::Word(word, name), Token::Operator(operator, redirection)] = pair else { continue };
        let (start, end, next) = (name.start.index, name.end.index, redirection.start.index);
        let Some(between) = chars.get(end..next) else { continue };
        // Lines are joined before words are read.
        let is_joined = between.chunks(2).all(|pair| pair == ['\\', '\n']);
        if operator.starts_with(['<', '>']) && is_joined && is_name(word) {
            found = true;
            chars[start..end].fill(' ');
        }
    }
    found.then(|| chars.into_iter().collect())
}

/// Reports whether a word is one name in braces, perhaps that of a member of an array.
fn is_name(word: &str) -> bool {
    let name = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    let end = name.find('[').unwrap_or(name.len());
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name[..end].chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::{super::grammar, without_names};

    #[test]
    fn a_name_before_a_redirection_is_no_word() {
        for (text, want) in [
            ("echo {PATH}</dev/null; ls x", Some("echo       </dev/null; ls x")),
            ("{x}</dev/null evil", Some("   </dev/null evil")),
            ("é {x}>>y", Some("é    >>y")),
            ("a {x}\\\n<y", Some("a      <y")),
            ("a {x[1]}<y", Some("a       <y")),
            ("a {x} <y", None),
            ("a {x,y}>z", None),
            ("a '{x}'<y", None),
            ("a {}<y", None),
            ("a '<b>{x}</b>'", None),
            ("find . -exec wc {} + >x", None),
        ] {
            let tokens = grammar::tokenize_text(text).unwrap();
            assert_eq!(without_names(text, &tokens).as_deref(), want, "{text:?}");
        }
    }
}
