//! The hosts that control has the edge measure, each for a while. Pure: time is an argument.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use sallyport_ping::Target;

/// For how long a host is measured after each telling.
const TELLING: Duration = Duration::from_secs(60);
/// For how long its figures are kept after that.
const KEPT: Duration = Duration::from_secs(600);
/// The most hosts, with those that are no longer measured.
const MAX_HOSTS: usize = 32;
/// How many probes of one host may wait for their answers at once.
const MAX_PROBES: usize = 2;

/// The told hosts.
#[derive(Debug, Default)]
pub(super) struct HostList(Vec<ToldHost>);

#[derive(Debug)]
struct ToldHost {
    target: Target,
    until: Duration,
    resolved: Option<SocketAddr>,
    /// How many probes wait.
    probes: usize,
}

/// A host that is to be probed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbedHost {
    pub(super) target: Target,
    /// Its address, if the name was resolved since the last telling.
    pub(super) resolved: Option<SocketAddr>,
}

/// As many hosts as possible are measured already.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_HOSTS} hosts are measured already: try again in {} s", (.0.as_secs() + 1))]
pub(super) struct TooManyHosts(Duration);

impl HostList {
    /// Has a host measured from now on. Of hosts that are no longer measured, the oldest makes room.
    pub(super) fn tell(&mut self, target: Target, now: Duration) -> Result<(), TooManyHosts> {
        let until = now + TELLING;
        self.0.retain(|host| host.until + KEPT > now);
        if let Some(known) = self.0.iter_mut().find(|host| host.target == target) {
            (known.until, known.resolved) = (until, None);
            return Ok(());
        }
        if self.0.len() >= MAX_HOSTS {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, host)| host.until);
            let oldest = oldest.map(|(at, host)| (at, host.until));
            if let Some((at, ends)) = oldest {
                if ends > now {
                    return Err(TooManyHosts(ends - now));
                }
                self.0.remove(at);
            }
        }
        self.0.push(ToldHost { target, until, resolved: None, probes: 0 });
        Ok(())
    }

    /// The hosts to probe now. Each is to be ended by [`Self::handle_end`].
    pub(super) fn due(&mut self, now: Duration) -> Vec<ProbedHost> {
        let due = self.0.iter_mut().filter(|host| host.until > now && host.probes < MAX_PROBES);
        let due = due.map(|host| {
            host.probes += 1;
            ProbedHost { target: host.target.clone(), resolved: host.resolved }
        });
        due.collect()
    }

    /// A probe of the host has ended.
    pub(super) fn handle_end(&mut self, target: &Target) {
        if let Some(host) = self.0.iter_mut().find(|host| host.target == *target) {
            host.probes = host.probes.saturating_sub(1);
        }
    }

    /// Sets the address of a host.
    pub(super) fn set_resolved(&mut self, target: &Target, address: SocketAddr) {
        if let Some(host) = self.0.iter_mut().find(|host| host.target == *target) {
            host.resolved = Some(address);
        }
    }

    /// Whether any host is measured now.
    pub(super) fn is_busy(&self, now: Duration) -> bool {
        self.0.iter().any(|host| host.until > now)
    }

    /// The hosts whose figures are kept.
    pub(super) fn known(&mut self, now: Duration) -> HashSet<String> {
        self.0.retain(|host| host.until + KEPT > now);
        self.0.iter().map(|host| host.target.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn host(number: usize) -> Target {
        format!("host-{number}.example").parse().unwrap()
    }

    #[test]
    fn a_host_is_measured_for_a_minute_after_each_telling() {
        let mut hosts = HostList::default();
        hosts.tell(host(1), at(0)).unwrap();
        assert_eq!(hosts.due(at(59)), [ProbedHost { target: host(1), resolved: None }]);
        assert!(!hosts.is_busy(at(60)) && hosts.due(at(60)).is_empty());
        hosts.set_resolved(&host(1), "192.0.2.1:0".parse().unwrap());
        hosts.tell(host(1), at(100)).unwrap();
        hosts.handle_end(&host(1));
        let due = hosts.due(at(159));
        assert_eq!((due.len(), due[0].resolved), (1, None), "each telling resolves the name again");
        assert!(hosts.is_busy(at(159)) && !hosts.is_busy(at(160)));
    }

    #[test]
    fn a_silent_host_has_few_probes_at_once() {
        let mut hosts = HostList::default();
        hosts.tell(host(1), at(0)).unwrap();
        assert_eq!([hosts.due(at(1)).len(), hosts.due(at(2)).len(), hosts.due(at(3)).len()], [1, 1, 0]);
        hosts.handle_end(&host(1));
        hosts.handle_end(&host(9));
        assert_eq!(hosts.due(at(4)).len(), 1);
    }

    #[test]
    fn the_list_is_bounded() {
        let mut hosts = HostList::default();
        for number in 0..MAX_HOSTS {
            hosts.tell(host(number), at(number as u64)).unwrap();
        }
        let error = hosts.tell(host(99), at(40)).unwrap_err();
        assert_eq!(error.to_string(), "32 hosts are measured already: try again in 21 s");
        hosts.tell(host(0), at(40)).unwrap();
        hosts.tell(host(99), at(61)).unwrap();
        let known = hosts.known(at(61));
        assert!(known.len() == MAX_HOSTS && !known.contains("host-1.example"));
        hosts.tell(host(5), at(5_000)).unwrap();
        assert_eq!(hosts.known(at(5_659)), HashSet::from(["host-5.example".to_owned()]), "others are forgotten");
        assert!(hosts.known(at(5_660)).is_empty());
    }
}
