//! The state machine of echo requests and their replies.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    ops::Add,
    time::{Duration, Instant},
};

use crate::{
    packet::{self, Family, Form, MAX_DATA_BYTES, Malformed},
    round_trip::{Moment, RoundTrip},
    token::{self, Key, MIN_DATA_BYTES},
};

/// The most requests that wait for their replies at a time.
pub const MAX_WAITING: usize = 8_192;
/// The most finished requests that are remembered, to tell doubled replies from late ones.
pub const MAX_REMEMBERED: usize = 4_096;
/// The longest wait for a reply: an hour.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The requests of one socket, which share an identifier. The sequence numbers of requests that wait or are remembered
/// differ.
///
/// The driver calls, for each request: [`Self::begin`], then sends the message, then [`Self::handle_sent`] or
/// [`Self::handle_unsent`]; and at its deadline [`Self::give_up`]. For each received message it first passes on all
/// stamps that are there ([`Self::handle_stamp`]), then calls [`Self::handle_received`].
#[derive(Debug)]
pub struct Echoes {
    family: Family,
    identifier: u16,
    key: Key,
    next_sequence: u16,
    /// The id that the kernel gives the stamp of the next packet (`SOF_TIMESTAMPING_OPT_ID`).
    next_stamp_id: u32,
    /// By sequence number.
    echoes: HashMap<u16, Echo>,
    /// Sequence numbers of packets whose stamp has not come.
    stamp_ids: HashMap<u32, u16>,
    /// Sequence numbers of what is finished, the oldest first.
    finished: VecDeque<u16>,
    rejected: Rejected,
}

#[derive(Debug)]
struct Echo {
    target: IpAddr,
    nonce: u64,
    data_bytes: usize,
    sent: Moment,
    deadline: Instant,
    stamp_id: Option<u32>,
    transmitted: Option<Duration>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Answered,
    GivenUp,
}

/// A request to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its sequence number.
    pub sequence: u16,
    /// The ICMP message.
    pub message: Vec<u8>,
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The address that sent the message.
    pub from: IpAddr,
    /// The form of the bytes.
    pub form: Form,
    /// The message.
    pub bytes: &'a [u8],
    /// The kernel's stamp of its arrival: the wall clock, as the time since 1970.
    pub arrived: Option<Duration>,
    /// When this process received the message.
    pub at: Moment,
}

/// What a received message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The reply to this request, which waits no more.
    Answered {
        /// The sequence number.
        sequence: u16,
        /// The measured time.
        round_trip: RoundTrip,
    },
    /// A reply that is not believed. The request still waits, if it did.
    Rejected(Rejection),
    /// No echo reply, or one for another program.
    Foreign,
}

/// Why a reply is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Its token is not ours, or its data was changed.
    Forged,
    /// The request has its reply already.
    Duplicate,
    /// It came after the request was given up.
    Late,
    /// It has less data than the request.
    Truncated,
    /// It came from another address than that of the request.
    OtherSender,
    /// Its checksum is wrong.
    Damaged,
}

/// The number of replies that were not believed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rejected {
    /// [`Rejection::Forged`].
    pub forged: u64,
    /// [`Rejection::Duplicate`].
    pub duplicates: u64,
    /// [`Rejection::Late`].
    pub late: u64,
    /// [`Rejection::Truncated`].
    pub truncated: u64,
    /// [`Rejection::OtherSender`].
    pub other_sender: u64,
    /// [`Rejection::Damaged`].
    pub damaged: u64,
}

impl Add for Rejected {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forged: self.forged.saturating_add(other.forged),
            duplicates: self.duplicates.saturating_add(other.duplicates),
            late: self.late.saturating_add(other.late),
            truncated: self.truncated.saturating_add(other.truncated),
            other_sender: self.other_sender.saturating_add(other.other_sender),
            damaged: self.damaged.saturating_add(other.damaged),
        }
    }
}

impl Rejected {
    fn count(&mut self, rejection: Rejection) {
        let counter = match rejection {
            Rejection::Forged => &mut self.forged,
            Rejection::Duplicate => &mut self.duplicates,
            Rejection::Late => &mut self.late,
            Rejection::Truncated => &mut self.truncated,
            Rejection::OtherSender => &mut self.other_sender,
            Rejection::Damaged => &mut self.damaged,
        };
        *counter = counter.saturating_add(1);
    }
}

/// Reason why a request cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// [`MAX_WAITING`] requests wait.
    #[error("{MAX_WAITING} echo requests wait for their replies already")]
    Full,
    /// The length of the data is out of bounds.
    #[error("an echo request has from {MIN_DATA_BYTES} to {MAX_DATA_BYTES} bytes of data")]
    DataBytes,
    /// The timeout is longer than [`MAX_TIMEOUT`].
    #[error("a reply is awaited for at most {} seconds", MAX_TIMEOUT.as_secs())]
    Timeout,
}

impl Echoes {
    /// No requests yet. The identifier is the one with which the socket sends.
    #[must_use]
    pub fn new(family: Family, identifier: u16, key: Key) -> Self {
        Self {
            family,
            identifier,
            key,
            next_sequence: 0,
            next_stamp_id: 0,
            echoes: HashMap::new(),
            stamp_ids: HashMap::new(),
            finished: VecDeque::new(),
            rejected: Rejected::default(),
        }
    }

