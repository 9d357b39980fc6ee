//! Rules that are edited in the console: their effect is shown, then they are saved, in force, and on the record.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN,
    agent_gate::AgentClient,
    browser::{BrowserClient, BrowserPage},
    eventually,
};
use nix::sys::signal::Signal;
use serde_json::json;

const RULES: &str =
    "# what I allow\nrules:\n  - { pattern: 'turn(lock*', action: deny }   # never\n\n# about tests\ntests: []\n";

fn file(place: &GatewayFixture) -> PathBuf {
    place.folder.join("permissions.yaml")
}

fn text(place: &GatewayFixture) -> String {
    fs::read_to_string(file(place)).unwrap()
}

/// Opens the page of a rule that is edited.
fn preview(visitor: &BrowserClient, gateway: &GatewayServer, query: &str) -> BrowserPage {
    let page = visitor.get_page(gateway, &format!("/console/try?{query}"));
    assert_eq!(page.status, 200, "{}", page.text);
    page
}

/// Sends the form of a preview, with other values for some of its fields.
fn save(visitor: &BrowserClient, gateway: &GatewayServer, page: &BrowserPage, other: &[(&str, &str)]) -> BrowserPage {
    let fields = fields(page, other);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    visitor.post_form(gateway, "/console/rules", &fields)
}

/// Returns the fields of the form of a preview.
fn fields(page: &BrowserPage, other: &[(&str, &str)]) -> Vec<(String, String)> {
    let (_, form) = page.text.split_once("<form class=\"saving\"").unwrap_or_else(|| panic!("no form: {}", page.text));
    let mut fields: Vec<(String, String)> = form
        .split("<input type=\"hidden\" name=\"")
        .skip(1)
        .map(|field| {
            let (name, rest) = field.split_once("\" value=\"").unwrap();
            let value = rest.split_once('"').unwrap().0.replace("&quot;", "\"").replace("&lt;", "<");
            (name.to_owned(), value.replace("&gt;", ">").replace("&amp;", "&"))
        })
        .filter(|(name, _)| other.iter().all(|(changed, _)| changed != name))
        .collect();
    fields.extend(other.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    fields
}

fn record(place: &GatewayFixture) -> String {
    place.run(&["audit", "tail", "--log", place.log_path().to_str().unwrap(), "-n", "12"]).out
}

/// Makes a call that is allowed, so that there is a history.
fn record_allowed_call(place: &GatewayFixture, agent: &mut AgentClient, id: u32, thing: &str) {
    agent.request_tool(id, "turn", json!({ "thing": thing, "way": "up" }));
    place.allow_gate(&place.wait_gate());
    assert_eq!(agent.wait_reply(&json!(id))["result"]["status"], "executed");
}

#[test]
fn a_rule_is_saved_with_its_effect_shown_and_is_in_force_at_once() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    record_allowed_call(&place, &mut agent, 1, "east");
    record_allowed_call(&place, &mut agent, 2, "west");
    let page = preview(&visitor, &gateway, "pattern=turn%28east*&action=allow&description=blinds%20%3Cup%3E");
    for want in [
        "1 recorded call: <strong>1 would be allowed</strong>, 0 would need approval, 0 would be denied.",
        "Of 2 recorded calls <strong>1 would be allowed</strong>, 1 would need approval, 0 would be denied",
        "+   - { pattern: &quot;turn(east*&quot;, action: allow, description: &quot;blinds &lt;up&gt;&quot; }",
    ] {
        assert!(page.text.contains(want), "{want}: {}", page.text);
    }
    assert_eq!(text(&place), RULES, "a look changes nothing");
    fs::set_permissions(file(&place), fs::Permissions::from_mode(0o640)).unwrap();
    let saved = save(&visitor, &gateway, &page, &[]);
    assert_eq!(saved.status, 200, "{}", saved.text);
    assert!(saved.text.contains("Rule saved in ") && saved.text.contains("The rules are in force."), "{}", saved.text);
    let item = "  - { pattern: \"turn(east*\", action: allow, description: \"blinds <up>\" }\n";
    let want = RULES.replace("# never\n", &format!("# never\n{item}"));
    assert_eq!(text(&place), want);
    assert_eq!(fs::metadata(file(&place)).unwrap().permissions().mode() & 0o777, 0o640);
    let audit = record(&place);
    let change =
        "web:open edits the rules file: + - { pattern: \"turn(east*\", action: allow, description: \"blinds <up>\" }";
    assert!(audit.contains(change), "{audit}");
    let (_, behind) = audit.split_once(change).unwrap();
    assert!(behind.contains("rules in force: "), "{audit}");
    // No gate opens for it any more.
    agent.request_tool(3, "turn", json!({ "thing": "east", "way": "down" }));
    assert_eq!(agent.wait_reply(&json!(3))["result"]["status"], "executed");
    // Its effect is there, and the same form again changes nothing.
    let again = save(&visitor, &gateway, &page, &[]);
    assert_eq!(again.status, 409, "{}", again.text);
    assert!(again.text.contains("Nothing was saved:"), "{}", again.text);
    assert_eq!(text(&place), want);
    place.verify_log();
}

