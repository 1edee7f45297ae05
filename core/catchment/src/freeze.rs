//! When steering must not follow the catchment: somebody may be moving it.

use std::{collections::VecDeque, fmt, time::Duration};

/// Over which time new and moved networks are counted.
const WINDOW: Duration = Duration::from_secs(600);
/// For how long steering stays frozen after the last reason.
const HOLD: Duration = Duration::from_secs(1_800);
/// The most gatherings that are remembered.
const MAX_GATHERINGS: usize = 128;
/// With fewer networks than this at the beginning of the window, new ones are no flood: the table fills.
const MIN_KNOWN: usize = 500;
/// How many networks must move at least.
const MIN_MOVED: usize = 50;
/// The part of the known networks that may move within the window, in percent.
const MAX_MOVED_PERCENT: usize = 30;

/// What one gathering of the counts of edges has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gathering {
    /// How many networks were known before.
    pub known: usize,
    /// How many are new.
    pub new: usize,
    /// How many land elsewhere now.
    pub moved: usize,
}

/// Reason why steering is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeReason {
    /// More networks are new than were known.
    Flood {
        /// How many are new.
        new: usize,
        /// How many were known.
        known: usize,
    },
    /// More networks land elsewhere than is plausible.
    Move {
        /// How many land elsewhere.
        moved: usize,
        /// How many were known.
        known: usize,
    },
}

impl fmt::Display for FreezeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = WINDOW.as_secs() / 60;
        match self {
            Self::Flood { new, known } => {
                write!(f, "{new} networks are new within {minutes} minutes, and {known} were known before")
            }
            Self::Move { moved, known } => {
                write!(f, "{moved} of {known} networks land elsewhere than {minutes} minutes ago")
            }
        }
    }
}

/// Decides when steering is frozen. Times are measured from any fixed moment.
#[derive(Debug, Default)]
pub struct FreezeGuard {
    gatherings: VecDeque<(Duration, Gathering)>,
    frozen: Option<(FreezeReason, Duration)>,
}

impl FreezeGuard {
    /// Takes a gathering.
    pub fn handle_gathering(&mut self, gathering: Gathering, now: Duration) {
        self.gatherings.retain(|(at, _)| now.saturating_sub(*at) < WINDOW);
        if self.gatherings.len() >= MAX_GATHERINGS {
            self.gatherings.pop_front();
        }
        self.gatherings.push_back((now, gathering));
        let known = self.gatherings.front().map_or(0, |(_, first)| first.known);
        let sum = |count: fn(&Gathering) -> usize| self.gatherings.iter().map(|(_, one)| count(one)).sum::<usize>();
        let (new, moved) = (sum(|one| one.new), sum(|one| one.moved));
        let reason = if known >= MIN_KNOWN && new > known {
            Some(FreezeReason::Flood { new, known })
        } else if moved >= MIN_MOVED && moved * 100 > known.saturating_add(new) * MAX_MOVED_PERCENT {
            Some(FreezeReason::Move { moved, known: known.saturating_add(new) })
        } else {
            None
        };
        if let Some(reason) = reason {
            self.frozen = Some((reason, now));
        }
    }

    /// Whether steering is frozen.
    #[must_use]
    pub fn is_frozen(&self, now: Duration) -> bool {
        self.reason(now).is_some()
    }

    /// Why steering is frozen; `None` if it is not.
    #[must_use]
    pub fn reason(&self, now: Duration) -> Option<FreezeReason> {
        self.frozen.filter(|(_, since)| now.saturating_sub(*since) < HOLD).map(|(reason, _)| reason)
    }

    /// Takes the catchment as it is now: an operator has looked at it.
    pub fn release(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn of(known: usize, new: usize, moved: usize) -> Gathering {
        Gathering { known, new, moved }
    }

    #[test]
    fn a_table_that_fills_is_not_frozen() {
        let mut guard = FreezeGuard::default();
        guard.handle_gathering(of(0, 400, 0), at(0));
        guard.handle_gathering(of(400, 5_000, 0), at(30));
        guard.handle_gathering(of(5_400, 5_000, 49), at(700));
        guard.handle_gathering(of(10_400, 400, 400), at(730));
        assert!(!guard.is_frozen(at(730)), "{:?}", guard.reason(at(730)));
    }

    #[test]
    fn a_flood_of_new_networks_freezes_for_half_an_hour() {
        let mut guard = FreezeGuard::default();
        guard.handle_gathering(of(1_000, 600, 0), at(0));
        assert!(!guard.is_frozen(at(0)));
        guard.handle_gathering(of(1_600, 401, 0), at(30));
        assert_eq!(guard.reason(at(30)), Some(FreezeReason::Flood { new: 1_001, known: 1_000 }));
        let shown = guard.reason(at(30)).unwrap().to_string();
        assert_eq!(shown, "1001 networks are new within 10 minutes, and 1000 were known before");
        assert!(guard.is_frozen(at(1_829)) && !guard.is_frozen(at(1_830)));
        // What comes slowly is no flood.
        let mut guard = FreezeGuard::default();
        for step in 0..20 {
            guard.handle_gathering(of(1_000 + 400 * step, 400, 0), at(600 * step as u64));
        }
        assert!(!guard.is_frozen(at(12_000)));
    }

    #[test]
    fn an_implausible_move_freezes_until_it_is_released() {
        let mut guard = FreezeGuard::default();
        guard.handle_gathering(of(200, 0, 30), at(0));
        guard.handle_gathering(of(200, 0, 29), at(100));
        assert!(!guard.is_frozen(at(100)));
        guard.handle_gathering(of(200, 0, 2), at(200));
        assert_eq!(guard.reason(at(200)), Some(FreezeReason::Move { moved: 61, known: 200 }));
        assert_eq!(guard.reason(at(200)).unwrap().to_string(), "61 of 200 networks land elsewhere than 10 minutes ago");
        // Another reason within the time prolongs it.
        guard.handle_gathering(of(200, 0, 90), at(1_900));
        assert!(guard.is_frozen(at(3_000)));
        guard.release();
        assert!(!guard.is_frozen(at(3_000)));
    }

    #[test]
    fn many_gatherings_take_no_room() {
        let mut guard = FreezeGuard::default();
        for second in 0..10_000 {
            guard.handle_gathering(of(10_000, 1, 0), at(second) / 100);
        }
        assert_eq!(guard.gatherings.len(), MAX_GATHERINGS);
        assert!(!guard.is_frozen(at(100)));
    }
}
