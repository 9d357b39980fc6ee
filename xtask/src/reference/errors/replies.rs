//! Reads replies over HTTP that report an error: a status and, after it, the text.

use std::collections::BTreeMap;

use super::enums::blank_placeholders;

const STATUSES: [(&str, u16); 14] = [
    ("BAD_REQUEST", 400),
    ("UNAUTHORIZED", 401),
    ("FORBIDDEN", 403),
    ("NOT_FOUND", 404),
    ("METHOD_NOT_ALLOWED", 405),
    ("REQUEST_TIMEOUT", 408),
    ("CONFLICT", 409),
    ("GONE", 410),
    ("PAYLOAD_TOO_LARGE", 413),
    ("UNPROCESSABLE_ENTITY", 422),
    ("TOO_MANY_REQUESTS", 429),
    ("INTERNAL_SERVER_ERROR", 500),
    ("SERVICE_UNAVAILABLE", 503),
    ("INSUFFICIENT_STORAGE", 507),
];

/// Functions that make an error of a text alone, with its status.
const MADE: [(&str, u16); 3] = [("Error::bad_request(", 400), ("Rejection::bad(", 400), ("::missing(", 404)];

/// Returns the texts of the constants of a source, by name.
pub(super) fn text_constants(source: &str) -> BTreeMap<String, String> {
    let named = |behind: &str| {
        let (name, value) = behind.split_once(": &str =")?;
        let value = value.trim_start().strip_prefix('"')?;
        let is_name = name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_');
        is_name.then(|| Some((name.to_owned(), join_lines(value.split("\";").next()?))))?
    };
    source.split("const ").skip(1).filter_map(named).collect()
}

/// Status and text of each, tests aside. A text may be one of the `constants`.
pub(super) fn error_replies(source: &str, constants: &BTreeMap<String, String>) -> Vec<(u16, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or(source);
    let text = |rest: &str| {
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("Some(").unwrap_or(rest);
        let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
        let Some(text) = rest.strip_prefix('"') else {
            let path: String =
                rest.chars().take_while(|letter| letter.is_alphanumeric() || "_:".contains(*letter)).collect();
            return constants.get(path.rsplit(':').next().unwrap_or_default()).cloned();
        };
        let text = blank_placeholders(&join_lines(text.split('"').next()?));
        // The kind of a body is no error, and a text that is put together says nothing here.
        let is_told = text.chars().any(char::is_alphabetic) && (text.contains(' ') || !text.contains('/'));
        is_told.then_some(text)
    };
    let reply_behind = |behind: &str| {
        let name: String = behind.chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect();
        let status = STATUSES.iter().find(|(known, _)| *known == name)?.1;
        let rest = &behind[name.len()..];
        let rest = rest.strip_prefix(',').or_else(|| rest.strip_prefix(" => Some(").map(|_| &rest[4..]))?;
        Some((status, text(rest)?))
    };
    let named = source.split("StatusCode::").skip(1).filter_map(reply_behind);
    let made = MADE
        .into_iter()
        .flat_map(|(how, status)| source.split(how).skip(1).filter_map(move |behind| Some((status, text(behind)?))));
    named.chain(made).collect()
}

/// Returns a text as it is without the line breaks of its source, and without the one that it ends with.
fn join_lines(text: &str) -> String {
    text.trim_end_matches("\\n").split("\\\n").map(str::trim_start).collect()
}

#[cfg(test)]
mod tests {
    use super::{error_replies, text_constants};

    #[test]
    fn a_status_and_its_text_are_an_error_and_a_computed_text_is_none() {
        let source = "problem(StatusCode::NOT_FOUND, \"not found\"); Problem::new(StatusCode::BAD_REQUEST,
            format!(\"Invalid choice: {word}\")); refused(StatusCode::CONFLICT, &told); plain(StatusCode::GONE, \"text/plain\"); ok(StatusCode::OK, \"fine\");
            #[cfg(test)] mod tests { StatusCode::GONE, \"never\" }";
        assert_eq!(
            error_replies(source, &text_constants("")),
            [(404, "not found".to_owned()), (400, "Invalid choice: …".to_owned())]
        );
    }

    #[test]
    fn a_text_may_have_a_name_or_stand_behind_an_arrow_or_be_known_as_bad() {
        let source = "pub(crate) const LATE: &str =\n    \"too late \\\n        for this\";
            ApiError::new(StatusCode::GONE, peer::LATE); ApiError::bad_request(\"lasts is a number\"); ApiError::bad_request(text); Self::missing(\"gone\");
            StatusCode::NOT_FOUND => Some(format!(\"nothing at {path}\")), StatusCode::OK => Some(1), refused(StatusCode::GONE, OTHER)";
        let want = [(410, "too late for this"), (404, "nothing at …"), (400, "lasts is a number"), (404, "gone")];
        assert_eq!(
            error_replies(source, &text_constants(source)),
            want.map(|(status, text)| (status, text.to_owned()))
        );
    }
}
