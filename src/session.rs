//! One client connection, paired with one connection to one broker.
//!
//! Both directions run in one task: `Session::poll` moves what can be moved
//! and returns when nothing can. Bytes are read into the worker's one large
//! buffer, looked at in place (`route` for requests, `reply` for
//! responses) and written from there; a connection keeps only what is
//! incomplete or what its peer does not take.

mod admit;
mod alarm;
mod end;
mod greeting;
mod identity;
mod introduce;
mod leave;
mod moment;
mod outbox;
mod pace;
mod pipeline;
mod produce;
mod readback;
mod refuse;
mod renewal;
mod reply;
mod room;
mod route;
mod scan;
mod settle;
mod shared;
mod splice;
mod telling;
mod told;
mod topics;

use crate::config::{Config, Mode};
use crate::ids::{Epoch, NodeId, ProducerId, TopicKey};
use crate::ledger::{Hasher, Identity, Ledger, Link, Producer, Realm};
use crate::metrics::{Api, DisconnectCause, Outcome, Presence, Side, Tally};
use crate::timers;
use crate::tls::Stream;
use crate::upstream::{Dialled, Target};
use crate::window::Time;
use crate::wire::header::RequestHead;
use alarm::Alarm;
use end::{End, ORPHAN_PATIENCE};
use identity::Authentication;
use leave::Leaving;
use moment::Moment;
use outbox::{Outbox, Pass};
use pace::Pace;
use pipeline::{Owed, Pipeline, Reply};
use produce::Held;
use readback::ReadBack;
use renewal::Renewal;
use reply::ReplyStage;
use room::Room;
use route::RequestStage;
use settle::Sent;
use splice::Runs;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;
use topics::TopicCache;

pub use leave::Stage;
#[doc(hidden)]
pub use pipeline::Pairing;
use shared::Collecting;
pub use shared::{Door, Info, Shared, Trusted, division};

/// What must have arrived of a frame before it is announced to the other
/// side: a broker allocates what a frame announces.
const FIRST_PART: usize = 64 * 1024;
/// The read buffer that the sessions of a worker share.
const READ_BUFFER: usize = 256 * 1024;
/// Answers of hapax's own that may wait for a client that does not read.
const CLIENT_OUT_MAX: usize = 1024 * 1024;
/// What is read of a client whose request is held, to notice that it hangs up.
const HELD_READ_MAX: usize = 256 * 1024;
/// How often a client is looked at that is not read, its request being held.
const UNREAD_CLIENT_GLANCE: Duration = Duration::from_millis(100);
thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER]);
}

/// Why the bytes of the client wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    /// A batch waits for another one.
    Held,
    /// The log is read for one of its batches.
    Reading,
    /// Open requests have to be answered first.
    Full,
    /// hapax has to log in again first.
    Login,
}

/// Which sides have nothing more to read, as far as this wake-up goes: each
/// wakes the session itself once it has, and so does a used up budget.
#[derive(Clone, Copy, Default, Debug)]
struct Dry {
    client: bool,
    upstream: bool,
}

/// One client connection and its broker connection.
struct Session {
    shared: Arc<Shared>,
    /// What the process was told to do, as of the newest wake-up.
    config: Arc<Config>,
    /// The version of `shared` that it knows of; at first none.
    seen: Option<u32>,
    leaving: Leaving,
    /// Whether the user that the client has authenticated as to hapax is none
    /// any more: what it has sent is answered, and nothing more is taken of it.
    is_removed: bool,
    tally: Rc<Tally>,
    info: Arc<Info>,
    client: Stream,
    upstream: Stream,
    link: Link,
    node: Option<NodeId>,

    /// Bytes of the client that have not been dealt with.
    inbox: Vec<u8>,
    /// `inbox` is worth another look once it holds this much.
    inbox_wanted: usize,
    request: RequestStage,
    blocked: Option<Blocked>,
    held: Option<Held>,
    queue: Option<produce::Queue>,
    /// Room for the frame that is collected in `inbox`.
    collecting: Option<Collecting>,
    to_upstream: Outbox,
    /// Where requests without an answer stand in the stream to the broker;
    /// only those that may still be in `to_upstream`.
    quiet: Vec<Range<u64>>,

