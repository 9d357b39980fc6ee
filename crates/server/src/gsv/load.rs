//! What one connection asked for and was not answered yet: so much of it, and then it is refused until something is answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use countersign_protocol::gsv::{Fault, code};

/// How many requests of one connection may be open.
const OPEN: usize = 1024;
/// How large they may be together, in bytes. A request is kept whole until its turn comes.
const MOST: usize = 128 << 20;
/// What each value in a request takes beside its text, in bytes.
const VALUE: usize = 128;

/// How much room a request takes, in bytes: of its text, and of what it is read into.
pub(super) fn size(text: &str) -> usize {
    text.len() + values(text) * VALUE
}

/// About how many values a JSON text holds: each opens something or stands behind a comma.
fn values(text: &str) -> usize {
    let (mut count, mut is_quoted, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            b',' | b'[' | b'{' if !is_quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// The open requests of one connection.
#[derive(Clone, Default)]
pub(super) struct Load {
    count: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

/// One of them. It is open until this is dropped.
pub(super) struct Held {
    load: Load,
    bytes: usize,
}

impl Load {
    /// Takes up a request of so many bytes. Its connection alone does, one after the other.
    ///
    /// # Errors
    /// 400 for one that is too large by itself, 503 with what there is too much of otherwise.
    pub(super) fn take(&self, bytes: usize) -> Result<Held, Fault> {
        if bytes > MOST {
            let why =
                format!("Too many values: with {VALUE} bytes for each of them it has more than {} MiB", MOST >> 20);
            return Err(Fault::invalid(why));
        }
        if self.count.load(Ordering::Relaxed) >= OPEN {
            return Err(Fault::new(code::UNAVAILABLE, format!("Too many open requests (at most {OPEN})")));
        }
        if self.bytes.load(Ordering::Relaxed) + bytes > MOST {
            let why = format!("Open requests are too large together (at most {} MiB)", MOST >> 20);
            return Err(Fault::new(code::UNAVAILABLE, why));
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Held { load: self.clone(), bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.load.count.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Load, MOST, OPEN, VALUE, size};

    #[test]
    fn a_request_is_as_large_as_what_it_is_read_into() {
        for (text, values) in [
            ("", 0),
            ("{}", 1),
            (r#"{"a":[1,2,{}],"b":"c"}"#, 6),
            (r#"["a, [ {", "b\\", "c\",["]"#, 3),
            (r#"["a"#, 1),
            (r#"["a\"#, 1),
        ] {
            assert_eq!(size(text), text.len() + values * VALUE, "{text}");
        }
    }

    #[test]
    fn what_is_too_many_or_too_much_is_refused_until_something_is_answered() {
        let load = Load::default();
        let mut held: Vec<_> = (0..OPEN).map(|_| load.take(1).unwrap()).collect();
        assert_eq!(load.take(1).err().unwrap().message, "Too many open requests (at most 1024)");
        held.truncate(1);
        let large = load.take(MOST - 1).unwrap();
        let refused = load.take(1).err().unwrap();
        assert_eq!((refused.code, &*refused.message), (503, "Open requests are too large together (at most 128 MiB)"));
        drop(large);
        assert_eq!(load.take(MOST + 1).err().unwrap().code, 400);
        assert!(load.take(MOST - 1).is_ok());
    }
}
