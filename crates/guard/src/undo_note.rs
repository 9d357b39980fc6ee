//! Notes about the end of a guard.

/// Part of a guard that was not as the guard added it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UndoNote {
    /// It was not there any more, or is no longer of the guard: it is left as it is.
    Gone(String),
    /// It was edited since, and is removed.
    Edited(String),
    /// It still runs the hook, in a form that cannot be removed safely.
    Left(String),
    /// It is as a guard would have added it, but no receipt says so: it is left as it is.
    Unclear(String),
}
