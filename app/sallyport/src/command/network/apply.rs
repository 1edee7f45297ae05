//! `sallyport network policy apply`, `show` and `rm`: what this machine enforces.

use std::path::PathBuf;

use clap::Args;
use sallyport_network::{
    name::Name,
    nft::{compile, network_of_table, removal, table_name},
    policy::{Flow, Policy, TCP},
};
use sallyport_nft::{TrackedFlow, counters, cut, flows, tables};
use serde::Serialize;

use super::{counted, policy::read};
use crate::{
    command::options::confirm::YesArg,
    context::Context,
    failure::{Failure, Kind},
    machine::author,
    output,
};

/// Options of `apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The file
    file: PathBuf,
    /// Apply the file even when it would end the ssh connection by which you are here
    #[arg(long)]
    force: bool,
}

/// Options of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The network; all networks without it
    network: Option<Name>,
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The network
    network: Name,
    #[command(flatten)]
    yes: YesArg,
}

/// What was applied.
#[derive(Debug, Serialize)]
struct ApplyView {
    network: String,
    endpoints: usize,
    rules: usize,
    /// How many flows have ended, as they are no longer allowed.
    cut: usize,
}

/// A counter of a network.
#[derive(Debug, Serialize)]
struct CounterView {
    network: String,
    /// The rule, or `default`, `spoofed` and `invalid`.
    rule: String,
    action: &'static str,
    packets: u64,
    bytes: u64,
}

/// Refuses everybody but root.
fn need_root(step: &str) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(Kind::NotAllowed, "only root may see and change rules of the kernel").next(step))
}

/// Enforces a file.
pub(super) async fn apply(context: &Context, args: &ApplyArgs) -> anyhow::Result<()> {
    let policy = read(&args.file)?;
    need_root(&format!("sudo sallyport network policy apply {}", args.file.display()))?;
    if !args.force {
        keep_author(&policy)?;
    }
    // Without `conntrack` nothing is changed.
    flows().await?;
    sallyport_nft::apply(&compile(&policy).to_string()).await?;
    let refused: Vec<_> = flows().await?.into_iter().filter(|flow| !is_allowed(&policy, flow)).collect();
    let count = refused.len();
    cut(refused).await?;
    let view = ApplyView {
        network: policy.network().to_string(),
        endpoints: policy.endpoints().len(),
        rules: policy.rules().len(),
        cut: count,
    };
    context.output.data(&view, |view| {
        let ApplyView { network, endpoints, rules, cut } = view;
        let (endpoints, rules) = (counted(*endpoints, "endpoint"), counted(*rules, "rule"));
        format!("network {network}: {endpoints}, {rules}; flows that have ended: {cut}")
    })?;
    context.output.hint("`sallyport network policy show` counts what each rule decides; a restart removes the rules");
    Ok(())
}

/// Asks before the policy ends the ssh connection of who applies it; without a terminal, refuses.
fn keep_author(policy: &Policy) -> Result<(), Failure> {
    let Some((client, server)) = author::connection() else { return Ok(()) };
    let flow = Flow { source: client.ip(), destination: server.ip(), protocol: TCP, port: server.port() };
    if policy.decide(&flow).is_allowed() {
        return Ok(());
    }
    let locked = format!("the policy ends the ssh connection from {} by which you are here", client.ip());
    let ask = YesArg::default();
    if ask.asks() {
        return ask.confirm(&format!("Lock yourself out? {locked}."));
    }
    let step = format!("allow tcp/{} from {} to {}, or add --force", server.port(), client.ip(), server.ip());
    Err(Failure::new(Kind::Refused, locked).next(step))
}

/// Whether a flow may go on. The policy judges after a translation of the destination, and before one of the source.
fn is_allowed(policy: &Policy, flow: &TrackedFlow) -> bool {
    let TrackedFlow { protocol, source, answering, answering_port, .. } = *flow;
    policy.decide(&Flow { source, destination: answering, protocol, port: answering_port }).is_allowed()
}

/// Shows counters.
pub(super) async fn show(context: &Context, args: &ShowArgs) -> anyhow::Result<()> {
    need_root("sudo sallyport network policy show")?;
    let mut views = Vec::new();
    for network in enforced(args.network.as_ref()).await? {
        for counter in counters(&table_name(&network)).await? {
            let (action, rule) = match counter.name.split_once('-') {
                Some(("allow", rule)) => ("allow", rule),
                Some((_, rule)) => ("deny", rule),
                None => ("deny", counter.name.as_str()),
            };
            let (network, rule) = (network.to_string(), rule.to_owned());
            views.push(CounterView { network, rule, action, packets: counter.packets, bytes: counter.bytes });
        }
    }
    let empty = "this machine enforces no policy: `sallyport network policy apply FILE` does";
    context.output.list(&views, empty, |views| {
        let row = |view: &CounterView| {
            [view.network.clone(), view.action.to_owned(), view.rule.clone(), view.packets.to_string()]
        };
        output::table(["NETWORK", "ACTION", "RULE", "PACKETS"], views.iter().map(row))
    })
}

/// Removes the rules of a network.
pub(super) async fn rm(context: &Context, args: &RmArgs) -> anyhow::Result<()> {
    need_root(&format!("sudo sallyport network policy rm {}", args.network))?;
    enforced(Some(&args.network)).await?;
    args.yes.confirm(&format!("Stop enforcing the policy of the network {}?", args.network))?;
    sallyport_nft::apply(&removal(&args.network)).await?;
    context.output.hint(&format!("this machine enforces no policy for the network {} any more", args.network));
    Ok(())
}

/// The networks whose policies this machine enforces; only this one if one is asked for.
async fn enforced(asked: Option<&Name>) -> anyhow::Result<Vec<Name>> {
    let mut names: Vec<_> = tables("inet").await?.iter().filter_map(|table| network_of_table(table)).collect();
    let Some(asked) = asked else { return Ok(names) };
    names.retain(|name| name == asked);
    if names.is_empty() {
        let missing = format!("this machine enforces no policy for the network {asked}");
        return Err(Failure::new(Kind::NotFound, missing)
            .next("`sallyport network policy show` lists networks")
            .into());
    }
    Ok(names)
}
