//! The tables of decisions, and properties that hold for any text.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{DefaultPolicy, PathContext, PolicyLayers, evaluate};
use crate::{
    policy::{
        ArgConditions, Class, CompileError, CompiledRules, Constraint, Constraints, Contract, ContractGap,
        ContractScope, EffectReach, GrantCoverage, GrantSet, PatternFault, PolicySubject, Rule, RuleAction, RuleLayer,
        RuleOrigin, RuleSet, RuleSource, RuleWarning, State, Verdict, VerdictCause, compile_rules,
        testing::{bash, grant, grant_set, subject},
    },
    time::Millis,
    tool::{ShellInput, ShellMachine, ToolEffect},
};

mod approval;
mod away;
mod before;
mod bound;
mod indirect;
mod named;
mod protected_files;
mod reached;
mod recorded;
mod secrets;
mod spelled;

const NOW: Millis = Millis(1_000);

fn rule(text: &str) -> Rule {
    let (action, pattern) = text.split_once(' ').unwrap();
    serde_json::from_value(json!({"action": action, "pattern": pattern})).unwrap()
}

fn rules(texts: &[&str]) -> RuleSet {
    let (defaults, rules): (Vec<&str>, Vec<&str>) = texts.iter().partition(|text| text.starts_with("default "));
    RuleSet {
        defaults: defaults.iter().map(|text| rule(&text["default ".len()..])).collect(),
        rules: rules.into_iter().map(rule).collect(),
    }
}

fn source(layer: RuleLayer, rules: RuleSet) -> RuleSource {
    RuleSource { name: "permissions.yaml".to_owned(), layer, rules }
}

fn compiled(texts: &[&str]) -> CompiledRules {
    compile_rules(vec![source(RuleLayer::Main, rules(texts))]).unwrap()
}

fn path_context() -> PathContext {
    PathContext {
        home: Some("/home/ana".to_owned()),
        temporary: vec!["/tmp".to_owned()],
        protected: [
            "/home/ana/project/.countersign",
            "/home/ana/project/.countersign/permissions.yaml",
            "/home/ana/.config/countersign",
            "/srv/countersign/data",
        ]
        .map(str::to_owned)
        .into(),
        unreadable: vec!["/home/ana/.config/countersign".to_owned()],
        door: None,
        realm: None,
        approval: crate::policy::ApprovalMode::default(),
        always_asked: Vec::new(),
    }
}

struct PolicyFixture {
    compiled: CompiledRules,
    constraints: Constraints,
    contract: Option<Contract>,
    grants: GrantSet,
    posture: DefaultPolicy,
}

impl PolicyFixture {
    fn new(texts: &[&str]) -> Self {
        Self {
            compiled: compiled(texts),
            constraints: Constraints::default(),
            contract: None,
            grants: GrantSet::default(),
            posture: DefaultPolicy::Stdio,
        }
    }

    fn judge(&self, subject: &PolicySubject) -> Verdict {
        let layers = PolicyLayers {
            compiled: &self.compiled,
            constraints: &self.constraints,
            contract: self.contract.as_ref(),
            grants: &self.grants,
            default_policy: self.posture,
            path_context: &path_context(),
        };
        evaluate(&layers, subject, NOW)
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow(_) => "allow",
        Verdict::Deny(_) => "deny",
        Verdict::Ask(why) if why.is_floor() => "floor",
        Verdict::Ask(_) => "ask",
    }
}

