//! Logins of programs that have no browser at hand (RFC 8628). Pure: time and random numbers are arguments.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use sallyport_model::{AccountId, LoginSessionId, SocketId};
use sallyport_store::SecretHash;

/// How long a person may take.
pub(super) const DEVICE_TIME: Duration = Duration::from_secs(600);
/// How long a program waits between two questions, at first.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// How much longer it waits after each question that came too early (RFC 8628 section 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// How much too early a question may come: networks are not even.
const EARLY: Duration = Duration::from_secs(1);
/// How many logins wait at once.
const MAX_DEVICE_LOGINS: usize = 4_096;
/// How many of one organisation wait at once: nobody takes the places of all others.
const MAX_DEVICE_LOGINS_OF_ORGANISATION: usize = 256;
/// Letters that nobody mistakes for one another, and that make no words (RFC 8628 section 6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// How many of them a code has: 34 bits.
const CODE_LETTERS: usize = 8;

/// A login that waits for a person.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) socket: SocketId,
    organisation: AccountId,
    /// From where the program asks.
    pub(super) from: IpAddr,
    ends: Instant,
    device: SecretHash,
    interval: Duration,
    next: Instant,
    answer: Option<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Agreed(LoginSessionId),
    Denied,
}

/// What a program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Poll {
    /// The person has agreed: it is told once.
    Agreed(LoginSessionId, SocketId),
    /// The person has refused.
    Denied,
    /// Nothing yet.
    Pending,
    /// Asked too often: wait so long from now on.
    SlowDown(Duration),
    /// There is no such login, or its time is over.
    Over,
}

/// All that wait, by the code that the person types.
#[derive(Debug, Default)]
pub(super) struct DeviceLogins(HashMap<String, Waiting>);

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

impl DeviceLogins {
    /// Begins one; `false` when too many wait, of all or of the organisation, or the code is one's already.
    pub(super) fn begin(
        &mut self,
        code: String,
        device: SecretHash,
        (organisation, socket): (AccountId, SocketId),
        from: IpAddr,
        now: Instant,
    ) -> bool {
        if self.0.len() >= MAX_DEVICE_LOGINS {
            self.0.retain(|_, waiting| waiting.ends > now);
        }
        let is_theirs = |waiting: &&Waiting| waiting.organisation == organisation && waiting.ends > now;
        if self.0.values().filter(is_theirs).count() >= MAX_DEVICE_LOGINS_OF_ORGANISATION {
            return false;
        }
        if self.0.len() >= MAX_DEVICE_LOGINS || self.0.get(&code).is_some_and(|waiting| waiting.ends > now) {
            return false;
        }
        let ends = now + DEVICE_TIME;
        let next = now + INTERVAL;
        let waiting = Waiting { socket, organisation, from, ends, device, interval: INTERVAL, next, answer: None };
        self.0.insert(code, waiting);
        true
    }

    /// The login with this code that nobody has answered.
    pub(super) fn waiting(&self, code: &str, now: Instant) -> Option<&Waiting> {
        self.0.get(code).filter(|waiting| waiting.ends > now && waiting.answer.is_none())
    }

    /// The person's answer; gives whether somebody waits for it.
    pub(super) fn answer(&mut self, code: &str, agreed: Option<LoginSessionId>, now: Instant) -> bool {
        match self.0.get_mut(code).filter(|waiting| waiting.ends > now && waiting.answer.is_none()) {
            Some(waiting) => {
                waiting.answer = Some(agreed.map_or(Answer::Denied, Answer::Agreed));
                true
            }
            None => false,
        }
    }

    /// A program asks.
    pub(super) fn poll(&mut self, device: SecretHash, now: Instant) -> Poll {
        let found = self.0.iter_mut().find(|(_, waiting)| waiting.device == device && waiting.ends > now);
        let Some((code, waiting)) = found else { return Poll::Over };
        if now + EARLY < waiting.next {
            waiting.interval += SLOW_DOWN;
            waiting.next = now + waiting.interval;
            return Poll::SlowDown(waiting.interval);
        }
        waiting.next = now + waiting.interval;
        let (code, socket) = (code.clone(), waiting.socket);
        match waiting.answer {
            None => Poll::Pending,
            Some(answer) => {
                self.0.remove(&code);
                match answer {
                    Answer::Agreed(session) => Poll::Agreed(session, socket),
                    Answer::Denied => Poll::Denied,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn socket() -> SocketId {
        SocketId::from_random([1; 16])
    }

    fn at(organisation: u8) -> (AccountId, SocketId) {
        (AccountId::from_random([organisation; 16]), socket())
    }

    fn session() -> LoginSessionId {
        LoginSessionId::from_random([2; 16])
    }

    #[test]
    fn a_program_learns_the_answer_once_and_must_not_hurry() {
        let (mut logins, start) = (DeviceLogins::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(logins.begin("BCDFGHJK".to_owned(), [7; 32], at(1), FROM, start));
        assert!(!logins.begin("BCDFGHJK".to_owned(), [8; 32], at(1), FROM, start), "a code is one's");
        assert_eq!(logins.poll([7; 32], after(5)), Poll::Pending);
        assert_eq!(logins.poll([7; 32], after(6)), Poll::SlowDown(Duration::from_secs(10)));
        assert_eq!(logins.poll([7; 32], after(7)), Poll::SlowDown(Duration::from_secs(15)));
        assert_eq!(logins.poll([9; 32], after(7)), Poll::Over);
        assert!(logins.answer("BCDFGHJK", Some(session()), after(8)));
        assert!(!logins.answer("BCDFGHJK", None, after(8)), "an answer stands");
        assert!(logins.waiting("BCDFGHJK", after(8)).is_none());
        assert_eq!(logins.poll([7; 32], after(22)), Poll::Agreed(session(), socket()));
        assert_eq!(logins.poll([7; 32], after(60)), Poll::Over);
        assert!(logins.begin("CCCCCCCC".to_owned(), [7; 32], at(1), FROM, start));
        assert!(logins.answer("CCCCCCCC", None, start));
        assert_eq!(logins.poll([7; 32], after(5)), Poll::Denied);
    }

    #[test]
    fn what_nobody_answers_ends() {
        let (mut logins, start) = (DeviceLogins::default(), Instant::now());
        assert!(logins.begin("BCDFGHJK".to_owned(), [7; 32], at(1), FROM, start));
        let late = start + DEVICE_TIME;
        assert!(logins.waiting("BCDFGHJK", late).is_none());
        assert!(!logins.answer("BCDFGHJK", Some(session()), late));
        assert_eq!(logins.poll([7; 32], late), Poll::Over);
        for n in 0..MAX_DEVICE_LOGINS_OF_ORGANISATION {
            logins.begin(format!("of-one-{n}"), [7; 32], at(1), FROM, start);
        }
        assert!(!logins.begin("more".to_owned(), [7; 32], at(1), FROM, start), "no more of one organisation");
        assert!(logins.begin("other".to_owned(), [7; 32], at(2), FROM, start), "which takes nothing from others");
        for n in 0..MAX_DEVICE_LOGINS {
            let organisation = u8::try_from(3 + n / MAX_DEVICE_LOGINS_OF_ORGANISATION).unwrap();
            logins.begin(format!("{n}"), [7; 32], at(organisation), FROM, start);
        }
        assert!(!logins.begin("more".to_owned(), [7; 32], at(99), FROM, start), "no more than so many");
        assert!(logins.begin("more".to_owned(), [7; 32], at(1), FROM, late), "those that ended make room");
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
