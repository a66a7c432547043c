//! The slot table: broker node ids and the local ports that lead to them.
//!
//! A node's slot is its id modulo the range, so that a restarted hapax and
//! every replica of a gateway agree; a collision takes the next free slot and
//! keeps it, or is refused where replicas have to agree (`listen.slotCollisions`).
//! Any node id is allowed: managed clusters number theirs without end.

use crate::config::{AddressMap, Collisions, HostPort};
use crate::ids::NodeId;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a connection to one of our ports goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The broker, where the port leads to one.
    pub node: Option<NodeId>,
    /// Addresses to try in turn.
    pub addresses: Vec<HostPort>,
    /// The host that the broker advertises, which its certificate is for
    /// wherever it is reached; without it each address has its own.
    pub advertised_host: Option<String>,
    /// Brokers that would do as well, with the host that each advertises; they
    /// are tried last.
    pub others: Vec<(HostPort, String)>,
}

impl Target {
    /// The host that the certificate of whoever is at this address is for.
    #[must_use]
    pub fn host_at<'t>(&'t self, address: &'t HostPort) -> &'t str {
        let other = || self.others.iter().find(|(other, _)| other == address);
        let host = self.advertised_host.as_ref();
        host.or_else(|| other().map(|(_, host)| host))
            .unwrap_or(&address.host)
    }
}

/// What learning an address came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// This port of ours leads to the broker.
    Port(u16),
    /// No port is left; `true` the first time that this broker finds none.
    Exhausted(bool),
    /// Nor is there room to remember it.
    Forgotten,
}

/// A broker as an operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broker {
    /// Its node id.
    pub node: NodeId,
    /// What it advertises.
    pub address: HostPort,
    /// Where hapax connects for it.
    pub reached_at: HostPort,
    /// The port of ours that leads to it, if one was left.
    pub port: Option<u16>,
    /// Whether the cluster no longer lists it.
    pub vanished: bool,
}

/// The slot table.
pub struct Brokers {
    bootstrap: Vec<HostPort>,
    reachable: AddressMap,
    first_port: u16,
    grace: Duration,
    collisions: Collisions,
    fixed: HashMap<NodeId, usize>,
    state: Mutex<State>,
}

struct State {
    /// By slot; `slots.len()` is the size of the port range.
    slots: Vec<Option<Slot>>,
    /// Brokers that found no slot, so that each is told of once: at most
    /// [`HOMELESS_MAX`].
    homeless: HashMap<NodeId, HostPort>,
    /// Which bootstrap server is tried first: the one that was reached last.
    bootstrap_first: usize,
    lines: Lines,
}

/// Log lines about brokers: servers that contradict each other would cause one
/// with every answer.
#[derive(Default)]
struct Lines {
    /// When the time began in which some may be written, and how many were.
    since: Option<(Instant, u32)>,
    /// How many were left out before that.
    left_out: u64,
}

/// How many lines are written in [`LINES_EVERY`]: more than a cluster has
/// brokers that move at once.
const LINES_MAX: u32 = 200;
const LINES_EVERY: Duration = Duration::from_secs(60);
/// Brokers that stand in for the bootstrap servers: enough to find one that is
/// there.
const OTHERS_MAX: usize = 8;

/// Brokers without a port that are remembered; ids may change with every answer
/// of an upstream gone wrong.
const HOMELESS_MAX: usize = 1000;

