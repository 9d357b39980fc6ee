//! Secrets in base64 and hex, however that is laid out.

use base64::prelude::BASE64_URL_SAFE;

use super::*;
use crate::secrets::view::GAP;

/// As long as a token or a line of a key, and as wide as outputs are.
const LONG: &str = "tok_9f2c41d07b3e4a6ab8c55d1e7f90a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7-0815-??????-the-end";

/// Returns `text` in lines of `width`, each after `indent`.
fn wrapped(text: &str, width: usize, end: &str, indent: &str) -> String {
    let lines = text.as_bytes().chunks(width).map(|line| format!("{indent}{}", str::from_utf8(line).unwrap()));
    lines.collect::<Vec<_>>().join(end)
}

fn bytes_in_hex(text: &str, before: &str, between: &str) -> String {
    text.bytes().map(|byte| format!("{before}{byte:02x}")).collect::<Vec<_>>().join(between)
}

/// Returns the significant characters of a text in base64 or hex, without those between them.
fn telling(text: &str) -> String {
    let bare = ["0x", "\\x", "\\n", "\\r", ":", ","].iter().fold(text.to_owned(), |text, gap| text.replace(gap, ""));
    bare.split_whitespace().collect()
}

/// Nothing of `encoded` that would be worth anything is in `shown`.
fn is_gone(encoded: &str, shown: &str) -> bool {
    let (encoded, shown) = (telling(encoded), telling(shown));
    encoded.as_bytes().windows(16).all(|part| !shown.contains(str::from_utf8(part).unwrap()))
}

#[test]
fn encoded_secrets_are_hidden_however_programs_lay_them_out() {
    let veil = veil(&[("KEY", LONG)]);
    let base64 = BASE64_STANDARD.encode(format!("user:{LONG}\n"));
    let hex = hex::encode(LONG);
    for (case, text) in [
        ("base64", wrapped(&base64, 76, "\n", "")),
        ("mail", wrapped(&base64, 76, "\r\n", "")),
        ("openssl on another system", wrapped(&base64, 64, "\r\n", "")),
        ("in yaml", format!("data: |\n{}\n", wrapped(&base64, 76, "\n", "    "))),
        ("57 columns", wrapped(&base64, 57, "\n", "")),
        ("in json", json!({ "a": wrapped(&base64, 76, "\r\n", "") }).to_string()),
        ("in json in json", json!(json!(wrapped(&base64, 60, "\n", "\t")).to_string()).to_string()),
        ("base64 with its strokes quoted", BASE64_STANDARD.encode(LONG).replace('/', "\\/")),
        ("xxd -p", wrapped(&hex, 60, "\n", "")),
        ("32 columns", wrapped(&hex, 32, "\n", "")),
        ("HEX with CRLF", wrapped(&hex.to_uppercase(), 64, "\r\n", "  ")),
        ("a fingerprint", bytes_in_hex(LONG, "", ":")),
        ("PowerShell", bytes_in_hex(LONG, "", "-").to_uppercase()),
        ("od -An -tx1", wrapped(&bytes_in_hex(LONG, " ", ""), 48, "\n", "")),
        ("xxd -i", format!("{{\n{}\n}}", wrapped(&bytes_in_hex(LONG, "0x", ", "), 72, "\n", "  "))),
        ("C", format!("\"{}\"", bytes_in_hex(LONG, "\\x", ""))),
    ] {
        let hidden = veil.redact_text(&text);
        assert!(hidden.contains("[secret KEY]") && is_gone(&text, &hidden), "{case}: {text} became {hidden}");
        assert_eq!(in_pieces(&veil, text.as_bytes(), &[7]), hidden.as_bytes(), "{case}");
    }
}

#[test]
fn what_stands_around_an_encoded_secret_stays() {
    let veil = veil(&[("KEY", LONG)]);
    let text = format!("a {}\r\n\r\n  b 0x{}, 0", wrapped(&hex::encode(LONG), 20, "\r\n", " "), hex::encode(LONG));
    assert_eq!(veil.redact_text(&text), "a  [secret KEY]\r\n\r\n  b 0x[secret KEY], 0");
}

#[test]
fn an_output_that_could_be_an_encoded_secret_is_held_for_no_more_than_a_gap() {
    let mut stream = veil(&[("KEY", LONG)]).redacting_stream();
    let begun = hex::encode(LONG)[..40].to_owned();
    assert_eq!(stream.push(begun.as_bytes()), b"");
    assert_eq!(stream.push(&[b' '; GAP]), b"");
    assert_eq!(stream.push(b"    "), [begun.as_bytes(), &[b' '; GAP + 4]].concat());
}

#[test]
fn a_long_secret_that_comes_byte_by_byte_is_hidden() {
    let value: String = (0..20_000_u32).map(|at| char::from(b'!' + (at * at % 89) as u8)).collect();
    let veil = veil(&[("KEY", &value)]);
    let text = format!("<{}>", hex::encode(&value));
    assert_eq!(in_pieces(&veil, text.as_bytes(), &[1]), b"<[secret KEY]>");
}

#[derive(Clone, Debug)]
enum EncodedLayout {
    Base64,
    Url,
    Hex,
    Upper,
    Bytes(&'static str, &'static str),
}

