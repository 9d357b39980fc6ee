//! State of a record, read without a gateway.
//!
//! It must not decide anything: there are no rules.

use countersign_core::{
    engine::{ActiveRules, Engine},
    gate::IdentityMap,
    policy::{self, DefaultPolicy, PathContext},
};
use countersign_store::AnyLog;

/// Returns the state of a record, without rules.
pub(crate) async fn inspect_log(log: &AnyLog) -> anyhow::Result<Engine> {
    Ok(countersign_runtime::inspect_log(log, no_rules()?).await?)
}

/// Returns rules under which nothing is decided.
pub(crate) fn no_rules() -> anyhow::Result<ActiveRules> {
    Ok(ActiveRules {
        compiled: policy::compile_rules(Vec::new())
            .map_err(|_| anyhow::anyhow!("the empty set of rules does not compile"))?,
        default_policy: DefaultPolicy::Gateway,
        path_context: PathContext::default(),
        people: IdentityMap::default(),
    })
}
