use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{
    GatewaySecrets, Redactor, SecretRefused, forms::secret_forms, known_secrets::KnownSecrets, list_secrets,
    remove_secret, set_secret,
};

mod encoded;
mod size;

const VALUE: &str = "s3cr/t \"cänary\" 0815";

fn veil(secrets: &[(&str, &str)]) -> Arc<Redactor> {
    Arc::new(Redactor::from_forms(
        secrets.iter().flat_map(|(name, value)| secret_forms(value, &format!("[secret {name}]"))).collect(),
    ))
}

fn kept(secrets: &[(&str, &str)]) -> (tempfile::TempDir, GatewaySecrets) {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in secrets {
        set_secret(&folder.path().join("secrets"), name, &(*value).into()).unwrap();
    }
    let secrets = GatewaySecrets::from_folder(folder.path().join("secrets"), BTreeMap::new());
    (folder, secrets)
}

#[test]
fn a_secret_is_hidden_in_every_form_that_it_is_usual_to_write_it_in() {
    let veil = veil(&[("KEY", VALUE)]);
    let percent: String = VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for (case, text) in [
        ("as it is", format!("x{VALUE}y")),
        ("json", json!({ "a": VALUE }).to_string()),
        ("hex", hex::encode(VALUE)),
        ("HEX", hex::encode_upper(VALUE)),
        ("base64", BASE64_STANDARD.encode(VALUE)),
        ("base64 behind one", BASE64_STANDARD.encode(format!("u{VALUE}"))),
        ("base64 behind two", BASE64_STANDARD.encode(format!("u:{VALUE}:x"))),
        ("a query", "s3cr%2Ft%20%22c%C3%A4nary%22%200815".to_owned()),
        ("a form", "s3cr%2Ft+%22c%C3%A4nary%22+0815".to_owned()),
        ("a query in small letters", "s3cr%2ft%20%22c%c3%a4nary%22%200815".to_owned()),
    ] {
        let hidden = veil.redact_text(&text);
        assert!(hidden.contains("[secret KEY]"), "{case}: {text} became {hidden}");
        assert!(!hidden.contains("0815"), "{case}: {hidden}");
    }
    assert_eq!(veil.redact_text("nothing here"), "nothing here");
    // A form that no program writes: the limit is that an agent that intends to can write it.
    assert!(!veil.contains_secret(&percent));
}

#[test]
fn every_line_of_a_key_is_hidden() {
    let veil = veil(&[("PEM", "-----BEGIN X-----\nMIIBVgIBADANBgkqhkiG\nAbCdEf==\n-----END X-----\n")]);
    assert_eq!(veil.redact_text("1 MIIBVgIBADANBgkqhkiG\r\n2 AbCdEf=="), "1 [secret PEM]\r\n2 [secret PEM]");
}

#[test]
fn secrets_are_hidden_in_names_texts_and_numbers_of_a_value() {
    let veil = veil(&[("A", "hunter2-hunter2"), ("PIN", "12345678")]);
    let mut value = json!({"hunter2-hunter2": ["x hunter2-hunter2", 12_345_678, true, null]});
    veil.redact_value(&mut value);
    assert_eq!(value, json!({"[secret A]": ["x [secret A]", "[secret PIN]", true, null]}));
}

fn in_pieces(veil: &Arc<Redactor>, mut rest: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut stream, mut shown) = (veil.redacting_stream(), Vec::new());
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*size).min(rest.len()));
        shown.extend(stream.push(piece));
        rest = behind;
    }
    shown.extend(stream.finish());
    shown
}

proptest! {
    #[test]
    fn an_output_in_pieces_is_hidden_as_the_whole_is(
        parts in proptest::collection::vec(prop_oneof![
            Just("hunter2-hunter2".to_owned()), Just("hunter2-hunter2-and-more".to_owned()), Just("hunter2-".to_owned()),
            Just("aaaaaaaa".to_owned()), "[a-c\n]{0,12}", Just(hex::encode("hunter2-hunter2")), Just(hex::encode("aaaaaa\np")),
            Just(BASE64_STANDARD.encode("hunter2-hunter2")), "[60x:\\\\n \r]{0,6}",
        ], 0..12),
        sizes in proptest::collection::vec(1_usize..40, 1..20),
    ) {
        let veil = veil(&[("A", "hunter2-hunter2"), ("B", "hunter2-hunter2-and-more"), ("C", "aaaaaaaa")]);
        let whole = parts.concat();
        prop_assert_eq!(String::from_utf8(in_pieces(&veil, whole.as_bytes(), &sizes)).unwrap(), veil.redact_text(&whole));
    }
}

