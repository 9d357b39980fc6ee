//! The suite, on real files, directly and through the type that hides where a log is kept.

use std::sync::Arc;

use countersign_store::{
    AnyLog, LogView,
    suite::{LogDamage, LogFixture},
};

use crate::log_folder::LogFolder;

struct AnyLogFolder(LogFolder);

impl LogFixture for AnyLogFolder {
    type Log = AnyLog;

    async fn open_with(&self, views: Vec<Arc<dyn LogView>>) -> AnyLog {
        self.0.open_with(views).await.into()
    }

    async fn inflict_damage(&self, damage: LogDamage) {
        self.0.inflict_damage(damage).await;
    }
}

mod sqlite {
    countersign_store::behaviour_suite!(crate::log_folder::LogFolder::new());
}

mod any {
    countersign_store::behaviour_suite!(super::AnyLogFolder(crate::log_folder::LogFolder::new()));
}
