//! Data of a button, and the name of a card in the record.
//!
//! Nothing is remembered anywhere: a button's data names its gate and its action, with a check that only a holder of the
//! bot's token can make. A card is named by its chat and message, which the log keeps with the gate.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use countersign_core::id::GateId;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

/// Bytes of the check that are kept: 96 bits are more than any attacker can try.
const CHECK: usize = 12;
/// The block of SHA-256, for HMAC.
const BLOCK: usize = 64;

/// Action of a button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ButtonAction {
    /// Allows once.
    Once,
    /// Allows for the agent's session.
    Session,
    /// Allows always.
    Always,
    /// Allows all calls of a proposed rule: its index, from 0.
    Rule(u8),
    /// Denies.
    Deny,
    /// Explanation of how to deny with a reason.
    Reason,
    /// Sends the whole text.
    Whole,
    /// Answers with a choice: which of them, from 0.
    Choice(u8),
}

impl ButtonAction {
    const ALL: [(Self, u8); 9] = [
        (Self::Once, b'o'),
        (Self::Session, b's'),
        (Self::Always, b'a'),
        (Self::Rule(0), b'0'),
        (Self::Rule(1), b'1'),
        (Self::Rule(2), b'2'),
        (Self::Deny, b'd'),
        (Self::Reason, b'r'),
        (Self::Whole, b'w'),
    ];

    /// Most choices that have a button.
    pub(super) const CHOICES: u8 = 32;
    /// The letter of the first of them.
    const FIRST: u8 = 128;

    fn to_letter(self) -> u8 {
        if let Self::Choice(at) = self {
            return Self::FIRST + at.min(Self::CHOICES - 1);
        }
        Self::ALL.iter().find(|(action, _)| *action == self).map_or(b'd', |(_, letter)| *letter)
    }

    fn from_letter(letter: u8) -> Option<Self> {
        if let Some(at) = letter.checked_sub(Self::FIRST) {
            return (at < Self::CHOICES).then_some(Self::Choice(at));
        }
        Self::ALL.iter().find(|(_, known)| *known == letter).map(|(action, _)| *action)
    }
}

/// Makes the data of buttons and reads it back.
#[derive(Clone)]
pub(super) struct ButtonCodec {
    key: [u8; 32],
}

impl ButtonCodec {
    /// Makes a codec with a key that is made of the bot's token. Another token makes the buttons of old cards worthless.
    pub(super) fn new(token: &SecretString) -> Self {
        Self { key: hmac_sha256(token.expose_secret().as_bytes(), b"countersign telegram button") }
    }

    /// Returns the data of a button: 39 bytes.
    pub(super) fn encode_button(&self, gate: GateId, action: ButtonAction) -> String {
        let mut bytes = gate.uuid().as_bytes().to_vec();
        bytes.push(action.to_letter());
        let check = hmac_sha256(&self.key, &bytes);
        bytes.extend_from_slice(&check[..CHECK]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a button's data; `None` if it was not made here.
    pub(super) fn decode_button(&self, data: &str) -> Option<(GateId, ButtonAction)> {
        let bytes = URL_SAFE_NO_PAD.decode(data).ok()?;
        let (payload, check) = bytes.split_at_checked(17).filter(|(_, check)| check.len() == CHECK)?;
        let wrong =
            hmac_sha256(&self.key, payload).iter().zip(check).fold(0, |wrong, (one, other)| wrong | (one ^ other));
        if wrong != 0 {
            return None;
        }
        let (letter, id) = payload.split_last()?;
        Some((GateId::parse(&hex::encode(id))?, ButtonAction::from_letter(*letter)?))
    }
}

/// Computes HMAC with SHA-256 (RFC 2104).
fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// One message of a chat. The text form is `chat:message`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CardLocation {
    pub(super) chat: i64,
    pub(super) message: i64,
}

impl fmt::Display for CardLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.chat, self.message)
    }
}

impl FromStr for CardLocation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (chat, message) = text.split_once(':').ok_or(())?;
        Ok(Self { chat: chat.parse().map_err(|_| ())?, message: message.parse().map_err(|_| ())? })
    }
}

#[cfg(test)]
mod tests {
    use super::{ButtonAction, ButtonCodec, CardLocation, GateId, URL_SAFE_NO_PAD, hmac_sha256};
    use base64::Engine as _;

    fn gate() -> GateId {
        GateId::parse("gate_0190a5b2c3d44e5f8a6b7c8d9e0f1a2b").unwrap()
    }

    #[test]
    fn a_button_reads_back_and_fits() {
        let refs = ButtonCodec::new(&"1:secret".to_owned().into());
        for (action, _) in ButtonAction::ALL {
            let data = refs.encode_button(gate(), action);
            assert_eq!((data.len(), refs.decode_button(&data)), (39, Some((gate(), action))));
        }
    }

    #[test]
    fn whatever_is_changed_on_a_button_makes_it_worthless() {
        let refs = ButtonCodec::new(&"1:secret".to_owned().into());
        let bytes = URL_SAFE_NO_PAD.decode(refs.encode_button(gate(), ButtonAction::Deny)).unwrap();
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert_eq!(refs.decode_button(&URL_SAFE_NO_PAD.encode(forged)), None, "byte {at}");
        }
        let cut = URL_SAFE_NO_PAD.encode(&bytes[..bytes.len() - 1]);
        for data in ["", "forged", "ü", &cut, &URL_SAFE_NO_PAD.encode(&bytes[..17])] {
            assert_eq!(refs.decode_button(data), None, "{data}");
        }
        let other = ButtonCodec::new(&"2:secret".to_owned().into());
        assert_eq!(other.decode_button(&refs.encode_button(gate(), ButtonAction::Deny)), None);
    }

    #[test]
    fn the_check_is_hmac() {
        // RFC 4231, cases 2 and 6.
        let long = hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        for (got, want) in [
            (hmac_sha256(b"Jefe", b"what do ya want for nothing?"), "5bdcc146bf60754e6a042426089575c7"),
            (long, "60e431591ee0b67f0d8a26aacbf5b77f"),
        ] {
            assert_eq!(hex::encode(&got[..16]), want);
        }
    }

    #[test]
    fn a_place_reads_back() {
        let place = CardLocation { chat: -100_123, message: 7 };
        assert_eq!("-100123:7".parse(), Ok(place));
        assert_eq!(place.to_string(), "-100123:7");
        for text in ["", "7", "a:7", "7:"] {
            assert_eq!(text.parse::<CardLocation>(), Err(()), "{text}");
        }
    }
}
