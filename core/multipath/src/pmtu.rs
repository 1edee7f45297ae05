//! The MTU of a path, found by probes (RFC 8899). Uses no other room, and serves any protocol that pads its probes.

use std::time::{Duration, Instant};

/// The UDP payload that every path is trusted to carry (`BASE_PLPMTU`).
pub const BASE_BYTES: u16 = 1200;
/// Probes of one size before the size is given up (`MAX_PROBES`).
pub const MAX_PROBES: u8 = 3;
/// After this time, a search that has ended begins again (`PMTU_RAISE_TIMER`).
pub const RAISE_AFTER: Duration = Duration::from_secs(600);
/// The search ends once fewer bytes than these are in doubt.
const DOUBT_BYTES: u16 = 16;
/// Packets beyond the base that are lost in a row before the path is taken for a black hole of long packets.
const BLACK_HOLE_LOSSES: u8 = 4;

/// The search for the MTU of one path.
///
/// The caller sends a probe of the size that [`poll_probe`](Self::poll_probe) gives, and reports what became of it. The
/// caller also reports all other packets, so that a path that swallows long packets is noticed.
#[derive(Debug, Clone)]
pub struct PathMtu {
    current: u16,
    /// The greatest size that may still work.
    ceiling: u16,
    /// What the link itself can carry.
    max: u16,
    is_probing: bool,
    probes: u8,
    /// Whether the greatest size was tried: it comes first, because most paths carry it.
    is_max_tried: bool,
    losses: u8,
    raise_at: Option<Instant>,
}

impl PathMtu {
    /// A search that begins at the base; `max` is the greatest payload of the link, in bytes.
    #[must_use]
    pub fn new(max: u16) -> Self {
        let max = max.max(BASE_BYTES);
        Self {
            current: BASE_BYTES,
            ceiling: max,
            max,
            is_probing: false,
            probes: 0,
            is_max_tried: false,
            losses: 0,
            raise_at: None,
        }
    }

    /// The greatest payload that the path has carried, in bytes.
    #[must_use]
    pub fn current(&self) -> u16 {
        self.current
    }

    /// The link carries payloads of up to `max` bytes now. The search begins again if this differs.
    pub fn set_max(&mut self, max: u16) {
        if max.max(BASE_BYTES) != self.max {
            *self = Self { current: self.current.min(max.max(BASE_BYTES)), ..Self::new(max) };
        }
    }

    /// The size of a probe to send now; `None` while one is on its way or nothing is in doubt.
    pub fn poll_probe(&mut self, now: Instant) -> Option<u16> {
        if self.raise_at.is_some_and(|at| at <= now) {
            self.restart_search();
        }
        if self.is_probing {
            return None;
        }
        let size = self.next_size()?;
        self.is_probing = true;
        Some(size)
    }

    /// Whether [`poll_probe`](Self::poll_probe) has a probe at this time.
    #[must_use]
    pub fn has_probe(&self, now: Instant) -> bool {
        !self.is_probing && (self.raise_at.is_some_and(|at| at <= now) || self.next_size().is_some())
    }

