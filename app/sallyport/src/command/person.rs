//! `sallyport person`: persons who log in with a password that the installation keeps.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreatePerson, InvitedPerson, LocalPerson, PersonState, ResetPerson, UpdatePerson};
use sallyport_client::ApiClient;
use sallyport_model::{PersonEmail, ProviderKind};
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

/// What can be done with persons.
#[derive(Debug, Subcommand)]
pub(crate) enum PersonCommand {
    /// Add a person, who gets a link to set a password
    #[command(alias = "create")]
    Add(AddArgs),
    /// List the persons
    #[command(alias = "list")]
    Ls,
    /// Show a person
    Show(EmailArgs),
    /// Change the name or the groups of a person
    Edit(EditArgs),
    /// Disable a person; the person's logins and connections end
    Disable(EmailArgs),
    /// Enable a person again
    Enable(EmailArgs),
    /// Remove a person's password, and make a link to set a new one
    Reset(ResetArgs),
    /// Remove a person; the person's logins and connections end
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Names a person.
#[derive(Debug, Args)]
pub(crate) struct EmailArgs {
    /// The e-mail address
    #[arg(value_name = "EMAIL", add = ArgValueCompleter::new(candidates::persons))]
    email: PersonEmail,
}

/// Options of `person rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    person: EmailArgs,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `person add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: PersonEmail,
    /// The person's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A group for policies, commas included; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
}

/// Options of `person edit`.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct EditArgs {
    /// The e-mail address
    #[arg(value_name = "EMAIL", required = true, add = ArgValueCompleter::new(candidates::persons))]
    email: Option<PersonEmail>,
    /// The person's name; empty for none
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A group, commas included; may be given several times, and replaces the former groups
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Remove the person from all groups
    #[arg(long, conflicts_with = "groups")]
    no_groups: bool,
}

/// Options of `person reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: PersonEmail,
    /// Turn one-time codes off too, when the phone and the recovery codes are lost
    #[arg(long)]
    totp: bool,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: PersonCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        PersonCommand::Add(AddArgs { email, name, groups }) => {
            let invited = client.create_person(&CreatePerson { email, name, groups }).await?;
            print_invited(context, &invited, needs_codes(&client).await)
        }
        PersonCommand::Ls => {
            let empty = "no persons yet: `sallyport person add you@example.com` adds one";
            let (persons, needs_codes) = (client.persons().await?, needs_codes(&client).await);
            context.output.list(&persons, empty, |persons| list(&context.output, persons, needs_codes))
        }
        PersonCommand::Show(EmailArgs { email }) => {
            let person = client.person(&email).await.map_err(|error| failure::about(error, &email))?;
            let needs_codes = needs_codes(&client).await;
            context.output.data(&person, |person| show(person, needs_codes))
        }
        PersonCommand::Edit(args) => {
            let (email, update) = update(args)?;
            let person = client.update_person(&email, &update).await.map_err(|error| failure::about(error, &email))?;
            let needs_codes = needs_codes(&client).await;
            context.output.data(&person, |person| show(person, needs_codes))
        }
        PersonCommand::Disable(EmailArgs { email }) => set_disabled(context, &client, &email, true).await,
        PersonCommand::Enable(EmailArgs { email }) => set_disabled(context, &client, &email, false).await,
        PersonCommand::Reset(ResetArgs { email, totp }) => {
            let reset = client.reset_person(&email, &ResetPerson { totp }).await;
            let reset = reset.map_err(|error| failure::about(error, &email))?;
            print_invited(context, &reset, needs_codes(&client).await)
        }
        PersonCommand::Rm(RmArgs { person: EmailArgs { email }, yes }) => {
            yes.confirm(&format!("Remove {email}? They are logged out, and their password and codes are gone."))?;
            client.delete_person(&email).await.map_err(|error| failure::about(error, &email))?;
            let gone = json!({ "deleted": email.as_str() });
            context.output.data(&gone, |_| format!("removed {email}, who is logged out"))
        }
    }
}

/// Whether the provider requires codes; false if that cannot be read.
async fn needs_codes(client: &ApiClient) -> bool {
    let providers = client.providers().await.unwrap_or_default();
    providers.iter().any(|provider| provider.kind == ProviderKind::Local && provider.require_totp)
}

