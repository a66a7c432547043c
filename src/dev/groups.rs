//! Consumer groups of the classic protocol: who is in, who has which
//! partitions, and how far they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{
    JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::oneshot;

use super::code;
use super::topics::random;

/// Groups, and members of one group.
const GROUPS_MAX: usize = 1000;
const MEMBERS_MAX: usize = 100;
/// Kafka's `group.max.session.timeout.ms`.
const TIMEOUT_MAX: Duration = Duration::from_secs(1800);
/// Bytes of what a commit may say besides its offset.
const METADATA_MAX: usize = 4096;

/// Every group.
#[derive(Default)]
pub(super) struct Groups(Mutex<HashMap<String, Group>>);

#[derive(Default)]
struct Group {
    phase: Phase,
    generation: i32,
    protocol_type: StrBytes,
    protocol: StrBytes,
    leader: StrBytes,
    members: BTreeMap<StrBytes, Member>,
    /// When joining, or waiting for the leader, is over.
    deadline: Option<Instant>,
    offsets: BTreeMap<(String, i32), Committed>,
}

/// ```text
/// Empty ── join ──▶ Joining ── all are there ──▶ Syncing ── leader's plan ──▶ Stable
///   ▲                  ▲ ▲                          │                           │
///   └─ nobody left ────┘ └──────── join, leave, silence ─────────────────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    Empty,
    Joining,
    Syncing,
    Stable,
}

struct Member {
    instance: Option<StrBytes>,
    session: Duration,
    rebalance: Duration,
    protocols: Vec<(StrBytes, Bytes)>,
    assignment: Bytes,
    seen: Instant,
    joins: Option<oneshot::Sender<JoinGroupResponse>>,
    syncs: Option<oneshot::Sender<SyncGroupResponse>>,
}

/// What a group has read of a partition.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: StrBytes,
}

/// One line of a commit.
pub(super) struct Progress<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    /// Whether there is such a partition.
    pub(super) exists: bool,
    pub(super) committed: Committed,
}

