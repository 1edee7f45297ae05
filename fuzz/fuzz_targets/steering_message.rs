//! Reports of edges and assignments of quotas: what is read is written and read again alike, and neither the planner nor
//! an edge falls over it.

#![no_main]

use std::{collections::BTreeMap, time::Duration};

use libfuzzer_sys::fuzz_target;
use sallyport_steer::{
    plan::{EdgeInfo, Planner},
    quota::AssignmentFollower,
    report::{LoadReport, QuotaAssignment},
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = LoadReport::from_bytes(bytes) {
        let again = LoadReport::from_bytes(&report.to_bytes().expect("it is written")).expect("it is read");
        assert_eq!(report, again);
        let mut planner = Planner::default();
        let info = EdgeInfo { name: "e".parse().expect("a name"), region: "r".parse().expect("a name") };
        planner.set_edges(BTreeMap::from([(report.edge, info)]));
        planner.lead(1, Duration::ZERO);
        let _ = planner.handle_report(&report, Duration::from_secs(1));
        let _ = planner.tick(Duration::from_secs(1));
    }
    if let Ok(assignment) = QuotaAssignment::from_bytes(bytes) {
        let again = QuotaAssignment::from_bytes(&assignment.to_bytes().expect("it is written")).expect("it is read");
        assert_eq!(assignment, again);
        let mut follower = AssignmentFollower::new(assignment.edge, assignment.epoch);
        follower.begin_report(Duration::ZERO);
        let _ = follower.handle_assignment(&assignment);
    }
});
