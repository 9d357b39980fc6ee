//! A standby of a server.

use std::process::Command;

use nix::unistd::{Gid, Uid, chown};

use crate::postgres_server::{PostgresServer, as_user, client_program, find_binaries, server_user};

impl PostgresServer {
    /// Starts a standby that follows this server, with the databases that it has now.
    pub(crate) fn start_standby(&self) -> Self {
        let binaries = find_binaries().unwrap();
        let owner = server_user();
        let folder = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").unwrap().keep();
        if let Some((uid, gid)) = owner {
            chown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
        }
        let copied = as_user(&mut Command::new(client_program(&binaries, "pg_basebackup")), owner)
            .args([
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
                "--username=postgres",
            ])
            .arg("--host")
            .arg(&self.folder)
            .arg("--pgdata")
            .arg(folder.join("data"))
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let standby = Self::run_folder(folder, &binaries, &[], &[]);
        standby.run_sql("postgres", "SELECT 1");
        standby
    }

    /// Makes the server accept writes that its primary no longer accepts.
    pub(crate) fn promote(&self) {
        self.run_sql("postgres", "SELECT pg_promote()");
    }

    /// Waits until the query has a row.
    pub(crate) fn wait_for_row(&self, query: &str) {
        let waiting = format!(
            "DO $$ BEGIN FOR turn IN 1..3000 LOOP
                 IF EXISTS ({query}) THEN RETURN; END IF;
                 PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
             END LOOP; RAISE EXCEPTION 'no row came'; END $$"
        );
        self.run_sql("postgres", &waiting);
    }

    /// Returns the address of a database at whichever of two servers accepts writes.
    pub(crate) fn url_with(&self, standby: &Self, database: &str) -> String {
        let (first, second) = (self.folder.display(), standby.folder.display());
        format!("host={first},{second} user=postgres dbname={database} target_session_attrs=read-write")
    }
}
