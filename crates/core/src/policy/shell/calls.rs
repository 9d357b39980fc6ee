//! Which functions of a line call which, to tell those that multiply.
//!
//! It must not know what functions do. A function that comes back to itself beside others, in a pipeline or the background, is at
//! work twice each time.

/// The most calls that are kept.
const MOST_CALLS: usize = 256;

/// What functions call, as they are met.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The functions around the command at hand.
    open: Vec<String>,
    /// True where the command at hand runs beside others.
    is_beside: bool,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    from: String,
    to: String,
    is_beside: bool,
}

impl Calls {
    pub(super) const fn is_beside(&self) -> bool {
        self.is_beside
    }

    pub(super) const fn go_beside(&mut self, is_beside: bool) {
        self.is_beside = is_beside;
    }

    /// Goes into a function's body. Returns what [`Self::leave`] takes.
    pub(super) fn enter(&mut self, name: &str) -> bool {
        self.open.push(name.to_owned());
        std::mem::take(&mut self.is_beside)
    }

    pub(super) fn leave(&mut self, around: bool) {
        self.open.pop();
        self.is_beside = around;
    }

    /// Takes note of a command that may be a function.
    pub(super) fn note(&mut self, name: &str) {
        if let Some(from) = self.open.last().filter(|_| self.calls.len() < MOST_CALLS) {
            self.calls.push(Call { from: from.clone(), to: name.to_owned(), is_beside: self.is_beside });
        }
    }

    /// True if a function comes back to itself by a call beside others.
    pub(super) fn multiply(&self) -> bool {
        self.calls.iter().filter(|call| call.is_beside).any(|call| self.comes_to(&call.to, &call.from))
    }

    fn comes_to(&self, from: &str, to: &str) -> bool {
        let (mut seen, mut open) = (Vec::new(), vec![from]);
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if !seen.contains(&at) {
                seen.push(at);
                open.extend(self.calls.iter().filter(|call| call.from == at).map(|call| call.to.as_str()));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Calls;

    #[test]
    fn what_comes_back_beside_others_multiplies() {
        for (calls, want) in [
            (vec![("f", "f", true)], true),
            (vec![("f", "f", false)], false),
            (vec![("f", "g", true), ("g", "f", false)], true),
            (vec![("f", "g", false), ("g", "f", false)], false),
            (vec![("f", "g", true), ("g", "h", true)], false),
        ] {
            let mut found = Calls::default();
            for (from, to, is_beside) in &calls {
                let around = found.enter(from);
                found.go_beside(*is_beside);
                found.note(to);
                found.leave(around);
            }
            assert_eq!(found.multiply(), want, "{calls:?}");
        }
    }
}
