//! Records that earlier versions wrote: they are read as they are, and worked with.

use std::fs;

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, RULES, agent_gate::AgentClient,
};
use serde_json::{Value, json};

/// Each record with the head that its own time printed.
const RECORDS: [(&str, &str); 1] =
    [("2026-11-22.db", "58:691a806e2bf9b9ece80052e5ee7de7a077634c44bfc16403c337a1c2630859c0")];

/// Statements that take a record of today's tables back to those of a version.
const BACK: [(&str, &str); 3] = [
    ("as it is", ""),
    ("schema 2", "DROP TABLE views; DROP TABLE view_positions; DELETE FROM snapshots; PRAGMA user_version = 2;"),
    (
        "schema 1",
        "DROP TABLE views; DROP TABLE view_positions; DELETE FROM snapshots;
         DROP INDEX events_by_key; DROP INDEX events_by_session;
         ALTER TABLE events DROP COLUMN key; PRAGMA user_version = 1;",
    ),
];

#[test]
fn a_record_of_an_earlier_version_is_whole_and_goes_on() {
    for (name, head) in RECORDS {
        for (form, back) in BACK {
            let case = format!("{name}, {form}");
            let place = GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES);
            fs::create_dir(place.data_dir()).unwrap();
            let kept = format!("{}/tests/logs/{name}", env!("CARGO_MANIFEST_DIR"));
            fs::copy(&kept, place.log_path()).unwrap();
            let connection = rusqlite::Connection::open(place.log_path()).unwrap();
            connection.execute_batch(back).unwrap();
            drop(connection);
            let log = place.log_path();
            let verify = |head: &str| {
                let output = place.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap(), "--head", head]);
                assert_eq!((output.code, &output.json()["flaw"]), (Some(0), &Value::Null), "{case}: {output:?}");
            };
            verify(head);

            let mut gateway = GatewayServer::start(&place);
            let gate = place.wait_gate();
            let shown = place.run_as_person(&["gates", "show", &gate]);
            assert!(shown.out.contains("turn(door, open)"), "{case}: {shown:?}");
            let sessions = place.run_as_person(&["sessions", "list", "--json"]);
            assert!(sessions.out.contains("hello there"), "{case}: {sessions:?}");
            let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
            // An approver allowed it permanently at that time.
            let turned = agent.call_tool(7, "turn", json!({ "thing": "stove", "way": "on" }));
            assert!(turned.to_string().contains("/turn/stove"), "{case}: {turned}");
            place.allow_gate(&gate);
            place.service.wait_requests("/turn/door", 1);
            assert_eq!(gateway.stop().code, Some(0), "{case}");
            verify(head);
        }
    }
}

/// A gate of every kind that a gateway has, jobs, a node, an account of a chat network, and denials whose time is over.
#[test]
fn a_record_with_everything_that_may_wait_goes_on() {
    const NAME: &str = "2026-11-25.db";
    const HEAD: &str = "104:e891f9718320330ea9612b963e3828fec0aab56ad98641a37fb9f349cb2ea886";
    for (form, back) in BACK {
        let place = GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES);
        fs::create_dir(place.data_dir()).unwrap();
        fs::copy(format!("{}/tests/logs/{NAME}", env!("CARGO_MANIFEST_DIR")), place.log_path()).unwrap();
        rusqlite::Connection::open(place.log_path()).unwrap().execute_batch(back).unwrap();
        let log = place.log_path();
        let verify = || {
            let output = place.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap(), "--head", HEAD]);
            assert_eq!((output.code, &output.json()["flaw"]), (Some(0), &Value::Null), "{form}: {output:?}");
        };
        verify();

        let mut gateway = GatewayServer::start(&place);
        let waits = place.pending_gates();
        let of = |text: &str| {
            let found = waits.iter().find(|gate| gate["title"].as_str().unwrap().contains(text));
            let found = found.unwrap_or_else(|| panic!("{form}: nothing that says {text:?} waits in {waits:?}"));
            (found["kind"].as_str().unwrap().to_owned(), found["id"].as_str().unwrap().to_owned())
        };
        let kinds: Vec<String> =
            ["turn", "desk__Bash", "Which stove?", "Bob (bob)", "agent:kitchen"].map(|text| of(text).0).into();
        assert_eq!(kinds, ["approval", "approval", "question", "pairing", "budget"], "{form}");
        let (_, door) = of("turn");
        place.allow_gate(&door);
        place.service.wait_requests("/turn/door", 1);
        let (_, stove) = of("Which stove?");
        let answered = place.run_as_person(&["gates", "answer", &stove, "left"]);
        assert_eq!(answered.code, Some(0), "{form}: {answered:?}");
        for text in ["Bob (bob)", "agent:kitchen"] {
            let allowed = place.run_as_person(&["gates", "allow", &of(text).1]);
            assert_eq!(allowed.code, Some(0), "{form}: {allowed:?}");
        }
        // An agent with a permission to continue needs a new approval.
        let mut kitchen = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
        kitchen.request_tool(30, "turn", json!({ "thing": "attic", "way": "open" }));
        let title = place.wait_gates(2).iter().map(|gate| gate["subject"].to_string()).collect::<String>();
        assert!(title.contains("turn(attic, open)") && title.contains("sh build.sh"), "{form}: {title}");
        assert_eq!(gateway.stop().code, Some(0), "{form}");
        verify();
    }
}
