//! `sallyport audit`: the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sallyport_api::{
    AuditEvent, AuditKind, AuditOrder, AuditQuery, AuditVerification, MAX_AUDIT_WAIT_SECONDS, MAX_PAGE_ITEMS,
};
use sallyport_audit::AUDIT_DIR;
use sallyport_client::ApiClient;
use sallyport_control::{Secrets, TOKEN_KEY_FILE};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    args::audit::AUDIT_KEY,
    context::Context,
    duration,
    failure::{Failure, Kind},
    output::{self, Format},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// How many events are shown without an option.
const DEFAULT_EVENTS: usize = 50;

/// Options of `audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    /// Events since: 30m, 12h, 7d ago, or a moment such as 2026-11-21T08:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    since: Option<OffsetDateTime>,
    /// Events before this moment
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    until: Option<OffsetDateTime>,
    /// Only one kind: flow, admin, login, certificate, anycast or gap
    #[arg(long, value_enum, value_name = "KIND", hide_possible_values = true)]
    kind: Option<KindChoice>,
    /// Only of this e-mail address, or service:NAME, token:NAME, ssh:KEY
    #[arg(long, value_name = "WHO")]
    identity: Option<String>,
    /// Only about this socket: its id, name, DNS name or URL
    #[arg(long, value_name = "SOCKET")]
    socket: Option<String>,
    /// Only with this verdict, such as denied
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<String>,
    /// How many events, the newest ones [default: 50; all with --since or --until]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Show new events too, until this command is stopped
    #[arg(long, short)]
    follow: bool,
}

/// What else can be done with the audit log.
#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check whether an event was removed, changed or inserted
    Verify(VerifyArgs),
}

/// Options of `audit verify`.
#[derive(Debug, Args)]
struct VerifyArgs {
    /// Read the log in this data directory instead of asking the server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindChoice {
    Flow,
    Admin,
    Login,
    Certificate,
    Anycast,
    Gap,
}

impl From<KindChoice> for AuditKind {
    fn from(kind: KindChoice) -> Self {
        match kind {
            KindChoice::Flow => Self::Flow,
            KindChoice::Admin => Self::Admin,
            KindChoice::Login => Self::Login,
            KindChoice::Certificate => Self::Certificate,
            KindChoice::Anycast => Self::Anycast,
            KindChoice::Gap => Self::Gap,
        }
    }
}

/// A moment, or a time before now.
fn moment(text: &str) -> Result<OffsetDateTime, String> {
    if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(at);
    }
    let ago = duration::parse_long(text)
        .map_err(|_| "expected a time such as 30m, 12h or 7d, or a moment such as 2026-11-21T08:00:00Z".to_owned())?;
    Ok(OffsetDateTime::now_utc() - ago)
}

/// Runs the command.
pub(crate) async fn run(context: &Context, args: AuditArgs) -> anyhow::Result<()> {
    if let Some(AuditCommand::Verify(args)) = args.command {
        return verify(context, args).await;
    }
    let client = context.client(&context.target()?)?;
    let limit = match args.limit {
        Some(limit) => limit as usize,
        None if args.since.is_some() || args.until.is_some() => usize::MAX,
        None => DEFAULT_EVENTS,
    };
    let query = AuditQuery {
        since: args.since,
        until: args.until,
        kind: args.kind.map(Into::into),
        identity: args.identity,
        socket: args.socket,
        verdict: args.verdict,
        ..AuditQuery::default()
    };
    let (events, last) = newest(&client, &query, limit).await?;
    show(context, &events, args.follow)?;
    if args.follow {
        return follow(context, &client, query, last).await;
    }
    Ok(())
}

/// The newest matching events, oldest first, and the number after which newer ones come.
async fn newest(client: &ApiClient, query: &AuditQuery, limit: usize) -> anyhow::Result<(Vec<AuditEvent>, u64)> {
    let mut query = AuditQuery { order: Some(AuditOrder::Newest), ..query.clone() };
    // The search ends at the newest event of its start, whether or not it matches.
    let mark = client.audit_events(&AuditQuery { limit: Some(1), ..AuditQuery::default() }).await?;
    let last = mark.items.first().map_or(0, |event| event.seq);
    let mut events = Vec::new();
    loop {
        let rest = limit - events.len();
        query.limit = Some(u32::try_from(rest).unwrap_or(u32::MAX).min(MAX_PAGE_ITEMS));
        let page = client.audit_events(&query).await?;
        events.extend(page.items);
        query.after = page.next;
        if query.after.is_none() || events.len() >= limit {
            break;
        }
    }
    events.reverse();
    let last = events.last().map_or(last, |event: &AuditEvent| last.max(event.seq));
    Ok((events, last))
}

/// Prints new events.
async fn follow(context: &Context, client: &ApiClient, query: AuditQuery, last: u64) -> anyhow::Result<()> {
    let mut query = AuditQuery {
        wait: Some(MAX_AUDIT_WAIT_SECONDS),
        after: Some(last.to_string()),
        limit: Some(MAX_PAGE_ITEMS),
        ..query
    };
    loop {
        let page = client.audit_events(&query).await?;
        for event in &page.items {
            output::line(&line(context, event)?)?;
        }
        query.after = page.next.or(query.after);
    }
}

fn show(context: &Context, events: &[AuditEvent], by_line: bool) -> anyhow::Result<()> {
    if context.output.format == Format::Json || by_line {
        return events.iter().try_for_each(|event| output::line(&line(context, event)?));
    }
    let table = |events: &[AuditEvent]| columns::table(&context.output, COLUMNS, events.iter().map(row));
    context.output.list(events, "nothing is on record yet", table)
}

