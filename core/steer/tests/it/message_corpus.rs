//! Replays the corpus of the fuzzer of messages, and writes its seed files.

use std::{fs, path::PathBuf, time::Duration};

use sallyport_model::{EdgeId, SocketId, TunnelId};
use sallyport_steer::{
    quota::AssignmentFollower,
    report::{AssignedQuota, Candidate, ClassLoad, LoadReport, OriginLoad, Quota, QuotaAssignment, STEER_SCHEMA},
};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/steering_message")
}

fn edge() -> EdgeId {
    EdgeId::from_random([1; 16])
}

fn report() -> LoadReport {
    let (socket, origin) = (SocketId::from_random([2; 16]), TunnelId::from_random([3; 16]).into());
    let mut report = AssignmentFollower::new(edge(), 7).begin_report(Duration::from_secs(3));
    let candidates = vec![Candidate { origin, rtt_us: Some(5_000), is_usable: true }];
    report.classes.push(ClassLoad { socket, class: 0, arrived: 900, shed: 3, open: 12, candidates });
    let quota = Quota { rate: Some(200_000), connections: None };
    let counts = OriginLoad { socket, origin, sent: 897, done: 890, failed: 2, latency_us: 4_450_000, open: 7, quota };
    report.origins.push(counts);
    report
}

fn assignment() -> QuotaAssignment {
    let (socket, origin) = (SocketId::from_random([2; 16]), TunnelId::from_random([3; 16]).into());
    let quota = Quota { rate: Some(200_000), connections: Some(50) };
    QuotaAssignment {
        schema: STEER_SCHEMA,
        edge: edge(),
        epoch: 7,
        term: 2,
        number: 9,
        answers: 1,
        base: 1,
        edges: 3,
        suspects: vec![EdgeId::from_random([4; 16])],
        quotas: vec![AssignedQuota { socket, origin, plan: 150_000, quota }],
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut absurd = report();
    absurd.classes[0].arrived = u64::MAX;
    absurd.classes[0].candidates[0].rtt_us = Some(u64::MAX);
    absurd.origins[0].latency_us = u64::MAX;
    absurd.at_us = u64::MAX;
    let last = LoadReport { is_last: true, classes: Vec::new(), origins: Vec::new(), ..report() };
    vec![
        ("report", report().to_bytes().unwrap()),
        ("report-absurd", absurd.to_bytes().unwrap()),
        ("report-last", last.to_bytes().unwrap()),
        ("assignment", assignment().to_bytes().unwrap()),
        ("assignment-empty", QuotaAssignment { quotas: Vec::new(), ..assignment() }.to_bytes().unwrap()),
        ("schema", br#"{"schema":2}"#.to_vec()),
        ("cut", report().to_bytes().unwrap()[..100].to_vec()),
    ]
}

#[test]
fn every_file_of_the_corpus_is_read_alike_or_refused() {
    let mut count = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        if let Ok(report) = LoadReport::from_bytes(&bytes) {
            assert_eq!(LoadReport::from_bytes(&report.to_bytes().unwrap()).unwrap(), report);
        }
        if let Ok(assignment) = QuotaAssignment::from_bytes(&bytes) {
            assert_eq!(QuotaAssignment::from_bytes(&assignment.to_bytes().unwrap()).unwrap(), assignment);
        }
        count += 1;
    }
    assert!(count >= seeds().len(), "the corpus is there");
    assert_eq!(LoadReport::from_bytes(&fs::read(corpus().join("report")).unwrap()).unwrap(), report());
}

/// `cargo test -p sallyport-steer -- --ignored write_the_corpus` writes the seed files anew.
#[test]
#[ignore = "writes files into fuzz/corpus"]
fn write_the_corpus() {
    fs::create_dir_all(corpus()).unwrap();
    for (name, bytes) in seeds() {
        fs::write(corpus().join(name), bytes).unwrap();
    }
}