impl Lines {
    /// Whether a line may be written now: then how many were left out.
    fn may_write(&mut self, now: Instant) -> Option<u64> {
        let (_, written) = match &mut self.since {
            Some(since) if now.saturating_duration_since(since.0) < LINES_EVERY => since,
            since => since.insert((now, 0)),
        };
        if *written >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        *written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// As a field that is there only when something was left out.
fn several(left_out: u64) -> Option<u64> {
    (left_out > 0).then_some(left_out)
}

struct Slot {
    node: NodeId,
    /// `None` while the slot is only kept for the node, which the cluster has
    /// not listed yet.
    address: Option<HostPort>,
    vanished: Option<Instant>,
}

impl Brokers {
    /// A table for the ports of `range`, in which `fixed` nodes have set ports.
    #[must_use]
    pub fn new(
        bootstrap: Vec<HostPort>,
        reachable: AddressMap,
        range: &RangeInclusive<u16>,
        fixed: &BTreeMap<i32, u16>,
        (collisions, grace): (Collisions, Duration),
    ) -> Self {
        let first_port = *range.start();
        let fixed = fixed
            .iter()
            .filter_map(|(node, port)| {
                let slot = usize::from(port.checked_sub(first_port)?);
                Some((NodeId::from_wire(*node)?, slot))
            })
            .collect();
        Self {
            bootstrap,
            reachable,
            first_port,
            grace,
            collisions,
            fixed,
            state: Mutex::new(State {
                slots: range.clone().map(|_| None).collect(),
                homeless: HashMap::new(),
                bootstrap_first: 0,
                lines: Lines::default(),
            }),
        }
    }

    /// The cluster says that a broker is at this address.
    pub fn learn(&self, node: NodeId, host: &str, port: u16, now: Instant) -> Learned {
        let mut state = self.state();
        let Some(at) = self.slot_of(&state, node, now) else {
            if state.homeless.len() >= HOMELESS_MAX && !state.homeless.contains_key(&node) {
                return Learned::Forgotten;
            }
            let before = state.homeless.insert(node, address(host, port));
            return Learned::Exhausted(before.is_none());
        };
        state.homeless.remove(&node);
        let State { slots, lines, .. } = &mut *state;
        match &mut slots[at] {
            Some(Slot {
                node: owner,
                address: Some(known),
                vanished,
            }) if *owner == node => {
                *vanished = None;
                if known.host != host || known.port != port {
                    if let Some(left_out) = lines.may_write(now) {
                        let left_out = several(left_out);
                        tracing::info!(%node, from = %known, host, port, left_out, "broker moved");
                    }
                    *known = address(host, port);
                }
            }
            slot => {
                let local = self.port(at);
                if let Some(left_out) = lines.may_write(now) {
                    let left_out = several(left_out);
                    tracing::info!(%node, host, port, local, left_out, "broker has a port");
                }
                *slot = Some(Slot {
                    node,
                    address: Some(address(host, port)),
                    vanished: None,
                });
            }
        }
        Learned::Port(self.port(at))
    }

    /// The port of each node that has one, be it only kept for it.
    #[must_use]
    pub fn ports(&self) -> Vec<(NodeId, u16)> {
        let state = self.state();
        let slots = state.slots.iter().enumerate();
        let taken = slots.filter_map(|(at, slot)| Some((slot.as_ref()?.node, self.port(at))));
        taken.collect()
    }

    /// Keeps the ports that nodes had before a restart, as if they had
    /// vanished just now: a node that is listed again finds its own. Until
    /// then such a port leads to the bootstrap servers, as any without a
    /// broker does. What is taken or fixed by now stays as it is.
    pub fn keep(&self, ports: &[(NodeId, u16)], now: Instant) -> usize {
        if self.collisions == Collisions::Refuse {
            // There a port follows from what the cluster lists, and nothing else.
            return 0;
        }
        let mut state = self.state();
        let mut kept = 0;
        for (node, port) in ports {
            let Some(at) = port.checked_sub(self.first_port).map(usize::from) else {
                continue;
            };
            let fixed = self.fixed.contains_key(node) || self.fixed.values().any(|f| *f == at);
            let housed = state.slots.iter().flatten().any(|slot| slot.node == *node);
            match state.slots.get_mut(at) {
                Some(free @ None) if !fixed && !housed => {
                    *free = Some(Slot {
                        node: *node,
                        address: None,
                        vanished: Some(now),
                    });
                    kept += 1;
                }
                _ => {}
            }
        }
        kept
    }

    /// Gives up the ports that are only kept: this is another cluster.
    pub fn keep_none(&self) {
        for slot in &mut self.state().slots {
            if slot.as_ref().is_some_and(|slot| slot.address.is_none()) {
                *slot = None;
            }
        }
    }

    /// The cluster listed all of its brokers: the others have vanished.
    pub fn listed(&self, nodes: &[NodeId], now: Instant) {
        let mut state = self.state();
        state.homeless.retain(|node, _| nodes.contains(node));
        let State { slots, lines, .. } = &mut *state;
        for slot in slots.iter_mut().flatten() {
            if nodes.contains(&slot.node) {
                slot.vanished = None;
            } else if slot.vanished.is_none() && slot.address.is_some() {
                if let Some(left_out) = lines.may_write(now) {
                    let left_out = several(left_out);
                    tracing::info!(node = %slot.node, left_out, "broker is no longer listed");
                }
                slot.vanished = Some(now);
            }
        }
    }

    /// Where a connection to the bootstrap port goes: where no bootstrap server
    /// is left, because brokers were replaced, those that the cluster lists do
    /// as well.
    #[must_use]
    pub fn bootstrap(&self) -> Target {
        let state = self.state();
        let addresses = self.bootstrap.iter().cycle().skip(state.bootstrap_first);
        let listed = state.slots.iter().flatten().filter_map(|slot| {
            let address = slot.address.as_ref().filter(|_| slot.vanished.is_none())?;
            Some((self.reached_at(address), address.host.clone()))
        });
        let others = listed.filter(|(reached_at, _)| !self.bootstrap.contains(reached_at));
        Target {
            node: None,
            addresses: addresses.take(self.bootstrap.len()).cloned().collect(),
            advertised_host: None,
            others: others.take(OTHERS_MAX).collect(),
        }
    }

    /// A bootstrap server was reached: it is the first one that is tried next.
    pub fn bootstrap_reached(&self, server: &HostPort) {
        let Some(at) = self.bootstrap.iter().position(|own| own == server) else {
            return;
        };
        self.state().bootstrap_first = at;
    }

    /// Where a connection to a broker port goes; to the bootstrap servers
    /// while no broker has it.
    #[must_use]
    pub fn target(&self, port: u16) -> Target {
        let slot = port.checked_sub(self.first_port).map(usize::from);
        let known = slot.and_then(|at| {
            let state = self.state();
            let slot = state.slots.get(at)?.as_ref()?;
            Some((slot.node, slot.address.clone()?))
        });
        let Some((node, address)) = known else {
            return self.bootstrap();
        };
        Target {
            node: Some(node),
            addresses: vec![self.reached_at(&address)],
            advertised_host: Some(address.host),
            others: Vec::new(),
        }
    }

    /// Every broker, those with a port first.
    #[must_use]
    pub fn all(&self) -> Vec<Broker> {
        let state = self.state();
        let housed = state.slots.iter().enumerate().filter_map(|(at, slot)| {
            let Slot {
                node,
                address,
                vanished,
            } = slot.as_ref()?;
            let address = address.as_ref()?;
            Some(self.broker(*node, address, Some(self.port(at)), vanished.is_some()))
        });
        let homeless = state
            .homeless
            .iter()
            .map(|(node, address)| self.broker(*node, address, None, false));
        housed.chain(homeless).collect()
    }

    fn broker(
        &self,
        node: NodeId,
        address: &HostPort,
        port: Option<u16>,
        vanished: bool,
    ) -> Broker {
        Broker {
            node,
            reached_at: self.reached_at(address),
            address: address.clone(),
            port,
            vanished,
        }
    }

    fn reached_at(&self, address: &HostPort) -> HostPort {
        let (host, port) = self.reachable.reach(&address.host, address.port);
        HostPort { host, port }
    }

    /// The slot that a node has, or may take.
    fn slot_of(&self, state: &State, node: NodeId, now: Instant) -> Option<usize> {
        if let Some(fixed) = self.fixed.get(&node) {
            return Some(*fixed);
        }
        let size = state.slots.len();
        let home = home(node, size);
        if self.collisions == Collisions::Refuse {
            return self.may_have(state, node, home).then_some(home);
        }
        let mut free = None;
        let mut abandoned = None;
        for at in (home..size).chain(0..home) {
            if self.fixed.values().any(|fixed| *fixed == at) {
                continue;
            }
            match &state.slots[at] {
                Some(slot) if slot.node == node => return Some(at),
                Some(slot) => {
                    let gone = slot
                        .vanished
                        .is_some_and(|since| now.duration_since(since) >= self.grace);
                    if gone {
                        abandoned = abandoned.or(Some(at));
                    }
                }
                None => free = free.or(Some(at)),
            }
        }
        free.or(abandoned)
    }

    /// Whether a slot is the node's and nobody else's: the lowest id that the
    /// cluster lists has it. Neither time nor the order of answers counts,
    /// since replicas see those differently.
    fn may_have(&self, state: &State, node: NodeId, at: usize) -> bool {
        let fixed = self.fixed.values().any(|fixed| *fixed == at);
        let owner = state.slots[at].as_ref();
        let owner = owner.filter(|owner| owner.vanished.is_none());
        !fixed && owner.is_none_or(|owner| node.to_wire() <= owner.node.to_wire())
    }

    fn port(&self, slot: usize) -> u16 {
        let slot = u16::try_from(slot).expect("a slot is a place in a range of ports");
        self.first_port + slot
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(host: &str, port: u16) -> HostPort {
    HostPort {
        host: host.to_owned(),
        port,
    }
}

/// The slot that a node has unless another one took it first.
#[must_use]
pub fn home(node: NodeId, slots: usize) -> usize {
    let id = usize::try_from(node.to_wire()).expect("no node id is negative");
    id % slots.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(range: RangeInclusive<u16>, fixed: &[(i32, u16)]) -> Brokers {
        let bootstrap = vec![address("boot-a", 9092), address("boot-b", 9092)];
        let fixed = fixed.iter().copied().collect();
        Brokers::new(
            bootstrap,
            AddressMap::default(),
            &range,
            &fixed,
            (Collisions::Move, Duration::from_secs(600)),
        )
    }

    fn replica(range: RangeInclusive<u16>, fixed: &[(i32, u16)]) -> Brokers {
        Brokers {
            collisions: Collisions::Refuse,
            ..brokers(range, fixed)
        }
    }

    fn node(id: i32) -> NodeId {
        NodeId::from_wire(id).unwrap()
    }

    fn learn(b: &Brokers, id: i32, now: Instant) -> Learned {
        b.learn(node(id), &format!("kafka-{id}"), 9092, now)
    }

    #[test]
    fn servers_that_contradict_each_other_do_not_fill_the_log() {
        let mut lines = Lines::default();
        let start = Instant::now();
        let written = (0..30_000).filter_map(|n| lines.may_write(start + LINES_EVERY * n / 10_000));
        let written: Vec<u64> = written.collect();
        assert_eq!(written.len(), 3 * LINES_MAX as usize);
        assert_eq!(written[LINES_MAX as usize], 10_000 - u64::from(LINES_MAX));
        assert_eq!(written[1], 0);
    }

    #[test]
    fn any_node_id_has_a_port_and_keeps_it() {
        let b = brokers(19093..=19192, &[]);
        let now = Instant::now();
        assert_eq!(learn(&b, 1, now), Learned::Port(19094));
        assert_eq!(learn(&b, 70_000, now), Learned::Port(19093));
        assert_eq!(learn(&b, i32::MAX, now), Learned::Port(19093 + 47));
        assert_eq!(learn(&b, 70_000, now), Learned::Port(19093));
        let target = b.target(19093);
        assert_eq!(target.node, Some(node(70_000)));
        assert_eq!(target.addresses, [address("kafka-70000", 9092)]);
    }

    #[test]
    fn a_collision_takes_the_next_free_slot_and_keeps_it() {
        let b = brokers(100..=102, &[]);
        let now = Instant::now();
        assert_eq!(learn(&b, 3, now), Learned::Port(100));
        assert_eq!(learn(&b, 0, now), Learned::Port(101));
        assert_eq!(learn(&b, 3, now), Learned::Port(100));
        assert_eq!(learn(&b, 0, now), Learned::Port(101));
    }

    #[test]
    fn replicas_agree_on_collisions_whoever_is_heard_of_first() {
        let now = Instant::now();
        let ports = |order: &[i32]| {
            let b = replica(100..=102, &[]);
            // The second time is as every one after it.
            for id in order.iter().chain(order) {
                learn(&b, *id, now);
            }
            let mut ports = b.ports();
            ports.sort_by_key(|(node, _)| node.to_wire());
            ports
        };
        let expected = [(node(0), 100), (node(1), 101)];
        for order in [[0, 1, 3], [3, 1, 0], [1, 3, 0]] {
            assert_eq!(ports(&order), expected, "{order:?}");
        }
    }

    #[test]
    fn a_refused_broker_is_told_once_and_has_the_port_when_the_other_one_has_gone() {
        let b = replica(100..=102, &[]);
        let now = Instant::now();
        assert_eq!(learn(&b, 0, now), Learned::Port(100));
        assert_eq!(learn(&b, 3, now), Learned::Exhausted(true));
        assert_eq!(learn(&b, 3, now), Learned::Exhausted(false));
        assert_eq!(b.target(101), b.bootstrap(), "no other port leads to it");
        b.listed(&[node(3)], now);
        assert_eq!(learn(&b, 3, now), Learned::Port(100));
        assert_eq!(learn(&b, 0, now), Learned::Port(100), "back, and lower");
        assert_eq!(learn(&b, 3, now), Learned::Exhausted(true));
    }

    #[test]
    fn a_fixed_slot_of_another_node_is_a_collision_too() {
        let b = replica(100..=102, &[(7, 100), (3, 102)]);
        let now = Instant::now();
        assert_eq!(learn(&b, 0, now), Learned::Exhausted(true));
        assert_eq!(learn(&b, 7, now), Learned::Port(100));
        assert_eq!(learn(&b, 3, now), Learned::Port(102));
        assert_eq!(learn(&b, 1, now), Learned::Port(101));
    }

    #[test]
    fn more_brokers_than_ports_is_told_once_a_broker() {
        let b = brokers(100..=101, &[]);
        let now = Instant::now();
        learn(&b, 0, now);
        learn(&b, 1, now);
        assert_eq!(learn(&b, 2, now), Learned::Exhausted(true));
        assert_eq!(learn(&b, 2, now), Learned::Exhausted(false));
        assert_eq!(learn(&b, 1, now), Learned::Port(101));
    }

    /// An upstream gone wrong names others in every answer.
    #[test]
    fn brokers_without_a_port_are_remembered_up_to_a_bound() {
        let b = brokers(100..=100, &[]);
        let now = Instant::now();
        learn(&b, 0, now);
        let bound = i32::try_from(HOMELESS_MAX).unwrap();
        for id in 1..=bound {
            assert_eq!(learn(&b, id, now), Learned::Exhausted(true));
        }
        for id in bound + 1..3 * bound {
            assert_eq!(learn(&b, id, now), Learned::Forgotten);
        }
        assert_eq!(b.all().len(), 1 + HOMELESS_MAX);
        assert_eq!(learn(&b, 1, now), Learned::Exhausted(false));
        b.listed(&[node(0)], now);
        assert_eq!(learn(&b, bound + 1, now), Learned::Exhausted(true));
    }

    #[test]
    fn the_slot_of_a_vanished_broker_is_given_on_after_the_grace_time() {
        let b = brokers(100..=100, &[]);
        let start = Instant::now();
        learn(&b, 0, start);
        b.listed(&[node(5)], start);
        let soon = start + Duration::from_secs(599);
        assert_eq!(learn(&b, 5, soon), Learned::Exhausted(true));
        let late = start + Duration::from_secs(600);
        assert_eq!(learn(&b, 5, late), Learned::Port(100));
        assert_eq!(b.target(100).node, Some(node(5)));
    }

    #[test]
    fn what_another_replica_cannot_know_is_not_kept_where_replicas_have_to_agree() {
        let b = replica(100..=102, &[]);
        let now = Instant::now();
        assert_eq!(b.keep(&[(node(3), 101)], now), 0);
        assert_eq!(learn(&b, 3, now), Learned::Port(100));
        assert_eq!(learn(&b, 4, now), Learned::Port(101));
    }

    #[test]
    fn a_broker_that_comes_back_keeps_its_slot() {
        let b = brokers(100..=100, &[]);
        let start = Instant::now();
        learn(&b, 0, start);
        b.listed(&[], start);
        learn(&b, 0, start);
        let late = start + Duration::from_secs(601);
        assert_eq!(learn(&b, 5, late), Learned::Exhausted(true));
    }

    #[test]
    fn a_node_that_collided_has_its_port_again_after_a_restart() {
        let now = Instant::now();
        let before = brokers(100..=102, &[]);
        learn(&before, 3, now);
        learn(&before, 0, now);
        let after = brokers(100..=102, &[]);
        assert_eq!(after.keep(&before.ports(), now), 2);
        assert_eq!(learn(&after, 0, now), Learned::Port(101));
        assert_eq!(learn(&after, 6, now), Learned::Port(102));
        assert_eq!(learn(&after, 3, now), Learned::Port(100));
        let without = brokers(100..=102, &[]);
        assert_eq!(learn(&without, 0, now), Learned::Port(100), "as without it");
    }

    #[test]
    fn a_kept_port_leads_to_the_bootstrap_servers_and_is_given_on_after_the_grace_time() {
        let start = Instant::now();
        let b = brokers(100..=100, &[]);
        assert_eq!(b.keep(&[(node(0), 100)], start), 1);
        assert_eq!(b.target(100), b.bootstrap());
        assert!(b.all().is_empty());
        assert_eq!(b.ports(), [(node(0), 100)]);
        assert_eq!(learn(&b, 5, start), Learned::Exhausted(true));
        let late = start + Duration::from_secs(600);
        assert_eq!(learn(&b, 5, late), Learned::Port(100));
    }

    #[test]
    fn what_is_taken_fixed_or_outside_is_not_kept() {
        let now = Instant::now();
        let b = brokers(100..=103, &[(7, 100)]);
        assert_eq!(learn(&b, 1, now), Learned::Port(101));
        let ports = [(0, 100), (7, 102), (2, 101), (1, 102), (4, 99), (5, 104)];
        let ports = ports.map(|(id, port)| (node(id), port));
        assert_eq!(b.keep(&ports, now), 0);
        assert_eq!(b.keep(&[(node(8), 103)], now), 1);
        b.keep_none();
        assert_eq!(b.ports(), [(node(1), 101)]);
    }

    #[test]
    fn fixed_slots_belong_to_their_node_alone() {
        let b = brokers(100..=101, &[(7, 100)]);
        let now = Instant::now();
        assert_eq!(learn(&b, 0, now), Learned::Port(101));
        assert_eq!(learn(&b, 7, now), Learned::Port(100));
        assert_eq!(learn(&b, 2, now), Learned::Exhausted(true));
    }

    #[test]
    fn listed_brokers_stand_in_for_bootstrap_servers() {
        let b = brokers(100..=120, &[]);
        let now = Instant::now();
        b.learn(node(1), "boot-a", 9092, now);
        learn(&b, 2, now);
        learn(&b, 3, now);
        b.listed(&[node(1), node(3)], now);
        let target = b.bootstrap();
        let other = (address("kafka-3", 9092), "kafka-3".to_owned());
        assert_eq!(target.others, [other]);
        assert_eq!(target.host_at(&address("kafka-3", 9092)), "kafka-3");
        assert_eq!(target.host_at(&address("boot-a", 9092)), "boot-a");
        for id in 4..20 {
            learn(&b, id, now);
        }
        assert_eq!(b.bootstrap().others.len(), OTHERS_MAX);
        let reached = AddressMap::new(vec!["kafka-1=127.0.0.1".parse().unwrap()]).unwrap();
        let b = Brokers {
            reachable: reached,
            ..brokers(100..=120, &[])
        };
        learn(&b, 1, now);
        let at = address("127.0.0.1", 9092);
        assert_eq!(
            b.bootstrap().host_at(&at),
            "kafka-1",
            "as its certificate says"
        );
    }

    #[test]
    fn a_port_without_a_broker_leads_to_the_bootstrap_server_that_was_reached_last() {
        let b = brokers(100..=101, &[]);
        assert_eq!(b.target(100), b.bootstrap());
        assert_eq!(b.bootstrap().addresses[0].host, "boot-a");
        b.bootstrap_reached(&address("boot-b", 9092));
        b.bootstrap_reached(&address("boot-c", 9092));
        assert_eq!(b.bootstrap().addresses[0].host, "boot-b");
        assert_eq!(b.bootstrap().addresses.len(), 2);
    }
}
