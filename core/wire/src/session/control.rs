//! The control messages of a session: greeting, tunnels, legs, GOAWAY, request records.

use std::time::{Duration, Instant};

use sallyport_model::{FlowRecord, HealthRecord, LinkReport, RequestRecord, TunnelId};

use super::{
    DownReason, Event, KEEPALIVE_BOUNDS, MAX_MISSED_LIMIT, MAX_QUEUED_LOG_EVENTS, MAX_REFUSED_ATTACHMENTS, MAX_STREAMS,
    MAX_STREAMS_OF_ONE_WINDOW, MAX_TUNNELS_PER_SESSION, MAX_WINDOW_BYTES, MIN_WINDOW_BYTES, Phase, Session,
    keepalive::Keepalive,
};
use crate::{
    Attach, Attached, Detach, Edges, FrameType, GoAway, Hello, Links, Neighbours, NotAttached, Refusal, Side, VERSION,
    Violation, Welcome,
    frame::put_frame,
    message::{LogRecord, bad, decode_request_log, feature},
};

/// Decisions of the driver.
impl Session {
    /// Requests the attachment of a tunnel, now or as soon as the session is established (connector). Requests beyond
    /// [`super::MAX_TUNNELS_PER_SESSION`] are ignored.
    pub fn attach(&mut self, attach: Attach) {
        if self.side != Side::Connector || self.tunnels.len() + self.unanswered.len() >= MAX_TUNNELS_PER_SESSION {
            return;
        }
        match self.phase {
            Phase::Over => {}
            Phase::Greeting if self.early_attach.len() < MAX_TUNNELS_PER_SESSION => self.early_attach.push(attach),
            Phase::Greeting => {}
            Phase::Up => {
                self.unanswered.insert(attach.tunnel, attach.request_log);
                attach.encode(self.out.control());
            }
        }
    }

    /// Detaches a tunnel. From the connector: it accepts no new streams of the tunnel. From the edge: the connector no
    /// longer holds the tunnel. Running streams continue.
    pub fn detach(&mut self, tunnel: TunnelId, code: &str, message: &str) {
        self.early_attach.retain(|attach| attach.tunnel != tunnel);
        let known = self.tunnels.remove(&tunnel).is_some() | self.unanswered.remove(&tunnel).is_some();
        if known && self.phase == Phase::Up {
            let detach = Detach { tunnel, code: code.to_owned(), message: message.to_owned() };
            detach.encode(self.out.control());
        }
    }

    /// Grants [`Event::AttachRequested`]: the tunnel is attached (edge). Without effect if the connector has withdrawn
    /// its request; [`Event::Detached`] reports that.
    pub fn accept_attach(&mut self, tunnel: TunnelId, url: String) {
        self.accept(Attached { tunnel, url, datagrams: false });
    }

    /// Like [`Self::accept_attach`], for a tunnel that carries datagrams: the connector opens a datagram leg.
    pub fn accept_datagrams(&mut self, tunnel: TunnelId, url: String) {
        self.accept(Attached { tunnel, url, datagrams: true });
    }

    fn accept(&mut self, attached: Attached) {
        let tunnel = attached.tunnel;
        let Some(request_log) = self.unanswered.remove(&tunnel).filter(|_| self.side == Side::Edge) else {
            return;
        };
        self.tunnels.insert(tunnel, request_log);
        self.deadline = None;
        attached.encode(self.out.control());
    }

    /// Denies [`Event::AttachRequested`] (edge). Too many denials end a session without an attached tunnel.
    pub fn refuse_attach(&mut self, tunnel: TunnelId, refusal: Refusal) {
        if self.side != Side::Edge || self.phase != Phase::Up {
            return;
        }
        if self.unanswered.remove(&tunnel).is_some() {
            NotAttached { tunnel, refusal }.encode(self.out.control());
        }
        // Counted even if the request is no longer pending: a peer may request one tunnel many times at once.
        self.refused = self.refused.saturating_add(1);
        if self.tunnels.is_empty() && self.refused >= MAX_REFUSED_ATTACHMENTS {
            let reason = DownReason::TooManyRefused;
            Refusal::new("nothing-attached", &reason.to_string(), true).encode(self.out.control());
            self.go_down(reason);
        }
    }

    /// Requests this many more legs (edge).
    pub fn ask_for_legs(&mut self, count: u16) {
        if self.side == Side::Edge && self.phase == Phase::Up && count > 0 {
            put_frame(self.out.control(), FrameType::Legs, |out| out.extend_from_slice(&count.to_be_bytes()));
        }
    }

