//! Limit of the open requests of one connection: further ones are refused until one is answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use countersign_protocol::gsv::{GsvError, code};

/// Most open requests of one connection.
const OPEN: usize = 1024;
/// Largest size of their texts together, in bytes. A request is kept whole until its turn comes.
const MOST: usize = 128 << 20;
/// Largest size of their parsed values together, in bytes.
const MOST_ROOM: usize = 256 << 20;
/// Largest size of a value until it is converted, in bytes: one after a comma, a list, an object.
const VALUE: usize = 192;
const LIST: usize = 1024;
const OBJECT: usize = 1536;

/// Size of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestSize {
    /// Size of its text, in bytes.
    text: usize,
    /// Size of its parsed values, in bytes.
    room: usize,
}

impl RequestSize {
    /// Returns the size of a request that is forwarded as it was written.
    pub(super) const fn for_text(text: &str) -> Self {
        Self { text: text.len(), room: 0 }
    }

    /// Returns the size of a request whose values are parsed.
    pub(super) fn for_values(text: &str) -> Self {
        let (mut room, mut is_quoted, mut is_escaped) = (0, false, false);
        for byte in text.bytes() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_quoted,
                b'"' => is_quoted = !is_quoted,
                _ if is_quoted => {}
                b',' => room += VALUE,
                b'[' => room += LIST,
                b'{' => room += OBJECT,
                _ => {}
            }
        }
        Self { text: text.len(), room }
    }
}

/// Open requests of one connection.
#[derive(Clone, Default)]
pub(super) struct OpenRequests {
    count: Arc<AtomicUsize>,
    text: Arc<AtomicUsize>,
    room: Arc<AtomicUsize>,
}

/// Permit of one request. It is open until this is dropped.
pub(super) struct RequestPermit {
    load: OpenRequests,
    size: RequestSize,
}

impl OpenRequests {
    /// Takes a permit for a request of this size. Only its connection calls it, one request after the other.
    ///
    /// # Errors
    /// 400 for one that is too large by itself, 503 that names the exceeded limit otherwise.
    pub(super) fn take_permit(&self, size: RequestSize) -> Result<RequestPermit, GsvError> {
        let busy = |why: String| Err(GsvError::new(code::UNAVAILABLE, why));
        if size.room > MOST_ROOM {
            return Err(GsvError::bad_request(format!(
                "Too many values: read, they take more than {} MiB",
                MOST_ROOM >> 20
            )));
        }
        if self.count.load(Ordering::Relaxed) >= OPEN {
            return busy(format!("Too many open requests (at most {OPEN})"));
        }
        if self.text.load(Ordering::Relaxed) + size.text > MOST {
            return busy(format!("Open requests are too large together (at most {} MiB)", MOST >> 20));
        }
        if self.room.load(Ordering::Relaxed) + size.room > MOST_ROOM {
            let most = MOST_ROOM >> 20;
            return busy(format!("Open requests have too many values together (read, at most {most} MiB)"));
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.text.fetch_add(size.text, Ordering::Relaxed);
        self.room.fetch_add(size.room, Ordering::Relaxed);
        Ok(RequestPermit { load: self.clone(), size })
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.load.count.fetch_sub(1, Ordering::Relaxed);
        self.load.text.fetch_sub(self.size.text, Ordering::Relaxed);
        self.load.room.fetch_sub(self.size.room, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{LIST, MOST, MOST_ROOM, OBJECT, OPEN, OpenRequests, RequestSize, VALUE};

    #[test]
    fn a_request_is_as_large_as_what_it_is_read_into() {
        for (text, room) in [
            ("", 0),
            ("{}", OBJECT),
            (r#"{"a":[1,2,{}],"b":"c"}"#, 2 * OBJECT + LIST + 3 * VALUE),
            (r#"["a, [ {", "b\\", "c\",["]"#, LIST + 2 * VALUE),
            (r#"["a"#, LIST),
            (r#"["a\"#, LIST),
        ] {
            assert_eq!(RequestSize::for_values(text), RequestSize { text: text.len(), room }, "{text}");
        }
    }

    #[test]
    fn what_is_too_many_or_too_much_is_refused_until_something_is_answered() {
        let (load, of) = (OpenRequests::default(), |text, room| RequestSize { text, room });
        let refused = |size| load.take_permit(size).err().map(|fault| (fault.code, fault.message.to_string()));
        let expected = |code, why: &str| Some((code, why.to_owned()));
        let mut held: Vec<_> = (0..OPEN).map(|_| load.take_permit(of(1, 0)).unwrap()).collect();
        assert_eq!(refused(of(1, 0)), expected(503, "Too many open requests (at most 1024)"));
        held.truncate(1);
        let large = load.take_permit(of(MOST - 1, MOST_ROOM)).unwrap();
        assert_eq!(refused(of(1, 0)), expected(503, "Open requests are too large together (at most 128 MiB)"));
        held.clear();
        let why = "Open requests have too many values together (read, at most 256 MiB)";
        assert_eq!(refused(of(1, 1)), expected(503, why));
        drop(large);
        let why = "Too many values: read, they take more than 256 MiB";
        assert_eq!(refused(of(1, MOST_ROOM + 1)), expected(400, why));
        assert!(load.take_permit(of(MOST, MOST_ROOM)).is_ok());
    }
}