    /// Bytes of the broker that have not been dealt with.
    mail: Vec<u8>,
    mail_wanted: usize,
    reply: ReplyStage,
    to_client: Outbox,
    runs: Runs,
    room: Room,

    pipeline: Pipeline,
    /// From when on hapax logs in again before a request.
    renew_at: Moment,
    renewal: Option<Box<Renewal>>,
    /// Requests so far.
    requests: u64,
    /// What is looked for in the log, and what waits for that.
    readback: Option<Box<ReadBack>>,
    /// Whether the log may be read back at all.
    reads_log: bool,
    /// Questions of hapax's own so far.
    questions: i32,
    /// Topics that this connection may not read, where nobody else is known
    /// to be the same client.
    refused: Vec<TopicKey>,
    /// Batches on their way, in the order of `pipeline`; those of a response
    /// that waits come first.
    tickets: VecDeque<Sent>,
    authentication: Authentication,
    realm: Option<Realm>,
    /// The host that clients are told for every broker.
    advertised: Arc<str>,
    topics: TopicCache,
    producers: HashMap<ProducerId, Arc<Producer>, Hasher>,
    /// The producer and epoch of the newest batch: one of `producers`, which
    /// knows that epoch.
    epoch_seen: Option<(ProducerId, Epoch)>,

    dry: Dry,
    pace: Pace,
    client_eof: bool,
    upstream_shut: bool,
    /// When the broker last said anything.
    heard: Moment,
    /// When it last took anything, or was told that no more comes.
    taken: Moment,
    /// Until when it waits for acknowledgements without a client.
    orphan: Option<(Moment, Presence)>,
    now: Moment,
    time: Time,
    alarm: Alarm,
}

/// Serves one client until either side is gone.
pub async fn serve(shared: Arc<Shared>, tally: Rc<Tally>, client: TcpStream, door: Door) {
    // What dialling needs is not kept for as long as the session lasts.
    let opened = Box::pin(open(shared, tally, client, door)).await;
    let Some((session, _present)) = opened else {
        return;
    };
    session.run().await;
}

/// Dials the broker once the client has something to say: a port that is only
/// probed costs the broker nothing.
async fn open(
    shared: Arc<Shared>,
    tally: Rc<Tally>,
    client: TcpStream,
    door: Door,
) -> Option<(Box<Session>, shared::Registered)> {
    let info = Arc::new(Info::new(&client, door));
    let registered = shared::Registered::new(&shared, &info);
    let client = first_request(&shared, &info, client).await;
    let known = match client {
        Ok(client) => authenticated(&shared, &tally, &info, client, door).await,
        Err(cause) => Err(cause),
    };
    let (client, user) = match known {
        Ok(known) => known,
        Err(cause) => {
            shared.disconnected(cause);
            return None;
        }
    };
    let target = leads_to(&shared, door);
    let dialled = tokio::select! {
        biased;
        dialled = shared.dial_for_client(&target) => dialled,
        () = shared.cut() => {
            shared.disconnected(DisconnectCause::DrainTimeout);
            // Of what the client has said no more is known.
            shared.metrics.drain_cut_requests.inc();
            return None;
        }
    };
    let upstream = match dialled {
        Ok(upstream) => upstream,
        Err(error) => {
            shared.cannot_dial(&target, info.client, &error);
            // Reset, as a broker's port is that nobody listens on: an end in
            // good order before the first answer tells franz-go that it should
            // speak TLS, and it gives its records up.
            let _ = client.tcp().set_zero_linger();
            shared.disconnected(DisconnectCause::Upstream);
            return None;
        }
    };
    info.connected(target.node, upstream.stream.tcp());
    let session = Session::new(shared, tally, info, client, upstream, target.node, user);
    Some((Box::new(session), registered))
}

