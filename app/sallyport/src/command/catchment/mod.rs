//! `sallyport catchment`: where clients land, what that costs, and what to change.
//!
//! May use what `command` may use.

mod chaos;
mod import;
mod map;
mod measure;
mod sites;

use clap::{Args, Subcommand, ValueEnum};
use sallyport_api::{Landing, LandingQuery, LandingsBy, SuggestedChange};
use time::OffsetDateTime;

use self::{import::ImportCommand, map::MapArgs, measure::MeasureArgs};
use super::flow;
use crate::{
    command::socket::stats::ms,
    context::Context,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with the catchment.
#[derive(Debug, Subcommand)]
pub(crate) enum CatchmentCommand {
    /// List where clients land: those that lose the most first
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Draw where clients land, as SVG
    Map(MapArgs),
    /// Show the one change that would gain the most; nothing is changed
    Suggest,
    /// Measure where networks land: by pings from an anycast address, or by asking which server answers
    Measure(MeasureArgs),
    /// List the last measurements by pings
    Measurements,
    /// Add what others have measured
    #[command(subcommand)]
    Import(ImportCommand),
}

/// How networks are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GroupBy {
    Prefix,
    As,
    Country,
    Site,
}

impl GroupBy {
    fn of_api(self) -> LandingsBy {
        match self {
            Self::Prefix => LandingsBy::Prefix,
            Self::As => LandingsBy::As,
            Self::Country => LandingsBy::Country,
            Self::Site => LandingsBy::Site,
        }
    }
}

/// Options of `catchment ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Put networks together: by network, autonomous system, country or site
    #[arg(long, value_enum, value_name = "prefix|as|country|site", default_value = "prefix")]
    #[arg(hide_possible_values = true)]
    by: GroupBy,
    /// The most lines
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    top: u32,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: CatchmentCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        CatchmentCommand::Ls(LsArgs { by, top }) => {
            let page = client.catchment(&LandingQuery { by: Some(by.of_api()), limit: Some(top) }).await?;
            note_frozen(page.frozen.as_deref());
            if page.has_more {
                output::note("there are more: --top shows up to 10000");
            }
            let empty = "no network is known yet: clients count when their connections end";
            let now = OffsetDateTime::now_utc();
            context.output.list(&page.items, empty, |items| table(&context.output, items, by, now))
        }
        CatchmentCommand::Map(args) => map::run(context, &client, args).await,
        CatchmentCommand::Suggest => {
            let found = client.catchment_suggestion().await?;
            note_frozen(found.frozen.as_deref());
            context.output.data(&found, |found| match &found.change {
                Some(change) => shown(change),
                None => "no change would gain: every measured group lands where it is nearest".to_owned(),
            })
        }
        CatchmentCommand::Measure(args) => measure::run(context, &client, args).await,
        CatchmentCommand::Measurements => measure::list(context, &client).await,
        CatchmentCommand::Import(command) => import::run(context, &client, command).await,
    }
}

fn note_frozen(frozen: Option<&str>) {
    if let Some(why) = frozen {
        output::note(&output::safe(&format!("steering does not follow the catchment now: {why}")));
    }
}

fn shown(change: &SuggestedChange) -> String {
    let networks = match change.unmeasured {
        0 => change.networks.to_string(),
        unmeasured => format!("{} (and {unmeasured} that were not measured from both sites)", change.networks),
    };
    let mut rows = vec![
        ("Change", output::safe(&change.action).into_owned()),
        ("Networks", networks),
        ("Requests", change.requests.to_string()),
        ("Mean now", ms(change.before_ms)),
        ("Predicted", ms(change.after_ms)),
    ];
    if let Some(alternative) = &change.alternative {
        rows.insert(1, ("Or", output::safe(alternative.trim_start_matches("or ")).into_owned()));
    }
    output::pairs(&rows)
}

fn table(output: &Output, items: &[Landing], by: GroupBy, now: OffsetDateTime) -> String {
    let none = || "-".to_owned();
    let system = |one: &Landing| one.system.map_or_else(none, |number| format!("AS{number}"));
    let country = |one: &Landing| one.country.clone().unwrap_or_else(none);
    let (first, second) = match by {
        GroupBy::Prefix => (Column::Plain("PREFIX"), Column::Plain("COUNTRY")),
        GroupBy::As => (Column::Plain("AS"), Column::Plain("COUNTRY")),
        GroupBy::Country => (Column::Plain("COUNTRY"), Column::Wide("AS")),
        GroupBy::Site => (Column::Wide("COUNTRY"), Column::Wide("AS")),
    };
    columns::table(
        output,
        [
            first,
            second,
            Column::Cut("SITE"),
            Column::Plain("REQUESTS"),
            Column::Plain("MEAN"),
            Column::Plain("BETTER"),
            Column::Plain("THERE"),
            Column::Plain("LOST"),
            Column::Wide("NETWORKS"),
            Column::Wide("BY"),
            Column::Wide("LAST SEEN"),
            Column::Wide("AT"),
        ],
        items.iter().map(|one| {
            let (first, second) = match by {
                GroupBy::Prefix => (one.prefix.clone().unwrap_or_else(none), country(one)),
                GroupBy::As => (system(one), country(one)),
                GroupBy::Country | GroupBy::Site => (country(one), system(one)),
            };
            let source = one.source.and_then(|source| serde_json::to_value(source).ok());
            [
                first,
                second,
                one.site.clone(),
                one.requests.to_string(),
                one.mean_ms.map_or_else(none, ms),
                one.better.clone().unwrap_or_else(none),
                one.better_ms.map_or_else(none, ms),
                if one.lost_ms > 0.0 { ms(one.lost_ms) } else { none() },
                one.networks.to_string(),
                source.and_then(|source| source.as_str().map(str::to_owned)).unwrap_or_else(none),
                flow::age((now - one.last_seen).whole_seconds()),
                utc(one.last_seen),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Color, Format};

    #[test]
    fn a_usual_line_fits_eighty_columns() {
        let item: Landing = serde_json::from_value(json!({
            "prefix": "2001:db8:ffff::/48", "country": "CH", "site": "eu-central", "networks": 1, "requests": 18_204,
            "mean_ms": 91.2, "better": "us-east", "better_ms": 12.0, "lost_ms": 1_441_756.8, "source": "clients",
            "last_seen": "2026-01-01T00:00:00Z"
        }))
        .unwrap();
        let now = OffsetDateTime::from_unix_timestamp(1_767_225_600 + 90).unwrap();
        let table = table(&Output::new(Format::Table, Color::Never), &[item], GroupBy::Prefix, now);
        assert!(table.lines().all(|line| line.chars().count() <= 90), "{table}");
        let cells: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            cells[..7],
            ["2001:db8:ffff::/48", "CH", "eu-central", "18204", "91ms", "us-east", "12ms"],
            "{table}"
        );
    }
}
