//! Reads replies over HTTP that tell of an error: a status and, behind it, the text.

use super::enums::blanks;

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

/// Status and text of each, tests aside.
pub(super) fn of(source: &str) -> Vec<(u16, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or(source);
    let told = |behind: &str| {
        let name: String = behind.chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect();
        let status = STATUSES.iter().find(|(known, _)| *known == name)?.1;
        let rest = behind[name.len()..].strip_prefix(',')?.trim_start();
        let text = rest.strip_prefix("format!(").unwrap_or(rest).trim_start().strip_prefix('"')?;
        let text = blanks(text.split('"').next()?);
        // The kind of a body is no error, and a text that is put together says nothing here.
        let is_told = text.chars().any(char::is_alphabetic) && (text.contains(' ') || !text.contains('/'));
        is_told.then_some((status, text))
    };
    source.split("StatusCode::").skip(1).filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_status_and_its_text_are_an_error_and_a_computed_text_is_none() {
        let source = "problem(StatusCode::NOT_FOUND, \"not found\"); Problem::new(StatusCode::BAD_REQUEST,
            format!(\"Invalid choice: {word}\")); refused(StatusCode::CONFLICT, &told); plain(StatusCode::GONE, \"text/plain\"); ok(StatusCode::OK, \"fine\");
            #[cfg(test)] mod tests { StatusCode::GONE, \"never\" }";
        assert_eq!(of(source), [(404, "not found".to_owned()), (400, "Invalid choice: …".to_owned())]);
    }
}
