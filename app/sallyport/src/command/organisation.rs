//! `sallyport organisation`: the organisations of the account.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{Organisation, UpdateOrganisation};
use sallyport_client::ApiClient;
use sallyport_model::ShortId;
use serde_json::json;

use super::display_name;
use crate::{
    command::options::confirm::YesArg,
    context::{
        Context, candidates,
        credentials::{CredentialsFile, SavedOrganisation},
    },
    failure::{Failure, Kind},
    output::{self, Output},
    view::columns::{self, Column},
};

/// What can be done with organisations.
#[derive(Debug, Subcommand)]
pub(crate) enum OrganisationCommand {
    /// List the organisations that you belong to
    #[command(alias = "list")]
    Ls,
    /// Show the organisation that commands act for
    Show,
    /// Act for an organisation from now on, wherever --organisation does not name another one
    Use(UseArgs),
    /// Give the organisation another name
    Rename(RenameArgs),
    /// Leave the organisation; what you made there stays
    Leave(YesArg),
}

/// Options of `organisation use`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct UseArgs {
    /// The organisation, by name or id
    #[arg(value_name = "ORGANISATION", add = ArgValueCompleter::new(candidates::organisations))]
    which: Option<String>,
    /// Return to your own organisation
    #[arg(long)]
    own: bool,
}

/// Options of `organisation rename`.
#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    /// The new name
    #[arg(id = "new_name", value_name = "NAME")]
    name: String,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: OrganisationCommand) -> anyhow::Result<()> {
    let target = context.target()?;
    let client = context.client(&target)?;
    match command {
        OrganisationCommand::Ls => {
            let all = context.client_of_self(&target)?.organisations().await?;
            context.output.list(&all, "you belong to no organisation", |all| list(&context.output, all))
        }
        OrganisationCommand::Show => context.output.data(&client.organisation().await?, show),
        OrganisationCommand::Use(args) => {
            let found = match args.which.filter(|_| !args.own) {
                Some(which) => Some(find(&context.client_of_self(&target)?, &which).await?),
                None => None,
            };
            let kept = found.as_ref().filter(|one| !one.own);
            let kept = kept.map(|one| SavedOrganisation { id: one.id, name: one.name.clone() });
            CredentialsFile::of_user()?.update(|contents| {
                if let Some(profile) = contents.profiles.get_mut(&target.api.to_string()) {
                    profile.organisation = kept;
                }
            })?;
            let name = found.as_ref().map_or_else(|| "your own organisation".to_owned(), |one| one.name.clone());
            let data = json!({ "organisation": found.map(|one| one.id) });
            context.output.data(&data, |_| output::safe(&format!("commands act for {name}")).into_owned())
        }
        OrganisationCommand::Rename(args) => {
            let update = UpdateOrganisation { name: display_name(&args.name)? };
            context.output.data(&client.update_organisation(&update).await?, show)
        }
        OrganisationCommand::Leave(yes) => {
            let organisation = client.organisation().await?;
            yes.confirm(&format!("Leave {}? Only an invitation makes you a member again.", organisation.name))?;
            client.leave_organisation().await?;
            CredentialsFile::of_user()?.update(|contents| {
                if let Some(profile) = contents.profiles.get_mut(&target.api.to_string()) {
                    profile.organisation.take_if(|kept| kept.id == organisation.id);
                }
            })?;
            context.output.data(&json!({ "left": organisation.id }), |_| {
                output::safe(&format!("left {}", organisation.name)).into_owned()
            })
        }
    }
}

fn is_id(one: &Organisation, text: &str) -> bool {
    text.parse::<ShortId>().is_ok_and(|start| start.begins(one.id.uuid()))
}

async fn find(client: &ApiClient, which: &str) -> anyhow::Result<Organisation> {
    let all = client.organisations().await?;
    let mut found = all.into_iter().filter(|one| one.name == which || is_id(one, which));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => {
            let failure = Failure::new(Kind::Refused, format!("you belong to several organisations called {which:?}"));
            Err(failure.next("name it by its id, as `sallyport organisation ls` shows it").into())
        }
        (None, _) => {
            let failure = Failure::new(Kind::NotFound, format!("you belong to no organisation {which:?}"));
            Err(failure.next("see `sallyport organisation ls`").into())
        }
    }
}

fn show(organisation: &Organisation) -> String {
    output::pairs(&[
        ("organisation", organisation.id.to_string()),
        ("name", organisation.name.clone()),
        ("your role", organisation.role.to_string()),
    ])
}

fn list(output: &Output, organisations: &[Organisation]) -> String {
    columns::table(
        output,
        [Column::Cut("NAME"), Column::Plain("YOUR ROLE"), Column::Plain("YOUR OWN"), Column::Id("ID")],
        organisations.iter().map(|one| {
            let own = if one.own { "yes" } else { "" };
            [one.name.clone(), one.role.to_string(), own.to_owned(), one.id.to_string()]
        }),
    )
}
