//! Names that credentials usually have. It must not know any value.
//!
//! A name is taken apart into words. In doubt it is that of a credential: values under it are hidden, or refused.

/// Parts of words that nothing but a credential has.
const PARTS: [&str; 9] =
    ["token", "secret", "passw", "passphrase", "passcode", "pwd", "signature", "session", "credential"];
/// Words of credentials that are parts of many other words.
const WORDS: [&str; 6] = ["pass", "sig", "sign", "signed", "signing", "code"];
/// Ends of words of credentials that are written as one, such as `dbpass`.
const ENDS: [&str; 3] = ["pass", "sig", "code"];
/// Words that have such an end and are none.
const HARMLESS_ENDS: [&str; 19] = [
    "barcode",
    "bypass",
    "bytecode",
    "charcode",
    "compass",
    "decode",
    "encode",
    "encompass",
    "geocode",
    "opcode",
    "overpass",
    "postcode",
    "qrcode",
    "surpass",
    "transcode",
    "underpass",
    "unicode",
    "vscode",
    "zipcode",
];
/// Words before `code` that make it a mark of something.
const HARMLESS_CODES: [&str; 19] = [
    "airport", "area", "city", "color", "colour", "country", "currency", "error", "exit", "lang", "language", "locale",
    "post", "postal", "region", "response", "state", "status", "zip",
];
/// Words before `tokens` that make it a number of tokens.
const HARMLESS_TOKENS: [&str; 7] = ["context", "input", "max", "min", "num", "output", "total"];
/// Words that have `key` in them and are of no credential.
const HARMLESS_KEYS: [&str; 15] = [
    "donkey",
    "hockey",
    "hotkey",
    "jockey",
    "keyboard",
    "keyframe",
    "keymap",
    "keynote",
    "keypad",
    "keypress",
    "keystroke",
    "keyword",
    "monkey",
    "turkey",
    "whiskey",
];

/// Reports whether a parameter, a flag or a variable of this name may hold a credential, in any letter case.
pub fn is_credential_name(name: &str) -> bool {
    let words = split_words(name);
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    words.iter().zip(before).any(|(word, before)| is_credential_word(word, before))
}

/// Reports whether a word of a name, in lower case, is one of credentials. `before` is the word before it.
fn is_credential_word(word: &str, before: &str) -> bool {
    let word = word.trim_end_matches(|letter: char| letter.is_ascii_digit());
    // A number of tokens, not one of them.
    if word == "tokens" && HARMLESS_TOKENS.contains(&before) || word.starts_with("tokeniz") {
        return false;
    }
    let single = word.strip_suffix('s').unwrap_or(word);
    if single == "code" && HARMLESS_CODES.contains(&before)
        || HARMLESS_ENDS.contains(&word)
        || HARMLESS_ENDS.contains(&single)
    {
        return false;
    }
    let is_key = word.contains("key") && !HARMLESS_KEYS.iter().any(|harmless| word.contains(harmless));
    // The names of authors, and not of what authorizes.
    let is_auth = word.replace("authori", "auth").replace("author", "").contains("auth");
    let is_cred = word.starts_with("cred") && !word.starts_with("credit");
    is_key
        || is_auth
        || is_cred
        || PARTS.iter().any(|part| word.contains(part))
        || WORDS.iter().any(|known| word == *known || single == *known)
        || ENDS.iter().any(|end| word.ends_with(end) || single.ends_with(end))
}

/// Returns the words of a name in lower case: between other characters than letters and digits, and by the case of letters, as in
/// `accessToken` and `APIKey`.
fn split_words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let is_before_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase() || before.is_ascii_digit() || before.is_uppercase() && is_before_lower
            });
        if begins || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::{is_credential_name, split_words};

    #[test]
    fn names_of_credentials_are_recognised() {
        for name in [
            "GITHUB_TOKEN",
            "GHTOKEN",
            "accessToken",
            "tokens",
            "token2",
            "X-Auth-Token",
            "csrftoken",
            "api_key",
            "--api-key",
            "apikey",
            "APIKey",
            "apiKeys",
            "accesskey",
            "AWSAccessKeyId",
            "keyid",
            "key1",
            "sshkey",
            "KEY",
            "private-key",
            "auth",
            "authorization",
            "Authorisation",
            "oauth_verifier",
            "basicauth",
            "authkey",
            "authority",
            "auth-user",
            "sig",
            "msig",
            "sign",
            "signature",
            "x-amz-signature",
            "X-Hub-Signature-256",
            "signed",
            "code",
            "authCode",
            "code_verifier",
            "backup_codes",
            "passcode",
            "otpcode",
            "pass",
            "dbpass",
            "PGPASSWORD",
            "passwd",
            "password",
            "passwort",
            "passphrase",
            "sshpass",
            "pass1",
            "pwd",
            "client_secret",
            "secrets",
            "cred",
            "creds",
            "credentials",
            "AWS_CREDENTIALS",
            "session",
            "sessionid",
            "PHPSESSIONID",
        ] {
            assert!(is_credential_name(name), "{name}");
        }
    }

    #[test]
    fn other_names_are_none() {
        for name in [
            "",
            "HOME",
            "--port",
            "country_code",
            "countryCode",
            "postal-code",
            "zipcode",
            "status_code",
            "LANGUAGE_CODE",
            "encoding",
            "codec",
            "barcode",
            "unicode",
            "decode",
            "design",
            "designer",
            "signal",
            "assignee",
            "insight",
            "author",
            "authors",
            "author_id",
            "coauthor",
            "--keyboard",
            "keyboards",
            "keyword",
            "keywords",
            "monkey",
            "hotkeys",
            "--passive",
            "passenger",
            "passage",
            "bypass",
            "compass",
            "passed",
            "credit",
            "max_tokens",
            "maxTokens",
            "tokenizer",
            "entity_id",
            "api-version",
        ] {
            assert!(!is_credential_name(name), "{name}");
        }
    }

    #[test]
    fn a_name_is_taken_apart_into_words() {
        for (name, want) in [
            ("accessToken", "access token"),
            ("APIKey", "api key"),
            ("--x-amz_Date", "x amz date"),
            ("PGPASSWORD", "pgpassword"),
            ("key2Name", "key2 name"),
            ("", ""),
        ] {
            assert_eq!(split_words(name).join(" "), want, "{name}");
        }
    }
}