/// Check whether a change has come so far.
type ProgressCheck = fn(&GatewayFixture, u64) -> bool;

#[test]
fn a_kill_at_any_step_of_a_change_leaves_the_old_file_or_the_new_one_and_a_record_of_what_was_begun() {
    let grown: ProgressCheck = |place, before| wal(place) > before;
    let drafted: ProgressCheck = |place, _| {
        let mut names = fs::read_dir(&place.folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().starts_with(".permissions.yaml."))
    };
    let replaced: ProgressCheck = |place, _| text(place) != RULES;
    for (step, reached) in [("record", grown), ("draft", drafted), ("file", replaced)] {
        let place = GatewayFixture::with_config_and_rules("", RULES);
        let gateway = GatewayServer::start(&place);
        let visitor = BrowserClient::default();
        let page = preview(&visitor, &gateway, "pattern=turn%28east*&action=allow");
        let before = wal(&place);
        let sent = fields(&page, &[]);
        let sent: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let _unanswered = BrowserClient::start_post(&gateway, "/console/rules", &sent);
        let deadline = Instant::now() + Duration::from_secs(120);
        while !reached(&place, before) && !replaced(&place, before) {
            assert!(Instant::now() < deadline, "{step} was not reached");
            std::hint::spin_loop();
        }
        gateway.kill();
        let now = text(&place);
        let item = "  - { pattern: \"turn(east*\", action: allow }\n";
        let changed = RULES.replace("# never\n", &format!("# never\n{item}"));
        assert!(now == RULES || now == changed, "{step}: {now}");
        if now == changed || step != "record" {
            assert!(record(&place).contains("web:open edits the rules file: + "), "{step}: {}", record(&place));
        }
        // The file is in force.
        let gateway = GatewayServer::start(&place);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        agent.request_tool(1, "turn", json!({ "thing": "east", "way": "up" }));
        if now == RULES {
            place.allow_gate(&place.wait_gate());
        }
        assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed", "{step}");
        place.verify_log();
    }
}

/// Returns the size of the record's newest part, in bytes.
fn wal(place: &GatewayFixture) -> u64 {
    fs::metadata(place.data_dir().join("countersign.db-wal")).map_or(0, |found| found.len())
}

#[test]
fn a_file_that_changed_since_the_page_was_made_is_left_alone_and_the_newer_effect_is_shown() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    record_allowed_call(&place, &mut agent, 1, "east");
    let page = preview(&visitor, &gateway, "pattern=turn%28east*&action=allow");
    let other = format!("{RULES}defaults: [ {{ pattern: 'turn(east*', action: deny }} ]\n")
        .replace("turn(lock*", "turn(east, *");
    place.write_file("permissions.yaml", &other);
    let refused = save(&visitor, &gateway, &page, &[]);
    assert_eq!(refused.status, 409, "{}", refused.text);
    for want in [
        "the rules file has changed since this page was loaded",
        "1 recorded call: <strong>0 would be allowed</strong>, 0 would need approval, 1 would be denied.",
        "The rule would have had no effect",
    ] {
        assert!(refused.text.contains(want), "{want}: {}", refused.text);
    }
    assert_eq!(text(&place), other);
    assert!(!record(&place).contains("edits the rules file"), "{}", record(&place));
    // The text on the page can be saved.
    assert_eq!(save(&visitor, &gateway, &refused, &[]).status, 200);
    assert!(text(&place).contains("pattern: \"turn(east*\""));
}