/// How a request names a member.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) member: &'a StrBytes,
    pub(super) instance: Option<&'a StrBytes>,
    pub(super) generation: i32,
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a group: answered when every member has, or the time is over.
    pub(super) async fn join(
        &self,
        request: JoinGroupRequest,
        client_id: &str,
    ) -> JoinGroupResponse {
        let member = request.member_id.clone();
        let refuse = |error_code| {
            JoinGroupResponse::default()
                .with_error_code(error_code)
                .with_generation_id(-1)
                .with_member_id(member.clone())
        };
        let answer = {
            let mut groups = self.lock();
            let name = request.group_id.as_str();
            if name.is_empty() {
                return refuse(code::INVALID_GROUP_ID);
            }
            if groups.len() >= GROUPS_MAX && !groups.contains_key(name) {
                return refuse(code::GROUP_MAX_SIZE_REACHED);
            }
            let group = groups.entry(name.to_owned()).or_default();
            group.join(request, client_id)
        };
        match answer {
            Ok(answer) => answer
                .await
                .unwrap_or_else(|_| refuse(code::UNKNOWN_MEMBER_ID)),
            Err(error) => refuse(error),
        }
    }

    /// Waits for the partitions that the leader gives to a member.
    pub(super) async fn sync(&self, request: SyncGroupRequest) -> SyncGroupResponse {
        let refuse = |error_code| SyncGroupResponse::default().with_error_code(error_code);
        let answer = match self.lock().get_mut(request.group_id.as_str()) {
            Some(group) => group.sync(request),
            None => Err(code::UNKNOWN_MEMBER_ID),
        };
        match answer {
            Ok(answer) => answer
                .await
                .unwrap_or_else(|_| refuse(code::UNKNOWN_MEMBER_ID)),
            Err(error) => refuse(error),
        }
    }

    /// 0, or why the member has to join again.
    pub(super) fn heartbeat(&self, group: &str, who: Who<'_>) -> i16 {
        let mut groups = self.lock();
        let Some(group) = groups.get_mut(group) else {
            return code::UNKNOWN_MEMBER_ID;
        };
        match group.check(who) {
            Ok(()) if group.phase == Phase::Joining => code::REBALANCE_IN_PROGRESS,
            Ok(()) => 0,
            Err(error) => error,
        }
    }

    /// Takes a member out.
    pub(super) fn leave(&self, group: &str, member: &StrBytes, instance: Option<&StrBytes>) -> i16 {
        let mut groups = self.lock();
        let Some(group) = groups.get_mut(group) else {
            return code::UNKNOWN_MEMBER_ID;
        };
        let of_instance = instance.and_then(|instance| group.of_instance(instance));
        let member = of_instance.unwrap_or_else(|| member.clone());
        if group.members.remove(&member).is_none() {
            return code::UNKNOWN_MEMBER_ID;
        }
        group.rebalance(Instant::now());
        0
    }

    /// Keeps how far a group is; gives an error code for each partition.
    pub(super) fn commit(&self, group: &str, who: Who<'_>, offsets: &[Progress<'_>]) -> Vec<i16> {
        let mut groups = self.lock();
        let full = groups.len() >= GROUPS_MAX && !groups.contains_key(group);
        let refused = match groups.get_mut(group) {
            _ if group.is_empty() => Some(code::INVALID_GROUP_ID),
            _ if full => Some(code::GROUP_MAX_SIZE_REACHED),
            // A consumer that chose its partitions itself, or a tool.
            Some(group) if who.generation < 0 && group.phase == Phase::Empty => None,
            None if who.generation < 0 => None,
            None => Some(code::ILLEGAL_GENERATION),
            Some(group) if group.phase == Phase::Syncing => Some(code::REBALANCE_IN_PROGRESS),
            Some(group) => group.check(who).err(),
        };
        if let Some(error) = refused {
            return vec![error; offsets.len()];
        }
        let group = groups.entry(group.to_owned()).or_default();
        let keep = |progress: &Progress<'_>| {
            if progress.committed.metadata.len() > METADATA_MAX {
                return code::OFFSET_METADATA_TOO_LARGE;
            }
            if !progress.exists {
                return code::UNKNOWN_TOPIC_OR_PARTITION;
            }
            let key = (progress.topic.to_owned(), progress.partition);
            group.offsets.insert(key, progress.committed.clone());
            0
        };
        offsets.iter().map(keep).collect()
    }

    /// How far a group is, everywhere.
    pub(super) fn committed(&self, group: &str) -> BTreeMap<(String, i32), Committed> {
        let groups = self.lock();
        let group = groups.get(group);
        group.map_or_else(BTreeMap::new, |group| group.offsets.clone())
    }

    /// Forgets what groups have read of a topic.
    pub(super) fn forget_topic(&self, topic: &str) {
        for group in self.lock().values_mut() {
            group.offsets.retain(|(name, _), _| name != topic);
        }
    }

    /// Takes out who has been silent for too long, and goes on without who has
    /// not joined in time.
    pub(super) fn tick(&self, now: Instant) {
        for group in self.lock().values_mut() {
            group.tick(now);
        }
    }
}

/// A copy of its own: a group outlives the request that it would keep.
fn owned(text: &StrBytes) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

