//! A tool call that a server works on: its time limit, which stands still while a person is asked, and its further questions.
//!
//! It must not know how a request is sent.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::{secret_texts::SecretTexts, text::printable_excerpt, tool_caller::ToolCaller};

/// A tool call that a server works on.
pub(crate) struct OpenCall {
    /// Name of the server.
    pub(crate) server: String,
    /// The tool, as the server knows it.
    pub(crate) tool: String,
    /// Its requester.
    pub(crate) caller: ToolCaller,
    limit: Duration,
    questions_left: AtomicU32,
    clock: Mutex<CallClock>,
    /// Number of pauses that are under way.
    pauses: watch::Sender<u32>,
    /// Secrets of the server that works on it, which are hidden in its texts.
    secrets: OnceLock<Arc<SecretTexts>>,
}

/// Time of a call.
#[derive(Default)]
struct CallClock {
    begun: Option<Instant>,
    /// Time of all pauses that have ended.
    paused: Duration,
    /// Begin of the pause that is under way.
    since: Option<Instant>,
    pauses: u32,
}

/// Pause of a call's time limit, until it is dropped.
pub(crate) struct CallPause<'a>(&'a OpenCall);

impl OpenCall {
    /// Creates a call, whose time runs from [`OpenCall::begin`].
    pub(crate) fn new(server: &str, tool: &str, caller: &ToolCaller, limit: Duration, questions: u32) -> Self {
        Self {
            server: server.to_owned(),
            tool: tool.to_owned(),
            caller: caller.clone(),
            limit,
            questions_left: AtomicU32::new(questions),
            clock: Mutex::default(),
            pauses: watch::Sender::new(0),
            secrets: OnceLock::new(),
        }
    }

    /// Notes that it is sent to a server with these secrets. Of several requests of the call the first one begins its time.
    pub(crate) fn begin(&self, secrets: &Arc<SecretTexts>) {
        self.lock().begun.get_or_insert_with(Instant::now);
        self.secrets.get_or_init(|| Arc::clone(secrets));
    }

    /// Waits for the end of its time.
    pub(crate) async fn expire(&self) {
        let mut pauses = self.pauses.subscribe();
        loop {
            let is_paused = *pauses.borrow_and_update() > 0;
            let left = self.time_left();
            tokio::select! {
                // The sender is of this call.
                _ = pauses.changed() => {}
                () = tokio::time::sleep(left), if !is_paused => return,
            }
        }
    }

    /// Stops its time until the pause is dropped.
    pub(crate) fn pause(&self) -> CallPause<'_> {
        let mut clock = self.lock();
        clock.pauses += 1;
        clock.since.get_or_insert_with(Instant::now);
        drop(clock);
        self.pauses.send_modify(|pauses| *pauses += 1);
        CallPause(self)
    }

    /// Takes one of the questions that it may ask. False if there is none left.
    pub(crate) fn take_question(&self) -> bool {
        self.questions_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Returns the tool and its caller, for people.
    pub(crate) fn description(&self) -> String {
        let tool = printable_excerpt(&self.tool);
        match self.caller.name.as_str() {
            "" => tool,
            caller => format!("{tool} for {}", printable_excerpt(caller)),
        }
    }

    /// Returns a text of the server without secrets.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.get().map_or(Cow::Borrowed(text), |secrets| secrets.redact(text))
    }

    fn time_left(&self) -> Duration {
        let clock = self.lock();
        let Some(begun) = clock.begun else { return self.limit };
        let until = clock.since.unwrap_or_else(Instant::now);
        let used = until.duration_since(begun).saturating_sub(clock.paused);
        self.limit.saturating_sub(used)
    }

    fn lock(&self) -> MutexGuard<'_, CallClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallPause<'_> {
    fn drop(&mut self) {
        let mut clock = self.0.lock();
        clock.pauses -= 1;
        if clock.pauses == 0
            && let Some(since) = clock.since.take()
        {
            clock.paused += since.elapsed();
        }
        drop(clock);
        self.0.pauses.send_modify(|pauses| *pauses -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use countersign_runtime::tools::{GatewaySecrets, secrets::Redactor};
    use tokio::time::{Instant, sleep};

    use super::OpenCall;
    use crate::{secret_texts::SecretTexts, tool_caller::ToolCaller};

    fn call(limit: u64) -> Arc<OpenCall> {
        let call = OpenCall::new("box", "open", &ToolCaller::default(), Duration::from_secs(limit), 1);
        let hidden = Redactor::for_secrets(std::iter::empty::<&str>(), "[hidden]");
        call.begin(&Arc::new(SecretTexts::new(hidden, GatewaySecrets::default())));
        Arc::new(call)
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_call_stands_still_while_a_person_is_asked() {
        let (call, begun) = (call(10), Instant::now());
        let expired = tokio::spawn({
            let call = Arc::clone(&call);
            async move { call.expire().await }
        });
        sleep(Duration::from_secs(4)).await;
        let pauses = [call.pause(), call.pause()];
        sleep(Duration::from_secs(3600)).await;
        drop(pauses);
        expired.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 3610);
    }

    #[tokio::test]
    async fn questions_of_a_call_are_counted() {
        let call = call(1);
        assert_eq!([call.take_question(), call.take_question()], [true, false]);
    }
}
