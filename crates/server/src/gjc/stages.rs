//! The stages of a workflow, as texts that a host starts a session with: by `/skill:STAGE` in a message, or by `--stage STAGE`.
//!
//! They only say what the model is to do. Gates, and what a refused plan holds back, are the engine's. Source:
//! docs/protocol/gjc.md, Stages.

/// A stage that a session can be started in, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Questions to the person until the task is clear.
    DeepInterview,
    /// A plan that the person approves.
    Ralplan,
    /// The work, with a check for each goal and a sign-off.
    Ultragoal,
}

const ALL: [Stage; 3] = [Stage::DeepInterview, Stage::Ralplan, Stage::Ultragoal];

impl Stage {
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
    pub fn read(name: &str) -> Result<Self, String> {
        let names = ALL.map(Self::name).join(", ");
        ALL.into_iter()
            .find(|stage| stage.name() == name)
            .ok_or_else(|| format!("unknown stage {name:?}: accepted are {names}"))
    }

    const fn text(self) -> &'static str {
        match self {
            Self::DeepInterview => include_str!("stages/deep-interview.md"),
            Self::Ralplan => include_str!("stages/ralplan.md"),
            Self::Ultragoal => include_str!("stages/ultragoal.md"),
        }
    }

    /// Writes the message that starts this stage: its text, those of the stages that follow, and the task.
    pub(crate) fn message(self, task: &str) -> String {
        let texts: Vec<&str> =
            ALL.into_iter().filter(|stage| *stage >= self).map(|stage| stage.text().trim()).collect();
        let task = match task.trim() {
            "" => "No task is given yet: ask the person for it first.",
            task => task,
        };
        let name = self.name();
        format!(
            "Begin with the stage {name}. The stages follow each other.\n\n{}\n\n# Task\n\n{task}",
            texts.join("\n\n")
        )
    }
}

/// Returns the message that `text` stands for if it starts a stage: `/skill:ralplan TASK`.
pub(crate) fn expand(text: &str) -> Option<String> {
    let said = text.strip_prefix("/skill:")?;
    let (name, task) = said.split_once(char::is_whitespace).unwrap_or((said, ""));
    Some(Stage::read(name).ok()?.message(task))
}

#[cfg(test)]
mod tests {
    use super::{ALL, Stage, expand};

    fn heads(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix("# ")).collect()
    }

    #[test]
    fn a_stage_brings_those_that_follow_it_and_the_task() {
        let all = ["Stage: deep-interview", "Stage: ralplan", "Stage: ultragoal", "Task"];
        for (at, stage) in ALL.into_iter().enumerate() {
            let text = expand(&format!("/skill:{} Add a login.\nSoon.", stage.name())).unwrap();
            assert_eq!(heads(&text), all[at..], "{stage:?}");
            assert!(text.ends_with("# Task\n\nAdd a login.\nSoon."), "{text}");
            assert!(expand(&format!("/skill:{}", stage.name())).unwrap().contains("No task is given yet"));
        }
    }

    #[test]
    fn any_other_text_is_left_as_it_is() {
        for text in
            ["/skill:team x", "/skill:", "/skill", "ralplan", "/ralplan", "/skill:Ralplan x", " /skill:ralplan x"]
        {
            assert_eq!(expand(text), None, "{text}");
        }
        let problem = Stage::read("team").unwrap_err();
        assert_eq!(problem, "unknown stage \"team\": accepted are deep-interview, ralplan, ultragoal");
    }
}
