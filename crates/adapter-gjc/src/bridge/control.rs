//! Control of a session: one client at a time may answer its prompts and shows this by a token.
//!
//! It must not know what is answered.

use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use super::host_presence::HostPresence;

/// Time without a shown token and without an open stream after which another client may take control.
const ABSENCE: Duration = Duration::from_secs(60);

/// Control of a session.
#[derive(Debug, Default)]
pub(super) struct SessionControl {
    holder: Option<ControlHolder>,
    /// Number of open streams of events.
    streams: usize,
    /// The client that does the work of the host.
    presence: HostPresence,
}

/// A stream of events that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenEventStream {
    /// Number of its client among those who were present.
    number: u64,
    /// True if the stream showed the token of the client in control.
    is_controllers: bool,
}

#[derive(Debug)]
struct ControlHolder {
    token: String,
    /// When it was shown last.
    shown: Instant,
}

/// Another client holds control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControllerBusy;

impl SessionControl {
    /// Gives control to a client that shows the token of the current holder, and to any client if there is no holder or the holder
    /// is gone. `fresh` is a random token.
    ///
    /// # Errors
    /// [`ControllerBusy`].
    pub(super) fn claim_control(
        &mut self,
        shown: Option<&str>,
        fresh: String,
        now: Instant,
    ) -> Result<String, ControllerBusy> {
        if shown.is_some_and(|shown| self.holds_control(shown, now)) {
            return self.holder.as_ref().map(|holder| holder.token.clone()).ok_or(ControllerBusy);
        }
        let is_gone = |holder: &ControlHolder| self.streams == 0 && now.duration_since(holder.shown) >= ABSENCE;
        if self.holder.as_ref().is_some_and(|holder| !is_gone(holder)) {
            return Err(ControllerBusy);
        }
        self.holder = Some(ControlHolder { token: fresh.clone(), shown: now });
        Ok(fresh)
    }

    /// Reports whether `shown` is the token of the client in control.
    pub(super) fn holds_control(&mut self, shown: &str, now: Instant) -> bool {
        let Some(holder) = &mut self.holder else { return false };
        let holds = bool::from(holder.token.as_bytes().ct_eq(shown.as_bytes()));
        if holds {
            holder.shown = now;
        }
        holds
    }

    /// Releases control if the token is the holder's. False if it is not.
    pub(super) fn release_control(&mut self, shown: &str, now: Instant) -> bool {
        let holds = self.holds_control(shown, now);
        if holds {
            self.holder = None;
            if self.presence.is_here {
                // Its stream may be open still; a client that does work from here on announces itself.
                self.presence = HostPresence { number: self.presence.number + 1, is_here: true, is_back: false };
            }
        }
        holds
    }

    /// Returns the client that does the work of the host.
    pub(super) const fn host_presence(&self) -> HostPresence {
        self.presence
    }

    /// Adds a stream of events of a client that showed this token. It does the host's work if no other stream does and the token is the
    /// controller's: the newest replaces the one before. `is_back` if it continues another stream that ended.
    pub(super) fn stream_begins(&mut self, shown: Option<&str>, is_back: bool, now: Instant) -> OpenEventStream {
        let is_controllers = shown.is_some_and(|shown| self.holds_control(shown, now));
        self.streams += 1;
        if is_controllers || !self.presence.is_here {
            self.presence = HostPresence { number: self.presence.number + 1, is_here: true, is_back };
        }
        OpenEventStream { number: self.presence.number, is_controllers }
    }

    /// Notes that a stream was closed.
    pub(super) fn stream_ends(&mut self, stream: OpenEventStream, now: Instant) {
        self.streams = self.streams.saturating_sub(1);
        let is_its_last = stream.is_controllers && stream.number == self.presence.number;
        if self.streams == 0 || is_its_last {
            self.presence.is_here = false;
        }
        // Its end is a sign of life too.
        if let Some(holder) = &mut self.holder {
            holder.shown = now;
        }
    }
}

/// Returns a random token.
pub(super) fn fresh_token() -> Option<String> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).ok()?;
    Some(hex::encode(seed))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{ABSENCE, ControllerBusy, SessionControl};

    #[test]
    fn one_client_holds_control_until_it_gives_it_back() {
        let (mut control, now) = (SessionControl::default(), Instant::now());
        assert_eq!(control.claim_control(None, "a".into(), now), Ok("a".to_owned()));
        assert_eq!(control.claim_control(None, "b".into(), now), Err(ControllerBusy));
        assert_eq!(control.claim_control(Some("x"), "b".into(), now), Err(ControllerBusy));
        assert_eq!(control.claim_control(Some("a"), "b".into(), now), Ok("a".to_owned()), "again");
        assert!(!control.release_control("b", now));
        assert!(control.release_control("a", now));
        assert!(!control.holds_control("a", now));
        assert_eq!(control.claim_control(Some("a"), "c".into(), now), Ok("c".to_owned()), "an old token is nothing");
    }

    #[test]
    fn a_client_that_is_gone_gives_way_after_a_while_and_one_that_listens_does_not() {
        let (mut control, now) = (SessionControl::default(), Instant::now());
        control.claim_control(None, "a".into(), now).unwrap();
        let stream = control.stream_begins(None, false, now);
        assert_eq!(control.claim_control(None, "b".into(), now + 2 * ABSENCE), Err(ControllerBusy));
        let gone = now + 2 * ABSENCE;
        control.stream_ends(stream, gone);
        assert_eq!(control.claim_control(None, "b".into(), gone + ABSENCE / 2), Err(ControllerBusy));
        assert_eq!(control.claim_control(None, "b".into(), gone + ABSENCE), Ok("b".to_owned()));
        assert!(!control.holds_control("a", gone + ABSENCE));
    }

    #[test]
    fn the_work_of_the_host_is_with_one_client_until_its_stream_ends_or_another_takes_its_place() {
        let (mut control, now) = (SessionControl::default(), Instant::now());
        let who = |control: &SessionControl| (control.host_presence().number, control.host_presence().is_here);
        assert_eq!(who(&control), (0, false), "nobody follows");
        let first = control.stream_begins(None, false, now);
        let beside = control.stream_begins(None, true, now);
        assert_eq!(who(&control), (1, true));
        control.claim_control(None, "a".into(), now).unwrap();
        assert_eq!(who(&control), (1, true), "who takes control is who was there");
        control.stream_ends(first, now);
        assert_eq!(who(&control), (1, true), "whose stream it was is not known");
        let own = control.stream_begins(Some("a"), true, now);
        assert_eq!((who(&control), control.host_presence().is_back), ((2, true), true));
        let newer = control.stream_begins(Some("a"), false, now);
        control.stream_ends(own, now);
        assert_eq!(who(&control), (3, true), "the newest has taken its place");
        control.stream_ends(newer, now);
        assert_eq!(who(&control), (3, false), "whoever only looks does no work");
        control.stream_ends(beside, now);
        control.stream_begins(None, false, now);
        assert_eq!(who(&control), (4, true));
        assert!(control.release_control("a", now));
        assert_eq!(who(&control), (5, true), "what it had is not for who comes");
    }
}
