//! Archives of what jobs and heartbeats said: of each session of theirs as many are kept as runs of a job are remembered.
//!
//! What people said is kept; these sessions begin anew by themselves, for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_files::objects::ObjectStore;
use countersign_protocol::gsv::{key, session as wire};
use parking_lot::Mutex;

use super::{super::GsvAdapter, session_lifecycle, session_snapshot::SessionSnapshot};

/// How many more there may be before any of them are taken away: then the folder is read.
const SLACK: u32 = 16;

/// How many archives of each session are known to be gone, since this process began.
#[derive(Default)]
pub(crate) struct TrimmedArchives(Mutex<BTreeMap<String, u32>>);

impl TrimmedArchives {
    /// The archives to take away now, as a span of the times that a session with this key began anew: those behind the first,
    /// up to the second. Whoever asks does it. `None` if there are too few.
    fn next(&self, key: &str, renewals: u32, keep: u32) -> Option<(u32, u32)> {
        let mut known = self.0.lock();
        let from = known.get(key).copied().unwrap_or_default();
        // Its archive of this moment is one of those that stay.
        let to = renewals.saturating_add(1).saturating_sub(keep);
        if to < from.saturating_add(SLACK) {
            return None;
        }
        known.insert(key.to_owned(), to);
        Some((from, to))
    }
}

/// Takes archives away that are too many, if it is a session of a job or of a heartbeat that was just put away. Nobody waits
/// for it.
pub(super) fn look_after(door: &Arc<GsvAdapter>, seen: &SessionSnapshot) {
    if !key::is_of_automation(&seen.key) {
        return;
    }
    let keep = door.settings.tree()["cron"]["maxRunsPerJobHistory"].as_u64().unwrap_or(200);
    let keep = u32::try_from(keep).unwrap_or(u32::MAX).max(1);
    let Some((from, to)) = door.trimmed.next(&seen.key, seen.renewals, keep) else { return };
    let (store, seen, agent) = (
        ObjectStore::for_data_dir(&door.context.config.storage.folder),
        seen.clone(),
        session_lifecycle::session_agent(door, seen),
    );
    tokio::spawn(async move {
        let old: BTreeSet<String> = seen.previous_ids(from..to).into_iter().collect();
        let is_old = move |name: &str| wire::archived_session(name).is_some_and(|id| old.contains(id));
        if let Err(problem) = store.clear_those(&wire::archive_folder(&agent), is_old).await {
            tracing::warn!(key = seen.key, %problem, "archives that are too many could not be taken away");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::TrimmedArchives;

    #[test]
    fn archives_are_taken_away_some_at_a_time_and_each_once() {
        let trimmed = TrimmedArchives::default();
        for (renewals, want) in [
            (3, None),
            // 5 stay, the one of now among them.
            (19, None),
            (20, Some((0, 16))),
            (21, None),
            (35, None),
            (36, Some((16, 32))),
        ] {
            assert_eq!(trimmed.next("a", renewals, 5), want, "{renewals}");
        }
        assert_eq!(trimmed.next("b", 99, 5), Some((0, 95)), "another session, and what an earlier process left");
    }
}
