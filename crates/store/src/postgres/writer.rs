//! The one thread that writes a log: takes the queued commands, sends appends in groups, answers each on its own.
//!
//! It must not know the written data, statement by statement. A second group may be on its way while the server commits the
//! first. Every group names the head that it follows, so that one that fails takes those after it with it.

mod other_writes;

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{FutureExt as _, future::MaybeDone, future::maybe_done};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
};
use tracing::{error, info, warn};

use super::{
    PostgresState,
    command::{WriterCommand, gather_group},
    connect::Connector,
    group::{AppendGroup, AppendRequest, GroupChannel, GroupInFlight, GroupOutcome, fail_requests, send_group},
    leases::LeaseClaim,
    session::{FormerSession, PARTITION, PartitionState, WriterSession, read_state},
    statements::{Statements, silence},
    views::FollowedViews,
};
use crate::{
    database_error::{DatabaseError, ServerError, StatementError},
    error::{AppendError, ErrorCause, LogWriteError},
    record::{Epoch, LogHead},
};

/// Groups on their way at the same time.
const PIPELINE: usize = 2;

/// Makes the caller the owner, with the next epoch.
const TAKE_OVER: &str = "UPDATE countersign.partitions SET epoch = epoch + 1, writer = writer + 1
    WHERE partition = $1 RETURNING epoch, writer";

/// The same for a process that holds the lease of the realm.
const TAKE_OVER_LEASED: &str = "UPDATE countersign.partitions SET epoch = epoch + 1, writer = writer + 1
    WHERE partition = $1 AND EXISTS (
        SELECT 1 FROM countersign.leases WHERE realm = $2 AND process = $3 AND term = $4 AND until > clock_timestamp()
    ) RETURNING epoch, writer";

/// What the writer's thread waits for.
enum Event {
    Command(Option<WriterCommand>),
    Outcome(AppendGroup, GroupOutcome),
}

/// The writer of the database.
pub(super) struct LogWriter {
    shared: Arc<PostgresState>,
    connector: Connector,
    runtime: Runtime,
    /// Absent while the database cannot be reached.
    session: Option<WriterSession>,
    /// The connection before, once there was one.
    former: Option<FormerSession>,
    /// The epoch in which this process may write.
    own_epoch: Epoch,
    /// Where the log ends once all groups on their way are written.
    state: PartitionState,
    /// The newest entry that the database has confirmed.
    confirmed: LogHead,
    views: FollowedViews,
    in_flight: VecDeque<MaybeDone<GroupInFlight>>,
    /// True if the database refused the last append.
    was_refused: bool,
}

impl LogWriter {
    /// Connects, prepares the tables and brings the views up to the log.
    pub(super) fn open(shared: Arc<PostgresState>, connector: Connector) -> Result<Self, DatabaseError> {
        let failed = |error: io::Error| DatabaseError::Failed {
            server: connector.server.clone(),
            problem: error.to_string(),
            full: false,
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (session, state) = {
            let options = &shared.options;
            runtime.block_on(WriterSession::open(&connector, options.event_format, options.lease.as_ref()))?
        };
        let mut views = FollowedViews::new(&shared.options.views);
        views.catch_up(Statements::new(&runtime, &session, connector.answer_timeout()), state.head);
        Ok(Self {
            shared,
            connector,
            runtime,
            session: Some(session),
            former: None,
            own_epoch: state.epoch,
            state,
            confirmed: state.head,
            views,
            in_flight: VecDeque::new(),
            was_refused: false,
        })
    }

    /// Writes until all senders are gone, then gives the lock back.
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<WriterCommand>) {
        let mut next = None;
        loop {
            match self.next_event(&mut inbox, next.take()) {
                Event::Outcome(group, outcome) => self.finish_group(group, outcome),
                Event::Command(Some(WriterCommand::Append(first))) => {
                    let (group, rest) = gather_group(first, &mut inbox);
                    next = rest;
                    self.write_group(group);
                }
                Event::Command(command) => {
                    self.drain_pipeline();
                    // A caller that no longer waits for the answer needs none.
                    match command {
                        None => break,
                        Some(WriterCommand::Append(append)) => self.write_group(vec![append]),
                        Some(WriterCommand::TakeOver { reply }) => drop(reply.send(self.take_over())),
                        Some(WriterCommand::Redact { lsns, reply }) => drop(reply.send(self.redact_contents(&lsns))),
                        Some(WriterCommand::SaveSnapshot { snapshot, reply }) => {
                            drop(reply.send(self.save_snapshot(&snapshot)));
                        }
                        Some(WriterCommand::Probe { reply }) => drop(reply.send(self.probe_write())),
                        Some(WriterCommand::Import { expected, records, reply }) => {
                            drop(reply.send(self.import_raw(expected, &records)));
                        }
                        Some(WriterCommand::Settle { reply }) => drop(reply.send(self.settle())),
                    }
                }
            }
        }
        if let Some(session) = self.session {
            self.runtime.block_on(session.close());
        }
    }

