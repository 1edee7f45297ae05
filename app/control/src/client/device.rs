//! Logins of programs that have no browser at hand (RFC 8628): their codes, and how often they may ask. What waits is in the
//! store. Pure: time and random numbers are arguments.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sallyport_store::{MAX_DEVICE_LOGINS, SecretHash};

/// How long a person may take.
pub(super) const DEVICE_TIME: Duration = Duration::from_secs(600);
/// How long a program waits between two questions, at first.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// How much longer it waits after each question that came too early (RFC 8628 section 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// How much too early a question may come: networks are not even.
const EARLY: Duration = Duration::from_secs(1);
/// Letters that nobody mistakes for one another, and that make no words (RFC 8628 section 6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// How many of them a code has: 34 bits.
const CODE_LETTERS: usize = 8;

/// How often a program asks.
#[derive(Debug, Clone, Copy)]
struct Pace {
    interval: Duration,
    next: Instant,
    ends: Instant,
}

/// How often each program asks at this control: those of another one are that one's to slow down.
#[derive(Debug, Default)]
pub(super) struct Paces(HashMap<SecretHash, Pace>);

/// A code out of random bytes; bytes that would make some letters likelier are passed over.
pub(super) fn user_code(random: &[u8]) -> Option<String> {
    let letters = random.iter().filter(|byte| **byte < 240).map(|byte| char::from(LETTERS[usize::from(byte % 20)]));
    let code: String = letters.take(CODE_LETTERS).collect();
    (code.len() == CODE_LETTERS).then_some(code)
}

/// The code as people see it.
pub(super) fn shown(code: &str) -> String {
    match code.split_at_checked(CODE_LETTERS / 2) {
        Some((first, second)) => format!("{first}-{second}"),
        None => code.to_owned(),
    }
}

/// The code that a person typed: in any case, with or without what stands between.
pub(super) fn typed(text: &str) -> Option<String> {
    let code: String = text
        .chars()
        .filter(|c| !matches!(c, '-' | ' '))
        .take(CODE_LETTERS + 1)
        .map(|c| c.to_ascii_uppercase())
        .collect();
    (code.len() == CODE_LETTERS && code.bytes().all(|byte| LETTERS.contains(&byte))).then_some(code)
}

impl Paces {
    /// A program begins to ask.
    pub(super) fn begin(&mut self, device: SecretHash, now: Instant) {
        if self.0.len() >= MAX_DEVICE_LOGINS {
            self.0.retain(|_, pace| pace.ends > now);
        }
        if self.0.len() < MAX_DEVICE_LOGINS {
            self.0.insert(device, Pace { interval: INTERVAL, next: now + INTERVAL, ends: now + DEVICE_TIME });
        }
    }

    /// Whether a question comes too early: gives how long the program has to wait between two from now on.
    pub(super) fn is_early(&mut self, device: SecretHash, now: Instant) -> Option<Duration> {
        let pace = self.0.get_mut(&device)?;
        let is_early = now + EARLY < pace.next;
        if is_early {
            pace.interval += SLOW_DOWN;
        }
        pace.next = now + pace.interval;
        is_early.then_some(pace.interval)
    }

    /// The program has been told.
    pub(super) fn end(&mut self, device: SecretHash) {
        self.0.remove(&device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_must_not_hurry() {
        let (mut paces, start) = (Paces::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        paces.begin([7; 32], start);
        assert_eq!(paces.is_early([7; 32], after(5)), None);
        assert_eq!(paces.is_early([7; 32], after(6)), Some(Duration::from_secs(10)));
        assert_eq!(paces.is_early([7; 32], after(7)), Some(Duration::from_secs(15)));
        assert_eq!(paces.is_early([7; 32], after(22)), None);
        assert_eq!(paces.is_early([9; 32], start), None, "one that began elsewhere");
        paces.end([7; 32]);
        for n in 0..2 * MAX_DEVICE_LOGINS {
            let mut device = [0; 32];
            device[..8].copy_from_slice(&n.to_be_bytes());
            paces.begin(device, start);
        }
        assert_eq!(paces.0.len(), MAX_DEVICE_LOGINS);
        paces.begin([8; 32], start + DEVICE_TIME);
        assert_eq!(paces.0.len(), 1, "those that ended make room");
    }

    #[test]
    fn codes_are_typed_as_people_type() {
        let code = user_code(&[0, 1, 255, 2, 3, 240, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(code, "BCDFGHJK");
        assert_eq!(user_code(&[255; 64]), None);
        assert_eq!(shown(&code), "BCDF-GHJK");
        for text in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk "] {
            assert_eq!(typed(text).as_deref(), Some("BCDFGHJK"), "{text}");
        }
        for text in ["", "BCDFGHJ", "BCDFGHJKL", "BCDFGHJA", "BCDFGHJ\u{e9}"] {
            assert_eq!(typed(text), None, "{text}");
        }
    }
}
