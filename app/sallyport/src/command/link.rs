//! `sallyport link`: the links of this machine.

use std::net::IpAddr;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_links_model::{
    ChoiceError, Device, Link, LinkChoice, LinkSpec, Properties, SelectError, Selector, segment_bytes, select, unused,
};
use serde::Serialize;

use crate::{
    context::{Context, candidates},
    failure::{Failure, Kind},
    output::Output,
    view::columns::{self, Column},
};

/// What can be done with links.
#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// List the devices of this machine, and say which of them are links and why others are not
    #[command(alias = "list")]
    #[command(after_help = "\
Examples:
  sallyport link ls
  sallyport link ls eth0 wwan0,metered 10.0.0.2,standby
  sallyport link ls -o json")]
    Ls(LsArgs),
}

/// Options of `link ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The links that a connector would be given: devices or source addresses, each with `,metered`, `,standby` or
    /// `,weight=N` behind it if need be [default: auto]
    #[arg(value_name = "LINK", default_value = "auto", hide_default_value = true)]
    #[arg(add = ArgValueCompleter::new(candidates::links))]
    links: Vec<String>,
}

/// A device, as it is shown.
#[derive(Debug, Serialize)]
struct DeviceView {
    name: String,
    kind: &'static str,
    is_up: bool,
    addresses: Vec<IpAddr>,
    gateways: Vec<IpAddr>,
    mtu_bytes: u32,
    /// What one TCP segment carries, and what headers take: of the first address, absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    header_bytes: Option<u32>,
    is_link: bool,
    /// Why the device is no link.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How the link may be used; absent for other devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_metered: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_standby: Option<bool>,
}

/// Runs a command.
pub(crate) async fn run(context: &Context, command: LinkCommand) -> anyhow::Result<()> {
    let LinkCommand::Ls(args) = command;
    let choice = LinkChoice::parse(&args.links).map_err(|error| refused(&error))?;
    let devices = sallyport_links::devices().await.context("the devices of this machine cannot be listed")?;
    let links = select(&choice, &devices, &[]).map_err(|error| recursive(&error))?;
    if let LinkChoice::Listed(specs) = &choice
        && let Some(missing) = specs.iter().find(|spec| !devices.iter().any(|device| is_named(spec, device)))
    {
        let failure =
            Failure::new(Kind::NotFound, format!("this machine has no device or address {}", missing.selector));
        return Err(failure.next("`sallyport link ls` lists the devices that there are").into());
    }
    let views: Vec<_> = devices.iter().map(|device| DeviceView::of(device, &choice, &links)).collect();
    context.output.list(&views, "this machine has no network devices", |views| list(&context.output, views))
}

fn refused(error: &ChoiceError) -> Failure {
    Failure::usage(error.to_string()).next("name links as in `sallyport link ls eth0 wwan0,metered`")
}

fn recursive(error: &SelectError) -> Failure {
    Failure::new(Kind::Refused, error.to_string()).next("name a device below the tunnel, or auto")
}

fn is_named(spec: &LinkSpec, device: &Device) -> bool {
    match &spec.selector {
        Selector::Device(name) => device.name == *name,
        Selector::Address(address) => device.addresses.contains(address),
    }
}

impl DeviceView {
    fn of(device: &Device, choice: &LinkChoice, links: &[Link]) -> Self {
        let link = links.iter().find(|link| link.device == device.name);
        let addresses = link.map_or(&device.addresses, |link| &link.addresses).clone();
        let reason = match (link, choice) {
            (Some(_), _) => None,
            (None, LinkChoice::Listed(specs)) if !specs.iter().any(|spec| is_named(spec, device)) => {
                Some("it is not named".to_owned())
            }
            (None, _) => unused(device, &[]).map(|reason| reason.to_string()),
        };
        let segment = addresses.first().map(|source| segment_bytes(device.mtu_bytes, *source));
        let properties = link.map(|link| link.properties);
        Self {
            name: device.name.clone(),
            kind: device.kind.as_str(),
            is_up: device.is_up,
            gateways: device.gateways.clone(),
            mtu_bytes: device.mtu_bytes,
            segment_bytes: segment,
            header_bytes: segment.map(|segment| device.mtu_bytes - segment),
            is_link: link.is_some(),
            reason,
            weight: properties.map(|properties| properties.weight),
            is_metered: properties.map(|properties| properties.is_metered),
            is_standby: properties.map(|properties| properties.is_standby),
            addresses,
        }
    }

    /// How the link is used, or why the device is no link.
    fn usage(&self) -> String {
        if let Some(reason) = &self.reason {
            return format!("no: {reason}");
        }
        let words = [
            self.is_metered.is_some_and(|is| is).then(|| "metered".to_owned()),
            self.is_standby.is_some_and(|is| is).then(|| "standby".to_owned()),
            self.weight
                .filter(|weight| *weight != Properties::default().weight)
                .map(|weight| format!("weight {weight}")),
        ];
        ["yes".to_owned()].into_iter().chain(words.into_iter().flatten()).collect::<Vec<_>>().join(", ")
    }
}

fn list(output: &Output, views: &[DeviceView]) -> String {
    let columns = [
        Column::Plain("DEVICE"),
        Column::Plain("KIND"),
        Column::Plain("STATE"),
        Column::Cut("ADDRESS"),
        Column::Wide("GATEWAY"),
        Column::Plain("MTU"),
        Column::Wide("SEGMENT"),
        Column::Cut("LINK"),
    ];
    let joined = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let rows = views.iter().map(|view| {
        [
            view.name.clone(),
            view.kind.to_owned(),
            if view.is_up { "up" } else { "down" }.to_owned(),
            joined(&view.addresses),
            joined(&view.gateways),
            view.mtu_bytes.to_string(),
            view.segment_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            view.usage(),
        ]
    });
    columns::table(output, columns, rows)
}