#[test]
fn what_is_no_rule_or_would_not_be_taken_is_refused_with_its_place() {
    let rules = "rules:\n  - { pattern: 'turn(lock*', action: deny }\ntests:\n  - { request: 'turn thing=east', expect: ask }\n";
    let place = GatewayFixture::with_config_and_rules("", rules);
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let page = preview(&visitor, &gateway, "pattern=look*&action=allow");
    for (fields, expected) in [
        (&[("pattern", "")][..], "the form has no rule"),
        (&[("action", "alow")], "Unknown action: alow."),
        (&[("pattern", "look(")], "permissions.yaml:3: \"look(\" matches nothing"),
        (&[("principal", "nobody")], "permissions.yaml:3: unknown principal \"nobody\": expected one of "),
        (&[("pattern", "bash(python3 *)")], "permissions.yaml:3: \"bash(python3 *)\" allows python3 to run any code"),
        (&[("pattern", "turn(east*")], "permissions.yaml:5: turn thing=east is allowed, but should need approval"),
        (&[("line", "9")], "no rule starts on line 9"),
        (&[("line", "x")], "Invalid line number: x."),
        (&[("description", &*"x".repeat(3000))], "longer than 2000 characters"),
    ] {
        let refused = save(&visitor, &gateway, &page, fields);
        let found = refused.text.replace("&quot;", "\"");
        assert_eq!((refused.status, found.contains(expected)), (400, true), "{fields:?}: {found}");
        assert!(found.contains("Nothing was saved"), "{found}");
        assert_eq!(text(&place), rules);
    }
    let same = save(&visitor, &gateway, &page, &[("pattern", "turn(lock*"), ("action", "deny")]);
    assert_eq!((same.status, same.text.contains("permissions.yaml:2: the file has this rule already")), (409, true));
    place.write_file("permissions.yaml", "{ rules: [] }\n");
    let odd = visitor.get_page(&gateway, "/console/try?pattern=look*&action=allow");
    assert!(odd.text.contains("its YAML form cannot be edited here; edit the file by hand"), "{}", odd.text);
    assert!(!odd.text.contains("class=\"saving\""));
    assert!(!record(&place).contains("edits the rules file"));
}

#[test]
fn a_rule_without_effect_is_reported() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let page = preview(&visitor, &gateway, "pattern=turn%28lock-2%2C%20*%29&action=allow");
    assert!(page.text.contains("The rule would have no effect"), "{}", page.text);
    assert!(page.text.contains("turn(lock* ("), "{}", page.text);
    let other = preview(&visitor, &gateway, "pattern=turn%28*%29&action=allow");
    assert!(!other.text.contains("The rule would have no effect"), "{}", other.text);
}

