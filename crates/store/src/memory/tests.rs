use std::sync::Arc;

use countersign_core::{id::Lsn, time::Millis};

use super::{DiskState, LogFault, MemoryLog, UncertainOutcome};
use crate::{
    error::{AppendError, LogReadError, LogWriteError},
    log::Log,
    record::Partition,
    suite::{LogDamage, LogFixture, TextView, append_as_owner, text_batch},
    view::LogView,
};

const ZERO: Partition = Partition::ZERO;

mod behaviour {
    crate::behaviour_suite!(crate::memory::MemoryLog::new());
}

impl LogFixture for MemoryLog {
    type Log = Self;

    async fn open_with(&self, views: Vec<Arc<dyn LogView>>) -> Self {
        self.restart_with(views)
    }

    async fn inflict_damage(&self, damage: LogDamage) {
        let mut storage = self.lock_storage();
        match damage {
            LogDamage::Facts(lsn) => storage.records_mut()[lsn.0 as usize - 1].facts = "{}".into(),
            LogDamage::At(lsn) => storage.records_mut()[lsn.0 as usize - 1].at = Millis(1),
            LogDamage::Content(lsn) => storage.overwrite_content(lsn, "other"),
            LogDamage::LoseContent(lsn) => storage.lose_content(lsn),
            LogDamage::Remove(lsn) => storage.records_mut().retain(|stored| stored.lsn != lsn),
            LogDamage::CutBehind(lsn) => storage.records_mut().retain(|stored| stored.lsn <= lsn),
        }
    }
}

/// Reports whether the future is ready if it is polled once.
async fn is_ready(future: impl Future) -> bool {
    tokio::select! {
        biased;
        _ = future => true,
        () = std::future::ready(()) => false,
    }
}

