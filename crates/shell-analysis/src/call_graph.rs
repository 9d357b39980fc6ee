//! Calls between the functions of a line, to find those that multiply.
//!
//! It must not know what functions do. A function that calls itself while others run, in a pipeline or the background, runs twice
//! each time.

/// The most calls that are kept.
const MOST_CALLS: usize = 256;

/// Calls of functions, as they are met.
#[derive(Debug, Default)]
pub(super) struct CallGraph {
    /// The functions around the command at hand.
    open: Vec<String>,
    /// True if the current command runs concurrently with others.
    is_beside: bool,
    /// True where it runs in a substitution.
    is_within: bool,
    calls: Vec<CallEdge>,
}

#[derive(Debug)]
struct CallEdge {
    from: String,
    to: String,
    is_beside: bool,
    is_within: bool,
}

impl CallGraph {
    pub(super) const fn is_beside(&self) -> bool {
        self.is_beside
    }

    pub(super) const fn go_beside(&mut self, is_beside: bool) {
        self.is_beside = is_beside;
    }

    /// Enters a function's body. Returns the value that [`Self::leave_function`] takes.
    pub(super) fn enter_function(&mut self, name: &str) -> bool {
        self.open.push(name.to_owned());
        std::mem::take(&mut self.is_beside)
    }

    pub(super) fn leave_function(&mut self, around: bool) {
        self.open.pop();
        self.is_beside = around;
    }

    /// Goes into a substitution. Returns what [`Self::leave_within`] takes.
    pub(super) const fn go_within(&mut self) -> bool {
        std::mem::replace(&mut self.is_within, true)
    }

    pub(super) const fn leave_within(&mut self, around: bool) {
        self.is_within = around;
    }

    /// Takes note of a command that may be a function; `is_own` says that it may be the one that it stands in.
    pub(super) fn note_call(&mut self, name: &str, is_own: bool) {
        let Some(from) = self.open.last().filter(|_| self.calls.len() < MOST_CALLS) else { return };
        let to = if is_own { from.clone() } else { name.to_owned() };
        let call = CallEdge { from: from.clone(), to, is_beside: self.is_beside, is_within: self.is_within };
        self.calls.push(call);
    }

    /// Reports whether a function calls itself in a concurrent command, or more than once in substitutions.
    pub(super) fn has_multiplying_cycle(&self) -> bool {
        let returns = |call: &&CallEdge| self.comes_to(&call.to, &call.from);
        let within: Vec<&CallEdge> = self.calls.iter().filter(|call| call.is_within).filter(returns).collect();
        let twice = |call: &&CallEdge| within.iter().filter(|other| other.from == call.from).count() > 1;
        self.calls.iter().filter(|call| call.is_beside).any(|call| returns(&call)) || within.iter().any(twice)
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
    use super::CallGraph;

    #[test]
    fn recursion_next_to_other_calls_multiplies() {
        for (calls, want) in [
            (vec![("f", "f", true)], true),
            (vec![("f", "f", false)], false),
            (vec![("f", "g", true), ("g", "f", false)], true),
            (vec![("f", "g", false), ("g", "f", false)], false),
            (vec![("f", "g", true), ("g", "h", true)], false),
        ] {
            let mut found = CallGraph::default();
            for (from, to, is_beside) in &calls {
                let around = found.enter_function(from);
                found.go_beside(*is_beside);
                found.note_call(to, false);
                found.leave_function(around);
            }
            assert_eq!(found.has_multiplying_cycle(), want, "{calls:?}");
        }
    }
}
