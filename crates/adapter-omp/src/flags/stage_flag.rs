//! The stages of a workflow that a session can be started in, by `--stage STAGE`. Source: docs/protocol/gjc.md, Stages.

/// A stage that a session can be started in, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StageFlag {
    /// Questions to the person until the task is clear.
    DeepInterview,
    /// A plan that the person approves.
    Ralplan,
    /// The work, with a check for each goal and a sign-off.
    Ultragoal,
}

impl StageFlag {
    /// All stages, in the order in which they follow each other.
    pub const ALL: [Self; 3] = [Self::DeepInterview, Self::Ralplan, Self::Ultragoal];

    /// Returns its name on the wire and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeepInterview => "deep-interview",
            Self::Ralplan => "ralplan",
            Self::Ultragoal => "ultragoal",
        }
    }

    /// Finds the stage of this name.
    ///
    /// # Errors
    /// Names the stages that there are.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|stage| stage.name() == name)
            .ok_or_else(|| format!("unknown stage {name:?}: expected one of {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::StageFlag;

    #[test]
    fn an_unknown_stage_is_refused_with_those_that_there_are() {
        let problem = StageFlag::from_name("team").unwrap_err();
        assert_eq!(problem, "unknown stage \"team\": expected one of deep-interview, ralplan, ultragoal");
    }
}