    /// Announces the edge's name and the other edges (edge): in WELCOME before it is sent, and by EDGES afterwards.
    /// Connectors without the feature get only the name.
    pub fn announce_edges(&mut self, neighbours: &Neighbours) {
        if self.side != Side::Edge || self.phase == Phase::Over {
            return;
        }
        let Neighbours { edge, region, edges, leave } = neighbours.clone();
        match &mut self.welcome {
            Some(welcome) => {
                (welcome.edge, welcome.region, welcome.edges, welcome.leave) = (edge, region, edges, leave);
            }
            None if self.has_edges => Edges { edges, leave }.encode(self.out.control()),
            None => {}
        }
    }

    /// Announces that no new streams are accepted on this session. Running streams continue.
    pub fn go_away(&mut self, code: &str, message: &str) {
        if self.phase != Phase::Up {
            self.going_away = true;
            return;
        }
        if !std::mem::replace(&mut self.going_away, true) {
            GoAway { code: code.to_owned(), message: message.to_owned() }.encode(self.out.control());
        }
    }

    /// Refuses the whole session and ends it (edge). Send the output of `poll_transmit`, then close.
    pub fn refuse(&mut self, refusal: Refusal) {
        if self.side == Side::Edge && self.phase != Phase::Over {
            refusal.encode(self.out.control());
            self.end();
        }
    }

    /// Reports the links of this machine, if the edge wants reports (connector).
    pub fn report_links(&mut self, links: Vec<LinkReport>) {
        if self.phase == Phase::Up && self.wants_links {
            Links { links }.encode(self.out.control());
        }
    }

    /// Sends the record of a request; false if the connector wants none or there is no room (edge).
    pub fn send_request_log(&mut self, record: &RequestRecord) -> bool {
        self.side == Side::Edge && self.phase == Phase::Up && self.wants_log() && self.out.log(record)
    }

    /// Sends the record of a flow, as [`Self::send_request_log`]; false also if the connector does not support flow
    /// records (edge).
    pub fn send_flow_log(&mut self, record: &FlowRecord) -> bool {
        self.side == Side::Edge
            && self.phase == Phase::Up
            && self.has_flow_log
            && self.wants_log()
            && self.out.log(record)
    }

    /// Sends a health change of an origin, as [`Self::send_request_log`]; false also if the connector does not support
    /// health records (edge).
    pub fn send_health_log(&mut self, record: &HealthRecord) -> bool {
        self.side == Side::Edge
            && self.phase == Phase::Up
            && self.has_health_log
            && self.wants_log()
            && self.out.log(record)
    }

    /// Whether the peer wants records. Between edges always: the other edge forwards them to its connectors.
    fn wants_log(&self) -> bool {
        self.is_between_edges || self.tunnels.values().any(|wants| *wants)
    }

    fn is_known(&self, tunnel: TunnelId) -> bool {
        self.tunnels.contains_key(&tunnel) || self.unanswered.contains_key(&tunnel)
    }
}

/// Messages of the peer.
impl Session {
    pub(super) fn on_hello(&mut self, payload: &[u8], now: Instant) -> Result<(), Violation> {
        let hello = Hello::decode(payload)?;
        if !hello.versions.contains(&VERSION) {
            let message = format!("this edge speaks version {VERSION} of the tunnel protocol only");
            self.refuse(Refusal::new("version", &message, false));
            self.events.push_back(Event::Down(DownReason::Version));
            return Ok(());
        }
        self.has_open_fields = hello.has(feature::OPEN_FIELDS);
        self.has_flow_log = hello.has(feature::FLOW_LOG);
        self.has_health_log = hello.has(feature::HEALTH_LOG);
        self.has_edges = hello.has(feature::EDGES);
        if let Some(mut welcome) = self.welcome.take() {
            if !self.has_open_fields {
                self.max_streams = self.max_streams.min(MAX_STREAMS_OF_ONE_WINDOW);
                welcome.max_streams = self.max_streams;
            }
            if !self.has_edges {
                (welcome.edges, welcome.leave) = (Vec::new(), false);
            }
            welcome.encode(self.out.control());
        }
        if self.going_away {
            let message = "the edge is going away".to_owned();
            GoAway { code: "shutting-down".to_owned(), message }.encode(self.out.control());
        }
        self.phase = Phase::Up;
        self.keepalive.probe(now);
        self.events.push_back(Event::HelloReceived(hello));
        Ok(())
    }

