use std::{fs, path::Path, time::Duration};

use countersign_config::{McpServerConfig, McpTransportConfig};
use secrecy::ExposeSecret as _;

use super::{McpServers, ProjectServers};
use crate::{AgentDir, AgentProduct, ProcessEnvironment};

/// A home with an agent directory, and a project in it.
struct McpFixture(tempfile::TempDir);

impl McpFixture {
    /// Writes files below the home, each with its content.
    fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = fixture.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fixture
    }

    /// Writes one entry into the user's file.
    fn with_user_entry(entry: &str) -> Self {
        Self::new(&[(USER, &format!("{{\"mcpServers\": {{\"x\": {entry}}}}}"))])
    }

    /// Writes one entry into the project's file.
    fn with_project_entry(entry: &str) -> Self {
        Self::new(&[(PROJECT, &format!("{{\"mcpServers\": {{\"x\": {entry}}}}}"))])
    }

    fn load_with(&self, project: ProjectServers, variables: &[(&str, &str)]) -> McpServers {
        let home = self.0.path();
        let cwd = home.join("work");
        let variables = variables.iter().copied().chain([("HOME", home.to_str().unwrap())]);
        let environment: ProcessEnvironment = variables.collect();
        let folder = AgentDir::resolve(AgentProduct::Omp, &environment, &cwd, |_| false).unwrap();
        McpServers::load(&folder, &cwd, &environment, project)
    }

    fn load(&self) -> McpServers {
        self.load_with(ProjectServers::Read, VARIABLES)
    }

    /// Returns one line for each server, without the folder's name.
    fn rows(&self) -> Vec<String> {
        self.load().servers.iter().map(|server| self.relative(&row(server))).collect()
    }

    fn problems(&self) -> Vec<String> {
        self.load().problems.iter().map(|problem| self.relative(problem)).collect()
    }

    fn relative(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

const USER: &str = ".omp/agent/mcp.json";
const PROJECT: &str = "work/.mcp.json";
const NONE_USED: &str = "no MCP server is used until this is corrected";
const VARIABLES: &[(&str, &str)] = &[("TOOLS", "/opt/tools"), ("GITHUB_TOKEN", "gh-secret"), ("EMPTY", "")];

fn row(server: &McpServerConfig) -> String {
    let secrets = |(name, value): (&String, &secrecy::SecretString)| format!("{name}={}", value.expose_secret());
    let transport = match &server.transport {
        McpTransportConfig::Stdio { command, args, env, cwd } => {
            let env: Vec<String> = env.iter().map(secrets).collect();
            let cwd = cwd.as_deref().unwrap_or_else(|| Path::new("-"));
            format!("{command} {args:?} {env:?} {}", cwd.display())
        }
        McpTransportConfig::Http { url, headers, auth } => {
            let headers: Vec<String> = headers.iter().map(|(name, value)| secrets((name, value))).collect();
            format!("{url} {headers:?} {}", auth.is_some())
        }
    };
    let state = if server.enabled { "on" } else { "off" };
    format!("{} {:?} {transport} {:?} {state}", server.name, server.origin, server.timeout)
}

/// Returns a file with a server for each name, whose command tells which file it is.
fn servers_of(command: &str, names: &[&str]) -> String {
    let entries: Vec<String> = names.iter().map(|name| format!("\"{name}\": {{\"command\": \"{command}\"}}")).collect();
    format!("{{\"mcpServers\": {{{}}}}}", entries.join(", "))
}

#[test]
fn a_server_is_read_with_every_member() {
    let fixture = McpFixture::new(&[(
        USER,
        r#"{
            "$schema": "https://example.com/schema.json",
            "mcpServers": {
                "files": {
                    "type": "stdio", "command": "${TOOLS}/run", "args": ["-y", "", "${NONE:-a b}"],
                    "env": {"TOKEN": "GITHUB_TOKEN", "MODE": "x-${EMPTY}-y", "BLANK": ""}, "cwd": "sub", "timeout": 120000
                },
                "bare": {"command": "npx"},
                "wiki": {"type": "http", "url": "https://wiki.example/mcp/", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
                    "oauth": {"clientId": "x"}, "timeout": 0, "requestIdFormat": "string"},
                "inferred": {"url": "http://127.0.0.1/mcp", "timeout": 20, "enabled": false, "auth": {"type": "apikey"}},
                "nulls": {"command": "npx", "url": null, "args": null, "env": null, "cwd": null, "timeout": null, "type": null, "tools": ["*"],
                    "disabledTools": [], "autoApprove": ["read"], "alwaysAllow": ["read"], "disabled": false}
            }
        }"#,
    )]);
    assert_eq!(
        fixture.rows(),
        [
            r#"files User /opt/tools/run ["-y", "", "a b"] ["BLANK=", "MODE=x--y", "TOKEN=gh-secret"] work/sub 120s on"#,
            "bare User npx [] [] - 300s on",
            r#"wiki User https://wiki.example/mcp/ ["Authorization=Bearer gh-secret"] false 86400s on"#,
            "inferred User http://127.0.0.1/mcp [] false 20s off",
            "nulls User npx [] [] - 300s on",
        ]
    );
    assert_eq!(fixture.problems(), Vec::<String>::new());
}

