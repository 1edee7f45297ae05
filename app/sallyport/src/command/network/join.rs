//! `sallyport network join`: this machine as a machine of a network, for as long as the command runs.

use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ipnet::IpNet;
use sallyport_api::CreateMachine;
use sallyport_client::ClientError;
use sallyport_connector::{
    Transport, TransportChoice,
    network::{self, NetworkError, NetworkEvent, NetworkOptions},
};
use sallyport_net::Shutdown;
use sallyport_network::name::Name;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    control::{self, ControlApi},
    kept::KeptMachine,
};
use crate::{
    context::{AGENT, Context, Target, candidates},
    duration,
    failure::{Failure, Kind},
    output::{self, Format},
    signals::Signals,
};

/// How many events may wait for the terminal.
const MAX_QUEUED_EVENTS: usize = 64;
/// How many routes a line has.
const MAX_LISTED_ROUTES: usize = 8;

/// Options of `join`.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The network
    #[arg(add = ArgValueCompleter::new(candidates::networks))]
    network: Name,
    /// The name of this machine there [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// A group of the machine, which policies name
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<Name>,
    /// A network that others reach through the machine, such as 10.30.0.0/16
    #[arg(long = "route", value_name = "PREFIX", value_parser = sallyport_network::address::network)]
    routes: Vec<IpNet>,
    /// How long the edge may be silent before it gets a ping. After three unanswered ones, the machine joins again
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    keepalive: Duration,
    /// What carries the packets: auto, tcp, websocket or quic. auto tries them in this order
    #[arg(long, value_name = "TRANSPORT", env = "SALLYPORT_TRANSPORT", default_value = "auto")]
    transport: TransportChoice,
    /// The name of the device [default: sp- and the beginning of the network's name]
    #[arg(long, value_name = "NAME", value_parser = device)]
    device: Option<String>,
    /// Use what lies behind other machines (their --route), and not only the ranges of the network
    #[arg(long)]
    accept_routes: bool,
}

fn device(name: &str) -> Result<String, String> {
    sallyport_network::policy::Device::try_from(name.to_owned()).map(|device| device.to_string())
}

/// Holds this machine in the network until a signal comes.
pub(super) async fn run(context: &Context, args: JoinArgs) -> anyhow::Result<()> {
    if args.transport == TransportChoice::Only(Transport::Multipath) {
        let failure = Failure::usage("--transport multipath is for tunnels: a network has one path to its edge");
        return Err(failure.next("use --transport quic, or leave the option out").into());
    }
    let target = context.target()?;
    let mut signals = Signals::take()?;
    let machine = tokio::select! {
        machine = machine(context, &target, &args) => machine?,
        () = signals.next() => return Err(given_up(&args.network).into()),
    };
    let shutdown = Shutdown::new();
    let network = args.network.clone();
    let (sender, mut events) = mpsc::channel(MAX_QUEUED_EVENTS);
    let options = options(&target, &machine, args)?;
    let control = ControlApi::new(context, &target, &network, machine)?;
    let joined = network::join(options, &control, sender, shutdown.clone());
    tokio::pin!(joined);
    let mut shown = Ok(());
    let ended = loop {
        tokio::select! {
            biased;
            () = signals.next() => {
                if shutdown.is_triggered() {
                    return shown;
                }
                shutdown.trigger();
            }
            Some(event) = events.recv() => {
                shown = shown.and_then(|()| show(context, &event));
                if shown.is_err() {
                    shutdown.trigger();
                }
            }
            ended = &mut joined => break ended,
        }
    };
    while let Ok(event) = events.try_recv() {
        shown = shown.and_then(|()| show(context, &event));
    }
    if let Err(NetworkError::Refused(refusal)) = &ended
        && refusal.code == "removed"
    {
        KeptMachine::forget(&target.api, &network)?;
    }
    ended.map_err(failure)?;
    shown
}

