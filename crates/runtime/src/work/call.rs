//! Runs one call and says how far it got.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    call::{CallDetails, CallProgress, CallResult, Command as CallCommand, DoubtCause, Executor, Pins},
    digest::{Digest, canonical_json},
    engine::Command,
    id::{CallId, Lsn, SessionId},
    message::{BashMessage, MessageBlock, StoredMessage},
    peer::PeerLine,
    session::MessageContent,
};
use countersign_tools::{self as tools, CallFailure, CallOutput, CallQuestions, GatewaySecrets, UpdateSink};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{RunEnvironment, ServiceOutcome, live_questions::LiveQuestions};
use crate::{
    deliver::{ContentCache, LiveKind, LiveUpdate},
    inbox::CommandSource,
    message_content::{encode_message, encode_tool_result},
};

/// Input of running a call.
pub(super) struct CallWork {
    pub(super) call: CallId,
    pub(super) session: SessionId,
    pub(super) cwd: String,
    /// Working folder of the shell when the call was decided.
    pub(super) folder: String,
    /// Working folder of the call, as it was decided.
    pub(super) place: String,
    pub(super) executor: Executor,
    pub(super) content: Lsn,
    pub(super) arguments: Digest,
    /// Digest of the files that it would run from disk, as they were when it was judged.
    pub(super) pins: Option<Digest>,
    /// True if a person allowed it: it then runs exactly the program that this person was shown.
    pub(super) is_approved: bool,
    /// Number of this start of the call.
    pub(super) start: u32,
    /// The line of the peer for which it was started, where one does it.
    pub(super) line: Option<PeerLine>,
    /// Time that the peer may be silent.
    pub(super) patience: Duration,
    /// True if only the outcome is requested from the peer.
    pub(super) is_asking: bool,
    /// Answers to questions that the call asks people while it works.
    pub(super) questions: LiveQuestions,
}

/// Returns the text for the agent, with the service and the reason.
fn unknown_outcome(why: &str) -> String {
    let why = why.strip_prefix("Outcome unknown: ").unwrap_or(why);
    format!("Outcome unknown: {why}. It may or may not have taken effect. It was not repeated.")
}

/// Redacts the secrets in the output of a tool: a file that a command wrote may hold one as well as its output.
fn redact_output(mut output: CallOutput, secrets: &GatewaySecrets) -> CallOutput {
    let veil = secrets.redactor();
    for block in &mut output.content {
        if let Some(text) = block.as_text()
            && veil.contains_secret(text)
        {
            *block = MessageBlock::from_text(veil.redact_text(text));
        }
    }
    if let Some(details) = &mut output.details {
        veil.redact_value(details);
    }
    output
}

impl CallWork {
    pub(super) async fn run_call(
        self,
        host: &dyn RunEnvironment,
        contents: &ContentCache,
        results: &CommandSource,
        cancel: CancellationToken,
    ) -> Command {
        let progress = match self.read_content(contents).await {
            Err(problem) => CallProgress::NotBegun(problem),
            Ok(content) => match self.executor {
                Executor::Builtin => self.run_builtin(host, &content, results, cancel).await,
                Executor::Shell => self.run_shell(host, &content, cancel).await,
                Executor::Service => self.run_service(host, &content, cancel).await,
                Executor::Peer(ref peer) => self.at_peer(peer, host.peer_registry(), content, results, cancel).await,
                Executor::Person => CallProgress::NotBegun("Not run: this is answered by a person.".into()),
            },
        };
        Command::Call(CallCommand::Ended { call: self.call, progress })
    }

    /// Fetches the tool and arguments of the call, and refuses them if they are not those that were decided.
    async fn read_content(&self, contents: &ContentCache) -> Result<CallDetails, Arc<str>> {
        let text = match contents.get(&[self.content]).await {
            Ok(mut texts) => texts.pop().flatten(),
            Err(error) => return Err(format!("Not run: what was wanted cannot be read: {error}").into()),
        };
        let content: Option<CallDetails> = text.and_then(|text| serde_json::from_str(&text).ok());
        let content = content.ok_or_else(|| Arc::from("Not run: what was wanted cannot be read."))?;
        let digest = Digest::hash_bytes(canonical_json(&Value::Object(content.arguments.clone())).as_bytes());
        if digest != self.arguments {
            return Err("Not run: the arguments are not those that were decided.".into());
        }
        if content.pins.as_deref().map(Pins::digest) != self.pins {
            return Err("Not run: what it would run from disk is not what was decided.".into());
        }
        Ok(content)
    }

