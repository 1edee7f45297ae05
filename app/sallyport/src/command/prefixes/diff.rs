//! `sallyport prefixes diff`.

use std::path::PathBuf;

use clap::Args;
use sallyport_prefixes::{Difference, FamilyDifference, Price};

use super::{ReadArgs, check_count};
use crate::output::{self, Output};

/// Options of `prefixes diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The older file; - for the standard input
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The newer file
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The price of one IPv4 address, for the value of the change
    #[arg(long, value_name = "PRICE")]
    price: Option<Price>,
    /// The most prefixes that are shown of each change; -o json has all, up to 100000
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    read: ReadArgs,
}

/// Runs the command.
pub(super) fn run(output: &Output, args: &DiffArgs) -> anyhow::Result<()> {
    check_count(&[&[args.old.clone(), args.new.clone()]])?;
    let (old, new) = (args.read.source(&args.old)?, args.read.source(&args.new)?);
    let difference = Difference::new(&old.set, &new.set, args.price);
    output.data(&difference, |difference| shown(difference, args.top))
}

fn shown(difference: &Difference, top: usize) -> String {
    if difference.is_empty() {
        return "nothing changed: both files hold the same addresses".to_owned();
    }
    let row = |units: &str, family: &FamilyDifference| {
        [
            units.to_owned(),
            family.before.to_string(),
            family.after.to_string(),
            family.added.to_string(),
            family.removed.to_string(),
        ]
    };
    let rows = [row("IPv4 addresses", &difference.ipv4), row("IPv6 /64", &difference.ipv6)];
    let mut lines = vec![output::table(["OF", "BEFORE", "AFTER", "ADDED", "REMOVED"], rows), String::new()];
    for family in [&difference.ipv4, &difference.ipv6] {
        for (sign, prefixes) in [('+', &family.added_prefixes), ('-', &family.removed_prefixes)] {
            lines.extend(prefixes.iter().take(top).map(|prefix| format!("{sign} {prefix}")));
            if prefixes.len() > top {
                lines.push(format!("{sign} and {} more: --top shows them", prefixes.len() - top));
            }
        }
    }
    lines.extend(difference.value.map(|value| format!("\nValue of the change: {value:.2}")));
    lines.join("\n")
}