    /// Begins a request with this many bytes of data. The nonce is random. `now` is the moment before sending.
    ///
    /// # Errors
    /// Too many requests wait, or an argument is out of bounds.
    pub fn begin(
        &mut self,
        target: IpAddr,
        data_bytes: usize,
        timeout: Duration,
        nonce: u64,
        now: Moment,
    ) -> Result<Request, BeginError> {
        if !(MIN_DATA_BYTES..=MAX_DATA_BYTES).contains(&data_bytes) {
            return Err(BeginError::DataBytes);
        }
        if timeout > MAX_TIMEOUT {
            return Err(BeginError::Timeout);
        }
        if self.echoes.len() - self.finished.len() >= MAX_WAITING {
            return Err(BeginError::Full);
        }
        // Ends: fewer than 65,536 numbers are taken.
        let mut sequence = self.next_sequence;
        while self.echoes.contains_key(&sequence) {
            sequence = sequence.wrapping_add(1);
        }
        self.next_sequence = sequence.wrapping_add(1);
        let data = self.key.data(self.identifier, sequence, nonce, data_bytes);
        let deadline = now.monotonic + timeout;
        let (stamp_id, transmitted, state) = (None, None, State::Waiting);
        let echo = Echo { target, nonce, data_bytes, sent: now, deadline, stamp_id, transmitted, state };
        self.echoes.insert(sequence, echo);
        Ok(Request { sequence, message: packet::request(self.family, self.identifier, sequence, &data) })
    }

    /// The kernel took the request: its stamp will have the next id.
    pub fn handle_sent(&mut self, sequence: u16) {
        let id = self.next_stamp_id;
        self.next_stamp_id = id.wrapping_add(1);
        if let Some(echo) = self.echoes.get_mut(&sequence).filter(|echo| echo.state == State::Waiting) {
            echo.stamp_id = Some(id);
            self.stamp_ids.insert(id, sequence);
        }
    }

    /// The kernel refused the request, which is forgotten.
    pub fn handle_unsent(&mut self, sequence: u16) {
        if self.echoes.get(&sequence).is_some_and(|echo| echo.state == State::Waiting) {
            self.echoes.remove(&sequence);
        }
    }

    /// The kernel's stamp of a packet that left: its id, and the wall clock as the time since 1970.
    pub fn handle_stamp(&mut self, id: u32, transmitted: Duration) {
        let sequence = self.stamp_ids.remove(&id);
        if let Some(echo) = sequence.and_then(|sequence| self.echoes.get_mut(&sequence)) {
            echo.transmitted = Some(transmitted);
        }
    }

    /// The kernel counts the ids of stamps from zero again. Requests on their way get no stamp.
    pub fn handle_stamps_restarted(&mut self) {
        self.next_stamp_id = 0;
        self.stamp_ids.clear();
    }

    /// Ends the wait for a reply; one that comes later is [`Rejection::Late`].
    pub fn give_up(&mut self, sequence: u16) {
        self.finish(sequence, State::GivenUp);
    }

    /// Judges a received message.
    pub fn handle_received(&mut self, received: &Received<'_>) -> Verdict {
        let verdict = self.judge(received);
        match verdict {
            Verdict::Answered { sequence, .. } => self.finish(sequence, State::Answered),
            Verdict::Rejected(rejection) => self.rejected.count(rejection),
            Verdict::Foreign => {}
        }
        verdict
    }

    /// The number of replies that were not believed.
    #[must_use]
    pub fn rejected(&self) -> Rejected {
        self.rejected
    }

    fn judge(&self, received: &Received<'_>) -> Verdict {
        use Rejection::{Damaged, Duplicate, Forged, Late, OtherSender, Truncated};
        let is_ours = |identifier: u16| identifier == self.identifier;
        let message = match packet::parse(self.family, received.form, received.bytes) {
            Ok(message) if is_ours(message.identifier) => message,
            Err(Malformed::CutOff { identifier }) if is_ours(identifier) => return Verdict::Rejected(Truncated),
            Err(Malformed::Checksum { identifier }) if is_ours(identifier) => return Verdict::Rejected(Damaged),
            _ => return Verdict::Foreign,
        };
        if message.data.len() < MIN_DATA_BYTES {
            return Verdict::Rejected(Truncated);
        }
        let Some(nonce) = self.key.nonce(message.identifier, message.sequence, message.data) else {
            return Verdict::Rejected(Forged);
        };
        // A nonce of ours that is not there any more: the number was given to another request since.
        let Some(echo) = self.echoes.get(&message.sequence).filter(|echo| echo.nonce == nonce) else {
            return Verdict::Rejected(Late);
        };
        if received.from.to_canonical() != echo.target.to_canonical() {
            return Verdict::Rejected(OtherSender);
        }
        if !token::has_filler(message.data) || message.data.len() > echo.data_bytes {
            return Verdict::Rejected(Forged);
        }
        if message.data.len() < echo.data_bytes {
            return Verdict::Rejected(Truncated);
        }
        match echo.state {
            State::Answered => Verdict::Rejected(Duplicate),
            State::GivenUp => Verdict::Rejected(Late),
            State::Waiting if received.at.monotonic >= echo.deadline => Verdict::Rejected(Late),
            State::Waiting => Verdict::Answered {
                sequence: message.sequence,
                round_trip: RoundTrip::new(echo.sent, received.at, echo.transmitted, received.arrived),
            },
        }
    }

    fn finish(&mut self, sequence: u16, state: State) {
        let Some(echo) = self.echoes.get_mut(&sequence).filter(|echo| echo.state == State::Waiting) else { return };
        echo.state = state;
        if let Some(id) = echo.stamp_id {
            self.stamp_ids.remove(&id);
        }
        self.finished.push_back(sequence);
        if self.finished.len() > MAX_REMEMBERED
            && let Some(oldest) = self.finished.pop_front()
        {
            self.echoes.remove(&oldest);
        }
    }
}