impl Group {
    fn join(
        &mut self,
        request: JoinGroupRequest,
        client_id: &str,
    ) -> Result<oneshot::Receiver<JoinGroupResponse>, i16> {
        let now = Instant::now();
        let protocols: Vec<_> = request
            .protocols
            .into_iter()
            .map(|protocol| (protocol.name, protocol.metadata))
            .collect();
        if !self.shares(&request.protocol_type, &protocols) {
            return Err(code::INCONSISTENT_GROUP_PROTOCOL);
        }
        let session = millis(request.session_timeout_ms);
        if session > TIMEOUT_MAX {
            return Err(code::INVALID_SESSION_TIMEOUT);
        }
        let id = self.identify(
            request.member_id,
            request.group_instance_id.as_ref(),
            client_id,
        )?;
        let (joins, answer) = oneshot::channel();
        let known = self.members.get(&id);
        let unchanged = known.is_some_and(|member| member.protocols == protocols);
        let settled = match self.phase {
            Phase::Stable => id != self.leader,
            Phase::Syncing => true,
            Phase::Empty | Phase::Joining => false,
        };
        self.protocol_type = owned(&request.protocol_type);
        let member = self.members.entry(id.clone()).or_insert_with(|| Member {
            instance: None,
            session,
            rebalance: session,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            seen: now,
            joins: None,
            syncs: None,
        });
        member.instance = request.group_instance_id;
        member.session = session;
        // Version 0 has no rebalance timeout.
        let rebalance = millis(request.rebalance_timeout_ms);
        member.rebalance = rebalance.clamp(session, TIMEOUT_MAX);
        member.protocols = protocols;
        member.seen = now;
        member.joins = Some(joins);
        if unchanged && settled {
            // A member that has missed the answer.
            self.answer_join(&id);
            return Ok(answer);
        }
        self.rebalance(now);
        Ok(answer)
    }

