//! Quotas at the edge.

use std::{hint::black_box, time::Duration};

use sallyport_model::{OriginRef, TunnelId};
use sallyport_steer::{
    quota::{Applies, SocketQuotas, Taken, Turn},
    report::Quota,
};

use crate::Case;

pub(crate) const CASES: &[Case] = &[Case { name: "steer_request_of_3", rounds: 5_000, prepare: request }];

/// The time from one request to the next.
const GAP: Duration = Duration::from_millis(2);

/// What one request does with the quotas of a socket with three origins: it is counted, takes a unit, is sent, answered,
/// and ends.
fn request() -> Box<dyn FnMut()> {
    let origins: Vec<OriginRef> = (1..=3).map(|id| TunnelId::from_random([id; 16]).into()).collect();
    let mut quotas = SocketQuotas::default();
    let limited: Vec<_> = origins.iter().map(|origin| (*origin, Some(Quota::NOTHING))).collect();
    quotas.set_origins(&limited, Duration::ZERO);
    let quota = |rate| Quota { rate: Some(rate), connections: Some(100) };
    let rates = [(300_000, 400_000), (150_000, 400_000), (50_000, 400_000)];
    let assigned = origins.iter().zip(rates).map(|(origin, (plan, rate))| (*origin, plan, quota(rate)));
    quotas.assign(&assigned.collect::<Vec<_>>(), Applies::Fully, Duration::ZERO);
    let mut now = Duration::ZERO;
    Box::new(move || {
        now += GAP;
        let count = quotas.class_mut(0);
        count.arrived += 1;
        count.open += 1;
        let Taken::Now(at) = quotas.take(black_box(&origins), Turn::New, now, now) else {
            unreachable!("there is room")
        };
        quotas.record_sent(origins[at]);
        quotas.record_answer(origins[at], GAP, false);
        quotas.record_end(origins[at]);
        quotas.class_mut(0).open -= 1;
    })
}
