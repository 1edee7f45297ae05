//! One end of a control connection.

mod event;

use std::time::{Duration, Instant};

pub use event::{DownReason, Event, OpenError, Read, SessionConfig, StreamError, StreamId, TimeoutReason};
use sallyport_model::{RequestRecord, TunnelId};

use crate::{Attach, Hello, Open, OpenFailure, Refusal, ResetCode, Violation};

/// One end of a control connection.
#[derive(Debug)]
pub struct Session {}

#[allow(missing_docs, unused_variables)]
impl Session {
    #[must_use]
    pub fn connector(hello: Hello, config: SessionConfig, now: Instant) -> Self {
        Self {}
    }
    #[must_use]
    pub fn edge(config: SessionConfig, session_id: [u8; 16], leg_secret: [u8; 32], now: Instant) -> Self {
        Self {}
    }
    pub fn handle_input(&mut self, bytes: &[u8], now: Instant) -> Result<(), Violation> {
        Ok(())
    }
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, max_bytes: usize, now: Instant) -> usize {
        0
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, TimeoutReason)> {
        None
    }
    pub fn handle_timeout(&mut self, now: Instant) {}
    #[must_use]
    pub fn is_closing(&self) -> bool {
        false
    }
    #[must_use]
    pub fn is_drained(&self) -> bool {
        true
    }
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        None
    }
    #[must_use]
    pub fn stream_count(&self) -> usize {
        0
    }
    pub fn attach(&mut self, attach: Attach) {}
    pub fn detach(&mut self, tunnel: TunnelId, code: &str, message: &str) {}
    pub fn accept_attach(&mut self, tunnel: TunnelId, url: String) {}
    pub fn refuse_attach(&mut self, tunnel: TunnelId, refusal: Refusal) {}
    pub fn ask_for_legs(&mut self, count: u16) {}
    pub fn go_away(&mut self, code: &str, message: &str) {}
    pub fn refuse(&mut self, refusal: Refusal) {}
    pub fn send_request_log(&mut self, record: &RequestRecord) -> bool {
        false
    }
    pub fn open(&mut self, open: Open) -> Result<StreamId, OpenError> {
        Err(OpenError::NotUp)
    }
    pub fn opened(&mut self, id: StreamId) {}
    pub fn failed(&mut self, id: StreamId, failure: OpenFailure) {}
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        Err(StreamError::Closed)
    }
    pub fn read(&mut self, id: StreamId, buf: &mut [u8], now: Instant) -> Result<Read, StreamError> {
        Err(StreamError::Closed)
    }
    pub fn finish(&mut self, id: StreamId) {}
    pub fn reset(&mut self, id: StreamId, code: ResetCode) {}
}