    pub(super) fn on_welcome(&mut self, payload: &[u8], now: Instant) -> Result<(), Violation> {
        let welcome = Welcome::decode(payload)?;
        if !self.offered.contains(&welcome.version) || welcome.version != VERSION {
            return Err(Violation::VersionNotOffered { version: welcome.version });
        }
        let every = Duration::from_millis(welcome.keepalive_ms);
        let in_bounds = every >= KEEPALIVE_BOUNDS.0
            && every <= KEEPALIVE_BOUNDS.1
            && (1..=MAX_MISSED_LIMIT).contains(&welcome.missed_limit)
            && (MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&welcome.stream_window)
            && (1..=MAX_STREAMS).contains(&welcome.max_streams);
        if !in_bounds {
            return Err(bad(FrameType::Welcome, "a value in it is beyond all bounds".to_owned()));
        }
        self.window = welcome.stream_window;
        self.max_streams = welcome.max_streams;
        // The connector keeps its own interval if that is shorter: its network may drop idle connections sooner.
        self.keepalive = Keepalive::new(every.min(self.keepalive.every()), welcome.missed_limit, now);
        self.keepalive.probe(now);
        self.deadline = None;
        self.phase = Phase::Up;
        self.wants_links = welcome.link_reports && !self.is_between_edges;
        self.events.push_back(Event::Welcome(welcome));
        for attach in std::mem::take(&mut self.early_attach) {
            self.attach(attach);
        }
        Ok(())
    }

    pub(super) fn on_refused(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let refusal = Refusal::decode(payload)?;
        self.end();
        self.events.push_back(Event::Refused(refusal));
        Ok(())
    }

    pub(super) fn on_attach(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let attach = Attach::decode(payload)?;
        let tunnel = attach.tunnel;
        if self.is_between_edges {
            let refusal = Refusal::new("protocol", "nothing is attached to a session between edges", false);
            NotAttached { tunnel, refusal }.encode(self.out.control());
            return Ok(());
        }
        if !self.is_known(tunnel) && self.tunnels.len() + self.unanswered.len() >= MAX_TUNNELS_PER_SESSION {
            let message = format!("a session has at most {MAX_TUNNELS_PER_SESSION} tunnels");
            let refusal = Refusal::new("busy", &message, true);
            NotAttached { tunnel, refusal }.encode(self.out.control());
            return Ok(());
        }
        self.unanswered.insert(tunnel, attach.request_log);
        self.control_event(FrameType::Attach, Event::AttachRequested(attach))
    }

    pub(super) fn on_attached(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let Attached { tunnel, url, datagrams } = Attached::decode(payload)?;
        // Without a pending request the answer crossed the DETACH.
        if let Some(request_log) = self.unanswered.remove(&tunnel) {
            self.tunnels.insert(tunnel, request_log);
            return self.control_event(FrameType::Attached, Event::Attached { tunnel, url, datagrams });
        }
        Ok(())
    }

    pub(super) fn on_not_attached(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let NotAttached { tunnel, refusal } = NotAttached::decode(payload)?;
        if self.unanswered.remove(&tunnel).is_some() {
            return self.control_event(FrameType::NotAttached, Event::NotAttached { tunnel, refusal });
        }
        Ok(())
    }

    pub(super) fn on_detach(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let Detach { tunnel, code, message } = Detach::decode(payload)?;
        if self.tunnels.remove(&tunnel).is_some() | self.unanswered.remove(&tunnel).is_some() {
            return self.control_event(FrameType::Detach, Event::Detached { tunnel, code, message });
        }
        Ok(())
    }

    pub(super) fn on_go_away(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let GoAway { code, message } = GoAway::decode(payload)?;
        self.going_away = true;
        self.control_event(FrameType::GoAway, Event::GoAway { code, message })
    }

    pub(super) fn on_edges(&mut self, payload: &[u8]) -> Result<(), Violation> {
        self.control_event(FrameType::Edges, Event::Edges(Edges::decode(payload)?))
    }

    pub(super) fn on_links(&mut self, payload: &[u8]) -> Result<(), Violation> {
        self.control_event(FrameType::Links, Event::Links(Links::decode(payload)?.links))
    }

    pub(super) fn on_request_log(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let event = match decode_request_log(payload)? {
            LogRecord::Request(record) => Event::RequestLog(record),
            LogRecord::Flow(record) => Event::FlowLog(record),
            LogRecord::Health(record) => Event::HealthLog(record),
        };
        if self.log_events < MAX_QUEUED_LOG_EVENTS {
            self.log_events += 1;
            self.events.push_back(event);
        }
        Ok(())
    }
}