#[test]
fn required_approvers_are_asked_whatever_else_asks() {
    let stepped = |pattern: &str| Rule {
        steps: vec![crate::gate::ApprovalStep { approvals: 2, ..crate::gate::ApprovalStep::default() }],
        ..Rule::new(pattern, RuleAction::Ask)
    };
    let own = |rules: Vec<Rule>| source(RuleLayer::Main, RuleSet { rules, defaults: vec![] });
    let theirs = source(RuleLayer::Tighten, rules(&["ask *"]));
    let world = |sources| PolicyFixture { compiled: compile_rules(sources).unwrap(), ..PolicyFixture::new(&[]) };
    for (case, world, command, want) in [
        ("plain", world(vec![own(vec![stepped("bash(*)")])]), "ls", 2),
        ("under the floor", world(vec![own(vec![stepped("bash(*)")])]), "rm -rf /", 2),
        ("what nobody can read", world(vec![own(vec![stepped("*")])]), "sudo rm -rf ~", 2),
        ("a repository asks too", world(vec![own(vec![stepped("bash(*)")]), theirs.clone()]), "ls", 2),
        (
            "an allow goes before",
            world(vec![own(vec![stepped("bash(*)"), Rule::new("*", RuleAction::Allow)])]),
            "rm -rf /",
            0,
        ),
        (
            "an allow that does not name the path does not",
            world(vec![own(vec![stepped("bash(*)"), Rule::new("bash(rm*)", RuleAction::Allow)])]),
            "rm -rf /",
            2,
        ),
    ] {
        let verdict = world.judge(&bash(command));
        let Verdict::Ask(why) = &verdict else { panic!("{case}: {verdict}") };
        assert_eq!(why.approval_steps().first().map_or(0, |step| step.approvals), want, "{case}");
    }
}

#[test]
fn a_denial_in_force_is_named_with_its_author_its_reach_and_its_end() {
    let call = bash("ls");
    let denial = |session: Option<crate::id::SessionId>| Constraint {
        session,
        principal: call.principal.clone(),
        key: call.constraint_key(),
        by: crate::id::PrincipalId::new("ana"),
        tool: String::new(),
        gate: None,
        reason: Some("not today".to_owned()),
        until: Millis(90_000),
    };
    for (session, want) in [
        (None, "because ana denied it, which holds in all sessions until 00:01 UTC: not today"),
        (
            Some(call.session.clone()),
            "because ana denied it in this conversation, which holds there until 00:01 UTC: not today",
        ),
    ] {
        let mut state = State::default();
        state.apply(&crate::policy::Event::Constrained(denial(session)));
        let world = PolicyFixture { constraints: state.constraints().clone(), ..PolicyFixture::new(&["allow *"]) };
        assert_eq!(world.judge(&call).why().to_string(), want);
    }
}

#[test]
fn the_layers_decide_in_their_order() {
    let call = bash("rm -rf /");
    let mild = bash("ls");
    let deny = |subject: &PolicySubject| {
        let mut state = State::default();
        state.apply(&crate::policy::Event::Constrained(Constraint {
            session: None,
            principal: subject.principal.clone(),
            key: subject.constraint_key(),
            by: subject.principal.clone(),
            tool: String::new(),
            gate: None,
            reason: None,
            until: Millis(2_000),
        }));
        state.constraints().clone()
    };
    let everything = || {
        grant_set([
            grant(1, GrantCoverage::Pattern("*".to_owned())),
            grant(2, GrantCoverage::Exact(bash("rm -rf /").digest())),
            grant(3, GrantCoverage::Exact(bash("ls").digest())),
        ])
    };
    let nothing = || Some(Contract { tools: Some(["read".to_owned()].into()), ..Contract::default() });
    for (case, subject, world, want) in [
        (
            "deny rule first",
            &call,
            PolicyFixture {
                constraints: deny(&call),
                contract: nothing(),
                grants: everything(),
                ..PolicyFixture::new(&["deny *", "allow *"])
            },
            "by rule",
        ),
        (
            "then a denial",
            &call,
            PolicyFixture {
                constraints: deny(&call),
                contract: nothing(),
                grants: everything(),
                ..PolicyFixture::new(&["allow *"])
            },
            "denied it",
        ),
        (
            "then the contract",
            &call,
            PolicyFixture { contract: nothing(), grants: everything(), ..PolicyFixture::new(&["allow *"]) },
            "contract",
        ),
        (
            "then the floor",
            &call,
            PolicyFixture { grants: everything(), ..PolicyFixture::new(&["allow *"]) },
            "beyond the working folder",
        ),
        (
            "then allow rules",
            &mild,
            PolicyFixture { grants: everything(), ..PolicyFixture::new(&["allow *", "ask *"]) },
            "by rule \"*\"",
        ),
        ("then grants", &mild, PolicyFixture { grants: everything(), ..PolicyFixture::new(&["ask *"]) }, "by grant_"),
        ("then ask rules", &mild, PolicyFixture::new(&["ask *", "default allow *"]), "needs approval by rule"),
        (
            "then defaults",
            &mild,
            PolicyFixture::new(&["ask x", "default allow *", "default deny *"]),
            "allowed by default",
        ),
        ("then ask", &mild, PolicyFixture::new(&["ask x"]), "needs approval because no rule covers bash(ls)"),
        ("no rules", &mild, PolicyFixture::new(&[]), "allowed because there are no rules"),
    ] {
        let verdict = world.judge(subject);
        assert!(verdict.to_string().contains(want), "{case}: {verdict}");
        assert_eq!(verdict.why().policy, world.compiled.digest(), "{case}");
        let read: Verdict = serde_json::from_str(&serde_json::to_string(&verdict).unwrap()).unwrap();
        assert_eq!(read, verdict, "{case}");
    }
}

