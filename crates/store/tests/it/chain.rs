//! The documented way to check a chain from outside.

use std::path::Path;

use countersign_core::{digest::Digest, id::Lsn};
use countersign_store::{
    Batch, Log, LogRecord,
    suite::{append_as_owner, text_record},
};

use crate::log_folder::LogFolder;

#[tokio::test]
async fn the_documented_query_gives_the_text_of_each_chain() {
    let place = LogFolder::new();
    let log = place.open();
    let bare = LogRecord { session: None, facts: r#"{"ä":"€"}"#.into(), ..text_record("bare") };
    append_as_owner(&log, Lsn(0), Batch(vec![text_record("content one"), bare, text_record("two")])).await.unwrap();
    log.close().await;

    let query = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/chain.sql")).unwrap();
    let connection = place.raw();
    for lsn in 1..=3 {
        let query = query.replace("lsn = 7", &format!("lsn = {lsn}"));
        let (text, chain): (String, String) =
            connection.query_row(&query, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(Digest::hash_bytes(text.as_bytes()).to_string(), chain, "record {lsn}");
    }
    let (salted, digest): (String, String) = connection
        .query_row(
            "SELECT hex(salt) || hex(bytes), lower(hex(content_digest)) FROM contents JOIN events USING (lsn) WHERE lsn = 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(Digest::hash_bytes(&hex::decode(salted).unwrap()).to_string(), digest);
}
