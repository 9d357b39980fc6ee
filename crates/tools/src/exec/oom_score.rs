//! Where memory runs out: who goes first.

/// How much sooner than others the kernel takes us and our commands, of 1000, where memory runs out.
const FIRST_TO_GO: i32 = 500;
const SCORE: &str = "/proc/self/oom_score_adj";

/// Has the kernel kill us and what we start, rather than the gateway, where memory runs out. Everybody may offer that of
/// themselves; whoever stands there already stays. Where it cannot be done, a command works all the same.
pub(super) fn raise_oom_score() {
    let score = std::fs::read_to_string(SCORE).ok().and_then(|score| score.trim().parse::<i32>().ok());
    if score.is_none_or(|score| score < FIRST_TO_GO)
        && let Err(error) = std::fs::write(SCORE, FIRST_TO_GO.to_string())
    {
        tracing::warn!(%error, "{SCORE} cannot be written: where memory runs out the gateway may go before its commands");
    }
}
