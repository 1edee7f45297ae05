//! `sallyport catchment map`: where clients land, as SVG.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use sallyport_api::{Landing, LandingQuery, LandingsBy, MAX_LANDINGS};
use sallyport_catchment::map::{CountryAtSite, SitePlace, svg};
use sallyport_client::ApiClient;

use crate::context::Context;

/// Options of `catchment map`.
#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    /// The file to write
    #[arg(value_name = "FILE.svg")]
    file: PathBuf,
    /// Where a site is, in degrees north and east [default: the middle of the countries of its clients]
    #[arg(long, value_name = "REGION=NORTH,EAST", allow_hyphen_values = true)]
    place: Vec<SitePlace>,
    /// The title of the drawing
    #[arg(long, value_name = "TEXT", default_value = "Where clients land")]
    title: String,
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: MapArgs) -> anyhow::Result<()> {
    let limit = u32::try_from(MAX_LANDINGS).ok();
    let page = client.catchment(&LandingQuery { by: Some(LandingsBy::Country), limit }).await?;
    super::note_frozen(page.frozen.as_deref());
    let clients: Vec<_> = page.items.iter().filter_map(of_api).collect();
    let drawing = svg(&clients, &args.place, &args.title);
    std::fs::write(&args.file, drawing).with_context(|| format!("cannot write {}", args.file.display()))?;
    let placeless = page.items.iter().filter(|one| one.country.is_none()).map(|one| one.networks).sum::<u64>();
    if placeless > 0 {
        let networks = page.networks;
        context.output.hint(&format!(
            "the country of {placeless} of {networks} networks is unknown: edges tell it with --geoip-country"
        ));
    }
    context.output.hint(&format!("{} has {} networks", args.file.display(), page.networks));
    Ok(())
}

fn of_api(one: &Landing) -> Option<CountryAtSite> {
    Some(CountryAtSite {
        country: one.country.as_deref().and_then(|country| country.parse().ok()),
        site: one.site.parse().ok()?,
        networks: one.networks,
        requests: one.requests,
        round_trip: one.mean_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
        lost_ms: if one.lost_ms.is_finite() { one.lost_ms } else { 0.0 },
        better: one.better.as_deref().and_then(|site| site.parse().ok()),
    })
}
