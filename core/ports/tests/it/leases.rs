//! Leases, one event after the other.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use sallyport_model::EdgeId;
use sallyport_ports::{Holder, Lease, LeaseError, LeaseTimes, Leases, NoSlice, Phase, Slice, SliceUse, UseState};

const TIMES: LeaseTimes = LeaseTimes { lasts: Duration::from_secs(100), grace: Duration::from_secs(10) };
const SECOND: Duration = Duration::from_secs(1);

fn machine(number: u8) -> EdgeId {
    EdgeId::from_random([number; 16])
}

fn address() -> IpAddr {
    "198.51.100.7".parse().unwrap()
}

fn slice(number: u8) -> Slice {
    number.try_into().unwrap()
}

fn used(lease: &Lease, state: UseState, has_flows: bool) -> SliceUse {
    SliceUse { address: lease.address, slice: lease.slice, term: lease.term, state, has_flows, problem: None }
}

fn all(leases: &Leases) -> Vec<Lease> {
    leases.all().cloned().collect()
}

#[test]
fn thirty_one_machines_share_an_address_and_the_next_one_gets_a_sentence() {
    let now = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, now);
    let numbers: Vec<u8> =
        (1..=31).map(|number| leases.grant(address(), None, machine(number), now).unwrap().slice.number()).collect();
    assert_eq!(numbers, (1..=31).collect::<Vec<_>>(), "slice 0 is never handed out");
    let full = leases.grant(address(), None, machine(32), now).unwrap_err();
    assert_eq!(full, LeaseError::NoneFree(address()));
    assert!(full.to_string().contains("all 31 slices of 198.51.100.7"), "{full}");
    let taken = leases.grant(address(), Some(slice(7)), machine(40), now).unwrap_err();
    assert_eq!(taken, LeaseError::NotFree { address: address(), slice: slice(7), by: machine(7) });
    // The same machine once more is no second owner, and no new lease either.
    assert!(leases.grant(address(), Some(slice(7)), machine(7), now).is_err());
}

#[test]
fn a_silent_machine_loses_its_slice_after_lease_and_grace_and_gets_it_back_under_a_new_term() {
    let start = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, start);
    let lease = leases.grant(address(), None, machine(1), start).unwrap();
    leases.handle_beat(machine(1), &[used(&lease, UseState::Open, true)], start + 50 * SECOND);
    assert_eq!(leases.poll_timeout(), Some(start + 160 * SECOND));
    assert_eq!(leases.handle_timeout(start + 159 * SECOND), []);
    let lapsed = leases.handle_timeout(start + 160 * SECOND);
    assert_eq!((lapsed[0].phase, lapsed[0].receiver()), (Phase::Lapsed, Some(machine(1))), "its flows may go on");
    assert_eq!(leases.poll_timeout(), None);
    let back = leases.handle_beat(machine(1), &[], start + 200 * SECOND);
    assert_eq!((back[0].phase, back[0].term), (Phase::Held, 2));
    // Another machine may have a lapsed slice.
    leases.handle_timeout(start + 400 * SECOND);
    let other = leases.grant(address(), Some(lease.slice), machine(2), start + 400 * SECOND).unwrap();
    assert_eq!((other.machine, other.term), (machine(2), 3));
    assert_eq!(leases.handle_beat(machine(1), &[], start + 401 * SECOND), []);
}

#[test]
fn no_lease_ends_while_control_hears_nobody_or_has_just_started() {
    let start = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, start);
    leases.grant(address(), None, machine(1), start).unwrap();
    let stored = all(&leases);
    leases.handle_deaf(start + 1_000 * SECOND);
    assert_eq!(leases.handle_timeout(start + 1_109 * SECOND), []);
    let mut anew = Leases::restore(stored, TIMES, start + 5_000 * SECOND);
    assert_eq!(anew.handle_timeout(start + 5_109 * SECOND), []);
    assert_eq!(anew.handle_timeout(start + 5_110 * SECOND).len(), 1);
}

#[test]
fn a_moved_slice_stays_with_the_flows_of_its_machine_until_the_last_one_or_the_bound() {
    let start = Instant::now();
    for ends_by_bound in [false, true] {
        let mut leases = Leases::restore(Vec::new(), TIMES, start);
        let lease = leases.grant(address(), None, machine(1), start).unwrap();
        let moving = leases.move_to(lease.key(), Some(machine(2)), 30 * SECOND, start).unwrap();
        assert_eq!(moving.receiver(), Some(machine(1)));
        // The bound counts only once the machine has stopped opening connections.
        leases.handle_beat(machine(1), &[used(&lease, UseState::Open, true)], start + SECOND);
        assert_eq!(leases.handle_timeout(start + 60 * SECOND), []);
        leases.handle_beat(machine(1), &[used(&lease, UseState::Closed, true)], start + 60 * SECOND);
        assert_eq!(leases.handle_timeout(start + 89 * SECOND), []);
        let moved = if ends_by_bound {
            leases.handle_timeout(start + 90 * SECOND)
        } else {
            leases.handle_beat(machine(1), &[used(&lease, UseState::Closed, false)], start + 70 * SECOND)
        };
        assert_eq!((moved[0].machine, moved[0].term, moved[0].phase), (machine(2), 2, Phase::Held));
    }
}