#[test]
fn without_rules_the_gateway_lets_pass_only_what_reads_inside_the_workspace() {
    let reads = |path: &str, reach| PolicySubject {
        effect: ToolEffect::Reads,
        reach,
        paths: vec![path.to_owned()],
        ..subject("read", json!({ "path": path }))
    };
    let world = PolicyFixture { posture: DefaultPolicy::Gateway, ..PolicyFixture::new(&[]) };
    for (subject, want) in [
        (reads("src/a", EffectReach::Files), "allow"),
        (reads("/home/ana/project/a", EffectReach::Files), "allow"),
        (reads("../other", EffectReach::Files), "ask"),
        (reads("/etc/passwd", EffectReach::Files), "ask"),
        (reads("~/x", EffectReach::Files), "ask"),
        (reads("src/a", EffectReach::Beyond), "ask"),
        (PolicySubject { effect: ToolEffect::Changes, ..reads("src/a", EffectReach::Files) }, "ask"),
        (PolicySubject { effect: ToolEffect::Reads, ..bash("ls") }, "ask"),
    ] {
        assert_eq!(word(&world.judge(&subject)), want, "{}", subject.signature);
    }
}

#[test]
fn file_tools_never_write_what_is_protected_and_ask_for_devices() {
    let writes = |path: &str| PolicySubject {
        reach: EffectReach::Files,
        paths: vec![path.to_owned()],
        ..subject("write", json!({ "path": path }))
    };
    for (path, want) in [
        ("src/a", "allow"),
        (".countersign/permissions.yaml", "deny"),
        ("a/../.countersign/./permissions.yaml", "deny"),
        ("/srv/countersign/data/x", "deny"),
        ("/srv/countersign/database", "allow"),
        ("/dev/sda", "floor"),
        ("/dev/null", "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(&["allow *"]).judge(&writes(path))), want, "{path}");
    }
    let unreadable = PolicySubject { arguments: Map::new(), ..bash("ls") };
    assert_eq!(word(&PolicyFixture::new(&["allow *"]).judge(&unreadable)), "floor");
}

#[test]
fn needs_beyond_the_sandbox_need_approval_each_time() {
    let call = |needs| {
        let arguments = json!({"command": "ls", "needs": needs});
        PolicySubject { arguments: arguments.as_object().unwrap().clone(), ..bash("ls") }
    };
    for (needs, want) in [
        (json!(null), "allow"),
        (json!({"network": false}), "allow"),
        (json!({"network": true}), "floor"),
        (json!({"write": ["/a"]}), "floor"),
        (json!("everything"), "floor"),
    ] {
        let subject = call(needs.clone());
        let exact = grant_set([grant(1, GrantCoverage::Exact(subject.digest()))]);
        for world in
            [PolicyFixture::new(&["allow *"]), PolicyFixture { grants: exact, ..PolicyFixture::new(&["allow *"]) }]
        {
            assert_eq!(word(&world.judge(&subject)), want, "{needs}");
        }
    }
    assert_eq!(word(&PolicyFixture::new(&["deny bash(ls)", "allow *"]).judge(&call(json!({"network": true})))), "deny");
}

#[test]
fn no_tool_reads_where_the_keys_lie() {
    let reads = |path: &str| PolicySubject {
        effect: ToolEffect::Reads,
        reach: EffectReach::Files,
        paths: vec![path.to_owned()],
        ..subject("read", json!({ "path": path }))
    };
    for (path, want) in [
        ("/home/ana/.config/countersign/models.yml", "deny"),
        ("~/.config/countersign", "deny"),
        ("../.config/countersign/x", "deny"),
        ("~/.config/other", "allow"),
        (".countersign/permissions.yaml", "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(&["allow *"]).judge(&reads(path))), want, "{path}");
    }
    let verdict = PolicyFixture::new(&["allow *"]).judge(&bash("cat ~/.config/countersign/models.yml"));
    let want = "denied because the keys and rules of the gateway lie in /home/ana/.config/countersign";
    assert_eq!(verdict.to_string(), want);
}

#[test]
fn variables_of_a_shell_call_are_judged_like_assignments() {
    const TAR: &str = "tar cf a.tar x";
    for (command, beside, rules, want) in [
        (TAR, json!({}), vec!["allow bash(tar cf *)"], "allow"),
        (
            TAR,
            json!({"timeout": 5, "head": 1, "tail": 1, "pty": true, "async": false, "cwd": "/tmp", "env": null}),
            vec!["allow bash(tar cf *)"],
            "allow",
        ),
        (TAR, json!({"env": {}}), vec!["allow bash(tar cf *)"], "allow"),
        (TAR, json!({"env": {"TAR_OPTIONS": "--checkpoint-action=exec=id"}}), vec!["allow bash(tar cf *)"], "ask"),
        (TAR, json!({"env": {"TAR_OPTIONS": "x"}}), vec!["allow bash(TAR_OPTIONS=x tar cf *)"], "ask"),
        (TAR, json!({"env": {"LEVEL": "9"}}), vec!["allow bash(tar cf *)"], "allow"),
        (TAR, json!({"env": {"LEVEL": "9", "LD_PRELOAD": "x"}}), vec!["allow bash(tar cf *)"], "ask"),
        (TAR, json!({"env": {"LEVEL": "9"}}), vec!["allow bash(LEVEL=9 tar cf *)"], "allow"),
        ("ls; ls", json!({"env": {"LEVEL": "9"}}), vec!["allow bash(LEVEL=9 ls)"], "allow"),
        ("ls", json!({"env": {"LEVEL": 9}}), vec!["allow bash(ls)"], "allow"),
        ("ls", json!({"env": ["LEVEL=9"]}), vec!["allow bash(ls)"], "ask"),
        ("ls", json!({"env": {"A;id": "9"}}), vec!["allow bash(*ls)"], "ask"),
        ("ls", json!({"env": {"LEVEL": "9"}}), vec!["allow *", "deny bash(ls)"], "deny"),
        ("ls", json!({"env": {"LEVEL": "9"}}), vec!["allow *"], "allow"),
        ("bash -c ls", json!({"env": {"LEVEL": "9"}}), vec!["allow bash(*ls)"], "ask"),
        ("rm -rf ~/project/build", json!({"env": {"HOME": "/"}}), vec!["allow *"], "floor"),
        ("cat $D/models.yml", json!({"env": {"D": "/home/ana/.config/countersign"}}), vec!["allow *"], "deny"),
        ("echo > $D/x", json!({"env": {"D": "/srv/countersign/data"}}), vec!["allow *"], "deny"),
        ("rm -rf *", json!({"env": {"GLOBIGNORE": "x"}}), vec!["allow *"], "deny"),
        ("ls", json!({"shell": "/tmp/sh"}), vec!["allow bash(ls)"], "ask"),
        ("ls", json!({"shell": "/tmp/sh"}), vec!["allow *"], "allow"),
    ] {
        let mut call = bash(command);
        call.arguments.extend(beside.as_object().unwrap().clone());
        let verdict = PolicyFixture::new(&rules).judge(&call);
        assert_eq!(word(&verdict), want, "{command} with {beside} under {rules:?}: {verdict}");
    }
}

#[test]
fn a_repositorys_own_file_can_only_tighten() {
    let both = |main: &[&str], own: &[&str]| PolicyFixture {
        compiled: compile_rules(vec![source(RuleLayer::Main, rules(main)), source(RuleLayer::Tighten, rules(own))])
            .unwrap(),
        ..PolicyFixture::new(&[])
    };
    for (main, own, want) in [
        (vec![], vec!["allow *"], "allow"),
        (vec!["ask x"], vec!["allow *", "default allow *"], "ask"),
        (vec!["allow *"], vec!["deny bash(ls)"], "deny"),
        (vec!["allow *"], vec!["ask bash(ls)"], "ask"),
        (vec!["allow *"], vec!["default ask *"], "ask"),
        (vec!["default deny *"], vec!["ask *"], "deny"),
        (vec!["default allow *"], vec!["default deny *"], "deny"),
        (vec!["deny *"], vec!["ask *"], "deny"),
    ] {
        assert_eq!(word(&both(&main, &own).judge(&bash("ls"))), want, "{main:?} under {own:?}");
    }
    let origin = RuleOrigin { file: "permissions.yaml".to_owned(), line: 0 };
    assert_eq!(both(&[], &["allow *"]).compiled.warnings(), [RuleWarning::AllowIgnored(origin)]);
    let mut world = both(&["allow *"], &["ask *"]);
    world.grants = grant_set([grant(1, GrantCoverage::Exact(bash("ls").digest()))]);
    assert_eq!(word(&world.judge(&bash("ls"))), "allow", "what a person grants, a repository does not take back");
}

#[test]
fn rules_on_arguments_match_what_they_name() {
    let list: RuleSet = serde_json::from_value(json!({
        "rules": [
            {"tool": "pay", "args": {"to": "acme*", "amount": {"max": 50}}, "action": "allow"},
            {"tool": "pay", "args": {"currency": {"not": "EUR"}}, "action": "deny"},
            {"tool": "p*", "args": {"dry": true}, "action": "allow"},
        ],
    }))
    .unwrap();
    let world = PolicyFixture {
        compiled: compile_rules(vec![source(RuleLayer::Main, list)]).unwrap(),
        ..PolicyFixture::new(&[])
    };
    for (args, want) in [
        (json!({"to": "acme inc", "amount": 50, "currency": "EUR"}), "allow"),
        (json!({"to": "acme inc", "amount": 50.5, "currency": "EUR"}), "ask"),
        (json!({"to": "acme inc", "amount": "1", "currency": "EUR"}), "ask"),
        (json!({"to": "other", "amount": 1, "currency": "EUR"}), "ask"),
        (json!({"to": "acme inc", "amount": 1}), "deny"),
        (json!({"dry": true, "currency": "EUR"}), "allow"),
        (json!({"dry": "true", "currency": "EUR"}), "ask"),
        (json!({"to": ["acme inc", "acme co"], "amount": 50, "currency": "EUR"}), "allow"),
        (json!({"to": ["acme inc", "other"], "amount": 50, "currency": "EUR"}), "ask"),
        (json!({"dry": true, "currency": ["EUR", "USD"]}), "deny"),
    ] {
        assert_eq!(word(&world.judge(&subject("pay", args.clone()))), want, "{args}");
    }
}

#[test]
fn undeclared_arguments_are_covered_only_by_rules_that_do_not_look() {
    let call = PolicySubject { undeclared: vec!["z".to_owned()], ..subject("t", json!({"a": "x", "z": "1"})) };
    let any: Rule = serde_json::from_value(json!({"pattern": "t(*)", "args": "any", "action": "allow"})).unwrap();
    assert_eq!(any.args, Some(ArgConditions::Any(crate::policy::AnyArgs::Any)));
    assert_eq!(any.action, RuleAction::Allow);
    let waived = PolicyFixture {
        compiled: compile_rules(vec![source(RuleLayer::Main, RuleSet { rules: vec![any], defaults: vec![] })]).unwrap(),
        ..PolicyFixture::new(&[])
    };
    assert_eq!(word(&waived.judge(&call)), "allow");
    for (texts, want) in [
        (["allow t*"], "allow"),
        (["allow t(*)"], "ask"),
        (["deny t(*)"], "deny"),
        (["default allow t(*)"], "ask"),
        (["default allow *"], "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(&texts).judge(&call)), want, "{texts:?}");
    }
}

#[test]
fn one_denied_element_of_a_list_denies_all_and_all_must_be_allowed() {
    let call = PolicySubject {
        signature: "t(a)".to_owned(),
        further_signatures: vec!["t(b)".to_owned()],
        ..subject("t", json!({"e": ["a", "b"]}))
    };
    for (texts, want) in [
        (vec!["allow t(a)"], "ask"),
        (vec!["allow t(a)", "allow t(b)"], "allow"),
        (vec!["allow *", "deny t(b)"], "deny"),
        (vec!["default allow t(a)", "default deny t(b)"], "deny"),
        (vec!["default allow *", "default deny t(b)"], "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(&texts).judge(&call)), want, "{texts:?}");
    }
}

#[test]
fn a_list_is_denied_by_its_items_and_by_the_command_that_they_make() {
    let whole = |tool: &str, named: &[&str], arguments: Value| {
        let mut call = subject(tool, json!({}));
        call.arguments = arguments.as_object().unwrap().clone();
        let value = |name: &&str| call.arguments.get(*name).map(crate::tool::value_text).unwrap_or_default();
        call.signature = format!("{tool}({})", named.iter().map(value).collect::<Vec<_>>().join(", "));
        call.named = named.iter().map(|name| (*name).to_owned()).collect();
        call
    };
    let on_node = |command: Value| PolicySubject {
        shell: ShellInput::Line { argument: "command".into(), machine: ShellMachine::Other },
        ..whole("n1__Bash", &["command"], json!({ "command": command }))
    };
    let many: Vec<String> = (0..400).map(|at| format!("a{at}")).chain(["secret".to_owned()]).collect();
    for (rule, call, want) in [
        ("deny n1__Bash(rm *)", on_node(json!(["rm", "x"])), "deny"),
        ("deny n1__Bash(rm *)", on_node(json!(["sudo", "rm", "-r", "x"])), "deny"),
        ("deny n1__Bash(rm *)", on_node(json!(["sh", "-c", "rm x"])), "deny"),
        ("deny n1__Bash(rm *)", on_node(json!([["rm"], ["ls", "rm y"]])), "deny"),
        ("deny n1__Bash(rm *)", on_node(json!({"program": "rm x"})), "deny"),
        ("deny n1__Bash(rm *)", on_node(json!(["ls", "x"])), "floor"),
        ("allow n1__Bash(ls *)", on_node(json!(["ls", "x"])), "floor"),
        ("allow *", on_node(json!(["ls", "x"])), "floor"),
        ("deny t(git push*)", whole("t", &["argv"], json!({"argv": ["git", "push"]})), "deny"),
        ("deny t(secret)", whole("t", &["p"], json!({"p": ["a", "secret"]})), "deny"),
        ("deny t(secret)", whole("t", &["p"], json!({ "p": many.clone() })), "deny"),
        ("deny t(*, b)", whole("t", &["p", "q"], json!({"p": ["a"], "q": ["c", "b"]})), "deny"),
        ("deny t(other)", whole("t", &["p"], json!({"p": ["a", "b"]})), "ask"),
        ("ask t(a)", whole("t", &["p"], json!({"p": ["a", "b"]})), "ask"),
    ] {
        let verdict = PolicyFixture::new(&[rule]).judge(&call);
        assert_eq!(word(&verdict), want, "{rule} {} {verdict}", call.signature);
    }
    let denied: Rule = serde_json::from_value(json!({"tool": "t", "args": {"c": "rm *"}, "action": "deny"})).unwrap();
    let rules = RuleSet { rules: vec![denied, rule("allow *")], defaults: Vec::new() };
    let world = PolicyFixture {
        compiled: compile_rules(vec![source(RuleLayer::Main, rules)]).unwrap(),
        ..PolicyFixture::new(&[])
    };
    assert_eq!(word(&world.judge(&subject("t", json!({"c": ["rm", "x"]})))), "deny");
    assert_eq!(word(&world.judge(&subject("t", json!({"c": ["ls", "x"]})))), "allow");
}

#[test]
fn rules_that_make_no_sense_do_not_load_and_odd_ones_warn() {
    let origin = || RuleOrigin { file: "permissions.yaml".to_owned(), line: 0 };
    let load = |list: Value| compile_rules(vec![source(RuleLayer::Main, serde_json::from_value(list).unwrap())]);
    assert_eq!(load(json!({"rules": [{"action": "deny"}]})).unwrap_err(), [CompileError::Selector(origin())]);
    assert_eq!(
        load(json!({"rules": [{"pattern": "t", "args": {"a": "x"}, "action": "deny"}]})).unwrap_err(),
        [CompileError::ArgsBesidePattern(origin())]
    );
    assert!(matches!(
        load(json!({"defaults": [{"pattern": "bash(python *)", "action": "allow"}]})).unwrap_err()[..],
        [CompileError::Interpreter { .. }]
    ));
    for (tool, slip) in
        [("bash(rm *)", PatternFault::Arguments), (" bash", PatternFault::Space), ("bash ", PatternFault::Space)]
    {
        assert_eq!(
            load(json!({"rules": [{"tool": tool, "action": "deny"}]})).unwrap().warnings(),
            [RuleWarning::NeverMatches { origin: origin(), pattern: tool.to_owned(), slip }]
        );
    }
    // An agent's tool may have any name, and these refuse some of them.
    for tool in ["*(*", " *"] {
        assert_eq!(load(json!({"rules": [{"tool": tool, "action": "deny"}]})).unwrap().warnings(), [], "{tool}");
    }
    let several = json!({"pattern": "bash(sh *)", "args": {"a": "x"}, "action": "allow", "steps": [{"approvals": 1}]});
    assert!(
        matches!(
            load(json!({ "rules": [several] })).unwrap_err()[..],
            [CompileError::Approvals { .. }, CompileError::ArgsBesidePattern(_), CompileError::Interpreter { .. }]
        ),
        "all that is wrong with a rule is told at once"
    );
    assert!(load(json!({"rules": [{"pattern": "bash(python *)", "action": "deny"}]})).is_ok());
    assert_eq!(
        load(json!({"rules": [{"pattern": "t(*)", "action": "deny"}]})).unwrap().warnings(),
        [RuleWarning::MissesBareCalls { origin: origin(), pattern: "t(*)".to_owned() }]
    );
}

#[test]
fn a_pattern_with_a_slip_is_reported() {
    let origin = RuleOrigin { file: "permissions.yaml".to_owned(), line: 0 };
    for (pattern, want) in [
        ("read(*.pem", Some(PatternFault::Unclosed)),
        ("read(*.pem) ", Some(PatternFault::Space)),
        (" read(*.pem)", Some(PatternFault::Space)),
        ("read (*.pem)", Some(PatternFault::Space)),
        ("* (*.pem)", None),
        ("* (*.pem) ", Some(PatternFault::Space)),
        (" *", None),
        (" read", Some(PatternFault::Space)),
        ("read(*.pem)", None),
        ("read(*", None),
        ("read(?", None),
        ("read([)]", None),
        ("read", None),
        ("*.pem", None),
    ] {
        let warning =
            want.map(|slip| RuleWarning::NeverMatches { origin: origin.clone(), pattern: pattern.to_owned(), slip });
        assert_eq!(compiled(&[&format!("deny {pattern}")]).warnings(), warning.as_slice(), "{pattern:?}");
    }
}

#[test]
fn the_digest_depends_on_rules_and_not_on_their_files() {
    let digest = |texts: &[&str]| compiled(texts).digest();
    assert_eq!(digest(&["allow a"]), digest(&["allow a"]));
    assert_ne!(digest(&["allow a"]), digest(&["deny a"]));
    assert_ne!(digest(&["allow a"]), digest(&["default allow a"]));
    assert_ne!(digest(&["default allow a", "default deny b"]), digest(&["default deny b", "default allow a"]));
    assert_eq!(digest(&[]), CompiledRules::default().digest());
}

#[test]
fn a_contract_covers_tools_of_servers_only_if_it_says_so() {
    let call = subject("mcp__files__read", json!({"path": "a"}));
    let of_host = PolicySubject { classes: [Class::HostToolInvoke].into(), ..call.clone() };
    let narrow = Contract {
        scopes: [ContractScope::HostTools].into(),
        classes: [Class::HostToolInvoke, Class::BashReadonly, Class::FileWrite].into(),
        ..Contract::default()
    };
    let named = Contract { tools: Some(["mcp__files__read".to_owned()].into()), ..narrow.clone() };
    for (case, contract, subject, want) in [
        ("classes", narrow.clone(), &call, "deny"),
        ("by name", named.clone(), &call, "allow"),
        ("by another name", named, &subject("mcp__files__write", json!({})), "deny"),
        ("everything", Contract::of_everything(), &call, "allow"),
        ("a host's own", narrow, &of_host, "allow"),
    ] {
        let world = PolicyFixture { contract: Some(contract), ..PolicyFixture::new(&["allow *"]) };
        assert_eq!(word(&world.judge(subject)), want, "{case}");
    }
}

#[test]
fn a_contract_denies_the_classes_that_it_does_not_name() {
    let contract = |classes: &[Class]| {
        Some(Contract {
            classes: classes.iter().copied().collect(),
            scopes: [ContractScope::Bash].into(),
            ..Contract::default()
        })
    };
    for (command, classes, want) in [
        ("ls src", vec![Class::BashReadonly], "allow"),
        ("npm ci", vec![Class::BashReadonly], "deny"),
        ("npm ci", vec![Class::BashMutating], "allow"),
        ("rm x", vec![Class::BashMutating], "deny"),
        ("rm x", vec![Class::BashMutating, Class::BashDestructive, Class::FileDelete], "allow"),
        ("ls > x", vec![Class::BashReadonly, Class::BashMutating], "deny"),
        ("git push --force", vec![Class::BashMutating], "deny"),
        ("git push", vec![Class::BashMutating], "allow"),
    ] {
        let world = PolicyFixture { contract: contract(&classes), ..PolicyFixture::new(&[]) };
        assert_eq!(word(&world.judge(&bash(command))), want, "{command} under {classes:?}");
    }
    let verdict =
        PolicyFixture { contract: contract(&[]), ..PolicyFixture::new(&[]) }.judge(&subject("write", json!({})));
    assert!(
        matches!(&verdict.why().cause, VerdictCause::Contract { lacks } if *lacks == ContractGap::Class(Class::FileWrite)),
        "{verdict}"
    );
}

#[test]
fn ten_thousand_rules_are_not_scanned() {
    let texts: Vec<String> = (0..10_000).map(|at| format!("allow tool_{at}(*)")).collect();
    let world = PolicyFixture::new(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    for at in [0, 5_000, 9_999] {
        assert_eq!(word(&world.judge(&subject(&format!("tool_{at}"), json!({"a": 1})))), "allow");
    }
    assert_eq!(word(&world.judge(&subject("tool_x", json!({"a": 1})))), "ask");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gets_a_verdict(command in r#"([ -~\n]|\$\(|`|<<EOF\n|\$\{|&&|;|\[\[|é|\{a,b\}){0,60}"#) {
        PolicyFixture::new(&["allow bash(ls*)"]).judge(&bash(&command));
    }

    #[test]
    fn an_allow_never_widens_by_what_is_appended(
        command in "[a-z' \"$;|&(){}<>*]{0,20}",
        joint in prop::sample::select(vec!["; ", " && ", " || ", " | ", " & ", "\n", ";", "&", "|"]),
    ) {
        let world = PolicyFixture::new(&["allow bash(ls*)", "allow bash(a*)", "allow bash(echo *)"]);
        for start in ["", "ls ", "echo "] {
            let longer = format!("{start}{command}{joint}curl x");
            let verdict = world.judge(&bash(&longer));
            // If the text ends inside quotes or a comment, the addition is text of theirs, and nothing more runs.
            let swallowed = command.contains(['\'', '"', '#']);
            prop_assert!(swallowed || word(&verdict) != "allow", "{longer:?} is {verdict}");
        }
    }
}

#[test]
fn what_names_a_folder_above_the_gateways_files_does_not_put_others_in_their_place() {
    for (command, want) in [
        ("cp -r /tmp/countersign ~/.config", "floor"),
        ("cp -r /tmp/x/.config ~", "floor"),
        ("cp -rT /tmp/x ~/.config", "floor"),
        ("cp -r /tmp/x/. ~/.config", "floor"),
        ("cp -at ~/.config /tmp/countersign", "floor"),
        ("cp --recursive --target-directory=$HOME/.config /tmp/x/countersign/", "floor"),
        ("cd /tmp/x && cp -r countersign ../../home/ana/.config", "floor"),
        ("mv /tmp/countersign ~/.config", "floor"),
        ("rsync -a /tmp/x/ ~/.config", "floor"),
        ("cp -r /tmp/x/other ~/.config", "allow"),
        ("cp /tmp/x/one ~/.config", "allow"),
        ("cp -r src/lib src/new", "allow"),
        ("cp -r ../template/* .", "allow"),
        ("mv a b", "allow"),
        ("rsync -a src/ build", "allow"),
    ] {
        let verdict = PolicyFixture::new(&["allow *"]).judge(&bash(command));
        assert_eq!(word(&verdict), want, "{command}: {verdict}");
    }
}
