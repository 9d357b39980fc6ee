//! The types that fields of this dialect can have beside those of omp.
//!
//! It must not know which command has which.

use crate::gjc::state::TodoPhase;
use crate::json::Json;
use crate::omp::command::fields::{Field, from_json};

impl Field for Vec<String> {
    const EXPECTED: &'static str = "an array of strings";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for Vec<Json> {
    const EXPECTED: &'static str = "an array";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for Vec<TodoPhase> {
    const EXPECTED: &'static str = "an array of phases {name, tasks: [{content, status: pending, in_progress, completed or abandoned, notes?: [string]}]}";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}

impl Field for u64 {
    const EXPECTED: &'static str = "a whole number that is not negative";

    fn read(json: &str) -> Option<Self> {
        from_json(json)
    }
}
