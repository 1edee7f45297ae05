//! What would happen to a packet, and why. Uses all other rooms.

mod sample;
mod text;

pub use sample::{MAX_SAMPLE_BYTES, Question, sample};

use std::time::Duration;

use crate::{
    filter::{Action, Filter},
    forward::{DropReason, PassReason, Router, Step, Verdict, admit, send},
    nat::{Direction, Nat},
    parse::parse,
    route::{Cells, Found, NextHop},
};

/// What a packet passes through. A NAT is between the two halves of the router. The filter sees the addresses of the
/// inside.
#[derive(Clone, Copy)]
pub struct Path<'a, C> {
    /// The router.
    pub router: &'a Router<C>,
    /// The NAT, if there is one.
    pub nat: Option<&'a Nat>,
    /// The filter, if there is one.
    pub filter: Option<&'a Filter>,
    /// The name of an interface or device by its index.
    pub name: &'a dyn Fn(u32) -> String,
}

/// What would happen to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What happens.
    pub verdict: Verdict,
    /// Why: a sentence for each step. The last one says what happens.
    pub lines: Vec<String>,
    /// The bytes that leave, or those that came.
    pub frame: Vec<u8>,
}

/// Explains a frame that comes by a port. Nothing changes: a session that it would begin is forgotten.
#[must_use]
pub fn explain<C: Cells>(path: &Path<'_, C>, port: u32, frame: &[u8], now: Duration) -> Explanation {
    let mut lines = Vec::new();
    let (verdict, frame) = match pass_through(path, port, frame, now, &mut lines) {
        Ok((port, frame)) => (Verdict::Forward { port }, frame),
        Err(verdict) => (verdict, frame.to_vec()),
    };
    lines.push(text::verdict(verdict, path.name));
    Explanation { verdict, lines, frame }
}

/// The first half of the router, the NAT, the second half, the filter. Returns the port by which the frame leaves, and
/// the frame.
fn pass_through<C: Cells>(
    path: &Path<'_, C>,
    port: u32,
    frame: &[u8],
    now: Duration,
    lines: &mut Vec<String>,
) -> Result<(u32, Vec<u8>), Verdict> {
    let mut steps: Vec<Step> = Vec::new();
    let admitted = admit(path.router, port, frame, &mut steps);
    let incoming = steps.iter().find_map(|step| match step {
        Step::CameBy(incoming) => Some(*incoming),
        _ => None,
    });
    lines.extend(steps.iter().filter_map(|step| text::step(path, step, incoming)));
    let packet = admitted?;
    // The packet as the router sends it, and as the filter sees it.
    let (mut translated, mut sent, mut seen) = (frame.to_vec(), packet, packet);
    if let Some(nat) = path.nat {
        let translation = nat.clone().translate(frame, &packet, now)?;
        sent = parse(&translation.frame).map_err(|error| Verdict::Drop(DropReason::Malformed(error)))?;
        lines.extend(text::translation(translation.direction, &packet, &sent));
        if translation.direction != Direction::Outbound {
            seen = sent;
        }
        translated = translation.frame;
    }
    let mut steps: Vec<Step> = Vec::new();
    let outcome = send(path.router, &translated, &sent, &mut steps);
    lines.extend(steps.iter().filter_map(|step| text::step(path, step, incoming)));
    let outgoing = steps.iter().find_map(|step| match step {
        Step::Route { found: Some(Found { next_hop: NextHop::Forward { interface, .. }, .. }), .. } => Some(*interface),
        _ => None,
    });
    let test = path.filter.filter(|_| outgoing.is_some());
    let test = test.and_then(|filter| Some((filter, filter.test(&seen, (incoming, outgoing), now)?)));
    if let Some((filter, (facts, decision))) = test {
        lines.extend(text::decision(&filter.policy, &facts, decision));
        match decision.action {
            Action::Accept => {}
            Action::Drop => return Err(Verdict::Drop(DropReason::Policy)),
            Action::Reject => return Err(Verdict::Pass(PassReason::PolicyReject)),
        }
    }
    outcome
}