/// The broker that a port stands for.
fn leads_to(shared: &Shared, door: Door) -> Target {
    match door {
        Door::Bootstrap(_) => shared.brokers.bootstrap(),
        Door::Broker(port) => shared.brokers.target(port),
    }
}

/// Finds out who the client is, where hapax has users of its own, and then
/// waits for what it wants from a broker.
async fn authenticated(
    shared: &Arc<Shared>,
    tally: &Tally,
    info: &Info,
    mut client: Stream,
    door: Door,
) -> Result<(Stream, Option<Identity>), DisconnectCause> {
    let Some(users) = &shared.users else {
        return Ok((client, None));
    };
    let target = leads_to(shared, door);
    let user = admit::admit(shared, users, tally, info, &target, &mut client).await?;
    info.set_user(&user);
    said_something(shared, &mut client).await?;
    Ok((client, Some(user)))
}

/// Waits until the client says something: a request, after it has come to
/// terms on TLS where it has to.
async fn first_request(
    shared: &Shared,
    info: &Info,
    client: TcpStream,
) -> Result<Stream, DisconnectCause> {
    let mut client = Stream::Plain(client);
    said_something(shared, &mut client).await?;
    let Stream::Plain(socket) = client else {
        return Ok(client);
    };
    if !shared.tls.is_for_clients() {
        return Ok(Stream::Plain(socket));
    }
    match shared.welcome(socket).await {
        Ok(secured) => client = secured,
        Err(why) => {
            shared.turned_away(info.client, &why);
            return Err(DisconnectCause::Tls);
        }
    }
    said_something(shared, &mut client).await?;
    Ok(client)
}

async fn said_something(shared: &Shared, client: &mut Stream) -> Result<(), DisconnectCause> {
    let patience = shared.current().timeouts.first_request;
    let first = async {
        tokio::select! {
            biased;
            said = client.readable() => match said {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(DisconnectCause::Client),
            },
            cause = shared.end() => Err(cause),
        }
    };
    let first = timers::timeout(patience, first).await;
    first.unwrap_or(Err(DisconnectCause::Idle))
}

impl Session {
    fn new(
        shared: Arc<Shared>,
        tally: Rc<Tally>,
        info: Arc<Info>,
        client: Stream,
        Dialled {
            stream: upstream,
            login,
        }: Dialled,
        node: Option<NodeId>,
        user: Option<Identity>,
    ) -> Self {
        let advertised = shared.advertised(client.tcp());
        let runs = Runs::between(&client, &upstream);
        let loopback = client
            .tcp()
            .local_addr()
            .is_ok_and(|a| a.ip().to_canonical().is_loopback());
        let authentication = match (user, &login) {
            (Some(user), _) => Authentication::settled_as(user),
            (None, Some(login)) => {
                Authentication::of_hapax(loopback, renewal::identity(&login.principal))
            }
            (None, None) => Authentication::new(loopback),
        };
        let now = now(&shared.ledger);
        let (renewal, renew_at) = renewal::planned(login, now);
        let config = shared.current();
        Self {
            seen: None,
            leaving: Leaving::No,
            is_removed: false,
            tally,
            realm: shared.ledger.realm(&authentication.identity()),
            link: shared.ledger.link(),
            time: shared.ledger.time_at(now.age()),
            info,
            client,
            upstream,
            node,
            inbox: Vec::new(),
            inbox_wanted: 0,
            request: RequestStage::Head,
            blocked: None,
            held: None,
            queue: None,
            collecting: None,
            to_upstream: Outbox::default(),
            quiet: Vec::new(),
            mail: Vec::new(),
            mail_wanted: 0,
            reply: ReplyStage::Head,
            to_client: Outbox::default(),
            runs,
            room: Room::default(),
            pipeline: Pipeline::default(),
            renew_at,
            renewal,
            readback: None,
            reads_log: config.sequence.resolve && config.mode != Mode::Observe,
            config,
            questions: 0,
            refused: Vec::new(),
            requests: 0,
            tickets: VecDeque::with_capacity(1),
            authentication,
            advertised,
            topics: TopicCache::default(),
            producers: HashMap::default(),
            epoch_seen: None,
            dry: Dry::default(),
            pace: Pace::from(now),
            client_eof: false,
            upstream_shut: false,
            heard: now,
            taken: now,
            orphan: None,
            now,
            alarm: Alarm::default(),
            shared,
        }
    }

