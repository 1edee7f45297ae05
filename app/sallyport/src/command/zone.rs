//! `sallyport zone`: zones that the name server answers for.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateZone, CreateZoneRecord, Zone, ZoneRecord};
use serde_json::json;

use crate::{
    command::options::confirm::YesArg,
    context::{Context, candidates},
    failure::{self, Failure},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with zones.
#[derive(Debug, Subcommand)]
pub(crate) enum ZoneCommand {
    /// Make a zone of a verified domain, and print what to set at its registrar
    Create(CreateArgs),
    /// List the zones
    #[command(alias = "list")]
    Ls,
    /// Show a zone: its name servers, and the DS records for its parent
    Show(ZoneArg),
    /// Replace the key that signs a zone: once to add a key, and again when the parent has the new DS record
    Rollover(RolloverArgs),
    /// Remove a zone with its records
    #[command(alias = "delete")]
    Rm(RmArgs),
    /// The records of a zone
    #[command(subcommand)]
    Record(RecordCommand),
}

/// What can be done with records.
#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// Add a record
    Add(AddArgs),
    /// List the records
    #[command(alias = "list")]
    Ls(ZoneArg),
    /// Remove a record
    #[command(alias = "delete")]
    Rm(RecordRmArgs),
}

/// A zone.
#[derive(Debug, Args)]
pub(crate) struct ZoneArg {
    /// The name of the zone
    #[arg(value_name = "ZONE", add = ArgValueCompleter::new(candidates::zones))]
    zone: String,
}

/// Options of `zone create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name: a verified domain. The owner of the installation may take any name
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(candidates::domains))]
    name: String,
    /// Do not sign the zone (DNSSEC)
    #[arg(long)]
    unsigned: bool,
    /// How the keys of the zone sign: ecdsa-p256 or ed25519 [default: ecdsa-p256]
    #[arg(long, value_name = "ALGORITHM", conflicts_with = "unsigned", value_parser = ["ecdsa-p256", "ed25519"])]
    #[arg(hide_possible_values = true)]
    algorithm: Option<String>,
    /// One key signs the keys (KSK) and another one the records (ZSK), in place of one for everything (CSK)
    #[arg(long, conflicts_with = "unsigned")]
    split_keys: bool,
}

/// Options of `zone rollover`.
#[derive(Debug, Args)]
pub(crate) struct RolloverArgs {
    #[command(flatten)]
    zone: ZoneArg,
    /// Replace the key of the records of a zone with split keys, which the parent does not know: one call is enough
    #[arg(long)]
    zsk: bool,
}

/// Options of `zone rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    zone: ZoneArg,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `zone record add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    zone: ZoneArg,
    /// The name: @ for the zone itself, www for a name below it, or a full name with a dot at its end
    #[arg(value_name = "NAME")]
    name: String,
    /// The type, such as A, MX or TXT; ALIAS: the addresses of another name, also at the zone itself
    #[arg(value_name = "TYPE")]
    record_type: String,
    /// The content, as in a zone file
    #[arg(value_name = "VALUE", required = true)]
    value: Vec<String>,
    /// How long others may keep the record, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = ttl)]
    ttl: u32,
}

