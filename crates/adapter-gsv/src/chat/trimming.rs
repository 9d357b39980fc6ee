//! Removes old archives of jobs and heartbeats: each of their sessions keeps as many as a job keeps runs.
//!
//! Archives of users' conversations are kept; sessions of jobs and heartbeats are renewed without end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_files::objects::ObjectStore;
use countersign_protocol::gsv::{key, session as wire};
use parking_lot::Mutex;

use super::{super::GsvAdapter, session_lifecycle, session_snapshot::SessionSnapshot};

/// Number of archives beyond the limit before any are removed: then the folder is read.
const SLACK: u32 = 16;

/// Number of removed archives of each session, since this process began.
#[derive(Default)]
pub(crate) struct TrimmedArchives(Mutex<BTreeMap<String, u32>>);

impl TrimmedArchives {
    /// Returns the archives to remove now, as a range of renewals of the session with this key: after the first,
    /// up to the second. The caller removes them. `None` if there are too few.
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

/// Removes surplus archives, if the session is of a job or heartbeat and was just archived. It works in the
/// background.
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
            tracing::warn!(key = seen.key, %problem, "failed to delete surplus archives");
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
