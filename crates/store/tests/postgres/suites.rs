//! The suite, on a real server, directly and through the type that hides where a log is kept.

use std::sync::Arc;

use countersign_store::{
    AnyLog, LogView, PostgresLog, PostgresOptions,
    suite::{LogDamage, LogFixture},
};

use crate::database::Database;

impl LogFixture for Database {
    type Log = PostgresLog;

    async fn open_with(&self, views: Vec<Arc<dyn LogView>>) -> PostgresLog {
        PostgresLog::open(PostgresOptions { views, ..self.options() }).unwrap()
    }

    async fn inflict_damage(&self, damage: LogDamage) {
        let (sql, lsn) = match damage {
            LogDamage::Facts(lsn) => ("UPDATE countersign.events SET facts = '{}' WHERE lsn = $1", lsn),
            LogDamage::At(lsn) => ("UPDATE countersign.events SET at = 1 WHERE lsn = $1", lsn),
            LogDamage::Content(lsn) => ("UPDATE countersign.contents SET bytes = 'a' WHERE lsn = $1", lsn),
            LogDamage::LoseContent(lsn) => ("DELETE FROM countersign.contents WHERE lsn = $1", lsn),
            LogDamage::Remove(lsn) => ("DELETE FROM countersign.events WHERE lsn = $1", lsn),
            LogDamage::CutBehind(lsn) => ("DELETE FROM countersign.events WHERE lsn > $1", lsn),
        };
        assert!(self.admin().await.execute(sql, &[&(lsn.0 as i64)]).await.unwrap() > 0);
    }
}

struct AnyDatabase(Database);

impl LogFixture for AnyDatabase {
    type Log = AnyLog;

    async fn open_with(&self, views: Vec<Arc<dyn LogView>>) -> AnyLog {
        self.0.open_with(views).await.into()
    }

    async fn inflict_damage(&self, damage: LogDamage) {
        self.0.inflict_damage(damage).await;
    }
}

mod postgres {
    use crate::database::Database;

    countersign_store::behaviour_suite!(match Database::new() {
        Some(database) => database,
        None => return,
    });
}

mod any {
    use crate::database::Database;

    countersign_store::behaviour_suite!(match Database::new() {
        Some(database) => super::AnyDatabase(database),
        None => return,
    });
}
