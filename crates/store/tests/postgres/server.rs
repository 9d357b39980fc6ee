//! A server of its own for the tests, in a temporary folder, on a Unix socket, under an ordinary user.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use nix::unistd::{Gid, Uid, User, chown};

/// Keeps the server running until its input ends, which it does with the test's process. It restarts the server when told to.
const KEEPER: &str = r#"
folder=$1 postgres=$2; shift 2
start() {
    "$postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c max_connections=300 "$@" >>"$folder/log" 2>&1 &
    pid=$!
}
start "$@"
while read -r line; do
    case $line in
    kill) kill -KILL $pid; wait $pid 2>/dev/null ;;
    start) case $(cat /proc/$pid/stat 2>/dev/null) in "" | *") Z "*) start "$@" ;; esac ;;
    esac
    echo done
done
kill -TERM $pid; kill -INT $pid; wait $pid 2>/dev/null
rm -rf "$folder"
"#;

/// A running server.
pub(crate) struct PostgresServer {
    pub(crate) folder: PathBuf,
    psql: PathBuf,
    keeper: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    databases: AtomicU32,
    _child: Child,
}

impl PostgresServer {
    /// Returns the server that all tests of this process share; none where PostgreSQL is not installed.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[], |_| {})).as_ref()
    }

    /// Starts a server for one test, after `prepare` has put files into its folder.
    pub(crate) fn start(settings: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        Self::start_by(&[], settings, prepare)
    }

    /// Starts it by a command that gets the folder, and then the command line of the server's keeper. Such a command changes to the user of
    /// the server itself.
    pub(crate) fn start_by(by: &[&str], settings: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        let Some(binaries) = find_binaries() else {
            eprintln!("skipped: PostgreSQL is not installed (no initdb on the PATH or in /usr/lib/postgresql)");
            return None;
        };
        let owner = server_user();
        let folder = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").unwrap().keep();
        prepare(&folder);
        if let Some((uid, gid)) = owner {
            let own = |path: &Path| chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
            fs::read_dir(&folder).unwrap().for_each(|entry| own(&entry.unwrap().path()));
            own(&folder);
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let made = as_user(&mut Command::new(binaries.join("initdb")), owner)
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(folder.join("data"))
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(Self::run_folder(folder, &binaries, by, settings))
    }

    /// Starts the server of a folder that has its files.
    pub(crate) fn run_folder(folder: PathBuf, binaries: &Path, by: &[&str], settings: &[&str]) -> Self {
        let mut command = match by {
            [] => Command::new("sh"),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&folder).arg("sh");
                command
            }
        };
        let mut child = as_user(&mut command, if by.is_empty() { server_user() } else { None })
            .args(["-c", KEEPER, "keeper"])
            .arg(&folder)
            .arg(binaries.join("postgres"))
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(&folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keeper = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let psql = client_program(binaries, "psql");
        Self { folder, psql, keeper: Mutex::new(keeper), databases: AtomicU32::new(0), _child: child }
    }

    /// Ends the server as a power cut would.
    pub(crate) fn kill(&self) {
        self.command("kill");
    }

    /// Starts it again.
    pub(crate) fn restart(&self) {
        self.command("start");
    }

    fn command(&self, command: &str) {
        let mut keeper = self.keeper.lock().unwrap();
        writeln!(keeper.0, "{command}").unwrap();
        let mut line = String::new();
        keeper.1.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    /// Returns the address of a database for a role.
    pub(crate) fn url(&self, role: &str, database: &str) -> String {
        format!("host={} user={role} dbname={database}", self.folder.display())
    }

    /// Makes an empty database, as soon as the server lets anybody in.
    pub(crate) fn make_database(&self) -> String {
        let name = format!("log{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.run_sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Runs statements as the administrator, as soon as the server lets anybody in.
    pub(crate) fn run_sql(&self, database: &str, sql: &str) {
        let address = self.url("postgres", database);
        for attempt in 1..=600 {
            let output = Command::new(&self.psql)
                .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", &address, "--command", sql])
                .env("PGCONNECT_TIMEOUT", "5")
                .output()
                .unwrap();
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                return;
            }
            assert!(problem.contains("connection to server"), "{problem}");
            // The children of a killed server hold its memory for a moment, and it does not start until they are gone.
            if attempt % 20 == 0 {
                self.restart();
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
    }
}

/// Returns the folder with the programs of the server.
pub(crate) fn find_binaries() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(debian.map(|version| version.path().join("bin")));
    folders.into_iter().find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// Returns the path of a program of clients, which may be in another folder than those of the server.
pub(crate) fn client_program(binaries: &Path, name: &str) -> PathBuf {
    let beside = binaries.join(name);
    if beside.exists() { beside } else { PathBuf::from(name) }
}

/// Returns the user of the server: the server refuses to run as root.
pub(crate) fn server_user() -> Option<(u32, u32)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let found = ["postgres", "nobody"].iter().find_map(|name| User::from_name(name).ok().flatten());
    found.map(|user| (user.uid.as_raw(), user.gid.as_raw()))
}

/// Makes a command run as the user of the server.
pub(crate) fn as_user(command: &mut Command, owner: Option<(u32, u32)>) -> &mut Command {
    match owner {
        Some((uid, gid)) => command.uid(uid).gid(gid),
        None => command,
    }
}