#[test]
fn always_on_a_card_edits_a_rule_that_is_saved_and_lets_through_what_waits() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let mut agent = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "oven", "way": "off" }));
    let gate = place.wait_gate();
    let inbox = visitor.get_page(&gateway, "/console/");
    let link = format!("/console/try?of={gate}");
    assert!(inbox.text.contains(&link), "{}", inbox.text);
    let page = visitor.get_page(&gateway, &link);
    for want in ["value=\"turn(oven, *)\"", "value=\"kitchen\"", "The rule allows the pending call.", &gate] {
        assert!(page.text.contains(want), "{want}: {}", page.text);
    }
    let unseen = save(&visitor, &gateway, &page, &[("then", "allow"), ("digest", "00")]);
    assert_eq!(
        (unseen.status, unseen.text.contains("has changed since this page was loaded")),
        (400, true),
        "{}",
        unseen.text
    );
    assert_eq!(text(&place), RULES);
    // Edited so that it covers something else: the pending gate stays.
    let edited = preview(&visitor, &gateway, &format!("pattern=turn%28door*&action=allow&principal=kitchen&of={gate}"));
    assert!(edited.text.contains("The rule does not allow the pending call"), "{}", edited.text);
    assert!(!edited.text.contains("value=\"allow\">Save"), "{}", edited.text);
    let saved = save(&visitor, &gateway, &edited, &[("then", "allow")]);
    assert!(saved.text.contains("The rules do not allow the pending call: "), "{}", saved.text);
    assert_eq!(place.pending_gates().len(), 1);
    let page = visitor.get_page(&gateway, &link);
    let saved = save(&visitor, &gateway, &page, &[("then", "allow")]);
    assert!(
        saved.text.contains("The rules are in force.") && saved.text.contains("The pending call was allowed."),
        "{}",
        saved.text
    );
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    assert!(text(&place).contains("  - { pattern: \"turn(oven, *)\", principal: \"kitchen\", action: allow }\n"));
    // A late user saves the rule all the same, and sees that the gate was decided.
    agent.request_tool(2, "turn", json!({ "thing": "fan", "way": "off" }));
    let gate = place.wait_gate();
    let page = visitor.get_page(&gateway, &format!("/console/try?of={gate}"));
    place.allow_gate(&gate);
    assert_eq!(agent.wait_reply(&json!(2))["result"]["status"], "executed");
    let late = save(&visitor, &gateway, &page, &[("then", "allow")]);
    assert!(
        late.text.contains("The rules are in force.") && late.text.contains("was first: allowed once"),
        "{}",
        late.text
    );
}

#[test]
fn a_rule_is_changed_and_taken_out_where_it_stands() {
    let place = GatewayFixture::with_config_and_rules(
        "",
        "rules:\n  # locks\n  - pattern: 'turn(lock*'\n    action: deny\n  - { pattern: 'look*', action: allow }\n  - { tool: turn, args: { way: up }, action: allow }\n",
    );
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let policy = visitor.get_page(&gateway, "/console/policy");
    let links: Vec<String> = policy
        .text
        .split("href=\"/console/try?")
        .skip(1)
        .map(|part| part.split('"').next().unwrap().replace("&amp;", "&"))
        .collect();
    assert_eq!(
        links,
        [
            "form=yaml",
            "pattern=turn%28lock*&action=deny&line=3",
            "action=remove&line=3",
            "pattern=look*&action=allow&line=5",
            "action=remove&line=5",
            "line=6&form=yaml",
            "action=remove&line=6"
        ],
        "what says more than the form is changed as it is written"
    );
    let page = preview(&visitor, &gateway, "pattern=turn%28lock*&action=ask&line=3");
    assert!(
        page.text.contains("<span class=\"gone\">-   - pattern: &#39;turn(lock*&#39;</span>")
            || page.text.contains("class=\"gone\">-   - pattern: 'turn(lock*'"),
        "{}",
        page.text
    );
    assert_eq!(save(&visitor, &gateway, &page, &[]).status, 200);
    assert_eq!(
        text(&place),
        "rules:\n  # locks\n  - { pattern: \"turn(lock*\", action: ask }\n  - { pattern: 'look*', action: allow }\n  - { tool: turn, args: { way: up }, action: allow }\n"
    );
    let lost = preview(&visitor, &gateway, "pattern=turn*&action=allow&line=5");
    assert!(lost.text.contains("has fields that this form does not have"), "{}", lost.text);
    let page = preview(&visitor, &gateway, "action=remove&line=4");
    let saved = save(&visitor, &gateway, &page, &[]);
    assert!(saved.text.contains("Rule removed from "), "{}", saved.text);
    assert_eq!(
        text(&place),
        "rules:\n  # locks\n  - { pattern: \"turn(lock*\", action: ask }\n  - { tool: turn, args: { way: up }, action: allow }\n"
    );
    assert!(
        record(&place).contains("web:open edits the rules file: - - { pattern: 'look*', action: allow }"),
        "{}",
        record(&place)
    );
}

