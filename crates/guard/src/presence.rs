//! Presence of a guard in settings, also of one without a receipt.

use crate::{
    json_syntax::JsonSyntax,
    own_entries::OwnEntries,
    program::{GuardScope, GuardedProgram},
    toml_tables,
};

/// Reports whether the text of settings has entries that are recognisably of a guard.
pub(crate) fn has_own_entries(program: GuardedProgram, scope: GuardScope, text: &str, own: &OwnEntries) -> bool {
    if program.has_toml_settings(scope) {
        return toml_tables::has_requirements(text, own);
    }
    JsonSyntax::Comments.parse_value(text).is_ok_and(|settings| !own.find(&settings).is_empty())
}

/// Reports whether the text of settings has a guard in it, also one that is a rule alone.
pub(crate) fn has_guard(program: GuardedProgram, scope: GuardScope, text: &str) -> bool {
    match (program, scope) {
        (GuardedProgram::Opencode, GuardScope::Managed) => {
            let settings = program.parse_settings(text).unwrap_or_default();
            program.entries(scope, "").iter().all(|entry| entry.is_in(&settings))
        }
        _ => has_own_entries(program, scope, text, &OwnEntries::new(program, None)),
    }
}
