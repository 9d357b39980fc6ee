//! Tools of runs for tests: one of the gateway's own, and none of a node.

use std::sync::Arc;

use countersign_config::{
    Known,
    strangers::{self, Others},
};
use countersign_core::call;
use serde_json::{Map, Value};

use super::{adapter::RunTools, household::Household};

/// A gateway whose runs have one tool of their own, `gsv__Cron`.
pub(super) struct Runs;

impl RunTools for Runs {
    fn own(&self) -> Vec<strangers::Known<'static>> {
        vec![strangers::Known { name: "gsv__Cron", takes: vec!["action"], others: Others::No }]
    }

    fn node_call(&self, _: &str, _: &Map<String, Value>) -> Option<call::CallDetails> {
        None
    }
}

/// Returns what rules are about as far as a configuration says it.
pub(super) fn household(known: Known) -> Household {
    Household::of_known(known, Arc::new(Runs))
}
