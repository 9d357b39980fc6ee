//! The table of methods row by row: who may call what, and what they must be allowed to. Written from the protocol's reference,
//! not from the table.

use countersign_protocol::gsv::{
    connect::PeerMode,
    method::{Method, MethodScope, TABLE, dispatch_method},
};

const MODES: [(&str, PeerMode); 3] =
    [("client", PeerMode::Client), ("node", PeerMode::Node), ("channel", PeerMode::Channel)];

/// Method, modes, scope.
const ROWS: &str = "
connect client,node,channel presence
tools.list client,node presence
tool.result node node
node.probe.result node node
node.exec.event node node
logs.result node node
channel.inbound channel channel
chat.send client chat
tool.invoke client chat
tool.request client chat
session.reset client chat
session.patch client chat
session.compact client chat
heartbeat.trigger client chat
cron.run client chat
logs.get client read
sessions.list client read
session.get client read
session.stats client read
session.history client read
session.preview client read
channels.list client read
channel.status client read
heartbeat.status client read
cron.status client read
cron.list client read
cron.runs client read
skills.status client read
skills.update client read
workspace.list client read
workspace.read client read
config.get client admin
config.set client admin
pair.list client admin
pair.approve client admin
pair.reject client admin
channel.start client admin
channel.stop client admin
channel.login client admin
channel.logout client admin
heartbeat.start client admin
cron.add client admin
cron.update client admin
cron.remove client admin
workspace.write client admin
workspace.delete client admin
";

fn scope(word: &str) -> MethodScope {
    match word {
        "presence" => MethodScope::Presence,
        "read" => MethodScope::Read,
        "chat" => MethodScope::Chat,
        "admin" => MethodScope::Admin,
        "node" => MethodScope::Node,
        "channel" => MethodScope::Channel,
        other => panic!("{other}"),
    }
}

#[test]
fn each_method_is_for_its_modes_and_its_scope() {
    let rows: Vec<[&str; 3]> =
        ROWS.lines().filter_map(|row| <[&str; 3]>::try_from(row.split(' ').collect::<Vec<_>>()).ok()).collect();
    assert_eq!((rows.len(), TABLE.len()), (46, 46));
    for [name, modes, word] in rows {
        let method = Method::named(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!((method.name(), method.table_row().scope), (name, scope(word)), "{name}");
        for (called, mode) in MODES {
            let is_for = modes.split(',').any(|listed| listed == called);
            let refused = format!("Method {name} not allowed for mode");
            let want = if is_for { Ok(method) } else { Err((403, refused)) };
            assert_eq!(
                dispatch_method(name, Some(mode)).map_err(|fault| (fault.code, fault.message)),
                want,
                "{name} {called}"
            );
        }
        let before = dispatch_method(name, None).map_err(|fault| (fault.code, fault.message));
        let want = if name == "connect" { Ok(method) } else { Err((101, "Not connected".to_owned())) };
        assert_eq!(before, want, "{name} before connect");
    }
}