    async fn run(mut self: Box<Self>) {
        let gauge = self.shared.metrics.upstream_connections_of(self.node);
        let _connected = Presence::of(&gauge);
        let end = poll_fn(|cx| self.poll(cx)).await;
        let unanswered = self.pipeline.len();
        if matches!(end, End::Cut) {
            self.count_cut();
        }
        self.info.counted.store(true, Ordering::Relaxed);
        self.settle_all();
        self.tell(&end, unanswered);
        self.shared.disconnected(end.cause());
        match end {
            _ if self.orphan.is_some() => {}
            End::Cut => {
                self.last_quiet_requests().await;
                self.last_bytes().await;
                self.linger().await;
            }
            End::Drained | End::Removed | End::Idle(_) => {
                self.last_bytes().await;
                self.linger().await;
            }
            End::ClientLost(_) => self.last_quiet_requests().await,
            End::Refused(_) => {
                self.last_quiet_requests().await;
                self.last_bytes().await;
            }
            // What it was sent it did not read.
            End::Memory(_) => self.last_quiet_requests().await,
            _ => self.last_bytes().await,
        }
    }

    /// Moves what can be moved, both ways.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        // The runtime ends a long run of turns before the time can matter.
        self.look_at_clock();
        if self.seen != Some(self.shared.version())
            && let Some(end) = self.catch_up(cx)
        {
            return Poll::Ready(end);
        }
        self.dry = Dry::default();
        self.runs.begin();
        loop {
            match self.turn(cx) {
                Ok(true) => {}
                Ok(false) => match self.account_and_wait(cx) {
                    Poll::Pending => {
                        self.info.show(self.requests, self.pipeline.len());
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(())) => self.look_at_clock(),
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                },
                Err(End::ClientLost(error)) if self.orphan.is_none() => {
                    let waited = self.readback.is_some();
                    if !self.become_orphan() {
                        return Poll::Ready(End::ClientLost(error));
                    }
                    if waited && let Err(end) = self.open_mail(cx) {
                        return Poll::Ready(end);
                    }
                }
                Err(End::UpstreamClosed) => {
                    self.stop_reading(cx);
                    return Poll::Ready(End::UpstreamClosed);
                }
                Err(End::UpstreamLost(error)) => {
                    self.stop_reading(cx);
                    self.hear_last_words(cx);
                    return Poll::Ready(End::UpstreamLost(error));
                }
                Err(end) => return Poll::Ready(end),
            }
        }
    }

    /// Nothing moves any more: what is kept now is kept for a while.
    fn account_and_wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.account();
        self.poll_timer(cx)
    }

    fn look_at_clock(&mut self) {
        self.now = now(&self.shared.ledger);
        self.time = self.shared.ledger.time_at(self.now.age());
    }

    /// A request has its answer, or will get none.
    fn answered(&self, owed: &Owed, ok: bool) {
        self.done(owed, if ok { Outcome::Ok } else { Outcome::Error });
    }

    fn done(&self, owed: &Owed, outcome: Outcome) {
        if owed.reply.is_own() {
            return;
        }
        let api = Api::from_key(owed.head.api_key);
        let took = self.now.nanoseconds_since(owed.at);
        self.tally.answered(api, outcome, took);
    }

    /// One turn of both directions. Returns whether anything moved.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if !(self.to_upstream.is_empty() && self.to_client.is_empty()) {
            self.flush(cx)?;
        }
        let mut moved = false;
        if self.leaving != Leaving::Left && (!self.dry.client || !self.inbox.is_empty()) {
            moved |= self.turn_client(cx)?;
        }
        if !self.dry.upstream {
            moved |= self.turn_upstream(cx)?;
        }
        if self.readback.is_some() {
            moved |= self.read_on(cx)?;
        }
        if self.blocked == Some(Blocked::Login) {
            moved |= self.renew(cx)?;
        }
        if self.orphan.is_some() {
            self.to_client = Outbox::default();
            if self.tickets.is_empty() {
                return Err(End::ClientClosed);
            }
            return Ok(moved);
        }
        if self.client_eof {
            moved |= self.half_close(cx)?;
        }
        if self.leaving != Leaving::No || self.is_removed {
            moved |= self.leave()?;
        }
        Ok(moved)
    }

    /// Writes what waits.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let before = (self.to_upstream.written(), self.to_client.written());
        let upstream = self.to_upstream.poll_flush(cx, &mut self.upstream);
        let client = self.to_client.poll_flush(cx, &mut self.client);
        let after = (self.to_upstream.written(), self.to_client.written());
        self.sent_upstream(after.0 - before.0);
        self.tally.sent(Side::Client, after.1 - before.1);
        if let Poll::Ready(Err(error)) = upstream {
            return Err(End::UpstreamLost(error));
        }
        if let Poll::Ready(Err(error)) = client {
            return Err(End::ClientLost(error));
        }
        Ok(())
    }

    /// Client to broker.
    fn turn_client(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.orphan.is_some() || !self.to_upstream.is_empty() {
            return Ok(false);
        }
        let before = self.inbox.len();
        if before > 0 && before >= self.inbox_wanted {
            let bytes = std::mem::take(&mut self.inbox);
            let taken = self.take_requests(cx, &bytes)?;
            self.inbox = keep_rest(bytes, taken);
        }
        let moved = self.inbox.len() != before;
        if moved && (!self.to_upstream.is_empty() || !self.inbox.is_empty()) {
            return Ok(true);
        }
        if self.unread_while_held()
            && let Some(error) = self.client.tcp().take_error().transpose()
        {
            return Err(End::ClientLost(error.unwrap_or_else(|error| error)));
        }
        let full = matches!(self.blocked, Some(Blocked::Full | Blocked::Login));
        let may_read = !full && !self.unread_while_held();
        if self.client_eof || !may_read || self.owes_reading() {
            return Ok(moved);
        }
        if self.client_run_begins()
            && let Some(spliced) = self.splice_client(cx)?
        {
            return Ok(spliced || moved);
        }
        let read = self.read_client(cx)?;
        if read && self.client_run_begins() {
            // What came of a run goes together with its head.
            self.splice_client(cx)?;
        }
        Ok(read || moved)
    }

    /// Whether the client has sent so much behind a held request that it is
    /// no longer read, which is how a hang-up would be noticed.
    fn unread_while_held(&self) -> bool {
        matches!(self.blocked, Some(Blocked::Held | Blocked::Reading))
            && self.inbox.len() >= self.held_read_max()
    }

    fn read_client(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.dry.client {
            return Ok(false);
        }
        let Some(allowed) = self.client_allowance() else {
            return Ok(false);
        };
        BUFFER.with_borrow_mut(|buffer| {
            let carried = self.inbox.len();
            let in_place = carried + FIRST_PART <= READ_BUFFER && self.blocked.is_none();
            let start = if in_place { carried } else { 0 };
            let room = self.client_room().min(allowed);
            let end = start.saturating_add(room).min(READ_BUFFER);
            let read = match poll_read(cx, &mut self.client, &mut buffer[start..end]) {
                Poll::Pending => {
                    self.dry.client = true;
                    return Ok(false);
                }
                Poll::Ready(Err(error)) => return Err(End::ClientLost(error)),
                Poll::Ready(Ok(0)) => {
                    self.client_eof = true;
                    return Ok(true);
                }
                Poll::Ready(Ok(read)) => read,
            };
            self.tally.received(Side::Client, read);
            self.pace.came(read, self.now);
            let bytes = &buffer[start..start + read];
            if !in_place || carried + read < self.inbox_wanted {
                self.inbox.extend_from_slice(bytes);
                return Ok(true);
            }
            buffer[..carried].copy_from_slice(&self.inbox);
            self.inbox.clear();
            let bytes = &buffer[..carried + read];
            let taken = self.take_requests(cx, bytes)?;
            keep_in(&mut self.inbox, &bytes[taken..]);
            if start + read == end {
                self.client_filled_room();
            }
            Ok(true)
        })
    }

    /// Looks at requests and sends on what may go. Returns how many bytes
    /// were dealt with.
    fn take_requests(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, End> {
        if self.to_upstream.is_empty() {
            self.quiet.clear();
        }
        let mut outbox = std::mem::take(&mut self.to_upstream);
        let mut pass = Pass::new(bytes, &mut outbox);
        let routed = self.route(&mut pass, cx.waker());
        let run = pass.finish();
        let taken = run.end;
        let before = outbox.written();
        let sent = if self.client_run_begins() && outbox.takes_head(run.len()) {
            outbox.push(&bytes[run]);
            Ok(())
        } else {
            outbox.send(cx, &mut self.upstream, &bytes[run])
        };
        self.sent_upstream(outbox.written() - before);
        self.to_upstream = outbox;
        if self.to_upstream.is_empty() {
            self.quiet.clear();
        }
        sent.map_err(End::UpstreamLost)?;
        routed?;
        self.answer_ready();
        Ok(taken)
    }

    /// Sends a request of hapax's own, whose answer no client gets.
    fn ask_broker(
        &mut self,
        cx: &mut Context<'_>,
        head: RequestHead,
        reply: Reply,
        bytes: &[u8],
    ) -> Result<(), End> {
        self.pipeline.push(Owed {
            head,
            reply,
            tickets: 0,
            end: self.to_upstream.queued() + bytes.len() as u64,
            at: self.now,
            sent: Some(self.now),
            // It waits for nothing that a client could have asked for.
            timeout: Some(Duration::ZERO),
        });
        let before = self.to_upstream.written();
        let sent = self.to_upstream.send(cx, &mut self.upstream, bytes);
        self.sent_upstream(self.to_upstream.written() - before);
        sent.map_err(End::UpstreamLost)
    }

    fn sent_upstream(&mut self, bytes: u64) {
        self.tally.sent(Side::Upstream, bytes);
        if bytes > 0 {
            self.taken = self.now;
        }
    }

    /// Broker to client.
    fn turn_upstream(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if !self.to_client.is_empty() && self.orphan.is_none() {
            return Ok(false);
        }
        if self.upstream_run_begins()
            && let Some(spliced) = self.splice_upstream(cx)?
        {
            return Ok(spliced);
        }
        let read = self.read_upstream(cx)?;
        if read && self.upstream_run_begins() {
            self.splice_upstream(cx)?;
        }
        Ok(read)
    }

    fn read_upstream(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.dry.upstream {
            return Ok(false);
        }
        let Some(allowed) = self.upstream_allowance() else {
            return Ok(false);
        };
        BUFFER.with_borrow_mut(|buffer| {
            let carried = self.mail.len();
            let in_place = carried + FIRST_PART <= READ_BUFFER;
            let start = if in_place { carried } else { 0 };
            let room = self.upstream_room().min(allowed);
            let end = start.saturating_add(room).min(READ_BUFFER);
            let read = match poll_read(cx, &mut self.upstream, &mut buffer[start..end]) {
                Poll::Pending => {
                    self.dry.upstream = true;
                    return Ok(false);
                }
                Poll::Ready(Err(error)) => return Err(End::UpstreamLost(error)),
                Poll::Ready(Ok(0)) => return Err(End::UpstreamClosed),
                Poll::Ready(Ok(read)) => read,
            };
            self.tally.received(Side::Upstream, read);
            self.heard = self.now;
            let bytes = &buffer[start..start + read];
            if in_place && carried + read >= self.mail_wanted {
                buffer[..carried].copy_from_slice(&self.mail);
                self.mail.clear();
                let bytes = &buffer[..carried + read];
                let taken = self.take_replies(cx, bytes)?;
                keep_in(&mut self.mail, &bytes[taken..]);
                if start + read == end {
                    self.upstream_filled_room();
                }
                return Ok(true);
            }
            self.mail.extend_from_slice(bytes);
            if self.mail.len() >= self.mail_wanted {
                let bytes = std::mem::take(&mut self.mail);
                let taken = self.take_replies(cx, &bytes)?;
                self.mail = keep_rest(bytes, taken);
            }
            Ok(true)
        })
    }

    fn take_replies(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, End> {
        let mut outbox = std::mem::take(&mut self.to_client);
        let mut pass = Pass::new(bytes, &mut outbox);
        let read = self.replies(&mut pass);
        let run = pass.finish();
        let taken = run.end;
        let before = outbox.written();
        let sent = if self.orphan.is_some() {
            Ok(())
        } else if self.upstream_run_begins() && outbox.takes_head(run.len()) {
            outbox.push(&bytes[run]);
            Ok(())
        } else {
            outbox.send(cx, &mut self.client, &bytes[run])
        };
        self.tally.sent(Side::Client, outbox.written() - before);
        self.to_client = outbox;
        read?;
        if let Err(error) = sent {
            // An orphan reads on where this left off.
            keep_in(&mut self.mail, &bytes[taken..]);
            return Err(End::ClientLost(error));
        }
        Ok(taken)
    }

    /// The client said that it sends no more: pass that on once everything it
    /// sent is on its way, and end when it has all its answers.
    fn half_close(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.blocked.is_some() || self.readback.is_some() || !self.to_upstream.is_empty() {
            return Ok(false);
        }
        if self.pipeline.is_empty() && self.reply.at_head() && self.to_client.is_empty() {
            return Err(End::ClientClosed);
        }
        if self.upstream_shut {
            return Ok(false);
        }
        match self.upstream.poll_half_close(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(End::UpstreamLost(error)),
            Poll::Ready(Ok(())) => {
                self.upstream_shut = true;
                self.taken = self.now;
                Ok(true)
            }
        }
    }

    /// The broker is gone. What it had answered before may still be in our
    /// receive buffer, and every acknowledgement counts.
    fn hear_last_words(&mut self, cx: &mut Context<'_>) {
        self.dry.upstream = false;
        // However much this task has done in this turn: it has no other.
        let mut words = unconstrained(poll_fn(|cx| {
            while matches!(self.read_upstream(cx), Ok(true)) {}
            Poll::Ready(())
        }));
        let _ = Pin::new(&mut words).poll(cx);
    }

    /// Answers of hapax's own whose turn has come.
    fn answer_ready(&mut self) {
        if !self.reply.at_head() {
            return;
        }
        while let Some((owed, bytes)) = self.pipeline.take_ready() {
            self.to_client.push(&bytes);
            self.done(&owed, Outcome::ShortCircuit);
        }
    }

    /// Waits for the next thing that time brings.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let Some((due, what)) = self.next_due() else {
            return Poll::Pending;
        };
        if due <= self.now {
            return match what {
                Due::Room => Poll::Ready(self.look_at_room()),
                Due::AnotherLook => Poll::Ready(Ok(())),
                Due::Orphan => Poll::Ready(Err(End::UpstreamSilent(ORPHAN_PATIENCE))),
                Due::Response(after) => Poll::Ready(Err(End::UpstreamSilent(after))),
                Due::Rest(after) => Poll::Ready(self.look_at_pace(after)),
                Due::Idle(after) => Poll::Ready(Err(End::Idle(after))),
            };
        }
        let start = Instant::from_std(self.shared.ledger.started());
        self.alarm.poll(due, start, cx).map(Ok)
    }

    fn next_due(&mut self) -> Option<(Moment, Due)> {
        let slow = self.slow_due();
        let usual = sooner(self.silence_due(), self.idle_due());
        let usual = sooner(usual, slow);
        // What few sessions have, and seldom.
        let rare = self.held.is_some() || self.readback.is_some() || self.orphan.is_some();
        if !rare && self.room.is_quiet() {
            return usual;
        }
        let room = self.room_due().map(|due| (due, Due::Room));
        let orphan = self.orphan.as_ref().map(|(until, _)| (*until, Due::Orphan));
        sooner(sooner(usual, room), sooner(orphan, self.glance_due()))
    }

    /// When to look again at what is held, or looked for in the log.
    fn glance_due(&self) -> Option<(Moment, Due)> {
        let glance = self.unread_while_held();
        let glance = glance.then(|| self.now.after(UNREAD_CLIENT_GLANCE));
        let held = self.held.as_ref();
        let held = held
            .filter(|_| self.blocked == Some(Blocked::Held) && self.to_upstream.is_empty())
            .map(|held| held.deadline);
        let reading = self
            .readback
            .as_ref()
            .and_then(|reading| reading.deadline());
        let deadline = held.into_iter().chain(reading).min()?;
        Some((deadline.min(glance.unwrap_or(deadline)), Due::AnotherLook))
    }

    /// Until when the broker may be silent.
    fn silence_due(&self) -> Option<(Moment, Due)> {
        let front = self.pipeline.front();
        let timeout = front.and_then(|owed| owed.timeout);
        let since = match front.and_then(|owed| owed.sent) {
            // A client that sends no more may be gone, and cannot give up.
            _ if self.upstream_shut && self.to_client.is_empty() => self.taken.max(self.heard),
            _ if timeout.is_none() => return None,
            // Requests are dealt with in turn.
            Some(sent) => sent.max(self.heard),
            None if !self.to_upstream.is_empty() => self.taken.max(self.heard),
            None => return None,
        };
        let timeouts = &self.config.timeouts;
        let patience = match front.map(|owed| &owed.reply) {
            Some(Reply::Login) => timeouts.sasl,
            _ => timeout.unwrap_or_default() + timeouts.upstream_response,
        };
        Some((since.after(patience), Due::Response(patience)))
    }
}

