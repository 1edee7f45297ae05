//! Numbers that no honest edge sends: they change nothing for others, and nothing overflows.

use std::{collections::BTreeMap, time::Duration};

use sallyport_model::{AccountId, Capacity, EdgeId, MaxRps, OriginRef, SocketId, TunnelId};
use sallyport_steer::{
    plan::{Dimension, EdgeInfo, Leaf, Place, Planner, SteeredOrigin, SteeredSocket, WhatIf},
    quota::AssignmentFollower,
    report::{Candidate, ClassLoad, LoadReport, OriginLoad, Quota},
};

const SECOND: Duration = Duration::from_secs(1);

fn edge(id: u8) -> EdgeId {
    EdgeId::from_random([id; 16])
}

fn socket() -> SocketId {
    SocketId::from_random([1; 16])
}

fn origin(id: u8) -> OriginRef {
    TunnelId::from_random([id; 16]).into()
}

/// A leading planner with two edges and two origins: one with a declared limit, one with a learned one.
fn planner() -> Planner {
    let mut planner = Planner::default();
    let limits = [Some(MaxRps::Declared(200)), Some(MaxRps::Learned)];
    let origins = limits.into_iter().zip(1..).map(|(max_rps, id)| {
        let capacity = Capacity { max_rps, max_connections: Some(50), shared: None };
        (origin(id), SteeredOrigin { region: None, weight: 100, capacity })
    });
    planner.set_sockets(vec![SteeredSocket {
        id: socket(),
        account: AccountId::from_random([1; 16]),
        origins: origins.collect(),
        regions: BTreeMap::new(),
    }]);
    let info = |id: u8| EdgeInfo { name: format!("e{id}").parse().unwrap(), region: "eu".parse().unwrap() };
    planner.set_edges((1..=2).map(|id| (edge(id), info(id))).collect());
    planner.lead(1, Duration::ZERO);
    planner
}

fn report(follower: &mut AssignmentFollower, now: Duration, count: u64, rtt_us: u64) -> LoadReport {
    let mut report = follower.begin_report(now);
    report.term = 1;
    let candidate = |id| Candidate { origin: origin(id), rtt_us: Some(rtt_us), is_usable: true };
    let open = u32::try_from(count).unwrap_or(u32::MAX);
    for class in [0, u64::MAX] {
        let candidates = vec![candidate(1), candidate(2), candidate(1)];
        report.classes.push(ClassLoad { socket: socket(), class, arrived: count, shed: count, open, candidates });
    }
    for id in 1..=2 {
        report.origins.push(OriginLoad {
            socket: socket(),
            origin: origin(id),
            sent: count,
            done: count,
            failed: count,
            latency_us: count,
            open: 0,
            quota: Quota { rate: Some(0), connections: Some(0) },
        });
    }
    report
}

#[test]
fn absurd_numbers_overflow_nothing_and_leave_others_their_part() {
    let mut planner = planner();
    let (mut honest, mut hostile) = (AssignmentFollower::new(edge(1), 1), AssignmentFollower::new(edge(2), 1));
    let mut counts = 0_u64;
    for second in 1..40_u32 {
        let now = SECOND * second;
        let own = report(&mut honest, now, u64::from(second) * 50, 2_000);
        planner.handle_report(&own, now).unwrap();
        counts = counts.saturating_mul(1_000).saturating_add(u64::from(u32::MAX));
        let rtt = if second % 2 == 0 { 0 } else { u64::MAX };
        let mut absurd = report(&mut hostile, now, counts, rtt);
        if second % 5 == 0 {
            absurd.at_us = u64::MAX - u64::from(second);
        }
        let _ = planner.handle_report(&absurd, now);
        let assignments = planner.tick(now);
        let place = Place::Origin(Leaf { socket: socket(), origin: origin(1) });
        for dimension in Dimension::ALL {
            let (granted, capacity) = planner.granted(&place, dimension).unwrap();
            assert!(granted <= capacity, "second {second}: {granted} of {capacity}");
        }
        if second > 10 {
            let own = assignments.iter().find(|assignment| assignment.edge == edge(1)).unwrap();
            let rate = own.quotas.iter().find(|quota| quota.origin == origin(1)).and_then(|quota| quota.quota.rate);
            assert!(rate >= Some(50_000), "second {second}: {rate:?}");
        }
        assert!(planner.view(socket(), now).is_some());
    }
    let what_if = WhatIf {
        demands: [((socket(), edge(1)), u64::MAX)].into(),
        capacities: [(Leaf { socket: socket(), origin: origin(1) }, Some(u64::MAX))].into(),
    };
    assert!(planner.preview(socket(), &what_if, SECOND * 41).is_some());
}
