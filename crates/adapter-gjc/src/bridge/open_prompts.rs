//! Prompts that wait for an answer from a client, by the id under which they are answered.
//!
//! It must not know what an answer means: it reports which prompt is answered, and that once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of remembered ids of prompts that no longer wait.
const REMEMBERED: usize = 1000;

/// A prompt for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientPrompt {
    /// A dialog, by the id that it has for the adapter.
    Dialog(String),
    /// A call that requires an approval, by the id of its dialog.
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

/// Work for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostWork {
    /// A call of one of its tools.
    Tool,
    /// A request at one of its URIs.
    Uri,
}

/// Everything that waits in a session.
#[derive(Debug, Default)]
pub(super) struct OpenPrompts {
    prompts: BTreeMap<String, ClientPrompt>,
    resolved: VecDeque<String>,
    work: BTreeSet<(HostWork, String)>,
}

impl OpenPrompts {
    /// Adds a prompt under `id`.
    pub(super) fn add_prompt(&mut self, id: String, prompt: ClientPrompt) {
        self.resolved.retain(|resolved| *resolved != id);
        self.prompts.insert(id, prompt);
    }

    /// Adds the approval of `call`, whose dialog the adapter calls `dialog`; returns the id under which it is answered. Models give an id
    /// to several calls, and an answer to one of them must never be one to another: the first has the call's id, the rest that of the
    /// dialog.
    pub(super) fn add_permission(&mut self, call: String, dialog: String) -> String {
        let prompt = ClientPrompt::Permission(dialog.clone());
        let is_free = match self.prompts.get(&call) {
            Some(shown) => *shown == prompt,
            None => !self.resolved.contains(&call),
        };
        let id = if is_free { call } else { dialog };
        self.add_prompt(id.clone(), prompt);
        id
    }

    /// Returns the prompt `id` and leaves it open.
    pub(super) fn get_prompt(&self, id: &str) -> Option<&ClientPrompt> {
        self.prompts.get(id)
    }

    /// Takes the prompt `id`: it is answered now.
    ///
    /// # Errors
    /// [`NotWaiting`].
    pub(super) fn take_prompt(&mut self, id: &str) -> Result<ClientPrompt, NotWaiting> {
        match self.prompts.remove(id) {
            Some(prompt) => {
                self.remember_resolved(id.to_owned());
                Ok(prompt)
            }
            None if self.resolved.iter().any(|resolved| resolved == id) => Err(NotWaiting::Resolved),
            None => Err(NotWaiting::Unknown),
        }
    }

    /// Removes a dialog that is answered elsewhere, or no longer pending.
    pub(super) fn remove_dialog(&mut self, dialog: &str) {
        let shows = |prompt: &ClientPrompt| match prompt {
            ClientPrompt::Dialog(shown) | ClientPrompt::Permission(shown) => shown == dialog,
        };
        let id = self.prompts.iter().find(|(_, prompt)| shows(prompt)).map(|(id, _)| id.clone());
        if let Some(id) = id {
            self.prompts.remove(&id);
            self.remember_resolved(id);
        }
    }

    /// Takes all prompts.
    pub(super) fn take_prompts(&mut self) -> Vec<ClientPrompt> {
        let prompts = std::mem::take(&mut self.prompts);
        prompts
            .into_iter()
            .map(|(id, prompt)| {
                self.remember_resolved(id);
                prompt
            })
            .collect()
    }

    /// Drops all work of a host that has gone.
    pub(super) fn clear_work(&mut self) {
        self.work.clear();
    }

    /// Adds work of the host under `id`.
    pub(super) fn begin_work(&mut self, work: HostWork, id: String) {
        self.work.insert((work, id));
    }

    /// Reports whether the host has work under `id`.
    pub(super) fn has_work(&self, work: HostWork, id: &str) -> bool {
        self.work.contains(&(work, id.to_owned()))
    }

    /// Removes work that is done or no longer needed. False if there was none.
    pub(super) fn end_work(&mut self, work: HostWork, id: &str) -> bool {
        self.work.remove(&(work, id.to_owned()))
    }

    fn remember_resolved(&mut self, id: String) {
        self.resolved.push_back(id);
        if self.resolved.len() > REMEMBERED {
            self.resolved.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientPrompt, HostWork, NotWaiting, OpenPrompts, REMEMBERED};

    fn dialog(id: &str) -> ClientPrompt {
        ClientPrompt::Dialog(id.to_owned())
    }

    #[test]
    fn an_answer_to_a_call_is_none_to_another_of_its_name() {
        let mut waiting = OpenPrompts::default();
        let permission = |dialog: &str| ClientPrompt::Permission(dialog.to_owned());
        assert_eq!(waiting.add_permission("call_0".into(), "d1".into()), "call_0");
        assert_eq!(waiting.add_permission("call_0".into(), "d1".into()), "call_0", "it is told again");
        assert_eq!(waiting.add_permission("call_0".into(), "d2".into()), "d2");
        assert_eq!(waiting.take_prompt("call_0"), Ok(permission("d1")));
        assert_eq!(waiting.add_permission("call_0".into(), "d3".into()), "d3");
        assert_eq!(waiting.take_prompt("call_0"), Err(NotWaiting::Resolved));
        waiting.remove_dialog("d3");
        assert_eq!(
            (waiting.take_prompt("d3"), waiting.take_prompt("d2")),
            (Err(NotWaiting::Resolved), Ok(permission("d2")))
        );
    }

    #[test]
    fn a_prompt_is_answered_once() {
        let mut waiting = OpenPrompts::default();
        assert_eq!(waiting.take_prompt("a"), Err(NotWaiting::Unknown));
        waiting.add_prompt("a".into(), dialog("a"));
        assert_eq!(waiting.take_prompt("a"), Ok(dialog("a")));
        assert_eq!(waiting.take_prompt("a"), Err(NotWaiting::Resolved));
        waiting.add_prompt("a".into(), dialog("a"));
        assert_eq!(waiting.take_prompt("a"), Ok(dialog("a")), "it is asked again");
    }

    #[test]
    fn what_is_answered_elsewhere_waits_no_more() {
        let mut waiting = OpenPrompts::default();
        waiting.add_prompt("call-1".into(), ClientPrompt::Permission("d1".into()));
        waiting.add_prompt("d2".into(), dialog("d2"));
        waiting.remove_dialog("d1");
        waiting.remove_dialog("d9");
        assert_eq!(waiting.take_prompt("call-1"), Err(NotWaiting::Resolved));
        assert_eq!(waiting.take_prompts(), [dialog("d2")]);
        assert_eq!(waiting.take_prompt("d2"), Err(NotWaiting::Resolved));
    }

    #[test]
    fn only_so_many_answers_are_remembered() {
        let mut waiting = OpenPrompts::default();
        for number in 0..=REMEMBERED {
            waiting.add_prompt(number.to_string(), dialog("d"));
            waiting.take_prompt(&number.to_string()).unwrap();
        }
        assert_eq!(waiting.take_prompt("0"), Err(NotWaiting::Unknown));
        assert_eq!(waiting.take_prompt("1"), Err(NotWaiting::Resolved));
    }

    #[test]
    fn work_of_the_host_is_done_once_and_under_its_own_kind() {
        let mut waiting = OpenPrompts::default();
        waiting.begin_work(HostWork::Tool, "1".into());
        assert!(waiting.has_work(HostWork::Tool, "1") && !waiting.has_work(HostWork::Uri, "1"));
        assert!(!waiting.end_work(HostWork::Uri, "1"));
        assert!(waiting.end_work(HostWork::Tool, "1") && !waiting.end_work(HostWork::Tool, "1"));
    }
}