#[test]
fn a_rule_on_arguments_and_a_default_are_changed_as_they_are_written() {
    let place = GatewayFixture::with_config_and_rules(
        "",
        "rules:\n  # blinds\n  - tool: turn\n    args: { way: up }   # never down\n    action: allow\ndefaults:\n  - { pattern: 'look*', action: allow }\n",
    );
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "east", "way": "down" }));
    place.allow_gate(&place.wait_gate());
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    let policy = visitor.get_page(&gateway, "/console/policy").text;
    assert!(policy.contains("turn {&quot;way&quot;:&quot;up&quot;}"), "all of it is shown: {policy}");
    let stands = preview(&visitor, &gateway, "line=3&form=yaml").text;
    assert!(stands.contains("\ntool: turn\nargs: { way: up }   # never down\naction: allow</textarea>"), "{stands}");
    let query = "form=yaml&line=3&text=tool%3A+turn%0D%0Aargs%3A%0D%0A++way%3A+%7B+in%3A+%5Bup%2C+down%5D+%7D+%23+both%0D%0Aaction%3A+allow%0D%0A";
    let page = preview(&visitor, &gateway, query);
    for want in [
        "1 recorded call: <strong>1 would be allowed</strong>",
        "+   - tool: turn",
        "+       way: { in: [up, down] } # both",
    ] {
        assert!(page.text.contains(want), "{want}: {}", page.text);
    }
    assert_eq!(save(&visitor, &gateway, &page, &[]).status, 200);
    let rule =
        "rules:\n  # blinds\n  - tool: turn\n    args:\n      way: { in: [up, down] } # both\n    action: allow\n";
    assert_eq!(text(&place), format!("{rule}defaults:\n  - {{ pattern: 'look*', action: allow }}\n"));
    agent.request_tool(2, "turn", json!({ "thing": "west", "way": "down" }));
    assert_eq!(agent.wait_reply(&json!(2))["result"]["status"], "executed");
    let page = preview(&visitor, &gateway, "form=yaml&line=8&text=%7B+pattern%3A+%27look*%27%2C+action%3A+deny+%7D");
    assert_eq!(save(&visitor, &gateway, &page, &[]).status, 200);
    assert_eq!(text(&place), format!("{rule}defaults:\n  - {{ pattern: 'look*', action: deny }}\n"));
    agent.request_tool(3, "look", json!({ "thing": "lamp" }));
    assert!(agent.wait_reply(&json!(3))["error"].is_object());
    for (text, expected) in [
        ("tool: turn\nargs: { way: { mx: 1 } }\naction: deny", "permissions.yaml:8: rules[1].args.way"),
        ("tool: turn\naction: perhaps", "Invalid permission action"),
        ("just words", "not a rule: expected a mapping"),
        ("tool: turn\nargs: {", "of the new rule"),
    ] {
        let query: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let page = preview(&visitor, &gateway, &format!("form=yaml&text={query}"));
        assert!(
            page.text.contains("This cannot be saved") && page.text.contains(expected),
            "{expected}: {}",
            page.text
        );
    }
    let nowhere = visitor.get_page(&gateway, "/console/try?form=yaml&line=99");
    assert_eq!(nowhere.status, 404);
    assert!(nowhere.text.contains("no rule starts on line 99"), "{}", nowhere.text);
    place.verify_log();
}