#[tokio::test]
async fn each_planted_fault_ends_one_append_and_the_log_is_as_it_says() {
    for (fault, want, head) in [
        (LogFault::Full, "Full", 0),
        (LogFault::Io, "Io", 0),
        (LogFault::Fenced, "Fenced", 0),
        (LogFault::Uncertain(UncertainOutcome::Lost), "Uncertain", 0),
        (LogFault::Uncertain(UncertainOutcome::Written), "Uncertain", 1),
    ] {
        let log = MemoryLog::with_faults([fault]);
        let result = append_as_owner(&log, Lsn(0), text_batch(&["one"])).await;
        let got = match result {
            Err(AppendError::Full) => "Full",
            Err(AppendError::Io(_)) => "Io",
            Err(AppendError::Fenced { .. }) => "Fenced",
            Err(AppendError::Uncertain(_)) => "Uncertain",
            other => panic!("{fault:?}: {other:?}"),
        };
        assert_eq!((got, log.head(ZERO).await.unwrap().lsn), (want, Lsn(head)), "{fault:?}");
        assert_eq!(append_as_owner(&log, Lsn(head), text_batch(&["two"])).await.unwrap(), Lsn(head + 1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_fault_occurs_after_the_given_number_of_appends() {
    let log = MemoryLog::new();
    log.fail_after(1, LogFault::Full);
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    let result = append_as_owner(&log, Lsn(1), text_batch(&["two"])).await;
    assert!(matches!(result, Err(AppendError::Full)), "{result:?}");
    append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap();
}

#[tokio::test]
async fn after_a_crash_nothing_comes_back_and_a_restart_finds_what_was_written() {
    for (fault, head) in [(LogFault::CrashBefore, 0), (LogFault::CrashAfter, 1)] {
        let log = MemoryLog::with_faults([fault]);
        assert!(!is_ready(append_as_owner(&log, Lsn(0), text_batch(&["one"]))).await);
        assert!(is_ready(log.wait_for_crash()).await);
        assert!(!is_ready(log.head(ZERO)).await);
        assert_eq!(log.restart().head(ZERO).await.unwrap().lsn, Lsn(head), "{fault:?}");
    }
}

#[tokio::test]
async fn an_owner_that_lives_on_after_a_restart_is_fenced() {
    let old = MemoryLog::new();
    let epoch = old.take_over(ZERO).await.unwrap();
    let new = old.restart();
    let current = new.take_over(ZERO).await.unwrap();
    for log in [&old, &new] {
        let result = log.append(ZERO, epoch, Lsn(0), text_batch(&["old"])).await;
        assert!(
            matches!(result, Err(AppendError::Fenced { current: reported, .. }) if reported == current),
            "{result:?}"
        );
    }
    assert_eq!(new.append(ZERO, current, Lsn(0), text_batch(&["new"])).await.unwrap(), Lsn(1));
}

#[tokio::test]
async fn nothing_is_written_behind_an_uncertain_append_before_its_answer_is_taken() {
    for outcome in [UncertainOutcome::Lost, UncertainOutcome::Written] {
        let log = MemoryLog::with_faults([LogFault::Uncertain(outcome)]);
        let epoch = log.take_over(ZERO).await.unwrap();
        let uncertain = log.submit_batch(ZERO, epoch, Lsn(0), text_batch(&["one"])).await;
        // A reader settles its outcome, and the owner does not know that yet.
        let head = log.head(ZERO).await.unwrap().lsn;
        let behind = log.append(ZERO, epoch, Lsn(1), text_batch(&["two"])).await;
        assert!(matches!(behind, Err(AppendError::Io(_) | AppendError::Position { .. })), "{behind:?}");
        assert!(matches!(uncertain.await, Err(AppendError::Uncertain(_))));
        assert_eq!(log.head(ZERO).await.unwrap().lsn, head);
        assert_eq!(log.append(ZERO, epoch, head, text_batch(&["two"])).await.unwrap(), head.next());
    }
}

#[tokio::test]
async fn a_fault_in_the_middle_of_a_pipeline_takes_what_is_behind_it() {
    for fault in [LogFault::Full, LogFault::Io, LogFault::Fenced, LogFault::Uncertain(UncertainOutcome::Lost)] {
        let log = MemoryLog::new();
        log.fail_after(1, fault);
        let epoch = log.take_over(ZERO).await.unwrap();
        let mut pending = Vec::new();
        for expected in 0..4 {
            pending.push(log.submit_batch(ZERO, epoch, Lsn(expected), text_batch(&["one"])).await);
        }
        let mut answers = Vec::new();
        for pending in pending {
            answers.push(pending.await.is_ok());
        }
        assert_eq!(answers, [true, false, false, false], "{fault:?}");
        assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_crash_between_two_appends_in_flight_acknowledges_neither() {
    let log = MemoryLog::new();
    log.fail_after(1, LogFault::CrashBefore);
    let epoch = log.take_over(ZERO).await.unwrap();
    let first = log.submit_batch(ZERO, epoch, Lsn(0), text_batch(&["one"])).await;
    let second = log.submit_batch(ZERO, epoch, Lsn(1), text_batch(&["two"])).await;
    assert!(!is_ready(first).await);
    assert!(!is_ready(second).await);
    let log = log.restart();
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    let current = log.take_over(ZERO).await.unwrap();
    assert!(current > epoch);
    assert_eq!(log.append(ZERO, current, Lsn(1), text_batch(&["two"])).await.unwrap(), Lsn(2));
}

#[tokio::test]
async fn a_disk_fails_until_it_is_mended_and_reads_go_on() {
    let log = MemoryLog::new();
    append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.unwrap();
    log.set_disk(DiskState::Full);
    assert!(matches!(append_as_owner(&log, Lsn(1), text_batch(&["two"])).await, Err(AppendError::Full)));
    assert!(matches!(log.probe_write().await, Err(LogWriteError::Full)));
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
    log.set_disk(DiskState::Works);
    log.probe_write().await.unwrap();
    append_as_owner(&log, Lsn(1), text_batch(&["two"])).await.unwrap();
}

#[tokio::test]
async fn what_is_uncertain_stays_so_while_the_disk_is_broken() {
    let log = MemoryLog::with_faults([LogFault::Uncertain(UncertainOutcome::Written)]);
    assert!(matches!(append_as_owner(&log, Lsn(0), text_batch(&["one"])).await, Err(AppendError::Uncertain(_))));
    log.set_disk(DiskState::Broken);
    assert!(matches!(log.head(ZERO).await, Err(LogReadError::Unsettled(_))));
    log.set_disk(DiskState::Works);
    assert_eq!(log.head(ZERO).await.unwrap().lsn, Lsn(1));
}

#[tokio::test]
async fn the_same_appends_give_the_same_log() {
    let (left, right) = (MemoryLog::new(), MemoryLog::new());
    for log in [&left, &right] {
        append_as_owner(log, Lsn(0), text_batch(&["content one", "two"])).await.unwrap();
    }
    assert_eq!(left.head(ZERO).await.unwrap(), right.head(ZERO).await.unwrap());
}

#[tokio::test]
async fn a_view_has_what_an_uncertain_append_wrote_and_nothing_of_one_that_failed() {
    let log = MemoryLog::with_views(vec![TextView::new(1)]);
    for (fault, rows) in [
        (LogFault::Io, 0),
        (LogFault::Uncertain(UncertainOutcome::Lost), 0),
        (LogFault::Uncertain(UncertainOutcome::Written), 1),
    ] {
        log.fail_next(fault);
        assert!(append_as_owner(&log, Lsn(0), text_batch(&["one"])).await.is_err());
        assert_eq!(log.read_view(ZERO, "said", "said/", None, 9).await.unwrap().len(), rows, "{fault:?}");
    }
    let log = log.restart();
    assert_eq!(log.read_view(ZERO, "said", "said/", None, 9).await.unwrap().len(), 1);
}
