//! Places, in each of which one connection follows the other, and the one thread that waits for all of them.

use std::{
    io::ErrorKind,
    sync::Arc,
    time::{Duration, Instant},
};

use mio::{Events, Poll, Token};
use rustls::ClientConfig;

use crate::{
    How, Load,
    connection::{Connection, Failure},
    offer::offer,
    tally::Tally,
};

/// How long a server may take for a connection; one that hangs fails its connection and not the run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often is looked whether a connection hangs.
const LOOK: Duration = Duration::from_secs(1);

/// The places of a thread.
pub(crate) struct Places<'a> {
    load: &'a Load,
    poll: Poll,
    all: Vec<Place>,
    tally: Tally,
}

/// Where one connection follows the other, each with the session of the one before where sessions are resumed.
struct Place {
    /// `None`: connections without TLS.
    offer: Option<Arc<ClientConfig>>,
    /// `None`: it has made its last one.
    connection: Option<Connection>,
}

impl<'a> Places<'a> {
    /// # Errors
    /// The system does not let sockets be waited for.
    pub(crate) fn new(load: &'a Load, count: usize) -> Result<Self, Failure> {
        let place = |_| {
            let offer = match load.how {
                How::Plain => None,
                How::Full => Some(offer(false)?),
                How::Resume => Some(offer(true)?),
            };
            Ok(Place { offer, connection: None })
        };
        let all = (0..count).map(place).collect::<Result<_, rustls::Error>>()?;
        Ok(Self { load, poll: Poll::new()?, all, tally: Tally::default() })
    }

    /// Connections until then, and one at least in each place.
    ///
    /// # Errors
    /// The system does not let sockets be waited for.
    pub(crate) fn tally(mut self, until: Instant) -> Result<Tally, Failure> {
        for index in 0..self.all.len() {
            self.begin(index, until);
        }
        let mut events = Events::with_capacity(self.all.len());
        let mut next_look = Instant::now() + LOOK;
        while self.all.iter().any(|place| place.connection.is_some()) {
            match self.poll.poll(&mut events, Some(LOOK)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                let Token(index) = event.token();
                let outcome = self.all[index].connection.as_mut().and_then(|one| one.go_on(event).transpose());
                if let Some(outcome) = outcome {
                    self.ended(index, outcome, until);
                }
            }
            let now = Instant::now();
            if now >= next_look {
                next_look = now + LOOK;
                self.give_up_what_hangs(now, until);
            }
        }
        Ok(self.tally)
    }

    /// A place's next connection; one that cannot even begin is followed by another as well.
    fn begin(&mut self, index: usize, until: Instant) {
        let place = &mut self.all[index];
        loop {
            match Connection::begin(self.load, place.offer.as_ref(), self.poll.registry(), Token(index)) {
                Ok(connection) => {
                    place.connection = Some(connection);
                    return;
                }
                Err(failure) => self.tally.fail(&failure),
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    fn ended(&mut self, index: usize, outcome: Result<bool, Failure>, until: Instant) {
        let now = Instant::now();
        // Closed before the next one is made: there are never more than were asked for.
        let Some(connection) = self.all[index].connection.take() else { return };
        match outcome {
            Ok(resumed) => {
                let since = |then: Instant| then.saturating_duration_since(connection.begin);
                self.tally.count(resumed, since(connection.answered.unwrap_or(now)), since(now));
            }
            Err(failure) => self.tally.fail(&failure),
        }
        drop(connection);
        if now < until {
            self.begin(index, until);
        }
    }

    fn give_up_what_hangs(&mut self, now: Instant, until: Instant) {
        for index in 0..self.all.len() {
            let began = self.all[index].connection.as_ref().map(|connection| connection.begin);
            if began.is_some_and(|began| now.saturating_duration_since(began) >= PATIENCE) {
                self.ended(index, Err(std::io::Error::from(ErrorKind::TimedOut).into()), until);
            }
        }
    }
}
