//! Admission of flows: the access list, the policies and the limits of a socket.

use std::{
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use sallyport_model::{Identity, SocketRoute};
use sallyport_net::Pace;

use crate::{
    access::{self, Access, AccessRequest, Ruling},
    metrics::verdict::Verdict,
    origins::{affinity::AffinityHint, pool::SocketPool, rules::Rules},
    policy::limits::{Full, Meter, Place},
    record::flow::FlowContext,
};

/// Why a flow is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionError {
    /// The access list or the policies refuse it.
    Denied,
    /// A limit of the socket is reached.
    Limited {
        /// After how long another try may succeed.
        retry_after: Duration,
    },
}

impl From<Full> for AdmissionError {
    fn from(full: Full) -> Self {
        Self::Limited { retry_after: full.retry_after }
    }
}

impl From<AdmissionError> for Verdict {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Denied => Self::Denied,
            AdmissionError::Limited { .. } => Self::Limited,
        }
    }
}

/// An admitted flow's place among the socket's limits, released when dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    _place: Option<Place>,
    meter: Meter,
    hint: AffinityHint,
}

impl Pass {
    /// Which origin the flow prefers.
    pub(crate) fn hint(&self) -> &AffinityHint {
        &self.hint
    }

    /// Counts the flow's bytes against the socket's limits.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }
}

/// Admits a flow: access list, then policies, then a place within the limits, which may be waited for.
///
/// # Errors
/// [`AdmissionError::Denied`] or [`AdmissionError::Limited`].
pub(crate) async fn admit_flow(
    access: &Access,
    route: &Arc<SocketRoute>,
    pool: &Arc<SocketPool>,
    client: IpAddr,
    identity: Option<&Identity>,
    context: &mut FlowContext,
) -> Result<Pass, AdmissionError> {
    let rules = check_address(access, route, pool, client)?;
    if let Some(ruling) = judge(access, &rules, client, identity) {
        context.record_decision(identity, ruling.rule);
        access.state.metrics.identity(if ruling.allowed { "allowed" } else { "denied" });
        if !ruling.allowed {
            return Err(AdmissionError::Denied);
        }
    }
    take_place(pool, AffinityHint::of_flow(&rules, &access.state.config.affinity_key, client)).await
}

/// The decision of the socket's policies on a flow that is not HTTP; `None` if the socket has no policies.
pub(crate) fn judge(access: &Access, rules: &Rules, client: IpAddr, identity: Option<&Identity>) -> Option<Ruling> {
    let port = rules.route().port.unwrap_or(access.state.config.public_port);
    let request = AccessRequest { client, method: None, path: None, port };
    Some(rules.judge()?.decide(identity, &request, access.state.config.geo.as_deref(), access::now()))
}

/// Checks the access list of the socket, and returns its rules.
///
/// # Errors
/// [`AdmissionError::Denied`].
pub(crate) fn check_address(
    access: &Access,
    route: &Arc<SocketRoute>,
    pool: &Arc<SocketPool>,
    client: IpAddr,
) -> Result<Arc<Rules>, AdmissionError> {
    let rules = pool.rules(route);
    if rules.admit(client, access.state.config.geo.as_deref()) { Ok(rules) } else { Err(AdmissionError::Denied) }
}

/// Takes a place among the flows of the socket, and waits for one if the limits say so. The caller has checked the
/// address.
///
/// # Errors
/// [`AdmissionError::Limited`].
pub(crate) async fn take_place(pool: &SocketPool, hint: AffinityHint) -> Result<Pass, AdmissionError> {
    let place = pool.bounds().enter().await?;
    Ok(Pass { _place: place, meter: Meter::new(pool.bounds().clone()), hint })
}

/// Takes a place among the flows of the socket without waiting. If all are taken, `make_way` may release one. The
/// caller has checked the address.
///
/// # Errors
/// [`AdmissionError::Limited`].
pub(crate) fn take_place_now(
    pool: &SocketPool,
    hint: AffinityHint,
    make_way: impl FnOnce() -> bool,
) -> Result<Pass, AdmissionError> {
    let place = pool.bounds().enter_now(make_way)?;
    Ok(Pass { _place: place, meter: Meter::new(pool.bounds().clone()), hint })
}

impl Pace for Pass {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.meter.poll_ready(cx)
    }
    fn moved(&mut self, bytes: usize) {
        self.meter.moved(bytes);
    }
}
