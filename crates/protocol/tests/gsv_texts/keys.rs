//! Keys of sessions, chats and people.

use std::collections::BTreeMap;

use countersign_protocol::gsv::RawKeys;
use countersign_protocol::gsv::channel::{ChatPeer, PeerKind};
use countersign_protocol::gsv::directive::parse_directives;
use countersign_protocol::gsv::key::{self, DmScope, SessionKeyScheme};
use countersign_protocol::gsv::message::safe_to_show;
use proptest::prelude::*;

use super::text;

#[test]
fn keys_have_one_canonical_form() {
    let keys = |scope| SessionKeyScheme { scope, ..SessionKeyScheme::default() };
    let main = keys(DmScope::Main);
    let of_peer = keys(DmScope::PerPeer);
    let of_channel = keys(DmScope::PerChannelPeer);
    let of_account = keys(DmScope::PerAccountChannelPeer);
    let home = SessionKeyScheme { main_key: text("home"), agent: text("ana"), ..SessionKeyScheme::default() };
    for (case, keys, raw, want) in [
        ("the word", &main, " main ", "agent:main:main"),
        ("another word", &home, "home", "agent:ana:home"),
        ("main is always main", &home, "main", "agent:ana:home"),
        ("three parts", &home, "agent:Bob:main", "agent:bob:home"),
        ("a free key", &main, "my notes", "my notes"),
        ("a free key with points", &main, "a:b:c:d", "a:b:c:d"),
        ("the command line's", &main, "agent:main:cli:dm:main", "agent:main:main"),
        ("a browser's", &main, "agent:main:web:dm:local", "agent:main:main"),
        ("one a person", &of_peer, "agent:main:web:dm:Local", "agent:main:dm:local"),
        ("one a person and network", &of_channel, "agent:main:Web:dm:local", "agent:main:web:dm:local"),
        ("without an account", &of_account, "agent:main:web:dm:local", "agent:main:web:default:dm:local"),
        ("with one", &of_account, "agent:main:web:Bot 1:dm:local", "agent:main:web:bot-1:dm:local"),
        ("an id with points", &of_peer, "agent:main:matrix:dm:@a:b.org", "agent:main:dm:@a_b.org"),
        ("a group", &main, "agent:main:Discord:group:A B", "agent:main:discord:group:a_b"),
        ("a job", &main, "agent:main:cron:dm:x", "agent:main:cron:dm:x"),
        ("a heartbeat", &main, "agent:main:heartbeat:system:internal", "agent:main:heartbeat:system:internal"),
        ("nobody", &main, "agent:main:web:dm", "agent:main:web:dm"),
        ("no agent", &main, "agent::main", "agent:main:main"),
        ("too short", &main, "agent:main", "agent:main"),
    ] {
        assert_eq!(keys.canonical_key(raw), want, "{case}");
    }
}

#[test]
fn chats_have_sessions_of_their_scope() {
    let peer = |kind, id: &str| ChatPeer { kind, id: text(id), name: None, handle: None };
    let keys = SessionKeyScheme { scope: DmScope::PerChannelPeer, ..SessionKeyScheme::default() };
    assert_eq!(
        keys.chat_session_key("main", "WhatsApp", "x", &peer(PeerKind::Dm, "+49 1")),
        "agent:main:whatsapp:dm:+49_1"
    );
    assert_eq!(
        keys.chat_session_key("Main", "discord", "x", &peer(PeerKind::Thread, "T1")),
        "agent:main:discord:thread:t1"
    );
    assert_eq!(SessionKeyScheme::job_session_key("main", "j1"), "agent:main:cron:j1");
    assert_eq!(SessionKeyScheme::heartbeat_session_key("main"), "agent:main:heartbeat:system:internal");
    for own in [SessionKeyScheme::job_session_key("main", "j1"), SessionKeyScheme::heartbeat_session_key("main")] {
        assert!(key::is_of_automation(&own), "{own}");
    }
    for peoples in ["agent:cron:main", "agent:main:wx:group:cron", "agent:main", "cron"] {
        assert!(!key::is_of_automation(peoples), "{peoples}");
    }
    assert_eq!(key::agent_of("agent:bob:main"), Some("bob"));
    assert_eq!(key::agent_of("notes"), None);
    let linked = SessionKeyScheme {
        scope: DmScope::PerPeer,
        identities: BTreeMap::from([(text("ana"), vec![text("whatsapp:+491701234567"), text("discord:4711")])]),
        ..SessionKeyScheme::default()
    };
    for (channel, id, want) in [
        ("whatsapp", "491701234567:12@s.whatsapp.net", "agent:main:dm:ana"),
        ("discord", "4711", "agent:main:dm:ana"),
        ("telegram", "4711", "agent:main:dm:4711"),
    ] {
        assert_eq!(linked.chat_session_key("main", channel, "x", &peer(PeerKind::Dm, id)), want, "{channel} {id}");
    }
}

