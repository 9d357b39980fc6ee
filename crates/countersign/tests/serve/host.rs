//! What the provider of models expects of whoever drives it.

pub(crate) use crate::gateway::PATIENCE;
