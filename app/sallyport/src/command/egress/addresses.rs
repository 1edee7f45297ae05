//! Addresses that edges share.

use clap::Args;
use sallyport_api::{CreateEgressAddress, EgressAddress};
use sallyport_client::ApiClient;
use serde_json::json;

use crate::{
    command::options::confirm::YesArg,
    context::Context,
    failure,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// Options of `egress address add`.
#[derive(Debug, Args)]
pub(crate) struct AddAddressArgs {
    /// The address, of IPv4 or IPv6
    #[arg(id = "egress_address", value_name = "ADDR")]
    address: String,
    /// The country whose visitors leave by it: two letters of ISO 3166, such as CH [default: none]
    #[arg(long, value_name = "COUNTRY")]
    country: Option<String>,
    /// The subdivision of the country by ISO 3166-2, for the geofeed, such as CH-ZH
    #[arg(long, value_name = "CODE", requires = "country")]
    subdivision: Option<String>,
    /// The city, for the geofeed
    #[arg(long, value_name = "NAME", requires = "country")]
    city: Option<String>,
    /// What it is for, such as origins [default: everything]
    #[arg(long = "purpose", value_name = "WORD", value_delimiter = ',')]
    purposes: Vec<String>,
    /// The site to which its packets come: a region [default: any]
    #[arg(long, value_name = "REGION")]
    site: Option<String>,
}

/// Options of `egress address rm`.
#[derive(Debug, Args)]
pub(crate) struct RmAddressArgs {
    /// The address, as `ls` shows it
    #[arg(id = "egress_address", value_name = "ADDR")]
    address: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Adds an address.
pub(super) async fn add(context: &Context, client: &ApiClient, args: AddAddressArgs) -> anyhow::Result<()> {
    let create = CreateEgressAddress {
        address: args.address.clone(),
        country: args.country,
        subdivision: args.subdivision,
        city: args.city,
        purposes: (!args.purposes.is_empty()).then_some(args.purposes),
        site: args.site,
    };
    let made = client.create_egress_address(&create).await.map_err(|error| failure::about(error, &args.address))?;
    context
        .output
        .data(&made, |made: &EgressAddress| format!("{} has {} slices for edges", made.address, made.free_slices))?;
    context.output.hint(&format!("`sallyport egress slice add {} --edge NAME` gives an edge a slice", made.address));
    Ok(())
}

/// Lists the addresses.
pub(super) async fn list(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let all = client.egress_addresses().await?;
    all.iter().flat_map(|one| &one.notes).for_each(|note| output::note(&output::safe(note)));
    let empty = "no egress addresses: `sallyport egress address add ADDR` adds one";
    context.output.list(&all, empty, |all| table(&context.output, all))
}

fn table(output: &Output, all: &[EgressAddress]) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    columns::table(
        output,
        [
            Column::Plain("ADDRESS"),
            Column::Plain("COUNTRY"),
            Column::Cut("SITE"),
            Column::Cut("PURPOSES"),
            Column::Plain("SLICES"),
            Column::Plain("FREE"),
            Column::Wide("SUBDIVISION"),
            Column::Wide("CITY"),
            Column::Wide("CREATED"),
        ],
        all.iter().map(|one| {
            [
                one.address.to_string(),
                or_none(&one.country),
                or_none(&one.site),
                if one.purposes.is_empty() { "all".to_owned() } else { one.purposes.join(",") },
                one.slices.to_string(),
                one.free_slices.to_string(),
                or_none(&one.subdivision),
                or_none(&one.city),
                utc(one.created_at),
            ]
        }),
    )
}

/// Removes an address.
pub(super) async fn remove(context: &Context, client: &ApiClient, args: RmAddressArgs) -> anyhow::Result<()> {
    let address = args.address;
    args.yes.confirm(&format!("Remove the egress address {address}?"))?;
    client.delete_egress_address(&address).await.map_err(|error| failure::about(error, &address))?;
    context.output.data(&json!({ "deleted": address }), |_| format!("{address} is no egress address any more"))
}

/// Prints the geofeed.
pub(super) async fn geofeed(context: &Context, client: &ApiClient) -> anyhow::Result<()> {
    let text = client.geofeed().await?;
    context.output.data(&json!({ "geofeed": text }), |_| text.trim_end().to_owned())
}