    /// Waits for an outcome, or for a command if another group may be sent.
    fn next_event(&mut self, inbox: &mut mpsc::Receiver<WriterCommand>, next: Option<WriterCommand>) -> Event {
        let room = self.in_flight.len() < PIPELINE;
        if let Some(command) = next {
            if !room {
                self.finish_oldest();
            }
            return Event::Command(Some(command));
        }
        let in_flight = &mut self.in_flight;
        let event = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = oldest_is_done(in_flight) => None,
                command = inbox.recv(), if room => Some(command),
            }
        });
        match event {
            Some(command) => Event::Command(command),
            None => match self.take_oldest() {
                Some((group, outcome)) => Event::Outcome(group, outcome),
                None => Event::Command(None),
            },
        }
    }

    fn take_oldest(&mut self) -> Option<(AppendGroup, GroupOutcome)> {
        let mut oldest = self.in_flight.pop_front()?;
        self.runtime.block_on(&mut oldest);
        Pin::new(&mut oldest).take_output()
    }

    fn finish_oldest(&mut self) {
        if let Some((group, outcome)) = self.take_oldest() {
            self.finish_group(group, outcome);
        }
    }

    fn drain_pipeline(&mut self) {
        while !self.in_flight.is_empty() {
            self.finish_oldest();
        }
    }

    /// Decides on a group and sends it.
    fn write_group(&mut self, requests: Vec<AppendRequest>) {
        if let Err(cause) = self.connect() {
            let error = AppendError::from(cause);
            return fail_requests(requests, &error);
        }
        if self.session.as_ref().is_some_and(|session| session.has_lost_entries) {
            let error = AppendError::Position { expected: self.confirmed.lsn, found: self.state.head.lsn };
            return fail_requests(requests, &error);
        }
        let mut group = match AppendGroup::new(requests, self.state.epoch, self.state.head) {
            Ok(group) => group,
            Err((requests, error)) => {
                self.drain_pipeline();
                return fail_requests(requests, &AppendError::Io(ErrorCause::new(error)));
            }
        };
        let Some(session) = &self.session else { return group.fail(&AppendError::Closed) };
        let statements = Statements::new(&self.runtime, session, self.connector.answer_timeout());
        match self.views.fold_records(statements, &group.records) {
            Ok(updates) => group.updates = updates,
            Err(error) => {
                self.drain_pipeline();
                return self.finish_group(group, GroupOutcome::Failed(error));
            }
        }
        let channel = GroupChannel {
            client: Arc::clone(&session.client),
            statement: session.append.clone(),
            number: session.number,
            warnings: session.warnings(),
            limit: self.connector.answer_timeout(),
        };
        self.state.head = group.after;
        let mut sent = maybe_done(send_group(channel, group));
        // The first poll sends it, behind the group before.
        self.runtime.block_on(async { (&mut sent).now_or_never() });
        self.in_flight.push_back(sent);
    }

    fn finish_group(&mut self, group: AppendGroup, outcome: GroupOutcome) {
        match outcome {
            GroupOutcome::Written { moved } => {
                let sent: Vec<&'static str> = group.updates.iter().map(|update| update.name).collect();
                let moved: Vec<&str> = moved.iter().map(String::as_str).collect();
                self.views.confirm(&sent, &moved);
                self.confirm_group(group);
            }
            GroupOutcome::OutOfTurn => self.decide_again(group),
            GroupOutcome::Failed(StatementError::Refused(error)) => self.write_each(group, error),
            GroupOutcome::Failed(StatementError::Lost(error)) => self.lose_connection(group, error),
        }
    }

    /// Answers a group that is written.
    fn confirm_group(&mut self, group: AppendGroup) {
        // A group that wrote nothing may name a head that is still on its way.
        if group.needs_statement() {
            self.confirmed = group.after;
            self.was_refused = false;
            self.shared.options.known_head.advance(group.after);
        }
        group.answer();
    }

    /// Answers a group that another owner or another connection kept from being written.
    fn decide_again(&mut self, group: AppendGroup) {
        let later = self.take_later();
        match self.refresh() {
            Ok(()) => {
                for group in [group].into_iter().chain(later) {
                    for request in group.requests {
                        let turn = (request.epoch, request.expected);
                        let refused = request.batch.check_turn(turn, (self.state.epoch, self.state.head.lsn));
                        let superseded = || ServerError::new("another connection writes the log now");
                        let error = refused.err().unwrap_or_else(|| AppendError::Io(ErrorCause::new(superseded())));
                        drop(request.reply.send(Err(error)));
                    }
                }
                if self.state.epoch == self.own_epoch {
                    warn!("another connection wrote the log; taking the next number");
                    self.disconnect();
                }
            }
            Err(cause) => {
                let error = AppendError::Io(cause);
                [group].into_iter().chain(later).for_each(|group| group.fail(&error));
            }
        }
    }

    /// Writes each request of a group alone, since one that the database refuses must not take the others with it.
    fn write_each(&mut self, group: AppendGroup, error: ServerError) {
        let later = self.take_later();
        if let Err(cause) = self.refresh() {
            let error = AppendError::Io(cause);
            return [group].into_iter().chain(later).for_each(|group| group.fail(&error));
        }
        if group.requests.len() == 1 {
            self.was_refused = true;
            group.fail(&AppendError::from(ErrorCause::new(error)));
        } else {
            for request in group.requests {
                self.write_group(vec![request]);
                self.drain_pipeline();
            }
        }
        for group in later {
            self.write_group(group.requests);
            self.drain_pipeline();
        }
    }

    /// Takes the groups that were sent after one that was not written. None of them was written either: each names a head
    /// that was not reached.
    fn take_later(&mut self) -> Vec<AppendGroup> {
        let mut later = Vec::new();
        while let Some((group, outcome)) = self.take_oldest() {
            match outcome {
                GroupOutcome::Written { .. } => self.confirm_group(group),
                GroupOutcome::OutOfTurn | GroupOutcome::Failed(StatementError::Refused(_)) => later.push(group),
                GroupOutcome::Failed(StatementError::Lost(error)) => self.lose_connection(group, error),
            }
        }
        later
    }

    /// Answers what was on its way when the connection broke.
    fn lose_connection(&mut self, group: AppendGroup, lost: ServerError) {
        let cause = ErrorCause::new(lost);
        error!(error = %cause, "the connection to the database broke; what was being recorded is unknown");
        self.shared.unsettled.store(true, Ordering::Release);
        group.fail(&AppendError::Uncertain(cause.clone()));
        while let Some((group, outcome)) = self.take_oldest() {
            match outcome {
                GroupOutcome::Written { .. } => self.confirm_group(group),
                GroupOutcome::OutOfTurn | GroupOutcome::Failed(_) => group.fail(&AppendError::Uncertain(cause.clone())),
            }
        }
        self.disconnect();
    }

    fn disconnect(&mut self) {
        self.views.forget_rows();
        if let Some(session) = self.session.take() {
            self.former = Some(session.abandon(self.own_epoch, self.confirmed));
        }
    }

    /// Makes sure that there is a connection, and that it is known where the log ends.
    fn connect(&mut self) -> Result<(), ErrorCause> {
        if let Some(session) = &self.session
            && session.client.is_closed()
        {
            self.drain_pipeline();
            self.disconnect();
        }
        let (None, Some(former)) = (&self.session, &self.former) else { return Ok(()) };
        let reopened =
            self.runtime.block_on(WriterSession::reopen(&self.connector, self.shared.options.event_format, former));
        match reopened {
            Ok((session, state)) => {
                info!(server = %self.connector.server, "connected to the database again");
                self.session = Some(session);
                self.state = state;
                self.shared.unsettled.store(false, Ordering::Release);
                Ok(())
            }
            Err(error) => Err(ErrorCause::new(error)),
        }
    }

    fn refresh(&mut self) -> Result<(), ErrorCause> {
        self.views.forget_rows();
        self.connect()?;
        let Some(session) = &self.session else { return Ok(()) };
        let read = self.runtime.block_on(async {
            tokio::time::timeout(self.connector.answer_timeout(), read_state(&session.client)).await
        });
        match read {
            Ok(Ok(state)) => {
                self.state = state;
                Ok(())
            }
            Ok(Err(error)) => {
                let failed = ServerError::from(StatementError::from(error));
                self.disconnect();
                Err(ErrorCause::new(failed))
            }
            Err(_) => {
                self.disconnect();
                Err(ErrorCause::new(silence(self.connector.answer_timeout())))
            }
        }
    }

    fn take_over(&mut self) -> Result<Epoch, LogWriteError> {
        let lease = self.shared.options.lease.clone();
        let taken = self.run_write(|statements, _| {
            let rows = match &lease {
                None => statements.query(TAKE_OVER, &[&PARTITION])?,
                Some(lease) => statements
                    .query(TAKE_OVER_LEASED, &[&PARTITION, &lease.realm, &lease.process, &lease.term.cast_signed()])?,
            };
            Ok(rows.first().map(|row| (Epoch(row.get::<_, i64>(0).cast_unsigned()), row.get(1))))
        })?;
        let Some((epoch, number)) = taken else {
            let server = self.connector.server.clone();
            return Err(LogWriteError::Io(ErrorCause::new(match lease {
                Some(LeaseClaim { realm, .. }) => DatabaseError::NoLease { server, realm },
                None => DatabaseError::Failed { server, problem: "the partition has no row".to_owned(), full: false },
            })));
        };
        if let Some(session) = &mut self.session {
            (session.number, session.has_lost_entries) = (number, false);
        }
        self.own_epoch = epoch;
        self.refresh().map_err(LogWriteError::from)?;
        self.confirmed = self.state.head;
        Ok(epoch)
    }

    /// Makes certain what became of appends whose connection broke.
    fn settle(&mut self) -> Result<(), ErrorCause> {
        self.connect()
    }

    /// Does a write that is no append.
    fn run_write<T>(
        &mut self,
        work: impl FnOnce(Statements<'_>, &mut FollowedViews) -> Result<T, StatementError>,
    ) -> Result<T, LogWriteError> {
        self.connect().map_err(LogWriteError::from)?;
        let Some(session) = &self.session else { return Err(LogWriteError::Closed) };
        let statements = Statements::new(&self.runtime, session, self.connector.answer_timeout());
        match work(statements, &mut self.views) {
            Ok(done) => Ok(done),
            Err(StatementError::Refused(error)) => Err(LogWriteError::from(ErrorCause::new(error))),
            Err(StatementError::Lost(error)) => {
                self.disconnect();
                Err(LogWriteError::Io(ErrorCause::new(error)))
            }
        }
    }
}

async fn oldest_is_done(in_flight: &mut VecDeque<MaybeDone<GroupInFlight>>) {
    match in_flight.front_mut() {
        Some(oldest) => oldest.await,
        None => std::future::pending().await,
    }
}
