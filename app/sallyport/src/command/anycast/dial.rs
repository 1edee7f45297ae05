//! `sallyport anycast dial`: how much of what comes to a region by DNS stays there.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use sallyport_api::{AnycastAnswers, AnycastDial, AnycastDials, SetAnycastDials};
use sallyport_client::ApiClient;
use sallyport_model::RegionName;

use crate::{context::Context, output};

/// Which addresses the name server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Answers {
    Edges,
    Anycast,
}

/// Options of `anycast dial`.
#[derive(Debug, Args)]
pub(crate) struct DialArgs {
    /// A region and its dial, such as eu=50, or eu=off to remove the dial; without any, the dials are shown
    #[arg(value_name = "REGION=PERCENT", value_delimiter = ',', value_parser = percent)]
    dials: Vec<(RegionName, Option<u8>)>,
    /// What a region with too much load keeps of that, such as eu=80; eu=off removes the share
    #[arg(long = "share", value_name = "REGION=PERCENT", value_delimiter = ',', value_parser = percent)]
    shares: Vec<(RegionName, Option<u8>)>,
    /// Remove all dials and shares
    #[arg(long, conflicts_with_all = ["dials", "shares"])]
    off: bool,
    /// Answer the anycast addresses of regions, once edges announce them, or those of edges
    #[arg(long, value_enum, value_name = "edges|anycast", hide_possible_values = true)]
    answers: Option<Answers>,
}

/// A region and a percentage; `None` removes it.
fn percent(text: &str) -> Result<(RegionName, Option<u8>), String> {
    let wrong = || "expected REGION=PERCENT such as eu=50, with 0 to 100 percent, or REGION=off".to_owned();
    let (region, number) = text.split_once('=').ok_or_else(wrong)?;
    let region = region.parse::<RegionName>().map_err(|error| error.to_string())?;
    if number == "off" {
        return Ok((region, None));
    }
    let number = number.strip_suffix('%').unwrap_or(number).parse().ok().filter(|number| *number <= 100);
    Ok((region, Some(number.ok_or_else(wrong)?)))
}

/// The dials after these changes.
fn changed(args: &DialArgs, mut dials: BTreeMap<String, AnycastDial>) -> BTreeMap<String, AnycastDial> {
    if args.off {
        return BTreeMap::new();
    }
    for (region, dial) in &args.dials {
        dials.entry(region.to_string()).or_default().dial = dial.unwrap_or(100);
    }
    for (region, share) in &args.shares {
        dials.entry(region.to_string()).or_default().share = share.unwrap_or(100);
    }
    dials.retain(|_, dial| *dial != AnycastDial::default());
    dials
}

/// Runs the command.
pub(super) async fn run(context: &Context, client: &ApiClient, args: DialArgs) -> anyhow::Result<()> {
    let now = client.anycast_dials().await?;
    let is_change = args.off || !args.dials.is_empty() || !args.shares.is_empty() || args.answers.is_some();
    let dials = match is_change {
        false => now,
        true => {
            let answers = args.answers.map(|answers| match answers {
                Answers::Edges => AnycastAnswers::Edges,
                Answers::Anycast => AnycastAnswers::Anycast,
            });
            let set = SetAnycastDials { dials: changed(&args, now.dials), answers };
            client.set_anycast_dials(&set).await?
        }
    };
    for note in &dials.notes {
        output::note(&output::safe(note));
    }
    if dials.is_frozen {
        output::note("the catchment is frozen: clients are steered by what was measured before");
    }
    context.output.data(&dials, show)
}

fn show(dials: &AnycastDials) -> String {
    let answers = match dials.answers {
        AnycastAnswers::Edges => "edges",
        AnycastAnswers::Anycast => "anycast",
    };
    let text = format!("measured networks {}, answers {answers}", dials.networks);
    if dials.dials.is_empty() {
        return format!("no dials: each client gets its best region\n{text}");
    }
    let rows = dials
        .dials
        .iter()
        .map(|(region, dial)| [region.clone(), format!("{} %", dial.dial), format!("{} %", dial.share)]);
    format!("{}\n{text}", output::table(["REGION", "DIAL", "SHARE"], rows))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: DialArgs,
    }

    fn after(line: &[&str], now: &[(&str, u8, u8)]) -> Vec<(String, u8, u8)> {
        let args = Line::try_parse_from([&["dial"], line].concat()).unwrap().args;
        let now =
            now.iter().map(|(region, dial, share)| ((*region).to_owned(), AnycastDial { dial: *dial, share: *share }));
        changed(&args, now.collect()).into_iter().map(|(region, dial)| (region, dial.dial, dial.share)).collect()
    }

    #[test]
    fn dials_change_one_by_one_and_go_all_at_once() {
        let of = |all: &[(&str, u8, u8)]| {
            all.iter().map(|(name, dial, share)| ((*name).to_owned(), *dial, *share)).collect::<Vec<_>>()
        };
        assert_eq!(
            after(&["eu=50,us=20%"], &[("ap", 10, 100)]),
            of(&[("ap", 10, 100), ("eu", 50, 100), ("us", 20, 100)])
        );
        assert_eq!(after(&["eu=off"], &[("eu", 50, 100)]), of(&[]));
        assert_eq!(after(&["--share", "eu=80"], &[("eu", 50, 100)]), of(&[("eu", 50, 80)]));
        assert_eq!(after(&["--off"], &[("eu", 50, 80)]), of(&[]));
        for bad in ["eu", "eu=", "eu=101", "eu=-1", "EU=5", "=5"] {
            assert!(Line::try_parse_from(["dial", bad]).is_err(), "{bad}");
        }
    }
}
