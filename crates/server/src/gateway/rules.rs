//! The rules of a gateway: one file, and what stands where it says nothing.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::Rules,
    policy::{self, Action, Constraints, Grants, Layer, Layers, Posture, Source, Surroundings, Verdict},
    time::Millis,
};

use crate::{
    agent_gate::{self, Tools},
    config::{self, Case, Errors},
};

/// Why rules were not taken.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read, or is not what a file of rules is.
    #[error("{0}")]
    Form(#[from] Errors),
    /// Its rules cannot be compiled.
    #[error("{}: {problem}", path.display())]
    Compile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line where that is known.
        problem: String,
    },
    /// Something else comes of a case than its author expects.
    #[error("{0}")]
    Case(String),
}

/// Rules, and what a person should know about them.
#[derive(Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: Rules,
    /// One line each.
    pub warnings: Vec<String>,
}

/// Reads the file at `path` and tries its cases. Where there is no file, people are asked about everything.
///
/// # Errors
/// [`RulesError`]: rules that were not understood, or fail a case, are not in force.
pub fn load(path: &Path, tools: &Tools) -> Result<Loaded, RulesError> {
    let (source, cases) = match config::permissions(path, Layer::Main)? {
        Some(read) => (read.source, read.cases),
        None => {
            let rules = policy::Rules::default();
            (Source { name: path.display().to_string(), layer: Layer::Main, rules }, Vec::new())
        }
    };
    let compiled = policy::compile(vec![source]).map_err(|errors| RulesError::Compile {
        path: path.to_owned(),
        problem: errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    })?;
    let warnings = compiled.warnings().iter().map(ToString::to_string).collect();
    let rules = Rules { compiled, posture: Posture::Gateway, contract: None, surroundings: Surroundings::default() };
    let failed: Vec<String> = cases.into_iter().filter_map(|case| fails(&rules, tools, case)).collect();
    if failed.is_empty() { Ok(Loaded { rules, warnings }) } else { Err(RulesError::Case(failed.join("\n"))) }
}

/// What to say of a case of which something else comes than it expects.
fn fails(rules: &Rules, tools: &Tools, case: Case) -> Option<String> {
    let place = format!("{}:{}", case.file.display(), case.line);
    let (got, why) = match agent_gate::subject(tools, &case.agent, case.tool.clone(), case.args) {
        // What is refused before policy is asked is as good as denied.
        Err(problem) => (Action::Deny, problem),
        Ok(subject) => judge(rules, &subject),
    };
    let word = |action| match action {
        Action::Allow => "allowed",
        Action::Deny => "denied",
        Action::Ask => "asked about",
    };
    (got != case.expect)
        .then(|| format!("{place}: {} is {} and should be {}: {why}", case.tool, word(got), word(case.expect)))
}

/// What rules alone make of a subject, and why.
fn judge(rules: &Rules, subject: &policy::Subject) -> (Action, String) {
    let layers = Layers {
        compiled: &rules.compiled,
        constraints: &Constraints::default(),
        contract: None,
        grants: &Grants::default(),
        posture: rules.posture,
        surroundings: &rules.surroundings,
    };
    match policy::evaluate(&layers, subject, Millis(0)) {
        Verdict::Allow(why) => (Action::Allow, why.to_string()),
        Verdict::Deny(why) => (Action::Deny, why.to_string()),
        Verdict::Ask(why) => (Action::Ask, why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::load;
    use crate::{config, gateway::house};

    #[test]
    fn rules_that_fail_a_case_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("permissions.yaml");
        let rules = "rules:\n  - { pattern: 'pay(*)', action: ask }\ntests:\n  - { request: 'pay a=1', expect: ";
        for (expect, told) in
            [("ask", None), ("allow", Some("permissions.yaml:4: pay is asked about and should be allowed: "))]
        {
            std::fs::write(&path, format!("{rules}{expect} }}\n")).unwrap();
            let loaded = load(&path, &BTreeMap::new());
            match told {
                None => assert!(loaded.is_ok(), "{loaded:?}"),
                Some(told) => assert!(loaded.unwrap_err().to_string().contains(told)),
            }
        }
        std::fs::remove_file(&path).unwrap();
        assert!(load(&path, &BTreeMap::new()).is_ok(), "without a file everything is asked");
    }

    #[test]
    fn the_rules_that_come_with_the_gateway_pass_their_cases() {
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let secrets = |_: &str| Some("secret".to_owned());
        let config = config::load(Some(&examples.join("config.yaml")), &config::Flags::default(), &secrets).unwrap();
        let loaded = load(&examples.join("permissions.yaml"), &house::agents(&config.config).tools).unwrap();
        assert_eq!(loaded.warnings, Vec::<String>::new());
    }
}
