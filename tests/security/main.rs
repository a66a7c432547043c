//! Security and the life of a process, with real brokers and real clients:
//! what of it is short enough to be run always. `tests/run security` runs all.

#![allow(dead_code, reason = "the whole program uses these modules too")]
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "clippy exempts test functions, not the helpers of a test binary"
)]

mod cells;
mod check;
#[path = "../real/clients.rs"]
mod clients;
#[path = "../real/cluster.rs"]
mod cluster;
mod drain;
#[path = "../real/hapax.rs"]
mod hapax;
#[path = "../support/oidc.rs"]
mod oidc;
#[path = "../real/raw.rs"]
mod raw;
mod report;
mod rights;
mod rotation;
#[path = "../support/secure.rs"]
mod secure;
#[path = "../real/tools.rs"]
mod tools;
mod volume;
mod world;

use crate::clients::Client;
use crate::world::World;

#[test]
fn every_kind_of_door_and_of_upstream_serves_every_client() {
    cells::check(World::one(), &cells::some());
}

#[test]
fn who_may_not_do_something_hears_it_from_the_broker() {
    rights::the_brokers_answers_pass(World::one());
}

#[test]
fn clients_that_may_not_produce_tell_the_same_as_without_hapax() {
    rights::clients_tell_the_same(World::one(), &[Client::FranzGo]);
}

#[test]
fn ten_new_certificates_disturb_nobody() {
    rotation::ten_times_under_load();
}

#[test]
fn a_drain_until_connections_serves_old_and_new_clients_to_their_end() {
    drain::until_connections(World::one());
}

#[test]
fn a_drain_until_requests_leaves_clients_to_another_replica() {
    drain::until_requests(World::one());
}

#[test]
fn clients_that_are_cut_lose_and_double_nothing() {
    drain::cut_under_load(World::one());
}

#[test]
fn what_a_drain_until_connections_cuts_is_counted_to_a_request() {
    drain::the_cut_is_counted(World::one(), "connections");
}

#[test]
fn what_a_drain_until_requests_cuts_is_counted_to_a_request() {
    drain::the_cut_is_counted(World::one(), "requests");
}

#[test]
fn a_check_of_what_is_right_finds_it_right() {
    check::what_is_right(World::one());
}

#[test]
fn a_check_of_what_is_wrong_says_what_to_set() {
    check::what_is_wrong(World::one());
}
