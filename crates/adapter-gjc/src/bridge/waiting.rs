//! What waits for an answer from a client, by the id under which it is answered.
//!
//! It must not know what an answer means: it says what is answered, and that once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many ids are remembered of what waits no more.
const REMEMBERED: usize = 1000;

/// What a client is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// A dialog, by the id that it has for the door.
    Dialog(String),
    /// A call that somebody must allow, by the id of its dialog.
    Permission(String),
}

/// Why nothing is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotWaiting {
    /// It never did.
    Unknown,
    /// It does no more.
    Resolved,
}

/// What the host is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// A call of one of its tools.
    Tool,
    /// A request at one of its URIs.
    Uri,
}

/// Everything that waits in a session.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    prompts: BTreeMap<String, Prompt>,
    resolved: VecDeque<String>,
    work: BTreeSet<(Work, String)>,
}

impl Waiting {
    /// Something is asked under `id`.
    pub(super) fn asked(&mut self, id: String, prompt: Prompt) {
        self.resolved.retain(|resolved| *resolved != id);
        self.prompts.insert(id, prompt);
    }

    /// Somebody must allow `call`, whose dialog the door calls `dialog`; gives the id under which that is answered. Models give an id to
    /// several calls, and an answer to one of them must never be one to another: the first has the call's id, the rest that of the dialog.
    pub(super) fn asked_for(&mut self, call: String, dialog: String) -> String {
        let prompt = Prompt::Permission(dialog.clone());
        let is_free = match self.prompts.get(&call) {
            Some(shown) => *shown == prompt,
            None => !self.resolved.contains(&call),
        };
        let id = if is_free { call } else { dialog };
        self.asked(id.clone(), prompt);
        id
    }

    /// What is asked under `id`, left as it is.
    pub(super) fn shows(&self, id: &str) -> Option<&Prompt> {
        self.prompts.get(id)
    }

    /// Takes what is asked under `id`: it is answered now.
    ///
    /// # Errors
    /// [`NotWaiting`].
    pub(super) fn take(&mut self, id: &str) -> Result<Prompt, NotWaiting> {
        match self.prompts.remove(id) {
            Some(prompt) => {
                self.remember(id.to_owned());
                Ok(prompt)
            }
            None if self.resolved.iter().any(|resolved| resolved == id) => Err(NotWaiting::Resolved),
            None => Err(NotWaiting::Unknown),
        }
    }

    /// The dialog that the door calls so is answered elsewhere, or not any more.
    pub(super) fn taken_away(&mut self, dialog: &str) {
        let shows = |prompt: &Prompt| match prompt {
            Prompt::Dialog(shown) | Prompt::Permission(shown) => shown == dialog,
        };
        let id = self.prompts.iter().find(|(_, prompt)| shows(prompt)).map(|(id, _)| id.clone());
        if let Some(id) = id {
            self.prompts.remove(&id);
            self.remember(id);
        }
    }

    /// Takes everything that is asked.
    pub(super) fn take_all(&mut self) -> Vec<Prompt> {
        let prompts = std::mem::take(&mut self.prompts);
        prompts
            .into_iter()
            .map(|(id, prompt)| {
                self.remember(id);
                prompt
            })
            .collect()
    }

    /// Whoever was asked to do something has gone.
    pub(super) fn nobody_works(&mut self) {
        self.work.clear();
    }

    /// The host is asked to do something under `id`.
    pub(super) fn begun(&mut self, work: Work, id: String) {
        self.work.insert((work, id));
    }

    /// Whether the host is asked to do something under `id`.
    pub(super) fn is_asked(&self, work: Work, id: &str) -> bool {
        self.work.contains(&(work, id.to_owned()))
    }

    /// It has done it, or need not any more. False if it was not asked.
    pub(super) fn done(&mut self, work: Work, id: &str) -> bool {
        self.work.remove(&(work, id.to_owned()))
    }

    fn remember(&mut self, id: String) {
        self.resolved.push_back(id);
        if self.resolved.len() > REMEMBERED {
            self.resolved.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NotWaiting, Prompt, REMEMBERED, Waiting, Work};

    fn dialog(id: &str) -> Prompt {
        Prompt::Dialog(id.to_owned())
    }

    #[test]
    fn an_answer_to_a_call_is_none_to_another_of_its_name() {
        let mut waiting = Waiting::default();
        let permission = |dialog: &str| Prompt::Permission(dialog.to_owned());
        assert_eq!(waiting.asked_for("call_0".into(), "d1".into()), "call_0");
        assert_eq!(waiting.asked_for("call_0".into(), "d1".into()), "call_0", "it is told again");
        assert_eq!(waiting.asked_for("call_0".into(), "d2".into()), "d2");
        assert_eq!(waiting.take("call_0"), Ok(permission("d1")));
        assert_eq!(waiting.asked_for("call_0".into(), "d3".into()), "d3");
        assert_eq!(waiting.take("call_0"), Err(NotWaiting::Resolved));
        waiting.taken_away("d3");
        assert_eq!((waiting.take("d3"), waiting.take("d2")), (Err(NotWaiting::Resolved), Ok(permission("d2"))));
    }

    #[test]
    fn what_is_asked_is_answered_once() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.take("a"), Err(NotWaiting::Unknown));
        waiting.asked("a".into(), dialog("a"));
        assert_eq!(waiting.take("a"), Ok(dialog("a")));
        assert_eq!(waiting.take("a"), Err(NotWaiting::Resolved));
        waiting.asked("a".into(), dialog("a"));
        assert_eq!(waiting.take("a"), Ok(dialog("a")), "it is asked again");
    }

    #[test]
    fn what_is_answered_elsewhere_waits_no_more() {
        let mut waiting = Waiting::default();
        waiting.asked("call-1".into(), Prompt::Permission("d1".into()));
        waiting.asked("d2".into(), dialog("d2"));
        waiting.taken_away("d1");
        waiting.taken_away("d9");
        assert_eq!(waiting.take("call-1"), Err(NotWaiting::Resolved));
        assert_eq!(waiting.take_all(), [dialog("d2")]);
        assert_eq!(waiting.take("d2"), Err(NotWaiting::Resolved));
    }

    #[test]
    fn only_so_many_answers_are_remembered() {
        let mut waiting = Waiting::default();
        for number in 0..=REMEMBERED {
            waiting.asked(number.to_string(), dialog("d"));
            waiting.take(&number.to_string()).unwrap();
        }
        assert_eq!(waiting.take("0"), Err(NotWaiting::Unknown));
        assert_eq!(waiting.take("1"), Err(NotWaiting::Resolved));
    }

    #[test]
    fn work_of_the_host_is_done_once_and_under_its_own_kind() {
        let mut waiting = Waiting::default();
        waiting.begun(Work::Tool, "1".into());
        assert!(waiting.is_asked(Work::Tool, "1") && !waiting.is_asked(Work::Uri, "1"));
        assert!(!waiting.done(Work::Uri, "1"));
        assert!(waiting.done(Work::Tool, "1") && !waiting.done(Work::Tool, "1"));
    }
}
