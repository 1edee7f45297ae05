//! `packet balance explain`: which edge or machine would get a packet, and why.

use std::net::IpAddr;

use clap::Args;
use sallyport_cli::{
    failure::Failure,
    output::{Output, pairs},
};
use sallyport_xdp::{Question, Reason, XdpError, balance::Balancer};
use serde::Serialize;

use super::state::State;
use crate::{
    command::{device_of, kernel, name_of},
    config::protocol,
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet balance explain 198.51.100.7 203.0.113.10 tcp 40000 443
  sallyport packet balance explain 198.51.100.7 203.0.113.10 tcp 40000 443 --size 1500";

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The source
    source: IpAddr,
    /// The destination: a virtual address, or an egress address
    destination: IpAddr,
    /// The protocol: tcp, udp, icmp, or a number
    #[arg(default_value = "icmp", value_parser = protocol)]
    protocol: u8,
    /// The port of the source
    #[arg(default_value_t = 0)]
    source_port: u16,
    /// The port of the destination
    #[arg(default_value_t = 0)]
    destination_port: u16,
    /// The device that the packet comes in by; otherwise the first one of the balancer
    #[arg(long, value_name = "DEVICE")]
    from: Option<String>,
    /// The length of the packet with the header of IP
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=3_000))]
    size: u16,
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
    if args.source.is_ipv4() != args.destination.is_ipv4() {
        return Err(Failure::usage("the source and the destination are of two families of IP").into());
    }
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
    let question = Question {
        source: args.source,
        destination: args.destination,
        protocol: args.protocol,
        ports: (args.source_port, args.destination_port),
        length: args.size,
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
