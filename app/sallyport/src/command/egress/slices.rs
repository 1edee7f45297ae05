//! Slices of addresses, and the edges that have them.

use std::time::Duration;

use clap::Args;
use sallyport_api::{CreateEgressSlice, EgressSlice, EgressSliceState, MoveEgressSlice};
use sallyport_client::ApiClient;
use serde_json::json;

use crate::{
    command::options::confirm::YesArg,
    context::Context,
    duration, failure,
    output::{self, Output},
    view::columns::{self, Column},
};

/// Options of `egress slice add`.
#[derive(Debug, Args)]
pub(crate) struct AddSliceArgs {
    /// The address
    #[arg(id = "egress_address", value_name = "ADDR")]
    address: String,
    /// The edge that gets the slice: its name
    #[arg(long, value_name = "NAME")]
    edge: String,
    /// The number of the slice, of which slice N begins at port N x 2,048 [default: the first free one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=31), allow_negative_numbers = true)]
    slice: Option<u8>,
}

/// How flows of the former edge end.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// How long flows of the edge may go on, once it opens no more connections from the slice
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse)]
    within: Duration,
    /// The edge is off for certain: do not wait for it. Two edges share ports if it is not off
    #[arg(long, conflicts_with = "within")]
    is_off: bool,
}

/// Options of `egress slice move`.
#[derive(Debug, Args)]
pub(crate) struct MoveSliceArgs {
    /// The slice, as `ls` shows it: ADDR-N
    #[arg(value_name = "SLICE")]
    slice: String,
    /// The edge that gets the slice: its name
    #[arg(long, value_name = "NAME")]
    edge: String,
    #[command(flatten)]
    end: EndArgs,
}

/// Options of `egress slice rm`.
#[derive(Debug, Args)]
pub(crate) struct RmSliceArgs {
    /// The slice, as `ls` shows it: ADDR-N
    #[arg(value_name = "SLICE")]
    slice: String,
    #[command(flatten)]
    end: EndArgs,
    #[command(flatten)]
    yes: YesArg,
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn ports(slice: &EgressSlice) -> String {
    format!("{}-{}", slice.first_port, slice.last_port)
}

fn print_notes(slice: &EgressSlice) {
    slice.notes.iter().for_each(|note| output::note(&format!("{}: {}", slice.id, output::safe(note))));
}

/// Gives an edge a slice.
pub(super) async fn add(context: &Context, client: &ApiClient, args: AddSliceArgs) -> anyhow::Result<()> {
    let create = CreateEgressSlice { address: args.address.clone(), edge: args.edge, slice: args.slice };
    let made = client.create_egress_slice(&create).await.map_err(|error| failure::about(error, &args.address))?;
    context.output.data(&made, |made: &EgressSlice| {
        format!("{} dials from {}, ports {} (slice {})", made.edge, made.address, ports(made), made.id)
    })?;
    context.output.hint("`sallyport egress slice ls` shows whether the edge uses it");
    Ok(())
}

/// Lists the slices.
pub(super) async fn list(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let all = client.egress_slices().await?;
    all.iter().for_each(print_notes);
    let empty = "no edge has a slice: `sallyport egress slice add ADDR --edge NAME` gives one";
    context.output.list(&all, empty, |all| table(&context.output, all))
}

fn state(slice: &EgressSlice) -> String {
    match (slice.state, &slice.next_edge) {
        (EgressSliceState::Held, _) => match slice.is_open {
            Some(true) => "open".to_owned(),
            Some(false) => "not open".to_owned(),
            None => "unknown".to_owned(),
        },
        (EgressSliceState::Moving, Some(next)) => format!("moves to {next}"),
        (EgressSliceState::Moving, None) => "moves".to_owned(),
        (EgressSliceState::Releasing, _) => "drains".to_owned(),
        (EgressSliceState::Lapsed, _) => "lapsed".to_owned(),
    }
}

fn table(output: &Output, all: &[EgressSlice]) -> String {
    columns::table(
        output,
        [
            Column::Plain("SLICE"),
            Column::Plain("PORTS"),
            Column::Cut("EDGE"),
            Column::Plain("STATE"),
            Column::Cut("SITE"),
            Column::Wide("EDGE ADDRESSES"),
            Column::Wide("TERM"),
        ],
        all.iter().map(|one| {
            [
                one.id.clone(),
                ports(one),
                one.edge.clone(),
                state(one),
                one.site.clone().unwrap_or_else(|| "-".to_owned()),
                one.edge_addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                one.term.to_string(),
            ]
        }),
    )
}

/// Moves a slice.
pub(super) async fn change(context: &Context, client: &ApiClient, args: MoveSliceArgs) -> anyhow::Result<()> {
    let EndArgs { within, is_off } = args.end;
    let change = MoveEgressSlice { edge: args.edge, within_seconds: Some(seconds(within)), is_off };
    let moved =
        client.move_egress_slice(&args.slice, &change).await.map_err(|error| failure::about(error, &args.slice))?;
    context.output.data(&moved, |moved: &EgressSlice| match &moved.next_edge {
        Some(next) => {
            format!(
                "{} opens no more connections from {}: {next} has it when its flows have ended",
                moved.edge, moved.id
            )
        }
        None => format!("{} has {}", moved.edge, moved.id),
    })?;
    print_notes(&moved);
    Ok(())
}

/// Takes a slice from its edge.
pub(super) async fn remove(context: &Context, client: &ApiClient, args: RmSliceArgs) -> anyhow::Result<()> {
    let (EndArgs { within, is_off }, slice) = (args.end, args.slice);
    args.yes.confirm(&format!("Take {slice} from its edge? It opens no more connections from there."))?;
    client
        .delete_egress_slice(&slice, Some(seconds(within)), is_off)
        .await
        .map_err(|error| failure::about(error, &slice))?;
    context.output.data(&json!({ "deleted": slice }), |_| {
        if is_off {
            format!("{slice} is free")
        } else {
            format!("{slice} is free when the flows of its edge have ended")
        }
    })
}
