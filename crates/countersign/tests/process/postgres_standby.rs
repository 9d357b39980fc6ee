//! A standby of a server, and a server whose tables are on a small disk.

use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, chown};

use crate::postgres_server::{PostgresServer, as_user, client_program, find_binaries, server_user};

/// Mounts a disk of this size at `small` in the folder, seen only by the server, and removes both at the end of the keeper.
const WITH_DISK: &str = r#"
folder=$0
mount -t tmpfs -o "size=$SIZE,mode=700,uid=$OWNER,gid=$OWNER_GROUP" none "$folder/small" || exit 1
setpriv --reuid="$OWNER" --regid="$OWNER_GROUP" --clear-groups "$@"
umount -l "$folder/small"
rm -rf "$folder"
"#;

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

    /// Starts a server for one test with a disk of this size at `small` in its folder; none where that is not possible.
    pub(crate) fn start_with_disk(size: &str) -> Option<Self> {
        let works = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let owner = server_user();
        let mounts = works("unshare", &["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
            && works("setpriv", &["--clear-groups", "true"]);
        let (Some((uid, gid)), true) = (owner, mounts) else {
            eprintln!("skipped: this system does not let the test mount a small disk");
            return None;
        };
        let script = WITH_DISK
            .replace("$SIZE", size)
            .replace("$OWNER_GROUP", &gid.to_string())
            .replace("$OWNER", &uid.to_string());
        let by = ["unshare", "-m", "sh", "-c", script.as_str()];
        Self::start_by(&by, &[], |folder| std::fs::create_dir(folder.join("small")).unwrap())
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
