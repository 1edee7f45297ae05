//! Step 6 of a flow's path: its records.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use sallyport_bus::FlowGuard;
use sallyport_model::{FlowRecord, Identity, SocketRoute};
use sallyport_net::RelayCounts;

use crate::{
    metrics::{
        Metrics, SocketMetrics,
        recent::{Entry, EntryId},
        socket_counts,
        verdict::Verdict,
    },
    origins::{pool::SocketPool, transport::OriginTransport},
    record::audit::{self, Audited, Use},
    state::EdgeState,
};

/// A running flow. The fields of its [`LiveFlow`](sallyport_bus::LiveFlow) are stored only there.
pub(crate) struct FlowContext {
    began: Instant,
    at_ms: i64,
    transport: Option<OriginTransport>,
    carried: RelayCounts,
    metrics: Metrics,
    of_socket: Arc<SocketMetrics>,
    access_log: bool,
    identity: Option<String>,
    provider: Option<Box<str>>,
    rule: Option<String>,
    audit: Option<Audited>,
    live: FlowGuard,
}

impl FlowContext {
    /// A flow that begins now.
    pub(crate) fn new(state: &EdgeState, route: &Arc<SocketRoute>, pool: &SocketPool, client: SocketAddr) -> Self {
        let wall = SystemTime::now();
        let at = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = state.ids.next();
        Self {
            began: Instant::now(),
            at_ms: i64::try_from(at.as_millis()).unwrap_or(i64::MAX),
            audit: Audited::when_wanted(state, route, || wall),
            live: state.config.flows.begin(audit::live_flow(id.as_str(), route, client, wall)),
            transport: None,
            carried: RelayCounts::default(),
            metrics: state.metrics.clone(),
            of_socket: pool.metrics(|| state.metrics.of_socket(route.name.as_str())),
            access_log: state.config.access_log,
            identity: None,
            provider: None,
            rule: None,
        }
    }

    /// When the flow began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Sets the transport to the origin that took the flow, or that was tried last.
    pub(crate) fn set_transport(&mut self, transport: OriginTransport) {
        self.live.flow().goes_to(transport.origin());
        self.transport = Some(transport);
    }

    /// Records the rule that decided about admission.
    pub(crate) fn record_decision(&mut self, identity: Option<&Identity>, rule: String) {
        let label = identity.map(Identity::label);
        self.provider = identity.map(|identity| identity.provider().into());
        tracing::debug!(id = self.live.flow().id, identity = label, rule, "the policies decided about a flow");
        if let Some(label) = &label {
            self.live.flow().set_identity(label.clone());
        }
        (self.identity, self.rule) = (label, Some(rule));
    }

    /// Its entry in the list of live flows, through which the API can end it.
    pub(crate) fn live(&self) -> &FlowGuard {
        &self.live
    }

    /// Sets the number of relayed bytes.
    pub(crate) fn set_carried(&mut self, carried: RelayCounts) {
        self.carried = carried;
    }

    /// Records the end of the flow.
    pub(crate) fn ended(self, verdict: Verdict) {
        self.over(verdict, None);
    }

    /// Records the end of a flow that may have been refused before it had a tunnel. The owner then gets its line
    /// through any tunnel that is up.
    pub(crate) fn ended_in(self, pool: &SocketPool, verdict: Verdict) {
        let other = if self.transport.is_none() { pool.any_up() } else { None };
        self.over(verdict, other.as_ref());
    }

    fn over(self, verdict: Verdict, other: Option<&OriginTransport>) {
        let RelayCounts { forth, back } = self.carried;
        let flow = self.live.flow();
        self.metrics.flow_ended(flow.transport.as_str(), verdict.as_str());
        self.of_socket.carried(forth, back);
        let duration = self.began.elapsed();
        let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let (counts, ended) = (&self.of_socket.counts, self.began + duration);
        let origin = self.transport.as_ref().map(OriginTransport::origin);
        let (took, bytes) = (Some(duration), (forth, back));
        counts.flow_ended(verdict);
        counts.used(&socket_counts::Use { ended, took, first_byte: None, origin, bytes });
        if let Some((transport, omitted_before)) =
            self.transport.as_ref().or(other).and_then(|transport| Some((transport, transport.log_turn()?)))
        {
            transport.log_flow(&FlowRecord {
                at_ms: self.at_ms,
                flow_id: flow.id.clone(),
                transport: flow.transport,
                verdict: verdict.as_str().to_owned(),
                bytes_in: forth,
                bytes_out: back,
                duration_us,
                client: flow.client,
                tunnel: transport.tunnel(),
                omitted_before,
                identity: self.identity.clone(),
                rule: self.rule.clone(),
            });
        }
        if let Some(audit) = self.audit.filter(|_| verdict != Verdict::Evicted) {
            audit.record(Use {
                id: &flow.id,
                client: flow.client,
                transport: self.transport.as_ref(),
                bytes_in: forth,
                bytes_out: back,
                verdict: verdict.as_str(),
                identity: self.identity.as_deref().map(|identity| (identity, self.provider.as_deref())),
                // The rule that admitted a flow is not the reason why it was cut off.
                rule: self.rule.as_deref().filter(|_| !matches!(verdict, Verdict::Killed | Verdict::Revoked)),
                http: None,
            });
        }
        // Flows that a flood evicts are counted only: their lines would fill the log.
        if self.access_log && verdict != Verdict::Evicted {
            tracing::info!(
                target: "access",
                id = flow.id,
                client = %flow.client,
                transport = flow.transport.as_str(),
                name = flow.socket_name.as_str(),
                at_ms = self.at_ms,
                bytes_in = forth,
                bytes_out = back,
                duration_us,
                socket = %flow.socket,
                tunnel = self.transport.as_ref().and_then(OriginTransport::tunnel).map(tracing::field::display),
                direct_origin = self.transport.as_ref().and_then(|transport| transport.origin().direct()).map(tracing::field::display),
                relayed_by = self.transport.as_ref().and_then(OriginTransport::relay).map(tracing::field::display),
                verdict = verdict.as_str(),
            );
        }
        if verdict != Verdict::Evicted {
            self.of_socket.ended.keep(ended, || Entry {
                id: EntryId::Flow(flow.id.as_str().into()),
                duration_us,
                first_byte_us: None,
                client: flow.client,
                origin,
                identity: self.identity.map(Into::into),
                rule: self.rule.map(Into::into),
                bytes: (forth, back),
                verdict: verdict.as_str(),
                http: None,
            });
        }
    }
}
