//! `sallyport domain`: domains of an organisation.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateDomain, Domain, DomainRecord, DomainState};
use serde_json::json;

use super::certificate;
use crate::{
    args::domain,
    command::options::confirm::YesArg,
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output::{self, Output},
    view::{
        columns::{self, Column},
        quoted, utc,
    },
};

/// What can be done with domains.
#[derive(Debug, Subcommand)]
pub(crate) enum DomainCommand {
    /// Add a domain, and print the records to set at its name service
    Add(DomainArg),
    /// List the domains
    #[command(alias = "list")]
    Ls,
    /// Show a domain, and the records to set
    Show(DomainNamed),
    /// Look the records of a domain up now; exits with 1 while something is missing
    Check(DomainNamed),
    /// Remove a domain
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// A new domain.
#[derive(Debug, Args)]
pub(crate) struct DomainArg {
    /// The name, such as app.example.com, or *.example.com for all names directly below example.com
    #[arg(value_name = "NAME", value_parser = domain::parse)]
    name: String,
}

/// A domain that is there.
#[derive(Debug, Args)]
pub(crate) struct DomainNamed {
    /// The name of the domain
    #[arg(value_name = "NAME", value_parser = domain::parse, add = ArgValueCompleter::new(candidates::domains))]
    name: String,
}

/// Options of `domain rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    domain: DomainNamed,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: DomainCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        DomainCommand::Add(args) => {
            let domain = client.create_domain(&CreateDomain { name: args.name }).await.map_err(failure::of_value)?;
            context.output.data(&domain, |domain| show(&context.output, domain))?;
            context.output.hint(&outlook(&domain));
            Ok(())
        }
        DomainCommand::Ls => {
            let empty = "no domains yet: `sallyport domain add app.example.com` has the records to set";
            let domains = client.domains().await?;
            context.output.list(&domains, empty, |domains| list(&context.output, domains))?;
            for domain in domains.iter().filter(|domain| domain.state != DomainState::Verified) {
                context.output.hint(&format!("{}: {}", domain.name, problem(domain)));
            }
            Ok(())
        }
        DomainCommand::Show(args) => {
            let domain = client.domain(&args.name).await.map_err(|error| failure::about(error, &args.name))?;
            context.output.data(&domain, |domain| show(&context.output, domain))?;
            context.output.hint(&outlook(&domain));
            Ok(())
        }
        DomainCommand::Check(args) => {
            let domain = client.check_domain(&args.name).await.map_err(|error| failure::about(error, &args.name))?;
            context.output.data(&domain, |domain| show(&context.output, domain))?;
            unfound(&domain).map_or(Ok(()), |failure| Err(failure.into()))
        }
        DomainCommand::Rm(args) => {
            let name = &args.domain.name;
            args.yes.confirm(&format!(
                "Remove the domain {name}? It leads to no socket then, and loses its certificate, an imported one too."
            ))?;
            client.delete_domain(name).await.map_err(|error| failure::about(error, name))?;
            context.output.data(&json!({ "deleted": name }), |_| format!("removed {name}"))
        }
    }
}

/// The failure of a check that did not find all records: they are missing, or nothing is known of them.
fn unfound(domain: &Domain) -> Option<Failure> {
    let purposes = |found: Option<bool>| {
        let records = domain.records.iter().filter(|record| record.found == found);
        records.map(|record| record.purpose.as_str()).collect::<Vec<_>>().join(" and ")
    };
    let (missing, unknown) = (purposes(Some(false)), purposes(None));
    if missing.is_empty() && unknown.is_empty() {
        return None;
    }
    let again = || format!("look again: `sallyport domain check {}`", quoted(&domain.name));
    if missing.is_empty() {
        let why = domain.records.iter().find_map(|record| record.problem.clone().filter(|_| record.found.is_none()));
        let why = why.unwrap_or_else(|| format!("the name service did not answer for {}", domain.name));
        let failure = Failure::new(Kind::Failed, format!("the record of {unknown} could not be looked up: {why}"));
        return Some(failure.next(again()));
    }
    let failure = Failure::new(Kind::Failed, format!("{} lacks its record of {missing}", domain.name));
    Some(failure.next(next_step(domain).unwrap_or_else(again)))
}

/// The next step for people, or where the domain leads.
fn outlook(domain: &Domain) -> String {
    match (next_step(domain), &domain.socket) {
        (Some(step), _) => format!("next: {step}"),
        (None, Some(socket)) => format!("it leads to {socket}"),
        (None, None) => "nothing is left to do".to_owned(),
    }
}

