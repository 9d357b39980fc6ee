//! End of what was approved for earlier forms of the tools of MCP servers: gates of their calls, and standing approvals.
//!
//! It must not approve a tool: it compares with the times of the approvals.

use std::{path::Path, sync::Arc};

use countersign_core::{
    engine::Command,
    gate::{self, Gate},
    id::{PrincipalId, SessionId},
    policy::GrantReach,
};
use countersign_mcp_client::ApprovalTimes;
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle};

use super::grants;

/// Principal that withdraws the gates and revokes the standing approvals.
const REVOKER: &str = "omp:mcp";

/// Log of an open session.
#[derive(Clone)]
pub(crate) struct SessionLog {
    pub(crate) handle: OwnerHandle,
    pub(crate) session: SessionId,
    /// Reach of the grants in the log that outlive the session.
    pub(crate) lasting: GrantReach,
}

impl SessionLog {
    /// Returns the same log with another session of it.
    pub(crate) fn with_session(&self, session: &SessionId) -> Self {
        Self { session: session.clone(), ..self.clone() }
    }

    /// Withdraws gates of calls that were shown before their tool was approved as it is now, and revokes the grants that hold for the
    /// session and were given before that.
    ///
    /// # Errors
    /// [`OwnerError`]; the next call does the rest.
    pub(crate) async fn end_outdated(&self, times: &Arc<ApprovalTimes>) -> Result<(), OwnerError> {
        let (source, by) = (self.handle.source(InboxLane::Result), PrincipalId::new(REVOKER));
        // Gates first: an answer to one may make a grant.
        let (session, of_gates) = (self.session.clone(), Arc::clone(times));
        let gates = source.read_state(move |engine| {
            let pending = engine.state().pending_gates().filter(|gate| gate.session() == Some(&session));
            let outdated = pending.filter(|gate| {
                let call = gate.call().and_then(|call| engine.admitted().call_content(call));
                call.is_some_and(|call| of_gates.is_outdated_call(call, gate.opened_at()))
            });
            outdated.map(Gate::id).collect::<Vec<_>>()
        });
        for gate in gates.await.ok_or(OwnerError::Closed)?.0 {
            let withdraw = gate::Command::Withdraw { gate, by: by.clone() };
            match source.send_command(Command::Gate(withdraw)).await {
                // It is resolved by now.
                Ok(_) | Err(OwnerError::Refusal(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let (own, lasting) = (GrantReach::Session(self.session.clone()), self.lasting.clone());
        let of_grants = Arc::clone(times);
        let grants = source.read_state(move |engine| {
            let grants = engine.state().policy().grants().iter();
            let reaching = grants.filter(|grant| grant.scope == own || grant.scope == lasting);
            let outdated = reaching.filter(|grant| of_grants.is_outdated_grant(grant));
            outdated.map(|grant| grant.id).collect::<Vec<_>>()
        });
        for grant in grants.await.ok_or(OwnerError::Closed)?.0 {
            match source.send_command(Command::Revoke { grant, by: by.clone() }).await {
                Ok(_) | Err(OwnerError::Refusal(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Removes outdated grants from the file at `path`. One that stays there is adopted by no session. May wait for the disk or for another
/// process.
pub(crate) fn remove_from_file(path: &Path, times: &ApprovalTimes) {
    if let Err(failed) = grants::remove_grants(path, |grant| times.is_outdated_grant(grant)) {
        tracing::warn!(error = %failed, "grants for earlier forms of MCP tools cannot be removed from the grants file");
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

    use countersign_core::{
        engine::{ActiveRules, Command, ResumeMode},
        gate::IdentityMap,
        id::{IdGenerator, PrincipalId, SessionId},
        policy::{CompiledRules, DefaultPolicy, Grant, GrantAuth, GrantCoverage, GrantId, GrantReach, PathContext},
        session::ModelRef,
        time::Millis,
        tool::ToolSpec,
    };
    use countersign_mcp_client::ApprovalTimes;
    use countersign_runtime::{
        Clock, InboxLane, OwnerHandle, OwnerOptions, ResolvedModel, RunEnvironment,
        store::MemoryLog,
        system_entropy,
        tools::{self, ToolRegistry},
    };

    use super::SessionLog;

    /// Environment without a model.
    struct NoModel;

    impl RunEnvironment for NoModel {
        fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> {
            Err("there is no model".to_owned())
        }

        fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
            Arc::new(ToolRegistry::standard())
        }

        fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
            String::new()
        }

        fn tool_context(&self, _: &SessionId, cwd: &str) -> tools::ToolContext {
            let launcher = tools::exec::ExecLauncher::new(Path::new("/bin/false"));
            let environment = tools::CommandEnvironment::clean_with([]);
            let (roots, shell) = (tools::AllowedRoots::whole_filesystem([]), tools::SessionShell::new(launcher));
            tools::ToolContext::new(cwd.into(), roots, environment, shell)
        }
    }

    async fn open_log() -> OwnerHandle {
        let rules = ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        };
        let options = OwnerOptions {
            rules,
            resume: ResumeMode::Go,
            clock: Clock::starting_at(Millis(1_000)),
            entropy: system_entropy(),
            environment: Arc::new(NoModel),
            merge: Duration::ZERO,
            idle: None,
        };
        OwnerHandle::open(MemoryLog::new().into(), options).await.unwrap()
    }

    fn grant(number: u8, given: u64, scope: GrantReach, pattern: &str) -> Grant {
        Grant {
            id: GrantId::new(IdGenerator::new([number; 16]).next_uuid(Millis(given))),
            by: PrincipalId::new("host"),
            to: PrincipalId::new("agent"),
            scope,
            covers: GrantCoverage::Pattern(pattern.to_owned()),
            label: pattern.to_owned(),
            until: None,
            door: GrantAuth::Open,
        }
    }

    #[tokio::test]
    async fn grants_of_a_session_end_with_the_form_of_the_tool_that_they_were_given_for() {
        let handle = open_log().await;
        let (here, there) = (SessionId::new("s1"), SessionId::new("s2"));
        let of = |session: &SessionId| GrantReach::Session(session.clone());
        let realm = |name: &str| GrantReach::Realm(name.to_owned());
        let write = "mcp__files__write(*)";
        let outdated =
            [grant(1, 10, of(&here), write), grant(2, 19, realm("/a"), write), grant(3, 19, of(&here), "mcp__f*")];
        let kept = [
            grant(4, 21, of(&here), write),
            grant(5, 10, of(&here), "mcp__files__read(*)"),
            grant(6, 10, of(&there), write),
            grant(7, 10, realm("/b"), write),
            grant(8, 10, GrantReach::Always, write),
        ];
        let source = handle.source(InboxLane::Request);
        source.send_command(Command::Adopt(outdated.iter().chain(&kept).cloned().collect())).await.unwrap();
        let tools = [("mcp__files__write".to_owned(), Millis(20))].into();
        let times = Arc::new(ApprovalTimes { tools, ..ApprovalTimes::default() });
        let log = SessionLog { handle: handle.clone(), session: here, lasting: realm("/a") };
        log.end_outdated(&times).await.unwrap();
        let read = source.read_state(|engine| {
            engine.state().policy().grants().iter().map(|grant| grant.id).collect::<BTreeSet<_>>()
        });
        let left = read.await.unwrap().0;
        assert_eq!(left, kept.iter().map(|grant| grant.id).collect());
        handle.close().await;
    }
}