    async fn run_builtin(
        &self,
        host: &dyn RunEnvironment,
        content: &CallDetails,
        results: &CommandSource,
        cancel: CancellationToken,
    ) -> CallProgress {
        let registry = host.tool_registry(&self.session);
        let Some(tool) = registry.get(&content.tool) else {
            return CallProgress::NotBegun(format!("Tool {} not found", content.tool).into());
        };
        let mut cx = host.tool_context(&self.session, &self.cwd);
        cx.pinned = Some(self.folder.clone().into());
        cx.pins = content.pins.clone().filter(|_| self.is_approved);
        cx.call = self.call.to_string();
        cx.cancel = cancel;
        cx.asks = CallQuestions::new(self.questions.clone().for_call(self.call, results.clone()));
        let (line, latest) = tokio::sync::watch::channel(None);
        let secrets = cx.secrets.clone();
        cx.updates = UpdateSink::new(move |output: CallOutput| {
            line.send_replace(Some(redact_output(output, &secrets)));
        });
        let mut arguments = content.arguments.clone();
        if let Some(cwd) = arguments.get_mut("cwd") {
            *cwd = Value::String(self.place.clone());
        }
        let work = tool.run(arguments, &cx);
        let outcome = self.with_progress(work, latest, results).await;
        let output = match outcome {
            Ok(output) => output,
            Err(CallFailure::Failed(text) | CallFailure::Cancelled(text)) => {
                CallOutput { content: vec![MessageBlock::from_text(text)], details: Some(json!({})), is_error: true }
            }
            Err(failure) => return self.without_result(failure, &cx.secrets),
        };
        let output = redact_output(output, &cx.secrets);
        let open_tasks = (content.tool.as_ref() == "todo_write" && !output.is_error)
            .then(|| u32::try_from(cx.todos.open_count()).unwrap_or(u32::MAX));
        CallProgress::Returned(Box::new(CallResult {
            open_tasks,
            folder: cx.shells.last_folder().and_then(|folder| folder.to_str().map(str::to_owned)),
            ..encode_tool_result(&content.tool, &content.tool_call_id, output)
        }))
    }

    async fn run_service(
        &self,
        host: &dyn RunEnvironment,
        content: &CallDetails,
        cancel: CancellationToken,
    ) -> CallProgress {
        let (text, error) = match host.call_service(content, cancel).await {
            ServiceOutcome::Done(data) => (data, false),
            ServiceOutcome::Failed(text) => (text, true),
            ServiceOutcome::NotBegun(text) => return CallProgress::NotBegun(text.into()),
            ServiceOutcome::InDoubt(why) => {
                tracing::warn!(call = %self.call, %why, "the outcome of a service request is unknown");
                return CallProgress::Left { text: unknown_outcome(&why).into(), since: DoubtCause::TaskBroke };
            }
        };
        CallProgress::Returned(Box::new(CallResult {
            message: MessageContent { content: text.into(), tokens: 0 },
            error,
            open_tasks: None,
            folder: None,
            prunable: false,
            left_behind: None,
        }))
    }

    /// Returns the progress of a call without a result.
    fn without_result(&self, failure: CallFailure, secrets: &GatewaySecrets) -> CallProgress {
        let veil = secrets.redactor();
        match failure {
            CallFailure::Invalid(text)
            | CallFailure::NotBegun(text)
            | CallFailure::Failed(text)
            | CallFailure::Cancelled(text) => CallProgress::NotBegun(veil.redact_text(&text).into()),
            CallFailure::InDoubt(why) => {
                let why = veil.redact_text(&why);
                tracing::warn!(call = %self.call, %why, "the outcome of a call is unknown");
                CallProgress::Left { text: unknown_outcome(&why).into(), since: DoubtCause::TaskBroke }
            }
        }
    }

    /// Runs `work` and hands on its latest progress meanwhile.
    async fn with_progress<T>(
        &self,
        work: impl Future<Output = T>,
        mut latest: tokio::sync::watch::Receiver<Option<CallOutput>>,
        results: &CommandSource,
    ) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                changed = latest.changed() => {
                    let output = latest.borrow_and_update().clone();
                    let (Ok(()), Some(output)) = (changed, output) else { return work.await };
                    self.send_progress(output, results).await;
                }
            }
        }
    }

    /// Hands on all output so far.
    pub(super) async fn send_progress(&self, output: CallOutput, results: &CommandSource) {
        let kind =
            LiveKind::CallProgress { call: self.call, content: output.content, details: output.details.map(Arc::new) };
        results.send_live(LiveUpdate { session: self.session.clone(), kind }).await;
    }

    async fn run_shell(
        &self,
        host: &dyn RunEnvironment,
        content: &CallDetails,
        cancel: CancellationToken,
    ) -> CallProgress {
        let command = content.arguments.get("command").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut cx = host.tool_context(&self.session, &self.cwd);
        cx.cancel = cancel;
        let outcome = match tools::bash::execute_command(&command, &cx).await {
            Ok(outcome) => outcome,
            Err(failure) => return self.without_result(failure, &cx.secrets),
        };
        let veil = cx.secrets.redactor();
        let meta = outcome.truncated.then(|| {
            json!({ "truncation": {
                "direction": "tail",
                "truncatedBy": "bytes",
                "totalLines": outcome.total_lines,
                "totalBytes": outcome.total_bytes,
                "outputLines": outcome.output_lines,
                "outputBytes": outcome.output_bytes,
                "artifact": outcome.artifact.as_ref().map(|path| path.display().to_string()),
            }})
        });
        let message = BashMessage {
            command,
            output: veil.redact_text(&outcome.output).into_owned(),
            exit_code: outcome.exit_code,
            cancelled: outcome.cancelled,
            truncated: outcome.truncated,
            meta,
            ..BashMessage::default()
        };
        CallProgress::Returned(Box::new(CallResult {
            message: encode_message(&StoredMessage::BashExecution(message)),
            error: false,
            open_tasks: None,
            folder: cx.shells.last_folder().and_then(|folder| folder.to_str().map(str::to_owned)),
            prunable: false,
            left_behind: None,
        }))
    }
}
