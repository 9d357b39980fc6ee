//! Preference of processes for the kernel to kill if memory runs out.

/// Raise of the out-of-memory score of this process and its commands, of 1000.
const FIRST_TO_GO: i32 = 500;
const SCORE: &str = "/proc/self/oom_score_adj";

/// Makes the kernel kill this process and those that it starts, rather than the gateway, if memory runs out. Every process may
/// raise its own score; one with a higher score keeps it. If it cannot be raised, commands still work.
pub(super) fn raise_oom_score() {
    let score = std::fs::read_to_string(SCORE).ok().and_then(|score| score.trim().parse::<i32>().ok());
    if score.is_none_or(|score| score < FIRST_TO_GO)
        && let Err(error) = std::fs::write(SCORE, FIRST_TO_GO.to_string())
    {
        tracing::warn!(%error, "cannot write {SCORE}: if memory runs out, the kernel may kill the gateway before its commands");
    }
}
