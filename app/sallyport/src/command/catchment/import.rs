//! `sallyport catchment import`: what others have measured.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use sallyport_api::{ImportCatchment, ImportedLanding, LandingSource};
use sallyport_catchment::{MAX_ATLAS_BYTES, Row, Source, atlas_results};
use sallyport_client::ApiClient;
use serde_json::json;
use time::OffsetDateTime;

use super::sites::{SiteArgs, send_in_parts};
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    output,
};

/// What can be imported.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Results of RIPE Atlas as JSON: answers to `id.server` or `hostname.bind`, pings and traceroutes
    Atlas(AtlasArgs),
}

/// Options of `catchment import atlas`.
#[derive(Debug, Args)]
pub(crate) struct AtlasArgs {
    /// The file with results
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sites: SiteArgs,
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, command: ImportCommand) -> anyhow::Result<()> {
    let ImportCommand::Atlas(AtlasArgs { file, sites }) = command;
    let bytes = read(&file, MAX_ATLAS_BYTES)?;
    let names = sites.names(client).await?;
    let found = atlas_results(&bytes, &names)
        .map_err(|error| Failure::new(Kind::Refused, format!("{}: {error}", file.display())))?;
    send_rows(client, &found.rows).await?;
    let data = json!({"rows": found.rows.len(), "results": found.results, "skipped": found.skipped});
    context.output.data(&data, |_| {
        output::pairs(&[
            ("Results", found.results.to_string()),
            ("Without a site", found.skipped.to_string()),
            ("Rows", found.rows.len().to_string()),
        ])
    })
}

/// Reads a file up to a number of bytes.
pub(super) fn read(file: &Path, max_bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let read = File::open(file).and_then(|opened| opened.take(most).read_to_end(&mut bytes));
    read.map_err(|error| failure::unreadable(file, &error))?;
    if bytes.len() > max_bytes {
        return Err(Failure::usage(format!("{} is longer than {max_bytes} bytes", file.display())).into());
    }
    Ok(bytes)
}

/// Sends rows to the catchment.
pub(super) async fn send_rows(client: &ApiClient, rows: &[Row]) -> anyhow::Result<()> {
    let rows: Vec<ImportedLanding> = rows.iter().map(to_api).collect();
    send_in_parts(client, &rows, |rows, _| ImportCatchment { rows, ..ImportCatchment::default() }).await
}

fn to_api(row: &Row) -> ImportedLanding {
    ImportedLanding {
        prefix: row.prefix.to_string(),
        site: row.site.to_string(),
        source: if row.source == Source::Chaos { LandingSource::Chaos } else { LandingSource::Atlas },
        requests: u32::try_from(row.requests).unwrap_or(u32::MAX),
        round_trip_ms: row.round_trip.map(|time| time.as_secs_f64() * 1e3),
        seen: OffsetDateTime::from_unix_timestamp(row.seen).ok(),
    }
}

/// The lines of a file of addresses or networks. Empty lines and what follows `#` do not count.
pub(super) fn lines(file: &Path, max_bytes: usize) -> anyhow::Result<Vec<String>> {
    let bytes = read(file, max_bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let path = output::safe(&file.display().to_string()).into_owned();
        Failure::new(Kind::Refused, format!("{path} is no text: expected one address a line"))
    })?;
    let words = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(words.filter(|word| !word.is_empty()).map(str::to_owned).collect())
}