#[test]
fn the_user_precedes_the_project_and_a_project_only_switches_off() {
    let fixture = McpFixture::new(&[
        (USER, &servers_of("user-1", &["a", "b"])),
        (".omp/agent/.mcp.json", &servers_of("user-2", &["b", "c"])),
        ("work/.omp/mcp.json", &servers_of("project-1", &["c", "d", "A"])),
        ("work/.omp/.mcp.json", &servers_of("project-2", &["d", "e"])),
        ("work/mcp.json", &servers_of("project-3", &["e", "f"])),
        (
            "work/.mcp.json",
            r#"{"mcpServers": {"f": {"command": "p"}, "a": {"command": "p", "enabled": false}, "g": {"command": "p"}}}"#,
        ),
    ]);
    assert_eq!(
        fixture.rows(),
        [
            "a User user-1 [] [] - 300s off",
            "b User user-1 [] [] - 300s on",
            "c User user-2 [] [] - 300s on",
            "d Project project-1 [] [] - 300s on",
            "e Project project-2 [] [] - 300s on",
            "f Project project-3 [] [] - 300s on",
            "g Project p [] [] - 300s on",
        ]
    );
    let left_out = |file: &str, name: &str, first: &str| {
        format!("{file}: mcpServers.{name}: left out: {first} defines a server of this name")
    };
    assert_eq!(
        fixture.problems(),
        [
            left_out(".omp/agent/.mcp.json", "b", USER),
            left_out("work/.omp/mcp.json", "c", ".omp/agent/.mcp.json"),
            left_out("work/.omp/mcp.json", "A", USER),
            left_out("work/.omp/.mcp.json", "d", "work/.omp/mcp.json"),
            left_out("work/mcp.json", "e", "work/.omp/.mcp.json"),
            left_out("work/.mcp.json", "f", "work/mcp.json"),
        ]
    );
    let ignored = fixture.load_with(ProjectServers::Ignored, &[]);
    let names: Vec<&str> = ignored.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!((names, ignored.servers[0].enabled), (vec!["a", "b", "c"], true));
}

