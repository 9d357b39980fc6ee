//! A gateway at which every door asks for something, and callers with and without it.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, WAIT_TIMEOUT, gsv::TOKEN, http::HttpClient,
};
use serde_json::json;

/// Password of the login.
pub(crate) const PASSWORD: &str = "pass-web-4c2f9a71";

/// Rules that ask about the shell, and let the rest through.
pub(crate) const SHELL: &str =
    "defaults:\n  - { pattern: 'bash(*', action: ask }\n  - { pattern: '*', action: allow }\n";

/// Returns the lines of the configuration that close every door.
pub(crate) fn closed() -> String {
    format!("clients: {{ token: {TOKEN} }}\nweb: {{ password: {PASSWORD} }}\n")
}

pub(crate) struct SecurityFixture {
    pub(crate) scene: GatewayFixture,
    pub(crate) gateway: GatewayServer,
}

impl SecurityFixture {
    pub(crate) fn new() -> Self {
        let scene = GatewayOptions::for_models().with_config(&closed()).create();
        let gateway = scene.start();
        Self { scene, gateway }
    }

    /// Creates it with a front end, whose routes exist then.
    pub(crate) fn with_front() -> Self {
        let scene = GatewayOptions::for_models().with_config(&closed()).create();
        let folder = scene.folder.join("front");
        std::fs::create_dir(&folder).unwrap();
        for name in ["index.html", "sw.js", "manifest.json", "favicon.ico", "1"] {
            std::fs::write(folder.join(name), "{}").unwrap();
        }
        let gateway = GatewayServer::start_with(&scene, &["--webui", "front"]);
        Self { scene, gateway }
    }

    /// Returns a new token of the interface for programs.
    pub(crate) fn create_program_token(&self, name: &str, scopes: &str) -> String {
        let made = self.scene.run_as_person(&["tokens", "add", name, "--scope", scopes, "--json"]).json();
        made["token"].as_str().unwrap().to_owned()
    }

    /// Returns the cookie of a login, as `name=value`.
    pub(crate) fn login_cookie(&self) -> String {
        let http = HttpClient::new(&self.gateway.address);
        let reply = http.post("/api/auth/login", &json!({ "password": PASSWORD }));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    pub(crate) fn request_head(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> ResponseHead {
        request_head(&self.gateway.address, method, path, headers)
    }
}

/// Head of an answer.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) head: String,
}

impl ResponseHead {
    /// Reports whether the caller was rejected: unknown, not allowed, rate-limited for a while, or sent to the login.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.status, 401 | 403 | 429) || (self.status == 302 && self.head.contains("location: /login"))
    }
}

/// Asks for something and reads as far as the end of the head: what follows may have no end.
pub(crate) fn request_head(address: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> ResponseHead {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let named = headers.iter().any(|(name, _)| *name == "host");
    let host = if named { String::new() } else { format!("host: {address}\r\n") };
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\n{host}{more}content-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let (mut head_bytes, mut byte) = (Vec::new(), [0]);
    while !head_bytes.ends_with(b"\r\n\r\n") {
        assert!(stream.read(&mut byte).unwrap() > 0, "{method} {path}: no head, but {head_bytes:?}");
        head_bytes.push(byte[0]);
    }
    let head = String::from_utf8(head_bytes).unwrap().to_lowercase();
    ResponseHead { status: head.split_whitespace().nth(1).unwrap().parse().unwrap(), head }
}

/// Headers with which a browser opens a WebSocket.
pub(crate) const UPGRADE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// One way in over the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtectedRoute {
    pub(crate) name: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) is_socket: bool,
}

const fn page(name: &'static str, method: &'static str, path: &'static str) -> ProtectedRoute {
    ProtectedRoute { name, method, path, is_socket: false }
}

const fn socket(name: &'static str, path: &'static str) -> ProtectedRoute {
    ProtectedRoute { name, method: "GET", path, is_socket: true }
}

/// Every endpoint of a gateway's port, with a request to it.
pub(crate) const PROTECTED_ROUTES: [ProtectedRoute; 13] = [
    socket("agent-gate", "/"),
    socket("agent-gate at any path", "/agent"),
    socket("gsv", "/ws"),
    page("login", "POST", "/login"),
    page("console", "GET", "/console/"),
    page("console, live", "GET", "/console/live"),
    page("console, acting", "POST", "/console/answers"),
    page("hermes", "GET", "/api/sessions"),
    page("hermes, streaming", "GET", "/api/approval/stream?session_id=x"),
    page("api", "GET", "/api/v1/gates"),
    page("api, streaming", "GET", "/api/v1/events"),
    page("webhook", "POST", "/channels/webhook"),
    page("health", "GET", "/healthz"),
];

