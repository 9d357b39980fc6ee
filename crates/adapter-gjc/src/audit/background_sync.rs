//! Syncs a file to the disk in the background of its writer.
//!
//! The log is on the disk before its line is written here, and lines that a power cut takes from the file are written again
//! from the log. So the writer does not wait; but a failed sync is reported at the next line.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::runtime::Handle;

/// A file whose bytes are on their way to the disk.
#[derive(Clone, Debug)]
pub(super) struct BackgroundSync(Arc<SharedFile>);

#[derive(Debug)]
struct SharedFile {
    file: File,
    state: Mutex<SyncState>,
}

#[derive(Debug, Default)]
struct SyncState {
    is_requested: bool,
    is_running: bool,
    failed: Option<(io::ErrorKind, String)>,
}

impl BackgroundSync {
    pub(super) fn new(file: File) -> Self {
        Self(Arc::new(SharedFile { file, state: Mutex::default() }))
    }

    /// Has everything that was written so far brought to the disk. Outside of a runtime it waits for that.
    ///
    /// # Errors
    /// Error of an earlier attempt, forever after.
    pub(super) fn request_sync(&self) -> io::Result<()> {
        let begins = {
            let mut state = self.lock_state();
            state.check_failure()?;
            state.is_requested = true;
            !std::mem::replace(&mut state.is_running, true)
        };
        if begins {
            let disk = self.clone();
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || disk.run())),
                Err(_) => disk.run(),
            }
        }
        self.check_failure()
    }

    /// # Errors
    /// Error of an earlier attempt.
    pub(super) fn check_failure(&self) -> io::Result<()> {
        self.lock_state().check_failure()
    }

    /// Waits until everything that was written so far is on the disk.
    pub(super) fn finish_sync(&self) -> io::Result<()> {
        self.check_failure()?;
        self.0.file.sync_data()
    }

    fn run(&self) {
        while self.has_more() {
            if let Err(error) = self.0.file.sync_data() {
                let mut state = self.lock_state();
                state.failed = Some((error.kind(), error.to_string()));
                state.is_running = false;
                return;
            }
        }
    }

    fn has_more(&self) -> bool {
        let mut state = self.lock_state();
        state.is_running = std::mem::take(&mut state.is_requested);
        state.is_running
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, SyncState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SyncState {
    fn check_failure(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::BackgroundSync;

    #[test]
    fn a_failed_write_is_reported_at_every_later_line() {
        // A pipe cannot be synchronised.
        let (_reader, writer) = std::io::pipe().unwrap();
        let disk = BackgroundSync::new(File::from(std::os::fd::OwnedFd::from(writer)));
        disk.check_failure().unwrap();
        assert!(disk.request_sync().is_err());
        assert!(disk.request_sync().is_err());
        assert!(disk.check_failure().is_err());
    }

    #[tokio::test]
    async fn syncing_does_not_block_the_runtime_and_reports_failures_later() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let disk = BackgroundSync::new(File::from(std::os::fd::OwnedFd::from(writer)));
        let _ = disk.request_sync();
        while disk.check_failure().is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(disk.request_sync().is_err());
    }

    #[test]
    fn a_file_is_synced_as_often_as_requested() {
        let mut file = tempfile::tempfile().unwrap();
        let disk = BackgroundSync::new(file.try_clone().unwrap());
        for _ in 0..3 {
            file.write_all(b"line\n").unwrap();
            disk.request_sync().unwrap();
        }
        disk.finish_sync().unwrap();
    }
}