#[test]
fn a_project_does_not_get_the_name_of_a_faulty_server_of_the_user() {
    let fixture = McpFixture::new(&[
        (USER, r#"{"mcpServers": {"a": {"type": "sse", "url": "https://h/"}}}"#),
        (PROJECT, &servers_of("project", &["a"])),
    ]);
    assert_eq!(fixture.rows(), Vec::<String>::new());
    assert_eq!(fixture.problems().len(), 2, "{:?}", fixture.problems());
}

#[test]
fn a_list_of_names_switches_servers_off_and_on() {
    let entries =
        r#""a": {"command": "x"}, "b": {"command": "x", "enabled": false}, "c": {"command": "x", "enabled": false}"#;
    for (lists, project, want) in [
        ("", "", ["on", "off", "off"]),
        (r#", "disabledServers": ["a", "none"]"#, "", ["off", "off", "off"]),
        (r#", "enabledServers": ["b", "C"]"#, "", ["on", "on", "on"]),
        (r#", "enabledServers": ["b"], "disabledServers": ["B"]"#, "", ["on", "off", "off"]),
        (r#", "enabledServers": ["b"]"#, r#"{"disabledServers": ["b"]}"#, ["on", "off", "off"]),
        ("", r#"{"enabledServers": ["b"], "disabledServers": ["a"]}"#, ["off", "off", "off"]),
    ] {
        let user = format!("{{\"mcpServers\": {{{entries}}}{lists}}}");
        let fixture = McpFixture::new(&[(USER, &user), (PROJECT, project)]);
        let states: Vec<&str> =
            fixture.load().servers.iter().map(|server| if server.enabled { "on" } else { "off" }).collect();
        assert_eq!(states, want, "{lists} {project}");
    }
    for (list, problem) in [
        (r#""a""#, "disabledServers: expected a list, found other text"),
        ("[1]", "disabledServers.0: expected text (quote it if it looks like something else), found a number"),
        ("[null]", "disabledServers.0: expected the name of a server, found nothing"),
    ] {
        let user = format!("{{\"mcpServers\": {{{entries}}}, \"disabledServers\": {list}}}");
        let fixture = McpFixture::new(&[(USER, &user)]);
        assert_eq!(fixture.rows(), Vec::<String>::new(), "{list}");
        assert_eq!(fixture.problems(), [format!("{USER}: {problem}; {NONE_USED}")]);
    }
    // It is not known which servers these files deny.
    for (text, problem) in [
        ("{", ":1: EOF while parsing an object at line 1 column 1"),
        ("[]", ": expected a mapping, found a list"),
        (r#"{"disabledServer": ["p"]}"#, ": disabledServer: unknown key; did you mean \"disabledServers\"?"),
    ] {
        let fixture = McpFixture::new(&[(USER, text), (PROJECT, &servers_of("p", &["p"]))]);
        assert_eq!(fixture.rows(), Vec::<String>::new(), "{text}");
        assert_eq!(fixture.problems(), [format!("{USER}{problem}; {NONE_USED}")]);
    }
    let fixture = McpFixture::new(&[(USER, &format!("{{\"mcpServers\": {{{entries}}}, \"enabledServers\": 1}}"))]);
    assert_eq!(fixture.load().servers.len(), 3);
    assert_eq!(fixture.problems(), [format!("{USER}: enabledServers: expected a list, found a number")]);
}

#[test]
fn a_faulty_entry_is_left_out_with_its_reason() {
    const NAME: &str = "invalid server name: expected 1 to 32 letters, digits, _ and -";
    for (entry, want) in [
        ("1", "x: expected a mapping, found a number"),
        ("{}", "x: expected command for a program, or url for an address"),
        ("null", "x: expected command for a program, or url for an address"),
        (r#"{"command": "a", "url": "https://h/"}"#, "x: command and url exclude each other: expected command"),
        (r#"{"type": "sse", "url": "https://h/"}"#, "x.type: sse is not supported here; expected stdio or http"),
        (r#"{"type": "ws", "url": "https://h/"}"#, "x.type: expected stdio or http, found other text"),
        (r#"{"type": 1, "url": "https://h/"}"#, "x.type: expected text"),
        (r#"{"type": "stdio", "url": "https://h/"}"#, "x: expected command, which a server of the type stdio needs"),
        (r#"{"type": "http", "command": "a"}"#, "x: expected url, which a server of the type http needs"),
        (r#"{"type": "http"}"#, "x: expected url, which a server of the type http needs"),
        (r#"{"command": ""}"#, "x.command: expected the program of the server, found other text"),
        (r#"{"command": ["a"]}"#, "x.command: expected text"),
        (r#"{"command": "a\u0000b"}"#, "x.command: expected text without line breaks and other control characters"),
        (r#"{"command": "a", "args": "b"}"#, "x.args: expected a list, found other text"),
        (r#"{"command": "a", "args": [1]}"#, "x.args.0: expected text"),
        (r#"{"command": "a", "args": [null]}"#, "x.args.0: expected text, found nothing"),
        (r#"{"command": "a", "args": ["b\nc"]}"#, "x.args.0: expected text without line breaks"),
        (r#"{"command": "a", "env": ["B"]}"#, "x.env: expected a mapping, found a list"),
        (r#"{"command": "a", "env": {"B": 1}}"#, "x.env.B: expected text"),
        (r#"{"command": "a", "env": {"B": null}}"#, "x.env.B: expected text, found nothing"),
        (r#"{"command": "a", "env": {"B-C": "x"}}"#, "x.env.B-C: invalid variable name"),
        (r#"{"command": "a", "env": {"LD_PRELOAD": "x"}}"#, "x.env.LD_PRELOAD: refused variable"),
        (r#"{"command": "a", "env": {"B": "\u0000"}}"#, "x.env.B: the value of a variable must not contain a NUL"),
        (r#"{"command": "a", "env": {"B": "!pass x"}}"#, "x.env.B: a value that starts with ! is a command"),
        (r#"{"command": "a", "cwd": 1}"#, "x.cwd: expected text"),
        (r#"{"command": "a", "cwd": "\t"}"#, "x.cwd: expected text without line breaks"),
        (r#"{"command": "a", "enabled": "no"}"#, "x.enabled: expected true or false, found other text"),
        (r#"{"command": "a", "timeout": "60s"}"#, "x.timeout: expected a number, found other text"),
        (r#"{"command": "a", "timeout": -1}"#, "x.timeout: expected a number that is not negative, found a number"),
        (r#"{"command": "a", "disabledTools": ["b"]}"#, "x.disabledTools: this member restricts and is not enforced"),
        (r#"{"command": "a", "enabledTools": ["b"]}"#, "x.enabledTools: this member restricts and is not enforced"),
        (r#"{"command": "a", "tools": ["b"]}"#, "x.tools: this member restricts and is not enforced"),
        (r#"{"command": "a", "tools": []}"#, "x.tools: this member restricts and is not enforced"),
        (r#"{"command": "a", "disabled": true}"#, "x.disabled: this member restricts and is not enforced"),
        (r#"{"command": "a", "sandbox": {"mode": "strict"}}"#, "x.sandbox: this member restricts and is not enforced"),
        (r#"{"url": "ftp://h/"}"#, "x.url: expected an address that starts with http:// or https://"),
        (r#"{"url": ""}"#, "x.url: expected an address that starts with http:// or https://"),
        (r#"{"url": "https://${NONE}/"}"#, "x.url: expected an address that starts with http:// or https://"),
        (r#"{"url": "https://u:p@h/"}"#, "x.url: expected an address without a user and a password"),
        (r#"{"url": "https://h/#a"}"#, "x.url: expected an address without a fragment"),
        (r#"{"url": "https://h/", "headers": {"Host": "x"}}"#, "x.headers.Host: refused header"),
        (r#"{"url": "https://h/", "headers": {"X Y": "x"}}"#, "x.headers.X Y: invalid header name"),
        (r#"{"url": "https://h/", "headers": {"X": "a\r\nb"}}"#, "x.headers.X: the value of a header must be"),
        (
            r#"{"url": "https://h/", "headers": {"X": "!pass x"}}"#,
            "x.headers.X: a value that starts with ! is a command",
        ),
        (
            r#"{"url": "https://h/", "headers": {"X-A": "b", "x-a": "c"}}"#,
            "x.headers.x-a: another header of this server",
        ),
        (r#"{"url": "https://h/", "auth": {"type": "oauth"}}"#, "x.auth: signing in with a browser is not supported"),
        (r#"{"url": "https://h/", "oauth": {"clientId": "x"}}"#, "x.oauth: signing in with a browser is not supported"),
        (r#"{"url": "https://h/", "auth": {"type": "magic"}}"#, "x.auth.type: expected oauth or apikey"),
    ] {
        let fixture = McpFixture::with_user_entry(entry);
        let problems = fixture.problems();
        let last = problems.last().map(String::as_str).unwrap_or_default();
        assert!(last.starts_with(&format!("{USER}: mcpServers.{want}")), "{entry}\n{problems:#?}");
        assert_eq!(fixture.rows(), Vec::<String>::new(), "{entry}");
    }
    for name in ["", "a__b", "a_", "cloudflare:api", "a.b", &"a".repeat(33)] {
        let fixture = McpFixture::new(&[(USER, &servers_of("a", &[name, "sound"]))]);
        assert_eq!(fixture.rows(), ["sound User a [] [] - 300s on"], "{name}");
        let want = format!("{USER}: mcpServers.{name}: {NAME}");
        assert!(fixture.problems().len() == 1 && fixture.problems()[0].starts_with(&want), "{:?}", fixture.problems());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_count() {
    for (text, want) in [
        ("{", format!("{PROJECT}:1: EOF while parsing an object at line 1 column 1")),
        ("[]", format!("{PROJECT}: expected a mapping, found a list")),
        (r#"{"mcpServers": []}"#, format!("{PROJECT}: mcpServers: expected a mapping, found a list")),
        (r#"{"mcpServer": {}}"#, format!("{PROJECT}: mcpServer: unknown key; did you mean \"mcpServers\"?")),
        (
            r#"{"disabledServer": ["a"]}"#,
            format!("{PROJECT}: disabledServer: unknown key; did you mean \"disabledServers\"?"),
        ),
        (r#"{"servers": {}}"#, format!("{PROJECT}: servers: unknown key; the servers are under \"mcpServers\"")),
    ] {
        let fixture = McpFixture::new(&[(USER, &servers_of("user", &["a"])), (PROJECT, text)]);
        assert_eq!(fixture.problems(), [want], "{text}");
        assert_eq!(fixture.rows(), ["a User user [] [] - 300s on"], "{text}");
    }
    for text in ["{}", r#"{"mcpServers": null}"#, r#"{"inputs": [], "other": 1}"#] {
        assert_eq!(McpFixture::new(&[(PROJECT, text)]).problems(), Vec::<String>::new(), "{text}");
    }
    let folder = McpFixture::new(&[("work/.mcp.json/file", "")]);
    assert_eq!(folder.problems(), [format!("{PROJECT}: it is not a regular file")]);
}

#[test]
fn a_project_gets_no_credential_of_the_environment() {
    let why = "GITHUB_TOKEN may hold a credential, and a project's file cannot use it";
    for (entry, key) in [
        (r#"{"command": "a", "args": ["${GITHUB_TOKEN}"]}"#, "x.args.0"),
        (r#"{"command": "a", "env": {"T": "GITHUB_TOKEN"}}"#, "x.env.T"),
        (r#"{"url": "https://h/?t=${GITHUB_TOKEN}"}"#, "x.url"),
        (r#"{"url": "https://h/", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}}"#, "x.headers.Authorization"),
    ] {
        let project = McpFixture::with_project_entry(entry);
        assert_eq!(project.rows(), Vec::<String>::new(), "{entry}");
        let problems = project.problems();
        assert!(problems[0].starts_with(&format!("{PROJECT}: mcpServers.{key}: {why}")), "{problems:?}");
        assert_eq!(McpFixture::with_user_entry(entry).rows().len(), 1, "{entry}");
    }
    let plain = McpFixture::with_project_entry(r#"{"command": "${TOOLS}/x"}"#);
    assert_eq!(plain.rows(), ["x Project /opt/tools/x [] [] - 300s on"]);
}

#[test]
fn a_variable_that_is_not_set_stays_in_the_text_and_is_reported() {
    let fixture = McpFixture::with_user_entry(r#"{"command": "a", "args": ["${NONE}"]}"#);
    assert_eq!(fixture.rows(), [r#"x User a ["${NONE}"] [] - 300s on"#]);
    let want = "the environment variable NONE is not set, so ${NONE} stays in the text";
    assert_eq!(fixture.problems(), [format!("{USER}: mcpServers.x.args.0: {want}")]);
}

#[test]
fn one_variable_sets_the_time_limit_of_every_server() {
    let fixture = McpFixture::with_user_entry(r#"{"command": "a", "timeout": 60000}"#);
    let ignored = "OMP_MCP_TIMEOUT_MS was ignored: expected a number of milliseconds";
    for (value, timeout, problems) in [
        ("120000", Duration::from_secs(120), vec![]),
        ("500", Duration::from_millis(500), vec![]),
        ("0", Duration::from_secs(86_400), vec![]),
        ("1e300", Duration::from_secs(86_400), vec![]),
        ("soon", Duration::from_secs(60), vec![ignored]),
        ("-1", Duration::from_secs(60), vec![ignored]),
        ("", Duration::from_secs(60), vec![]),
    ] {
        let loaded = fixture.load_with(ProjectServers::Read, &[("OMP_MCP_TIMEOUT_MS", value)]);
        assert_eq!(
            (loaded.servers[0].timeout, loaded.problems),
            (timeout, problems.into_iter().map(str::to_owned).collect())
        );
    }
}

#[test]
fn no_output_holds_a_secret_or_controls_a_terminal() {
    let fixture = McpFixture::new(&[(
        PROJECT,
        r#"{"mcpServers": {"\u001b[2J": {"command": "hunter2\n"}, "a": {"command": "a", "env": {"B": "hunter2"}}, "b": {"url": "hunter2"}}}"#,
    )]);
    let loaded = fixture.load();
    assert_eq!(loaded.problems.len(), 2);
    let output = format!("{loaded:?}{}", loaded.problems.join("\n"));
    assert!(!output.contains("hunter2") && !loaded.problems.join("").contains('\u{1b}'), "{output}");
}

#[test]
fn a_thousand_servers_are_read() {
    let names: Vec<String> = (0..1000).map(|at| format!("server-{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fixture = McpFixture::new(&[(USER, &servers_of("a", &names)), (PROJECT, &servers_of("b", &names))]);
    let loaded = fixture.load();
    assert_eq!((loaded.servers.len(), loaded.problems.len()), (1000, 1000));
    assert_eq!(loaded.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), names);
}

#[test]
fn a_working_folder_that_is_the_agent_directory_is_the_users() {
    let fixture = McpFixture::new(&[(USER, &servers_of("user", &["a"]))]);
    let cwd = fixture.0.path().join(".omp/agent");
    let environment: ProcessEnvironment = [("HOME", fixture.0.path().to_str().unwrap())].into_iter().collect();
    let folder = AgentDir::resolve(AgentProduct::Omp, &environment, &cwd, |_| false).unwrap();
    let loaded = McpServers::load(&folder, &cwd, &environment, ProjectServers::Read);
    assert_eq!((loaded.servers.len(), loaded.problems), (1, vec![]));
}