const COLUMNS: [Column; 8] = [
    Column::Plain("WHEN"),
    Column::Cut("WHO"),
    Column::Cut("WHAT"),
    Column::Wide("FROM"),
    Column::Wide("LASTED"),
    Column::Wide("IN"),
    Column::Wide("OUT"),
    Column::Cut("VERDICT"),
];

/// An event as one line.
fn line(context: &Context, event: &AuditEvent) -> anyhow::Result<String> {
    if context.output.format == Format::Table {
        return Ok(row(event).map(|cell| output::safe(&cell).into_owned()).join("  "));
    }
    Ok(serde_json::to_string(event)?)
}

fn row(event: &AuditEvent) -> [String; 8] {
    let none = || "-".to_owned();
    let from = |client: Option<std::net::SocketAddr>| client.map_or_else(none, |client| client.to_string());
    let (mut what, mut client, mut bytes) = (String::new(), none(), (none(), none()));
    // A flow is recorded at its end; its line shows the start.
    let (mut when, mut lasted) = (event.at, none());
    if let Some(flow) = &event.flow {
        (when, lasted) = (flow.began, how_long(flow.ended - flow.began));
        what = match (&flow.method, &flow.path, flow.status) {
            (Some(method), Some(path), Some(status)) => format!("{} {method} {path} {status}", flow.socket_name),
            _ => format!("{} {}", flow.socket_name, flow.transport),
        };
        client = flow.client.to_string();
        bytes = (flow.bytes_in.to_string(), flow.bytes_out.to_string());
    } else if let Some(admin) = &event.admin {
        what = format!("{} {}", admin.action, admin.target.as_deref().unwrap_or_default()).trim_end().to_owned();
        client = from(admin.client);
    } else if let Some(login) = &event.login {
        let done = if login.outcome == "ended" { "logout" } else { "login" };
        what = format!("{done} by {}", login.provider);
        client = from(login.client);
    } else if let Some(certificate) = &event.certificate {
        let socket = certificate.socket.as_deref().unwrap_or("-");
        what = format!("{} certificate for {socket}", certificate.certificate_type);
        client = from(certificate.client);
    } else if let Some(anycast) = &event.anycast {
        what = format!("{} {} at {}: {}", anycast.prefix, anycast.state, anycast.edge, anycast.why);
    } else if let Some(gap) = &event.gap {
        let events = gap.events.map_or_else(|| "some".to_owned(), |events| events.to_string());
        what = format!("{events} events are missing: {}", gap.reason);
    }
    let verdict = event.verdict().map_or_else(none, |verdict| {
        let rule = event.flow.as_ref().and_then(|flow| flow.rule.as_deref());
        let reason = event.admin.as_ref().and_then(|admin| admin.reason.as_deref());
        if let Some(reason) = reason.or(event.login.as_ref().and_then(|login| login.reason.as_deref())) {
            return format!("{verdict}: {reason}");
        }
        rule.map_or_else(
            || verdict.to_owned(),
            |rule| if verdict == "denied" { format!("{verdict}: {rule}") } else { format!("{verdict} by {rule}") },
        )
    });
    let who = event.identity().map_or_else(none, str::to_owned);
    [utc(when), who, what, client, lasted, bytes.0, bytes.1, verdict]
}

/// A span for people: `12ms`, `3.4s`, `5m 6s`, `7h 8m`, `2d 3h`.
fn how_long(span: time::Duration) -> String {
    let seconds = span.whole_seconds().max(0);
    match seconds {
        0 => format!("{}ms", span.whole_milliseconds().max(0)),
        1..=59 => format!("{seconds}.{}s", span.subsec_milliseconds() / 100),
        60..=3_599 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

async fn verify(context: &Context, args: VerifyArgs) -> anyhow::Result<()> {
    let found = match args.data {
        None => context.client(&context.target()?)?.verify_audit().await?,
        Some(data) => {
            if !data.join(TOKEN_KEY_FILE).is_file() {
                let message = format!("{} is no data directory of sallyport up", data.display());
                return Err(Failure::new(Kind::NotFound, message).into());
            }
            let key = Secrets::open_or_create(&data)?.derived(AUDIT_KEY);
            sallyport_audit::verify(&data.join(AUDIT_DIR), &key)?
        }
    };
    context.output.data(&found, verdict)?;
    if found.is_good {
        return Ok(());
    }
    Err(Failure::new(Kind::Failed, "the audit log is not as it was written").into())
}

fn verdict(found: &AuditVerification) -> String {
    let mut rows = vec![
        ("events", found.events.to_string()),
        ("from", found.first.to_string()),
        ("to", found.last.to_string()),
        ("hash", found.hash.clone()),
        ("gaps on record", found.gaps.to_string()),
        (
            "verdict",
            if found.is_good { "good: nothing was removed, changed or inserted" } else { "NOT GOOD" }.to_owned(),
        ),
    ];
    rows.extend(found.problems.iter().map(|problem| ("problem", format!("{}: {}", problem.place, problem.what))));
    output::pairs(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_at_a_glance() {
        for (milliseconds, shown) in [
            (-5, "0ms"),
            (12, "12ms"),
            (3_450, "3.4s"),
            (306_000, "5m 6s"),
            (25_680_000, "7h 8m"),
            (183_600_000, "2d 3h"),
        ] {
            assert_eq!(how_long(time::Duration::milliseconds(milliseconds)), shown);
        }
    }

    #[test]
    fn moments_are_read_as_they_are_or_as_how_long_ago() {
        assert_eq!(moment("2026-11-21T08:00:00Z").unwrap().unix_timestamp(), 1_795_248_000);
        let ago = (OffsetDateTime::now_utc() - moment("2h").unwrap()).whole_seconds();
        assert!((7_199..7_300).contains(&ago), "{ago}");
        assert!(moment("yesterday").unwrap_err().contains("12h"));
    }
}