/// The machine that this user has in the network, or a new one.
async fn machine(context: &Context, target: &Target, args: &JoinArgs) -> anyhow::Result<KeptMachine> {
    let (client, network) = (context.client(target)?, args.network.as_str());
    if let Some(kept) = KeptMachine::read(&target.api, &args.network)? {
        let found = match client.network(network).await {
            Ok(found) => {
                kept.require(&target.api, &found, &args.network)?;
                client.machine(network, &kept.id.to_string()).await
            }
            Err(error) => Err(error),
        };
        match found {
            // While the API is away, the kept machine is tried.
            Ok(_) | Err(ClientError::Unreachable { .. }) => {
                if !args.groups.is_empty() || !args.routes.is_empty() {
                    context.output.hint("the machine is in the network already: --group and --route are for a new one");
                }
                return Ok(kept);
            }
            // A machine that was removed meanwhile is made anew.
            Err(error) if control::is_gone(&error) => {}
            Err(error) => return Err(crate::failure::about(error, &network)),
        }
    }
    let create = CreateMachine {
        name: name(args)?.to_string(),
        groups: Some(args.groups.iter().map(ToString::to_string).collect()),
        routes: Some(args.routes.iter().map(ToString::to_string).collect()),
        is_exit: false,
    };
    let created = client.create_machine(network, &create).await;
    let created = created.map_err(|error| crate::failure::about(error, &network))?;
    KeptMachine::keep(&target.api, &args.network, created).map_err(Into::into)
}

/// The name of this machine: as named, or the first label of the host name.
fn name(args: &JoinArgs) -> Result<Name, Failure> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let host = sallyport_connector::host_name().unwrap_or_default().to_ascii_lowercase();
    let label = host.split('.').next().unwrap_or_default();
    label
        .parse()
        .map_err(|error| Failure::usage(format!("the host name is no name of a machine: {error}")).next("add --name"))
}

/// The failure if the command is stopped before the API has answered.
fn given_up(network: &Name) -> Failure {
    Failure::new(Kind::Failed, "stopped before the API answered: the machine may have been added")
        .next(format!("look with `sallyport network show {network}`"))
}

fn options(target: &Target, machine: &KeptMachine, args: JoinArgs) -> anyhow::Result<NetworkOptions> {
    Ok(NetworkOptions {
        agent: AGENT.to_owned(),
        edge: control::edge(target, &machine.edge)?,
        transport: args.transport,
        machine: machine.question(),
        keepalive: args.keepalive,
        device: args.device,
        accepts_routes: args.accept_routes,
    })
}

/// Shows what happens: lines for people on the standard error, or JSON, one event a line, on the standard output.
fn show(context: &Context, event: &NetworkEvent) -> anyhow::Result<()> {
    let (text, json) = match event {
        NetworkEvent::Joined { place, device, transport } => {
            let addresses: Vec<String> = place.addresses.iter().map(|address| address.addr().to_string()).collect();
            let text = format!(
                "{} is in the network {} by the device {device}, over {transport}: {}",
                place.machine,
                place.network,
                addresses.join(", ")
            );
            let json = json!({
                "event": "joined", "network": place.network, "machine": place.machine, "addresses": addresses,
                "routes": place.routes, "device": device, "transport": transport,
            });
            (text, json)
        }
        NetworkEvent::Lost { why, again_in } => {
            let text = format!("the network is away, and is tried again in {} ms: {why}", again_in.as_millis());
            (text, json!({ "event": "lost", "why": why, "again_in_ms": again_in.as_millis() as u64 }))
        }
        NetworkEvent::RoutesNotAccepted(routes) => {
            let shown: Vec<String> = routes.iter().take(MAX_LISTED_ROUTES).map(ToString::to_string).collect();
            let rest = routes.len() - shown.len();
            let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
            let text =
                format!("without --accept-routes, routes of other machines are not used: {}{rest}", shown.join(", "));
            (text, json!({ "event": "routes-not-accepted", "routes": routes }))
        }
        NetworkEvent::RouteLeftOut(route) => {
            let text = format!("the route {route} of another machine is left out: this machine reaches the edge by it");
            (text, json!({ "event": "route-left-out", "route": route }))
        }
        NetworkEvent::RouteRefused(why) => (why.clone(), json!({ "event": "route-refused", "why": why })),
    };
    match context.output.format {
        Format::Json => output::json_line(&json),
        Format::Table | Format::Yaml => {
            output::note(&output::safe(&text));
            Ok(())
        }
    }
}

fn failure(error: NetworkError) -> Failure {
    let (kind, step) = match &error {
        NetworkError::Refused(refusal) => match refusal.code.as_str() {
            "replaced" => (Kind::Failed, "stop the other `network join` of this machine first"),
            "removed" => (Kind::Refused, "join again, which adds the machine anew"),
            "bad-credential" => (Kind::Refused, "remove the machine from the network, and join again"),
            _ => (Kind::Failed, "look at the version and the state of the edge: `sallyport status`"),
        },
        NetworkError::Device(_) => (Kind::Failed, "`sallyport help networks` says what a machine needs"),
        NetworkError::Swallows(..) => (Kind::Failed, "give the network another range"),
    };
    Failure::new(kind, error.to_string()).next(step)
}
