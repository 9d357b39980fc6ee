//! Keeps an agent in a mode in which it asks: before a session reaches the client, and when the agent leaves that mode by itself.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{AcpProxy, FORM, OpenSettings, modes::ModeChange, text, to_agent, to_client};
use crate::{
    interceptor::{ProxyAction, ProxyActions},
    json_line::{DENIED, Message, MessageKind, RequestId},
};

/// Time in which an agent changes its mode.
const LIMIT: Duration = Duration::from_secs(30);

/// Reason of a change.
#[derive(Debug)]
enum ForcingPurpose {
    /// The answer to the client waits, and with it the lines of this session.
    Setup { client: RequestId, result: Value, held: Vec<Vec<u8>> },
    /// The agent has left the mode.
    Restore,
}

/// Changes that an agent is asked for, one after the other.
#[derive(Debug)]
pub(super) struct ModeForcing {
    session: String,
    /// Id of our request.
    id: RequestId,
    change: ModeChange,
    next: VecDeque<ModeChange>,
    deadline: Instant,
    purpose: ForcingPurpose,
}

impl ModeForcing {
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    fn request_line(&self) -> Vec<u8> {
        let (method, params) = match &self.change {
            ModeChange::Mode(mode) => ("session/set_mode", json!({ "sessionId": self.session, "modeId": mode })),
            ModeChange::Option { id, value } => (
                "session/set_config_option",
                json!({ "sessionId": self.session, "configId": id, "value": value.to_json() }),
            ),
        };
        FORM.request(&self.id, method, &params)
    }
}

