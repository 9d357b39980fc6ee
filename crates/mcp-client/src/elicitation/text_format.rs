//! Formats of texts in forms.

use rmcp::model::StringFormat;
use url::Url;

/// Returns true if `text` has the format. An unknown format takes every text: the server checks it.
pub(super) fn fits(format: &StringFormat, text: &str) -> bool {
    match format {
        StringFormat::Email => is_email(text),
        StringFormat::Uri => Url::parse(text).is_ok(),
        StringFormat::Date => is_date(text),
        StringFormat::DateTime => is_date_time(text),
        _ => true,
    }
}

/// Returns the name of a format for people.
pub(super) const fn name(format: &StringFormat) -> &'static str {
    match format {
        StringFormat::Email => "an email address",
        StringFormat::Uri => "an address (URI)",
        StringFormat::Date => "a date such as 2026-11-29",
        StringFormat::DateTime => "a date and time such as 2026-11-29T18:00:00Z",
        _ => "text",
    }
}

fn is_email(text: &str) -> bool {
    let Some((user, host)) = text.rsplit_once('@') else { return false };
    let is_plain =
        |part: &str| !part.is_empty() && !part.contains(|letter: char| letter.is_whitespace() || letter == '@');
    is_plain(user) && is_plain(host) && !host.starts_with('.') && !host.ends_with('.')
}

/// Reads a number of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<u32> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=12).contains(&month) && (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let Some((date, rest)) = text.split_once(['T', 't']) else { return false };
    let Some(at) = rest.find(['Z', 'z', '+', '-']) else { return false };
    let (time, zone) = rest.split_at(at);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_clock = |text: &str, parts: usize| {
        let limits = [23, 59, 60];
        let given: Vec<&str> = text.split(':').collect();
        given.len() == parts
            && given.iter().zip(limits).all(|(part, most)| number(part, 2).is_some_and(|number| number <= most))
    };
    let is_zone = zone.eq_ignore_ascii_case("z") || zone.get(1..).is_some_and(|zone| is_clock(zone, 2));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_date(date) && is_clock(time, 3) && is_fraction && is_zone
}

#[cfg(test)]
mod tests {
    use rmcp::model::StringFormat;

    use super::fits;

    #[test]
    fn a_text_fits_its_format() {
        use StringFormat::{Date, DateTime, Email, Uri};
        for (format, good, bad) in [
            (Email, vec!["a@b.example"], vec!["a", "a@", "@b", "a b@c", "a@b@c", "a@.b"]),
            (Uri, vec!["https://a.example/x", "mailto:a@b"], vec!["a", "//a"]),
            (Date, vec!["2024-02-29"], vec!["2023-02-29", "2024-13-01", "2024-1-1", "2024-01-01x", "+024-01-01"]),
            (
                DateTime,
                vec!["2024-02-29T23:59:59Z", "2024-02-29t00:00:00.25+01:00"],
                vec!["2024-02-29", "2024-02-29T24:00:00Z", "2024-02-29T00:00:00", "2024-02-29T00:00:00+1"],
            ),
        ] {
            assert!(good.iter().all(|text| fits(&format, text)), "{good:?}");
            assert!(bad.iter().all(|text| !fits(&format, text)), "{bad:?}");
        }
    }
}