#[test]
fn a_file_that_is_not_there_is_made_for_its_owner_alone() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    fs::remove_file(file(&place)).unwrap();
    let gateway = GatewayServer::start(&place);
    let visitor = BrowserClient::default();
    let page = preview(&visitor, &gateway, "pattern=look*&action=allow");
    // It removes the default permissions that hold without any rule.
    let first =
        "this is the first rule. As long as there are no rules, reading files in the workspace needs no approval";
    assert!(page.text.contains(first), "{}", page.text);
    assert_eq!(save(&visitor, &gateway, &page, &[]).status, 200);
    let page = preview(&visitor, &gateway, "pattern=turn*&action=allow");
    assert!(!page.text.contains(first), "{}", page.text);
    assert_eq!(text(&place), "rules:\n  - { pattern: \"look*\", action: allow }\n");
    assert_eq!(fs::metadata(file(&place)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn saving_needs_a_login_and_a_page_of_the_console_and_records_the_author() {
    let place = GatewayFixture::with_config_and_rules("web: { password: open-sesame }", RULES);
    let gateway = GatewayServer::start(&place);
    let stranger = BrowserClient::default();
    let whole = [("pattern", "look*"), ("action", "allow"), ("seen", "00")];
    assert_eq!(stranger.post_form(&gateway, "/console/rules", &whole).status, 302);
    let entered = stranger.post_form(&gateway, "/login", &[("password", "open-sesame")]);
    let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let visitor = BrowserClient { cookie: Some(cookie), ..BrowserClient::default() };
    let page = preview(&visitor, &gateway, "pattern=look*&action=allow");
    assert_eq!(save(&visitor, &gateway, &page, &[("csrf", "")]).status, 403);
    let foreign = BrowserClient { headers: vec![("origin", "https://evil.example".to_owned())], ..visitor.clone() };
    assert_eq!(save(&foreign, &gateway, &page, &[]).status, 403);
    let made = place.run_as_person(&["tokens", "add", "robot", "--scope", "admin", "--json"]).json();
    let token = made["token"].as_str().unwrap();
    let robot =
        BrowserClient { headers: vec![("authorization", format!("Bearer {token}"))], ..BrowserClient::default() };
    let refused = save(&robot, &gateway, &page, &[]);
    assert_eq!((refused.status, refused.text.contains("a token is not enough")), (403, true), "{}", refused.text);
    assert_eq!(text(&place), RULES);
    assert_eq!(save(&visitor, &gateway, &page, &[]).status, 200);
    assert!(record(&place).contains("web edits the rules file: "), "{}", record(&place));
}

#[test]
fn a_kill_anywhere_while_a_rule_is_saved_leaves_one_of_the_two_files_and_it_is_in_force() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let visitor = BrowserClient::default();
    let mut saved = 0;
    for round in 0..6_u32 {
        let gateway = GatewayServer::start(&place);
        let before = text(&place);
        let page = preview(&visitor, &gateway, &format!("pattern=turn%28round{round}*&action=allow"));
        let item = format!("  - {{ pattern: \"turn(round{round}*\", action: allow }}\n");
        let after = before.replace("\n\n# about", &format!("\n{item}\n# about"));
        std::thread::scope(|scope| {
            let (sender, page) = (&visitor, &page);
            let gateway = &gateway;
            scope.spawn(move || {
                // The connection may end before the reply.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| save(sender, gateway, page, &[])));
            });
            // Between the file and the rules in every other round, at a random earlier time in the others.
            if round % 2 == 0 {
                eventually("the file", || (text(&place) != before).then_some(()));
            }
            gateway.send_signal(Signal::SIGKILL);
        });
        gateway.kill();
        let left = text(&place);
        assert!(left == before || left == after, "{round}: {left}");
        assert_eq!(
            fs::read_dir(&place.folder)
                .unwrap()
                .flatten()
                .filter(|one| one.file_name().to_string_lossy().ends_with(".yaml"))
                .count(),
            3
        );
        let is_new = left == after;
        saved += u32::from(is_new);
        let gateway = GatewayServer::start(&place);
        let policy = visitor.get_page(&gateway, "/console/policy");
        assert_eq!(
            policy.text.contains(&format!("<code>turn(round{round}*</code>")),
            is_new,
            "{round}: {}",
            policy.text
        );
        drop(gateway);
    }
    assert!(saved >= 3, "the file is waited for in three rounds, and stays: {saved}");
    place.verify_log();
}
