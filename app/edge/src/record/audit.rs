//! The audit event of a request or flow that has ended, and the entry of a running one in the list of live flows.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use sallyport_api::{AuditEvent, AuditFlow};
use sallyport_audit::AuditSink;
use sallyport_bus::{Directory, LiveFlow};
use sallyport_model::{OriginRef, SocketRoute};

use crate::{origins::transport::OriginTransport, state::EdgeState};

/// The longest path in a record, in characters.
const MAX_PATH_CHARS: usize = 1_024;
/// The longest method in a record, in characters.
const MAX_METHOD_CHARS: usize = 32;

/// A request or flow with a record of its end.
pub(crate) struct Audited {
    sink: Arc<dyn AuditSink>,
    directory: Directory,
    route: Arc<SocketRoute>,
    began: SystemTime,
}

/// What is known of a request or flow at its end.
pub(crate) struct Use<'a> {
    pub(crate) id: &'a str,
    pub(crate) client: SocketAddr,
    pub(crate) transport: Option<&'a OriginTransport>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) verdict: &'a str,
    /// The identity, and the identity provider.
    pub(crate) identity: Option<(&'a str, Option<&'a str>)>,
    pub(crate) rule: Option<&'a str>,
    /// Method, path and status.
    pub(crate) http: Option<(&'a str, &'a str, u16)>,
}

impl Audited {
    /// The recorder for a flow of this socket; `None` if its use is not recorded.
    pub(crate) fn when_wanted(
        state: &EdgeState,
        route: &Arc<SocketRoute>,
        began: impl FnOnce() -> SystemTime,
    ) -> Option<Self> {
        let audit = state.config.audit.as_ref()?;
        let asks = route.settings.identity.is_some() || !route.policies.is_empty();
        (audit.all || asks).then(|| Self {
            sink: audit.sink.clone(),
            directory: state.directory.clone(),
            route: route.clone(),
            began: began(),
        })
    }

    /// Records the end.
    pub(crate) fn record(self, end: Use<'_>) {
        let now = SystemTime::now();
        let origin = end.transport.map(OriginTransport::origin);
        let tunnel = origin.and_then(OriginRef::tunnel);
        let direct = origin.and_then(OriginRef::direct).and_then(|id| self.route.origin(id));
        let relayed = end.transport.and_then(OriginTransport::relayed_connector);
        let held_here = || Some(self.directory.get(tunnel?)?.connector_addr);
        let short = |text: &str, max: usize| text.chars().take(max).collect::<String>();
        let flow = AuditFlow {
            id: end.id.to_owned(),
            socket: self.route.id,
            socket_name: self.route.name.as_str().to_owned(),
            tunnel,
            origin: relayed.or_else(held_here),
            direct_origin: direct.map(|origin| origin.address.to_string()),
            transport: self.route.socket_type.as_str().to_owned(),
            identity: end.identity.map(|(identity, _)| identity.to_owned()),
            provider: end.identity.and_then(|(_, provider)| provider).map(str::to_owned),
            client: end.client,
            began: sallyport_api::to_millisecond(self.began.into()),
            ended: sallyport_api::to_millisecond(now.into()),
            bytes_in: end.bytes_in,
            bytes_out: end.bytes_out,
            verdict: end.verdict.to_owned(),
            rule: end.rule.map(str::to_owned),
            method: end.http.map(|(method, ..)| short(method, MAX_METHOD_CHARS)),
            path: end.http.map(|(_, path, _)| short(path, MAX_PATH_CHARS)),
            status: end.http.map(|(.., status)| status),
        };
        self.sink.record(AuditEvent::flow(now.into(), Some(self.route.account), flow));
    }
}

/// The entry of a flow that begins in the list of live flows.
pub(crate) fn live_flow(id: &str, route: &SocketRoute, client: SocketAddr, began: SystemTime) -> LiveFlow {
    let of = (route.account, route.id, route.name.clone(), route.socket_type);
    LiveFlow::new(id.to_owned(), of, client, began)
}
