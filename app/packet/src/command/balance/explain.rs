//! `packet balance explain`: which edge or machine would get a packet, and why.

use clap::Args;
use sallyport_cli::{
    failure::Failure,
    output::{Output, pairs},
};
use sallyport_xdp::{Reason, XdpError, balance::Balancer};
use serde::Serialize;

use super::state::State;
use crate::command::{device_of, kernel, name_of, question::QuestionArgs};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet balance explain 198.51.100.7 203.0.113.10 tcp 40000 443
  sallyport packet balance explain 198.51.100.7 203.0.113.10 tcp 40000 443 --size 1500";

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    packet: QuestionArgs,
    /// The device that the packet comes in by; otherwise the first one of the balancer
    #[arg(long, value_name = "DEVICE")]
    from: Option<String>,
}

#[derive(Debug, Serialize)]
struct VerdictView {
    action: &'static str,
    reason: &'static str,
    meaning: &'static str,
    /// The edge, machine or site.
    target: Option<String>,
    /// The edge that gets it next, if the first has no such connection.
    second: Option<String>,
    /// What decided: `connection`, `connection-id` or `slot`.
    by: Option<&'static str>,
    slot: Option<u32>,
    to: Option<String>,
    /// The longest packet that fits.
    mtu: Option<u32>,
}

/// Explains it.
pub(super) async fn explain(output: Output, balancer: &Balancer, args: ExplainArgs) -> anyhow::Result<()> {
    let question = args.packet.question()?;
    let mut state = State::standing(balancer)?.ok_or(XdpError::NoBalancer)?;
    let tables = state.compile()?;
    let ports = balancer.ports()?;
    let (_, devices) = kernel().await?;
    let from = match &args.from {
        Some(name) => {
            let device = device_of(&devices, name)?;
            let port = ports.iter().find(|port| port.ifindex == device.index);
            *port.ok_or_else(|| Failure::usage(format!("{name} is no device of the balancer")))?
        }
        None => *ports.first().ok_or(XdpError::NoBalancer)?,
    };
    let verdict = balancer.runner()?.explain(&question, &from)?;
    let name = |number: Option<u16>| {
        let target = number.and_then(|number| tables.targets.get(&number));
        target.map(|target| format!("{} ({})", target.name, target.address))
    };
    let is_edge =
        !matches!(verdict.reason, Reason::Slice | Reason::Site | Reason::SliceFree) && verdict.target.is_some();
    let by = match (verdict.is_remembered, verdict.is_by_id) {
        (true, _) => "connection",
        (_, true) => "connection-id",
        _ => "slot",
    };
    let view = VerdictView {
        action: verdict.reason.action().name(),
        reason: verdict.reason.name(),
        meaning: verdict.reason.sentence(),
        target: name(verdict.target),
        second: name(verdict.second),
        by: is_edge.then_some(by),
        slot: is_edge.then_some(verdict.slot),
        to: verdict.to.map(|index| name_of(&devices, index)),
        mtu: verdict.mtu,
    };
    output.data(&view, |view| {
        let mut rows =
            vec![("verdict", format!("{} ({})", view.action, view.reason)), ("why", view.meaning.to_owned())];
        rows.extend(view.target.clone().map(|target| ("goes to", target)));
        rows.extend(view.second.clone().map(|second| ("second", second)));
        rows.extend(view.by.map(|by| ("chosen by", by.to_owned())));
        rows.extend(view.slot.map(|slot| ("slot", slot.to_string())));
        rows.extend(view.to.clone().map(|to| ("device", to)));
        rows.extend(view.mtu.map(|mtu| ("longest", mtu.to_string())));
        pairs(&rows)
    })
}
