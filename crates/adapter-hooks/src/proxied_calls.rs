//! Calls of agents behind a proxy of ours: it asks about each one on a connection of its own.

use countersign_core::id::GateId;
use countersign_foreign_calls::{CallProblem, Delivery, ProgressSink};
use countersign_view::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    adapter::{HookAdapter, RequestedCall, judged_request, reason_of},
    input::{CallAsker, CallInput, check_id},
};

/// Call of an agent, as its proxy asks about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxiedCall {
    /// Name of the protocol: `acp`, `codex` or `opencode`.
    pub program: String,
    /// Id of the agent's session.
    pub session: String,
    /// Agent below the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// Id of the call in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Name of the tool in the program.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Folder in which the program works, absolute.
    pub cwd: String,
    /// Longest wait for a person, in seconds; none lasts until the connection ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
}

/// Line to a proxy. A `gate` may come first, and one decision is the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProxyAnswer {
    /// A person decides.
    Waiting {
        /// Id of the gate.
        gate: String,
        /// Its title.
        title: String,
    },
    /// The decision.
    Decided(ProxyDecision),
}

/// Decision about a call of an agent behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum ProxyDecision {
    /// It may run.
    Allow,
    /// It must not run.
    Deny {
        /// The reason, for the agent.
        reason: String,
    },
}

/// Line of a proxy, after its call: the answer of the person at the client behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurfaceAnswer {
    /// The answer.
    pub answer: SurfaceDecision,
}

/// Answer of the person at a client of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurfaceDecision {
    /// Id of the gate.
    pub gate: String,
    /// True to allow the call once, false to deny it.
    pub allow: bool,
    /// Name of the client.
    pub surface: String,
}

/// Sender of the gate for which a call waits.
struct GateNotices(mpsc::UnboundedSender<GateId>);

impl ProgressSink for GateNotices {
    async fn report_wait(&mut self, gate: Option<GateId>) {
        if let Some(gate) = gate {
            // A proxy that has gone needs none.
            let _ = self.0.send(gate);
        }
    }
}

impl ProxiedCall {
    fn asker(&self) -> CallAsker<'_> {
        CallAsker { session: &self.session, subagent: self.subagent.as_deref(), cwd: &self.cwd }
    }

    fn requested_call(&self) -> CallInput<'_> {
        CallInput { tool: &self.tool, arguments: &self.arguments, cwd: &self.cwd, id: self.call.as_deref() }
    }

    /// Checks all fields, and returns the protocol.
    fn check(&self) -> Result<Protocol, String> {
        let known = Protocol::PROXIED.into_iter().find(|known| known.name() == self.program);
        let protocol = known.ok_or_else(|| {
            let known = Protocol::PROXIED.map(Protocol::name).join(", ");
            format!("unknown program {:?}: expected one of {known}", self.program)
        })?;
        check_id("session", &self.session)?;
        self.subagent.as_deref().map_or(Ok(()), |agent| check_id("subagent", agent))?;
        if self.tool.trim().is_empty() {
            return Err("tool is empty: expected the name of the tool".to_owned());
        }
        if !self.cwd.starts_with('/') {
            return Err(format!("cwd {:?}: expected an absolute path", self.cwd));
        }
        Ok(protocol)
    }
}