#[test]
fn an_output_is_held_no_longer_than_it_could_be_a_secret() {
    let mut stream = veil(&[("A", "hunter2-hunter2")]).redacting_stream();
    for (piece, want) in [("line\n", "line\n"), ("hunt", ""), ("er3", "hunter3"), ("hunter2-hunter2", "[secret A]")] {
        assert_eq!(String::from_utf8(stream.push(piece.as_bytes())).unwrap(), want, "{piece}");
    }
}

#[test]
fn a_secret_lies_in_a_file_for_its_owner_alone() {
    let (folder, secrets) = kept(&[("KEY", "hunter2-hunter2\n")]);
    let file = folder.path().join("secrets/KEY");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(secrets.secret_value("KEY").unwrap().expose_secret(), "hunter2-hunter2");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let lack = secrets.secret_value("KEY").unwrap_err();
    assert_eq!(lack.to_string(), "the file of the secret KEY is open to others (mode 640); make it 600");
    assert!(matches!(list_secrets(file.parent().unwrap()).unwrap()[0].lack, Some(SecretRefused::Open { .. })));
}

#[test]
fn what_is_not_to_be_had_is_refused_with_its_name() {
    let (folder, secrets) = kept(&[("KEY", "hunter2-hunter2")]);
    for (name, value) in [("SHORT", "hunter2"), ("LINES", "able\nzoo\nmint\nowl\nfoo")] {
        let file = folder.path().join("secrets").join(name);
        fs::write(&file, value).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    for (text, want) in [
        ("{{secret:KEY}}", Ok(())),
        ("{{secret:NONE}}", Err("there is no secret called NONE")),
        (
            "{{secret:../secrets/KEY}}",
            Err("{{secret: is not followed by the name of a secret (letters, digits, _, - and dots) and }}"),
        ),
        (
            "{{secret:SHORT}}",
            Err(
                "the secret SHORT cannot be hidden in outputs: it must have at least 8 bytes, and a line of at least 6",
            ),
        ),
        (
            "{{secret:LINES}}",
            Err(
                "the secret LINES cannot be hidden in outputs: it must have at least 8 bytes, and a line of at least 6",
            ),
        ),
    ] {
        assert_eq!(secrets.check_fillable(&json!({ "a": [text] })), want.map_err(str::to_owned), "{text}");
    }
    assert!(GatewaySecrets::default().check_fillable(&json!("{{secret:KEY}}")).is_err());
    let folder = folder.path().join("secrets");
    for (name, value) in [("a/b", "hunter2-hunter2"), ("K", "short"), ("K", "with a \0 in it")] {
        assert!(set_secret(&folder, name, &value.into()).is_err(), "{name}");
    }
}

#[test]
fn what_was_released_is_hidden_after_it_was_changed_and_removed() {
    let (folder, secrets) = kept(&[("KEY", "the-first-value")]);
    let at = folder.path().join("secrets");
    assert!(secrets.redactor().contains_secret("the-first-value"));
    assert!(set_secret(&at, "KEY", &"the-second-value".into()).unwrap());
    assert_eq!(secrets.secret_value("KEY").unwrap().expose_secret(), "the-second-value");
    assert_eq!(secrets.redactor().redact_text("the-first-value the-second-value"), "[secret KEY] [secret KEY]");
    remove_secret(&at, "KEY").unwrap();
    assert!(secrets.secret_value("KEY").is_err() && remove_secret(&at, "KEY").is_err());
    assert!(
        secrets.redactor().contains_secret("the-first-value") && secrets.redactor().contains_secret("the-second-value")
    );
}

#[test]
fn a_file_counts_before_what_the_configuration_gives() {
    let (folder, _) = kept(&[("KEY", "from-the-file")]);
    let given = [("KEY", "from-the-settings"), ("OTHER", "from-the-settings")];
    let given = given.map(|(name, value)| (name.to_owned(), value.into()));
    let secrets = GatewaySecrets::from_folder(folder.path().join("secrets"), given.into_iter().collect());
    assert_eq!(secrets.secret_value("KEY").unwrap().expose_secret(), "from-the-file");
    assert_eq!(secrets.secret_value("OTHER").unwrap().expose_secret(), "from-the-settings");
    assert_eq!(format!("{secrets:?} {:?}", secrets.redactor()).matches("from-the").count(), 0);
}