/// Options of `zone record rm`.
#[derive(Debug, Args)]
pub(crate) struct RecordRmArgs {
    #[command(flatten)]
    zone: ZoneArg,
    /// The record: its id or the beginning of it, as `zone record ls` shows it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: ZoneCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        ZoneCommand::Create(args) => {
            let create = CreateZone {
                name: args.name,
                signed: !args.unsigned,
                algorithm: args.algorithm,
                split_keys: args.split_keys,
            };
            let zone = client.create_zone(&create).await.map_err(failure::of_value)?;
            context.output.data(&zone, show)?;
            context.output.hint(&format!(
                "next: add the records of the domain with `sallyport zone record add {}`, then set the name servers at \
                 its registrar{}",
                zone.name,
                if zone.ds.is_empty() { "" } else { "; set the DS record when they answer everywhere" }
            ));
            Ok(())
        }
        ZoneCommand::Ls => {
            let empty = "no zones yet: `sallyport zone create NAME` makes one of a verified domain";
            let zones = client.zones().await?;
            context.output.list(&zones, empty, |zones| list(&context.output, zones))
        }
        ZoneCommand::Show(args) => {
            let zone = client.zone(&args.zone).await.map_err(|error| failure::about(error, &args.zone))?;
            context.output.data(&zone, show)
        }
        ZoneCommand::Rollover(args) => {
            let name = &args.zone.zone;
            let rolled = client.roll_zone_key(name, args.zsk).await;
            let zone = rolled.map_err(|error| match error.status() {
                Some(404) => failure::about(error, name),
                _ => failure::of_value(error),
            })?;
            context.output.data(&zone, show)?;
            context.output.hint(match args.zsk {
                true => "nothing is left to do: the new key signs when others know it, and the former one ends then",
                false => "`sallyport zone show` has the DS records for the parent, which change within two hours",
            });
            Ok(())
        }
        ZoneCommand::Rm(args) => {
            let name = &args.zone.zone;
            args.yes.confirm(&format!("Remove the zone {name} with its records? Nothing answers for it then."))?;
            client.delete_zone(name).await.map_err(|error| failure::about(error, name))?;
            context.output.data(&json!({ "deleted": name }), |_| format!("removed the zone {name}"))
        }
        ZoneCommand::Record(RecordCommand::Add(args)) => {
            let zone = &args.zone.zone;
            let create = CreateZoneRecord {
                name: args.name,
                record_type: args.record_type,
                ttl: args.ttl,
                value: args.value.join(" "),
            };
            let made = client.create_zone_record(zone, &create).await;
            let record = made.map_err(|error| match error.status() {
                Some(404) => failure::about(error, zone),
                _ => failure::of_value(error),
            })?;
            context.output.data(&record, |record| list_records(&context.output, std::slice::from_ref(record)))
        }
        ZoneCommand::Record(RecordCommand::Ls(args)) => {
            let zone = &args.zone;
            let records = client.zone_records(zone).await.map_err(|error| failure::about(error, zone))?;
            context.output.list(&records, "no records", |records| list_records(&context.output, records))
        }
        ZoneCommand::Record(RecordCommand::Rm(args)) => {
            let zone = &args.zone.zone;
            args.yes.confirm(&format!("Remove the record {} of {zone}?", args.id))?;
            let records = client.zone_records(zone).await.map_err(|error| failure::about(error, zone))?;
            let begins = |record: &&ZoneRecord| record.id.is_some_and(|id| id.to_string().starts_with(&args.id));
            let found: Vec<_> = records.iter().filter(begins).collect();
            let id = match found.as_slice() {
                [one] => one.id.unwrap_or_default(),
                [] => {
                    let failure = Failure::new(failure::Kind::NotFound, format!("{zone} has no record {}", args.id));
                    return Err(failure.next(format!("`sallyport zone record ls {zone}` shows them")).into());
                }
                _ => return Err(Failure::usage(format!("several records begin with {}", args.id)).into()),
            };
            client.delete_zone_record(zone, id).await?;
            context.output.data(&json!({ "deleted": id }), |_| format!("removed the record {id}"))
        }
    }
}

/// A time in seconds, or such as 5m, 1h and 2d.
fn ttl(text: &str) -> Result<u32, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let parsed = crate::duration::parse(text).ok().and_then(|length| u32::try_from(length.as_secs()).ok());
    parsed.ok_or_else(|| "expected seconds, or a time such as 5m or 1h".to_owned())
}

fn show(zone: &Zone) -> String {
    let mut rows = vec![("zone", zone.name.clone())];
    rows.extend(zone.name_servers.iter().map(|name| ("name server", name.clone())));
    match zone.ds.as_slice() {
        [] => rows.push(("signed", "no".to_owned())),
        records => rows.extend(records.iter().map(|record| ("DS record", record.clone()))),
    }
    rows.extend(zone.keys.iter().map(|key| {
        let state = if key.is_active { "" } else { ", does not sign now" };
        ("key", format!("{} {}, {}{state}", key.role.to_uppercase(), key.tag, key.algorithm))
    }));
    rows.push(("records", zone.records.to_string()));
    rows.push(("serial", zone.serial.to_string()));
    rows.push(("created", utc(zone.created_at)));
    output::pairs(&rows)
}

fn list(output: &Output, zones: &[Zone]) -> String {
    let columns = [Column::Plain("ZONE"), Column::Plain("RECORDS"), Column::Plain("SIGNED"), Column::Wide("SERIAL")];
    let rows = zones.iter().map(|zone| {
        let signed = if zone.ds.is_empty() { "no" } else { "yes" };
        [zone.name.clone(), zone.records.to_string(), signed.to_owned(), zone.serial.to_string()]
    });
    columns::table(output, columns, rows)
}

fn list_records(output: &Output, records: &[ZoneRecord]) -> String {
    let columns =
        [Column::Plain("NAME"), Column::Plain("TTL"), Column::Plain("TYPE"), Column::Plain("VALUE"), Column::Id("ID")];
    let rows = records.iter().map(|record| {
        [
            record.name.clone(),
            record.ttl.to_string(),
            record.record_type.clone(),
            record.value.clone(),
            record.id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        ]
    });
    columns::table(output, columns, rows)
}