#[test]
fn chats_whose_ids_look_alike_in_a_key_share_no_session() {
    let peer = |kind, id: &str| ChatPeer { kind, id: text(id), name: None, handle: None };
    let keys = SessionKeyScheme { scope: DmScope::PerPeer, ..SessionKeyScheme::default() };
    for kind in [PeerKind::Group, PeerKind::Dm] {
        let of = |id: &str| keys.chat_session_key("main", "wx", "x", &peer(kind, id));
        let all = ["!AbC:srv", "!aBc:srv", "!abc:srv", "групп", "чатик", "_____", "Γ", "é", "e\u{301}"].map(of);
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        for key in &all {
            assert_eq!(&keys.canonical_key(key), key, "it is its own key");
        }
        // Others are called as they always were.
        assert!(of("C024BE91L").ends_with(":c024be91l") && of("@a:b.org").ends_with(":@a_b.org"));
    }
    let linked = |name: &str| SessionKeyScheme {
        scope: DmScope::PerPeer,
        identities: BTreeMap::from([(text(name), vec![text("wx:1")])]),
        ..SessionKeyScheme::default()
    };
    let of = |name: &str| linked(name).chat_session_key("main", "wx", "x", &peer(PeerKind::Dm, "1"));
    assert_ne!(of("Аня"), of("Оля"));
}

#[test]
fn phone_numbers_are_distinguished_from_other_ids() {
    for (id, want) in [
        ("491701234567@s.whatsapp.net", "+491701234567"),
        ("491701234567:12@s.whatsapp.net", "+491701234567"),
        ("+49 170 / 1234567", "+491701234567"),
        ("4711", "4711"),
        ("+4711", "+4711"),
        // Ids without a number stay different from each other.
        ("@ana:matrix.org", "@ana:matrix.org"),
        ("ana", "ana"),
        ("ana2", "ana2"),
        // A group of a network is no person whose number has the same digits.
        ("-1001234567890", "-1001234567890"),
        ("-4711", "-4711"),
        ("", ""),
    ] {
        assert_eq!(key::phone_number(id), want, "{id}");
    }
    assert_eq!(key::agent_id(" My Agent! "), "my-agent");
    assert_eq!(key::agent_id("éé"), "main");
    assert_eq!(key::agent_id(&"a".repeat(99)).len(), 64);
}

proptest! {
    #[test]
    fn a_canonical_key_is_its_own(
        raw in prop_oneof!["agent:[a-zA-Z ]{0,3}(:(dm|group|cron|main|web|X y|)){0,6}", "\\PC{0,24}"],
        scope in proptest::sample::select(&[
            DmScope::Main, DmScope::PerPeer, DmScope::PerChannelPeer, DmScope::PerAccountChannelPeer,
        ][..]),
    ) {
        let keys = SessionKeyScheme { scope, ..SessionKeyScheme::default() };
        let once = keys.canonical_key(&raw);
        prop_assert_eq!(keys.canonical_key(&once), once);
    }

    #[test]
    fn a_message_without_directives_stays_as_it_is(message in "[a-z /:\n\t]{0,40}") {
        let parsed = parse_directives(&message, "p");
        if !parsed.any {
            prop_assert_eq!(parsed.text, message);
        }
    }

    #[test]
    fn shown_text_can_be_cut_where_the_command_line_cuts(shown in "\\PC{0,300}") {
        let safe = safe_to_show(&shown);
        prop_assert!(safe.len() <= 200 || safe.is_char_boundary(200));
        prop_assert_eq!(safe.replace(' ', ""), shown.replace(' ', ""));
    }
}

#[test]
fn a_connection_gets_the_keys_as_it_wrote_them() {
    let mut keys = RawKeys::default();
    keys.remember_key("agent:main:main", "agent:main:cli:dm:main");
    assert_eq!(keys.raw_key("agent:main:main"), "agent:main:cli:dm:main");
    assert_eq!(keys.raw_key("agent:main:other"), "agent:main:other");
    keys.remember_key("agent:main:main", "main");
    assert_eq!(keys.raw_key("agent:main:main"), "main");
    keys.remember_key("agent:main:main", "agent:main:main");
    assert_eq!(keys.raw_key("agent:main:main"), "agent:main:main");
    // One that names ever new sessions costs no more than one that names some.
    for number in 0..300 {
        keys.remember_key(&format!("agent:main:dm:{number}"), &format!("raw{number}"));
    }
    assert_eq!(keys.raw_key("agent:main:dm:299"), "raw299");
    assert_eq!(keys.raw_key("agent:main:dm:0"), "agent:main:dm:0");
}