impl ProtectedRoute {
    pub(crate) fn request_head(&self, address: &str, headers: &[(&str, &str)]) -> ResponseHead {
        let upgrade: &[(&str, &str)] = if self.is_socket { &UPGRADE } else { &[] };
        request_head(address, self.method, self.path, &[upgrade, headers].concat())
    }
}

/// A host that embeds the agent over two pipes, as far as these tests need it.
pub(crate) mod stdio_host {
    use std::{
        fs,
        io::{BufRead as _, BufReader, Read as _, Write as _},
        path::{Path, PathBuf},
        process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    };

    use serde_json::Value;

    use countersign_testkit::process::GatewayFixture;

    /// Key that a host's agent shows to the provider.
    pub(crate) const KEY: &str = "sk-host-9d41c07be2";

    /// Returns an agent directory with a model that is at the scene's provider, and rules.
    pub(crate) fn agent_dir(scene: &GatewayFixture, rules: &str) -> PathBuf {
        let folder = scene.folder.join("agent");
        let _ = fs::create_dir(&folder);
        let model = "{ id: fake-1, name: One, reasoning: false, input: [text], cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 0.2 }, contextWindow: 128000, maxTokens: 8192 }";
        let models = format!(
            "providers:\n  fake:\n    baseUrl: {}/v1\n    apiKey: {KEY}\n    api: openai-completions\n    models: [ {model} ]\n",
            scene.provider.url
        );
        fs::write(folder.join("models.yml"), models).unwrap();
        fs::write(folder.join("permissions.yaml"), rules).unwrap();
        folder
    }

    pub(crate) struct StdioHost {
        child: Child,
        input: Option<ChildStdin>,
        output: BufReader<ChildStdout>,
        errors: Option<ChildStderr>,
        /// Its whole output.
        pub(crate) transcript: String,
    }

    impl StdioHost {
        pub(crate) fn start(
            scene: &GatewayFixture,
            product: &str,
            variable: &str,
            agent: &Path,
            more: &[(&str, &str)],
        ) -> Self {
            let mut command = scene.binary_command();
            command.args([product, "--mode", "rpc", "--model", "fake/fake-1"]).env(variable, agent);
            command.envs(more.iter().copied());
            Self::spawn(command)
        }

        /// Starts a host of omp that works in `folder`, with more arguments.
        pub(crate) fn start_in(scene: &GatewayFixture, agent: &Path, folder: &Path, more: &[&str]) -> Self {
            let mut command = scene.binary_command();
            command.args(["omp", "--mode", "rpc", "--model", "fake/fake-1"]).args(more);
            command.env("PI_CODING_AGENT_DIR", agent).current_dir(folder);
            Self::spawn(command)
        }

        fn spawn(mut command: Command) -> Self {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let (input, errors) = (child.stdin.take(), child.stderr.take());
            let output = BufReader::new(child.stdout.take().unwrap());
            let mut host = Self { child, input, output, errors, transcript: String::new() };
            host.wait_frame("ready", |frame| frame["type"] == "ready");
            host
        }

        pub(crate) fn send_frame(&mut self, frame: &Value) {
            self.input.as_mut().unwrap().write_all(format!("{frame}\n").as_bytes()).unwrap();
        }

        /// Returns the first frame from here on that fits.
        pub(crate) fn wait_frame(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
            loop {
                let mut line = String::new();
                let count = self.output.read_line(&mut line).unwrap();
                assert!(count > 0, "it ended before {what}: {}", self.transcript);
                self.transcript.push_str(&line);
                let frame: Value = serde_json::from_str(&line).unwrap();
                if fits(&frame) {
                    return frame;
                }
            }
        }

        /// Ends it, and returns its whole output, errors too.
        pub(crate) fn close_and_read(mut self) -> String {
            drop(self.input.take());
            let mut rest = std::mem::take(&mut self.transcript);
            self.output.read_to_string(&mut rest).unwrap();
            self.errors.take().unwrap().read_to_string(&mut rest).unwrap();
            self.child.wait().unwrap();
            rest
        }
    }

    impl Drop for StdioHost {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
