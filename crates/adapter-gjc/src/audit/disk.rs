//! Brings what is written into a file to the disk, beside whoever writes.
//!
//! The log is on the disk before a line of it is written here, and what a power cut takes from the file is written again from
//! the log. So nobody has to wait; but a disk that takes nothing is told at the next line.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::runtime::Handle;

/// A file whose bytes are on their way to the disk.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    is_asked: bool,
    is_running: bool,
    failed: Option<(io::ErrorKind, String)>,
}

impl Disk {
    pub(super) fn new(file: File) -> Self {
        Self(Arc::new(Shared { file, work: Mutex::default() }))
    }

    /// Has everything that was written so far brought to the disk. Outside of a runtime it waits for that.
    ///
    /// # Errors
    /// What an earlier attempt failed with, for ever after.
    pub(super) fn bring(&self) -> io::Result<()> {
        let begins = {
            let mut work = self.work();
            work.failure()?;
            work.is_asked = true;
            !std::mem::replace(&mut work.is_running, true)
        };
        if begins {
            let disk = self.clone();
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || disk.run())),
                Err(_) => disk.run(),
            }
        }
        self.failure()
    }

    /// # Errors
    /// What an attempt failed with.
    pub(super) fn failure(&self) -> io::Result<()> {
        self.work().failure()
    }

    /// Waits until everything that was written so far is on the disk.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.failure()?;
        self.0.file.sync_data()
    }

    fn run(&self) {
        while self.has_more() {
            if let Err(error) = self.0.file.sync_data() {
                let mut work = self.work();
                work.failed = Some((error.kind(), error.to_string()));
                work.is_running = false;
                return;
            }
        }
    }

    fn has_more(&self) -> bool {
        let mut work = self.work();
        work.is_running = std::mem::take(&mut work.is_asked);
        work.is_running
    }

    fn work(&self) -> std::sync::MutexGuard<'_, Work> {
        self.0.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn failure(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::Disk;

    #[test]
    fn what_a_disk_does_not_take_is_told_at_every_line_after_it() {
        // A pipe cannot be synchronised.
        let (_reader, writer) = std::io::pipe().unwrap();
        let disk = Disk::new(File::from(std::os::fd::OwnedFd::from(writer)));
        disk.failure().unwrap();
        assert!(disk.bring().is_err());
        assert!(disk.bring().is_err());
        assert!(disk.failure().is_err());
    }

    #[tokio::test]
    async fn nobody_waits_in_a_runtime_and_a_failure_is_told_later() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let disk = Disk::new(File::from(std::os::fd::OwnedFd::from(writer)));
        let _ = disk.bring();
        while disk.failure().is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(disk.bring().is_err());
    }

    #[test]
    fn a_file_is_brought_to_the_disk_as_often_as_it_is_asked() {
        let mut file = tempfile::tempfile().unwrap();
        let disk = Disk::new(file.try_clone().unwrap());
        for _ in 0..3 {
            file.write_all(b"line\n").unwrap();
            disk.bring().unwrap();
        }
        disk.finish().unwrap();
    }
}
