//! The lease, with clocks that are apart.

use std::time::Duration;

use sallyport_kube_model::{Election, LEASE_DURATION, LeaseRecord, LeaseStep, RENEW_DEADLINE, RENEW_EVERY};

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A lease, and the writes to it as an API server takes them.
struct Server {
    record: Option<LeaseRecord>,
    version: u64,
}

impl Server {
    fn write(&mut self, holder: &str, read: Option<&LeaseRecord>, clock: u64) -> bool {
        if read.map(|record| &record.resource_version) != self.record.as_ref().map(|record| &record.resource_version) {
            return false;
        }
        self.version += 1;
        self.record = Some(LeaseRecord {
            holder: holder.to_owned(),
            duration_seconds: LEASE_DURATION.as_secs(),
            renew_time: clock.to_string(),
            transitions: 0,
            resource_version: self.version.to_string(),
        });
        true
    }
}

/// One look of a replica, whose wall clock is `skew` apart. Returns how long it waits.
fn turn(server: &mut Server, election: &mut Election, name: &str, now: u64, skew: u64) -> u64 {
    let read = server.record.clone();
    match election.look(read.clone(), at(now)) {
        LeaseStep::Wait(wait) => return u64::try_from(wait.as_millis()).unwrap().max(1),
        LeaseStep::Create | LeaseStep::Take { .. } | LeaseStep::Renew => {
            if server.write(name, read.as_ref(), now + skew) { election.written(at(now)) } else { election.lost() }
        }
    }
    u64::try_from(RENEW_EVERY.as_millis()).unwrap()
}

#[test]
fn one_leads_whatever_the_clocks_say_and_another_follows_within_the_lease() {
    // A day apart, in both directions.
    for skews in [[0, 86_400_000], [86_400_000, 0]] {
        let mut server = Server { record: None, version: 0 };
        let mut replicas = ["a", "b"].map(Election::new);
        let mut next = [0_u64, 700];
        let mut is_dead = false;
        let mut taken_over = None;
        for now in (0..60_000).step_by(100) {
            if now == 30_000 {
                is_dead = true;
                assert!(replicas[0].is_leader(at(now)) && !replicas[1].is_leader(at(now)));
            }
            for (index, name) in ["a", "b"].into_iter().enumerate() {
                if now >= next[index] && !(is_dead && index == 0) {
                    next[index] = now + turn(&mut server, &mut replicas[index], name, now, skews[index]);
                }
            }
            let leaders = replicas.iter().filter(|one| one.is_leader(at(now))).count();
            assert!(leaders <= 1, "two lead at {now}");
            if is_dead && taken_over.is_none() && replicas[1].is_leader(at(now)) {
                taken_over = Some(now - 30_000);
            }
        }
        assert!(taken_over.is_some_and(|after| after <= 12_100), "{taken_over:?}");
    }
}

#[test]
fn a_leader_without_renewals_stops_before_another_one_begins() {
    assert!(RENEW_DEADLINE < LEASE_DURATION && RENEW_EVERY * 3 <= RENEW_DEADLINE);
    let mut election = Election::new("a");
    assert_eq!(election.look(None, at(0)), LeaseStep::Create);
    election.written(at(0));
    assert!(election.is_leader(RENEW_DEADLINE - at(1)) && !election.is_leader(RENEW_DEADLINE));
    let own = LeaseRecord { holder: "a".to_owned(), duration_seconds: 10, ..LeaseRecord::default() };
    assert_eq!(election.look(Some(own.clone()), at(100)), LeaseStep::Wait(RENEW_EVERY));
    assert_eq!(election.look(Some(own.clone()), RENEW_EVERY), LeaseStep::Renew);
    election.lost();
    assert!(!election.is_leader(RENEW_EVERY));
    let theirs = LeaseRecord { holder: "b".to_owned(), ..own.clone() };
    assert!(matches!(election.look(Some(theirs.clone()), at(5_000)), LeaseStep::Wait(_)), "a full lease from now on");
    assert!(matches!(election.look(Some(theirs.clone()), at(14_000)), LeaseStep::Wait(_)));
    assert_eq!(election.look(Some(theirs.clone()), at(15_000)), LeaseStep::Take { transitions: 1 });
    let freed = LeaseRecord { holder: String::new(), transitions: i64::MAX, ..theirs };
    assert_eq!(election.look(Some(freed), at(15_001)), LeaseStep::Take { transitions: i64::MAX });
    let endless = LeaseRecord { holder: "b".to_owned(), duration_seconds: u64::MAX, ..own };
    election.look(Some(endless.clone()), at(0));
    assert_eq!(election.look(Some(endless), at(120_000)), LeaseStep::Take { transitions: 1 });
}
