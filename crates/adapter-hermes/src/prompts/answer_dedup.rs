//! Deduplication of answers that name no gate: a caller that posts the same twice gives one answer.
//!
//! Such an answer is for the oldest gate. A repetition would answer the next gate, which the user has not seen: so for
//! a moment the same answer is a repetition, unless the caller was shown the current gates meanwhile. This module must not know
//! the meaning of an answer.

use std::{collections::VecDeque, time::Duration};

use countersign_core::{
    digest::Digest,
    id::{PrincipalId, SessionId},
};
use countersign_http::web::{BodyFields, HttpCaller};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// Time within which the same answer counts as a repetition.
const TWICE: Duration = Duration::from_secs(1);
/// Most answers that are remembered.
const MOST_KEPT: usize = 1000;

/// Answer that is being given, or was.
type SharedAnswer<T> = Shared<BoxFuture<'static, T>>;

/// Recent answers, the oldest first.
pub(super) struct AnswerDeduplicator<T>(Mutex<VecDeque<RecentAnswer<T>>>);

struct RecentAnswer<T> {
    at: Instant,
    of: PostedAnswer,
    answer: SharedAnswer<T>,
}

/// Posted body, and its caller.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PostedAnswer {
    by: PrincipalId,
    session: SessionId,
    /// Digest of the body, which may be long.
    body: Digest,
}

impl PostedAnswer {
    pub(super) fn new(caller: &HttpCaller, session: &SessionId, body: &BodyFields) -> Self {
        let body = Value::Object(body.0.clone()).to_string();
        Self { by: caller.principal.clone(), session: session.clone(), body: Digest::hash_bytes(body.as_bytes()) }
    }
}

impl<T> Default for AnswerDeduplicator<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> AnswerDeduplicator<T> {
    /// Returns the result for `post`: that of `answer`, or the first result if this is a repetition. If `is_kept` rejects
    /// a result, the next post is no repetition.
    pub(super) async fn answer_once(
        &self,
        post: &PostedAnswer,
        answer: impl Future<Output = T> + Send + 'static,
        is_kept: impl Fn(&T) -> bool,
    ) -> T {
        let (answer, is_first) = self.begin_answer(post, answer);
        let result = answer.await;
        if is_first && !is_kept(&result) {
            self.0.lock().retain(|kept| kept.of != *post);
        }
        result
    }

    fn begin_answer(
        &self,
        post: &PostedAnswer,
        answer: impl Future<Output = T> + Send + 'static,
    ) -> (SharedAnswer<T>, bool) {
        let mut kept = self.0.lock();
        let now = Instant::now();
        while kept.len() >= MOST_KEPT || kept.front().is_some_and(|kept| now.duration_since(kept.at) >= TWICE) {
            kept.pop_front();
        }
        if let Some(first) = kept.iter().find(|kept| kept.of == *post) {
            return (first.answer.clone(), false);
        }
        let answer = answer.boxed().shared();
        kept.push_back(RecentAnswer { at: now, of: post.clone(), answer: answer.clone() });
        (answer, true)
    }

    /// Forgets the earlier answers of a caller who is about to be shown the gates of `session`: the same answer
    /// again is for the gates on view. Call it before the gates are read.
    pub(super) fn forget_shown(&self, caller: &HttpCaller, session: &SessionId) {
        let is_seen = |kept: &RecentAnswer<T>| {
            kept.of.by == caller.principal && kept.of.session == *session && kept.answer.peek().is_some()
        };
        self.0.lock().retain(|kept| !is_seen(kept));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::Arc,
        time::Duration,
    };

    use countersign_core::{
        digest::Digest,
        id::{PrincipalId, SessionId},
    };
    use tokio::sync::oneshot;

    use super::{AnswerDeduplicator, PostedAnswer, TWICE};
    use countersign_http::web::{AuthMethod, HttpCaller};

    fn caller(name: &str) -> HttpCaller {
        HttpCaller { principal: PrincipalId::new(name), name: name.to_owned(), via: AuthMethod::Open }
    }

    fn post(by: &str, session: &str, body: &str) -> PostedAnswer {
        PostedAnswer {
            by: PrincipalId::new(by),
            session: SessionId::new(session),
            body: Digest::hash_bytes(body.as_bytes()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_again_is_a_repetition_for_a_moment() {
        let nameless = AnswerDeduplicator::<u32>::default();
        let ana = post("ana", "s", "once");
        let answered = async |post: &PostedAnswer, result| nameless.answer_once(post, ready(result), |_| true).await;
        assert_eq!(answered(&ana, 1).await, 1);
        assert_eq!(answered(&ana, 2).await, 1);
        for (other, result) in
            [(post("bo", "s", "once"), 3), (post("ana", "t", "once"), 4), (post("ana", "s", "deny"), 5)]
        {
            assert_eq!(answered(&other, result).await, result);
        }
        tokio::time::advance(TWICE - Duration::from_millis(1)).await;
        assert_eq!(answered(&ana, 6).await, 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answered(&ana, 7).await, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_after_a_look_at_the_prompts_is_a_new_one() {
        let nameless = AnswerDeduplicator::<u32>::default();
        let ana = post("ana", "s", "once");
        assert_eq!(nameless.answer_once(&ana, ready(1), |_| true).await, 1);
        for (name, session) in [("bo", "s"), ("ana", "t")] {
            nameless.forget_shown(&caller(name), &SessionId::new(session));
            assert_eq!(nameless.answer_once(&ana, ready(2), |_| true).await, 1, "{name} looked at {session}");
        }
        nameless.forget_shown(&caller("ana"), &SessionId::new("s"));
        assert_eq!(nameless.answer_once(&ana, ready(3), |_| true).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_while_the_first_is_answered_makes_no_second() {
        let nameless = Arc::new(AnswerDeduplicator::<u32>::default());
        let ana = post("ana", "s", "once");
        let (go, gone) = oneshot::channel();
        let first = {
            let (nameless, ana) = (Arc::clone(&nameless), ana.clone());
            tokio::spawn(async move { nameless.answer_once(&ana, async move { gone.await.unwrap() }, |_| true).await })
        };
        tokio::task::yield_now().await;
        nameless.forget_shown(&caller("ana"), &SessionId::new("s"));
        let second = nameless.answer_once(&ana, pending(), |_| true);
        go.send(1).unwrap();
        assert_eq!((second.await, first.await.unwrap()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_found_nothing_to_answer_is_not_repeated() {
        let nameless = AnswerDeduplicator::<Option<u32>>::default();
        let ana = post("ana", "s", "once");
        assert_eq!(nameless.answer_once(&ana, ready(None), Option::is_some).await, None);
        assert_eq!(nameless.answer_once(&ana, ready(Some(1)), Option::is_some).await, Some(1));
    }
}
