//! One HTTP/3 connection: its control streams, its requests, and its end.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use quinn::{ReadError, RecvStream, SendStream};
use sallyport_http3::{Connection as Http3, ErrorCode, Reading, UniStream};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{CONFIG, MAX_CONCURRENT_UNI_STREAMS, clients::Clients, stream};

use crate::{
    body::h3::{Http3State, varint},
    http::{
        connection::{ConnectionEvent, MAX_CLOSE, next_event},
        multiplexed::{CONNECTION_WINDOW_BYTES, MAX_CONCURRENT_STREAMS},
        send_bound::StreamExecutor,
        server::HttpServer,
    },
    lifecycle::{counts::ConnectionPlace, phase::Phase},
    util::wake_gated::WakeGated,
};

/// How many bytes of a unidirectional stream are read at once.
const UNI_READ_BYTES: usize = 4 * 1024;
/// How long a client has to leave after the last GOAWAY, at least; at most twice as long.
const FAREWELL: Duration = Duration::from_millis(700);
/// How often the address of a client with running requests is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between the two GOAWAYs of an orderly end.
const MIN_GOAWAY_INTERVAL: Duration = Duration::from_millis(100);

/// A client's connection. Dropped early, it closes the connection.
pub(super) struct Connection {
    server: Arc<HttpServer>,
    state: Arc<Http3State>,
    clients: Arc<Clients>,
    executor: StreamExecutor,
    phase: watch::Receiver<Phase>,
    /// What the client has granted no credit for, on the control stream.
    unwritten: Vec<u8>,
    is_shutting_down: bool,
    /// Whether the client had time to see the last GOAWAY.
    is_closing: bool,
}

/// What happened on a connection.
enum Event {
    Closed,
    /// The state has changed.
    Changed,
    /// The address of the client is to be looked at.
    LookDue,
    Timed(ConnectionEvent),
    UniStream(RecvStream),
    Request(SendStream, RecvStream),
}

impl Connection {
    pub(super) fn new(
        server: Arc<HttpServer>,
        quic: quinn::Connection,
        addr: SocketAddr,
        place: Option<ConnectionPlace>,
    ) -> Self {
        quic.set_max_concurrent_bi_streams(MAX_CONCURRENT_STREAMS.into());
        quic.set_max_concurrent_uni_streams(MAX_CONCURRENT_UNI_STREAMS.into());
        quic.set_receive_window(CONNECTION_WINDOW_BYTES.into());
        let clients = Arc::new(Clients::new(server.clone(), addr, place));
        let executor = StreamExecutor { bound: server.state.config.send_timeout, place: Arc::default() };
        let state = Arc::new(Http3State::new(quic, CONNECTION_WINDOW_BYTES));
        let phase = server.state.phase.subscribe();
        let (unwritten, is_shutting_down, is_closing) = (Vec::new(), false, false);
        Self { server, state, clients, executor, phase, unwritten, is_shutting_down, is_closing }
    }

    /// Serves until the connection has ended.
    pub(super) async fn run(&mut self) {
        let opened = timeout(self.server.state.config.header_timeout, self.open_control()).await;
        let Ok(Some(mut control)) = opened else { return };
        let mut stopped = Box::pin(control.stopped());
        let check_at = Instant::now() + self.server.state.config.idle_timeout;
        let mut next = next_event(&self.phase, Phase::Lingering, Some(check_at));
        let (mut look, mut is_looking, mut lacks_proof) = (pin!(sleep(LOOK_EVERY)), false, false);
        loop {
            self.executor.place.mark_here();
            let event = tokio::select! {
                biased;
                () = self.state.changed.notified() => Event::Changed,
                event = &mut next => Event::Timed(event),
                () = &mut look, if is_looking => Event::LookDue,
                _ = &mut stopped => {
                    //= RFC 9114 section 6.2.1
                    //# If either control stream is closed at any point, this MUST be treated as a connection error of
                    //# type H3_CLOSED_CRITICAL_STREAM.
                    self.state.fail(ErrorCode::CLOSED_CRITICAL_STREAM);
                    Event::Closed
                }
                accepted = self.state.quic.accept_uni() => accepted.map_or(Event::Closed, Event::UniStream),
                accepted = self.state.quic.accept_bi() => {
                    accepted.map_or(Event::Closed, |(send, recv)| Event::Request(send, recv))
                }
            };
            let goes_on = match event {
                Event::Closed => false,
                Event::Changed => {
                    if self.state.take_proof_wish() && self.unwritten.is_empty() {
                        self.write_control(&mut control, &Http3::reserved_frame(), Duration::ZERO).await;
                    }
                    true
                }
                Event::LookDue => {
                    lacks_proof = self.clients.look(&self.state.quic, lacks_proof);
                    if lacks_proof {
                        self.state.ask_for_proof();
                    }
                    is_looking = self.state.is_serving();
                    look.as_mut().reset(Instant::now() + LOOK_EVERY);
                    true
                }
                Event::UniStream(recv) => {
                    tokio::spawn(read_uni(self.state.clone(), recv));
                    true
                }
                Event::Request(send, recv) => {
                    self.begin(send, recv);
                    if !is_looking {
                        is_looking = true;
                        look.as_mut().reset(Instant::now() + LOOK_EVERY);
                    }
                    true
                }
                Event::Timed(ConnectionEvent::PhaseReached(Phase::Cut)) => false,
                Event::Timed(event) => {
                    next = self.handle_time(event, &mut control).await;
                    true
                }
            };
            self.count_faults();
            if !goes_on || self.state.is_over(self.is_closing) {
                return;
            }
        }
    }

