//! The stages of a workflow, as texts that a host starts a session with: by `/skill:STAGE` in a message, or by `--stage STAGE`.
//!
//! They only say what the model is to do. Gates, and what a refused plan holds back, are the engine's. Source:
//! docs/protocol/gjc.md, Stages.

use countersign_adapter_omp::flags::StageFlag;

const fn stage_text(stage: StageFlag) -> &'static str {
    match stage {
        StageFlag::DeepInterview => include_str!("stages/deep-interview.md"),
        StageFlag::Ralplan => include_str!("stages/ralplan.md"),
        StageFlag::Ultragoal => include_str!("stages/ultragoal.md"),
    }
}

/// Writes the message that starts a stage: its text, those of the stages that follow, and the task.
fn stage_message(first: StageFlag, task: &str) -> String {
    let stages = StageFlag::ALL.into_iter().filter(|stage| *stage >= first);
    let texts: Vec<&str> = stages.map(|stage| stage_text(stage).trim()).collect();
    let task = match task.trim() {
        "" => "No task is given yet: ask the person for it first.",
        task => task,
    };
    let name = first.name();
    format!("Begin with the stage {name}. The stages follow each other.\n\n{}\n\n# Task\n\n{task}", texts.join("\n\n"))
}

/// Returns the message that `text` stands for if it starts a stage: `/skill:ralplan TASK`.
pub(crate) fn expand_skill(text: &str) -> Option<String> {
    let command = text.strip_prefix("/skill:")?;
    let (name, task) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    Some(stage_message(StageFlag::from_name(name).ok()?, task))
}

#[cfg(test)]
mod tests {
    use super::{StageFlag, expand_skill};

    fn heads(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix("# ")).collect()
    }

    #[test]
    fn a_stage_brings_those_that_follow_it_and_the_task() {
        let all = ["Stage: deep-interview", "Stage: ralplan", "Stage: ultragoal", "Task"];
        for (at, stage) in StageFlag::ALL.into_iter().enumerate() {
            let text = expand_skill(&format!("/skill:{} Add a login.\nSoon.", stage.name())).unwrap();
            assert_eq!(heads(&text), all[at..], "{stage:?}");
            assert!(text.ends_with("# Task\n\nAdd a login.\nSoon."), "{text}");
            assert!(expand_skill(&format!("/skill:{}", stage.name())).unwrap().contains("No task is given yet"));
        }
    }

    #[test]
    fn any_other_text_is_left_as_it_is() {
        for text in
            ["/skill:team x", "/skill:", "/skill", "ralplan", "/ralplan", "/skill:Ralplan x", " /skill:ralplan x"]
        {
            assert_eq!(expand_skill(text), None, "{text}");
        }
    }
}