    /// Whether the group can go on with one more member of these protocols.
    fn shares(&self, protocol_type: &StrBytes, protocols: &[(StrBytes, Bytes)]) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        let offered = |name: &StrBytes| protocols.iter().any(|(offered, _)| offered == name);
        self.members.is_empty()
            || *protocol_type == self.protocol_type && self.common().any(offered)
    }

    /// The protocols that every member has, in the order of one of them.
    fn common(&self) -> impl Iterator<Item = &StrBytes> {
        let chooser = self.members.get(&self.leader);
        let chooser = chooser.or_else(|| self.members.values().next());
        let names = chooser.into_iter().flat_map(|member| &member.protocols);
        names.map(|(name, _)| name).filter(|name| {
            let has = |member: &Member| member.protocols.iter().any(|(has, _)| has == *name);
            self.members.values().all(has)
        })
    }

    /// The id of who joins: a new one, or that of a known member.
    fn identify(
        &mut self,
        id: StrBytes,
        instance: Option<&StrBytes>,
        client_id: &str,
    ) -> Result<StrBytes, i16> {
        let same = instance.and_then(|instance| self.of_instance(instance));
        match same {
            Some(same) if id == same => return Ok(id),
            Some(_) if !id.is_empty() => return Err(code::FENCED_INSTANCE_ID),
            // The process was started again, and takes the place of its past.
            Some(same) => drop(self.members.remove(&same)),
            None if self.members.contains_key(&id) => return Ok(id),
            None if !id.is_empty() => return Err(code::UNKNOWN_MEMBER_ID),
            None => {}
        }
        if self.members.len() >= MEMBERS_MAX {
            return Err(code::GROUP_MAX_SIZE_REACHED);
        }
        let name = if client_id.is_empty() {
            "member"
        } else {
            client_id
        };
        Ok(StrBytes::from_string(format!("{name}-{:016x}", random())))
    }

    fn of_instance(&self, instance: &StrBytes) -> Option<StrBytes> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.instance.as_ref() == Some(instance));
        found.map(|(id, _)| id.clone())
    }

    /// Waits for all members to join again, if there are any.
    fn rebalance(&mut self, now: Instant) {
        if self.phase != Phase::Joining {
            self.phase = Phase::Joining;
            let longest = self.members.values().map(|member| member.rebalance).max();
            self.deadline = longest.map(|longest| now + longest);
            for member in self.members.values_mut() {
                let again = code::REBALANCE_IN_PROGRESS;
                if let Some(syncs) = member.syncs.take() {
                    let _ = syncs.send(SyncGroupResponse::default().with_error_code(again));
                }
            }
        }
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.deadline = None;
        } else if self.members.values().all(|member| member.joins.is_some()) {
            self.begin(now);
        }
    }

    /// Begins a generation of those who are there.
    fn begin(&mut self, now: Instant) {
        self.generation += 1;
        self.phase = Phase::Syncing;
        let longest = self.members.values().map(|member| member.rebalance).max();
        self.deadline = longest.map(|longest| now + longest);
        if !self.members.contains_key(&self.leader) {
            self.leader = self.members.keys().next().cloned().unwrap_or_default();
        }
        let chosen = self.common().next().map(owned);
        self.protocol = chosen.unwrap_or_default();
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = Bytes::new();
                member.seen = now;
            }
            self.answer_join(&id);
        }
    }

    fn answer_join(&mut self, id: &StrBytes) {
        let mut response = JoinGroupResponse::default()
            .with_generation_id(self.generation)
            .with_protocol_type(Some(self.protocol_type.clone()))
            .with_protocol_name(Some(self.protocol.clone()))
            .with_leader(self.leader.clone())
            .with_member_id(id.clone());
        if *id == self.leader {
            let members = self.members.iter().map(|(id, member)| {
                let mut protocols = member.protocols.iter();
                let chosen = protocols.find(|(name, _)| *name == self.protocol);
                JoinGroupResponseMember::default()
                    .with_member_id(id.clone())
                    .with_group_instance_id(member.instance.clone())
                    .with_metadata(chosen.map_or_else(Bytes::new, |(_, bytes)| bytes.clone()))
            });
            response.members = members.collect();
        }
        let member = self.members.get_mut(id);
        if let Some(joins) = member.and_then(|member| member.joins.take()) {
            let _ = joins.send(response);
        }
    }

    fn sync(
        &mut self,
        request: SyncGroupRequest,
    ) -> Result<oneshot::Receiver<SyncGroupResponse>, i16> {
        self.check(Who {
            member: &request.member_id,
            instance: request.group_instance_id.as_ref(),
            generation: request.generation_id,
        })?;
        if self.phase == Phase::Joining {
            return Err(code::REBALANCE_IN_PROGRESS);
        }
        let (syncs, answer) = oneshot::channel();
        if let Some(member) = self.members.get_mut(&request.member_id) {
            member.syncs = Some(syncs);
        }
        if self.phase == Phase::Syncing && request.member_id == self.leader {
            for assignment in request.assignments {
                if let Some(member) = self.members.get_mut(&assignment.member_id) {
                    member.assignment = assignment.assignment;
                }
            }
            self.phase = Phase::Stable;
            self.deadline = None;
        }
        if self.phase == Phase::Stable {
            self.answer_syncs();
        }
        Ok(answer)
    }

    fn answer_syncs(&mut self) {
        for member in self.members.values_mut() {
            if let Some(syncs) = member.syncs.take() {
                let response = SyncGroupResponse::default()
                    .with_protocol_type(Some(self.protocol_type.clone()))
                    .with_protocol_name(Some(self.protocol.clone()))
                    .with_assignment(member.assignment.clone());
                let _ = syncs.send(response);
            }
        }
    }

    /// Whether this is a member of this generation, which is then alive.
    fn check(&mut self, who: Who<'_>) -> Result<(), i16> {
        let of_instance = who.instance.and_then(|instance| self.of_instance(instance));
        if of_instance.is_some_and(|id| id != *who.member) {
            return Err(code::FENCED_INSTANCE_ID);
        }
        let Some(member) = self.members.get_mut(who.member) else {
            return Err(code::UNKNOWN_MEMBER_ID);
        };
        if who.generation != self.generation {
            return Err(code::ILLEGAL_GENERATION);
        }
        member.seen = Instant::now();
        Ok(())
    }

    fn tick(&mut self, now: Instant) {
        let before = self.members.len();
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        let (phase, leader) = (self.phase, self.leader.clone());
        self.members.retain(|id, member| {
            let waits = member.joins.is_some() || member.syncs.is_some();
            let silent = now.saturating_duration_since(member.seen) > member.session;
            let missing = match phase {
                Phase::Joining => member.joins.is_none(),
                Phase::Syncing => *id == leader && member.syncs.is_none(),
                Phase::Empty | Phase::Stable => false,
            };
            (waits || !silent) && !(late && missing)
        });
        if late || self.members.len() != before {
            self.rebalance(now);
        }
    }
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
