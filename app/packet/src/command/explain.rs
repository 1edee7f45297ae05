//! `packet explain`: what would become of a packet, and why.

use std::net::IpAddr;

use clap::Args;
use sallyport_cli::{
    failure::Failure,
    output::{Output, pairs},
};
use sallyport_xdp::{NewSource, Question, Reason, Router, Runner, StandingPort, Verdict, XdpError, kernel::routes};
use serde::Serialize;

use crate::command::{device_of, kernel, mac, name_of, question::QuestionArgs, reach::devices_to};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet explain 10.0.1.2 192.0.2.7
  sallyport packet explain 10.0.1.2 192.0.2.7 tcp 40000 443
  sallyport packet explain 2001:db8::2 2001:db8:1::7 udp 5000 53 --from eth1.100";

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    packet: QuestionArgs,
    /// The port or the VLAN that the packet comes in by; otherwise the one that leads back to the source
    #[arg(long, value_name = "DEVICE")]
    from: Option<String>,
}

#[derive(Debug, Serialize)]
struct VerdictView {
    action: &'static str,
    reason: &'static str,
    meaning: &'static str,
    from: String,
    to: Option<String>,
    next_hop: Option<IpAddr>,
    next_hop_mac: Option<String>,
    mtu: Option<u16>,
    /// The end that the NAT writes; `the pool chooses` before the first packet.
    new_source: Option<String>,
    new_destination: Option<String>,
    /// The place of the policy's rule that decides, from 1 on, or `default`.
    rule: Option<String>,
    /// Which policy judges, where XDP does not: `nftables`, which has the same rules.
    judge: Option<&'static str>,
}

/// Explains it.
pub(super) async fn explain(output: Output, router: &Router, args: ExplainArgs) -> anyhow::Result<()> {
    let question = args.packet.question()?;
    let ports = router.ports()?;
    let (_, devices) = kernel().await?;
    // The kernel takes its time to load the programs: once for both questions.
    let runner = router.runner()?;
    let from = match &args.from {
        Some(name) => {
            let device = device_of(&devices, name)?;
            let port = ports.iter().find(|port| port.ifindex == device.index);
            *port.ok_or_else(|| Failure::usage(format!("{name} is no port of the router")))?
        }
        None => match way_back(&runner, &question, &ports)? {
            Some(port) => port,
            None => {
                let first = *ports.first().ok_or(XdpError::NotUp)?;
                let name = name_of(&devices, first.ifindex);
                output.hint(&format!(
                    "no port leads back to {}, so {name} is taken: name another one by --from",
                    question.source
                ));
                first
            }
        },
    };
    let verdict = runner.ask(&question, &from)?;
    let Verdict { reason, to, hop, mtu, mac: address, new_source, new_destination, rule, .. } = verdict;
    let rules = rule.map(|_| router.policy_hits()).transpose()?.map_or(0, |(hits, _)| hits.len());
    let judge = (rule.is_none() && is_forwarded_by_kernel(reason) && router.has_policy()).then_some("nftables");
    let rule = rule.map(|place| if place as usize > rules { "default".to_owned() } else { place.to_string() });
    let view = VerdictView {
        action: reason.action().name(),
        reason: reason.name(),
        meaning: reason.sentence(),
        from: name_of(&devices, from.ifindex),
        to: to.map(|index| name_of(&devices, index)),
        next_hop: hop,
        next_hop_mac: address.map(mac),
        mtu,
        new_source: new_source.map(|source| match source {
            NewSource::Standing(end) => end.to_string(),
            NewSource::OfPool => "the pool chooses".to_owned(),
        }),
        new_destination: new_destination.map(|end| end.to_string()),
        rule,
        judge,
    };
    output.data(&view, |view| {
        let mut rows = vec![
            ("verdict", format!("{} ({})", view.action, view.reason)),
            ("why", view.meaning.to_owned()),
            ("from", view.from.clone()),
        ];
        rows.extend(view.to.clone().map(|to| ("to", to)));
        rows.extend(view.next_hop.map(|hop| ("next hop", hop.to_string())));
        rows.extend(view.next_hop_mac.clone().map(|mac| ("its MAC", mac)));
        rows.extend(view.mtu.map(|mtu| ("MTU", mtu.to_string())));
        rows.extend(view.new_source.clone().map(|end| ("new source", end)));
        rows.extend(view.new_destination.clone().map(|end| ("new destination", end)));
        rows.extend(view.rule.clone().map(|rule| ("rule", rule)));
        rows.extend(view.judge.map(|judge| ("judge", format!("the policy in {judge}, which may drop it"))));
        pairs(&rows)
    })?;
    if view.judge.is_some() {
        output.hint("`sallyport packet policy test` says what the policy does with it");
    }
    Ok(())
}

/// Whether the kernel forwards such packets, by its own routes.
fn is_forwarded_by_kernel(reason: Reason) -> bool {
    use Reason::{Fragment, Neighbor, NotRouted, Options, OtherPort, TooBig, UnknownVlan, Unsupported};
    matches!(reason, Fragment | Neighbor | NotRouted | Options | OtherPort | TooBig | UnknownVlan | Unsupported)
}

/// The port that leads back to the source.
fn way_back(runner: &Runner, question: &Question, ports: &[StandingPort]) -> Result<Option<StandingPort>, XdpError> {
    let Some(first) = ports.first() else { return Ok(None) };
    let back = Question { source: question.destination, destination: question.source, ..*question };
    let port = |index: u32| ports.iter().find(|port| port.ifindex == index).copied();
    if let Some(port) = runner.ask(&back, first)?.to.and_then(port) {
        return Ok(Some(port));
    }
    // The way back of an address of the NAT is none that a packet goes: only the routes say where the source is.
    Ok(devices_to(&routes()?, question.source).into_iter().find_map(port))
}