impl EncodedLayout {
    /// Without lines, and with nothing between the bytes.
    fn bare(&self, text: &str) -> String {
        match self {
            Self::Base64 => BASE64_STANDARD.encode(text),
            Self::Url => BASE64_URL_SAFE.encode(text),
            Self::Hex | Self::Bytes(..) => hex::encode(text),
            Self::Upper => hex::encode_upper(text),
        }
    }

    fn lay_out(&self, text: &str, width: usize, end: &str, indent: &str) -> String {
        match self {
            Self::Bytes(before, between) => {
                // A line is not cut within a byte then.
                let width = width * (before.len() + 2 + between.len());
                wrapped(&bytes_in_hex(text, before, between), width, end, indent)
            }
            Self::Base64 | Self::Url | Self::Hex | Self::Upper => wrapped(&self.bare(text), width, end, indent),
        }
    }
}

fn layouts() -> impl Strategy<Value = EncodedLayout> {
    prop_oneof![
        Just(EncodedLayout::Base64),
        Just(EncodedLayout::Url),
        Just(EncodedLayout::Hex),
        Just(EncodedLayout::Upper),
        (prop_oneof![Just(""), Just("0x"), Just("\\x")], prop_oneof![Just(":"), Just(", "), Just(" "), Just(",")])
            .prop_map(|(before, between)| EncodedLayout::Bytes(before, between)),
        Just(EncodedLayout::Bytes("\\x", "")),
    ]
}

proptest! {
    #[test]
    fn no_layout_and_no_cut_shows_an_encoded_secret(
        (secret, before, behind) in ("[!-~]{12,90}", "[a-z ]{0,9}", "[a-z ]{0,9}"),
        layout in layouts(),
        (width, indent) in (1_usize..100, "[ \t]{0,12}"),
        end in prop_oneof![Just("\n"), Just("\r\n"), Just("\\n"), Just("\\r\\n"), Just("\n\n")],
        sizes in proptest::collection::vec(1_usize..90, 1..20),
    ) {
        let veil = veil(&[("KEY", &secret)]);
        let whole = format!("{before}{secret}{behind}");
        let encoded = layout.lay_out(&whole, width, end, &indent);
        let text = format!("first\n{encoded}\nlast {encoded}.");
        let shown = veil.redact_text(&text).into_owned();
        // As far as it is the secret's: what is around it may be shown.
        let (from, until) = (before.len(), before.len() + secret.len());
        let own = match layout {
            EncodedLayout::Base64 | EncodedLayout::Url => layout.bare(&whole)[(from * 4).div_ceil(3)..until * 4 / 3].to_owned(),
            EncodedLayout::Hex | EncodedLayout::Upper | EncodedLayout::Bytes(..) => layout.bare(&secret),
        };
        prop_assert!(is_gone(&own, &shown), "{} became {}", text, shown);
        prop_assert_eq!(shown.matches("[secret KEY]").count(), 2, "{}", shown);
        prop_assert_eq!(in_pieces(&veil, text.as_bytes(), &sizes), shown.as_bytes());
    }

    #[test]
    fn an_output_without_a_secret_is_passed_on_as_it_is(
        parts in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            // All but the end of a secret.
            (1_usize..20).prop_map(|less| hex::encode(LONG).as_bytes()[..2 * LONG.len() - less].to_vec()),
            (1_usize..20).prop_map(|less| LONG.as_bytes()[..LONG.len() - less].to_vec()),
            (4_usize..20).prop_map(|less| {
                let text = BASE64_STANDARD.encode(LONG);
                wrapped(&text[..text.len() - less], 57, "\r\n", "  ").into_bytes()
            }),
            "[0x\\\\n \r\n]{0,20}".prop_map(String::into_bytes),
        ], 0..8),
        sizes in proptest::collection::vec(1_usize..90, 1..20),
    ) {
        let veil = veil(&[("KEY", LONG)]);
        // No part continues where the one before it ended.
        let bytes = parts.join(&b'!');
        prop_assert_eq!(in_pieces(&veil, &bytes, &sizes), bytes);
    }
}

#[test]
fn secrets_are_hidden_as_writers_of_json_and_html_quote_them() {
    let veil = veil(&[("KEY", "pa&ss<wörd>='1\"2'"), ("FACE", "smile-😀-here")]);
    for (case, quoted) in [
        ("Go", r#"pa\u0026ss\u003cwörd\u003e='1\"2'"#),
        ("Gson", r#"pa\u0026ss\u003cwörd\u003e\u003d\u00271\"2\u0027"#),
        ("Python", r#"pa&ss<w\u00f6rd>='1\"2'"#),
        ("Jackson", r#"pa&ss<w\u00F6rd>='1\"2'"#),
        (".NET", r"pa\u0026ss\u003Cw\u00F6rd\u003E=\u00271\u00222\u0027"),
        ("a page", "pa&amp;ss&lt;wörd&gt;=&#39;1&quot;2&#39;"),
        ("a page of Go", "pa&amp;ss&lt;wörd&gt;=&#39;1&#34;2&#39;"),
        ("Python, beyond 16 bits", r"smile-\ud83d\ude00-here"),
    ] {
        let text = format!("{{\"a\": \"{quoted}\"}}");
        let hidden = veil.redact_text(&text);
        assert!(["{\"a\": \"[secret KEY]\"}", "{\"a\": \"[secret FACE]\"}"].contains(&&*hidden), "{case}: {hidden}");
        assert_eq!(in_pieces(&veil, text.as_bytes(), &[5]), hidden.as_bytes(), "{case}");
    }
}
