//! Records that earlier versions wrote: they are read as they are, and worked with.

use std::fs;

use serde_json::{Value, json};

use crate::{
    agent::Agent,
    gateway::Gateway,
    place::{Place, TOKEN},
};

/// Each record with the head that its own time printed.
const RECORDS: [(&str, &str); 1] =
    [("2026-11-22.db", "58:691a806e2bf9b9ece80052e5ee7de7a077634c44bfc16403c337a1c2630859c0")];

/// What takes a record of today's tables back to those of a version.
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
            let place = Place::with("model: { provider: demo, id: scripted-1 }", crate::place::RULES);
            fs::create_dir(place.data()).unwrap();
            let kept = format!("{}/tests/logs/{name}", env!("CARGO_MANIFEST_DIR"));
            fs::copy(&kept, place.log()).unwrap();
            let connection = rusqlite::Connection::open(place.log()).unwrap();
            connection.execute_batch(back).unwrap();
            drop(connection);
            let log = place.log();
            let verify = |head: &str| {
                let said = place.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap(), "--head", head]);
                assert_eq!((said.code, &said.json()["flaw"]), (Some(0), &Value::Null), "{case}: {said:?}");
            };
            verify(head);

            let mut gateway = Gateway::start(&place);
            let gate = place.gate();
            let shown = place.people(&["gates", "show", &gate]);
            assert!(shown.out.contains("turn(door, open)"), "{case}: {shown:?}");
            let sessions = place.people(&["sessions", "list", "--json"]);
            assert!(sessions.out.contains("hello there"), "{case}: {sessions:?}");
            let mut agent = Agent::join(&gateway, TOKEN);
            // A person allowed it for good at that time.
            let turned = agent.call(7, "turn", json!({ "thing": "stove", "way": "on" }));
            assert!(turned.to_string().contains("/turn/stove"), "{case}: {turned}");
            place.allow(&gate);
            place.service.wait("/turn/door", 1);
            assert_eq!(gateway.stop().code, Some(0), "{case}");
            verify(head);
        }
    }
}
