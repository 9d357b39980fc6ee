use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use countersign_agent_dir::{AgentDir, AgentProduct, ProcessEnvironment};
use countersign_core::{
    time::Millis,
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use serde_json::json;

use super::{SystemPrompt, SystemPromptInput, build_prompt, context};

type FileTable = BTreeMap<PathBuf, String>;

fn table(files: &[(&str, &str)]) -> FileTable {
    files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
}

fn folder() -> AgentDir {
    let environment: ProcessEnvironment = [("HOME", "/home/ana")].into_iter().collect();
    AgentDir::resolve(AgentProduct::Omp, &environment, Path::new("/"), |_| false).unwrap()
}

fn spec(name: &str, description: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: json!({}),
        concurrency: CallConcurrency::Shared,
        repeat: RepeatMode::Idempotent,
        effect: ToolEffect::Reads,
        signature: &[],
    }
}

fn prompt(files: &[(&str, &str)], tools: &[ToolSpec], replace: Option<&str>, append: Option<&str>) -> SystemPrompt {
    let facts = SystemPromptInput {
        folder: &folder(),
        cwd: Path::new("/home/ana/repo/part"),
        now: Millis(1_700_000_000_000),
        tools,
        replace,
        append,
        reads_context_files: true,
    };
    build_prompt(&facts, &table(files))
}

fn places(files: &[(&str, &str)], cwd: &str) -> Vec<String> {
    let gathered = context::gather_files(&folder(), Path::new(cwd), &table(files));
    gathered.files.iter().map(|file| file.path.display().to_string()).collect()
}

#[test]
fn instructions_come_from_the_farthest_to_the_nearest() {
    let files = [
        ("/home/ana/.omp/agent/AGENTS.md", "user"),
        ("/home/ana/.claude/CLAUDE.md", "user claude"),
        ("/home/ana/AGENTS.md", "above the repository"),
        ("/home/ana/repo/.git/HEAD", "ref"),
        ("/home/ana/repo/AGENTS.md", "repo"),
        ("/home/ana/repo/.omp/AGENTS.md", "repo omp"),
        ("/home/ana/repo/.gemini/GEMINI.md", "repo gemini"),
        ("/home/ana/repo/part/AGENTS.md", "part"),
        ("/home/ana/repo/part/.omp/AGENTS.md", "part omp"),
    ];
    let want = [
        "/home/ana/.omp/agent/AGENTS.md",
        "/home/ana/.claude/CLAUDE.md",
        "/home/ana/repo/.gemini/GEMINI.md",
        "/home/ana/repo/AGENTS.md",
        "/home/ana/repo/part/AGENTS.md",
        "/home/ana/repo/part/.omp/AGENTS.md",
    ];
    assert_eq!(places(&files, "/home/ana/repo/part"), want);
}

#[test]
fn without_a_repository_the_home_folder_is_the_top_and_elsewhere_only_the_folder_counts() {
    let files = [
        ("/home/ana/AGENTS.md", "a"),
        ("/home/ana/x/AGENTS.md", "b"),
        ("/AGENTS.md", "c"),
        ("/srv/AGENTS.md", "d"),
        ("/srv/x/AGENTS.md", "e"),
    ];
    assert_eq!(places(&files, "/home/ana/x"), ["/home/ana/AGENTS.md", "/home/ana/x/AGENTS.md"]);
    assert_eq!(places(&files, "/srv/x"), ["/srv/x/AGENTS.md"]);
}

#[test]
fn a_text_appears_once_at_its_nearest_place_and_long_ones_are_cut_with_a_notice() {
    let long = "x".repeat(70_000);
    let files = [
        ("/home/ana/.omp/agent/AGENTS.md", "same\n"),
        ("/home/ana/repo/.git", ""),
        ("/home/ana/repo/AGENTS.md", &long),
        ("/home/ana/repo/part/AGENTS.md", "same"),
        ("/home/ana/repo/part/.claude/CLAUDE.md", " \n"),
    ];
    let gathered = context::gather_files(&folder(), Path::new("/home/ana/repo/part"), &table(&files));
    let got: Vec<_> = gathered.files.iter().map(|file| (file.path.to_str().unwrap(), file.text.len())).collect();
    assert_eq!(got, [("/home/ana/repo/AGENTS.md", 65_536), ("/home/ana/repo/part/AGENTS.md", 4)]);
    assert_eq!(gathered.notices, ["/home/ana/repo/AGENTS.md: only its first 65536 bytes are used"]);
}

#[test]
fn our_own_text_has_role_approvals_tools_place_and_day_in_this_order() {
    let tools =
        [spec("read", "Reads a file.\nMore."), spec("edit", "Changes a file."), spec("bash", "Runs a command.")];
    let SystemPrompt { text, notices } =
        prompt(&[("/home/ana/repo/part/AGENTS.md", "be kind")], &tools, None, Some("extra"));
    let parts = [
        "You are a coding agent.",
        "# Approvals",
        "A denied call stays denied in other words",
        "# Tools",
        "- read: Reads a file.\n- edit: Changes a file.\n- bash: Runs a command.\n",
        "- Read a file before you change it",
        "<file path=\"/home/ana/repo/part/AGENTS.md\">\nbe kind\n</file>",
        "extra",
        "Today is Tuesday, 2023-11-14 (UTC).\nThe working directory is /home/ana/repo/part.",
    ];
    let at: Vec<usize> = parts.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part}"))).collect();
    assert!(at.is_sorted(), "{at:?}");
    assert!(notices.is_empty());
    assert!((2_000..5_000).contains(&text.len()), "{}", text.len());
}

#[test]
fn other_texts_take_the_place_of_ours() {
    let files = [
        ("/home/ana/.omp/agent/SYSTEM.md", "user role"),
        ("/home/ana/repo/part/given.md", "from a file"),
        ("/home/ana/repo/part/AGENTS.md", "be kind"),
    ];
    for (case, files, replace, holds, lacks) in [
        ("user", &files[..], None, vec!["user role", "# Approvals", "be kind"], vec!["coding agent"]),
        (
            "project over user",
            &[files[0], ("/home/ana/repo/part/.omp/SYSTEM.md", "project role")],
            None,
            vec!["project role"],
            vec!["user role"],
        ),
        (
            "text",
            &files,
            Some("all mine"),
            vec!["all mine", "be kind", "Today is"],
            vec!["user role", "# Approvals", "# Tools"],
        ),
        ("file", &files, Some("given.md"), vec!["from a file"], vec!["given.md", "# Tools"]),
    ] {
        let text = prompt(files, &[], replace, None).text;
        assert!(
            holds.iter().all(|part| text.contains(part)) && !lacks.iter().any(|part| text.contains(part)),
            "{case}: {text}"
        );
    }
}