async fn set_disabled(
    context: &Context,
    client: &ApiClient,
    email: &PersonEmail,
    disabled: bool,
) -> anyhow::Result<()> {
    let update = UpdatePerson { disabled: Some(disabled), ..UpdatePerson::default() };
    let person = client.update_person(email, &update).await.map_err(|error| failure::about(error, email))?;
    let needs_codes = needs_codes(client).await;
    context.output.data(&person, |person| show(person, needs_codes))
}

/// Prints a person with a link, and how to use it.
fn print_invited(context: &Context, invited: &InvitedPerson, needs_codes: bool) -> anyhow::Result<()> {
    context.output.data(invited, |invited| show_invited(invited, needs_codes))?;
    if let Some(problem) = &invited.problem {
        context.output.hint(&format!("no message was sent: {problem}"));
    }
    if invited.link.is_some() {
        context.output.hint("give them the link: it is shown only now, sets a password once, and proves the address");
    }
    Ok(())
}

fn update(args: EditArgs) -> anyhow::Result<(PersonEmail, UpdatePerson)> {
    let groups = if args.no_groups { Some(Vec::new()) } else { Some(args.groups).filter(|groups| !groups.is_empty()) };
    let name = args.name.map(|name| Some(name).filter(|name| !name.is_empty()));
    if name.is_none() && groups.is_none() {
        return Err(Failure::usage("nothing is to change").next("see `sallyport person edit --help`").into());
    }
    let email = args.email.ok_or_else(|| Failure::usage("which person?"))?;
    Ok((email, UpdatePerson { name, groups, disabled: None }))
}

fn state(person: &LocalPerson) -> &'static str {
    match person.state {
        PersonState::Invited => "invited",
        PersonState::Active => "active",
        PersonState::Disabled => "disabled",
    }
}

/// Groups in one line; a name with a comma or quote is quoted.
fn listed(groups: &[String]) -> String {
    let shown =
        groups.iter().map(|group| if group.contains([',', '"']) { format!("{group:?}") } else { group.clone() });
    shown.collect::<Vec<_>>().join(", ")
}

fn rows(person: &LocalPerson, needs_codes: bool) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("e-mail", person.email.to_string()),
        ("name", person.name.clone().unwrap_or_default()),
        ("groups", listed(&person.groups)),
        ("id", person.id.to_string()),
        ("state", state(person).to_owned()),
    ];
    rows.retain(|(_, value)| !value.is_empty());
    rows.extend(person.verified_at.map(|at| ("verified", utc(at))));
    let codes = if person.totp {
        format!("required; {} recovery codes are left", person.recovery_codes)
    } else if needs_codes {
        "needed, not set up yet".to_owned()
    } else {
        "not required".to_owned()
    };
    rows.push(("codes", codes));
    rows.extend(person.locked_until.map(|at| ("locked until", utc(at))));
    rows.extend(person.last_login_at.map(|at| ("last login", utc(at))));
    rows.push(("added", utc(person.created_at)));
    rows
}

fn show(person: &LocalPerson, needs_codes: bool) -> String {
    output::pairs(&rows(person, needs_codes))
}

fn show_invited(invited: &InvitedPerson, needs_codes: bool) -> String {
    let mut rows = rows(&invited.person, needs_codes);
    match &invited.link {
        Some(link) => rows.push(("link", link.expose().to_owned())),
        None => rows.push(("link", "sent".to_owned())),
    }
    rows.push(("link ends", utc(invited.expires_at)));
    output::pairs(&rows)
}

fn list(output: &Output, persons: &[LocalPerson], needs_codes: bool) -> String {
    let none = if needs_codes { "needed, not set up yet" } else { "no" };
    columns::table(
        output,
        [
            Column::Cut("E-MAIL"),
            Column::Cut("NAME"),
            Column::Cut("GROUPS"),
            Column::Plain("STATE"),
            Column::Plain("CODES"),
            Column::Plain("LAST LOGIN"),
        ],
        persons.iter().map(|person| {
            [
                person.email.to_string(),
                person.name.clone().unwrap_or_default(),
                listed(&person.groups),
                state(person).to_owned(),
                if person.totp { "yes" } else { none }.to_owned(),
                person.last_login_at.map(columns::minute).unwrap_or_default(),
            ]
        }),
    )
}