fn now(ledger: &Ledger) -> Moment {
    Moment::of_age(ledger.age(Instant::now().into_std()))
}

/// What a session waits for.
enum Due {
    /// A held request has waited long enough, or its client may be gone.
    AnotherLook,
    /// An orphan has.
    Orphan,
    /// A broker has been silent for this long.
    Response(Duration),
    /// The rest of a request has been awaited for this long.
    Rest(Duration),
    /// Nobody has said anything for this long.
    Idle(Duration),
    /// It is time to look at what is kept in memory.
    Room,
}

fn sooner(one: Option<(Moment, Due)>, other: Option<(Moment, Due)>) -> Option<(Moment, Due)> {
    match (&one, &other) {
        (Some((a, _)), Some((b, _))) if b < a => other,
        (None, _) => other,
        _ => one,
    }
}

fn poll_read(
    cx: &mut Context<'_>,
    socket: &mut Stream,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    Pin::new(socket)
        .poll_read(cx, &mut buffer)
        .map_ok(|()| buffer.filled().len())
}

/// What is left of `bytes` after `taken`, without a copy where all is.
fn keep_rest(mut bytes: Vec<u8>, taken: usize) -> Vec<u8> {
    if taken == bytes.len() {
        return Vec::new();
    }
    bytes.drain(..taken);
    bytes
}

/// Keeps `rest`, and no buffer where there is none.
fn keep_in(kept: &mut Vec<u8>, rest: &[u8]) {
    if rest.is_empty() {
        *kept = Vec::new();
    } else {
        kept.extend_from_slice(rest);
    }
}
