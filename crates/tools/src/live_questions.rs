//! Questions of a call to people while it works: whether a command may reach an unlisted host.
//!
//! It must not know how people are asked, nor what the answer opens.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex as Lock, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{sync::Mutex, time::Instant};

/// Most refusals of one call; after them its questions are not shown to people any more.
const MOST_REFUSED: usize = 3;
/// Hosts that one call may ask about.
const MOST_ASKED: usize = 20;

/// Answer of people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAccessAnswer {
    /// The host may be reached while the call runs.
    Yes,
    /// The host may not be reached. Holds the reason, for the reader of the command's output.
    No(String),
}

/// Channel to the people who can approve hosts.
pub trait HostApprover: Send + Sync + 'static {
    /// Asks whether a command may reach `host`, such as `example.org:443`, and waits for the answer without a time limit.
    ///
    /// *Cancellation*: the answer is not awaited any more.
    fn approve_host(&self, host: Arc<str>) -> BoxFuture<'_, HostAccessAnswer>;
}

/// Questions of one call to people. Each host is asked about once, one after the other.
#[derive(Clone, Default)]
pub struct CallQuestions(Option<Arc<QuestionState>>);

struct QuestionState {
    people: Box<dyn HostApprover>,
    answers: Mutex<BTreeMap<Arc<str>, HostAccessAnswer>>,
    waited: Lock<WaitTime>,
}

#[derive(Debug, Default)]
struct WaitTime {
    before: Duration,
    since: Option<Instant>,
}

/// Guard of a wait for an answer: the wait lasts as long as the guard exists.
struct WaitGuard<'a>(&'a QuestionState);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut waited = self.0.lock_waited();
        if let Some(since) = waited.since.take() {
            waited.before += since.elapsed();
        }
    }
}

impl CallQuestions {
    /// Creates the questions of a call for which `people` are asked.
    pub fn new(people: impl HostApprover) -> Self {
        Self(Some(Arc::new(QuestionState {
            people: Box::new(people),
            answers: Mutex::default(),
            waited: Lock::default(),
        })))
    }

    /// Returns true if there are people who can be asked.
    pub(crate) const fn can_ask(&self) -> bool {
        self.0.is_some()
    }

    /// Asks whether a command may reach `host`; `None` if no person can be asked, or if `gone` completes before it is its turn:
    /// no question is shown for a client that has gone. A question that is shown waits for its answer.
    pub(crate) async fn ask_host(&self, host: &str, gone: impl Future<Output = ()>) -> Option<HostAccessAnswer> {
        let asking = self.0.as_ref()?;
        let mut answers = tokio::select! {
            biased;
            answers = asking.answers.lock() => answers,
            () = gone => return None,
        };
        if let Some(answer) = answers.get(host) {
            return Some(answer.clone());
        }
        let refused = answers.values().filter(|answer| matches!(answer, HostAccessAnswer::No(_))).count();
        if refused >= MOST_REFUSED || answers.len() >= MOST_ASKED {
            let why = format!(
                "this command has requested too many approvals: the limit is {MOST_REFUSED} refused or {MOST_ASKED} \
                 requested"
            );
            return Some(HostAccessAnswer::No(why));
        }
        let host: Arc<str> = host.into();
        asking.lock_waited().since = Some(Instant::now());
        let wait = WaitGuard(asking);
        let answer = asking.people.approve_host(Arc::clone(&host)).await;
        drop(wait);
        answers.insert(host, answer.clone());
        Some(answer)
    }

    /// Returns the time that the call has waited for people so far.
    pub(crate) fn time_waited(&self) -> Duration {
        let Some(asking) = &self.0 else { return Duration::ZERO };
        let waited = asking.lock_waited();
        waited.before + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl QuestionState {
    fn lock_waited(&self) -> MutexGuard<'_, WaitTime> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CallQuestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallQuestions").field(&self.0.is_some()).finish()
    }
}

/// Equal if they belong to the same call.
impl PartialEq for CallQuestions {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Eq for CallQuestions {}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use futures_util::future::BoxFuture;

    use super::{CallQuestions, HostAccessAnswer, HostApprover};

    /// Takes ten seconds for an answer, which is yes to what begins with a "y".
    #[derive(Clone, Default)]
    struct SlowApprover(Arc<Mutex<Vec<String>>>);

    impl HostApprover for SlowApprover {
        fn approve_host(&self, host: Arc<str>) -> BoxFuture<'_, HostAccessAnswer> {
            Box::pin(async move {
                self.0.lock().unwrap().push(host.to_string());
                tokio::time::sleep(Duration::from_secs(10)).await;
                if host.starts_with('y') { HostAccessAnswer::Yes } else { HostAccessAnswer::No("no".to_owned()) }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_host_opens_one_question_one_after_the_other() {
        let people = SlowApprover::default();
        let asks = CallQuestions::new(people.clone());
        let ask = |host| asks.ask_host(host, std::future::pending());
        let answers = tokio::join!(ask("y:1"), ask("n:1"), ask("y:1"), ask("n:1"));
        let no = || Some(HostAccessAnswer::No("no".to_owned()));
        assert_eq!(answers, (Some(HostAccessAnswer::Yes), no(), Some(HostAccessAnswer::Yes), no()));
        assert_eq!(*people.0.lock().unwrap(), ["y:1", "n:1"]);
        assert_eq!(asks.time_waited(), Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn people_are_left_alone_after_some_refusals() {
        let people = SlowApprover::default();
        let asks = CallQuestions::new(people.clone());
        for host in ["n:1", "n:2", "n:3"] {
            assert_eq!(asks.ask_host(host, std::future::pending()).await, Some(HostAccessAnswer::No("no".to_owned())));
        }
        let more = asks.ask_host("y:1", std::future::pending()).await;
        let limits = "the limit is 3 refused or 20 requested";
        assert!(matches!(more, Some(HostAccessAnswer::No(why)) if why.contains(limits)));
        assert_eq!(people.0.lock().unwrap().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_the_others_waiting_for_an_answer_of_their_own() {
        let people = SlowApprover::default();
        let asks = CallQuestions::new(people.clone());
        let ask = |asks: CallQuestions| async move { asks.ask_host("y:1", std::future::pending()).await };
        assert!(tokio::time::timeout(Duration::from_secs(4), ask(asks.clone())).await.is_err());
        assert_eq!(asks.time_waited(), Duration::from_secs(4));
        assert_eq!(ask(asks.clone()).await, Some(HostAccessAnswer::Yes));
        assert_eq!(asks.time_waited(), Duration::from_secs(14));
        assert_eq!(ask(CallQuestions::default()).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_asker_is_gone_is_not_opened() {
        let people = SlowApprover::default();
        let asks = CallQuestions::new(people.clone());
        let gone = || tokio::time::sleep(Duration::from_secs(4));
        let answers =
            tokio::join!(asks.ask_host("y:1", gone()), asks.ask_host("y:2", gone()), asks.ask_host("y:1", gone()));
        // The client whose question is shown waits for the answer.
        assert_eq!(answers, (Some(HostAccessAnswer::Yes), None, None));
        assert_eq!(*people.0.lock().unwrap(), ["y:1"]);
    }
}
