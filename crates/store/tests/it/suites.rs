//! The suite, on real files, directly and through the type that hides where a log is kept.

use std::sync::Arc;

use countersign_store::{
    AnyLog, View,
    suite::{Damage, Subject},
};

use crate::place::Place;

struct Hidden(Place);

impl Subject for Hidden {
    type Log = AnyLog;

    async fn open_with(&self, views: Vec<Arc<dyn View>>) -> AnyLog {
        self.0.open_with(views).await.into()
    }

    async fn damage(&self, damage: Damage) {
        self.0.damage(damage).await;
    }
}

mod sqlite {
    countersign_store::behaviour_suite!(crate::place::Place::new());
}

mod any {
    countersign_store::behaviour_suite!(super::Hidden(crate::place::Place::new()));
}