#[test]
fn a_move_waits_for_a_machine_that_does_not_answer_until_its_lease_has_ended() {
    let start = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, start);
    let lease = leases.grant(address(), None, machine(1), start).unwrap();
    leases.move_to(lease.key(), Some(machine(2)), SECOND, start).unwrap();
    assert_eq!(leases.handle_timeout(start + 109 * SECOND), []);
    assert_eq!(leases.handle_timeout(start + 110 * SECOND)[0].machine, machine(2));
    // An operator who knows that the machine is off need not wait.
    let off = leases.machine_is_off(lease.key(), Some(machine(3)), start + 111 * SECOND).unwrap();
    assert_eq!((off.machine, off.term), (machine(3), 3));
}

#[test]
fn what_nobody_has_cannot_be_moved_and_an_address_in_use_is_not_forgotten() {
    let now = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, now);
    let unknown = leases.move_to((address(), slice(3)), Some(machine(1)), SECOND, now).unwrap_err();
    assert_eq!(unknown.to_string(), "no machine has slice 3 of 198.51.100.7");
    let lease = leases.grant(address(), None, machine(1), now).unwrap();
    assert_eq!(leases.move_to(lease.key(), Some(machine(1)), SECOND, now), Err(LeaseError::SameMachine));
    assert!(!leases.forget(address()));
    leases.move_to(lease.key(), None, SECOND, now).unwrap();
    assert!(!leases.forget(address()), "its machine has not stopped yet");
    let freed = leases.handle_beat(machine(1), &[used(&lease, UseState::Closed, false)], now);
    assert_eq!((freed[0].phase, freed[0].receiver()), (Phase::Free, None));
    assert!(leases.machine_is_off(lease.key(), None, now).is_err());
    assert!(leases.forget(address()) && all(&leases).is_empty());
}

#[test]
fn a_holder_opens_nothing_before_a_beat_and_nothing_after_the_end() {
    let start = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, start);
    let mut holder = Holder::new(machine(1), None);
    assert_eq!((holder.open(start), holder.refusal()), (vec![], None), "it has no lease, and no rule");
    holder.handle_renewed(start);
    let lease = leases.grant(address(), None, machine(1), start).unwrap();
    leases.grant(address(), None, machine(2), start).unwrap();
    holder.handle_leases(&all(&leases));
    assert_eq!(holder.open(start + 99 * SECOND), [lease.key()]);
    assert_eq!(holder.open(start + 100 * SECOND), []);
    assert_eq!(holder.refusal(), Some(NoSlice::Lost));
    // A beat that comes through later does not bring the lease back.
    holder.handle_renewed(start + 101 * SECOND);
    assert_eq!(holder.open(start + 101 * SECOND), []);
    let uses = holder.uses(|_| true);
    assert_eq!((uses[0].state, uses[0].has_flows), (UseState::Closed, false));
    let again = leases.handle_beat(machine(1), &uses, start + 101 * SECOND);
    assert_eq!(again[0].term, 2);
    holder.handle_leases(&all(&leases));
    assert_eq!(holder.open(start + 101 * SECOND), [lease.key()]);
    // An older state of the leases is not believed.
    leases.move_to(lease.key(), Some(machine(2)), SECOND, start).unwrap();
    holder.handle_leases(&all(&leases));
    assert_eq!((holder.open(start + 102 * SECOND), holder.refusal()), (vec![], Some(NoSlice::Moving)));
    holder.handle_leases(&again);
    assert_eq!(holder.open(start + 102 * SECOND), []);
}

#[test]
fn a_restarted_holder_goes_on_only_by_its_record() {
    let start = Instant::now();
    let mut leases = Leases::restore(Vec::new(), TIMES, start);
    let mut holder = Holder::new(machine(1), None);
    holder.handle_renewed(start);
    let lease = leases.grant(address(), None, machine(1), start).unwrap();
    holder.handle_leases(&all(&leases));
    let record = holder.record().unwrap();
    // With its record it goes on while control and bus are away, until the end of the lease.
    let mut restored = Holder::new(machine(1), Some(record));
    restored.handle_leases(&all(&leases));
    assert_eq!(restored.open(start + 99 * SECOND), [lease.key()]);
    assert_eq!(restored.open(start + 100 * SECOND), []);
    // Without it, only leases that begin later are used.
    let mut anew = Holder::new(machine(1), None);
    anew.handle_leases(&all(&leases));
    assert_eq!((anew.open(start), anew.refusal()), (vec![], Some(NoSlice::Waiting)));
    anew.handle_renewed(start + SECOND);
    assert_eq!((anew.open(start + SECOND), anew.refusal()), (vec![], Some(NoSlice::Lost)));
    leases.handle_beat(machine(1), &anew.uses(|_| false), start + SECOND);
    anew.handle_leases(&all(&leases));
    assert_eq!(anew.open(start + SECOND), [lease.key()]);
}