impl AcpProxy {
    /// Handles the agent's answer to a request that opens a session.
    pub(super) fn session_opened(
        &mut self,
        client: &RequestId,
        cwd: String,
        known: Option<String>,
        (message, line): (&Message<'_>, &[u8]),
        now: Instant,
        actions: &mut ProxyActions,
    ) {
        let result = message.result();
        let session = result.as_ref().and_then(|result| text(result, "sessionId")).map(str::to_owned).or(known);
        let (Some(result), Some(session)) = (result, session) else {
            return actions.push(to_client(line.to_vec()));
        };
        let state = self.sessions.entry(session.clone()).or_default();
        (state.cwd, state.refused) = (cwd, None);
        state.modes.update(&result);
        match state.modes.needed_changes() {
            Ok(changes) if changes.is_empty() => actions.push(to_client(line.to_vec())),
            Ok(changes) => {
                let purpose = ForcingPurpose::Setup { client: client.clone(), result, held: Vec::new() };
                self.start_forcing(session, changes, purpose, now, actions);
            }
            Err(open) => {
                let problem = format!(
                    "the agent is in the mode {:?}, in which it acts without asking, and has no mode in which it asks",
                    open.0
                );
                self.setup_failed(&session, client, result, &problem, actions);
            }
        }
    }

    fn start_forcing(
        &mut self,
        session: String,
        changes: Vec<ModeChange>,
        purpose: ForcingPurpose,
        now: Instant,
        actions: &mut ProxyActions,
    ) {
        let mut next = VecDeque::from(changes);
        let Some(change) = next.pop_front() else { return };
        let forcing = ModeForcing { session, id: self.own_id(), change, next, deadline: now + LIMIT, purpose };
        actions.push(to_agent(forcing.request_line()));
        self.forcing.push(forcing);
    }

    /// Sets the agent back if it has left the mode in which it asks. True if it was set back.
    pub(super) fn restore_modes(&mut self, session: &str, now: Instant, actions: &mut ProxyActions) -> bool {
        let Some(state) = self.sessions.get(session) else { return false };
        let changes = state.modes.needed_changes();
        if changes.as_ref().is_ok_and(Vec::is_empty) {
            return false;
        }
        let mode = state.modes.current().unwrap_or("another mode").to_owned();
        // What it ran meanwhile was not asked for: an incident for people.
        actions.push(ProxyAction::Report(self.call(session, "set_mode", json!({ "mode": mode, "by": "the agent" }))));
        match changes {
            Ok(changes) => {
                let text = format!("The agent changed to {mode}, in which it acts without asking. It is set back.");
                Self::tell_client(session, &text, actions);
                self.start_forcing(session.to_owned(), changes, ForcingPurpose::Restore, now, actions);
            }
            Err(open) => self.stop_session(session, &format!("the agent changed to {:?}", open.0), actions),
        }
        true
    }

    /// Ends what runs in a session, and refuses everything else in it.
    fn stop_session(&mut self, session: &str, why: &str, actions: &mut ProxyActions) {
        if self.options.open == OpenSettings::Accept {
            return Self::tell_client(session, &format!("The agent may act without asking: {why}."), actions);
        }
        let problem = format!("the session is stopped, because the agent may act without asking in it: {why}");
        Self::tell_client(session, &problem, actions);
        actions.push(to_agent(FORM.notification("session/cancel", &json!({ "sessionId": session }))));
        self.sessions.entry(session.to_owned()).or_default().refused = Some(problem);
    }

    fn setup_failed(
        &mut self,
        session: &str,
        client: &RequestId,
        result: Value,
        problem: &str,
        actions: &mut ProxyActions,
    ) {
        if self.options.open == OpenSettings::Accept {
            actions.push(ProxyAction::Notice(format!("{problem}; accepted because of --accept-open")));
            return actions.push(to_client(FORM.result(client, &result)));
        }
        let problem = format!("the session is refused: {problem}. `--accept-open` accepts it");
        actions.push(to_client(FORM.error(&client.to_value(), DENIED, &problem)));
        self.sessions.entry(session.to_owned()).or_default().refused = Some(problem);
    }

    /// Holds a line of a session that the client does not know yet. None if it is held.
    pub(super) fn hold_for_setup(&mut self, session: Option<&str>, line: Vec<u8>) -> Option<Vec<u8>> {
        for forcing in &mut self.forcing {
            if let (ForcingPurpose::Setup { held, .. }, true) =
                (&mut forcing.purpose, session == Some(forcing.session.as_str()))
            {
                held.push(line);
                return None;
            }
        }
        Some(line)
    }

    /// Takes in an answer of the agent to one of our requests. False if it is to none.
    pub(super) fn take_forcing_answer(
        &mut self,
        id: &RequestId,
        message: &Message<'_>,
        now: Instant,
        actions: &mut ProxyActions,
    ) -> bool {
        let Some(place) = self.forcing.iter().position(|forcing| forcing.id == *id) else { return false };
        let mut forcing = self.forcing.remove(place);
        if let Some(error) = message.error() {
            let why = text(&error, "message").unwrap_or("it gave no reason").to_owned();
            self.forcing_failed(forcing, &format!("it refused to change its mode: {why}"), now, actions);
            return true;
        }
        if let Some(state) = self.sessions.get_mut(&forcing.session) {
            state.modes.apply(&forcing.change);
        }
        if let Some(change) = forcing.next.pop_front() {
            (forcing.change, forcing.id, forcing.deadline) = (change, self.own_id(), now + LIMIT);
            actions.push(to_agent(forcing.request_line()));
            self.forcing.push(forcing);
            return true;
        }
        if let ForcingPurpose::Setup { client, mut result, held } = forcing.purpose {
            if let Some(state) = self.sessions.get(&forcing.session) {
                state.modes.write_into(&mut result);
            }
            actions.push(to_client(FORM.result(&client, &result)));
            for line in held {
                self.read_agent(line, now, actions);
            }
        }
        true
    }

    fn forcing_failed(&mut self, forcing: ModeForcing, why: &str, now: Instant, actions: &mut ProxyActions) {
        match forcing.purpose {
            ForcingPurpose::Setup { client, result, held } => {
                self.setup_failed(
                    &forcing.session,
                    &client,
                    result,
                    &format!("the agent acts without asking, and {why}"),
                    actions,
                );
                let is_accepted = self.options.open == OpenSettings::Accept;
                for line in held {
                    if is_accepted {
                        self.read_agent(line, now, actions);
                    } else {
                        refuse_held(&line, why, actions);
                    }
                }
            }
            ForcingPurpose::Restore => self.stop_session(&forcing.session, why, actions),
        }
    }

    pub(super) fn end_late_forcing(&mut self, now: Instant, actions: &mut ProxyActions) {
        let (late, open) = std::mem::take(&mut self.forcing).into_iter().partition(|forcing| forcing.deadline <= now);
        self.forcing = open;
        let late: Vec<ModeForcing> = late;
        for forcing in late {
            let why = format!("it did not change its mode within {} seconds", LIMIT.as_secs());
            self.forcing_failed(forcing, &why, now, actions);
        }
    }
}

/// Refuses a line of the agent in a session that the client does not get. Only a request gets an answer.
fn refuse_held(line: &[u8], why: &str, actions: &mut ProxyActions) {
    if let Ok(Message { kind: MessageKind::Request { id, .. }, .. }) = Message::parse(line) {
        let problem = format!("the session is refused: {why}");
        actions.push(to_agent(FORM.error(&id.to_value(), DENIED, &problem)));
    }
}
