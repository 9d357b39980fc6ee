//! How runs of a door's sessions ask people, as flags, environment and settings say.

use countersign_core::session::{Asking, Told};
use countersign_protocol::gjc::ui::TITLE_VARIABLES;

use super::flags::Flags;
use crate::gjc::{Manner, NOBODY, Reasons, workflow::Options};
use countersign_agent_dir as agent_dir;
use countersign_agent_dir::{Environment, Product};

/// What a host of gjc says of itself by its flags and its environment.
pub(super) fn manner(flags: &Flags, environment: &Environment) -> Manner {
    let leaves_out = |name: &str| environment.get(name).is_some_and(|value| value.trim() == "none");
    Manner {
        dialogs: matches!(flags.mode.as_deref(), Some("rpc-ui" | "bridge")),
        options: if leaves_out("GJC_RPC_GATE_OPTIONS") { Options::None } else { Options::Objects },
        reasons: if leaves_out("GJC_RPC_STOP_REASONS") { Reasons::None } else { Reasons::Named },
        stage: flags.stage,
        titles: TITLE_VARIABLES.iter().any(|name| environment.get(name).is_some_and(is_on)),
    }
}

/// What counts as yes in a variable.
fn is_on(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}

/// How runs of a session ask people.
pub(super) fn set(settings: &agent_dir::Settings, product: Product, manner: Manner) -> Asking {
    let gates = &settings.ours.gates;
    let asking =
        Asking { question: gates.question, plan: gates.approval, execution: gates.execution, ..Asking::default() };
    match product {
        Product::Omp => asking,
        Product::Gjc => {
            let nobody = (!manner.dialogs).then(|| NOBODY.to_owned());
            Asking { nobody, told: Told::Selected, ..asking }
        }
    }
}