    /// When a search that has ended begins again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.raise_at
    }

    /// The probe of this size arrived.
    pub fn on_probe_acked(&mut self, size: u16, now: Instant) {
        self.is_probing = false;
        self.probes = 0;
        self.losses = 0;
        self.is_max_tried = true;
        self.current = self.current.max(size.min(self.max));
        self.ceiling = self.ceiling.max(self.current);
        self.set_raise(now);
    }

    /// The probe of this size was lost.
    pub fn on_probe_lost(&mut self, size: u16, now: Instant) {
        self.is_probing = false;
        self.probes += 1;
        if self.probes >= MAX_PROBES {
            self.probes = 0;
            self.is_max_tried = true;
            self.ceiling = size.saturating_sub(1).max(self.current);
        }
        self.set_raise(now);
    }

    /// Nothing will be known of the probe on its way, because the whole path fell silent.
    pub fn cancel_probe(&mut self) {
        self.is_probing = false;
    }

    /// A packet that is no probe arrived.
    pub fn on_acked(&mut self, size: u16) {
        if size > BASE_BYTES {
            self.losses = 0;
        }
    }

    /// A packet that is no probe was lost. Returns whether the MTU fell to the base for that.
    pub fn on_lost(&mut self, size: u16) -> bool {
        if size <= BASE_BYTES || self.current == BASE_BYTES {
            return false;
        }
        self.losses += 1;
        if self.losses < BLACK_HOLE_LOSSES {
            return false;
        }
        self.current = BASE_BYTES;
        self.restart_search();
        true
    }

    fn restart_search(&mut self) {
        let current = self.current;
        *self = Self { current, ..Self::new(self.max) };
    }

    fn next_size(&self) -> Option<u16> {
        if self.ceiling <= self.current {
            return None;
        }
        if !self.is_max_tried {
            return Some(self.ceiling);
        }
        let doubt = self.ceiling - self.current;
        (doubt >= DOUBT_BYTES).then(|| self.current + doubt.div_ceil(2))
    }

    fn set_raise(&mut self, now: Instant) {
        let is_complete = self.next_size().is_none() && self.current < self.max;
        self.raise_at = is_complete.then(|| now + RAISE_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that carries `carries` bytes; the number of probes.
    fn search(mtu: &mut PathMtu, carries: u16, now: Instant) -> usize {
        let mut probes = 0;
        while let Some(size) = mtu.poll_probe(now) {
            assert!(mtu.poll_probe(now).is_none(), "one probe at a time");
            assert!(size > mtu.current());
            probes += 1;
            if size <= carries { mtu.on_probe_acked(size, now) } else { mtu.on_probe_lost(size, now) }
        }
        probes
    }

    #[test]
    fn the_search_ends_close_below_what_the_path_carries() {
        let now = Instant::now();
        for max in [1200, 1201, 1232, 1472, 4000, 8972, 65_507] {
            for carries in (1200..=max).step_by(37) {
                let mut mtu = PathMtu::new(max);
                let probes = search(&mut mtu, carries, now);
                assert!(mtu.current() <= carries && carries - mtu.current() < 16, "{max} {carries} {}", mtu.current());
                assert!(probes <= 3 * 14, "{probes}");
            }
        }
    }

    #[test]
    fn a_path_that_carries_all_takes_one_probe() {
        let mut mtu = PathMtu::new(8972);
        assert_eq!(search(&mut mtu, 8972, Instant::now()), 1);
        assert_eq!((mtu.current(), mtu.poll_timeout()), (8972, None));
    }

    #[test]
    fn a_black_hole_is_noticed_and_the_search_begins_again() {
        let now = Instant::now();
        let mut mtu = PathMtu::new(1472);
        search(&mut mtu, 1472, now);
        let lost: Vec<bool> = (0..4).map(|_| mtu.on_lost(1472)).collect();
        assert_eq!(lost, [false, false, false, true]);
        assert_eq!(mtu.current(), BASE_BYTES);
        search(&mut mtu, 1300, now);
        assert!((1285..=1300).contains(&mtu.current()));
    }

    #[test]
    fn losses_between_arrivals_are_no_black_hole() {
        let mut mtu = PathMtu::new(1472);
        search(&mut mtu, 1472, Instant::now());
        for _ in 0..20 {
            assert!(!(mtu.on_lost(1472) || mtu.on_lost(1472) || mtu.on_lost(1472)));
            assert!(!mtu.on_lost(1200));
            mtu.on_acked(1400);
        }
        assert_eq!(mtu.current(), 1472);
    }

    #[test]
    fn a_search_that_ended_begins_again_later_and_keeps_what_it_found() {
        let now = Instant::now();
        let mut mtu = PathMtu::new(1472);
        search(&mut mtu, 1300, now);
        let found = mtu.current();
        let later = mtu.poll_timeout().unwrap();
        assert_eq!(later, now + RAISE_AFTER);
        search(&mut mtu, 1472, later);
        assert!(found < 1472);
        assert_eq!(mtu.current(), 1472);
    }
}