    /// Opens the server's control stream. QPACK needs no streams without a dynamic table (RFC 9204 section 4.2).
    async fn open_control(&self) -> Option<SendStream> {
        let mut control = self.state.quic.open_uni().await.ok()?;
        control.write_all(&Http3::control_stream(CONFIG.max_head_bytes)).await.ok()?;
        Some(control)
    }

    /// Serves the request of this stream.
    fn begin(&self, mut send: SendStream, mut recv: RecvStream) {
        let id = quinn::VarInt::from(send.id()).into_inner();
        if !self.state.with(|http| http.accept(id)) {
            let code = varint(ErrorCode::REQUEST_REJECTED);
            // Fails if the client has closed the stream.
            let _ = (send.reset(code), recv.stop(code));
            return;
        }
        self.clients.count_request();
        self.executor.execute(stream::serve(self.server.clone(), self.clients.clone(), &self.state, send, recv));
    }

    /// Checks whether the connection is to end, and sends GOAWAY then. Returns the next event.
    async fn handle_time(&mut self, event: ConnectionEvent, control: &mut SendStream) -> WakeGated<ConnectionEvent> {
        if let ConnectionEvent::CheckDue = event
            && !self.is_shutting_down
        {
            let (now, idle_timeout) = (Instant::now(), self.server.state.config.idle_timeout);
            let check_at = self.state.quiet_until(idle_timeout).unwrap_or(now + idle_timeout);
            if check_at > now && !self.clients.has_reached_max_requests() {
                return next_event(&self.phase, Phase::Lingering, Some(check_at));
            }
        }
        self.is_shutting_down = true;
        match self.state.with(Http3::go_away) {
            Some(frame) => self.write_control(control, &frame, MAX_CLOSE).await,
            None => self.is_closing = true,
        }
        let again = (!self.is_closing).then(|| Instant::now() + self.goaway_interval());
        next_event(&self.phase, Phase::Cut, again)
    }

    /// Writes a frame, and before it the rest of an earlier one. A client that grants its control stream no credit is
    /// not waited for longer than `bound`.
    async fn write_control(&mut self, control: &mut SendStream, frame: &[u8], bound: Duration) {
        self.unwritten.extend_from_slice(frame);
        let write = async {
            while !self.unwritten.is_empty() {
                // Fails if the connection is lost.
                let Ok(written) = control.write(&self.unwritten).await else { return };
                self.unwritten.drain(..written);
            }
        };
        let _ = timeout(bound, write).await;
    }

    /// How long the client has for what it has sent before the first GOAWAY, and to get the second, even if it is lost
    /// several times. The connections of a process do not end in one instant.
    fn goaway_interval(&self) -> Duration {
        let interval = (3 * self.state.quic.rtt()).clamp(MIN_GOAWAY_INTERVAL, MAX_CLOSE);
        match self.state.with(|http| http.has_sent_last_goaway()) {
            false => interval,
            true => interval.max(FAREWELL) + FAREWELL.mul_f64(spread(self.state.quic.stable_id())),
        }
    }

    fn count_faults(&self) {
        for fault in self.state.faults() {
            self.server.state.metrics.http3_fault(fault);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server.state.clients.record_quic(self.clients.proven_ip(), self.state.quic.rtt());
        self.state.quic.close(varint(ErrorCode::NO_ERROR), b"");
        self.count_faults();
    }
}

/// A number from 0 to 1 that differs from connection to connection.
fn spread(connection: usize) -> f64 {
    const STEPS: u16 = 1_024;
    let step = connection.wrapping_mul(0x9e37_79b9) >> 7;
    f64::from(u16::try_from(step % usize::from(STEPS)).unwrap_or_default()) / f64::from(STEPS)
}

/// Reads a unidirectional stream of the client.
async fn read_uni(state: Arc<Http3State>, mut recv: RecvStream) {
    let mut stream = UniStream::new();
    loop {
        let read = match recv.read_chunk(UNI_READ_BYTES, true).await {
            Ok(Some(chunk)) => state.with(|http| stream.handle_input(http, &chunk.bytes)),
            Ok(None) | Err(ReadError::Reset(_)) => match stream.handle_end() {
                Ok(()) => return,
                Err(code) => Err(code),
            },
            Err(_) => return,
        };
        match read {
            Ok(Reading::Continue) => {
                // The client may have sent GOAWAY.
                if state.is_over(false) {
                    state.changed.notify_one();
                }
            }
            Ok(Reading::Stop(code)) => {
                // Fails if everything was received.
                let _ = recv.stop(varint(code));
                return;
            }
            Err(code) => return state.fail(code),
        }
    }
}