impl HookAdapter {
    /// Decides the call of an agent behind a proxy, and reports the gate for which it waits to `gates`. `None` if the gateway ends first.
    /// `delivery` is confirmed by the caller once the decision was taken; a cancelled wait leaves the gate open.
    pub async fn decide_proxied(
        &self,
        call: &ProxiedCall,
        gates: mpsc::UnboundedSender<GateId>,
        delivery: &Delivery,
        cancel: &CancellationToken,
    ) -> Option<ProxyDecision> {
        let denied = |reason: String| Some(ProxyDecision::Deny { reason });
        let protocol = match call.check() {
            Ok(protocol) => protocol,
            Err(problem) => return denied(problem),
        };
        let requester = self.requester(protocol, &call.asker(), None);
        let input = call.requested_call();
        let request = match judged_request(&requester, &input, None).await {
            Ok(request) => request,
            Err(problem) => return denied(problem),
        };
        let wait = call.wait.map(std::time::Duration::from_secs);
        let requested = RequestedCall { requester: &requester, call: input, request, wait };
        match self.decide_call(requested, GateNotices(gates), delivery, cancel).await {
            Ok(outcome) if outcome.is_done() => Some(ProxyDecision::Allow),
            Ok(outcome) => denied(reason_of(&outcome)),
            Err(CallProblem::Cancelled(Some(gate))) => {
                denied(format!("Gate {gate} is still open: no approver has decided yet. Try the same call again"))
            }
            // The same call repeated gets its decision when the gateway runs again.
            Err(CallProblem::Closing) => None,
            Err(problem) => denied(problem.to_string()),
        }
    }

    /// Compares a call that ran behind a proxy with the decision about it. A difference becomes an incident.
    ///
    /// # Errors
    /// The field that is wrong, or the reason why the call could not be compared.
    pub async fn compare_proxied(&self, call: &ProxiedCall) -> Result<(), String> {
        let requester = self.requester(call.check()?, &call.asker(), None);
        self.compare_run(&requester, &call.requested_call()).await.map_err(|problem| problem.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::{ProxiedCall, ProxyAnswer, ProxyDecision, SurfaceAnswer, SurfaceDecision};

    fn call() -> ProxiedCall {
        ProxiedCall {
            program: "acp".to_owned(),
            session: "s-1".to_owned(),
            subagent: None,
            call: None,
            tool: "bash".to_owned(),
            arguments: Map::new(),
            cwd: "/w".to_owned(),
            wait: None,
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_the_accepted_values() {
        let wrong = |change: fn(&mut ProxiedCall)| {
            let mut call = call();
            change(&mut call);
            call.check().unwrap_err()
        };
        assert!(call().check().is_ok());
        assert_eq!(
            wrong(|call| call.program = "claude".to_owned()),
            "unknown program \"claude\": expected one of acp, codex, opencode"
        );
        assert!(wrong(|call| call.session = "a b".to_owned()).starts_with("session \"a b\": expected"));
        assert!(wrong(|call| call.session = String::new()).starts_with("session \"\": expected"));
        assert!(wrong(|call| call.subagent = Some("/".to_owned())).starts_with("subagent \"/\": expected"));
        assert_eq!(wrong(|call| call.tool = " ".to_owned()), "tool is empty: expected the name of the tool");
        assert_eq!(wrong(|call| call.cwd = "w".to_owned()), "cwd \"w\": expected an absolute path");
    }

    #[test]
    fn the_lines_of_a_connection_have_these_forms() {
        let line = |answer: &ProxyAnswer| serde_json::to_value(answer).unwrap();
        let waiting = ProxyAnswer::Waiting { gate: "g".to_owned(), title: "t".to_owned() };
        assert_eq!(line(&waiting), json!({ "gate": "g", "title": "t" }));
        assert_eq!(line(&ProxyAnswer::Decided(ProxyDecision::Allow)), json!({ "decision": "allow" }));
        let denied = ProxyAnswer::Decided(ProxyDecision::Deny { reason: "no".to_owned() });
        assert_eq!(line(&denied), json!({ "decision": "deny", "reason": "no" }));
        for answer in [waiting, denied] {
            assert_eq!(serde_json::from_value::<ProxyAnswer>(line(&answer)).unwrap(), answer);
        }
        let given = json!({ "answer": { "gate": "g", "allow": true, "surface": "editor Zed" } });
        let answer = SurfaceDecision { gate: "g".to_owned(), allow: true, surface: "editor Zed".to_owned() };
        assert_eq!(serde_json::from_value::<SurfaceAnswer>(given).unwrap(), SurfaceAnswer { answer });
    }
}