/// What to do next with a domain; `None` if it leads to a socket.
fn next_step(domain: &Domain) -> Option<String> {
    let missing = domain.records.iter().find(|record| record.found == Some(false));
    let name = quoted(&domain.name);
    match (domain.state, missing, &domain.socket) {
        (DomainState::Pending | DomainState::Missing, missing, _)
            if missing.is_none_or(|record| record.purpose != "ownership")
                && domain.records.iter().any(|record| record.purpose == "ownership" && record.found.is_none()) =>
        {
            Some(format!("look again when the name service answers: `sallyport domain check {name}`"))
        }
        (DomainState::Pending | DomainState::Missing, ..) => {
            Some(format!("set the TXT record at the name service of the domain, then `sallyport domain check {name}`"))
        }
        (DomainState::Verified, Some(record), _) if record.purpose != "ownership" => {
            Some(format!("{}; set the {} record of {}", problem_of(record), record.record_type, record.name))
        }
        (DomainState::Verified, _, None) => {
            Some(format!("lead it to a socket with `sallyport socket edit SOCKET --domain {name}`"))
        }
        (DomainState::Verified, _, Some(_)) => None,
    }
}

fn problem_of(record: &DomainRecord) -> String {
    record.problem.clone().unwrap_or_else(|| format!("{} is not found yet", record.name))
}

fn problem(domain: &Domain) -> String {
    domain.problem.clone().unwrap_or_else(|| "its TXT record is not found yet".to_owned())
}

fn state(domain: &Domain) -> &'static str {
    match domain.state {
        DomainState::Pending => "pending",
        DomainState::Verified => "verified",
        DomainState::Missing => "record missing",
    }
}

/// A domain for people, with its records as a table.
fn show(output: &Output, domain: &Domain) -> String {
    let mut rows = vec![("domain", domain.name.clone()), ("state", state(domain).to_owned())];
    if let Some(problem) = &domain.problem {
        rows.push(("problem", problem.clone()));
    }
    rows.push(("socket", domain.socket.clone().unwrap_or_else(|| "-".to_owned())));
    rows.push(("certificate", domain.certificate.as_ref().map_or_else(|| "-".to_owned(), certificate::summary)));
    rows.push(("asked", domain.asked.clone()));
    if let Some(at) = domain.checked_at {
        rows.push(("checked", utc(at)));
    }
    let found = |record: &DomainRecord| match record.found {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    let columns = [Column::Plain("TYPE"), Column::Plain("NAME"), Column::Plain("VALUE"), Column::Plain("FOUND")];
    let records = domain.records.iter().map(|record| {
        [record.record_type.clone(), record.name.clone(), record.value.clone(), found(record).to_owned()]
    });
    format!("{}\n\n{}", output::pairs(&rows), columns::table(output, columns, records))
}

fn list(output: &Output, domains: &[Domain]) -> String {
    let columns = [
        Column::Plain("DOMAIN"),
        Column::Plain("STATE"),
        Column::Plain("SOCKET"),
        Column::Plain("CERTIFICATE"),
        Column::Wide("ADDED"),
    ];
    let rows = domains.iter().map(|domain| {
        [
            domain.name.clone(),
            state(domain).to_owned(),
            domain.socket.clone().unwrap_or_else(|| "-".to_owned()),
            domain.certificate.as_ref().map_or_else(|| "-".to_owned(), certificate::summary),
            utc(domain.created_at),
        ]
    });
    columns::table(output, columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(more: &str) -> Domain {
        let json = format!(
            r#"{{"id":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","name":"app.example.com","asked":"192.0.2.53:53",
                "created_at":"2026-01-01T12:00:00Z","state":"verified",
                "records":[{{"name":"_sallyport.app.example.com","type":"TXT","value":"v","purpose":"ownership","found":true}},
                           {{"name":"app.example.com","type":"CNAME","value":"tunnel.t.example","purpose":"address"{more}}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn the_next_step_is_the_first_that_is_missing() {
        let pending = Domain { state: DomainState::Pending, ..domain("") };
        assert!(outlook(&pending).starts_with("next: set the TXT record"), "{}", outlook(&pending));
        let elsewhere = domain(r#","found":false,"problem":"app.example.com has no address""#);
        assert_eq!(
            outlook(&elsewhere),
            "next: app.example.com has no address; set the CNAME record of app.example.com"
        );
        let step = next_step(&elsewhere);
        assert_eq!(step.as_deref(), Some("app.example.com has no address; set the CNAME record of app.example.com"));
        // A silent name service is not a missing record.
        let unknown = domain(r#","problem":"the name service did not answer for app.example.com (timeout)""#);
        let failure = unfound(&unknown).unwrap();
        assert!(failure.message.starts_with("the record of address could not be looked up: the name service"));
        assert!(unfound(&elsewhere).unwrap().message.ends_with("lacks its record of address"));
        assert!(unfound(&domain(r#","found":true"#)).is_none());
        let here = domain(r#","found":true"#);
        assert!(outlook(&here).contains("socket edit SOCKET --domain app.example.com`"));
        let wildcard = Domain { name: "*.example.com".into(), ..here.clone() };
        assert!(outlook(&wildcard).contains("socket edit SOCKET --domain '*.example.com'`"));
        let led = Domain { socket: Some("calm-bay-1000.t.example".into()), ..here };
        assert_eq!(outlook(&led), "it leads to calm-bay-1000.t.example");
        assert_eq!(next_step(&led), None);
    }
}
