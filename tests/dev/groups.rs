//! Consumer groups with more than one member.

use std::time::Duration;

use hapax::dev::RETENTION_BYTES;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::support::await_until;
use crate::support::raw::Client;
use crate::upstream::{start, text};

const UNKNOWN_MEMBER: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;
const REBALANCE: i16 = 27;
const FENCED: i16 = 82;

fn group() -> GroupId {
    GroupId(text("readers"))
}

/// A member with a connection of its own.
struct Member {
    client: Client,
    id: StrBytes,
    instance: Option<StrBytes>,
    generation: i32,
    session_ms: i32,
}

impl Member {
    fn new(address: &str) -> Self {
        Self {
            client: Client::connect(address).unwrap(),
            id: StrBytes::default(),
            instance: None,
            generation: -1,
            session_ms: 60_000,
        }
    }

    fn ask_to_join(&mut self) -> i32 {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata("topics".into());
        let request = JoinGroupRequest::default()
            .with_group_id(group())
            .with_session_timeout_ms(self.session_ms)
            .with_rebalance_timeout_ms(60_000)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        self.client.send(9, &request).unwrap()
    }

    fn joined(&mut self, correlation: i32) -> JoinGroupResponse {
        let joined = self.client.receive::<JoinGroupRequest>(9, correlation);
        let joined = joined.unwrap();
        assert_eq!(joined.error_code, 0);
        self.id = joined.member_id.clone();
        self.generation = joined.generation_id;
        joined
    }

    fn join(&mut self) -> JoinGroupResponse {
        let correlation = self.ask_to_join();
        self.joined(correlation)
    }

    fn ask_to_sync(&mut self, plan: &[(&StrBytes, &'static str)]) -> i32 {
        let plan = plan.iter().map(|(id, partitions)| {
            SyncGroupRequestAssignment::default()
                .with_member_id((*id).clone())
                .with_assignment((*partitions).into())
        });
        let request = SyncGroupRequest::default()
            .with_group_id(group())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
            .with_assignments(plan.collect());
        self.client.send(5, &request).unwrap()
    }

    /// What the leader's plan gives it.
    fn synced(&mut self, correlation: i32) -> Vec<u8> {
        let synced = self.client.receive::<SyncGroupRequest>(5, correlation);
        let synced = synced.unwrap();
        assert_eq!(synced.error_code, 0);
        synced.assignment.to_vec()
    }

    fn heartbeat(&mut self) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(group())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone());
        self.client.call(4, &request).unwrap().error_code
    }

    fn leave(&mut self) -> i16 {
        let member = MemberIdentity::default().with_member_id(self.id.clone());
        let request = LeaveGroupRequest::default()
            .with_group_id(group())
            .with_members(vec![member]);
        self.client.call(5, &request).unwrap().members[0].error_code
    }
}

/// Two members that have joined the same generation, the leader first.
fn pair(address: &str) -> [Member; 2] {
    let (mut first, mut second) = (Member::new(address), Member::new(address));
    first.join();
    let asked = second.ask_to_join();
    await_until("the first to be told", Duration::from_secs(20), || {
        first.heartbeat() == REBALANCE
    });
    let joined = first.join();
    assert_eq!(joined.leader, first.id, "the first stays the leader");
    assert_eq!(joined.members.len(), 2, "the leader is told who there is");
    let joined = second.joined(asked);
    assert_eq!((joined.leader, joined.members.len()), (first.id.clone(), 0));
    assert_eq!(first.generation, second.generation);
    [first, second]
}

#[test]
fn each_member_gets_its_part_of_the_leaders_plan() {
    let (address, _) = start(RETENTION_BYTES);
    let [mut leader, mut other] = pair(&address);
    // The other waits until there is a plan.
    let waits = other.ask_to_sync(&[]);
    let (leader_id, other_id) = (leader.id.clone(), other.id.clone());
    let asked = leader.ask_to_sync(&[(&leader_id, "0 1"), (&other_id, "2 3")]);
    assert_eq!(leader.synced(asked), b"0 1");
    assert_eq!(other.synced(waits), b"2 3");
    assert_eq!([leader.heartbeat(), other.heartbeat()], [0, 0]);
}

#[test]
fn who_leaves_makes_the_others_join_again() {
    let (address, _) = start(RETENTION_BYTES);
    let [mut leader, mut other] = pair(&address);
    assert_eq!(leader.leave(), 0);
    assert_eq!(leader.heartbeat(), UNKNOWN_MEMBER);
    assert_eq!(other.heartbeat(), REBALANCE);
    let old = other.generation;
    let joined = other.join();
    assert_eq!(joined.leader, other.id, "the one who is left leads");
    assert_eq!(other.generation, old + 1);
    other.generation = old;
    assert_eq!(other.heartbeat(), ILLEGAL_GENERATION);
}

#[test]
fn who_is_silent_is_taken_out() {
    let (address, _) = start(RETENTION_BYTES);
    let mut silent = Member::new(&address);
    silent.session_ms = 100;
    silent.join();
    let mut other = Member::new(&address);
    // The silent one never joins again: without it the group goes on.
    let joined = other.join();
    assert_eq!(joined.members.len(), 1);
    assert_eq!(silent.heartbeat(), UNKNOWN_MEMBER);
}

#[test]
fn a_member_of_a_name_takes_the_place_of_its_past() {
    let (address, _) = start(RETENTION_BYTES);
    let mut past = Member::new(&address);
    past.instance = Some(text("pod-0"));
    past.join();
    let mut present = Member::new(&address);
    present.instance = Some(text("pod-0"));
    let joined = present.join();
    assert_eq!(joined.members.len(), 1);
    assert_eq!(past.heartbeat(), FENCED);
    assert_eq!(present.heartbeat(), 0);
}
